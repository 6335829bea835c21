"""kill -9 while topics are created, grown, altered and deleted, and while logs are compacted and shortened."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from cluster.histories import QUIET, read_all
from protocol.batches import batch, records_of
from protocol.raw import EARLIEST, NONE, OFFSET_OUT_OF_RANGE, Wire
from protocol.topics import create_topic, wait_until
from soak_time import kills

KILLS = kills(few=4)
TIMEOUT = 60.0
BACKGROUND_SECONDS_MAX = 120.0
MEGABYTE = 1 << 20


class TopicChanger:
    """Creates, grows, alters and deletes topics one after the other, and records the responses.

    A change whose response was lost may or may not have happened: such topics are left out from then on.
    """

    def __init__(self, bootstrap: str, randomness: random.Random) -> None:
        self.topics: dict[str, dict[str, Any]] = {}
        self.deleted: set[str] = set()
        self.done = 0
        self.refused: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 3000, **QUIET})
        self._randomness = randomness
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert not self.refused, self.refused

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            kind = self._randomness.choice((self._make, self._make, self._grow, self._alter, self._delete))
            kind(number)

    def _attempt(self, name: str, change: Callable[[], dict[Any, Any]]) -> bool:
        """Whether the change succeeded; the topic is forgotten where that is unknown."""
        try:
            [(_, future)] = change().items()
            future.result(TIMEOUT)
        except KafkaException as failure:
            error = failure.args[0]
            unknown = error.code() < 0 or error.code() in (KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER)
            if not unknown:
                self.refused.append(f"{name}: {error}")
            self.topics.pop(name, None)
            return False
        self.done += 1
        return True

    def _any(self) -> str | None:
        return self._randomness.choice(sorted(self.topics)) if self.topics else None

    def _make(self, number: int) -> None:
        name = f"topic-{number}"
        partitions = self._randomness.randrange(1, 4)
        if self._attempt(name, lambda: self._admin.create_topics([NewTopic(name, partitions, 1)])):
            self.topics[name] = {"partitions": partitions, "retention.ms": None}

    def _grow(self, number: int) -> None:
        name = self._any()
        if name is not None:
            count = self.topics[name]["partitions"] + 1
            if self._attempt(name, lambda: self._admin.create_partitions([NewPartitions(name, count)])):
                self.topics[name]["partitions"] = count

    def _alter(self, number: int) -> None:
        name = self._any()
        if name is not None:
            value = str(1_000_000 + number)
            entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            if self._attempt(name, lambda: self._admin.incremental_alter_configs([resource])):
                self.topics[name]["retention.ms"] = value

    def _delete(self, number: int) -> None:
        name = self._any()
        if name is not None and self._attempt(name, lambda: self._admin.delete_topics([name])):
            del self.topics[name]
            self.deleted.add(name)


@pytest.mark.slow
@pytest.mark.timeout(300 + 20 * KILLS)
def test_acknowledged_changes_of_topics_survive_every_kill(start_broker: Any, randomness: random.Random) -> None:
    broker = start_broker()
    changer = TopicChanger(broker.bootstrap, random.Random(randomness.getrandbits(32)))
    changer.start()

    try:
        for _ in range(KILLS):
            goal = changer.done + randomness.randrange(1, 15)
            wait_until(lambda: changer.done >= goal, what="changes after a restart")  # noqa: B023
            time.sleep(randomness.random() * 0.03)
            broker.kill()
            broker.start()
    finally:
        changer.finish()

    check_topics(broker, changer)
    broker.restart()
    check_topics(broker, changer)


def check_topics(broker: Any, changer: TopicChanger) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    with Wire(broker.bootstrap) as wire:
        assert not [name for name in changer.deleted if wire.topic_id(name) is not None]
        for name, expected in changer.topics.items():
            assert wire.topic_id(name) is not None, f"{name} was acknowledged but does not exist"
            for partition in range(expected["partitions"]):
                written = wire.produce(name, batch(values=[b"x"]), partition=partition)
                assert written.error_code == NONE, f"{name}-{partition}"
            [(_, described)] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).items()
            retention = described.result(TIMEOUT)["retention.ms"]
            assert expected["retention.ms"] in (None, retention.value)


@pytest.mark.slow
@pytest.mark.timeout(300 + 20 * KILLS)
def test_a_killed_compaction_loses_no_key(start_broker: Any, randomness: random.Random) -> None:
    broker = start_broker({"log.cleaner.backoff.ms": "15", "log.segment.delete.delay.ms": "50"})
    configs = {"cleanup.policy": "compact", "segment.bytes": str(MEGABYTE), "min.cleanable.dirty.ratio": "0.01"}
    create_topic(broker.bootstrap, "state", configs=configs)
    newest: dict[bytes, tuple[int, bytes]] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        newest[message.key()] = (message.offset(), message.value())

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUIET})
    number = 0
    for _ in range(KILLS):
        for _ in range(3000):
            value = b"%d " % number + randomness.randbytes(900)
            producer.produce("state", value, key=b"%d" % randomness.randrange(200), partition=0, on_delivery=delivered)
            number += 1
            if number % 100 == 0:
                producer.poll(0.001)
        time.sleep(randomness.random() * 0.05)
        broker.kill()
        broker.start()
    assert producer.flush(BACKGROUND_SECONDS_MAX) == 0

    for restart in (None, broker.restart):
        if restart is not None:
            restart()
        messages = read_all(broker.bootstrap, "state")
        assert newest_by_key(messages) == newest
        offsets = [message.offset() for message in messages]
        assert offsets == sorted(set(offsets))
    wait_until(
        lambda: len(read_all(broker.bootstrap, "state")) < number // 2,
        what="compaction of at least half of it",
        seconds_max=BACKGROUND_SECONDS_MAX,
    )
    assert newest_by_key(read_all(broker.bootstrap, "state")) == newest


def newest_by_key(messages: list[Message]) -> dict[bytes, tuple[int, bytes]]:
    return {message.key(): (message.offset(), message.value()) for message in messages}


@pytest.mark.slow
@pytest.mark.timeout(300 + 20 * KILLS)
def test_a_killed_retention_leaves_a_log_without_gaps(start_broker: Any, randomness: random.Random) -> None:
    broker = start_broker({"log.retention.check.interval.ms": "15", "log.segment.delete.delay.ms": "50"})
    configs = {"segment.bytes": str(MEGABYTE), "retention.bytes": str(2 * MEGABYTE)}
    create_topic(broker.bootstrap, "short", configs=configs)
    written = 0
    starts = [0]

    for _ in range(KILLS):
        with Wire(broker.bootstrap) as wire:
            for _ in range(randomness.randrange(10, 40)):
                value = b"%d " % written + randomness.randbytes(100_000)
                response = wire.produce("short", batch(values=[value]))
                assert (response.error_code, response.base_offset) == (NONE, written)
                written += 1
        time.sleep(randomness.random() * 0.05)
        broker.kill()
        broker.start()
        with Wire(broker.bootstrap) as wire:
            starts.append(wire.offset("short", EARLIEST))
            assert wire.offset("short") == written
            assert_complete(wire, starts[-1], written)

    assert starts == sorted(starts), "the start of a log went back"
    with Wire(broker.bootstrap) as wire:
        wait_until(lambda: wire.offset("short", EARLIEST) > 0, what="retention", seconds_max=BACKGROUND_SECONDS_MAX)
        assert_complete(wire, wire.offset("short", EARLIEST), written)


def assert_complete(wire: Wire, start: int, end: int) -> None:
    """Every offset from the log's start to its end has the number that was written.

    The start moves meanwhile: a missing offset must be before it.
    """
    offset = start
    while offset < end:
        response = wire.fetch("short", offset, partition_bytes_max=8 * MEGABYTE)
        if response.error_code == OFFSET_OUT_OF_RANGE:
            start, offset = offset, wire.offset("short", EARLIEST)
            assert offset > start, f"{start} is out of range"
            continue
        records = records_of(response.records)
        assert records, f"a gap at {offset}"
        for found, _, value in records:
            assert found == offset
            assert int((value or b"").split(b" ")[0]) == offset
            offset += 1
