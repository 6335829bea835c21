/* What the modes over librdkafka share: settings, the client itself, errors. */
#ifndef PENSTOCK_BENCH_KAFKA_H
#define PENSTOCK_BENCH_KAFKA_H

#include "client.h"

#include <librdkafka/rdkafka.h>

/* One setting; librdkafka's own words when it refuses. */
void set(rd_kafka_conf_t *conf, const char *name, const char *value);

/* A producer for this topic with the settings of the options; its delivery failures end the program.
 *
 * With a transactional id (not NULL) it is idempotent too, and has no transaction yet. */
rd_kafka_t *open_producer(const struct options *options, const char *linger_ms, const char *transactional_id);

/* A consumer without a group: partitions are assigned by hand, so no coordinator is part of what is measured. */
rd_kafka_t *open_consumer(const struct options *options);

rd_kafka_topic_t *open_topic(rd_kafka_t *client, const struct options *options);

enum { SEND_CHUNK = 1000, PAYLOADS = 256 };

/* As many payloads of this size as PAYLOADS says, one behind the other. */
char *make_payloads(size_t size);

/* Sends so many messages from `first` on, a chunk to each partition in turn; returns when librdkafka has taken them. */
void send_messages(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct options *options, const char *payloads,
                   int64_t first, int64_t messages, int64_t chunk_messages);

/* Returns when everything sent is acknowledged. */
void flush(rd_kafka_t *producer);

#endif
