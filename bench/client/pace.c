#include "pace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

struct pace plan_pace(const struct options *options) {
    if (options->size < STAMP_BYTES)
        fail("--size %lld: at least %d bytes carry the time", (long long)options->size, STAMP_BYTES);
    int64_t warmup = (int64_t)(options->warmup_seconds * (double)options->rate);
    int64_t counted = (int64_t)(options->seconds * (double)options->rate);
    return (struct pace){.rate = options->rate, .warmup = warmup, .messages = warmup + counted};
}

void sharpen_timers(void) {
    /* The default slack of 50 us would be half the distance between messages at 10,000 a second. */
    if (prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) != 0)
        fail("timer slack: %s", strerror(errno));
}

void start_pace(struct pace *pace) {
    pace->began_ns = now_ns();
}

static void sleep_until(int64_t due_ns) {
    struct timespec due = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000};
    int error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
    if (error != 0)
        fail("sleep: %s", strerror(error));
}

int64_t await_turn(struct pace *pace) {
    int64_t due = pace->began_ns + pace->turns++ * 1000000000 / pace->rate;
    int64_t now = now_ns();
    if (now >= due)
        return pace->behind ? due : now;
    sleep_until(due);
    pace->behind = false;
    return now_ns();
}

void print_latency(const struct options *options, const struct pace *pace, int64_t *samples_ns, double seconds) {
    int64_t counted = pace->messages - pace->warmup;
    printf("{\"mode\":\"%s\",\"messages\":%lld,\"bytes\":%lld,\"rate\":%lld,\"seconds\":%.6f", options->mode,
           (long long)counted, (long long)(pace->messages * options->size), (long long)pace->rate, seconds);
    print_percentiles("ms", samples_ns + pace->warmup, (size_t)counted);
    printf("}\n");
}
