"""Members of groups as real consumers in threads, and what tests ask of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from protocol.clients.abilities import SECONDS_MAX, GroupMember, Owners, Place
from protocol.clients.polled_member import PolledMember
from protocol.topics import wait_until

POLL_SECONDS = 0.05
BATCH_MAX = 50
SESSION_MS = 15_000
"""No member is removed from a group because it got no CPU for a while."""

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


class Ownership:
    """Who owns what by the members' own word. Two owners at one time are remembered as a fault."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[Place, GroupMember] = {}
        self.faults: list[str] = []

    def take(self, member: GroupMember, places: Sequence[Place]) -> None:
        with self._lock:
            for place in places:
                other = self._owners.get(place)
                if other is not None and other is not member:
                    self.faults.append(f"{place} given to {member.name} while {other.name} has it")
                self._owners[place] = member

    def give(self, member: GroupMember, places: Sequence[Place]) -> None:
        with self._lock:
            for place in places:
                if self._owners.get(place) is member:
                    del self._owners[place]


class PolledConsumer:
    """librdkafka's consumer, for a member that polls it."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[bytes]:
        return [m.value() for m in self._consumer.consume(BATCH_MAX, POLL_SECONDS) if m.error() is None]

    def commit(self) -> bool:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as refused:
            error = refused.args[0]
            # A partition that was given away took its offset with it: the next owner reads it again.
            return bool(error.code() == KafkaError._NO_OFFSET or error.fatal())
        return True


class Member(PolledMember):
    """A member by librdkafka."""

    def __init__(
        self,
        broker: Any,
        group: str,
        topics: Sequence[str],
        *,
        name: str = "member",
        ownership: Owners | None = None,
        **settings: Any,
    ) -> None:
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

        @contextmanager
        def subscribed(_: PolledMember) -> Iterator[PolledConsumer]:
            with closing(Consumer(settings)) as consumer:
                consumer.subscribe(
                    list(topics),
                    on_assign=lambda _, partitions: self.on_assigned(map(to_place, partitions)),
                    on_revoke=lambda _, partitions: self.on_revoked(map(to_place, partitions)),
                )
                yield PolledConsumer(consumer)

        super().__init__(subscribed, name=name, owners=ownership or Ownership())


def to_place(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition


def fill(broker: Any, topic: str, values: Sequence[bytes], *, partitions: int = 1) -> None:
    """Spread values over partitions in turn."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % partitions)
    assert producer.flush(SECONDS_MAX) == 0


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def settle(*members: GroupMember, places: int) -> None:
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


def await_values(values: Sequence[bytes], *members: GroupMember) -> Counter[bytes]:
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
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})) as consumer:
        found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], timeout=SECONDS_MAX)
        return [each.offset for each in found]
