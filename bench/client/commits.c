/* Commits of one partition each, as consumers without membership send them: each connection is a group of its own.
 *
 * The request (OffsetCommit version 7) is encoded once; the group's number and the offset change.
 */
#include "pipeline.h"

#include <string.h>

enum {
    COMMIT_KEY = 8,
    COMMIT_VERSION = 7,
    GROUP_DIGITS = 4,
    TOPIC_BYTES_MAX = 120,
    OFFSET_BYTES = 8,
};

static const char client[] = "penstock-bench", group[] = "bench-commits-0000";
static size_t group_at, offset_at; /* where the group's digits and the offset stand in a request */

static void put_text(struct bytes *to, const char *text) {
    size_t length = strlen(text);
    put_integer(to, (int64_t)length, 2);
    put(to, text, length);
}

static struct bytes encode_commit(const struct options *options) {
    struct bytes request = {.data = allocate(1, strlen(options->topic) + 256)};
    put_integer(&request, 0, 4); /* size: below */
    put_integer(&request, COMMIT_KEY, 2);
    put_integer(&request, COMMIT_VERSION, 2);
    put_integer(&request, 0, 4); /* correlation id: set at each send */
    put_text(&request, client);
    put_text(&request, group);
    group_at = request.length - GROUP_DIGITS;
    put_integer(&request, -1, 4); /* no generation, no member, no instance */
    put_text(&request, "");
    put_integer(&request, -1, 2);
    put_integer(&request, 1, 4); /* one topic */
    put_text(&request, options->topic);
    put_integer(&request, 1, 4); /* one partition */
    put_integer(&request, 0, 4);
    offset_at = request.length;
    put_integer(&request, 0, OFFSET_BYTES); /* offset: set at each send */
    put_integer(&request, -1, 4); /* leader epoch */
    put_text(&request, "");       /* metadata */
    struct bytes size = {.data = request.data};
    put_integer(&size, (int64_t)request.length - 4, 4);
    return request;
}

static void stamp(uint8_t *request, int connection, int32_t number) {
    for (int digit = GROUP_DIGITS - 1; digit >= 0; digit--, connection /= 10)
        request[group_at + (size_t)digit] = (uint8_t)('0' + connection % 10);
    struct bytes offset = {.data = request + offset_at};
    put_integer(&offset, number, OFFSET_BYTES);
}

int commits_mode(const struct options *options) {
    if (strlen(options->topic) > TOPIC_BYTES_MAX)
        fail("a topic of at most %d bytes fits", TOPIC_BYTES_MAX);
    struct pipeline pipeline = {
        .options = options,
        .what = "commit",
        .request = encode_commit(options),
        /* correlation id, throttle time, one topic, its name, one partition, its index; then the error code */
        .error_at = 4 + 4 + 4 + 2 + strlen(options->topic) + 4 + 4,
        .bytes_each = OFFSET_BYTES,
        .stamp = stamp,
    };
    return run_pipeline(&pipeline);
}
