"""A recovery after a power cut that is killed, or loses power, is repeated as thoroughly."""

from __future__ import annotations

import copy

import pytest
from tests.unit.partition.rig import Rig, Seeded, batch, topic

from penstock.storage import recovery
from penstock.testing.mem_disk import MemDisk, PowerCut

TOPIC = topic(partitions=2, configs={"internal.segment.bytes": "3000"})
BATCHES = 30


@pytest.fixture(autouse=True)
def _little_is_read_again_after_a_process_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with logs of more than a megabyte: only a full recovery finds damage before their end."""
    monkeypatch.setattr(recovery, "PROCESS_CRASH_RESCAN_BYTES", 100)


class FewLost(Seeded):
    """Randomness that keeps files and their names, and loses one sector in twenty."""

    def below(self, bound: int) -> int:
        if bound == 4:
            return min(1, super().below(20))
        return bound - 1


def after_a_power_cut(seed: int) -> MemDisk:
    """A disk that has lost some of the writes that were not flushed."""
    rig = Rig(TOPIC)
    for at in range(BATCHES):
        for partition in range(2):
            rig.append(rig.replica(partition=partition), batch(b"%05d" % at + b"x" * 500))
        if at == BATCHES // 3:
            for replica in rig.replicas.live():
                replica.log.flush()
                replica.note_committed()
            rig.store.checkpoint()
    disk = rig.disk
    disk.crash(FewLost(seed))
    return disk


def recovery_stops_at(disk: MemDisk, point: int) -> bool:
    """Start a broker that dies at its disk operation number `point`; False when the start completes before."""
    disk.cut_power_at = disk.operations + point
    try:
        Rig(TOPIC, disk=disk)
    except PowerCut:
        return True
    return False


def assert_sound(rig: Rig) -> None:
    """Every batch in the logs is sound, and no flushed batch is missing."""
    for partition in range(2):
        offsets = [
            batch.header.base_offset for batch in rig.replica(partition=partition).log.view().walk_from(0, bodies=True)
        ]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) > BATCHES // 3


@pytest.mark.parametrize("power", [False, True], ids=["the process is killed", "the power fails again"])
@pytest.mark.parametrize("seed", range(8))
def test_no_damage_is_served_wherever_the_recovery_stopped(seed: int, power: bool) -> None:
    crashed = after_a_power_cut(seed)
    point = 0
    while recovery_stops_at(disk := copy.deepcopy(crashed), point):
        if power:
            disk.crash(Seeded(100 * seed + point))
        else:
            disk.kill()

        again = Rig(TOPIC, disk=disk)

        assert_sound(again)
        # A third broker, after a kill, finds the same.
        again.append(again.replica(), batch(b"next"))
        again.stop(clean=False)
        assert_sound(Rig(TOPIC, disk=disk))
        point += 1
    assert point > 5, "each time at another disk operation"
