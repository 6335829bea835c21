"""A replica of several that cannot serve says so, and repairs itself only when no ISR has it."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.unit.partition.rig import Rig, batch
from tests.unit.partition.test_following import ORDERS, Pair, copy, shared, stored
from tests.unit.partition.test_replicated_recovery import RECORD, SEGMENTED, log_files

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.partition.replicas import Replicas
from penstock.storage.names import LOG
from penstock.storage.view import LogView
from penstock.storage.walk import BadBatch


def resignations(rig: Rig) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    rig.replicas.cluster.on_resigned = found.append
    return found


def test_a_leader_whose_disk_is_full_resigns_once_per_state() -> None:
    rig = Rig(shared())
    found = resignations(rig)
    rig.append(rig.replica(), batch(b"a"))
    rig.disk.fail("append", "orders-0", errno.ENOSPC)

    for _ in range(3):
        with pytest.raises(KafkaStorageError):
            rig.append(rig.replica(), batch(b"b"))
    assert found == [ORDERS]
    rig.change(shared(), shared(version=1, epoch=1))
    with pytest.raises(KafkaStorageError):
        rig.append(rig.replica(), batch(b"b"))

    assert found == [ORDERS, ORDERS]
    assert rig.replica().is_leader, "it serves reads until another leads"


@pytest.mark.parametrize("topic", [shared(isr=(1,)), shared(replicas=(1,))])
def test_a_leader_that_is_alone_in_its_isr_does_not_resign_because_its_disk_is_full(topic: Any) -> None:
    rig = Rig(topic)
    found = resignations(rig)
    rig.append(rig.replica(), batch(b"a"))
    rig.disk.fail("append", "orders-0", errno.ENOSPC)

    with pytest.raises(KafkaStorageError):
        rig.append(rig.replica(), batch(b"b"))

    assert found == []


def test_a_follower_whose_disk_is_full_leaves_the_isr_and_goes_on_when_there_is_room() -> None:
    pair = Pair()
    found = resignations(pair.two)
    pair.append(b"a")
    copy(pair.leader, pair.follower)
    pair.append(b"b")
    pair.two.disk.fail("append", "orders-0", errno.ENOSPC, times=2)

    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            copy(pair.leader, pair.follower)
    assert found == [ORDERS]
    copy(pair.leader, pair.follower)

    assert stored(pair.follower) == stored(pair.leader)


def test_a_failed_log_directory_takes_its_replicas_out_whether_they_are_open_or_not() -> None:
    closed = shared()
    rig = Rig(closed)
    found = resignations(rig)
    assert rig.replicas.used(ORDERS) is None

    rig.store.all_directories[0].go_offline("the disk failed")

    assert found == [ORDERS]


class Damaged:
    """Broker 1 with a log that is damaged at offset 8, and broker 2 with all of it."""

    def __init__(self) -> None:
        self.pair = Pair(configs=SEGMENTED)
        for _ in range(10):
            self.pair.append(RECORD)
        copy(self.pair.leader, self.pair.follower, high_watermark=10)
        self.rig = self.pair.one
        self.found = resignations(self.rig)
        self.file = log_files(self.rig.disk)[-1]
        self.cut = int(self.file.removesuffix(LOG))
        self.rig.disk.flip(f"/data/orders-0/{self.file}", 200)

    def state(self, **kw: Any) -> Any:
        return shared(configs=SEGMENTED, **kw)


def test_a_leader_that_finds_damage_resigns_and_is_repaired_when_it_is_in_no_isr() -> None:
    async def run() -> None:
        damaged = Damaged()
        rig, pair = damaged.rig, damaged.pair

        assert await rig.replicas.repair(ORDERS) is None
        assert damaged.found == [ORDERS]
        with pytest.raises(KafkaStorageError):
            rig.replica()

        in_isr = damaged.state(leader=2, epoch=1, version=1)
        rig.change(damaged.state(), in_isr)
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(KafkaStorageError):
            rig.replica()
        out = damaged.state(leader=2, epoch=1, isr=(2,), version=2)
        rig.change(in_isr, out)
        for _ in range(3):
            await asyncio.sleep(0)

        follower = rig.replica()
        assert follower.offsets.log_end == damaged.cut
        assert [each.tp for each in rig.replicas.followed()] == [ORDERS]
        pair.two.change(damaged.state(), out)
        copy(pair.follower, follower)
        assert stored(follower) == stored(pair.follower)

    asyncio.run(run())


def test_a_replica_whose_producers_cannot_be_replayed_resigns_before_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        damaged = Damaged()
        disk = damaged.rig.stop()
        replay = Replicas._replay

        def bad(replicas: Replicas, view: LogView, high_watermark: Any) -> Any:
            raise BadBatch(200, high_watermark, "wrong checksum")

        monkeypatch.setattr(Replicas, "_replay", bad)
        rig = Rig(disk=disk, broker_id=1, fenced=True)
        found = resignations(rig)
        rig.replicas.start([damaged.state(leader=2, epoch=1)])
        rig.replicas.unfence()
        assert (found, rig.store.damaged) == ([ORDERS], set())

        monkeypatch.setattr(Replicas, "_replay", replay)
        removed = damaged.state(leader=2, epoch=1, isr=(2,), version=1)
        rig.change(damaged.state(leader=2, epoch=1), removed)
        await asyncio.sleep(0)
        with pytest.raises(KafkaStorageError):
            rig.replica()
        rig.change(removed, damaged.state(leader=2, epoch=2, isr=(2,), version=2))
        for _ in range(3):
            await asyncio.sleep(0)

        assert rig.replica().offsets.log_end == damaged.cut

    asyncio.run(run())


def test_the_only_replica_is_repaired_at_once() -> None:
    async def run() -> None:
        rig = Rig(shared(replicas=(1,), configs=SEGMENTED))
        for _ in range(4):
            rig.append(rig.replica(), batch(RECORD))
        found = resignations(rig)
        rig.disk.flip(f"/data/orders-0/{log_files(rig.disk)[0]}", 200)

        assert await rig.replicas.repair(ORDERS)

        assert found == []
        assert rig.replica().offsets.log_end == 4

    asyncio.run(run())
