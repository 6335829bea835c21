#include "client.h"

#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: client MODE --bootstrap HOST:PORT --topic TOPIC [options]\n"
    "  produce   --messages N --size S [--acks A --compression C --idempotent --partitions P\n"
    "            --linger-ms L --batch-bytes B]\n"
    "  consume   --messages N [--partitions P --fetch-bytes B]\n"
    "  latency   --rate R --seconds T [--size S --warmup-seconds W --acks A]\n"
    "  requests  --connections C --in-flight K --seconds T [--size S --acks A]\n"
    "  transactions  --messages N --per-transaction M [--size S --partitions P --half-aborted --linger-ms L]\n"
    "  exchanges --messages N --per-transaction M [--size S --partitions P --half-aborted --plain]\n"
    "  commits   --connections C --in-flight K --seconds T\n"
    "without a broker:\n"
    "  mock      --topic TOPIC [--partitions P]: librdkafka's broker in memory, until the end of standard input\n"
    "  passing   --topic TOPIC: a broker in memory that only passes on, until the end of standard input\n"
    "  relay     --rate R --seconds T [--size S --warmup-seconds W]\n"
    "  version\n";

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("client: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL)
        fail("no memory for %zu x %zu bytes", count, size);
    return memory;
}

void fill_payload(char *payload, size_t size, uint64_t seed) {
    static const char words[] = "{\"event\":\"page_view\",\"user\":\"u-000000\",\"url\":\"https://example.org/catalogue/item\","
                                "\"referrer\":\"https://example.org/\",\"agent\":\"Mozilla/5.0 (X11; Linux x86_64)\"}\n";
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        payload[i] = (i / 8) % 10 == 9 ? (char)('0' + state % 10) : words[i % (sizeof words - 1)];
    }
}

static int compare_samples(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

void print_percentiles(const char *name, int64_t *samples_ns, size_t count) {
    if (count == 0)
        fail("no samples of %s", name);
    qsort(samples_ns, count, sizeof *samples_ns, compare_samples);
    const struct {
        const char *label;
        double part;
    } points[] = {{"p50", 0.50}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        size_t index = (size_t)(points[i].part * (double)count);
        if (index >= count)
            index = count - 1;
        printf(",\"%s_%s\":%.4f", name, points[i].label, (double)samples_ns[index] / 1e6);
    }
}

static int64_t whole(const char *text, const char *option) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value <= 0)
        fail("--%s %s: a whole number above 0 is needed", option, text);
    return value;
}

static double seconds(const char *text, const char *option) {
    char *end;
    double value = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || value < 0)
        fail("--%s %s: a number of seconds is needed", option, text);
    return value;
}

static void parse(struct options *options, int count, char **arguments) {
    enum { BOOTSTRAP = 1, TOPIC, MESSAGES, SIZE, ACKS, COMPRESSION, IDEMPOTENT, PARTITIONS, LINGER, BATCH, FETCH,
           RATE, SECONDS, WARMUP, CONNECTIONS, IN_FLIGHT, PER_TRANSACTION, HALF_ABORTED, PLAIN };
    static const struct option known[] = {
        {"bootstrap", required_argument, NULL, BOOTSTRAP},     {"topic", required_argument, NULL, TOPIC},
        {"messages", required_argument, NULL, MESSAGES},       {"size", required_argument, NULL, SIZE},
        {"acks", required_argument, NULL, ACKS},               {"compression", required_argument, NULL, COMPRESSION},
        {"idempotent", no_argument, NULL, IDEMPOTENT},         {"partitions", required_argument, NULL, PARTITIONS},
        {"linger-ms", required_argument, NULL, LINGER},        {"batch-bytes", required_argument, NULL, BATCH},
        {"fetch-bytes", required_argument, NULL, FETCH},       {"rate", required_argument, NULL, RATE},
        {"seconds", required_argument, NULL, SECONDS},         {"warmup-seconds", required_argument, NULL, WARMUP},
        {"connections", required_argument, NULL, CONNECTIONS}, {"in-flight", required_argument, NULL, IN_FLIGHT},
        {"per-transaction", required_argument, NULL, PER_TRANSACTION},
        {"half-aborted", no_argument, NULL, HALF_ABORTED},
        {"plain", no_argument, NULL, PLAIN},
        {NULL, 0, NULL, 0},
    };
    int choice, index = 0;
    while ((choice = getopt_long(count, arguments, "", known, &index)) != -1) {
        switch (choice) {
        case BOOTSTRAP: options->bootstrap = optarg; break;
        case TOPIC: options->topic = optarg; break;
        case MESSAGES: options->messages = whole(optarg, "messages"); break;
        case SIZE: options->size = whole(optarg, "size"); break;
        case ACKS: options->acks = optarg; break;
        case COMPRESSION: options->compression = optarg; break;
        case IDEMPOTENT: options->idempotent = true; break;
        case PARTITIONS: options->partitions = (int)whole(optarg, "partitions"); break;
        case LINGER: options->linger_ms = optarg; break;
        case BATCH: options->batch_bytes = optarg; break;
        case FETCH: options->fetch_bytes = optarg; break;
        case RATE: options->rate = whole(optarg, "rate"); break;
        case SECONDS: options->seconds = seconds(optarg, "seconds"); break;
        case WARMUP: options->warmup_seconds = seconds(optarg, "warmup-seconds"); break;
        case CONNECTIONS: options->connections = (int)whole(optarg, "connections"); break;
        case IN_FLIGHT: options->in_flight = (int)whole(optarg, "in-flight"); break;
        case PER_TRANSACTION: options->per_transaction = whole(optarg, "per-transaction"); break;
        case HALF_ABORTED: options->half_aborted = true; break;
        case PLAIN: options->plain = true; break;
        default: fputs(usage, stderr); exit(2);
        }
    }
}

int main(int count, char **arguments) {
    if (count < 2) {
        fputs(usage, stderr);
        return 2;
    }
    struct options options = {
        .mode = arguments[1], .acks = "1", .compression = "none", .linger_ms = "5", .batch_bytes = "1000000",
        .fetch_bytes = "4000000", .partitions = 1, .connections = 1, .in_flight = 1, .messages = 100000, .size = 100,
        .rate = 1000, .seconds = 4, .warmup_seconds = 1, .per_transaction = 10,
    };
    if (strcmp(options.mode, "version") == 0) {
        printf("{\"librdkafka\":\"%s\"}\n", rd_kafka_version_str());
        return 0;
    }
    parse(&options, count - 1, arguments + 1);
    const struct {
        const char *name;
        int (*run)(const struct options *);
        bool on_broker, on_topic;
    } modes[] = {
        {"produce", produce_mode, true, true},     {"consume", consume_mode, true, true},
        {"latency", latency_mode, true, true},     {"requests", requests_mode, true, true},
        {"commits", commits_mode, true, true},     {"transactions", transactions_mode, true, true},
        {"exchanges", exchanges_mode, true, true}, {"mock", mock_mode, false, true},
        {"relay", relay_mode, false, false},       {"passing", passing_mode, false, true},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(options.mode, modes[i].name) != 0)
            continue;
        if ((modes[i].on_broker && options.bootstrap == NULL) || (modes[i].on_topic && options.topic == NULL))
            break;
        return modes[i].run(&options);
    }
    fputs(usage, stderr);
    return 2;
}
