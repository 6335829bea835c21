"""Faults of simulated clusters: of brokers among each other, of all brokers, and at moments that hurt.

Three tracks run at the same time: what brings brokers down, what disturbs those that run, and what happens to clients.
A fault that destroys what a broker had acknowledged waits until every replica is in sync: two of them in a row would
take records that no protocol can bring back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.ids import BrokerId
from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.faults import Fault, Schedule, eventually
from penstock.testing.sim.metadata_history import MetadataHistory, Moment
from penstock.testing.sim.plan import EVENTS
from penstock.testing.sim.recording import Recording
from penstock.testing.sim.replica_logs import offsets_of
from penstock.testing.sim.store import SimStore

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

DOWN = (
    Fault.CRASH,
    Fault.POWER_CUT,
    Fault.POWER_CUT_ALL,
    Fault.CRASH_ON_DISK,
    Fault.RESTART,
    Fault.ROLLING_RESTART,
    Fault.PAUSE,
    Fault.DISK_ERROR,
    Fault.FSYNC_ERROR,
    Fault.DISK_FULL,
    Fault.WIPED_DISK,
)
DISTURBED = (
    Fault.ISOLATION,
    Fault.PAIR_CUT,
    Fault.SLOW_BROKER,
    Fault.SLOW_DISK,
    Fault.CLOCK_JUMP,
    Fault.STORE_SUSPENSION,
    Fault.STORE_EXPIRY,
    Fault.STORE_DOUBT,
)
CLIENTS = (Fault.CUT, Fault.RESET, Fault.CLIENT_PAUSE, Fault.CLIENT_CRASH)

GAP_S = (0.5, 2.0)
HEALTHY_S = 60.0
"""Within so long after the last fault has ended, every partition has a leader and every replica is in sync."""
ROLL_S = 10.0
"""A rolling restart waits so long for replicas to be in sync before it goes on."""
TAIL_S = 4.0
"""How long an isolated leader waits for a record that no other broker has."""
MOMENT_S = 4.0
"""How long a fault waits for a bad moment."""
CRASH_IN_CUT = 0.4
"""How often a broker that is cut off from others crashes before they hear of it again."""
STORE_AWAY = 0.2
"""How often all brokers lose the store at once."""


class ClusterFaults:
    """What a schedule does to a cluster, beyond what it does to single brokers."""

    def __init__(
        self,
        world: World,
        schedule: Schedule,
        *,
        brokers: Sequence[SimBroker],
        store: SimStore,
        history: MetadataHistory,
        recording: Recording,
        power_cut_all: bool,
    ) -> None:
        self._world = world
        self._schedule = schedule
        self._brokers = brokers
        self._store = store
        self._history = history
        self._recording = recording
        self._random = world.stream("faults of the cluster")
        down = tuple(fault for fault in DOWN if power_cut_all or fault is not Fault.POWER_CUT_ALL)
        acts = {
            Fault.POWER_CUT: self._power_cut,
            Fault.POWER_CUT_ALL: self._power_cut_all,
            Fault.ROLLING_RESTART: self._rolling_restart,
            Fault.WIPED_DISK: self._wiped_disk,
            Fault.PAIR_CUT: self._pair_cut,
            Fault.ISOLATION: self._isolation,
            Fault.SLOW_BROKER: self._slow_broker,
            Fault.STORE_SUSPENSION: self._store_suspension,
            Fault.STORE_EXPIRY: self._store_expiry,
        }
        schedule.use((down, DISTURBED, CLIENTS), acts, gap_s=GAP_S)

    def _broker(self) -> SimBroker:
        return self._random.choice(self._brokers)

    def _named(self, broker_id: BrokerId | None) -> SimBroker:
        """A broker by its id, or any."""
        return next((each for each in self._brokers if each.broker_id == broker_id), None) or self._broker()

    async def recovered(self, limit_s: float = HEALTHY_S) -> bool:
        """Wait until every partition has a leader and every replica is in sync; let no other fault begin meanwhile."""
        self._schedule.calm_wanted += 1
        try:
            await eventually(self._world, lambda: not self._history.unhealthy(), limit_s=limit_s)
        finally:
            self._schedule.calm_wanted -= 1
        return not self._history.unhealthy()

    # Brokers

    async def _loses(self) -> bool:
        """Whether a broker may lose what it acknowledged now."""
        if await self.recovered():
            return True
        text = f"not in sync {HEALTHY_S:g} s after the last fault: {self._history.unhealthy()}"
        self._recording.finding(text, key=None)
        return False

    async def _power_cut(self) -> None:
        if await self._loses():
            broker = self._broker()
            broker.cut_power()
            await self._back(Fault.POWER_CUT, broker)

    async def _wiped_disk(self) -> None:
        if await self._loses():
            broker = self._broker()
            broker.kill()
            broker.wipe()
            await self._back(Fault.WIPED_DISK, broker)

    async def _back(self, fault: Fault, broker: SimBroker) -> None:
        """Start a broker again, after a session timeout or before it."""
        self._schedule.counts[fault] += 1
        await asyncio.sleep(self._random.uniform(0, 1.5 * self._store.session_timeout_s))
        await self._schedule.bring_up(broker)

    async def _power_cut_all(self) -> None:
        for broker in self._brokers:
            broker.cut_power()
        self._schedule.counts[Fault.POWER_CUT_ALL] += 1
        order = self._random.sample(self._brokers, len(self._brokers))
        for broker in order:
            await asyncio.sleep(self._random.uniform(0, 1))
            if not broker.running:
                broker.start()
        for broker in order:
            await self._schedule.bring_up(broker)

    async def _rolling_restart(self) -> None:
        for broker in self._brokers:
            await broker.stop()
            await self._schedule.bring_up(broker, steady=True)
            await self.recovered(ROLL_S)
        self._schedule.counts[Fault.ROLLING_RESTART] += 1

    # Between brokers

    async def _pair_cut(self) -> None:
        first, second = self._random.sample([broker.name for broker in self._brokers], 2)
        others = [broker.name for broker in self._brokers if broker.name != first]
        directions = self._random.choice(
            (
                [(first, second)],
                [(first, second), (second, first)],
                [(first, other) for other in others],
                [(other, first) for other in others],
                [(first, other) for other in others] + [(other, first) for other in others],
            )
        )
        self._schedule.counts[Fault.PAIR_CUT] += 1
        for source, target in directions:
            self._world.fabric.cut(source, target)
        await asyncio.sleep(self._random.uniform(0.5, 6))
        broker = next(each for each in self._brokers if each.name == first)
        crashes = len(directions) > 1 and self._random.random() < CRASH_IN_CUT
        if crashes:
            # What it has acknowledged alone must not count.
            broker.kill()
        for source, target in directions:
            self._world.fabric.heal(source, target)
        if crashes:
            await asyncio.sleep(self._random.uniform(0, 2 * self._store.session_timeout_s))
            await self._schedule.bring_up(broker)

    async def _isolation(self) -> None:
        index = EVENTS.any_index(self._random)
        state = self._history.state(EVENTS.name, index)
        assert state is not None, "events are there from the beginning"
        leader = self._named(state.leader)
        others = [broker.name for broker in self._brokers if broker is not leader]
        directions = [*((leader.name, other) for other in others), *((other, leader.name) for other in others)]
        for source, target in directions:
            self._world.fabric.cut(source, target)
        if leader.session is not None:
            self._store.suspend(leader.session, self._store.session_timeout_s + self._random.uniform(0.5, 3))

        def deposed() -> bool:
            now = self._history.state(EVENTS.name, index)
            return now is not None and now.leader not in (-1, leader.broker_id)

        def has_tail() -> bool:
            offsets = offsets_of(leader, EVENTS.name, index)
            return offsets is None or offsets.log_end > offsets.high_watermark

        await eventually(self._world, deposed, limit_s=3 * self._store.session_timeout_s)
        # What it has appended on its own, it has to truncate.
        await eventually(self._world, has_tail, limit_s=TAIL_S)
        self._schedule.counts[Fault.ISOLATION] += 1
        await asyncio.sleep(self._random.uniform(0.2, 2))
        for source, target in directions:
            self._world.fabric.heal(source, target)

    async def _slow_broker(self) -> None:
        broker = self._broker()
        self._world.fabric.slow_s[broker.name] = self._random.uniform(0.02, 0.5)
        self._schedule.counts[Fault.SLOW_BROKER] += 1
        await asyncio.sleep(self._random.uniform(2, 6))
        self._world.fabric.slow_s.pop(broker.name, None)

    # The store

    async def _victim(self) -> SimBroker:
        """A broker at any time, or one to which something has happened in the metadata just now."""
        if self._random.random() < 0.3:
            return self._broker()
        if self._random.random() < 0.3:
            return self._named(self._history.controller)
        moment = self._random.choice((Moment.ELECTION, Moment.ISR_CHANGE, Moment.REGISTRATION, Moment.TAKE_OVER))
        return self._named(await self._history.next(moment, limit_s=MOMENT_S))

    async def _store_suspension(self) -> None:
        victim = await self._victim()
        away = self._brokers if self._random.random() < STORE_AWAY else (victim,)
        seconds = self._random.uniform(0.2, 2 * self._store.session_timeout_s)
        for broker in away:
            if broker.session is not None:
                self._store.suspend(broker.session, seconds)
        self._schedule.counts[Fault.STORE_SUSPENSION] += 1

    async def _store_expiry(self) -> None:
        session = (await self._victim()).session
        if session is not None:
            self._store.expire(session)
        self._schedule.counts[Fault.STORE_EXPIRY] += 1
