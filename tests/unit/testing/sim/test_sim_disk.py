"""A life's disk: dead with its life, traced, and as faulty as the schedule asks for."""

import asyncio
import errno
from collections.abc import Callable, Iterator

import pytest

from penstock.testing.sim.clock import SimClock
from penstock.testing.sim.disk import LifeDisk, NodeDisk
from penstock.testing.sim.node import LifeEnded
from penstock.testing.sim.threads import SimThreads
from penstock.testing.sim.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(4)
    yield world
    world.close()


class Machine:
    """A node with a disk."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.node = world.node("a")
        self.disk = NodeDisk(self.node)
        self.clock = SimClock(world)

    def start(self) -> LifeDisk:
        self.threads = SimThreads(self.world, self.node.start())
        return LifeDisk(self.disk, self.node.life, self.clock, self.threads.executor)


@pytest.fixture
def machine(world: World) -> Machine:
    return Machine(world)


def test_a_killed_process_leaves_all_it_wrote_and_its_handles_are_dead(machine: Machine) -> None:
    old = machine.start()
    old.make_directory("/data")
    file = old.open("/data/log", create=True)
    assert file.append(b"not synced") == 10
    lock = old.lock("/data/.lock")
    assert lock is not None
    machine.node.kill()
    calls: list[Callable[[], object]] = [
        lambda: file.append(b"x"),
        lambda: file.pread(1, 0),
        lambda: file.pread_nowait(1, 0),
        file.size,
        file.sync,
        lambda: file.truncate(0),
        lock.release,
        lambda: old.open("/data/log"),
        lambda: old.open("/data/new", create=True),
        lambda: old.open_read("/data/log"),
        lambda: old.read_file("/data/log"),
        lambda: old.write_file("/data/.clean", b""),
        lambda: old.rename("/data/log", "/data/other"),
        lambda: old.link("/data/log", "/data/other"),
        lambda: old.unlink("/data/log"),
        lambda: old.make_directory("/more"),
        lambda: old.remove_tree("/data"),
        lambda: old.list_directory("/data"),
        lambda: old.exists("/data"),
        lambda: old.stat("/data/log"),
        lambda: old.sync_directory("/data"),
        lambda: old.lock("/data/.lock"),
        lambda: old.free_bytes("/data"),
        old.wait_for_descriptor,
        old.boot_id,
    ]
    for call in calls:
        with pytest.raises(LifeEnded):
            call()
    new = machine.start()
    assert sorted(new.list_directory("/data")) == [".lock", "log"]
    assert new.read_file("/data/log") == b"not synced"
    assert new.lock("/data/.lock") is not None


def test_a_power_cut_keeps_what_was_synced_and_changes_the_boot(machine: Machine) -> None:
    disk = machine.start()
    disk.make_directory("/data")
    disk.sync_directory("/")
    disk.write_file("/data/log", b"synced", sync=True)
    disk.sync_directory("/data")
    disk.open("/data/log").append(b"x" * 100_000)
    boot = disk.boot_id()
    machine.node.cut_power()
    after = machine.start()
    assert after.boot_id() != boot
    assert after.read_file("/data/log").startswith(b"synced")
    assert b"\0" in after.read_file("/data/log")


def test_a_process_can_die_at_any_change(machine: Machine) -> None:
    disk = machine.start()
    disk.make_directory("/data")
    machine.disk.crash_in = 2
    machine.disk.crash = machine.node.kill
    file = disk.open("/data/log", create=True)
    file.append(b"one")
    with pytest.raises(LifeEnded):
        file.append(b"two")
    assert not machine.node.running
    assert machine.world.counts["crash inside a disk operation"] == 1
    assert machine.start().read_file("/data/log") == b"one"


def test_files_carry_the_time_of_the_node(machine: Machine) -> None:
    disk = machine.start()
    machine.clock.skew_ms = -5000
    disk.write_file("/log", b"x")
    assert disk.stat("/log").modified_ms == machine.clock.now_ms()


def test_errors_come_as_asked_for(machine: Machine) -> None:
    disk = machine.start()
    disk.write_file("/log", b"")
    machine.disk.files.fail("append", "log", errno.EIO, times=1)
    file = disk.open("/log")
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"x")
    assert file.append(b"x") == 1


def test_what_a_failed_sync_should_have_written_may_be_lost_after_a_successful_one(world: World) -> None:
    lost = 0
    for number in range(20):
        machine = Machine(world)
        machine.node = world.node(f"n{number}")
        machine.disk = NodeDisk(machine.node)
        disk = machine.start()
        disk.write_file("/log", b"", sync=True)
        disk.sync_directory("/")
        file = disk.open("/log")
        file.append(b"first")
        machine.disk.files.fail("sync", "", errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.append(b"second")
        file.sync()
        assert file.pread(100, 0) == b"firstsecond"
        machine.node.cut_power()
        left = machine.start().read_file("/log")
        assert left[5:] == b"second"
        lost += left[:5] == bytes(5)
    assert 0 < lost < 20


def test_a_slow_sync_blocks_the_process_unless_a_thread_does_it(machine: Machine) -> None:
    world = machine.world
    disk = machine.start()
    machine.disk.slow_sync_s = 100.0
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(world.now)

    async def sync_in_thread() -> float:
        began = world.now
        await asyncio.get_running_loop().run_in_executor(machine.threads.executor, disk.open("/log").sync)
        return world.now - began

    async def main() -> None:
        disk.write_file("/log", b"x")
        machine.node.spawn(tick())
        took_s = await machine.node.spawn(sync_in_thread())
        assert took_s > 2
        assert len(ticks) == int(took_s)
        ticks.clear()
        began = world.now
        await asyncio.sleep(0.5)
        disk.open("/log").sync()
        while not ticks:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert ticks[0] - began > 2

    world.run(main())


def test_every_change_is_part_of_the_trace(world: World) -> None:
    def trace_of(data: bytes) -> str:
        world = World(1)
        Machine(world).start().write_file("/log", data)
        world.close()
        return world.trace.hexdigest()

    assert trace_of(b"a") == trace_of(b"a")
    assert trace_of(b"a") != trace_of(b"b")


def test_a_wiped_disk_has_no_files() -> None:
    world = World(1)
    node = world.node("machine")
    disk = NodeDisk(node)
    disk.files.make_directory("/data")

    disk.wipe()

    assert not disk.files.exists("/data")
    world.close()
