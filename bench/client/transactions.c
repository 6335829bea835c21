/* One producer, one transaction after the other; the clock stops when the end of the last one is acknowledged.
 *
 * Every second transaction can be aborted: its records are written all the same, and then taken back.
 */
#include "kafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CALL_MS_MAX = 60000 };

static void check(rd_kafka_error_t *error, const char *what) {
    if (error != NULL)
        fail("%s: %s", what, rd_kafka_error_string(error));
}

static void end(rd_kafka_t *producer, bool aborted) {
    if (!aborted) {
        check(rd_kafka_commit_transaction(producer, CALL_MS_MAX), "commit");
        return;
    }
    /* What is still queued here would not be written at all. */
    flush(producer);
    check(rd_kafka_abort_transaction(producer, CALL_MS_MAX), "abort");
}

static void transact(rd_kafka_t *producer, rd_kafka_topic_t *topic, const struct options *options,
                     const char *payloads, int64_t first, bool aborted) {
    int64_t count = options->per_transaction, parts = options->partitions;
    int64_t share = (count + parts - 1) / parts;
    check(rd_kafka_begin_transaction(producer), "begin");
    send_messages(producer, topic, options, payloads, first, count, share < SEND_CHUNK ? share : SEND_CHUNK);
    end(producer, aborted);
}

int transactions_mode(const struct options *options) {
    char name[64];
    snprintf(name, sizeof name, "penstock-bench-%d", (int)getpid());
    char *payloads = make_payloads((size_t)options->size);
    rd_kafka_t *producer = open_producer(options, options->linger_ms, name);
    rd_kafka_topic_t *topic = open_topic(producer, options);
    check(rd_kafka_init_transactions(producer, CALL_MS_MAX), "init");
    /* Connections, producer id and first metadata are not what is measured. */
    transact(producer, topic, options, payloads, 0, false);

    int64_t count = options->messages / options->per_transaction;
    int64_t *samples_ns = allocate((size_t)count, sizeof *samples_ns);
    int64_t began = now_ns(), before = began;
    for (int64_t i = 0; i < count; i++) {
        transact(producer, topic, options, payloads, i * options->per_transaction, options->half_aborted && i % 2 == 1);
        int64_t now = now_ns();
        samples_ns[i] = now - before;
        before = now;
    }
    double elapsed = (double)(before - began) / 1e9;

    double messages = (double)(count * options->per_transaction), bytes = messages * (double)options->size;
    printf("{\"mode\":\"transactions\",\"messages\":%.0f,\"bytes\":%.0f,\"seconds\":%.6f,\"messages_per_second\":%.1f,"
           "\"mb_per_second\":%.3f,\"transactions\":%lld,\"transactions_per_second\":%.1f",
           messages, bytes, elapsed, messages / elapsed, bytes / elapsed / 1e6, (long long)count,
           (double)count / elapsed);
    print_percentiles("ms", samples_ns, (size_t)count);
    printf("}\n");
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(producer);
    free(samples_ns);
    free(payloads);
    return 0;
}
