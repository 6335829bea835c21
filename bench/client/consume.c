/* Reads partitions from their beginning; the clock runs from the first message that arrives to the last. */
#include "kafka.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 10000, WAIT_MS = 100 };
static const int64_t SILENCE_NS_MAX = 30 * 1000000000ll;

struct tally {
    int64_t messages;
    int64_t bytes;
    int64_t first_ns;
    int64_t last_ns;
};

static void take(struct tally *tally, rd_kafka_message_t **chunk, ssize_t count) {
    for (ssize_t i = 0; i < count; i++) {
        if (chunk[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            tally->messages++;
            tally->bytes += (int64_t)chunk[i]->len;
        } else if (chunk[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            fail("consume: %s", rd_kafka_message_errstr(chunk[i]));
        }
        rd_kafka_message_destroy(chunk[i]);
    }
}

static void read_all(rd_kafka_t *consumer, rd_kafka_queue_t *queue, int64_t messages, struct tally *tally) {
    static rd_kafka_message_t *chunk[CHUNK];
    tally->last_ns = now_ns();
    while (tally->messages < messages) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, WAIT_MS, chunk, CHUNK);
        if (count < 0)
            fail("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(consumer, 0);
        int64_t now = now_ns();
        if (count == 0) {
            if (now - tally->last_ns > SILENCE_NS_MAX)
                fail("consume: no message for 30 s after %lld of %lld", (long long)tally->messages,
                     (long long)messages);
            continue;
        }
        if (tally->first_ns == 0)
            tally->first_ns = now;
        take(tally, chunk, count);
        tally->last_ns = now_ns();
    }
}

int consume_mode(const struct options *options) {
    rd_kafka_t *consumer = open_consumer(options);
    rd_kafka_topic_t *topic = open_topic(consumer, options);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(consumer);
    struct tally tally = {0};
    int64_t began = now_ns();
    for (int partition = 0; partition < options->partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_BEGINNING, queue) != 0)
            fail("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
    read_all(consumer, queue, options->messages, &tally);
    for (int partition = 0; partition < options->partitions; partition++)
        rd_kafka_consume_stop(topic, partition);

    double elapsed = (double)(tally.last_ns - tally.first_ns + 1) / 1e9;
    printf("{\"mode\":\"consume\",\"messages\":%lld,\"bytes\":%lld,\"seconds\":%.6f,\"first_ms\":%.3f,"
           "\"messages_per_second\":%.1f,\"mb_per_second\":%.3f}\n",
           (long long)tally.messages, (long long)tally.bytes, elapsed, (double)(tally.first_ns - began) / 1e6,
           (double)tally.messages / elapsed, (double)tally.bytes / elapsed / 1e6);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(consumer);
    return 0;
}
