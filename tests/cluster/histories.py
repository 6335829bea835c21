"""Histories of acknowledgements and of reads, and the checks that compare them with the log."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from protocol.topics import wait_until

QUIET = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50, "log_level": 0}
"""Client settings: reconnect to a killed broker at once, without log lines."""

FLUSH_SECONDS_MAX = 150.0
"""Longer than the timeout of a message."""
FOLLOW_SECONDS_MAX = 120.0
SILENCE_SECONDS_MAX = 60.0
IN_FLIGHT_MAX = 500
BURST = 20
"""Messages between two polls for acknowledgements: enough to keep a broker busy, few enough to leave it a core."""


@dataclass(slots=True)
class Acknowledged:
    """The numbered messages of one producer to partition 0 of a topic, and the acknowledged offset of each."""

    topic: str
    sent: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    refused: list[KafkaError] = field(default_factory=list)


class NumberedProducer:
    """Sends 0, 1, 2, ... in its own thread until `finish`."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.history = Acknowledged(topic)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 1,
                "retry.backoff.ms": 10,
                "message.timeout.ms": 120_000,
                "on_delivery": self._delivered,
                **QUIET,
                **settings,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.history.refused.append(error)
        else:
            self.history.offsets[int(message.value().split(b" ")[0])] = message.offset()

    def _run(self) -> None:
        history = self.history
        while not self._stopping.is_set():
            if len(self._producer) < IN_FLIGHT_MAX:
                for _ in range(BURST):
                    self._producer.produce(history.topic, b"%d %s" % (history.sent, b"x" * 100), partition=0)
                    history.sent += 1
            self._producer.poll(0.005)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> Acknowledged:
        """Stop sending; wait until everything sent is acknowledged or refused."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        assert left == 0, f"{left} messages neither acknowledged nor refused"
        return self.history


class Follower:
    """Reads partition 0 of a topic in its own thread, and records the message at each offset."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: dict[int, int] = {}
        self.last_offset = -1
        self.conflicts: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                if not message.error().retriable():
                    self.conflicts.append(str(message.error()))
                continue
            self._saw(message.offset(), int(message.value().split(b" ")[0]))

    def _saw(self, offset: int, number: int) -> None:
        self.last_offset = offset
        if self.seen.setdefault(offset, number) != number:
            self.conflicts.append(f"offset {offset}: {self.seen[offset]}, then {number}")

    def start(self) -> None:
        self._thread.start()

    def finish(self, *, last_offset: int) -> dict[int, int]:
        """Stop after the given offset is read: a client that lost its broker may take a while to reconnect."""
        wait_until(
            lambda: self.last_offset >= last_offset or bool(self.conflicts),
            what=f"reader at offset {last_offset}",
            seconds_max=FOLLOW_SECONDS_MAX,
        )
        self._stopping.set()
        self._thread.join()
        self._consumer.close()
        assert not self.conflicts, self.conflicts[:5]
        return self.seen


def read_all(bootstrap: str, topic: str, *, partition: int = 0) -> list[Message]:
    """All messages of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **QUIET,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        messages: list[Message] = []
        while True:
            message = consumer.poll(SILENCE_SECONDS_MAX)
            assert message is not None, f"silence after {len(messages)} messages"
            if message.error() is None:
                messages.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return messages
            else:
                assert message.error().retriable(), message.error()
    finally:
        consumer.close()


def numbers_by_offset(messages: list[Message]) -> dict[int, int]:
    return {message.offset(): int(message.value().split(b" ")[0]) for message in messages}


def check_nothing_is_lost(history: Acknowledged, log: dict[int, int]) -> None:
    """Every acknowledged message is at its acknowledged offset."""
    lost = {number: at for number, at in history.offsets.items() if log.get(at) != number}
    assert not lost, f"{len(lost)} of {len(history.offsets)} acknowledged are missing: {sorted(lost.items())[:5]}"


def check_no_duplicates(log: dict[int, int]) -> None:
    numbers = list(log.values())
    duplicates = len(numbers) - len(set(numbers))
    assert duplicates == 0, f"{duplicates} duplicate messages"


def check_in_order(log: dict[int, int]) -> None:
    numbers = [log[offset] for offset in sorted(log)]
    assert numbers == sorted(numbers), "messages are out of order"


def check_readers_saw_the_log(seen: dict[int, int], log: dict[int, int]) -> None:
    """Every message that a reader saw is still in the log, and the reader skipped none."""
    differing = {at: (number, log.get(at)) for at, number in seen.items() if log.get(at) != number}
    assert not differing, f"{len(differing)} offsets differ from what was read: {sorted(differing.items())[:5]}"
    last = max(seen, default=-1)
    skipped = [at for at in log if at <= last and at not in seen]
    assert not skipped, f"{len(skipped)} offsets were never read: {skipped[:5]}"
