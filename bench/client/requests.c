/* Produce requests of one record each: no client library sends them one by one on purpose.
 *
 * The request (Produce version 9) is encoded once; only its correlation id changes.
 */
#define _GNU_SOURCE
#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

enum {
    PRODUCE_KEY = 0,
    PRODUCE_VERSION = 9,
    TIMEOUT_MS = 30000,
    TOPIC_BYTES_MAX = 120,
    RECORD_BYTES_MAX = 1 << 20,
};

static uint32_t crc32c(const uint8_t *data, size_t length) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void put_record(struct bytes *to, const struct options *options) {
    uint8_t *body_data = allocate(1, (size_t)options->size + 64);
    struct bytes body = {.data = body_data};
    put_integer(&body, 0, 1);              /* attributes */
    put_varint(&body, 0);                  /* timestamp delta */
    put_varint(&body, 0);                  /* offset delta */
    put_varint(&body, -1);                 /* no key */
    put_varint(&body, options->size);
    fill_payload((char *)body.data + body.length, (size_t)options->size, 1);
    body.length += (size_t)options->size;
    put_varint(&body, 0);                  /* headers */
    put_varint(to, (int64_t)body.length);
    put(to, body.data, body.length);
    free(body_data);
}

static void put_batch(struct bytes *to, const struct options *options) {
    size_t start = to->length;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t timestamp_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    put_integer(to, 0, 8);            /* base offset */
    put_integer(to, 0, 4);            /* length: below */
    put_integer(to, -1, 4);           /* leader epoch */
    put_integer(to, 2, 1);            /* magic */
    put_integer(to, 0, 4);            /* crc: below */
    size_t checked = to->length;
    put_integer(to, 0, 2);            /* attributes */
    put_integer(to, 0, 4);            /* last offset delta */
    put_integer(to, timestamp_ms, 8); /* first and last timestamp */
    put_integer(to, timestamp_ms, 8);
    put_integer(to, -1, 8);           /* producer id, epoch, sequence: none */
    put_integer(to, -1, 2);
    put_integer(to, -1, 4);
    put_integer(to, 1, 4);            /* records */
    put_record(to, options);
    struct bytes crc = {.data = to->data + checked - 4};
    put_integer(&crc, crc32c(to->data + checked, to->length - checked), 4);
    struct bytes length = {.data = to->data + start + 8};
    put_integer(&length, (int64_t)(to->length - start - 12), 4);
}

static struct bytes encode_request(const struct options *options) {
    static const char client[] = "penstock-bench";
    uint8_t *batch_data = allocate(1, (size_t)options->size + 256);
    struct bytes batch = {.data = batch_data};
    put_batch(&batch, options);
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
