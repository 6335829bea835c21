"""A shard of groups with the consumer protocol, and the requests of their members."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.coordinator.shard_rig import ShardRig
from tests.unit.groups.rig import as_recorded

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Event, Ticket
from penstock.groups.commands import ConsumerHeartbeat, Heartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from penstock.groups.consumer.embedded_protocol import write_assignment
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.responses import ConsumerHeartbeatReply
from penstock.groups.shard import GroupShard
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId

NOW_MS = 1_000_000
GROUP = "g"


def topic_id(name: str, generation: int = 0) -> TopicId:
    return TopicId(hashlib.md5(f"{name}/{generation}".encode(), usedforsecurity=False).digest())


class Topics:
    """The topics that exist, by name."""

    def __init__(self, **counts: int) -> None:
        self.counts = dict(counts)
        self.generations: dict[str, int] = {}
        self.rack_names: dict[tuple[str, int], tuple[str, ...]] = {}

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def is_view(self, topic: str) -> bool:
        return topic.startswith("view")

    def topic_id(self, topic: str) -> TopicId | None:
        return topic_id(topic, self.generations.get(topic, 0)) if topic in self.counts else None

    def topic_name(self, wanted: TopicId) -> str | None:
        return next((name for name in self.counts if self.topic_id(name) == wanted), None)

    def racks(self, topic: str, partition: int) -> Sequence[str]:
        return self.rack_names.get((topic, partition), ())

    def names(self) -> Iterable[str]:
        return list(self.counts)


@dataclass
class Waiting:
    """A request that has no response yet."""

    ticket: Ticket


class Rig(ShardRig[GroupShard]):
    """A shard with the group under test. Due timers expire after each request."""

    def __init__(self, topics: Topics | None = None, *, assignment_interval_ms: int = 0, **settings: Any) -> None:
        self.topics = topics if topics is not None else Topics(a=6)
        self.config = BrokerConfig(group_consumer_assignment_interval_ms=assignment_interval_ms, **settings)
        self.ids = itertools.count(1)
        self.overrides: dict[str, str] = {}
        """Dynamic configs of every group."""
        super().__init__(now_ms=NOW_MS)

    def new_shard(self) -> GroupShard:
        return GroupShard(
            self.config, self.topics, lambda prefix: f"{prefix or 'id'}-{next(self.ids)}", lambda group: self.overrides
        )

    def as_recorded(self, event: Event) -> Event:
        return as_recorded(event)

    def ask(self, command: Any) -> Any:
        """Send a request; returns its reply, its error, or `Waiting`."""
        ticket = self.send(command)
        self.pass_ms(0)
        return self.replies.get(ticket, Waiting(Ticket(ticket)))

    def change_topics(self, **counts: int) -> None:
        """Create or extend topics, or, with no partitions, delete them."""
        for name, partitions in counts.items():
            if partitions:
                self.topics.counts[name] = partitions
            else:
                self.topics.counts.pop(name, None)
                self.topics.generations[name] = self.topics.generations.get(name, 0) + 1
        self.run(self.shard.on_topics(list(counts), self.now_ms))
        self.pass_ms(0)

    # Queries

    def group(self, name: str = GROUP) -> ConsumerGroup:
        group = self.shard._groups[name]  # pyright: ignore[reportPrivateUsage]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def state(self) -> str:
        return next(listed.state for listed in self.shard.list_groups() if listed.group == GROUP)

    # Requests

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        return self.ask(heartbeat(member_id, epoch, **fields))

    def join(self, member_id: str, *topics: str, **fields: Any) -> Any:
        return self.ask(joining(member_id, *topics, **fields))

    def leave(self, member_id: str, epoch: int = -1, instance: str | None = None) -> Any:
        return self.ask(heartbeat(member_id, epoch, instance=instance))


def heartbeat(
    member_id: str,
    epoch: int,
    *,
    group: str = GROUP,
    instance: str | None = None,
    rack: str | None = None,
    timeout_ms: int = -1,
    topics: Iterable[str] | None = None,
    regex: str | None = None,
    assignor: str | None = None,
    owned: dict[str, Iterable[int]] | None = None,
    version: int = 1,
    client_host: str = "/127.0.0.1",
) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        group=group,
        member_id=member_id,
        member_epoch=epoch,
        group_instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=timeout_ms,
        subscribed_topics=None if topics is None else tuple(topics),
        subscribed_regex=regex,
        server_assignor=assignor,
        owned=None if owned is None else tuple((topic_id(name), tuple(indexes)) for name, indexes in owned.items()),
        client_id="client",
        client_host=client_host,
        version=version,
    )


def joining(member_id: str, *topics: str, **fields: Any) -> ConsumerHeartbeat:
    named: Iterable[str] | None = None if "regex" in fields and not topics else topics
    return heartbeat(member_id, 0, topics=named, owned={}, **{"timeout_ms": 60_000, **fields})


def assigned(reply: Any, topic: str = "a") -> set[int] | None:
    """The partitions of a topic in a heartbeat's reply, or None if it has no assignment."""
    assert isinstance(reply, ConsumerHeartbeatReply), reply
    if reply.assignment is None:
        return None
    return set(dict(reply.assignment).get(topic_id(topic), ()))


def refusal_of(reply: Any) -> tuple[str, str]:
    assert isinstance(reply, BrokerError), reply
    return reply.name, str(reply)


# Classic members


def subscription(topics: Iterable[str], owned: dict[str, Iterable[int]] | None = None, version: int = 3) -> bytes:
    """A consumer's metadata. Owned partitions have the same layout as those of an assignment."""
    names = [name.encode() for name in topics]
    parts = [version.to_bytes(2), len(names).to_bytes(4)]
    parts += [len(name).to_bytes(2) + name for name in names]
    parts.append((-1).to_bytes(4, signed=True))
    if version >= 1:
        parts.append(write_assignment((owned or {}).items(), 0)[2:-4])
    if version >= 2:
        parts.append((-1).to_bytes(4, signed=True))
    if version >= 3:
        parts.append((-1).to_bytes(2, signed=True))
    return b"".join(parts)


def classic_join(
    member_id: str,
    topics: Iterable[str] = ("a",),
    *,
    owned: dict[str, Iterable[int]] | None = None,
    instance: str | None = None,
    protocols: Iterable[str] = ("range",),
    version: int = 9,
) -> JoinGroup:
    metadata = subscription(topics, owned)
    return JoinGroup(
        group=GROUP,
        member_id=member_id,
        group_instance_id=instance,
        client_id="classic",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=tuple((name, metadata) for name in protocols),
        version=version,
    )


def classic_sync(
    member_id: str,
    generation: int,
    assignments: dict[str, dict[str, Iterable[int]]] | None = None,
    instance: str | None = None,
) -> SyncGroup:
    return SyncGroup(
        group=GROUP,
        member_id=member_id,
        group_instance_id=instance,
        generation=generation,
        protocol_type="consumer",
        protocol="range",
        assignments=tuple(
            (to, write_assignment(partitions.items(), 3)) for to, partitions in (assignments or {}).items()
        ),
    )


def classic_beat(member_id: str, generation: int, instance: str | None = None) -> Heartbeat:
    return Heartbeat(group=GROUP, member_id=member_id, group_instance_id=instance, generation=generation)


def classic_leave(*members: LeavingMember) -> LeaveGroup:
    return LeaveGroup(group=GROUP, members=members)
