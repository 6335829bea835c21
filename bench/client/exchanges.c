/* One producer that waits for each response: its records, then the end of their transaction, without a client library.
 *
 * The requests are those of transaction version 2 (Produce 12, EndTxn 5): records add their partitions themselves, and
 * every end brings the epoch of the next transaction. With --plain the same records are sent without a transaction.
 */
#define _GNU_SOURCE
#include "batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PRODUCE = 0,
    PRODUCE_VERSION = 12,
    INIT = 22,
    INIT_VERSION = 4,
    END = 26,
    END_VERSION = 5,
    TIMEOUT_MS = 60000,
    LOADING = 14,
    NOT_AVAILABLE = 15,
    NOT_COORDINATOR = 16,
    CONCURRENT_TRANSACTIONS = 51,
    RETRY_US = 1000,
    RETRIES_MAX = 60000,
    NAME_BYTES_MAX = 120,
    BATCH_RECORDS_MAX = 5000,
    PARTS_MAX = 16,
    REQUESTS_MAX = 64,
    ANSWER_BYTES_MAX = 64 * 1024,
    /* index, error code, base offset, time, log start, no record errors, no message, no tags */
    PART_ANSWER_BYTES = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1,
};

struct request {
    struct bytes bytes;
    size_t batch_at[PARTS_MAX];
    int parts;
    int32_t sequence; /* of the first record of each of its batches */
};

struct exchange {
    const struct options *options;
    int socket;
    char name[64];
    struct producer producer;
    struct request requests[REQUESTS_MAX];
    int count;
    uint8_t answer[ANSWER_BYTES_MAX];
    size_t answer_length;
};

static void put_text(struct bytes *to, const char *text) {
    put_unsigned_varint(to, strlen(text) + 1);
    put(to, text, strlen(text));
}

static void begin_request(struct bytes *to, int key, int version) {
    static const char client[] = "penstock-bench";
    put_integer(to, 0, 4); /* size: at the end */
    put_integer(to, key, 2);
    put_integer(to, version, 2);
    put_integer(to, 0, 4); /* correlation id: one response at a time is awaited, in order */
    put_integer(to, sizeof client - 1, 2);
    put(to, client, sizeof client - 1);
    put_unsigned_varint(to, 0);
}

static void end_request(struct bytes *request) {
    put_unsigned_varint(request, 0); /* tags */
    struct bytes size = {.data = request->data};
    put_integer(&size, (int64_t)request->length - 4, 4);
}

static void send_all(int socket, const struct bytes *request) {
    for (size_t sent = 0; sent < request->length;) {
        ssize_t count = send(socket, request->data + sent, request->length - sent, MSG_NOSIGNAL);
        if (count < 0)
            fail("send: %s", strerror(errno));
        sent += (size_t)count;
    }
}

static void receive_all(int socket, uint8_t *to, size_t length) {
    for (size_t got = 0; got < length;) {
        ssize_t count = recv(socket, to + got, length - got, 0);
        if (count <= 0)
            fail("the broker closed the connection: %s", count == 0 ? "end of stream" : strerror(errno));
        got += (size_t)count;
    }
}

static void receive(struct exchange *exchange) {
    uint8_t size[4];
    receive_all(exchange->socket, size, sizeof size);
    exchange->answer_length = integer_at(size);
    if (exchange->answer_length > sizeof exchange->answer)
        fail("an answer of %zu bytes", exchange->answer_length);
    receive_all(exchange->socket, exchange->answer, exchange->answer_length);
}

static int error_at(const struct exchange *exchange, size_t at) {
    if (at + 2 > exchange->answer_length)
        fail("an answer of %zu bytes", exchange->answer_length);
    return exchange->answer[at] << 8 | exchange->answer[at + 1];
}

static bool passes(int error) {
    return error == CONCURRENT_TRANSACTIONS || error == LOADING || error == NOT_AVAILABLE || error == NOT_COORDINATOR;
}

/* Retries until the previous transaction has ended; the response has the producer id and epoch. */
static void ask_for_producer(struct exchange *exchange, const struct bytes *request, const char *what) {
    /* correlation id, tags, throttle time, error code, producer id, epoch */
    enum { CODE_AT = 4 + 1 + 4, ID_AT = CODE_AT + 2, EPOCH_AT = ID_AT + 8 };
    for (int tries = 0; tries < RETRIES_MAX; tries++) {
        send_all(exchange->socket, request);
        receive(exchange);
        int error = error_at(exchange, CODE_AT);
        if (error == 0) {
            const uint8_t *id = exchange->answer + ID_AT;
            exchange->producer.id = (int64_t)((uint64_t)integer_at(id) << 32 | integer_at(id + 4));
            exchange->producer.epoch = (int16_t)error_at(exchange, EPOCH_AT);
            return;
        }
        if (!passes(error))
            fail("%s was refused with error code %d", what, error);
        usleep(RETRY_US);
    }
    fail("%s: refused for a minute", what);
}

static void init(struct exchange *exchange) {
    uint8_t data[256];
    struct bytes request = {.data = data};
    begin_request(&request, INIT, INIT_VERSION);
    put_text(&request, exchange->name);
    put_integer(&request, TIMEOUT_MS, 4);
    put_integer(&request, -1, 8);
    put_integer(&request, -1, 2);
    end_request(&request);
    ask_for_producer(exchange, &request, "the producer's opening");
}

static void end(struct exchange *exchange, bool aborted) {
    uint8_t data[256];
    struct bytes request = {.data = data};
    begin_request(&request, END, END_VERSION);
    put_text(&request, exchange->name);
    put_integer(&request, exchange->producer.id, 8);
    put_integer(&request, exchange->producer.epoch, 2);
    put_integer(&request, !aborted, 1);
    end_request(&request);
    ask_for_producer(exchange, &request, "the end of a transaction");
}

/* One request with a batch for every partition; all of them start at the same sequence. */
static void encode(const struct exchange *exchange, struct request *request, const int *counts, int parts) {
    const struct options *options = exchange->options;
    size_t room = 1024;
    for (int part = 0; part < parts; part++)
        room += 256 + (size_t)counts[part] * ((size_t)options->size + RECORD_HEAD_BYTES_MAX);
    uint8_t *batch_data = allocate(1, room);
    struct bytes *bytes = &request->bytes;
    bytes->data = allocate(1, room);
    begin_request(bytes, PRODUCE, PRODUCE_VERSION);
    if (options->plain)
        put_unsigned_varint(bytes, 0);
    else
        put_text(bytes, exchange->name);
    put_integer(bytes, -1, 2); /* acks of all */
    put_integer(bytes, TIMEOUT_MS, 4);
    put_unsigned_varint(bytes, 2); /* one topic */
    put_text(bytes, options->topic);
    put_unsigned_varint(bytes, (uint64_t)parts + 1);
    for (int part = 0; part < parts; part++) {
        struct bytes batch = {.data = batch_data};
        put_batch(&batch, counts[part], (size_t)options->size, options->plain ? 0 : TRANSACTIONAL);
        put_integer(bytes, part, 4);
        put_unsigned_varint(bytes, batch.length + 1);
        request->batch_at[part] = bytes->length;
        put(bytes, batch.data, batch.length);
        put_unsigned_varint(bytes, 0);
    }
    put_unsigned_varint(bytes, 0); /* tags of the topic */
    end_request(bytes);
    request->parts = parts;
    free(batch_data);
}

/* The requests of one transaction: its records are divided among the partitions, and no batch becomes too large. */
static void encode_all(struct exchange *exchange) {
    int64_t parts = exchange->options->partitions, left = exchange->options->per_transaction;
    for (int32_t sequence = 0; left > 0; sequence += BATCH_RECORDS_MAX) {
        if (exchange->count == REQUESTS_MAX)
            fail("more than %d records in a transaction", BATCH_RECORDS_MAX * REQUESTS_MAX);
        int counts[PARTS_MAX];
        int used = 0;
        for (int64_t part = 0; part < parts && left > 0; part++) {
            int64_t share = (left + parts - part - 1) / (parts - part);
            counts[used] = share < BATCH_RECORDS_MAX ? (int)share : BATCH_RECORDS_MAX;
            left -= counts[used++];
        }
        struct request *request = &exchange->requests[exchange->count++];
        request->sequence = sequence;
        encode(exchange, request, counts, used);
    }
}

static void sign(struct request *request, struct producer producer) {
    for (int part = 0; part < request->parts; part++)
        sign_batch(request->bytes.data + request->batch_at[part], producer, request->sequence);
}

/* The first error code among the partitions of a Produce response; 0 when all took what was sent. */
static int refusal(const struct exchange *exchange, int parts) {
    /* correlation id, tags, one topic, its name, its partitions; then each partition's index */
    size_t at = 4 + 1 + 1 + 1 + strlen(exchange->options->topic) + 1 + 4;
    for (int part = 0; part < parts; part++, at += PART_ANSWER_BYTES) {
        int error = error_at(exchange, at);
        if (error != 0)
            return error;
    }
    return 0;
}

/* The first request alone, since it begins the transaction; the rest behind one another. */
static void send_records(struct exchange *exchange) {
    for (int tries = 0;; tries++) {
        send_all(exchange->socket, &exchange->requests[0].bytes);
        receive(exchange);
        int error = refusal(exchange, exchange->requests[0].parts);
        if (error == 0)
            break;
        if (error != CONCURRENT_TRANSACTIONS || tries == RETRIES_MAX)
            fail("produce was refused with error code %d", error);
        usleep(RETRY_US);
    }
    for (int i = 1; i < exchange->count; i++)
        send_all(exchange->socket, &exchange->requests[i].bytes);
    for (int i = 1; i < exchange->count; i++) {
        receive(exchange);
        int error = refusal(exchange, exchange->requests[i].parts);
        if (error != 0)
            fail("produce was refused with error code %d", error);
    }
}

static void transact(struct exchange *exchange, bool aborted) {
    struct producer nobody = {.id = -1, .epoch = -1};
    for (int i = 0; i < exchange->count; i++)
        sign(&exchange->requests[i], exchange->options->plain ? nobody : exchange->producer);
    send_records(exchange);
    if (!exchange->options->plain)
        end(exchange, aborted);
}

int exchanges_mode(const struct options *options) {
    if (strlen(options->topic) > NAME_BYTES_MAX || options->partitions > PARTS_MAX)
        fail("a topic of at most %d bytes and at most %d partitions fit", NAME_BYTES_MAX, PARTS_MAX);
    struct exchange *exchange = allocate(1, sizeof *exchange);
    exchange->options = options;
    exchange->socket = connect_to(options->bootstrap);
    snprintf(exchange->name, sizeof exchange->name, "penstock-bench-%d", (int)getpid());
    encode_all(exchange);
    if (!options->plain)
        init(exchange);
    transact(exchange, false);

    int64_t count = options->messages / options->per_transaction;
    int64_t *samples_ns = allocate((size_t)count, sizeof *samples_ns);
    int64_t began = now_ns(), before = began;
    for (int64_t i = 0; i < count; i++) {
        transact(exchange, options->half_aborted && i % 2 == 1);
        int64_t now = now_ns();
        samples_ns[i] = now - before;
        before = now;
    }
    double elapsed = (double)(before - began) / 1e9;
    double messages = (double)(count * options->per_transaction), bytes = messages * (double)options->size;
    printf("{\"mode\":\"exchanges\",\"messages\":%.0f,\"bytes\":%.0f,\"seconds\":%.6f,\"messages_per_second\":%.1f,"
           "\"mb_per_second\":%.3f,\"transactions\":%lld,\"transactions_per_second\":%.1f",
           messages, bytes, elapsed, messages / elapsed, bytes / elapsed / 1e6, (long long)count,
           (double)count / elapsed);
    print_percentiles("ms", samples_ns, (size_t)count);
    printf("}\n");
    for (int i = 0; i < exchange->count; i++)
        free(exchange->requests[i].bytes.data);
    close(exchange->socket);
    free(samples_ns);
    free(exchange);
    return 0;
}
