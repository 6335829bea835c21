"""A shard of share partitions in memory, whose log may hold, refuse or lose appends, or be pruned."""

from collections.abc import Sequence

from tests.unit.coordinator.shard_rig import ShardRig

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Effect, Event, Reply
from penstock.model.errors import BrokerError
from penstock.model.ids import Offset, TopicId
from penstock.shares.persister import UNINITIALIZED_OFFSET, SharePartitionState, StateBatch
from penstock.shares.state.commands import (
    DONE,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    WriteState,
)
from penstock.shares.state.effects import Prune
from penstock.shares.state.record_formats import encode_event, read_event
from penstock.shares.state.shard import StateShard
from penstock.wire.share_records import ShareKey

TOPIC, OTHER = TopicId(b"t" * 16), TopicId(b"o" * 16)
KEY = ShareKey("g", TOPIC, 0)


class Topics:
    """Two topics with three partitions each, until a test deletes them."""

    def __init__(self) -> None:
        self.counts = {TOPIC: 3, OTHER: 3}

    def partition_count(self, topic_id: TopicId) -> int | None:
        return self.counts.get(topic_id)


class PlacedShard(StateShard):
    """A shard that is told where its records are, as the context tells it."""

    __slots__ = ("place",)

    def apply(self, event: Event, snapshot_at: Offset | None = None) -> None:
        super().apply(event, self.place)


class StateRig(ShardRig[PlacedShard]):
    """The share partitions of one coordinator."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.config = BrokerConfig.from_settings(settings or {})
        self.topics = Topics()
        self.pruned = 0
        """Events that a prune has deleted from the front of the log."""
        super().__init__()

    def new_shard(self) -> PlacedShard:
        shard = PlacedShard(self.config, self.topics)
        shard.place = None
        return shard

    def run(self, step) -> None:  # type: ignore[no-untyped-def]
        self.shard.place = Offset(self.pruned + len(self.log))
        super().run(step)

    def perform(self, effect: Effect) -> None:
        assert isinstance(effect, Prune)
        del self.log[: effect.below - self.pruned]
        self.committed = len(self.log)
        self.pruned = max(self.pruned, effect.below)

    def as_recorded(self, event: Event) -> Event:
        key, value = encode_event(event)  # type: ignore[arg-type]
        read = read_event(key, value)
        assert read == event, f"{read} was read, {event} was written"
        return read

    # Requests

    def initialize(self, key: ShareKey = KEY, *, epoch: int = 1, start: int = UNINITIALIZED_OFFSET) -> None:
        assert self.ask(InitializeState(key=key, state_epoch=epoch, start_offset=start)) == DONE

    def read(self, key: ShareKey = KEY, *, leader: int = 0) -> SharePartitionState:
        reply = self.ask(ReadState(key=key, leader_epoch=leader))
        assert isinstance(reply, SharePartitionState), reply
        return reply

    def write(
        self,
        *batches: StateBatch,
        key: ShareKey = KEY,
        epoch: int = 1,
        leader: int = 0,
        start: int = -1,
        complete: int = -1,
    ) -> None:
        reply = self.ask(written(batches, key, epoch, leader, start, complete))
        assert reply == DONE, reply

    def write_refused(
        self, *batches: StateBatch, key: ShareKey = KEY, epoch: int = 1, leader: int = 0
    ) -> type[BrokerError]:
        return refusal(self.ask(written(batches, key, epoch, leader, -1, -1)))

    def read_refused(self, key: ShareKey = KEY, *, leader: int = 0) -> type[BrokerError]:
        return refusal(self.ask(ReadState(key=key, leader_epoch=leader)))

    def initialize_refused(self, key: ShareKey = KEY, *, epoch: int = 1, start: int = -1) -> type[BrokerError]:
        return refusal(self.ask(InitializeState(key=key, state_epoch=epoch, start_offset=start)))

    def delete(self, key: ShareKey = KEY) -> None:
        assert self.ask(DeleteState(key=key)) == DONE

    def summary(self, key: ShareKey = KEY) -> Reply:
        return self.ask(ReadSummary(key=key))  # type: ignore[no-any-return]


def written(
    batches: Sequence[StateBatch], key: ShareKey, epoch: int, leader: int, start: int, complete: int
) -> WriteState:
    return WriteState(
        key=key,
        state_epoch=epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=complete,
        batches=batches,
    )


def refusal(reply: object) -> type[BrokerError]:
    assert isinstance(reply, BrokerError), reply
    return type(reply)
