/* End to end without a broker: another process passes on over one connection what comes over the other.
 *
 * Two hops over loopback and the waking of two processes are what no broker can do without. The messages and their pace
 * are those of the latency mode.
 */
#define _GNU_SOURCE
#include "pace.h"
#include "pipeline.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RELAY_BYTES_MAX = 64 * 1024 };

/* One connection: the end of this process and the relay's. */
struct hop {
    int near, far;
};

struct sending {
    const struct options *options;
    struct pace *pace;
    int socket;
};

static struct hop open_hop(int listener, const char *address) {
    int on = 1;
    struct hop hop = {.near = connect_to(address)};
    hop.far = accept(listener, NULL, NULL);
    if (hop.far < 0 || setsockopt(hop.far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("accept: %s", strerror(errno));
    return hop;
}

static void close_socket(int socket) {
    if (close(socket) != 0)
        fail("close: %s", strerror(errno));
}

/* Sends all of it, blocking where there is no room; whether there was room at once. */
static bool send_all(int socket, const char *data, size_t size) {
    ssize_t count = send(socket, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN)
        fail("send: %s", strerror(errno));
    size_t sent = count < 0 ? 0 : (size_t)count;
    bool at_once = sent == size;
    while (sent < size) {
        count = send(socket, data + sent, size - sent, MSG_NOSIGNAL);
        if (count < 0)
            fail("send: %s", strerror(errno));
        sent += (size_t)count;
    }
    return at_once;
}

/* The other process: until the sender's connection ends, as it does too when the sender dies. */
static void relay(int from, int to) {
    static char data[RELAY_BYTES_MAX];
    ssize_t count;
    while ((count = recv(from, data, sizeof data, 0)) > 0)
        send_all(to, data, (size_t)count);
    if (count < 0)
        fail("relay: %s", strerror(errno));
}

/* The relay has its ends of the connections alone, so that each side sees when the other is gone. */
static pid_t fork_relay(struct hop in, struct hop out) {
    pid_t child = fork();
    if (child < 0)
        fail("fork: %s", strerror(errno));
    if (child == 0) {
        close_socket(in.near);
        close_socket(out.near);
        relay(in.far, out.far);
        exit(0);
    }
    close_socket(in.far);
    close_socket(out.far);
    return child;
}

static void *send_paced(void *argument) {
    const struct sending *sending = argument;
    size_t size = (size_t)sending->options->size;
    sharpen_timers();
    char *payload = allocate(1, size);
    fill_payload(payload, size, 1);
    start_pace(sending->pace);
    for (int64_t i = 0; i < sending->pace->messages; i++) {
        int64_t stamp = await_turn(sending->pace);
        memcpy(payload, &stamp, STAMP_BYTES);
        if (!send_all(sending->socket, payload, size))
            sending->pace->behind = true;
    }
    free(payload);
    return NULL;
}

static const char *why_nothing_came(ssize_t count) {
    if (count == 0)
        return "end of stream";
    return errno == EAGAIN ? "silence" : strerror(errno);
}

static void read_stamps(int socket, size_t size, int64_t *samples, int64_t messages) {
    struct timeval silence = {.tv_sec = SILENCE_SECONDS_MAX};
    if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence) != 0)
        fail("receive timeout: %s", strerror(errno));
    char *message = allocate(1, size);
    for (int64_t received = 0; received < messages; received++) {
        for (size_t got = 0; got < size;) {
            ssize_t count = recv(socket, message + got, size - got, 0);
            if (count <= 0)
                fail("receive: %s after %lld of %lld", why_nothing_came(count), (long long)received,
                     (long long)messages);
            got += (size_t)count;
        }
        int64_t stamp;
        memcpy(&stamp, message, STAMP_BYTES);
        samples[received] = now_ns() - stamp;
    }
    free(message);
}

static void end_relay(pid_t child, struct hop in, struct hop out) {
    close_socket(in.near);
    int status;
    if (waitpid(child, &status, 0) != child)
        fail("wait: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("the relay ended with status %d", status);
    close_socket(out.near);
}

int relay_mode(const struct options *options) {
    struct pace pace = plan_pace(options);
    int64_t *samples = allocate((size_t)pace.messages, sizeof *samples);
    char address[ADDRESS_BYTES_MAX];
    int port, listener = listen_anywhere(address, &port);
    struct hop in = open_hop(listener, address), out = open_hop(listener, address);
    close_socket(listener);
    pid_t child = fork_relay(in, out);

    struct sending sending = {.options = options, .pace = &pace, .socket = in.near};
    pthread_t sender;
    if (pthread_create(&sender, NULL, send_paced, &sending) != 0)
        fail("no thread for the sender");
    int64_t began = now_ns();
    read_stamps(out.near, (size_t)options->size, samples, pace.messages);
    double elapsed = (double)(now_ns() - began) / 1e9;
    if (pthread_join(sender, NULL) != 0)
        fail("the sender cannot be joined");
    end_relay(child, in, out);

    print_latency(options, &pace, samples, elapsed);
    free(samples);
    return 0;
}
