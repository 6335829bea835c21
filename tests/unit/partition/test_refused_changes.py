"""What a full disk refuses of a metadata change is done when there is room, and concerns no other partition."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from tests.unit.partition.rig import HOME, Rig, batch, topic, values
from tests.unit.partition.test_following import ORDERS, shared

from penstock.model.ids import TopicPartition
from penstock.model.timers import Timers
from penstock.model.topic import TopicState
from penstock.partition.refused_changes import RETRY_MS, TRIES_AT_ONCE_MAX, RefusedChanges
from penstock.testing import ManualClock, ManualLoop
from penstock.testing.mem_disk import CAPACITY_BYTES


class Told:
    """What the rest of the broker hears of partitions."""

    def __init__(self, rig: Rig) -> None:
        self.roles: list[TopicPartition] = []
        self.resigned: list[TopicPartition] = []
        rig.replicas.cluster.on_roles_changed = self.roles.extend
        rig.replicas.cluster.on_resigned = self.resigned.append


def removed() -> TopicState:
    return shared(leader=2, epoch=4, replicas=(2, 3), version=1)


def added() -> TopicState:
    return shared(leader=2, epoch=4, replicas=(2, 3, 1), isr=(2, 3), version=2)


def without_replica() -> Rig:
    """Broker 1 was a replica, of which the checkpoints still have the marks."""
    before = shared(leader=1, epoch=3, isr=(1,), configs={"min.insync.replicas": "1"})
    rig = Rig(before)
    rig.append(rig.replica(), batch(b"a"))
    rig.replica().log.flush()
    rig.store.checkpoint()
    rig.change(before, removed())
    return rig


def test_a_replica_that_comes_back_on_a_full_disk_follows_once_there_is_room() -> None:
    rig = without_replica()
    told = Told(rig)
    rig.disk.capacity_bytes = 0

    rig.change(removed(), added())
    assert rig.replicas.used(ORDERS) is None
    assert told.resigned == [ORDERS]
    told.roles.clear()
    rig.loop.pass_ms(3 * RETRY_MS)
    assert told.roles == []

    rig.disk.capacity_bytes = CAPACITY_BYTES
    rig.loop.pass_ms(2 * RETRY_MS)
    replica = rig.replicas.used(ORDERS)
    assert replica is not None
    position = replica.fetch_position()
    assert position is not None
    assert (position.offset, position.leader, position.leader_epoch) == (0, 2, 4)
    assert told.roles == [ORDERS]
    assert len(rig.timers) == 0
    # Once: a disk may be full for hours.
    assert len(rig.notes.named("directory_refuses")) == 1


def test_a_refused_replica_that_is_removed_again_is_not_made() -> None:
    rig = without_replica()
    rig.disk.capacity_bytes = 0
    rig.change(removed(), added())
    gone = replace(added(), partitions=(replace(removed().partitions[0], leader_epoch=5, partition_epoch=3),))
    rig.change(added(), gone)

    rig.disk.capacity_bytes = CAPACITY_BYTES
    rig.loop.pass_ms(2 * RETRY_MS)

    assert [log.tp for log in rig.store] == []
    assert len(rig.timers) == 0


def test_nothing_is_tried_again_in_a_directory_that_is_offline_or_after_the_end() -> None:
    rig = without_replica()
    rig.disk.capacity_bytes = 0
    rig.change(removed(), added())
    rig.store.all_directories[0].go_offline("pulled")
    rig.loop.pass_ms(2 * RETRY_MS)
    assert len(rig.timers) == 0

    other = without_replica()
    other.disk.capacity_bytes = 0
    other.change(removed(), added())
    other.replicas.close()
    assert len(other.timers) == 0


def test_a_fenced_broker_makes_a_refused_replica_when_it_is_admitted() -> None:
    rig = without_replica()
    rig.disk.capacity_bytes = 0
    rig.change(removed(), added())
    rig.replicas.fence()
    rig.disk.capacity_bytes = CAPACITY_BYTES
    rig.loop.pass_ms(2 * RETRY_MS)
    assert rig.replicas.used(ORDERS) is None

    rig.replicas.unfence()
    assert rig.replicas.used(ORDERS) is not None
    rig.loop.pass_ms(2 * RETRY_MS)
    assert len(rig.timers) == 0


def two_partitions(*, leader: int, epoch: int, replicas: tuple[int, ...]) -> TopicState:
    made = topic(partitions=2)
    return replace(
        made,
        partitions=tuple(
            replace(each, leader=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=replicas, isr=replicas)
            for each in made.partitions
        ),
    )


@pytest.mark.parametrize("deleted", [False, True], ids=["replicas removed", "topic deleted"])
def test_a_log_that_cannot_be_renamed_is_deleted_later_and_those_beside_it_at_once(deleted: bool) -> None:
    before = two_partitions(leader=1, epoch=3, replicas=(1, 2))
    rig = Rig(before, deleted=(before,) if deleted else ())
    told = Told(rig)
    for index in range(2):
        rig.append(rig.replica(partition=index), batch(b"a"))
    rig.disk.fail("rename", f"{HOME}/orders-0", errno.ENOSPC)

    rig.change(before, None if deleted else two_partitions(leader=2, epoch=4, replicas=(2, 3)))
    assert [log.tp for log in rig.store] == [ORDERS]
    assert set(told.roles) == {ORDERS, TopicPartition("orders", 1)}

    rig.disk.faults.clear()
    rig.loop.pass_ms(2 * RETRY_MS)
    assert [log.tp for log in rig.store] == []
    assert all(name.endswith("-delete") for name in rig.disk.list_directory(HOME) if name.startswith("orders"))
    assert len(rig.timers) == 0


def test_a_log_whose_removal_was_refused_serves_the_replica_that_is_added_again() -> None:
    before = two_partitions(leader=1, epoch=3, replicas=(1, 2))
    rig = Rig(before)
    rig.append(rig.replica(), batch(b"a"))
    rig.disk.fail("rename", f"{HOME}/orders-0", errno.ENOSPC)
    away = two_partitions(leader=2, epoch=4, replicas=(2, 3))
    rig.change(before, away)
    rig.disk.faults.clear()
    rig.change(away, two_partitions(leader=2, epoch=5, replicas=(2, 1)))
    replica = rig.replica()

    rig.replicas.fence()
    rig.loop.pass_ms(2 * RETRY_MS)
    assert not replica.follows
    rig.replicas.unfence()
    rig.loop.pass_ms(2 * RETRY_MS)

    assert len(rig.timers) == 0
    assert replica.follows
    assert replica.log.log_end == 1
    assert rig.store.get(ORDERS) is replica.log


def test_a_log_that_cannot_be_restored_yet_is_not_replaced_by_an_empty_one() -> None:
    known = topic()
    rig = Rig(known)
    rig.append(rig.replica(), batch(b"kept"))
    again = Rig(disk=rig.stop())
    again.disk.fail("rename", "-stray", errno.ENOSPC)

    again.change(None, known)
    again.disk.faults.clear()
    again.loop.pass_ms(2 * RETRY_MS)

    assert values(again.replica()) == [b"kept"]


class TestRounds:
    """In which order refused partitions are tried, and how many at once."""

    def setup_method(self) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.full: set[int] = set()
        self.tried: list[int] = []
        self.refused = RefusedChanges(Timers(self.loop), self.follow)

    def follow(self, tp: TopicPartition) -> None:
        self.tried.append(tp.partition)
        if tp.partition in self.full:
            assert tp in self.refused
            self.refused.add(tp)

    def add(self, count: int) -> None:
        for index in range(count):
            self.refused.add(TopicPartition("orders", index))

    def test_a_round_ends_at_a_refusal_and_the_next_begins_with_the_others(self) -> None:
        self.full = {0}
        self.add(3)
        self.loop.pass_ms(RETRY_MS + 20)
        assert self.tried == [0]
        self.loop.pass_ms(RETRY_MS + 20)
        assert self.tried == [0, 1, 2, 0]
        self.full.clear()
        self.loop.pass_ms(RETRY_MS + 20)
        assert self.tried == [0, 1, 2, 0, 0]
        assert self.loop.alarms == 0

    def test_a_turn_has_a_bounded_number_of_tries(self) -> None:
        self.add(TRIES_AT_ONCE_MAX + 1)
        ends: list[int] = []
        while self.loop.alarms:
            self.loop.pass_ms(10)
            if self.tried and (not ends or ends[-1] != len(self.tried)):
                ends.append(len(self.tried))
        assert ends == [TRIES_AT_ONCE_MAX, TRIES_AT_ONCE_MAX + 1]
