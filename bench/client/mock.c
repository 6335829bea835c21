/* librdkafka's own broker in memory, for others to send to: a broker that costs next to nothing.
 *
 * It serves until its standard input ends, so that it does not outlive whoever started it.
 */
#include "kafka.h"

#include <errno.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BROKERS = 1, REPLICAS = 1 };

/* The cluster needs a client to live in, which itself connects to no broker. */
static rd_kafka_t *open_host(void) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    /* Errors only: that it has no bootstrap servers is on purpose. */
    set(conf, "log_level", "3");
    rd_kafka_t *host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (host == NULL)
        fail("%s", why);
    return host;
}

static void await_end_of_input(void) {
    char ignored[64];
    ssize_t count;
    do
        count = read(STDIN_FILENO, ignored, sizeof ignored);
    while (count > 0 || (count < 0 && errno == EINTR));
    if (count < 0)
        fail("standard input: %s", strerror(errno));
}

int mock_mode(const struct options *options) {
    rd_kafka_t *host = open_host();
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(host, BROKERS);
    if (cluster == NULL)
        fail("no mock cluster");
    rd_kafka_resp_err_t error = rd_kafka_mock_topic_create(cluster, options->topic, options->partitions, REPLICAS);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("%s: %s", options->topic, rd_kafka_err2str(error));
    printf("{\"mode\":\"mock\",\"bootstrap\":\"%s\"}\n", rd_kafka_mock_cluster_bootstraps(cluster));
    if (fflush(stdout) != 0)
        fail("standard output: %s", strerror(errno));
    await_end_of_input();
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(host);
    return 0;
}
