#!/bin/sh
# A share group with Apache Kafka's own tools (`make kafka` fetches its jars): the Java KafkaShareConsumer behind them.
#   examples/queue_with_kafka_tools.sh [HOST:PORT]
set -eu
bootstrap=$(python3 "$(dirname "$0")/where.py" "$@")
topic=jobs-java-$$
group=workers-java-$$
libs=${PENSTOCK_KAFKA_LIBS:-$(dirname "$0")/../.cache/kafka-4.3.1/libs}

run() {
    name=$1
    shift
    "${JAVA:-java}" -XX:TieredStopAtLevel=1 -cp "$libs/*" "$name" --bootstrap-server "$bootstrap" "$@"
}

tool() {
    name=$1
    shift
    run "org.apache.kafka.tools.$name" "$@"
}

tool TopicCommand --create --topic "$topic" --partitions 1
run kafka.admin.ConfigCommand --alter --entity-type groups --entity-name "$group" \
    --add-config share.auto.offset.reset=earliest
printf 'tea\ncoffee\nwater\n' | tool ConsoleProducer --topic "$topic"
# Released records come again, with a higher delivery count; accepted ones do not.
tool consumer.ConsoleShareConsumer --topic "$topic" --group "$group" --max-messages 3 --release
tool consumer.ConsoleShareConsumer --topic "$topic" --group "$group" --max-messages 3 \
    --formatter-property print.delivery=true
tool consumer.group.ShareGroupCommand --describe --group "$group"
