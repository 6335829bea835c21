/* Produce requests of one record each: no client library sends them one by one on purpose.
 *
 * The request (Produce version 9) is encoded once; only its correlation id changes.
 */
#define _GNU_SOURCE
#include "batch.h"

#include <stdlib.h>
#include <string.h>

enum {
    PRODUCE_KEY = 0,
    PRODUCE_VERSION = 9,
    TIMEOUT_MS = 30000,
    TOPIC_BYTES_MAX = 120,
    RECORD_BYTES_MAX = 1 << 20,
};

static struct bytes encode_request(const struct options *options) {
    static const char client[] = "penstock-bench";
    uint8_t *batch_data = allocate(1, (size_t)options->size + 256);
    struct bytes batch = {.data = batch_data};
    put_batch(&batch, 1, (size_t)options->size, 0);
    sign_batch(batch.data, (struct producer){.id = -1, .epoch = -1}, -1);
    struct bytes request = {.data = allocate(1, batch.length + 512)};
    size_t name = strlen(options->topic);
    put_integer(&request, 0, 4); /* size: below */
    put_integer(&request, PRODUCE_KEY, 2);
    put_integer(&request, PRODUCE_VERSION, 2);
    put_integer(&request, 0, 4); /* correlation id: set at each send */
    put_integer(&request, sizeof client - 1, 2);
    put(&request, client, sizeof client - 1);
    put_unsigned_varint(&request, 0); /* header tags */
    put_unsigned_varint(&request, 0); /* no transactional id */
    put_integer(&request, strcmp(options->acks, "all") == 0 ? -1 : atoi(options->acks), 2);
    put_integer(&request, TIMEOUT_MS, 4);
    put_unsigned_varint(&request, 2); /* one topic */
    put_unsigned_varint(&request, name + 1);
    put(&request, options->topic, name);
    put_unsigned_varint(&request, 2); /* one partition */
    put_integer(&request, 0, 4);
    put_unsigned_varint(&request, batch.length + 1);
    put(&request, batch.data, batch.length);
    for (int tags = 0; tags < 3; tags++) /* of the partition, the topic, the request */
        put_unsigned_varint(&request, 0);
    struct bytes size = {.data = request.data};
    put_integer(&size, (int64_t)request.length - 4, 4);
    free(batch_data);
    return request;
}

int requests_mode(const struct options *options) {
    if (strlen(options->topic) > TOPIC_BYTES_MAX || options->size > RECORD_BYTES_MAX)
        fail("a topic of at most %d and a record of at most %d bytes fit", TOPIC_BYTES_MAX, RECORD_BYTES_MAX);
    if (strcmp(options->acks, "0") == 0)
        fail("--acks 0: requests without answers cannot be paced by their answers");
    struct pipeline pipeline = {
        .options = options,
        .what = "produce",
        .request = encode_request(options),
        /* correlation id, tags, one topic, its name, one partition, its index; then the error code */
        .error_at = 4 + 1 + 1 + 1 + strlen(options->topic) + 1 + 4,
        .bytes_each = (double)options->size,
    };
    return run_pipeline(&pipeline);
}
