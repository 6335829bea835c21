"""Drained partitions that are empty: how they lose their logs, what is left of them, and how they resume."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.partition.rig import Rig, batch, topic, values
from tests.unit.replication.test_redirects import (
    DRAINED,
    PRODUCER,
    SOURCE_BROKER,
    TARGET,
    TARGET_BROKER,
    Pair,
    numbered,
    settled,
    spread,
    transactional,
)

from penstock.controller.draining import ghost_of, revived
from penstock.metadata.image import ImageDelta, TopicChange
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    UnknownLeaderEpoch,
)
from penstock.model.ids import CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from penstock.model.topic import TopicState
from penstock.partition.leader import Leader
from penstock.partition.redirect import Drain, derived_id
from penstock.partition.replica import Replica
from penstock.partition.results import Appended
from penstock.partition.verification import NOT_REQUIRED, WAS_OPEN, TxnProof
from penstock.storage.names import LOG, offset_name
from penstock.wire import redirect as wire

PRODUCED = 3
"""Records of the drained partition from before."""
END = PRODUCED + 1
"""The end of its log, with the barrier."""
NORMAL = spread()
DRAINED_TOPIC = spread(leader_epoch=1, drained_into=TARGET, drained_since=1)


class Ebb(Pair):
    """Two brokers, with a partition that had records before it was drained."""

    def __init__(self) -> None:
        super().__init__(NORMAL)
        for sequence in range(PRODUCED):
            self.rigs[SOURCE_BROKER].append(self.source, numbered(sequence))
        self.become(DRAINED_TOPIC)
        self.client.written = self._written

    def _written(self) -> None:
        change = self.client.changes[-1]
        if change.emptied >= 0:
            self.become(changed(self.state, ghost_of(self.state.partitions[DRAINED], change.emptied)))

    def empty(self) -> None:
        self.source.delete_records(Offset(PRODUCED))

    def report(self) -> None:
        asyncio.run(self.redirects[SOURCE_BROKER].report_empty())

    def become_ghost(self) -> None:
        self.empty()
        self.report()
        assert self.state.partitions[DRAINED].is_ghost

    @property
    def ghost(self) -> Replica:
        return self.rigs[TARGET_BROKER].replica(partition=DRAINED)

    def produce_to_ghost(self, data: bytes | bytearray, proof: TxnProof = NOT_REQUIRED) -> Appended:
        rig = self.rigs[TARGET_BROKER]
        handed = self.redirects[TARGET_BROKER].hand_over(
            self.ghost, memoryview(bytearray(data)), rig.clock.ms, acks=-1, version=11, proof=proof
        )
        if isinstance(handed, Deferred):
            return settled(handed)  # type: ignore[no-any-return]
        _, appended = handed
        assert isinstance(appended, Appended)
        return appended


def changed(state: TopicState, partition: Any) -> TopicState:
    partitions = [partition if each.index == partition.index else each for each in state.partitions]
    return replace(state, partitions=tuple(partitions))


def test_a_drained_partition_is_reported_when_no_records_of_clients_are_left() -> None:
    ebb = Ebb()
    ebb.report()
    assert ebb.client.changes == []
    ebb.source.delete_records(Offset(PRODUCED - 1))
    ebb.report()
    assert ebb.client.changes == []

    ebb.empty()
    ebb.report()

    [change] = ebb.client.changes
    assert change.emptied == ebb.source.offsets.log_end == END


def test_a_partition_with_an_open_transaction_is_not_reported() -> None:
    pair = Pair(NORMAL)
    pair.rigs[SOURCE_BROKER].append(pair.source, transactional(0, b"t"), proof=NOT_REQUIRED)
    pair.become(DRAINED_TOPIC)
    pair.source.delete_records(Offset(1))

    assert pair.source.emptied_to() is None
    pair.mark(commit=True)
    assert pair.source.emptied_to() == pair.source.offsets.log_end


def test_a_partition_drained_before_that_was_recorded_is_reported_when_its_log_is_empty() -> None:
    ebb = Ebb()
    ebb.become(spread(leader_epoch=2, drained_into=TARGET))
    ebb.empty()
    assert ebb.source.emptied_to() is None

    ebb.source.delete_records(Offset(-1))

    assert ebb.source.emptied_to() == ebb.source.offsets.log_end


def test_retention_drops_the_segments_from_before_the_barrier() -> None:
    ebb = Ebb()

    assert [segment.base for segment in ebb.source.log.segments] == [0, PRODUCED]


def test_files_and_replica_are_gone_and_the_leader_of_the_target_serves_the_ghost() -> None:
    ebb = Ebb()

    ebb.become_ghost()

    source = ebb.rigs[SOURCE_BROKER]
    assert source.store.get(ebb.source.tp) is None
    with pytest.raises(NotLeaderOrFollower):
        source.replica(partition=DRAINED)
    shown = ebb.state.shown(DRAINED)
    target = ebb.state.partitions[TARGET]
    assert (shown.leader, shown.replicas, shown.isr) == (TARGET_BROKER, target.replicas, target.isr)
    assert shown.leader_epoch > DRAINED_TOPIC.partitions[DRAINED].leader_epoch
    ghost = ebb.ghost
    assert (ghost.offsets.log_start, ghost.offsets.high_watermark, ghost.offsets.log_end) == (END, END, END)
    role = ghost.role
    assert isinstance(role, Leader)
    assert role.leader_epoch == shown.leader_epoch
    assert role.end_of(LeaderEpoch(0), ghost.log.epochs) == (0, END)
    assert ebb.rigs[TARGET_BROKER].store.get(ghost.tp) is None


def test_readers_of_a_ghost_wait_at_its_end_and_are_out_of_range_below() -> None:
    ebb = Ebb()
    ebb.become_ghost()

    assert values(ebb.ghost, END) == []
    with pytest.raises(OffsetOutOfRange):
        values(ebb.ghost, END - 1)
    with pytest.raises(OffsetOutOfRange):
        values(ebb.ghost, END + 1)
    assert ebb.ghost.delete_records(Offset(-1)) == END


def test_records_for_a_ghost_are_in_its_target() -> None:
    ebb = Ebb()
    ebb.produce(numbered(PRODUCED))
    ebb.become_ghost()

    ebb.produce_to_ghost(numbered(PRODUCED + 1))

    assert values(ebb.target) == [b"3", b"4"]
    assert ebb.ghost.offsets.log_end == END
    with pytest.raises(OutOfOrderSequenceNumber):
        ebb.produce_to_ghost(numbered(PRODUCED + 3))


def test_the_target_knows_what_only_the_log_of_the_ghost_knew() -> None:
    ebb = Ebb()
    ebb.become_ghost()

    retried = ebb.produce_to_ghost(numbered(PRODUCED - 1))
    ebb.produce_to_ghost(numbered(PRODUCED))

    assert retried.base_offset >= 0
    assert [value for value in values(ebb.target) if value is not None] == [b"3"]
    with pytest.raises(OutOfOrderSequenceNumber):
        ebb.produce_to_ghost(numbered(PRODUCED + 2))


def test_nothing_is_appended_once_the_end_of_the_log_is_reported() -> None:
    ebb = Ebb()
    ebb.client.written = lambda: None
    ebb.empty()
    ebb.report()

    with pytest.raises(NotEnoughReplicas):
        ebb.mark(commit=True)
    assert ebb.source.offsets.log_end == END


def test_a_report_that_will_never_be_written_lets_the_partition_go_on() -> None:
    ebb = Ebb()

    async def refuse(_: Any) -> tuple[IneligibleReplica]:
        return (IneligibleReplica(),)

    ebb.client.alter_partitions = refuse  # type: ignore[method-assign, assignment]
    ebb.empty()
    ebb.report()

    ebb.mark(commit=True)
    assert ebb.source.offsets.log_end == END + 1


def verified(replica: Replica, now_ms: int) -> TxnProof:
    """The proof of a first batch, of which the coordinator is asked now."""
    return TxnProof(replica.producers.guards.begin(PRODUCER, ProducerEpoch(0), PRODUCED, now_ms), 0)


def test_a_batch_that_is_verified_while_the_partition_becomes_a_ghost_is_sent_again() -> None:
    ebb = Ebb()
    rig = ebb.rigs[TARGET_BROKER]
    proof = verified(ebb.source, rig.clock.ms)
    ebb.become_ghost()

    for late in (proof, WAS_OPEN):
        with pytest.raises(NotLeaderOrFollower):
            ebb.produce_to_ghost(transactional(PRODUCED, b"t"), proof=late)

    ebb.produce_to_ghost(transactional(PRODUCED, b"t"), proof=verified(ebb.ghost, rig.clock.ms))
    assert ebb.target.producers.first_unstable is not None


def test_a_batch_that_is_verified_while_a_ghost_resumes_is_sent_again() -> None:
    ebb = Ebb()
    ebb.become_ghost()
    rig = ebb.rigs[SOURCE_BROKER]
    proof = verified(ebb.ghost, rig.clock.ms)
    source = resumed(ebb)

    with pytest.raises(NotLeaderOrFollower):
        rig.append(source, transactional(PRODUCED, b"t"), proof=proof)

    rig.append(source, transactional(PRODUCED, b"t"), proof=verified(source, rig.clock.ms))
    assert source.producers.first_unstable is not None


def test_a_transaction_of_a_ghost_ends_in_its_target() -> None:
    ebb = Ebb()
    ebb.become_ghost()
    ebb.produce_to_ghost(transactional(PRODUCED, b"t"))
    assert values(ebb.target, read_committed=True) == []
    marker = wire.Marker(
        producer_id=PRODUCER,
        epoch=ProducerEpoch(0),
        commit=True,
        coordinator_epoch=CoordinatorEpoch(0),
        transaction_version=1,
    )

    assert ebb.redirects[TARGET_BROKER].mark(ebb.ghost, marker) is None

    assert b"t" in values(ebb.target, read_committed=True)
    assert ebb.target.producers.first_unstable is None


def test_the_former_leader_cannot_write_to_the_target_any_more() -> None:
    ebb = Ebb()
    ebb.produce(numbered(PRODUCED))
    ebb.peers.dropped = []
    with pytest.raises(Exception, match="no response"):
        ebb.produce(numbered(PRODUCED + 1))
    [late] = ebb.peers.dropped
    ebb.peers.dropped = None
    ebb.become_ghost()

    response = ebb.redirects[TARGET_BROKER].serve(late)

    assert isinstance(response, wire.Response)
    assert response.error_code == FencedLeaderEpoch.code
    forged = replace(late, source_epoch=ebb.state.shown(DRAINED).leader_epoch, number=99)
    response = ebb.redirects[TARGET_BROKER].serve(forged)
    assert isinstance(response, wire.Response)
    assert response.error_code == NotLeaderOrFollower.code
    assert values(ebb.target) == [b"3"]


def test_another_leader_of_the_target_is_another_leader_of_the_ghost() -> None:
    ebb = Ebb()
    ebb.become_ghost()
    before, was = ebb.ghost, ebb.state.shown(DRAINED)
    first, *others = ebb.state.partitions

    ebb.become(replace(ebb.state, partitions=(replace(first, leader_epoch=1), *others)))

    assert before.is_offline
    assert ebb.state.shown(DRAINED).leader_epoch == was.leader_epoch + 1
    ebb.produce_to_ghost(numbered(PRODUCED))
    assert ebb.ghost is not before
    with pytest.raises(FencedLeaderEpoch):
        ebb.ghost.role.check_epoch(was.leader_epoch)
    with pytest.raises(UnknownLeaderEpoch):
        ebb.ghost.role.check_epoch(LeaderEpoch(was.leader_epoch + 2))


def test_a_fenced_broker_serves_no_ghost_and_goes_on_when_it_is_admitted() -> None:
    ebb = Ebb()
    ebb.become_ghost()
    ebb.produce_to_ghost(numbered(PRODUCED))
    replicas = ebb.rigs[TARGET_BROKER].replicas
    replicas.fence()

    with pytest.raises(NotLeaderOrFollower):
        assert ebb.ghost
    replicas.unfence()

    # Its numbers go on, or the target would take them for late.
    ebb.produce_to_ghost(numbered(PRODUCED + 1))
    assert values(ebb.target)[-2:] == [b"3", b"4"]


def resumed(ebb: Ebb) -> Replica:
    """Undo: the partition gets a replica on its former broker, and resumes there."""
    placed = replace(NORMAL.partitions[DRAINED])
    ebb.become(changed(ebb.state, revived(ebb.state, DRAINED, placed)))
    ebb.source = ebb.rigs[SOURCE_BROKER].replica(partition=DRAINED)
    [resuming] = ebb.spawned
    ebb.spawned.clear()

    def written() -> None:
        ebb.become(changed(ebb.state, replace(ebb.state.partitions[DRAINED], resumes_from=-1)))

    ebb.client.written = written
    asyncio.run(resuming)  # type: ignore[arg-type]
    return ebb.source


def test_a_ghost_resumes_at_its_end_and_knows_its_producers() -> None:
    ebb = Ebb()
    ebb.become_ghost()
    ebb.produce_to_ghost(numbered(PRODUCED))
    epoch = ebb.state.shown(DRAINED).leader_epoch

    source = resumed(ebb)

    assert source.offsets.log_start == END
    assert source.role.leader_epoch > epoch
    rig = ebb.rigs[SOURCE_BROKER]
    appended = rig.append(source, numbered(PRODUCED + 1))
    assert appended.base_offset >= END
    assert values(source, END)[-1] == b"4"
    with pytest.raises(OutOfOrderSequenceNumber):
        rig.append(source, numbered(PRODUCED + 5))
    known = source.producers.get(PRODUCER)
    assert known is not None
    assert known.batches[-1][0] == PRODUCED + 1


def test_offsets_are_not_used_again_by_a_replica_that_starts_without_its_log() -> None:
    state = replace(topic(), partitions=(replace(topic().partitions[0], log_base=Offset(END)),))
    rig = Rig(state)

    appended = rig.append(rig.replica(), batch(b"a"))

    assert appended.base_offset == END
    again = Rig(state, disk=rig.stop())
    assert values(again.replica(), END) == [b"a"]


def test_a_broker_that_served_a_ghost_follows_the_partition_when_it_resumes() -> None:
    ebb = Ebb()
    ebb.become_ghost()
    ebb.produce_to_ghost(numbered(PRODUCED))
    ghost = ebb.ghost
    placed = replace(NORMAL.partitions[DRAINED], replicas=(SOURCE_BROKER, TARGET_BROKER))

    ebb.become(changed(ebb.state, revived(ebb.state, DRAINED, placed)))

    follower = ebb.rigs[TARGET_BROKER].replicas.used(ghost.tp)
    assert follower is not None
    assert follower is not ghost
    assert follower.follows
    assert follower.offsets.log_end == END
    for work in ebb.spawned:
        work.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_replica_of_a_partition_that_resumed_is_found_again_although_nothing_was_written(clean: bool) -> None:
    before = topic()
    state = replace(before, partitions=(replace(before.partitions[0], log_base=Offset(END)),))
    rig = Rig()
    rig.change(None, state)
    assert rig.replica().offsets.log_start == END
    rig.store.begin_checkpoint().run()

    again = Rig(state, disk=rig.stop(clean=clean))

    assert again.notes.named("log_missing") == []
    assert again.replica().offsets.log_end == END


def test_damage_in_the_log_of_a_ghost_is_not_reported_as_a_loss() -> None:
    before = spread()
    rig = Rig(before, broker_id=SOURCE_BROKER)
    for at in range(3):
        rig.append(rig.replica(partition=DRAINED), batch(b"%d" % at))
    rig.replica(partition=DRAINED).note_committed()
    rig.store.checkpoint()
    [log] = [each for each in rig.store if each.tp.partition == DRAINED]
    rig.disk.open(f"{log.path}/{offset_name(0, LOG)}").truncate(log.size_bytes - 1)
    ghost = ghost_of(replace(before.partitions[DRAINED], drained_into=TARGET), Offset(3))
    state = replace(before, partitions=(*before.partitions[:DRAINED], ghost, *before.partitions[DRAINED + 1 :]))

    again = Rig(state, disk=rig.stop(clean=False), broker_id=SOURCE_BROKER)

    assert again.notes.named("segment_quarantined") == again.notes.named("committed_records_missing") == []
    assert again.store.get(log.tp) is None


def test_a_log_that_missed_the_ghost_does_not_go_on_below_its_end() -> None:
    short = Rig(topic())
    short.append(short.replica(), batch(b"old"))
    state = replace(topic(), partitions=(replace(topic().partitions[0], log_base=Offset(END), leader_epoch=1),))

    rig = Rig(state, disk=short.stop())

    assert rig.replica().offsets.log_start == END
    assert rig.append(rig.replica(), batch(b"new")).base_offset == END


def test_a_log_that_missed_the_ghost_shows_no_record_that_was_deleted() -> None:
    full = Rig(topic())
    for _ in range(END):
        full.append(full.replica(), batch(b"deleted"))
    state = replace(topic(), partitions=(replace(topic().partitions[0], log_base=Offset(END), leader_epoch=1),))

    rig = Rig(state, disk=full.stop())

    assert (rig.replica().offsets.log_start, rig.replica().offsets.log_end) == (END, END)
    with pytest.raises(OffsetOutOfRange):
        values(rig.replica(), END - 1)


def test_a_producer_that_only_the_ghost_knew_is_derived_in_the_target() -> None:
    ebb = Ebb()
    ebb.become_ghost()

    assert ebb.target.producers.get(derived_id(ProducerId(PRODUCER), DRAINED)) is not None
    assert ebb.target.producers.get(ProducerId(PRODUCER)) is None
    detour = ebb.ghost.detour
    assert isinstance(detour, Drain)
    assert detour.is_ghost


def test_a_topic_that_is_deleted_takes_its_ghosts_with_it() -> None:
    ebb = Ebb()
    ebb.become_ghost()
    ghost = ebb.ghost
    change = TopicChange(before=ebb.state, after=None)

    ebb.rigs[TARGET_BROKER].replicas.apply(ImageDelta(topics=(change,)))

    assert ghost.is_offline
