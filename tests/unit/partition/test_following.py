"""A follower appends what its leader stamped, truncates where the leader says, and reports its roles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.eventual import settled
from tests.unit.partition.rig import NOW_MS, Rig, batch, everything, topic, values

from penstock.model.generated_errors import FencedLeaderEpoch, NotLeaderOrFollower
from penstock.model.ids import TopicPartition
from penstock.model.topic import TopicState
from penstock.partition.follower import TruncateTo
from penstock.partition.leader import IsrProposal, Leader
from penstock.partition.replica import Replica
from penstock.partition.replicated_batches import UnexpectedBatch
from penstock.wire.records import build_marker, iter_batches

ORDERS = TopicPartition("orders", 0)


def shared(
    leader: int = 1,
    epoch: int = 0,
    *,
    replicas: tuple[int, ...] = (1, 2),
    isr: tuple[int, ...] | None = None,
    version: int = 0,
    configs: dict[str, str] | None = None,
) -> TopicState:
    """A topic with one partition on several brokers."""
    alone = topic(configs=configs)
    state = replace(
        alone.partitions[0],
        leader=leader,
        leader_epoch=epoch,
        replicas=replicas,
        isr=replicas if isr is None else isr,
        partition_epoch=version,
    )
    return replace(alone, partitions=(state,))


def stored(replica: Replica, offset: int = 0) -> memoryview:
    """The batches of a log from an offset on, up to its end."""
    whole = bytearray()
    while (found := replica.log.slice(offset, 1 << 30, end=replica.log.log_end, at_least_one=True)) is not None:
        data = found.contents()
        whole += data
        offset = [header.next_offset for _, header in iter_batches(data)][-1]
    return memoryview(whole)


def copy(leader: Replica, follower: Replica, *, high_watermark: int | None = None, **kw: Any) -> None:
    """One fetch of a follower, appended."""
    position = follower.fetch_position()
    assert position is not None
    offsets = leader.offsets
    follower.replicate(
        kw.pop("records", None) or stored(leader, position.offset),
        leader_epoch=position.leader_epoch,
        high_watermark=offsets.high_watermark if high_watermark is None else high_watermark,
        log_start=offsets.log_start,
        now_ms=NOW_MS,
        removals=kw.pop("removals", None),
    )


class Pair:
    """A leader on broker 1 and a follower on broker 2."""

    def __init__(self, **kw: Any) -> None:
        self.one = Rig(shared(**kw))
        self.two = Rig(broker_id=2, fenced=True)
        self.two.change(None, shared(**kw))
        self.two.replicas.unfence()

    @property
    def leader(self) -> Replica:
        return self.one.replica()

    @property
    def follower(self) -> Replica:
        return self.two.replica()

    def append(self, *sent: bytes, **kw: Any) -> None:
        self.one.append(self.leader, batch(*sent, **kw))


def test_a_followers_log_is_its_leaders_byte_for_byte() -> None:
    pair = Pair()
    for at in range(5):
        pair.append(b"a" * at, b"b")
    copy(pair.leader, pair.follower, high_watermark=6)

    assert stored(pair.follower) == stored(pair.leader)
    offsets = pair.follower.offsets
    assert (offsets.log_end, offsets.local_end, offsets.high_watermark) == (10, 10, 6)
    assert pair.follower.log.epochs.entries() == pair.leader.log.epochs.entries()


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    pair = Pair()
    pair.append(b"a")
    pair.append(b"b")
    whole = stored(pair.leader)

    copy(pair.leader, pair.follower, records=whole[:-1])
    assert pair.follower.log.log_end == 1
    copy(pair.leader, pair.follower)
    assert pair.follower.log.log_end == 2


@pytest.mark.parametrize("at", [0, 12, 16, 30, 65])
def test_a_damaged_batch_is_refused_and_the_sound_ones_before_it_are_kept(at: int) -> None:
    pair = Pair()
    pair.append(b"a")
    first = len(stored(pair.leader))
    pair.append(b"b")
    records = stored(pair.leader)
    records[first + at] ^= 0x81

    with pytest.raises(UnexpectedBatch):
        copy(pair.leader, pair.follower, records=records)

    assert pair.follower.log.log_end == pair.follower.offsets.log_end == 1


def test_batches_that_the_follower_has_already_are_refused() -> None:
    pair = Pair()
    pair.append(b"a")
    copy(pair.leader, pair.follower)

    with pytest.raises(UnexpectedBatch, match="offset 0 where 1 should follow"):
        copy(pair.leader, pair.follower, records=stored(pair.leader))


def test_a_batch_of_a_later_epoch_than_the_leaders_is_refused() -> None:
    pair = Pair()
    newer = Rig(shared(epoch=3))
    newer.append(newer.replica(), batch(b"a"))

    with pytest.raises(UnexpectedBatch, match="leader epoch 3"):
        copy(newer.replica(), pair.follower)


def test_a_response_of_an_earlier_leader_epoch_is_not_appended() -> None:
    pair = Pair()
    pair.append(b"a")
    pair.two.change(shared(), shared(epoch=1, version=1))

    with pytest.raises(FencedLeaderEpoch):
        pair.follower.replicate(stored(pair.leader), leader_epoch=0, high_watermark=1, log_start=0, now_ms=NOW_MS)
    with pytest.raises(FencedLeaderEpoch):
        pair.follower.diverged(0, 0, leader_epoch=0)

    assert pair.follower.log.log_end == 0


def test_a_follower_knows_the_producers_and_aborted_transactions_of_its_leader() -> None:
    pair = Pair()
    leader = pair.leader
    pair.append(b"a", producer_id=5)
    marker = build_marker(commit=False, producer_id=9, producer_epoch=0, coordinator_epoch=3, timestamp_ms=NOW_MS)
    for own in (batch(b"x", producer_id=9, is_transactional=True), marker):
        pair.one.append(leader, own, internal=True)
    copy(leader, pair.follower, high_watermark=2)

    follower = pair.follower
    assert follower.producers.snapshot() == leader.producers.snapshot()
    assert follower.aborted().between(0, 9) == leader.aborted().between(0, 9) != []
    assert follower.offsets.last_stable == 1, "the marker is not committed"
    copy(leader, follower, high_watermark=3)
    assert follower.offsets.last_stable == 3


def test_the_leaders_log_start_moves_the_followers() -> None:
    pair = Pair(replicas=(1, 2), isr=(1,))
    pair.append(b"a", b"b")
    pair.append(b"c")
    copy(pair.leader, pair.follower)

    pair.leader.delete_records(2)
    copy(pair.leader, pair.follower)

    assert pair.follower.offsets.log_start == pair.follower.log.log_start == 2


def test_a_follower_starts_within_its_leaders_first_batch() -> None:
    pair = Pair(isr=(1,))
    pair.append(b"a", b"b", b"c")
    pair.append(b"d")
    pair.leader.delete_records(1)
    pair.two.replicas.restart({ORDERS: 1})
    follower = pair.follower
    assert (follower.offsets.log_start, follower.offsets.log_end, follower.offsets.high_watermark) == (1, 1, 1)

    copy(pair.leader, follower)

    assert stored(follower, 1) == stored(pair.leader, 1)
    assert (follower.offsets.log_start, follower.offsets.log_end) == (1, 4)


def test_a_follower_truncates_where_its_leader_diverges() -> None:
    pair = Pair()
    pair.append(b"a")
    copy(pair.leader, pair.follower)
    # Broker 2 leads epoch 1 and writes what broker 1 never gets; broker 1 leads epoch 2.
    pair.two.change(shared(), shared(2, 1, version=1, isr=(2,)))
    pair.two.append(pair.follower, batch(b"lost"))
    pair.two.change(shared(2, 1, version=1, isr=(2,)), shared(1, 2, version=2))
    pair.one.change(shared(), shared(1, 2, version=2))
    position = pair.follower.fetch_position()
    assert position is not None
    assert (position.offset, position.last_fetched_epoch, position.leader_epoch) == (2, 1, 2)

    leader = pair.leader.role
    assert isinstance(leader, Leader)
    found = leader.divergence(position.offset, position.last_fetched_epoch, pair.leader.log.epochs)
    assert found == (0, 1)
    cut = pair.follower.diverged(*found, leader_epoch=2)
    assert cut == TruncateTo(offset=1, below_high_watermark=True), "broker 2 was alone in its ISR"
    pair.two.replicas.truncate({ORDERS: cut.offset})

    assert pair.two.notes.named("committed_records_truncated") != []
    position = pair.follower.fetch_position()
    assert position is not None
    assert (position.offset, position.last_fetched_epoch) == (1, 0)
    pair.append(b"b")
    copy(pair.leader, pair.follower)
    assert stored(pair.follower) == stored(pair.leader)


def test_a_follower_whose_leader_starts_later_starts_again_there() -> None:
    pair = Pair(isr=(1,))
    pair.append(b"a")
    copy(pair.leader, pair.follower)
    pair.append(b"b")
    pair.append(b"c")
    pair.leader.delete_records(2)

    assert pair.follower.out_of_range(2, 3, leader_epoch=0) is None
    pair.two.replicas.restart({ORDERS: 2})
    copy(pair.leader, pair.follower)

    assert values_of(pair.follower) == [b"c"]
    assert pair.follower.out_of_range(0, 1, leader_epoch=0) == TruncateTo(offset=1, below_high_watermark=True)


def values_of(follower: Replica) -> list[bytes | None]:
    """What a follower's log holds; it leads for the moment."""
    state = shared(leader=2, epoch=9, isr=(2,), version=9).partitions[0]
    role = follower.role
    follower.assume(state, NOW_MS)
    try:
        return [record.value for record in everything(follower)]
    finally:
        follower.role = role


def test_with_flush_group_a_follower_holds_what_is_on_its_disk() -> None:
    pair = Pair(configs={"flush": "group"})
    pair.append(b"a")
    copy(pair.leader, pair.follower, high_watermark=1)
    position = pair.follower.fetch_position()
    assert position is not None
    assert (position.offset, position.held_end, pair.follower.offsets.high_watermark) == (1, 0, 0)

    pair.two.flush()

    position = pair.follower.fetch_position()
    assert position is not None
    assert (position.held_end, pair.follower.offsets.high_watermark) == (1, 1)


def test_a_flush_that_began_before_a_truncation_says_nothing_about_what_was_appended_after() -> None:
    pair = Pair(configs={"flush": "group"})
    pair.append(b"a")
    pair.append(b"b")
    copy(pair.leader, pair.follower)
    pair.two.loop.run()
    pair.two.replicas.truncate({ORDERS: 0})
    copy(pair.leader, pair.follower)

    pair.two.flushing.work()
    pair.two.loop.run()

    position = pair.follower.fetch_position()
    assert position is not None
    assert position.held_end == pair.follower.log.recovery_point


# Roles


def test_followers_are_opened_when_the_broker_is_admitted_and_leaders_by_their_first_request() -> None:
    rig = Rig(shared(leader=2), broker_id=1, fenced=True)
    rig.change(None, replace(shared(leader=1), name="led", topic_id=bytes(15) + b"\x07"))
    changed: list[TopicPartition] = []
    rig.replicas.cluster.on_roles_changed = changed.extend
    assert list(rig.replicas.followed()) == []

    rig.replicas.unfence()

    assert [replica.tp for replica in rig.replicas.followed()] == [ORDERS]
    assert rig.replicas.used(TopicPartition("led", 0)) is None
    assert set(changed) == {ORDERS, TopicPartition("led", 0)}


def test_a_fenced_broker_leads_and_follows_nothing() -> None:
    rig = Rig(topic("alone", number=2), shared(leader=2))
    alone, followed = rig.replica("alone"), rig.replica()
    rig.append(alone, batch(b"a"))
    changed: list[TopicPartition] = []
    rig.replicas.cluster.on_roles_changed = changed.extend

    rig.replicas.fence()

    assert set(changed) == {alone.tp, followed.tp}
    assert list(rig.replicas.followed()) == []
    with pytest.raises(NotLeaderOrFollower):
        rig.append(alone, batch(b"b"))
    rig.change(shared(leader=2), shared(leader=1, epoch=1, version=1))
    assert not followed.is_leader, "decisions wait for the admission"
    rig.replicas.unfence()
    assert followed.is_leader
    assert values(alone) == [b"a"]
    rig.append(alone, batch(b"b"))


def test_a_partition_opened_while_the_broker_is_fenced_has_no_leader() -> None:
    rig = Rig(topic(), fenced=True)

    with pytest.raises(NotLeaderOrFollower):
        rig.append(rig.replica(), batch(b"a"))


def test_waiters_fail_when_the_broker_is_fenced() -> None:
    async def run() -> None:
        rig = Rig(shared())
        waiter = rig.replica().committed(rig.append(rig.replica(), batch(b"a")).end)
        assert waiter is not None

        rig.replicas.fence()

        with pytest.raises(NotLeaderOrFollower):
            await settled(waiter)

    asyncio.run(run())


def test_an_epoch_without_records_is_forgotten_when_leadership_ends() -> None:
    rig = Rig(shared())
    rig.append(rig.replica(), batch(b"a"))
    rig.replica().log.epochs.assign(4, 1)

    rig.change(shared(), shared(leader=2, epoch=5, version=1))

    position = rig.replica().fetch_position()
    assert position is not None
    assert position.last_fetched_epoch == 0
    assert rig.replica().log.leader_epoch == 0


def test_metadata_older_than_the_log_does_not_make_a_leader() -> None:
    rig = Rig(shared(epoch=4))
    rig.append(rig.replica(), batch(b"a"))
    rig.replica().log.flush()

    again = Rig(shared(epoch=4), disk=rig.stop())

    assert not again.replica().is_leader
    assert again.notes.named("leader_epoch_too_old") != []
    again.change(shared(epoch=4), shared(epoch=5, version=1))
    assert again.replica().is_leader


# ISR


class Proposals:
    """Notes the proposals of a rig's replicas."""

    def __init__(self, rig: Rig) -> None:
        self.sent: list[tuple[TopicPartition, IsrProposal]] = []
        self.frozen = False
        cluster = rig.replicas.cluster
        cluster.may_propose = lambda: not self.frozen
        cluster.propose = lambda replica, proposal: self.sent.append((replica.tp, proposal))
        cluster.broker_epoch_of = lambda broker: 10 + broker


def fetch(replica: Replica, offset: int, *, epoch: int = 0, now_ms: int = NOW_MS) -> None:
    replica.follower_fetched(
        2, broker_epoch=12, leader_epoch=epoch, fetch_offset=offset, held_end=offset, log_start=0, now_ms=now_ms
    )


def test_a_follower_that_caught_up_is_proposed_once() -> None:
    rig = Rig(shared(isr=(1,)))
    proposals = Proposals(rig)
    rig.append(rig.replica(), batch(b"a"))

    fetch(rig.replica(), 0)
    assert proposals.sent == []
    for _ in range(2):
        fetch(rig.replica(), 1)

    assert proposals.sent == [(ORDERS, IsrProposal(partition_epoch=0, leader_epoch=0, isr=((1, 11), (2, 12))))]


def test_a_laggard_is_proposed_for_removal() -> None:
    rig = Rig(shared())
    proposals = Proposals(rig)
    rig.append(rig.replica(), batch(b"a"))

    rig.replica().shrink_isr(NOW_MS + 30_000, 30_000)
    assert proposals.sent == []
    rig.replica().shrink_isr(NOW_MS + 30_001, 30_000)

    assert [proposal.members for _, proposal in proposals.sent] == [{1}]
    assert rig.replica().offsets.high_watermark == 0, "the removal is not written"


def test_no_isr_is_proposed_while_the_session_is_suspended() -> None:
    rig = Rig(shared(isr=(1,)))
    proposals = Proposals(rig)
    proposals.frozen = True

    fetch(rig.replica(), 0)
    assert proposals.sent == []
    proposals.frozen = False
    fetch(rig.replica(), 0)

    assert len(proposals.sent) == 1


def test_a_followers_fetch_commits() -> None:
    async def run() -> None:
        rig = Rig(shared())
        waiter = rig.replica().committed(rig.append(rig.replica(), batch(b"a")).end)
        assert waiter is not None
        assert values(rig.replica()) == []

        fetch(rig.replica(), 1)

        await settled(waiter)
        assert values(rig.replica()) == [b"a"]

    asyncio.run(run())
