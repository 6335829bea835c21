"""The schedule of faults of a simulation, drawn from its seed: what happens to brokers, disks, network, store, clients.

Two tracks run at the same time. One brings brokers down, one fault after the other, and up again; the other disturbs
what is around them. Each track goes through all its kinds once, in an order of the seed, and then draws further ones.
Clusters have further kinds (`cluster_faults`), and a track of its own for their clients.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.testing.mem_disk import CAPACITY_BYTES, MemDisk
from penstock.testing.sim.actors import Actor
from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.store import SimStore, StoreFaults

if TYPE_CHECKING:
    from penstock.testing.sim.world import World


class Fault(StrEnum):
    """Every kind of fault."""

    CRASH = "crash"
    """A broker's process is killed."""
    POWER_CUT = "power cut"
    """A broker's machine stops: what was not fsynced is lost, or torn."""
    CRASH_ON_DISK = "crash on disk"
    """A broker crashes right before one of its next changes to the disk, also while it starts."""
    RESTART = "restart"
    """A broker is stopped and started."""
    PAUSE = "pause"
    """A broker does nothing for some seconds, perhaps for longer than its sessions last."""
    DISK_ERROR = "disk error"
    """An append fails with EIO: the log directory is offline until the broker is started again."""
    FSYNC_ERROR = "fsync error"
    """An fsync fails, and what it was to write may never be written."""
    DISK_FULL = "disk full"
    """No append has room for some seconds."""

    SLOW_DISK = "slow disk"
    """An fsync takes up to a second."""
    CUT = "cut"
    """What a client and a broker send each other is held, in one direction or both."""
    RESET = "reset"
    """Connections break."""
    CLOCK_JUMP = "clock jump"
    """A broker's wall clock jumps by minutes, either way."""
    CLIENT_PAUSE = "client pause"
    """A client does nothing for longer than its session lasts, and then goes on."""
    CLIENT_CRASH = "client crash"
    """A client is killed, and started again."""
    STORE_SUSPENSION = "store suspension"
    """A broker cannot reach the metadata store for some seconds; its session may end meanwhile."""
    STORE_EXPIRY = "store expiry"
    """A broker's session in the metadata store ends."""
    STORE_DOUBT = "store doubt"
    """For some seconds, writes to the store have unknown outcomes, and changes are reported late or not at all."""

    POWER_CUT_ALL = "power cut of all"
    """The machines of all brokers stop at once, and start in any order."""
    ROLLING_RESTART = "rolling restart"
    """Each broker is stopped and started, one after the other."""
    WIPED_DISK = "wiped disk"
    """A broker starts with an empty disk."""
    PAIR_CUT = "pair cut"
    """What two brokers send each other is held, in one direction or both; or one broker is cut from all others."""
    ISOLATION = "isolation"
    """A leader is cut from the other brokers and the store, and not from its clients, until another broker leads."""
    SLOW_BROKER = "slow broker"
    """What a broker sends leaves up to half a second later."""


BROKER_FAULTS = (
    Fault.CRASH,
    Fault.POWER_CUT,
    Fault.CRASH_ON_DISK,
    Fault.RESTART,
    Fault.PAUSE,
    Fault.DISK_ERROR,
    Fault.FSYNC_ERROR,
    Fault.DISK_FULL,
)
OTHER_FAULTS = (
    Fault.SLOW_DISK,
    Fault.CUT,
    Fault.RESET,
    Fault.CLOCK_JUMP,
    Fault.CLIENT_PAUSE,
    Fault.CLIENT_CRASH,
    Fault.STORE_SUSPENSION,
    Fault.STORE_EXPIRY,
    Fault.STORE_DOUBT,
)

GAP_MIN_S, GAP_MAX_S = 1.0, 4.0
DISK_CHANGES_MAX = 60
"""A crash on disk comes before one of so many changes."""
CLOCK_JUMP_MS_MAX = 10 * 60 * 1000
RESTARTS_MAX = 20
"""How often a broker is started until it serves."""
RESTART_PAUSE_S = 0.5
"""Before the next start of a broker that refused to: its disk may be full for a while."""
READY_S = 60.0
LOOK_S = 0.1
LIMIT_S = 120.0
CRASH_IN_RECOVERY = 0.2
"""How often a broker that starts crashes once more."""


class NotReady(Exception):
    """A broker that was started does not serve: the simulation cannot go on."""


async def eventually(world: World, condition: Callable[[], bool], *, limit_s: float = LIMIT_S) -> None:
    """Wait until something is so, or the time is over. On virtual time, looking costs nothing but its callbacks."""
    deadline = world.now + limit_s
    while not condition() and world.now < deadline:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


class Schedule:
    """Faults of one simulation. Its coroutines belong to no node."""

    def __init__(
        self,
        world: World,
        *,
        brokers: Sequence[SimBroker],
        store: SimStore,
        actors: Sequence[Actor],
        power_cuts: bool,
    ) -> None:
        self._world = world
        self._brokers = brokers
        self._store = store
        self._actors = actors
        self._power_cuts = power_cuts
        self._random = world.stream("faults")
        self._gap_s = (GAP_MIN_S, GAP_MAX_S)
        self._tracks: tuple[tuple[Fault, ...], ...] = tuple(
            tuple(fault for fault in track if power_cuts or fault is not Fault.POWER_CUT)
            for track in (BROKER_FAULTS, OTHER_FAULTS)
        )
        self.calm_wanted = 0
        """How many faults wait for the others to be over: no further one begins."""
        self.counts: Counter[Fault] = Counter()
        self._act: dict[Fault, Callable[[], Awaitable[None]]] = {
            Fault.CRASH: self._crash,
            Fault.POWER_CUT: self._power_cut,
            Fault.CRASH_ON_DISK: self._crash_on_disk,
            Fault.RESTART: self._restart,
            Fault.PAUSE: self._pause,
            Fault.DISK_ERROR: self._disk_error,
            Fault.FSYNC_ERROR: self._fsync_error,
            Fault.DISK_FULL: self._disk_full,
            Fault.SLOW_DISK: self._slow_disk,
            Fault.CUT: self._cut,
            Fault.RESET: self._reset,
            Fault.CLOCK_JUMP: self._clock_jump,
            Fault.CLIENT_PAUSE: self._client_pause,
            Fault.CLIENT_CRASH: self._client_crash,
            Fault.STORE_SUSPENSION: self._store_suspension,
            Fault.STORE_EXPIRY: self._store_expiry,
            Fault.STORE_DOUBT: self._store_doubt,
        }

    @property
    def kinds(self) -> tuple[Fault, ...]:
        """The kinds that a run must have had."""
        return tuple(fault for fault in Fault if any(fault in track for track in self._tracks))

    def use(
        self,
        tracks: tuple[tuple[Fault, ...], ...],
        acts: Mapping[Fault, Callable[[], Awaitable[None]]],
        *,
        gap_s: tuple[float, float],
    ) -> None:
        """Have other tracks, other acts for some faults, and other pauses between faults."""
        self._tracks = tracks
        self._act |= acts
        self._gap_s = gap_s

    async def run(self, duration_s: float) -> None:
        """Let faults happen until the time is over and each kind has happened; everything works again then."""
        until = self._world.now + duration_s
        await asyncio.gather(*(self._track(track, until) for track in self._tracks))
        await self.heal()

    async def _track(self, faults: Sequence[Fault], until: float) -> None:
        left = list(faults)
        self._random.shuffle(left)
        while left or self._world.now < until:
            await asyncio.sleep(self._random.uniform(*self._gap_s))
            await eventually(self._world, lambda: not self.calm_wanted)
            fault = left.pop() if left else self._random.choice(faults)
            self._world.trace.fact(f"fault: {fault.value}")
            await self._act[fault]()

    async def heal(self) -> None:
        """Undo every fault, and bring every node up."""
        self._world.trace.fact("heal")
        self._world.fabric.heal_all()
        self._store.faults = StoreFaults()
        for actor in self._actors:
            actor.node.resume()
            if not actor.node.running:
                actor.start()
        for broker in self._brokers:
            broker.disk.files.faults.clear()
            broker.disk.files.capacity_bytes = CAPACITY_BYTES
            broker.disk.slow_sync_s = 0.0
            broker.resume()
            await self.bring_up(broker, steady=True)

    # Brokers

    def _broker(self) -> SimBroker:
        return self._random.choice(self._brokers)

    async def bring_up(self, broker: SimBroker, *, steady: bool = False) -> None:
        """Start a broker until it serves; unless `steady`, it may crash on the way."""
        for _ in range(RESTARTS_MAX):
            refusals = len(broker.refusals)
            if not broker.running:
                broker.start()
                if not steady and self._random.random() < CRASH_IN_RECOVERY:
                    self._crash_soon(broker)
            try:
                async with asyncio.timeout(READY_S):
                    await broker.ready()
            except TimeoutError:
                raise NotReady(f"{broker.name} does not serve within {READY_S:g} s") from None
            broker.disk.crash_in = None
            if broker.running:
                return
            if len(broker.refusals) > refusals:
                await asyncio.sleep(RESTART_PAUSE_S)
        raise NotReady(f"{broker.name} does not start: {broker.refusals[-1:]}")

    async def _crash(self) -> None:
        broker = self._broker()
        broker.kill()
        self.counts[Fault.CRASH] += 1
        await asyncio.sleep(self._random.uniform(0, 2))
        await self.bring_up(broker)

    async def _power_cut(self) -> None:
        broker = self._broker()
        broker.cut_power()
        self.counts[Fault.POWER_CUT] += 1
        await asyncio.sleep(self._random.uniform(0, 2))
        await self.bring_up(broker)

    def _crash_soon(self, broker: SimBroker) -> None:
        power = self._power_cuts and self._random.random() < 0.5
        broker.disk.crash = broker.cut_power if power else broker.kill
        broker.disk.crash_in = self._random.randrange(DISK_CHANGES_MAX)

    async def _crash_on_disk(self) -> None:
        broker = self._broker()
        self._crash_soon(broker)
        await eventually(self._world, lambda: not broker.running)
        self.counts[Fault.CRASH_ON_DISK] += 1
        await asyncio.sleep(self._random.uniform(0, 2))
        await self.bring_up(broker)

    async def _restart(self) -> None:
        broker = self._broker()
        await broker.stop()
        self.counts[Fault.RESTART] += 1
        await asyncio.sleep(self._random.uniform(0, 1))
        await self.bring_up(broker)

    async def _pause(self) -> None:
        broker = self._broker()
        broker.pause()
        self.counts[Fault.PAUSE] += 1
        await asyncio.sleep(self._random.uniform(0.5, 8))
        broker.resume()

    # Disks

    async def _disk_error(self) -> None:
        await self._fail(Fault.DISK_ERROR, "append")

    async def _fsync_error(self) -> None:
        await self._fail(Fault.FSYNC_ERROR, "sync")

    async def _fail(self, fault: Fault, operation: str) -> None:
        """Let one operation on a log fail, and start the broker again, as an operator would."""
        broker = self._broker()
        files = broker.disk.files
        part = self._random.choice(("/events-", "/ledger-", "/__consumer_offsets-", "/__transaction_state-"))
        for path_part, limit_s in ((part, 3.0), (".log", 30.0)):
            if await self._fail_once(files, operation, path_part, limit_s=limit_s):
                self.counts[fault] += 1
                break
        await asyncio.sleep(self._random.uniform(0.2, 1.5))
        if fault is Fault.FSYNC_ERROR and self._power_cuts:
            # The page cache takes what was not written for written: only the disk itself says what there is.
            broker.cut_power()
        elif self._random.random() < 0.5:
            broker.kill()
        else:
            await broker.stop()
        await self.bring_up(broker)

    async def _fail_once(self, files: MemDisk, operation: str, path_part: str, *, limit_s: float) -> bool:
        """Let the next operation on such a path fail; whether there was one in time."""
        files.fail(operation, path_part, errno.EIO, times=1)
        [fault] = files.faults
        await eventually(self._world, lambda: fault.times == 0, limit_s=limit_s)
        files.faults.clear()
        return fault.times == 0

    async def _disk_full(self) -> None:
        broker = self._broker()
        files = broker.disk.files
        free, _ = files.free_bytes("/")
        files.capacity_bytes -= free - self._random.randrange(3000)
        self.counts[Fault.DISK_FULL] += 1
        await asyncio.sleep(self._random.uniform(0.5, 3))
        files.capacity_bytes = CAPACITY_BYTES

    async def _slow_disk(self) -> None:
        broker = self._broker()
        broker.disk.slow_sync_s = self._random.uniform(0.05, 1)
        self.counts[Fault.SLOW_DISK] += 1
        await asyncio.sleep(self._random.uniform(1, 5))
        broker.disk.slow_sync_s = 0.0

    # Network

    async def _cut(self) -> None:
        fabric = self._world.fabric
        client, broker = self._random.choice(self._actors).name, self._broker().name
        directions = self._random.choice(([(client, broker)], [(broker, client)], [(client, broker), (broker, client)]))
        for source, target in directions:
            fabric.cut(source, target)
        self.counts[Fault.CUT] += 1
        await asyncio.sleep(self._random.uniform(0.5, 8))
        for source, target in directions:
            fabric.heal(source, target)

    async def _reset(self) -> None:
        fabric = self._world.fabric
        await eventually(self._world, lambda: bool(fabric.connections()))
        open_now = fabric.connections()
        for end in self._random.sample(open_now, self._random.randint(1, len(open_now))):
            fabric.reset(end)
        self.counts[Fault.RESET] += 1

    # Clocks

    async def _clock_jump(self) -> None:
        broker = self._broker()
        broker.clock.skew_ms = self._random.randint(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
        self.counts[Fault.CLOCK_JUMP] += 1

    # Clients

    async def _client_pause(self) -> None:
        actor = self._random.choice(self._actors)
        actor.node.pause()
        self.counts[Fault.CLIENT_PAUSE] += 1
        await asyncio.sleep(self._random.uniform(3, 9))
        actor.node.resume()

    async def _client_crash(self) -> None:
        actor = self._random.choice(self._actors)
        actor.crash()
        self.counts[Fault.CLIENT_CRASH] += 1
        await asyncio.sleep(self._random.uniform(0, 2))
        actor.start()

    # The metadata store

    async def _session(self) -> int:
        await eventually(self._world, lambda: bool(self._store.clients))
        return self._random.choice(list(self._store.clients))

    async def _store_suspension(self) -> None:
        self._store.suspend(await self._session(), self._random.uniform(0.2, 8))
        self.counts[Fault.STORE_SUSPENSION] += 1

    async def _store_expiry(self) -> None:
        self._store.expire(await self._session())
        self.counts[Fault.STORE_EXPIRY] += 1

    async def _store_doubt(self) -> None:
        self._store.faults = StoreFaults(
            watch_delay_s_max=1.0, coalesce_percent=30, lose_percent=10, unknown_percent=30, lag_percent=50
        )
        self.counts[Fault.STORE_DOUBT] += 1
        await asyncio.sleep(self._random.uniform(3, 8))
        self._store.faults = StoreFaults()
