/* Messages at a fixed rate, each of which carries when it was sent: the sender's pace, and the report of their ways. */
#ifndef PENSTOCK_BENCH_PACE_H
#define PENSTOCK_BENCH_PACE_H

#include "client.h"

enum { STAMP_BYTES = 8, SILENCE_SECONDS_MAX = 30 };

struct pace {
    int64_t rate;
    int64_t warmup;   /* so many messages come first and are not counted */
    int64_t messages; /* these included */
    int64_t began_ns, turns;
    bool behind; /* for the sender to set when there was no room for a message */
};

/* The pace of the options' seconds; refuses messages that are too small for a stamp. */
struct pace plan_pace(const struct options *options);

/* Lets this thread, and those that it starts from now on (librdkafka's), wake on time. */
void sharpen_timers(void);

/* The first turn is now. */
void start_pace(struct pace *pace);

/* Returns at the next message's turn, with the stamp that it shall carry.
 *
 * That is the moment itself; but while the sender is behind it is when the message was due, so that a stall is not
 * left out. */
int64_t await_turn(struct pace *pace);

/* The line of JSON of a mode, from how long each message, the first ones too, was under way. */
void print_latency(const struct options *options, const struct pace *pace, int64_t *samples_ns, double seconds);

#endif
