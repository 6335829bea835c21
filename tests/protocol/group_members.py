"""Members of groups as real consumers in threads, and what tests ask of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from protocol.topics import wait_until

SECONDS_MAX = 100.0
POLL_SECONDS = 0.05
BATCH_MAX = 50
SESSION_MS = 15_000
"""Nobody is put out of a group because it did not get the processor for a while."""

QUICK: dict[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "5",
}
"""Settings with which groups settle within moments."""

CLASSIC_RANGE = {"group.protocol": "classic", "partition.assignment.strategy": "range"}
CLASSIC_COOPERATIVE = {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}
EVERY_PROTOCOL = {"range": CLASSIC_RANGE, "cooperative": CLASSIC_COOPERATIVE, "consumer": CONSUMER}

Place = tuple[str, int]


class Ownership:
    """Who owns what by the members' own word. Two owners at one time are remembered as a fault."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[Place, Member] = {}
        self.faults: list[str] = []

    def take(self, member: Member, places: Sequence[Place]) -> None:
        with self._lock:
            for place in places:
                other = self._owners.get(place)
                if other is not None and other is not member:
                    self.faults.append(f"{place} given to {member.name} while {other.name} has it")
                self._owners[place] = member

    def give(self, member: Member, places: Sequence[Place]) -> None:
        with self._lock:
            for place in places:
                if self._owners.get(place) is member:
                    del self._owners[place]


class Member:
    """A consumer in a thread that reads, remembers, and commits what it has read, until it is stopped.

    It leaves when all it has read is committed, or belongs to somebody else.
    """

    def __init__(
        self,
        broker: Any,
        group: str,
        topics: Sequence[str],
        *,
        name: str = "member",
        ownership: Ownership | None = None,
        read: Callable[[str, int, int, bytes], None] | None = None,
        **settings: Any,
    ) -> None:
        self.name = name
        self.owned: set[Place] = set()
        self.seen: list[tuple[str, int, int, bytes]] = []
        self.assignments: list[list[Place]] = []
        self.losses = 0
        self.error: BaseException | None = None
        self._ownership = ownership or Ownership()
        self._read = read
        self._stopping = threading.Event()
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **settings,
        }
        if settings.get("group.protocol") != "consumer":
            settings = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 200, **settings}
        self.consumer = Consumer(settings)
        self.consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        self._ownership.take(self, places)
        self.assignments.append(places)
        self.owned |= set(places)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        self._ownership.give(self, places)
        self.owned -= set(places)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.losses += 1
        self._on_revoke(consumer, partitions)

    def _run(self) -> None:
        is_behind = False
        try:
            while is_behind or not self._stopping.is_set():
                messages = [m for m in self.consumer.consume(BATCH_MAX, POLL_SECONDS) if m.error() is None]
                for message in messages:
                    self.seen.append((message.topic(), message.partition(), message.offset(), message.value()))
                    if self._read is not None:
                        self._read(*self.seen[-1])
                if messages or is_behind:
                    is_behind = not self._committed()
        except BaseException as error:
            self.error = error
        finally:
            self.consumer.close()

    def _committed(self) -> bool:
        """Whether nothing is left to commit. In the middle of a rebalance a commit is refused: try again behind it."""
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as refused:
            error = refused.args[0]
            # A partition that was given away took its offset with it: whoever has it next reads it again.
            return bool(error.code() == KafkaError._NO_OFFSET or error.fatal())
        return True

    @property
    def values(self) -> list[bytes]:
        return [value for *_, value in self.seen]

    def stop(self) -> None:
        """Leave the group and end; whatever went wrong in the thread is raised here."""
        self._stopping.set()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def fill(broker: Any, topic: str, values: Sequence[bytes], *, partitions: int = 1) -> None:
    """Spread values over partitions in turn."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % partitions)
    assert producer.flush(SECONDS_MAX) == 0


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def settle(*members: Member, places: int) -> None:
    """Wait until the members own all partitions between them, each of them its share.

    While partitions move one by one, all of them may be owned before each member has as many as it will get.
    """

    def is_settled() -> bool:
        for member in members:
            if member.error is not None:
                raise member.error
        shares = [len(member.owned) for member in members]
        is_even = min(shares) >= places // len(members)
        return sum(shares) == places and is_even and len(set().union(*(m.owned for m in members))) == places

    wait_until(is_settled, what=f"{places} partitions with {len(members)} members", seconds_max=SECONDS_MAX)


def await_assignment(consumer: Consumer) -> None:
    """Poll until the consumer has partitions; what it reads meanwhile is lost."""

    def has_partitions() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    wait_until(has_partitions, what="assignment", seconds_max=SECONDS_MAX)


def await_values(values: Sequence[bytes], *members: Member) -> Counter[bytes]:
    """Wait until the members have seen every value between them; how often each was seen."""
    missing = set(values)

    def is_complete() -> bool:
        for member in members:
            if member.error is not None:
                raise member.error
        return missing <= set().union(*(member.values for member in members))

    wait_until(is_complete, what=f"{len(values)} values", seconds_max=SECONDS_MAX)
    return Counter(value for member in members for value in member.values)


def await_commits(broker: Any, group: str, topic: str, partitions: int, *, total: int) -> None:
    """Wait until so much is committed. Members that leave sooner leave the rest to those who come after them."""
    wait_until(
        lambda: sum(committed(broker, group, topic, partitions)) == total,
        what=f"{total} committed",
        seconds_max=SECONDS_MAX,
    )


def committed(broker: Any, group: str, topic: str, partitions: int) -> list[int]:
    """The committed offsets of a topic's partitions, asked without being a member."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], timeout=SECONDS_MAX)
        return [each.offset for each in found]
    finally:
        consumer.close()
