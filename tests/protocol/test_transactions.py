"""Transactions of librdkafka's, aiokafka's and Kafka's own producers, and who sees what of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.coordinator.runtime import partition_of
from protocol.test_kafka_java_tools import TOOLS, on, tool
from protocol.topics import fresh_name, wait_until

pytestmark = pytest.mark.xdist_group("transactions")
SECONDS_MAX = 60.0
READ_MS = (5_000, 30_000)
"""How long a tool waits for one more record: it ends only by that, and a slow machine needs more than the first."""
STATE_PARTITIONS = 50
READ_MAX = 500
COMPLETE_COMMIT = 4


def producer(broker: Any, name: str, **settings: Any) -> Producer:
    made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, **settings})
    made.init_transactions(SECONDS_MAX)
    return made


def seen(broker: Any, topic: str, count: int, *, isolation: str = "read_committed", partitions: int = 1) -> list[str]:
    """The first records that a reader gets, and whatever else comes up to the end that it is shown."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": fresh_name("reader"),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    consumer.assign(places)
    found: list[str] = []
    ends: set[int] = set()
    try:

        def read() -> bool:
            for message in consumer.consume(READ_MAX, 0.2):
                error = message.error()
                if error is None:
                    found.append(message.value().decode())
                    ends.discard(message.partition())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.add(message.partition())
                else:
                    raise KafkaException(error)
            return len(found) >= count and len(ends) == partitions

        wait_until(read, what=f"{count} records of {topic}", seconds_max=SECONDS_MAX)
    finally:
        consumer.close()
    return sorted(found)


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=3)
    writer = producer(broker, fresh_name("t"))
    for turn, commit in enumerate([True, False, True]):
        writer.begin_transaction()
        for index in range(6):
            writer.produce(topic, f"{turn}-{index}", partition=index % 3)
        writer.flush(SECONDS_MAX)
        (writer.commit_transaction if commit else writer.abort_transaction)(SECONDS_MAX)

    committed = sorted(f"{turn}-{index}" for turn in (0, 2) for index in range(6))
    assert seen(broker, topic, 12, partitions=3) == committed
    assert len(seen(broker, topic, 18, isolation="read_uncommitted", partitions=3)) == 18


def test_an_open_transaction_holds_readers_of_committed_data_back(broker: Any, topic: str) -> None:
    writer = producer(broker, fresh_name("t"))
    writer.begin_transaction()
    writer.produce(topic, "pending")
    writer.flush(SECONDS_MAX)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, "after")
    plain.flush(SECONDS_MAX)

    assert seen(broker, topic, 0) == []
    assert seen(broker, topic, 2, isolation="read_uncommitted") == ["after", "pending"]

    writer.commit_transaction(SECONDS_MAX)
    assert seen(broker, topic, 2) == ["after", "pending"]


def test_the_offsets_of_a_group_move_with_the_transaction_or_not_at_all(broker: Any, make_topic: Any) -> None:
    source, target, group = make_topic(), make_topic(), fresh_name("g")
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for index in range(10):
        plain.produce(source, str(index))
    plain.flush(SECONDS_MAX)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    read: list[str] = []

    def poll() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.append(message.value().decode())
        return len(read) == 10

    wait_until(poll, what="ten records", seconds_max=SECONDS_MAX)
    writer = producer(broker, fresh_name("t"))
    place = [TopicPartition(source, 0)]

    writer.begin_transaction()
    writer.produce(target, "aborted")
    writer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS_MAX
    )
    writer.abort_transaction(SECONDS_MAX)
    assert [found.offset for found in consumer.committed(place, SECONDS_MAX)] == [-1001]

    writer.begin_transaction()
    writer.produce(target, "committed")
    writer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS_MAX
    )
    writer.commit_transaction(SECONDS_MAX)
    assert [found.offset for found in consumer.committed(place, SECONDS_MAX)] == [10]
    consumer.close()
    assert seen(broker, target, 1) == ["committed"]


def test_a_second_producer_of_the_same_name_fences_the_first(broker: Any, topic: str) -> None:
    name = fresh_name("t")
    first = producer(broker, name)
    first.begin_transaction()
    first.produce(topic, "of the first")
    first.flush(SECONDS_MAX)

    second = producer(broker, name)
    second.begin_transaction()
    second.produce(topic, "of the second")
    second.commit_transaction(SECONDS_MAX)

    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(SECONDS_MAX)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert seen(broker, topic, 1) == ["of the second"]


def test_a_transaction_that_lasts_too_long_is_aborted(start_broker: Any) -> None:
    broker = start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    topic = fresh_name("late")
    writer = producer(broker, fresh_name("t"), **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    writer.begin_transaction()
    writer.produce(topic, "late")
    writer.flush(SECONDS_MAX)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, "plain")
    plain.flush(SECONDS_MAX)

    assert seen(broker, topic, 1) == ["plain"]
    with pytest.raises(KafkaException):
        writer.commit_transaction(SECONDS_MAX)


def test_aiokafka_writes_reads_and_commits_offsets_in_transactions(broker: Any, make_topic: Any) -> None:
    source, target, group = make_topic(), make_topic(), fresh_name("g")

    async def run() -> tuple[list[bytes | None], int | None]:
        writer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=fresh_name("t"))
        await writer.start()
        try:
            async with writer.transaction():
                await writer.send_and_wait(target, b"committed")
                await writer.send_offsets_to_transaction({AioPartition(source, 0): 7}, group)
            await writer.begin_transaction()
            await writer.send_and_wait(target, b"aborted")
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send_and_wait(target, b"also committed")
        finally:
            await writer.stop()
        reader = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await reader.start()
        try:
            reader.assign([AioPartition(target, 0), AioPartition(source, 0)])
            offset = await reader.committed(AioPartition(source, 0))
            values = [(await asyncio.wait_for(reader.getone(AioPartition(target, 0)), SECONDS_MAX)).value for _ in "ab"]
        finally:
            await reader.stop()
        return values, offset

    assert asyncio.run(run()) == ([b"committed", b"also committed"], 7)


@pytest.mark.needs("kafka-jars")
def test_kafkas_tools_write_show_and_read_transactions(broker: Any, topic: str) -> None:
    name = fresh_name("java")
    sent = tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "600", "--record-size", "100", "--throughput", "300"),
        *("--bootstrap-server", broker.bootstrap, "--transactional-id", name, "--transaction-duration-ms", "50"),
    )
    assert "600 records sent" in sent

    def described() -> list[str]:
        shown = tool(f"{TOOLS}.TransactionsCommand", *on(broker), "describe", "--transactional-id", name)
        return shown.splitlines()[-1].split()[2:5]

    # A commit is answered before its markers are written.
    wait_until(lambda: described()[2] == "CompleteCommit", what="the last commit", seconds_max=SECONDS_MAX)
    producer_id, epoch, _ = described()
    assert int(epoch) >= 3, "each transaction has an epoch of its own"

    mine = kept_about(broker, name)
    assert mine[-1]["version"] == 1
    assert mine[-1]["data"]["producerId"] == int(producer_id)
    assert mine[-1]["data"]["producerEpoch"] == int(epoch)
    assert mine[-1]["data"]["clientTransactionVersion"] == 2
    statuses = [value["data"]["transactionStatus"] for value in mine]
    assert statuses[:4] == [0, 1, 2, 4], "Empty, Ongoing, PrepareCommit, CompleteCommit"
    assert len(seen(broker, topic, 600)) == 600


def kept_about(broker: Any, name: str) -> list[dict[str, Any]]:
    """What Kafka's formatter shows of a transactional id in the log of its coordinator, up to a completed commit."""
    for wait_ms in READ_MS:
        records = tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *(*on(broker), "--topic", "__transaction_state", "--partition", str(partition_of(name, STATE_PARTITIONS))),
            *("--offset", "earliest", "--timeout-ms", str(wait_ms)),
            *("--formatter", f"{TOOLS}.consumer.TransactionLogMessageFormatter"),
        )
        # The tool prints one value after another, without anything between them.
        shown = records[max(records.find("{"), 0) : records.rfind("}") + 1]
        values = json.loads("[" + shown.replace('}{"key"', '},{"key"') + "]")
        mine = [line["value"] for line in values if line["key"]["data"]["transactionalId"] == name]
        if mine and mine[-1]["data"]["transactionStatus"] == COMPLETE_COMMIT:
            break
    return mine
