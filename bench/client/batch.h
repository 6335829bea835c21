/* Batches of records made by hand, for the modes that speak to a broker without a client library. */
#ifndef PENSTOCK_BENCH_BATCH_H
#define PENSTOCK_BENCH_BATCH_H

#include "pipeline.h"

enum { BATCH_HEAD_BYTES = 61, RECORD_HEAD_BYTES_MAX = 24, TRANSACTIONAL = 0x10 };

struct producer {
    int64_t id;
    int16_t epoch;
};

/* Appends a batch of `count` records of `size` bytes that no producer has signed yet. */
void put_batch(struct bytes *to, int count, size_t size, int attributes);

/* Says who sends a batch and its place among what they send, and makes its checksum right. */
void sign_batch(uint8_t *batch, struct producer producer, int32_t sequence);

#endif
