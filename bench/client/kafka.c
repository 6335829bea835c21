#include "kafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_MS_MAX = 120000, METADATA_MS_MAX = 30000, POLL_MS = 1 };

void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
        fail("%s", why);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    /* Only failures are reported (delivery.report.only.error). */
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("a message was not delivered: %s", rd_kafka_err2str(message->err));
}

static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque) {
    (void)opaque;
    char why[512];
    if (code == RD_KAFKA_RESP_ERR__FATAL)
        fail("fatal: %s: %s", rd_kafka_err2name(rd_kafka_fatal_error(client, why, sizeof why)), why);
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        fail("no broker: %s", reason);
    fprintf(stderr, "client: %s: %s\n", rd_kafka_err2name(code), reason);
}

static rd_kafka_t *open_client(rd_kafka_type_t kind, rd_kafka_conf_t *conf) {
    char why[512];
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_t *client = rd_kafka_new(kind, conf, why, sizeof why);
    if (client == NULL)
        fail("%s", why);
    return client;
}

rd_kafka_t *open_producer(const struct options *options, const char *linger_ms, const char *transactional_id) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    bool idempotent = options->idempotent || transactional_id != NULL;
    if (transactional_id != NULL)
        set(conf, "transactional.id", transactional_id);
    set(conf, "bootstrap.servers", options->bootstrap);
    set(conf, "client.id", "penstock-bench");
    set(conf, "acks", idempotent ? "all" : options->acks);
    set(conf, "enable.idempotence", idempotent ? "true" : "false");
    set(conf, "compression.codec", options->compression);
    set(conf, "linger.ms", linger_ms);
    set(conf, "batch.size", options->batch_bytes);
    set(conf, "queue.buffering.max.messages", "500000");
    set(conf, "delivery.report.only.error", "true");
    set(conf, "socket.nagle.disable", "true");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return open_client(RD_KAFKA_PRODUCER, conf);
}

rd_kafka_t *open_consumer(const struct options *options) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", options->bootstrap);
    set(conf, "client.id", "penstock-bench");
    set(conf, "fetch.message.max.bytes", options->fetch_bytes);
    set(conf, "queued.min.messages", "1000000");
    set(conf, "socket.nagle.disable", "true");
    return open_client(RD_KAFKA_CONSUMER, conf);
}

rd_kafka_topic_t *open_topic(rd_kafka_t *client, const struct options *options) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options->topic, NULL);
    if (topic == NULL)
        fail("%s: %s", options->topic, rd_kafka_err2str(rd_kafka_last_error()));
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &metadata, METADATA_MS_MAX);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("metadata of %s: %s", options->topic, rd_kafka_err2str(error));
    if (metadata->topic_cnt != 1 || metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("metadata of %s: %s", options->topic, rd_kafka_err2str(metadata->topics[0].err));
    if (metadata->topics[0].partition_cnt < options->partitions)
        fail("%s has %d partitions, %d were asked for", options->topic, metadata->topics[0].partition_cnt,
             options->partitions);
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

void flush(rd_kafka_t *producer) {
    rd_kafka_resp_err_t error = rd_kafka_flush(producer, FLUSH_MS_MAX);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("flush: %s, %d messages are not acknowledged", rd_kafka_err2str(error), rd_kafka_outq_len(producer));
}

char *make_payloads(size_t size) {
    char *payloads = allocate(PAYLOADS, size);
    for (size_t i = 0; i < PAYLOADS; i++)
        fill_payload(payloads + i * size, size, i);
    return payloads;
}

/* Hands over the whole chunk, waiting whenever librdkafka's queue is full. */
static void send_chunk(rd_kafka_t *producer, rd_kafka_topic_t *topic, int partition, rd_kafka_message_t *chunk,
                       int count) {
    while (count > 0) {
        int taken = rd_kafka_produce_batch(topic, partition, 0, chunk, count);
        if (taken == count)
            break;
        int left = 0;
        for (int i = 0; i < count; i++) {
            if (chunk[i].err == RD_KAFKA_RESP_ERR_NO_ERROR)
                continue;
            if (chunk[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                fail("produce: %s", rd_kafka_err2str(chunk[i].err));
            chunk[left++] = chunk[i];
        }
        count = left;
        rd_kafka_poll(producer, POLL_MS);
    }
    rd_kafka_poll(producer, 0);
}

void send_messages(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct options *options, const char *payloads,
                   int64_t first, int64_t messages, int64_t chunk_messages) {
    static rd_kafka_message_t chunk[SEND_CHUNK];
    int partition = 0;
    for (int64_t sent = 0; sent < messages;) {
        int count = messages - sent < chunk_messages ? (int)(messages - sent) : (int)chunk_messages;
        for (int i = 0; i < count; i++) {
            /* librdkafka neither copies nor frees it: the same payloads serve all messages. */
            const char *payload = payloads + (size_t)((first + sent + i) % PAYLOADS) * (size_t)options->size;
            chunk[i] = (rd_kafka_message_t){.payload = (void *)payload, .len = (size_t)options->size};
        }
        send_chunk(producer, topic, partition, chunk, count);
        sent += count;
        partition = (partition + 1) % options->partitions;
    }
}
