/* What the modes over librdkafka share: settings, the client itself, errors. */
#ifndef PENSTOCK_BENCH_KAFKA_H
#define PENSTOCK_BENCH_KAFKA_H

#include "client.h"

#include <librdkafka/rdkafka.h>

/* One setting; librdkafka's own words when it refuses. */
void set(rd_kafka_conf_t *conf, const char *name, const char *value);

/* A producer for this topic with the settings of the options; its delivery failures end the program. */
rd_kafka_t *open_producer(const struct options *options, const char *linger_ms);

/* A consumer without a group: partitions are assigned by hand, so no coordinator is part of what is measured. */
rd_kafka_t *open_consumer(const struct options *options);

rd_kafka_topic_t *open_topic(rd_kafka_t *client, const struct options *options);

/* Returns when everything sent is acknowledged. */
void flush(rd_kafka_t *producer);

#endif
