#!/bin/sh
# Apache Kafka's own command line tools, from its jars (`make kafka` fetches them).
#   examples/with_kafka_tools.sh [HOST:PORT]
set -eu
bootstrap=$(python3 "$(dirname "$0")/where.py" "$@")
topic=orders-java-$$
libs=${PENSTOCK_KAFKA_LIBS:-$(dirname "$0")/../.cache/kafka-4.3.1/libs}

tool() {
    name=$1
    shift
    "${JAVA:-java}" -XX:TieredStopAtLevel=1 -cp "$libs/*" "org.apache.kafka.tools.$name" --bootstrap-server "$bootstrap" "$@"
}

tool TopicCommand --create --topic "$topic" --partitions 1
printf 'tea\ncoffee\nwater\n' | tool ConsoleProducer --topic "$topic"
tool consumer.ConsoleConsumer --topic "$topic" --partition 0 --offset earliest --max-messages 3
tool GetOffsetShell --topic "$topic"
