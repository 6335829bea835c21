"""A shard of share groups, the requests of their members, and share coordinators that a test answers for."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.unit.coordinator.shard_rig import ShardRig
from tests.unit.groups.consumer_rig import GROUP, NOW_MS, Topics, topic_id
from tests.unit.groups.rig import as_recorded

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Effect, Event
from penstock.groups.commands import ShareHeartbeat, SharesDeleted, SharesInitialized
from penstock.groups.record_formats import encode_event, read_group_event
from penstock.groups.shard import GroupShard
from penstock.groups.share.effects import DeleteShares, InitializeShares
from penstock.groups.share.events import ShareEvent
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.responses import SHARES_SETTLED, ShareHeartbeatReply
from penstock.model.errors import BrokerError
from penstock.wire import group_records


class ShareRig(ShardRig[GroupShard]):
    """A shard with the group under test. Share coordinators answer when a test says so."""

    def __init__(self, *, settings: Mapping[str, str] | None = None, **topics: int) -> None:
        self.topics = Topics(**(topics or {"a": 4}))
        self.config = BrokerConfig.from_settings({"group.share.assignment.interval.ms": "0", **(settings or {})})
        self.asked: list[InitializeShares | DeleteShares] = []
        """What share coordinators were asked and have not answered."""
        super().__init__(now_ms=NOW_MS)

    def new_shard(self) -> GroupShard:
        return GroupShard(self.config, self.topics, lambda prefix: f"{prefix}-id")

    def as_recorded(self, event: Event) -> Event:
        """Share events go through their records."""
        if not isinstance(event, ShareEvent):
            return as_recorded(event)
        raw, value = encode_event(event)
        key = group_records.read_key(raw)
        assert key is not None
        read = read_group_event(key, value)
        assert read == event, f"{read} was read, {event} was written"
        return read

    def perform(self, effect: Effect) -> None:
        assert isinstance(effect, InitializeShares | DeleteShares)
        self.asked.append(effect)

    def crash(self, survives: int = 0, *, compacted: bool = False) -> None:
        self.asked.clear()
        super().crash(survives, compacted=compacted)

    def change_topics(self, **counts: int) -> None:
        """Create or extend topics, or, with no partitions, delete them."""
        for name, partitions in counts.items():
            if partitions:
                self.topics.counts[name] = partitions
            else:
                self.topics.counts.pop(name, None)
                self.topics.generations[name] = self.topics.generations.get(name, 0) + 1
        self.run(self.shard.on_topics(list(counts), self.now_ms))

    def group(self, name: str = GROUP) -> ShareGroup:
        return self.shard.share_group(name)

    # Share coordinators

    def answer(self, *, failed: Mapping[str, Iterable[int]] | None = None) -> None:
        """Share coordinators answer everything they were asked; these partitions fail."""
        bad = {topic_id(name): frozenset(indexes) for name, indexes in (failed or {}).items()}
        while self.asked:
            asked = self.asked.pop(0)
            if isinstance(asked, DeleteShares):
                command: Any = SharesDeleted(group=asked.group, topics=frozenset(asked.partitions.keys() - bad.keys()))
            else:
                good = {each: found - bad.get(each, frozenset()) for each, found in asked.partitions.items()}
                command = SharesInitialized(group=asked.group, partitions=good, failed=bad)
            assert self.ask(command) == SHARES_SETTLED

    # Requests

    def beat(self, member_id: str, epoch: int, *topics: str, group: str = GROUP, rack: str | None = None) -> Any:
        return self.ask(
            ShareHeartbeat(
                group=group,
                member_id=member_id,
                member_epoch=epoch,
                rack_id=rack,
                subscribed_topics=topics or None,
                client_id="client",
                client_host="/127.0.0.1",
            )
        )

    def joined(self, member_id: str, *topics: str) -> ShareHeartbeatReply:
        """The reply with the partitions of a member that has joined."""
        names = topics or ("a",)
        accepted(self.beat(member_id, 0, *names))
        self.answer()
        return accepted(self.beat(member_id, 0, *names))

    def parts(self, member_id: str, topic: str = "a") -> set[int]:
        """The partitions of a member, after a heartbeat."""
        epoch = self.group().state.members[member_id].current.member_epoch
        accepted(self.beat(member_id, epoch))
        return set(self.group().state.members[member_id].current.assigned.get(topic_id(topic), ()))


def accepted(reply: Any) -> ShareHeartbeatReply:
    assert isinstance(reply, ShareHeartbeatReply), repr(reply)
    return reply


def refusal(reply: Any) -> tuple[str, str]:
    assert isinstance(reply, BrokerError), reply
    return reply.name, str(reply)


def assigned(reply: Any, topic: str = "a") -> set[int] | None:
    """The partitions of a topic in a heartbeat's reply, or None if it has no assignment."""
    found = accepted(reply).assignment
    return None if found is None else set(dict(found).get(topic_id(topic), ()))
