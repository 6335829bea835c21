#define _GNU_SOURCE
#include "batch.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_AT = 8, CRC_AT = 17, CHECKED_AT = 21, PRODUCER_AT = 43, PAYLOADS_MAX = 256 };

static uint32_t crc32c_by_bits(uint32_t crc, const uint8_t *data, size_t length) {
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_words(uint32_t crc, const uint8_t *data, size_t length) {
    uint64_t wide = crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    return crc32c_by_bits((uint32_t)wide, data, length);
}
#endif

static uint32_t crc32c(const uint8_t *data, size_t length) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc32c_by_words(~0u, data, length);
#endif
    return ~crc32c_by_bits(~0u, data, length);
}

static void put_record(struct bytes *to, int number, size_t size) {
    uint8_t head_data[RECORD_HEAD_BYTES_MAX];
    struct bytes head = {.data = head_data};
    put_integer(&head, 0, 1);     /* attributes */
    put_varint(&head, 0);         /* timestamp delta */
    put_varint(&head, number);    /* offset delta */
    put_varint(&head, -1);        /* no key */
    put_varint(&head, (int64_t)size);
    put_varint(to, (int64_t)(head.length + size + 1));
    put(to, head.data, head.length);
    fill_payload((char *)to->data + to->length, size, (uint64_t)(number % PAYLOADS_MAX) + 1);
    to->length += size;
    put_varint(to, 0);            /* headers */
}

void put_batch(struct bytes *to, int count, size_t size, int attributes) {
    size_t start = to->length;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t timestamp_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    put_integer(to, 0, 8);            /* base offset */
    put_integer(to, 0, 4);            /* length: below */
    put_integer(to, -1, 4);           /* leader epoch */
    put_integer(to, 2, 1);            /* magic */
    put_integer(to, 0, 4);            /* crc: when it is signed */
    put_integer(to, attributes, 2);
    put_integer(to, count - 1, 4);    /* last offset delta */
    put_integer(to, timestamp_ms, 8); /* first and last timestamp */
    put_integer(to, timestamp_ms, 8);
    put_integer(to, -1, 8);           /* producer id, epoch, sequence: when it is signed */
    put_integer(to, -1, 2);
    put_integer(to, -1, 4);
    put_integer(to, count, 4);
    for (int i = 0; i < count; i++)
        put_record(to, i, size);
    struct bytes length = {.data = to->data + start + LENGTH_AT};
    put_integer(&length, (int64_t)(to->length - start - LENGTH_AT - 4), 4);
}

void sign_batch(uint8_t *batch, struct producer producer, int32_t sequence) {
    struct bytes who = {.data = batch + PRODUCER_AT};
    put_integer(&who, producer.id, 8);
    put_integer(&who, producer.epoch, 2);
    put_integer(&who, sequence, 4);
    size_t length = (size_t)batch[LENGTH_AT] << 24 | (size_t)batch[LENGTH_AT + 1] << 16 |
                    (size_t)batch[LENGTH_AT + 2] << 8 | batch[LENGTH_AT + 3];
    struct bytes crc = {.data = batch + CRC_AT};
    put_integer(&crc, crc32c(batch + CHECKED_AT, length + LENGTH_AT + 4 - CHECKED_AT), 4);
}
