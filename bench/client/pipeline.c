#define _GNU_SOURCE
#include "pipeline.h"

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
    ANSWER_BYTES_MAX = 4096,
    EVENTS_MAX = 64,
    SILENCE_MS_MAX = 30000,
};

struct connection {
    int number;
    int socket;
    uint8_t *out;         /* room for in_flight requests */
    size_t out_start, out_end;
    uint8_t in[64 * 1024];
    size_t in_end;
    int32_t sent, answered; /* correlation ids: the next to send, the next to come back */
    int64_t *sent_ns;     /* ring of in_flight send times */
};

struct run {
    const struct pipeline *pipeline;
    const struct options *options;
    int64_t deadline_ns;
    int64_t *samples_ns;
    size_t samples, samples_room;
};

void put(struct bytes *to, const void *data, size_t length) {
    memcpy(to->data + to->length, data, length);
    to->length += length;
}

void put_integer(struct bytes *to, int64_t value, int width) {
    for (int shift = (width - 1) * 8; shift >= 0; shift -= 8)
        to->data[to->length++] = (uint8_t)((uint64_t)value >> shift);
}

void put_unsigned_varint(struct bytes *to, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        to->data[to->length++] = (uint8_t)(value | 0x80);
    to->data[to->length++] = (uint8_t)value;
}

void put_varint(struct bytes *to, int64_t value) {
    put_unsigned_varint(to, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

int connect_to(const char *bootstrap) {
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
    return connection;
}

int listen_anywhere(char address[ADDRESS_BYTES_MAX], int *port) {
    struct sockaddr_in bound = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof bound;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&bound, length) != 0 || listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)&bound, &length) != 0)
        fail("listen: %s", strerror(errno));
    *port = ntohs(bound.sin_port);
    snprintf(address, ADDRESS_BYTES_MAX, "127.0.0.1:%d", *port);
    return listener;
}

/* Queues as many requests as may be in flight, unless the time is over. */
static void refill(struct run *run, struct connection *connection) {
    int64_t now = now_ns();
    if (connection->out_start == connection->out_end)
        connection->out_start = connection->out_end = 0;
    if (now >= run->deadline_ns)
        return;
    size_t room = run->pipeline->request.length * (size_t)run->options->in_flight;
    while (connection->sent - connection->answered < run->options->in_flight &&
           connection->out_end + run->pipeline->request.length <= room) {
        struct bytes out = {.data = connection->out + connection->out_end};
        put(&out, run->pipeline->request.data, run->pipeline->request.length);
        struct bytes correlation = {.data = connection->out + connection->out_end + CORRELATION_AT};
        put_integer(&correlation, connection->sent, 4);
        if (run->pipeline->stamp != NULL)
            run->pipeline->stamp(connection->out + connection->out_end, connection->number, connection->sent);
        connection->out_end += run->pipeline->request.length;
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

uint32_t integer_at(const uint8_t *data) {
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static void take_answer(struct run *run, struct connection *connection, const uint8_t *answer, size_t size) {
    if (size < run->pipeline->error_at + 2 || integer_at(answer) != (uint32_t)connection->answered)
        fail("an answer of %zu bytes that is not the one to request %d", size, connection->answered);
    int error = answer[run->pipeline->error_at] << 8 | answer[run->pipeline->error_at + 1];
    if (error != 0)
        fail("%s was refused with error code %d", run->pipeline->what, error);
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

/* Serves one connection; whether all its requests have a response and no more will be sent. */
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

int run_pipeline(struct pipeline *pipeline) {
    const struct options *options = pipeline->options;
    struct run run = {.pipeline = pipeline, .options = options};
    struct connection *connections = allocate((size_t)options->connections, sizeof *connections);
    for (int i = 0; i < options->connections; i++) {
        connections[i].number = i;
        connections[i].socket = connect_to(options->bootstrap);
        fcntl(connections[i].socket, F_SETFL, fcntl(connections[i].socket, F_GETFL) | O_NONBLOCK);
        connections[i].out = allocate((size_t)options->in_flight, pipeline->request.length);
        connections[i].sent_ns = allocate((size_t)options->in_flight, sizeof *connections[i].sent_ns);
    }
    int64_t began = now_ns();
    run.deadline_ns = began + (int64_t)(options->seconds * 1e9);
    run_load(&run, connections);
    double elapsed = (double)(now_ns() - began) / 1e9;

    printf("{\"mode\":\"%s\",\"messages\":%zu,\"bytes\":%.0f,\"seconds\":%.6f,\"messages_per_second\":%.1f",
           options->mode, run.samples, (double)run.samples * pipeline->bytes_each, elapsed,
           (double)run.samples / elapsed);
    print_percentiles("ms", run.samples_ns, run.samples);
    printf("}\n");
    for (int i = 0; i < options->connections; i++) {
        close(connections[i].socket);
        free(connections[i].out);
        free(connections[i].sent_ns);
    }
    free(connections);
    free(run.samples_ns);
    free(pipeline->request.data);
    return 0;
}
