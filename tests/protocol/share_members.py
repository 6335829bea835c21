"""Share groups and their members in tests: librdkafka's share consumers, one thread for all of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from protocol.topics import attempts

SECONDS_MAX = 60.0
POLL_SECONDS = 0.2
QUICK_SHARES = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Settings with which groups settle within moments, and locks may last for one second."""

Decide = Callable[[Message], AcknowledgeType]


def share_group(broker: Any, group: str, **configs: str) -> str:
    """Configure a share group, which reads from the earliest record; an underscore stands for a dot."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = {"share.auto.offset.reset": "earliest"} | {key.replace("_", "."): item for key, item in configs.items()}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)

    plain = ConfigResource(ConfigResource.Type.GROUP, group)
    for _ in attempts(what=f"configs of {group}", seconds_max=SECONDS_MAX):
        found = admin.describe_configs([plain])[plain].result(SECONDS_MAX)
        if all(found[name].value == value for name, value in wanted.items()):
            return group
    raise AssertionError("attempts ends with an error")


class ShareMember:
    """A share consumer that acknowledges what it polls, by default by accepting it, and remembers what became of it."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.consumer = consumer
        self.delivered: list[tuple[bytes, int]] = []
        self.accepted: list[bytes] = []
        self.refused: list[int] = []

    def poll(self, decide: Decide | None = None, *, seconds: float = POLL_SECONDS) -> list[Message]:
        """Poll once, acknowledge every record as decided, and wait until the broker has taken it."""
        messages = list(self.consumer.poll(seconds))
        chosen: list[tuple[Message, AcknowledgeType]] = []
        for message in messages:
            assert message.error() is None, message.error()
            self.delivered.append((message.value(), message.delivery_count()))
            kind = AcknowledgeType.ACCEPT if decide is None else decide(message)
            self.consumer.acknowledge(message, kind)
            chosen.append((message, kind))
        if chosen:
            errors = self.consumer.commit_sync(SECONDS_MAX)
            failed = {(place.topic, place.partition): error for place, error in errors.items() if error is not None}
            self.refused += [error.args[0].code() for error in failed.values()]
            self.accepted += [
                message.value()
                for message, kind in chosen
                if kind == AcknowledgeType.ACCEPT and (message.topic(), message.partition()) not in failed
            ]
        return messages


@contextmanager
def share_member(broker: Any, group: str, *topics: str, **settings: Any) -> Iterator[ShareMember]:
    """A member with explicit acknowledgement; leaving it releases what it holds."""
    given = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "fetch.wait.max.ms": 100,
        **settings,
    }
    with ShareConsumer(given) as consumer:
        consumer.subscribe(list(topics))
        yield ShareMember(consumer)


def poll_until(enough: Callable[[], bool], *members: ShareMember, what: str, decide: Decide | None = None) -> None:
    """Poll the members in turn until the fact is there."""
    for _ in attempts(what=what, seconds_max=SECONDS_MAX):
        for member in members:
            member.poll(decide)
        if enough():
            return


def accepted(members: Sequence[ShareMember]) -> list[bytes]:
    return sorted(value for member in members for value in member.accepted)
