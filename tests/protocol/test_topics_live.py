"""Topics that change under running clients, and the fine print of fetching."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from kafka.protocol.metadata import ApiVersionsRequest

from protocol.batches import batch, now_ms, records_of, split
from protocol.raw import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Wire,
    fetch_request,
    produce_request,
)
from protocol.topics import create_topic, fresh_name, wait_until

TIMEOUT = 60.0
FOREVER_MS = 600_000
"""Longer than any connection of a test waits for a response."""


def delete(broker: Any, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [(_, done)] = admin.delete_topics([topic]).items()
    done.result(TIMEOUT)
    with Wire(broker.bootstrap) as wire:
        wait_until(lambda: wire.topic_id(topic) is None, what="end of the topic")


def partition_response(response: Any) -> Any:
    [[found]] = [each.partitions for each in response.responses]
    return found


# Recreated


def test_a_recreated_topic_has_another_id_and_none_of_the_old_messages(broker: Any, wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(values=[b"old"]))
    old_id = wire.topic_id(topic)

    delete(broker, topic)
    assert wire.produce(topic, batch(values=[b"x"])).error_code == UNKNOWN_TOPIC_OR_PARTITION
    create_topic(broker.bootstrap, topic)

    new_id = wire.topic_id(topic)
    assert new_id not in (None, old_id)
    assert wire.offset(topic) == 0
    by_old_id = partition_response(wire.ask(fetch_request([(old_id, 0, 0)], version=13)))
    assert by_old_id.error_code == UNKNOWN_TOPIC_ID
    wire.produce(topic, batch(values=[b"new"]))
    by_new_id = partition_response(wire.ask(fetch_request([(new_id, 0, 0)], version=13)))
    assert [value for _, _, value in records_of(by_new_id.records)] == [b"new"]


def test_running_clients_follow_a_recreated_topic(broker: Any, topic: str) -> None:
    quick = {"topic.metadata.refresh.interval.ms": 100, "retry.backoff.ms": 20, "log_level": 0}
    # The producer must not give the topic up, however long it is away.
    producer = Producer({"bootstrap.servers": broker.bootstrap, "topic.metadata.propagation.max.ms": 300_000, **quick})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **quick,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        producer.produce(topic, b"before", partition=0)
        assert producer.flush(TIMEOUT) == 0
        assert next_value(consumer, {b"before"}) == b"before"

        delete(broker, topic)
        create_topic(broker.bootstrap, topic)
        for _ in range(5):
            producer.produce(topic, b"after", partition=0)
        assert producer.flush(TIMEOUT) == 0

        assert next_value(consumer, {b"after"}) == b"after"
    finally:
        consumer.close()


def next_value(consumer: Consumer, wanted: set[bytes]) -> bytes:
    """The next message with a wanted value; errors on the way are what a recreated topic brings."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None and message.value() in wanted:
            return bytes(message.value())
    raise AssertionError(f"none of {wanted}")


def test_a_fetch_that_waits_ends_when_its_topic_is_deleted(broker: Any, topic: str) -> None:
    with Wire(broker.bootstrap) as waiting:
        topic_id = waiting.topic_id(topic)
        waiting.send(fetch_request([(topic_id, 0, 0)], version=13, wait_ms=15_000))

        delete(broker, topic)

        # Kafka lets it wait to its end; the code is the same.
        found = partition_response(waiting.receive())
        assert found.error_code in (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NONE)


def test_new_partitions_are_used_by_a_producer_that_was_there_before(broker: Any, topic: str) -> None:
    used: set[int] = set()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "topic.metadata.refresh.interval.ms": 100,
            "on_delivery": lambda error, message: used.add(message.partition()),
        }
    )
    producer.produce(topic, b"x", key=b"k")
    assert producer.flush(TIMEOUT) == 0
    assert used == {0}

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [(_, done)] = admin.create_partitions([NewPartitions(topic, 4)]).items()
    done.result(TIMEOUT)

    def all_used() -> bool:
        for number in range(40):
            producer.produce(topic, b"x", key=b"%d" % number)
        producer.flush(TIMEOUT)
        return used == {0, 1, 2, 3}

    wait_until(all_used, what="messages on the new partitions")


def test_times_are_the_brokers_where_the_topic_says_so(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()

    produced = wire.produce(topic, batch(values=[b"a", b"b"], timestamp_ms=1_000))

    assert before <= produced.log_append_time_ms <= now_ms()
    [stored] = split(bytes(wire.fetch(topic).records))
    assert stored.timestamp_type == 1
    assert stored.validate_crc()
    assert [record.timestamp for record in stored] == [produced.log_append_time_ms] * 2
    assert wire.offset(topic, before) == 0


# Fetching


def test_a_fetch_that_waits_returns_when_data_comes(broker: Any, topic: str) -> None:
    with Wire(broker.bootstrap) as waiting, Wire(broker.bootstrap) as writing:
        waiting.send(fetch_request([(topic, 0, 0)], wait_ms=FOREVER_MS))
        assert not select.select([waiting.socket], [], [], 0.2)[0], "a response before there was a record"

        writing.produce(topic, batch(values=[b"here"]))

        # The connection gives up long before the wait would be over.
        found = partition_response(waiting.receive())
        assert [value for _, _, value in records_of(found.records)] == [b"here"]


def test_a_fetch_waits_for_its_least_bytes(broker: Any, topic: str) -> None:
    with Wire(broker.bootstrap) as waiting, Wire(broker.bootstrap) as writing:
        waiting.send(fetch_request([(topic, 0, 0)], wait_ms=FOREVER_MS, bytes_min=5_000))
        writing.produce(topic, batch(values=[b"x" * 1000]))
        assert not select.select([waiting.socket], [], [], 0.2)[0], "a response with too few bytes"

        writing.produce(topic, batch(values=[b"x" * 5000]))

        assert len(records_of(partition_response(waiting.receive()).records)) == 2


def test_a_fetch_without_data_ends_with_its_wait(wire: Wire, topic: str) -> None:
    found = wire.fetch(topic, wait_ms=50)

    assert (found.error_code, found.high_watermark, len(found.records or b"")) == (NONE, 0, 0)


def test_one_partition_with_data_ends_the_wait_for_all(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=3)
    with Wire(broker.bootstrap) as waiting, Wire(broker.bootstrap) as writing:
        waiting.send(fetch_request([(topic, partition, 0) for partition in range(3)], wait_ms=FOREVER_MS))

        writing.produce(topic, batch(values=[b"here"]), partition=2)

        response = waiting.receive()
        found = {
            part.partition_index: records_of(part.records) for each in response.responses for part in each.partitions
        }
        assert found[2] == [(0, None, b"here")]
        assert not found.get(0)
        assert not found.get(1)


def test_an_offset_inside_a_batch_returns_the_whole_batch(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(values=[b"%d" % number for number in range(10)]))

    assert [offset for offset, _, _ in records_of(wire.fetch(topic, 7).records)] == list(range(10))


def test_a_first_batch_larger_than_the_limits_is_returned(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(values=[b"x" * 50_000]))
    wire.produce(topic, batch(values=[b"y"]))

    found = wire.fetch(topic, bytes_max=100, partition_bytes_max=100)

    assert records_of(found.records) == [(0, None, b"x" * 50_000)]


def test_offsets_outside_the_log_are_out_of_range(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(values=[b"x"]))

    assert wire.fetch(topic, 1).error_code == NONE
    assert wire.fetch(topic, 2).error_code == OFFSET_OUT_OF_RANGE
    assert wire.fetch(topic, -5).error_code == OFFSET_OUT_OF_RANGE


def test_a_fetch_session_returns_only_changed_partitions(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(partitions=5)
    first = wire.ask(fetch_request([(topic, partition, 0) for partition in range(5)], session_epoch=0))
    assert first.session_id != 0
    wire.produce(topic, batch(values=[b"new"]), partition=3)

    second = wire.ask(fetch_request([], session_id=first.session_id, session_epoch=1))

    changed = [part.partition_index for each in second.responses for part in each.partitions]
    assert changed == [3]
    fetch_session_id_not_found, invalid_fetch_session_epoch = 70, 71
    stale = wire.ask(fetch_request([], session_id=first.session_id, session_epoch=1))
    assert stale.error_code == invalid_fetch_session_epoch
    unknown = wire.ask(fetch_request([], session_id=first.session_id ^ 0x55555, session_epoch=1))
    assert unknown.error_code == fetch_session_id_not_found


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_by_name_reads(wire: Wire, topic: str, version: int) -> None:
    wire.produce(topic, batch(values=[b"a", b"b"]))

    found = partition_response(wire.ask(fetch_request([(topic, 0, 0)], version=version)))

    assert [value for _, _, value in records_of(found.records)] == [b"a", b"b"]
    assert (found.high_watermark, found.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_writes(wire: Wire, topic: str, version: int) -> None:
    assert wire.produce(topic, batch(values=[b"a"]), version=version).base_offset == 0
    assert wire.produce(topic, batch(values=[b"b"]), version=version, acks=1).base_offset == 1
    wire.produce(topic, batch(values=[b"c"]), version=version, acks=0)
    assert wire.offset(topic) == 3


# Quotas


def set_quota(wire: Wire, client_id: str, name: str, value: float) -> None:
    entry = AlterClientQuotasRequest.EntryData
    response = wire.ask(
        AlterClientQuotasRequest(
            version=1,
            entries=[
                entry(
                    entity=[entry.EntityData(entity_type="client-id", entity_name=client_id)],
                    ops=[entry.OpData(key=name, value=value, remove=False)],
                )
            ],
            validate_only=False,
        )
    )
    assert [each.error_code for each in response.entries] == [NONE]


def is_muted_while_others_are_served(broker: Any, muted: Wire, throttled_ask: Callable[[], int]) -> bool:
    """A response on a new connection comes, to a request sent later, before that on the muted one.

    False where nothing was shown: the client was not over its quota yet, or its silence was over too soon to see it.
    """
    began = time.monotonic()
    silence_ms = throttled_ask()
    if silence_ms == 0:
        return False
    muted.send(ApiVersionsRequest(version=0))
    with Wire(broker.bootstrap) as other:
        assert other.versions()
    was_served = bool(select.select([muted.socket], [], [], 0)[0])
    is_over = time.monotonic() - began >= silence_ms / 1_000
    assert muted.receive().api_keys
    assert is_over or not was_served, "a muted connection was served"
    return not is_over


def test_a_producer_over_its_quota_is_throttled_and_muted(broker: Any, wire: Wire, topic: str) -> None:
    client = fresh_name("producer")
    set_quota(wire, client, "producer_byte_rate", 20_000.0)

    with Wire(broker.bootstrap, client_id=client) as throttled:

        def produced() -> int:
            response = throttled.ask(produce_request(topic, batch(values=[b"x" * 50_000])))
            assert response.responses[0].partition_responses[0].error_code == NONE
            return int(response.throttle_time_ms)

        wait_until(lambda: is_muted_while_others_are_served(broker, throttled, produced), what="a muted producer")


def test_a_consumer_over_its_quota_is_throttled_and_muted(broker: Any, wire: Wire, topic: str) -> None:
    client = fresh_name("consumer")
    for _ in range(5):
        wire.produce(topic, batch(values=[b"x" * 100_000]))
    set_quota(wire, client, "consumer_byte_rate", 50_000.0)

    with Wire(broker.bootstrap, client_id=client) as throttled:

        def fetched() -> int:
            return int(throttled.ask(fetch_request([(topic, 0, 0)])).throttle_time_ms)

        wait_until(lambda: is_muted_while_others_are_served(broker, throttled, fetched), what="a muted consumer")
    assert wire.ask(fetch_request([(topic, 0, 0)])).throttle_time_ms == 0


def test_a_client_without_a_quota_is_not_throttled(wire: Wire, topic: str) -> None:
    for _ in range(5):
        response = wire.ask(produce_request(topic, batch(values=[b"x" * 100_000])))
        assert response.throttle_time_ms == 0


def test_a_producer_within_its_quota_gets_through_all_the_same(broker: Any, wire: Wire, topic: str) -> None:
    client = fresh_name("steady")
    set_quota(wire, client, "producer_byte_rate", 200_000.0)
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client,
            "on_delivery": lambda error, _: errors.append(error) if error is not None else None,
        }
    )

    for _ in range(60):
        producer.produce(topic, b"x" * 10_000, partition=0)

    assert producer.flush(TIMEOUT) == 0
    assert not errors
    assert wire.offset(topic) == 60


def test_writers_on_many_connections_share_one_log_without_holes(broker: Any, topic: str) -> None:
    placed: list[int] = []
    lock = threading.Lock()

    def write() -> None:
        with Wire(broker.bootstrap) as own:
            for _ in range(100):
                base = own.produce(topic, batch(values=[b"a", b"b"])).base_offset
                with lock:
                    placed.append(base)

    writers = [threading.Thread(target=write) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert sorted(placed) == list(range(0, 1600, 2))
