/* One load program for every Kafka broker: the same client code drives both sides of a comparison.
 *
 * Each mode prints exactly one line of JSON to stdout; what goes wrong goes to stderr with exit status 1.
 */
#ifndef PENSTOCK_BENCH_CLIENT_H
#define PENSTOCK_BENCH_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct options {
    const char *mode;
    const char *bootstrap;
    const char *topic;
    const char *acks;
    const char *compression;
    const char *linger_ms;
    const char *batch_bytes;
    const char *fetch_bytes;
    bool idempotent;
    int partitions;
    int connections;
    int in_flight;
    int64_t messages;
    int64_t size;
    int64_t rate;
    int64_t per_transaction;
    bool half_aborted;
    bool plain;
    double seconds;
    double warmup_seconds;
};

/* Each mode returns the program's exit status. */
int produce_mode(const struct options *options);
int consume_mode(const struct options *options);
int latency_mode(const struct options *options);
int requests_mode(const struct options *options);
int commits_mode(const struct options *options);
int transactions_mode(const struct options *options);
int exchanges_mode(const struct options *options);
int mock_mode(const struct options *options);
int relay_mode(const struct options *options);
int passing_mode(const struct options *options);

/* Ends the program with a message; a load run with an error in it measures nothing. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

void *allocate(size_t count, size_t size);

/* Fills a payload like a JSON event: mostly words that repeat from event to event, a tenth of it random digits. */
void fill_payload(char *payload, size_t size, uint64_t seed);

/* Sorts the samples in place and prints ,"NAME_p50":..,"NAME_p99":..,"NAME_p999":..,"NAME_max":.. in milliseconds. */
void print_percentiles(const char *name, int64_t *samples_ns, size_t count);

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
