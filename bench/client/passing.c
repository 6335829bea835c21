/* A broker in memory that only passes on: what one client produces goes at once to the other that waits for it.
 *
 * One thread, one partition of one topic, one reader that reads on from the beginning; nothing is checked, stored or
 * forgotten. Nothing that has librdkafka on both sides can be quicker by much. It serves until its standard input ends.
 */
#define _GNU_SOURCE
#include "pipeline.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PRODUCE = 0,
    FETCH = 1,
    LIST_OFFSETS = 2,
    METADATA = 3,
    API_VERSIONS = 18,
    UNSUPPORTED_VERSION = 35,
    CONNECTIONS_MAX = 16,
    FRAME_BYTES_MAX = 1 << 20,
    LOG_BYTES_MAX = 64 << 20,
    ANSWER_BYTES_MAX = FRAME_BYTES_MAX + 4096,
    LAST_DELTA_AT = 23,
    NODE = 1,
};

/* The newest version of each request that is understood here; all are of the kind without tags. */
static const int VERSIONS[][2] = {{PRODUCE, 3}, {FETCH, 4}, {LIST_OFFSETS, 1}, {METADATA, 1}, {API_VERSIONS, 0}};
enum { APIS = sizeof VERSIONS / sizeof VERSIONS[0] };

struct peer {
    int socket;
    uint8_t frames[FRAME_BYTES_MAX];
    size_t received;
};

struct passing {
    const char *topic;
    int port;
    struct peer *peers[CONNECTIONS_MAX];
    struct bytes log, answer;
    int64_t end;              /* the offset after the last record */
    size_t sent;              /* bytes of the log that the reader has */
    int64_t sent_offset;      /* and the offset it will ask for next */
    struct peer *waiting;     /* the reader, when it has asked and there was nothing */
    int32_t correlation;      /* of what it asked */
};

/* What is left of a request. */
struct rest {
    const uint8_t *at;
};

static int64_t take(struct rest *rest, int width) {
    int64_t value = (int8_t)*rest->at;
    for (int i = 1; i < width; i++)
        value = (int64_t)((uint64_t)value << 8 | rest->at[i]);
    rest->at += width;
    return value;
}

static void skip_text(struct rest *rest) {
    int64_t length = take(rest, 2);
    rest->at += length > 0 ? length : 0;
}

static void put_name(struct bytes *to, const char *text) {
    put_integer(to, (int64_t)strlen(text), 2);
    put(to, text, strlen(text));
}

static struct bytes *begin_answer(struct passing *passing, int32_t correlation) {
    passing->answer.length = 4; /* size: at the end */
    put_integer(&passing->answer, correlation, 4);
    return &passing->answer;
}

/* The one partition of the one topic, whose own fields follow. */
static void put_partition(struct passing *passing, struct bytes *to) {
    put_integer(to, 1, 4);
    put_name(to, passing->topic);
    put_integer(to, 1, 4);
    put_integer(to, 0, 4);
    put_integer(to, 0, 2); /* no error */
}

static void send_answer(struct passing *passing, struct peer *peer) {
    struct bytes size = {.data = passing->answer.data};
    put_integer(&size, (int64_t)passing->answer.length - 4, 4);
    for (size_t sent = 0; sent < passing->answer.length;) {
        ssize_t count = send(peer->socket, passing->answer.data + sent, passing->answer.length - sent, MSG_NOSIGNAL);
        if (count < 0)
            fail("send: %s", strerror(errno));
        sent += (size_t)count;
    }
}

static void tell_versions(struct passing *passing, struct peer *peer, int32_t correlation, int version) {
    struct bytes *to = begin_answer(passing, correlation);
    put_integer(to, version > 0 ? UNSUPPORTED_VERSION : 0, 2);
    put_integer(to, APIS, 4);
    for (int i = 0; i < APIS; i++) {
        put_integer(to, VERSIONS[i][0], 2);
        put_integer(to, 0, 2);
        put_integer(to, VERSIONS[i][1], 2);
    }
    send_answer(passing, peer);
}

static void put_nodes(struct bytes *to) {
    put_integer(to, 1, 4);
    put_integer(to, NODE, 4);
}

static void tell_metadata(struct passing *passing, struct peer *peer, int32_t correlation) {
    struct bytes *to = begin_answer(passing, correlation);
    put_nodes(to);
    put_name(to, "127.0.0.1");
    put_integer(to, passing->port, 4);
    put_integer(to, -1, 2);   /* no rack */
    put_integer(to, NODE, 4); /* controller */
    put_integer(to, 1, 4);
    put_integer(to, 0, 2); /* no error */
    put_name(to, passing->topic);
    put_integer(to, 0, 1); /* not internal */
    put_integer(to, 1, 4);
    put_integer(to, 0, 2);
    put_integer(to, 0, 4);
    put_integer(to, NODE, 4); /* leader */
    put_nodes(to);            /* replicas */
    put_nodes(to);            /* in sync */
    send_answer(passing, peer);
}

static void tell_beginning(struct passing *passing, struct peer *peer, int32_t correlation) {
    struct bytes *to = begin_answer(passing, correlation);
    put_partition(passing, to);
    put_integer(to, -1, 8); /* no time */
    put_integer(to, 0, 8);
    send_answer(passing, peer);
}

static void pass_on(struct passing *passing, struct peer *reader) {
    size_t length = passing->log.length - passing->sent;
    if (length > FRAME_BYTES_MAX)
        fail("the reader is %zu bytes behind", length);
    struct bytes *to = begin_answer(passing, passing->correlation);
    put_integer(to, 0, 4); /* not throttled */
    put_partition(passing, to);
    put_integer(to, passing->end, 8); /* high watermark */
    put_integer(to, passing->end, 8); /* last stable offset */
    put_integer(to, -1, 4);           /* no list of aborted transactions */
    put_integer(to, (int64_t)length, 4);
    put(to, passing->log.data + passing->sent, length);
    passing->sent = passing->log.length;
    passing->sent_offset = passing->end;
    passing->waiting = NULL;
    send_answer(passing, reader);
}

static void take_batch(struct passing *passing, struct peer *peer, int32_t correlation, struct rest rest) {
    skip_text(&rest);                     /* transactional id */
    rest.at += 2 + 4 + 4;                 /* acks, timeout, one topic */
    skip_text(&rest);
    rest.at += 4 + 4;                     /* one partition, its number */
    size_t length = (size_t)take(&rest, 4);
    if (length > LOG_BYTES_MAX - passing->log.length)
        fail("more than %d bytes were produced", LOG_BYTES_MAX);
    int64_t base = passing->end;
    struct rest last_delta = {.at = rest.at + LAST_DELTA_AT};
    put_integer(&passing->log, base, 8);
    put(&passing->log, rest.at + 8, length - 8);
    passing->end += take(&last_delta, 4) + 1;
    if (passing->waiting != NULL)
        pass_on(passing, passing->waiting);
    struct bytes *to = begin_answer(passing, correlation);
    put_partition(passing, to);
    put_integer(to, base, 8);
    put_integer(to, -1, 8); /* no time of appending */
    put_integer(to, 0, 4);  /* not throttled */
    send_answer(passing, peer);
}

static void take_fetch(struct passing *passing, struct peer *peer, int32_t correlation, struct rest rest) {
    rest.at += 4 + 4 + 4 + 4 + 1 + 4; /* replica, wait, least and most bytes, isolation, one topic */
    skip_text(&rest);
    rest.at += 4 + 4; /* one partition, its number */
    int64_t offset = take(&rest, 8);
    if (offset != passing->sent_offset)
        fail("the reader asks for offset %lld and not for %lld", (long long)offset, (long long)passing->sent_offset);
    passing->waiting = peer;
    passing->correlation = correlation;
    if (passing->log.length > passing->sent)
        pass_on(passing, peer);
}

static void serve(struct passing *passing, struct peer *peer, const uint8_t *frame) {
    struct rest rest = {.at = frame};
    int key = (int)take(&rest, 2), version = (int)take(&rest, 2);
    int32_t correlation = (int32_t)take(&rest, 4);
    skip_text(&rest); /* client id */
    switch (key) {
    case API_VERSIONS:
        tell_versions(passing, peer, correlation, version);
        return;
    case METADATA:
        tell_metadata(passing, peer, correlation);
        return;
    case LIST_OFFSETS:
        tell_beginning(passing, peer, correlation);
        return;
    case PRODUCE:
        take_batch(passing, peer, correlation, rest);
        return;
    case FETCH:
        take_fetch(passing, peer, correlation, rest);
        return;
    default:
        fail("a request of kind %d", key);
    }
}

/* Whether the peer is still there. */
static bool receive(struct passing *passing, struct peer *peer) {
    ssize_t count = recv(peer->socket, peer->frames + peer->received, sizeof peer->frames - peer->received, 0);
    if (count <= 0)
        return false;
    peer->received += (size_t)count;
    size_t served = 0;
    while (peer->received - served >= 4) {
        size_t size = integer_at(peer->frames + served);
        if (size > sizeof peer->frames - 4)
            fail("a frame of %zu bytes", size);
        if (peer->received - served < 4 + size)
            break;
        serve(passing, peer, peer->frames + served + 4);
        served += 4 + size;
    }
    peer->received -= served;
    memmove(peer->frames, peer->frames + served, peer->received);
    return true;
}

static void let_in(struct passing *passing, int listener) {
    int on = 1, place = 0;
    while (place < CONNECTIONS_MAX && passing->peers[place] != NULL)
        place++;
    if (place == CONNECTIONS_MAX)
        fail("more than %d connections", CONNECTIONS_MAX);
    struct peer *peer = passing->peers[place] = allocate(1, sizeof *peer);
    peer->socket = accept(listener, NULL, NULL);
    if (peer->socket < 0 || setsockopt(peer->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("accept: %s", strerror(errno));
}

static void let_go(struct passing *passing, int place) {
    struct peer *peer = passing->peers[place];
    if (passing->waiting == peer)
        passing->waiting = NULL;
    close(peer->socket);
    free(peer);
    passing->peers[place] = NULL;
}

/* Waits for anything, and serves it; whether there is more to come. */
static bool turn(struct passing *passing, int listener) {
    struct pollfd polled[CONNECTIONS_MAX + 2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                                 {.fd = listener, .events = POLLIN}};
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        polled[i + 2] = (struct pollfd){.fd = passing->peers[i] != NULL ? passing->peers[i]->socket : -1, .events = POLLIN};
    if (poll(polled, CONNECTIONS_MAX + 2, -1) < 0)
        fail("poll: %s", strerror(errno));
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (polled[i + 2].revents != 0 && !receive(passing, passing->peers[i]))
            let_go(passing, i);
    if (polled[1].revents != 0)
        let_in(passing, listener);
    return polled[0].revents == 0;
}

int passing_mode(const struct options *options) {
    char address[ADDRESS_BYTES_MAX];
    struct passing passing = {.topic = options->topic,
                              .log.data = allocate(1, LOG_BYTES_MAX),
                              .answer.data = allocate(1, ANSWER_BYTES_MAX)};
    int listener = listen_anywhere(address, &passing.port);
    printf("{\"mode\":\"passing\",\"bootstrap\":\"%s\"}\n", address);
    if (fflush(stdout) != 0)
        fail("standard output: %s", strerror(errno));
    while (turn(&passing, listener))
        ;
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (passing.peers[i] != NULL)
            let_go(&passing, i);
    close(listener);
    free(passing.log.data);
    free(passing.answer.data);
    return 0;
}
