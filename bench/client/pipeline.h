/* Requests over raw sockets: every connection keeps a fixed number in flight, and every response is checked.
 *
 * A request is encoded once; its correlation id, and what `stamp` writes, change from one to the next.
 */
#ifndef PENSTOCK_BENCH_PIPELINE_H
#define PENSTOCK_BENCH_PIPELINE_H

#include "client.h"

struct bytes {
    uint8_t *data;
    size_t length;
};

void put(struct bytes *to, const void *data, size_t length);
void put_integer(struct bytes *to, int64_t value, int width);
void put_unsigned_varint(struct bytes *to, uint64_t value);
void put_varint(struct bytes *to, int64_t value);

uint32_t integer_at(const uint8_t *data);

/* A connected socket to a broker. */
int connect_to(const char *bootstrap);

/* A socket that waits for connections on a free port of this machine alone, and its address. */
enum { ADDRESS_BYTES_MAX = 32 };
int listen_anywhere(char address[ADDRESS_BYTES_MAX], int *port);

struct pipeline {
    const struct options *options;
    const char *what;      /* in the words of a refusal */
    struct bytes request;  /* with its size before it; the correlation id stands at CORRELATION_AT */
    size_t error_at;       /* where in a response, counted from its correlation id, the error code stands */
    double bytes_each;     /* payload of one request, for the report */
    void (*stamp)(uint8_t *request, int connection, int32_t number); /* or none */
};

enum { CORRELATION_AT = 8 };

/* Sends for the options' seconds, prints the mode's line of JSON, frees the request; the exit status. */
int run_pipeline(struct pipeline *pipeline);

#endif
