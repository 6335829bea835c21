/* End to end: one thread sends at a fixed rate with linger 0, another reads; each message carries when it was sent.
 *
 * Both ends share one monotonic clock, and the sender never waits for the broker. When it falls behind because
 * librdkafka's queue is full, messages carry the moment they were due, so that a stall is not left out.
 */
#include "kafka.h"
#include "pace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 100, POLL_MS = 1 };
static const int64_t SILENCE_NS_MAX = SILENCE_SECONDS_MAX * 1000000000ll;

struct sending {
    const struct options *options;
    struct pace *pace;
};

static void *send_paced(void *argument) {
    const struct sending *sending = argument;
    const struct options *options = sending->options;
    sharpen_timers();
    rd_kafka_t *producer = open_producer(options, "0", NULL);
    rd_kafka_topic_t *topic = open_topic(producer, options);
    char *payload = allocate(1, (size_t)options->size);
    fill_payload(payload, (size_t)options->size, 1);

    start_pace(sending->pace);
    for (int64_t i = 0; i < sending->pace->messages; i++) {
        int64_t stamp = await_turn(sending->pace);
        memcpy(payload, &stamp, STAMP_BYTES);
        while (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, payload, (size_t)options->size, NULL, 0, NULL) != 0) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
            sending->pace->behind = true;
            rd_kafka_poll(producer, POLL_MS);
        }
        rd_kafka_poll(producer, 0);
    }
    flush(producer);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(producer);
    free(payload);
    return NULL;
}

static void read_stamps(rd_kafka_t *consumer, rd_kafka_queue_t *queue, int64_t *samples, int64_t messages) {
    int64_t last = now_ns();
    for (int64_t received = 0; received < messages;) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(queue, WAIT_MS);
        int64_t now = now_ns();
        if (message == NULL) {
            rd_kafka_poll(consumer, 0);
            if (now - last > SILENCE_NS_MAX)
                fail("consume: no message for %d s after %lld of %lld", SILENCE_SECONDS_MAX, (long long)received,
                     (long long)messages);
            continue;
        }
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            int64_t stamp;
            memcpy(&stamp, message->payload, STAMP_BYTES);
            samples[received++] = now - stamp;
            last = now;
        } else if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            fail("consume: %s", rd_kafka_message_errstr(message));
        }
        rd_kafka_message_destroy(message);
    }
}

int latency_mode(const struct options *options) {
    struct pace pace = plan_pace(options);
    struct sending sending = {.options = options, .pace = &pace};
    int64_t *samples = allocate((size_t)pace.messages, sizeof *samples);
    rd_kafka_t *consumer = open_consumer(options);
    rd_kafka_topic_t *topic = open_topic(consumer, options);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(consumer);
    if (rd_kafka_consume_start_queue(topic, 0, RD_KAFKA_OFFSET_BEGINNING, queue) != 0)
        fail("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));

    pthread_t sender;
    if (pthread_create(&sender, NULL, send_paced, &sending) != 0)
        fail("no thread for the sender");
    int64_t began = now_ns();
    read_stamps(consumer, queue, samples, pace.messages);
    double elapsed = (double)(now_ns() - began) / 1e9;
    pthread_join(sender, NULL);
    rd_kafka_consume_stop(topic, 0);

    print_latency(options, &pace, samples, elapsed);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(consumer);
    free(samples);
    return 0;
}
