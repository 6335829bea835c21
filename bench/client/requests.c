/* Produce requests of one record each, over raw sockets: no client library sends them one by one on purpose.
 *
 * Every connection keeps a fixed number in flight. The request (Produce version 9) is encoded once; only its
 * correlation id changes. Every answer is checked: order of correlation ids, no error code.
 */
#define _GNU_SOURCE
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PRODUCE_KEY = 0,
    PRODUCE_VERSION = 9,
    TIMEOUT_MS = 30000,
    ANSWER_BYTES_MAX = 4096,
    EVENTS_MAX = 64,
    SILENCE_MS_MAX = 30000,
    TOPIC_BYTES_MAX = 120,
    RECORD_BYTES_MAX = 1 << 20,
};

struct bytes {
    uint8_t *data;
    size_t length;
};

struct connection {
    int socket;
    uint8_t *out;         /* room for in_flight requests */
    size_t out_start, out_end;
    uint8_t in[64 * 1024];
    size_t in_end;
    int32_t sent, answered; /* correlation ids: the next to send, the next to come back */
    int64_t *sent_ns;     /* ring of in_flight send times */
};

struct run {
    const struct options *options;
    struct bytes request;
    size_t error_at; /* where in an answer, counted from its correlation id, the error code stands */
    int64_t deadline_ns;
    int64_t *samples_ns;
    size_t samples, samples_room;
};

static void put(struct bytes *to, const void *data, size_t length) {
    memcpy(to->data + to->length, data, length);
    to->length += length;
}

static void put_integer(struct bytes *to, int64_t value, int width) {
    for (int shift = (width - 1) * 8; shift >= 0; shift -= 8)
        to->data[to->length++] = (uint8_t)((uint64_t)value >> shift);
}

static void put_unsigned_varint(struct bytes *to, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        to->data[to->length++] = (uint8_t)(value | 0x80);
    to->data[to->length++] = (uint8_t)value;
}

static void put_varint(struct bytes *to, int64_t value) {
    put_unsigned_varint(to, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

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

static int connect_to(const char *bootstrap) {
    char host[64];
    int port;
    if (sscanf(bootstrap, "%63[^:]:%d", host, &port) != 2)
        fail("--bootstrap %s: ADDRESS:PORT is needed", bootstrap);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        fail("--bootstrap %s: an IPv4 address is needed", bootstrap);
    int connection = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0)
        fail("%s: %s", bootstrap, strerror(errno));
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(connection, F_SETFL, fcntl(connection, F_GETFL) | O_NONBLOCK);
    return connection;
}

/* Queues as many requests as may be in flight, unless the time is over. */
static void refill(struct run *run, struct connection *connection) {
    int64_t now = now_ns();
    if (connection->out_start == connection->out_end)
        connection->out_start = connection->out_end = 0;
    if (now >= run->deadline_ns)
        return;
    size_t room = run->request.length * (size_t)run->options->in_flight;
    while (connection->sent - connection->answered < run->options->in_flight &&
           connection->out_end + run->request.length <= room) {
        struct bytes out = {.data = connection->out + connection->out_end};
        put(&out, run->request.data, run->request.length);
        struct bytes correlation = {.data = connection->out + connection->out_end + 8};
        put_integer(&correlation, connection->sent, 4);
        connection->out_end += run->request.length;
        connection->sent_ns[connection->sent++ % run->options->in_flight] = now;
    }
}

/* Sends what is queued; whether some of it is left because the socket is full. */
static bool send_queued(struct connection *connection) {
    while (connection->out_start < connection->out_end) {
        ssize_t count = send(connection->socket, connection->out + connection->out_start,
                             connection->out_end - connection->out_start, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            return true;
        if (count < 0)
            fail("send: %s", strerror(errno));
        connection->out_start += (size_t)count;
    }
    return false;
}

static uint32_t integer_at(const uint8_t *data) {
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static void take_answer(struct run *run, struct connection *connection, const uint8_t *answer, size_t size) {
    if (size < run->error_at + 2 || integer_at(answer) != (uint32_t)connection->answered)
        fail("an answer of %zu bytes that is not the one to request %d", size, connection->answered);
    int error = answer[run->error_at] << 8 | answer[run->error_at + 1];
    if (error != 0)
        fail("produce was refused with error code %d", error);
    int64_t elapsed = now_ns() - connection->sent_ns[connection->answered++ % run->options->in_flight];
    if (run->samples == run->samples_room) {
        run->samples_room = run->samples_room ? run->samples_room * 2 : 1 << 16;
        run->samples_ns = realloc(run->samples_ns, run->samples_room * sizeof *run->samples_ns);
        if (run->samples_ns == NULL)
            fail("no memory for %zu samples", run->samples_room);
    }
    run->samples_ns[run->samples++] = elapsed;
}

static void receive(struct run *run, struct connection *connection) {
    ssize_t count = recv(connection->socket, connection->in + connection->in_end,
                         sizeof connection->in - connection->in_end, 0);
    if (count < 0 && errno == EAGAIN)
        return;
    if (count <= 0)
        fail("the broker closed a connection: %s", count == 0 ? "end of stream" : strerror(errno));
    connection->in_end += (size_t)count;
    size_t start = 0;
    while (connection->in_end - start >= 4) {
        size_t size = integer_at(connection->in + start);
        if (size > ANSWER_BYTES_MAX)
            fail("an answer of %zu bytes", size);
        if (connection->in_end - start - 4 < size)
            break;
        take_answer(run, connection, connection->in + start + 4, size);
        start += 4 + size;
    }
    memmove(connection->in, connection->in + start, connection->in_end - start);
    connection->in_end -= start;
}

static void watch(int poll, struct connection *connection, int operation, bool writable) {
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(poll, operation, connection->socket, &event) != 0)
        fail("epoll: %s", strerror(errno));
}

/* Serves one connection; whether all its requests are answered and no more will be sent. */
static bool serve(struct run *run, int poll, struct connection *connection, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        receive(run, connection);
    refill(run, connection);
    bool blocked = send_queued(connection);
    if (blocked || (events & EPOLLOUT))
        watch(poll, connection, EPOLL_CTL_MOD, blocked);
    return connection->sent == connection->answered;
}

static void run_load(struct run *run, struct connection *connections) {
    int poll = epoll_create1(0), open = run->options->connections;
    for (int i = 0; i < run->options->connections; i++) {
        watch(poll, &connections[i], EPOLL_CTL_ADD, false);
        refill(run, &connections[i]);
        if (send_queued(&connections[i]))
            watch(poll, &connections[i], EPOLL_CTL_MOD, true);
    }
    while (open > 0) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(poll, events, EVENTS_MAX, SILENCE_MS_MAX);
        if (count == 0)
            fail("no answer for %d s", SILENCE_MS_MAX / 1000);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (serve(run, poll, connection, events[i].events)) {
                epoll_ctl(poll, EPOLL_CTL_DEL, connection->socket, NULL);
                open--;
            }
        }
    }
    close(poll);
}

int requests_mode(const struct options *options) {
    if (strlen(options->topic) > TOPIC_BYTES_MAX || options->size > RECORD_BYTES_MAX)
        fail("a topic of at most %d and a record of at most %d bytes fit", TOPIC_BYTES_MAX, RECORD_BYTES_MAX);
    if (strcmp(options->acks, "0") == 0)
        fail("--acks 0: requests without answers cannot be paced by their answers");
    struct run run = {.options = options, .request = encode_request(options)};
    /* correlation id, tags, one topic, its name, one partition, its index; then the error code */
    run.error_at = 4 + 1 + 1 + 1 + strlen(options->topic) + 1 + 4;
    struct connection *connections = allocate((size_t)options->connections, sizeof *connections);
    for (int i = 0; i < options->connections; i++) {
        connections[i].socket = connect_to(options->bootstrap);
        connections[i].out = allocate((size_t)options->in_flight, run.request.length);
        connections[i].sent_ns = allocate((size_t)options->in_flight, sizeof *connections[i].sent_ns);
    }
    int64_t began = now_ns();
    run.deadline_ns = began + (int64_t)(options->seconds * 1e9);
    run_load(&run, connections);
    double elapsed = (double)(now_ns() - began) / 1e9;

    printf("{\"mode\":\"requests\",\"messages\":%zu,\"bytes\":%.0f,\"seconds\":%.6f,\"messages_per_second\":%.1f",
           run.samples, (double)run.samples * (double)options->size, elapsed, (double)run.samples / elapsed);
    print_percentiles("ms", run.samples_ns, run.samples);
    printf("}\n");
    for (int i = 0; i < options->connections; i++) {
        close(connections[i].socket);
        free(connections[i].out);
        free(connections[i].sent_ns);
    }
    free(connections);
    free(run.samples_ns);
    free(run.request.data);
    return 0;
}
