/* As many messages as fast as they are taken; the clock stops when the last one is acknowledged. */
#include "kafka.h"

#include <stdio.h>
#include <stdlib.h>

int produce_mode(const struct options *options) {
    char *payloads = make_payloads((size_t)options->size);
    rd_kafka_t *producer = open_producer(options, options->linger_ms, NULL);
    rd_kafka_topic_t *topic = open_topic(producer, options);
    /* Connections, producer id and first metadata are not what is measured. */
    send_messages(producer, topic, options, payloads, 0, options->partitions, 1);
    flush(producer);

    int64_t began = now_ns();
    send_messages(producer, topic, options, payloads, 0, options->messages, SEND_CHUNK);
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
