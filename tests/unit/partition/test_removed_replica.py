"""A broker that loses a replica deletes its log, unless the metadata may be older than the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.partition.rig import HOME, Rig, batch, values
from tests.unit.partition.test_following import ORDERS, shared

from penstock.model.generated_errors import NotEnoughReplicas, NotLeaderOrFollower
from penstock.model.topic import TopicState
from penstock.partition.leader import Leader


def with_records(epoch: int = 3) -> tuple[Rig, TopicState]:
    """Broker 1 leads a partition of two replicas, and has a record of this epoch."""
    before = shared(leader=1, epoch=epoch, isr=(1,), configs={"min.insync.replicas": "1"})
    rig = Rig(before)
    rig.append(rig.replica(), batch(b"a"))
    return rig, before


def directories(rig: Rig) -> list[str]:
    return sorted(name for name in rig.disk.list_directory(HOME) if name.startswith("orders-0"))


def test_a_removed_replica_refuses_requests_and_its_log_waits_for_deletion() -> None:
    rig, before = with_records()
    replica = rig.replica()
    rig.change(before, shared(leader=2, epoch=4, replicas=(2, 3), version=1))

    with pytest.raises(NotLeaderOrFollower):
        replica.append(memoryview(batch(b"b")), rig.clock.ms)
    with pytest.raises(NotLeaderOrFollower):
        rig.replica()
    assert [name.endswith("-delete") for name in directories(rig)] == [True]
    [event] = rig.notes.named("replica_removed")
    assert (event["partition"], event["files_deleted_after_ms"]) == ("orders-0", 60_000)


def test_a_replica_that_was_removed_while_its_broker_was_away_is_deleted_at_the_next_start() -> None:
    rig, _ = with_records()
    after = Rig(shared(leader=2, epoch=4, replicas=(2, 3), version=1), disk=rig.stop())
    assert [name.endswith("-delete") for name in directories(after)] == [True]
    assert len(after.notes.named("replica_removed")) == 1


def test_a_fenced_broker_deletes_nothing_before_it_is_admitted() -> None:
    rig, _ = with_records()
    removed = shared(leader=2, epoch=4, replicas=(2, 3), version=1)
    after = Rig(removed, disk=rig.stop(), fenced=True)
    assert directories(after) == ["orders-0"]

    # The metadata was behind: the broker is a replica again.
    added = shared(leader=2, epoch=5, replicas=(2, 1), isr=(2,), version=2)
    after.change(removed, added)
    after.replicas.unfence()
    assert after.replica().log.log_end == 1

    gone = Rig(removed, disk=after.stop(), fenced=True)
    gone.replicas.unfence()
    assert [name.endswith("-delete") for name in directories(gone)] == [True]


def test_a_replica_that_is_removed_while_its_broker_is_fenced_keeps_its_log_until_it_is_admitted() -> None:
    rig, before = with_records()
    rig.replicas.fence()
    rig.change(before, shared(leader=2, epoch=4, replicas=(2, 3), version=1))
    assert directories(rig) == ["orders-0"]
    assert rig.replicas.used(ORDERS) is None

    rig.replicas.unfence()
    assert [name.endswith("-delete") for name in directories(rig)] == [True]


def test_a_log_with_records_of_the_epoch_in_the_metadata_is_set_aside_and_comes_back() -> None:
    rig, before = with_records(epoch=3)
    older = shared(leader=2, epoch=3, replicas=(2, 3), version=0)
    after = Rig(older, disk=rig.stop())
    assert [name.endswith("-stray") for name in directories(after)] == [True]
    [event] = after.notes.named("log_set_aside")
    assert "older than the log" in event["reason"]

    again = Rig(replace(before, partitions=shared(leader=1, epoch=4, isr=(1,)).partitions), disk=after.stop())
    assert again.replica().log.log_end == 1


def test_a_broker_that_gains_a_replica_makes_its_log_and_follows() -> None:
    without = shared(leader=2, epoch=3, replicas=(2, 3))
    rig = Rig(without)
    rig.change(without, shared(leader=2, epoch=3, replicas=(1, 2, 3), isr=(2, 3), version=1))
    replica = rig.replicas.used(ORDERS)
    assert replica is not None
    assert replica.follows
    position = replica.fetch_position()
    assert position is not None
    assert (position.offset, position.leader_epoch) == (0, 3)


def test_a_leader_goes_on_committing_alone_while_replicas_are_added_to_it() -> None:
    alone = shared(replicas=(1,), configs={"min.insync.replicas": "2"})
    rig = Rig(alone)
    rig.append(rig.replica(), batch(b"a"))
    state = replace(
        shared(replicas=(1, 2, 3), isr=(1,), version=1).partitions[0], adding_replicas=(2, 3), in_sync_min=2
    )
    growing = replace(alone, partitions=(state,))
    rig.change(alone, growing)
    leader = rig.replica().role
    assert isinstance(leader, Leader)
    leader.check_enough_in_sync()
    rig.append(rig.replica(), batch(b"b"))
    assert values(rig.replica()) == [b"a", b"b"]

    grown = replace(alone, partitions=(replace(state, adding_replicas=(), partition_epoch=2),))
    rig.change(growing, grown)
    leader = rig.replica().role
    assert isinstance(leader, Leader)
    with pytest.raises(NotEnoughReplicas):
        leader.check_enough_in_sync()


def test_a_replica_that_comes_back_does_not_begin_with_the_marks_of_its_former_log() -> None:
    rig, before = with_records()
    rig.flush()
    rig.replica().log.flush()
    rig.replica().note_committed()
    rig.store.checkpoint()
    removed = shared(leader=2, epoch=4, replicas=(2, 3), version=1)
    rig.change(before, removed)
    added = shared(leader=2, epoch=4, replicas=(2, 3, 1), isr=(2, 3), version=2)
    rig.change(removed, added)
    rig.replica().log.partition_directory.make()

    crashed = Rig(added, disk=rig.stop(clean=False), fenced=True)
    crashed.replicas.unfence()
    log = crashed.replica().log
    assert (log.log_end, log.high_watermark, log.recovery_point) == (0, 0, 0)
    assert not [event for event, _ in crashed.notes.events if "missing" in event]


def test_a_removed_log_is_not_missed_when_its_files_are_gone() -> None:
    rig, before = with_records()
    rig.replica().log.flush()
    rig.replica().note_committed()
    rig.store.checkpoint()
    removed = shared(leader=2, epoch=4, replicas=(2, 3), version=1)
    rig.change(before, removed)

    once = Rig(removed, disk=rig.stop(clean=False))
    once.store.trash.remove(once.store.trash.take_due(once.clock.ms))
    assert directories(once) == []
    twice = Rig(removed, disk=once.stop(clean=False))
    assert not twice.notes.named("log_missing")
