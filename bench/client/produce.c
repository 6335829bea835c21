/* As many messages as fast as they are taken; the clock stops when the last one is acknowledged. */
#include "kafka.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 1000, PAYLOADS = 256, POLL_MS = 1 };

static char *make_payloads(size_t size) {
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

static void send_all(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct options *options, int64_t messages,
                     const char *payloads) {
    static rd_kafka_message_t chunk[CHUNK];
    int partition = 0;
    for (int64_t sent = 0; sent < messages;) {
        int count = messages - sent < CHUNK ? (int)(messages - sent) : CHUNK;
        for (int i = 0; i < count; i++) {
            /* librdkafka neither copies nor frees it: the same payloads serve all messages. */
            const char *payload = payloads + (size_t)((sent + i) % PAYLOADS) * (size_t)options->size;
            chunk[i] = (rd_kafka_message_t){.payload = (void *)payload, .len = (size_t)options->size};
        }
        send_chunk(producer, topic, partition, chunk, count);
        sent += count;
        partition = (partition + 1) % options->partitions;
    }
}

int produce_mode(const struct options *options) {
    char *payloads = make_payloads((size_t)options->size);
    rd_kafka_t *producer = open_producer(options, options->linger_ms);
    rd_kafka_topic_t *topic = open_topic(producer, options);
    /* Connections, producer id and first metadata are not what is measured. */
    rd_kafka_message_t first = {.payload = payloads, .len = (size_t)options->size};
    for (int partition = 0; partition < options->partitions; partition++) {
        send_chunk(producer, topic, partition, &first, 1);
    }
    flush(producer);

    int64_t began = now_ns();
    send_all(producer, topic, options, options->messages, payloads);
    flush(producer);
    double elapsed = (double)(now_ns() - began) / 1e9;

    double bytes = (double)options->messages * (double)options->size;
    printf("{\"mode\":\"produce\",\"messages\":%lld,\"bytes\":%.0f,\"seconds\":%.6f,\"messages_per_second\":%.1f,"
           "\"mb_per_second\":%.3f}\n",
           (long long)options->messages, bytes, elapsed, (double)options->messages / elapsed, bytes / elapsed / 1e6);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(producer);
    free(payloads);
    return 0;
}
