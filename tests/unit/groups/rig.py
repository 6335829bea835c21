"""A shard of classic groups and their clients, in memory."""

import struct
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from tests.unit.coordinator.shard_rig import START_MS, ShardRig

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Event, Reply
from penstock.groups.commands import (
    CommitEntry,
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncReply,
)
from penstock.groups.events import ClassicGroupSaved
from penstock.groups.retention import RetentionCheck
from penstock.groups.shard import GroupShard
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId

DELAY_MS = 3000
SESSION_MS = 10_000
REBALANCE_MS = 60_000

Protocols = tuple[tuple[str, bytes], ...]


def subscription(*topics: str, version: int = 0, user_data: bytes | None = None) -> bytes:
    """The metadata of a consumer."""
    written = struct.pack(">hi", version, len(topics))
    for topic in topics:
        name = topic.encode()
        written += struct.pack(">h", len(name)) + name
    return written + struct.pack(">i", -1 if user_data is None else len(user_data)) + (user_data or b"")


NO_PARTITIONS = subscription()
"""The assignment of a consumer without partitions; it has the same bytes as an empty subscription."""

RANGE: Protocols = (("range", subscription("t")),)


class Topics:
    """The topics that exist."""

    def __init__(self, ids: dict[str, TopicId] | None = None) -> None:
        self.ids = ids or {}
        self.count = 1

    def partition_count(self, topic: str) -> int | None:
        return self.count if topic in self.ids else None

    def is_view(self, topic: str) -> bool:
        return topic.startswith("view")

    def topic_id(self, topic: str) -> TopicId | None:
        return self.ids.get(topic)

    def topic_name(self, topic_id: TopicId) -> str | None:
        return next((name for name, found in self.ids.items() if found == topic_id), None)

    def racks(self, topic: str, partition: int) -> Sequence[str]:
        return ()

    def names(self) -> Iterable[str]:
        return tuple(self.ids)


class Rig(ShardRig[GroupShard]):
    """A shard of groups."""

    def __init__(self, settings: dict[str, str] | None = None, *, now_ms: int = START_MS) -> None:
        self.config = BrokerConfig.from_settings(settings or {})
        self.topics = Topics()
        self._ids = 0
        super().__init__(now_ms=now_ms)

    def new_shard(self) -> GroupShard:
        return GroupShard(self.config, self.topics, self.choose_id)

    def choose_id(self, prefix: str | None) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def as_recorded(self, event: Event) -> Event:
        return as_recorded(event)

    @property
    def membership_timers(self) -> set[Hashable]:
        return {key for key in self.timers if not isinstance(key, RetentionCheck)}

    def state(self, group: str = "g") -> str:
        return self.shard.describe(group).state


def as_recorded(event: Event) -> Event:
    """An event as it is read from a record of `__consumer_offsets`."""
    return replace(event, becomes=None) if isinstance(event, ClassicGroupSaved) else event


class Client:
    """A consumer of a classic group, with its member id and generation."""

    def __init__(
        self,
        rig: Rig,
        client_id: str = "c",
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.rig = rig
        self.client_id = client_id
        self.group = group
        self.instance = instance
        self.version = version
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self._join = self._sync = 0

    def join(self) -> "Client":
        """Join, again with a member id if the coordinator requires one."""
        self._learn()
        self._send_join()
        reply = self.rig.replies.get(self._join)
        if self.member_id == "" and isinstance(reply, JoinReply) and reply.member_id and reply.error is not None:
            self.member_id = reply.member_id
            self._send_join()
        return self

    def _send_join(self) -> None:
        self._join = self.rig.send(
            JoinGroup(
                group=self.group,
                member_id=self.member_id,
                group_instance_id=self.instance,
                client_id=self.client_id,
                client_host="/127.0.0.1",
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
                protocol_type=self.protocol_type,
                protocols=self.protocols,
                version=self.version,
            )
        )

    @property
    def waits_to_join(self) -> bool:
        return self._join not in self.rig.replies

    @property
    def waits_to_sync(self) -> bool:
        return self._sync not in self.rig.replies

    @property
    def joined(self) -> JoinReply:
        """The response to the last JoinGroup."""
        self._learn()
        reply = self.rig.replies[self._join]
        assert isinstance(reply, JoinReply)
        return reply

    def _learn(self) -> None:
        reply = self.rig.replies.get(self._join)
        if isinstance(reply, JoinReply) and reply.error is None:
            self.member_id = reply.member_id
            self.generation = reply.generation

    def sync(self, assignments: dict[str, bytes] | None = None) -> "Client":
        assert self.joined.error is None, "a member joins before it syncs"
        self._sync = self.rig.send(
            SyncGroup(
                group=self.group,
                member_id=self.member_id,
                group_instance_id=self.instance,
                generation=self.generation,
                protocol_type=None,
                protocol=None,
                assignments=tuple((assignments or {}).items()),
            )
        )
        return self

    @property
    def synced(self) -> Reply | BrokerError:
        return self.rig.replies[self._sync]

    @property
    def assignment(self) -> bytes:
        reply = self.synced
        assert isinstance(reply, SyncReply), f"no assignment: {reply!r}"
        return reply.assignment

    def heartbeat(self) -> Reply | BrokerError:
        self._learn()
        return self.rig.ask(
            Heartbeat(
                group=self.group,
                member_id=self.member_id,
                group_instance_id=self.instance,
                generation=self.generation,
            )
        )

    def leave(self, *, reason: str | None = None) -> Reply | BrokerError:
        self._learn()
        return self.rig.ask(
            LeaveGroup(
                group=self.group,
                members=(LeavingMember(member_id=self.member_id, group_instance_id=self.instance, reason=reason),),
            )
        )

    def commit(self, offset: int, *, topic: str = "t", partition: int = 0, version: int = 9) -> Reply | BrokerError:
        self._learn()
        return self.rig.ask(
            CommitOffsets(
                group=self.group,
                member_id=self.member_id,
                group_instance_id=self.instance,
                generation=self.generation,
                entries=(CommitEntry(topic, partition, offset),),
                version=version,
            )
        )


def settled(rig: Rig, *clients: Client, assignment: bytes | None = None) -> None:
    """Bring clients into a stable generation; each is assigned its client id, or all get `assignment`."""
    for client in clients:
        client.join()
    rig.pass_ms(DELAY_MS)
    if any(client.waits_to_join for client in clients):
        rig.pass_ms(DELAY_MS)
    share(*clients, assignment=assignment)


def share(*clients: Client, assignment: bytes | None = None) -> None:
    """Every client syncs, the leader first; the assignment of each is its client id."""
    shares = {client.joined.member_id: assignment or client.client_id.encode() for client in clients}
    for client in sorted(clients, key=lambda client: client.joined.leader != client.member_id):
        client.sync(shares if client.joined.leader == client.member_id else None)
