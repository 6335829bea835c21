"""One seed: unmodified brokers and clients of every kind, faults, and a verdict on what the clients saw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from penstock.testing.histories import CommittedOffset, PartitionEnd, check, forbidden
from penstock.testing.sim.actors import Actor
from penstock.testing.sim.administrators import CREATE_TOPICS_VERSION, check_topics, creation_of
from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.consumers import Seen, end_offset, read_everything
from penstock.testing.sim.faults import CLOCK_JUMP_MS_MAX, Schedule, eventually
from penstock.testing.sim.links import Link
from penstock.testing.sim.loop import Stuck
from penstock.testing.sim.observer import Observer
from penstock.testing.sim.plan import COPY_GROUP, EVENTS, UNFLUSHED, Plan, Topic
from penstock.testing.sim.producers import UnflushedProducer
from penstock.testing.sim.recording import Recording, key_of
from penstock.testing.sim.store import SimStore
from penstock.testing.sim.workloads import WORKLOADS, workers_of
from penstock.testing.sim.world import World
from penstock.wire.api import create_topics

DURATION_S = 60.0
"""Simulated seconds with faults."""
OPERATIONS_MIN = 1_000
FAULTS_MIN = 10
CALM_S = 3.0
"""Clients go on for so long after the last fault."""
MORE_S = 30.0
"""And for up to so much longer until they have done enough."""
REST_S = 120.0
"""Within so long after everything is healed, every client has ended and no transaction is open."""
CLOCK_BACK_S = 2 * CLOCK_JUMP_MS_MAX / 1000
"""A transaction that began before the wall clock was set back times out so much later, as in Apache Kafka."""
AUDIT_PAUSE_S = 1.0
LIMIT_S = 3_600.0
PAGE_CACHE_EVERY = 4
"""One seed of so many acknowledges what is in the page cache, and has no power cuts."""

SETTINGS: dict[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
}
"""Of every simulated broker: groups settle, and transactions time out, within seconds."""

EXPECTED_ERRORS = frozenset({"directory_offline", "directory_refuses", "maintenance_refused", "metadata_not_followed"})
"""What brokers log as an error because of a fault of their disk."""

LOSSES = frozenset({"committed_records_missing", "segment_quarantined"})
"""What brokers log as an error of a partition whose acknowledged records a power cut took."""

EVENTS_COUNTED = ("zombie commits", "fenced commits", "fenced transactions", "idempotent retries")

TOPIC_CONFIGS: dict[str, str] = {"internal.segment.bytes": "20000", "index.interval.bytes": "1000"}
"""Segments roll, and indexes have entries."""

UNFLUSHED_CONFIGS: dict[str, str] = {"flush": "os", "internal.segment.bytes": "5000"}
"""Many segments of which nothing was fsynced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a seed showed. The same seed has the same verdict on any machine."""

    seed: int
    trace_hash: str
    anomalies: tuple[str, ...]
    operations: dict[str, int]
    faults: dict[str, int]
    events: dict[str, int]
    """How often something rare happened that the faults are there for."""
    requests: int
    simulated_s: float

    @property
    def ok(self) -> bool:
        return not self.anomalies

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps(
            {
                "seed": self.seed,
                "trace_hash": self.trace_hash,
                "verdict": "ok" if self.ok else "anomaly",
                "operations": self.operations,
                "faults": self.faults,
                "events": self.events,
                "requests": self.requests,
                "simulated_s": self.simulated_s,
                "anomalies": self.anomalies,
            }
        )


@dataclass(slots=True, kw_only=True)
class Simulation:
    """What to simulate; `run` does it, once."""

    seed: int
    duration_s: float = DURATION_S
    brokers: int = 1
    pace: float = 0.25
    recorded: bool = False
    """Keep lines for a person to read."""
    lines: list[str] = field(default_factory=list[str])
    """What happened, where it was recorded."""

    @property
    def power_cuts(self) -> bool:
        return self.seed % PAGE_CACHE_EVERY != 0

    def run(self, without: Callable[[], AbstractContextManager[Any]] = nullcontext) -> Verdict:
        """Simulate, with a rule taken out where a context manager does that."""
        world = World(self.seed, recorded=self.recorded)
        try:
            with without():
                return Cast(self, world).run()
        finally:
            self.lines = world.trace.lines or []
            world.close()


class Cast:
    """Everything that takes part in one simulation."""

    def __init__(self, simulation: Simulation, world: World) -> None:
        self._simulation = simulation
        self._world = world
        self._plan = Plan(pace=simulation.pace)
        self._recording = Recording(world)

    def run(self) -> Verdict:
        world, recording = self._world, self._recording
        try:
            world.run(self._main(), limit_s=LIMIT_S)
        except Stuck as stuck:
            recording.finding(f"the simulation does not end: {stuck}")
        anomalies = [
            *recording.findings,
            *(f"{failure.node}: {failure.message}: {failure.error!r}" for failure in world.failures),
            *(str(anomaly) for anomaly in forbidden(check(recording.history()))),
        ]
        for broker in self._brokers:
            anomalies += [
                f"{broker.name} logged {count} x {event} {partition}".rstrip()
                for (event, partition), count in broker.log.errors.items()
                if event not in EXPECTED_ERRORS and not (event in LOSSES and partition.startswith(UNFLUSHED.name))
            ]
        operations = {workload: recording.operations[workload] for workload in WORKLOADS}
        faults = {kind.value: self._schedule.counts[kind] for kind in self._schedule.kinds}
        done = {**operations, **faults}
        anomalies += [f"no {what} happened" for what, count in done.items() if not count]
        if sum(operations.values()) < OPERATIONS_MIN:
            anomalies.append(f"only {sum(operations.values())} operations")
        return Verdict(
            seed=self._simulation.seed,
            trace_hash=world.trace.hexdigest(),
            anomalies=tuple(anomalies),
            operations=operations,
            faults=faults,
            events={event: world.counts[event] for event in EVENTS_COUNTED},
            requests=world.counts["requests"],
            simulated_s=round(world.now - 1000.0, 3),
        )

    def _operations(self) -> int:
        return sum(self._recording.operations[workload] for workload in WORKLOADS)

    async def _main(self) -> None:
        simulation, world, plan = self._simulation, self._world, self._plan
        self._store = SimStore(SimRandomness(world.stream("store")))
        flush = "group" if simulation.power_cuts else "os"
        self._brokers = [
            SimBroker(
                world,
                broker_id=number,
                store=self._store,
                alone=simulation.brokers == 1,
                settings={**SETTINGS, "log.flush.policy": flush},
            )
            for number in range(1, simulation.brokers + 1)
        ]
        self._addresses = [broker.address for broker in self._brokers]
        for broker in self._brokers:
            broker.start()
        for broker in self._brokers:
            await broker.ready()
        auditor = world.node("auditor")
        auditor.start()
        link = Link(world, auditor, self._addresses, self._recording)
        await auditor.spawn(create(link, plan.topics, TOPIC_CONFIGS))
        await auditor.spawn(create(link, (UNFLUSHED,), {**TOPIC_CONFIGS, **UNFLUSHED_CONFIGS}))
        self._actors = [
            Actor(world, name, self._addresses, self._recording, make) for name, make in workers_of(plan).items()
        ]
        for actor in self._actors:
            actor.start()
        self._schedule = Schedule(
            world, brokers=self._brokers, store=self._store, actors=self._actors, power_cuts=simulation.power_cuts
        )
        await self._schedule.run(simulation.duration_s)
        await asyncio.sleep(CALM_S)
        await eventually(world, lambda: self._operations() >= OPERATIONS_MIN, limit_s=MORE_S)
        plan.stopping = True
        for actor in self._actors:
            await actor.finish(REST_S)
        before = await auditor.spawn(self._audit(link))
        for broker in self._brokers:
            if simulation.power_cuts:
                broker.cut_power()
            else:
                broker.kill()
        for broker in self._brokers:
            await self._schedule.bring_up(broker, steady=True)
        after = await auditor.spawn(self._read(link))
        for key, pairs in before.items():
            if after[key] != pairs:
                self._recording.finding(f"{key} does not read the same after the last crash")
        await auditor.spawn(UnflushedProducer(link, plan).read())
        for broker in self._brokers:
            await broker.stop()

    async def _audit(self, link: Link) -> Seen:
        """Look at the bounds at rest, and read everything."""
        deadline = self._world.now + REST_S + CLOCK_BACK_S
        for topic in self._plan.topics:
            for index in range(topic.partitions):
                while True:
                    stable = await asked(link, topic, index, committed=True)
                    end = await asked(link, topic, index, committed=False)
                    if stable == end or self._world.now > deadline:
                        break
                    await asyncio.sleep(AUDIT_PAUSE_S)
                self._recording.add(PartitionEnd(key=key_of(topic.name, index), end=end, last_stable=stable))
        observer = Observer(link, self._plan)
        while not await observer.look(stable=True):
            await link.backoff()
        await check_topics(link)
        seen = await self._read(link)
        for finding in check_groups(self._recording, seen):
            self._recording.finding(finding)
        return seen

    async def _read(self, link: Link) -> Seen:
        ends = {
            key_of(topic.name, index): await asked(link, topic, index, committed=True)
            for topic in self._plan.topics
            for index in range(topic.partitions)
        }
        seen = await read_everything(link, self._plan.topics, ends)
        self._recording.polled_by("audit", self._recording.process("auditor"), seen)
        return seen


def check_groups(recording: Recording, seen: Seen) -> Iterator[str]:
    """Whether groups have read what they have committed, and copied it once."""
    committed = {
        (event.group, event.key): event.offset for event in recording.history() if isinstance(event, CommittedOffset)
    }
    for (group, key), offset in committed.items():
        if group != COPY_GROUP:
            read = recording.polled.get((group, key), set())
            missed = [at for at, _ in seen[key] if at < offset and at not in read]
            if missed:
                yield f"group {group} has committed {offset} in {key}, and none of its members read {missed}"
    copies = Counter(
        recording.sources[value] for pairs in seen.values() for _, value in pairs if value in recording.sources
    )
    for (key, at), count in copies.items():
        if count > 1:
            yield f"offset {at} of {key} was copied {count} times"
        if at >= committed.get((COPY_GROUP, key), 0):
            yield f"offset {at} of {key} was copied, and is not committed"
    for key in EVENTS.partition_keys():
        offset = committed.get((COPY_GROUP, key), 0)
        missed = [at for at, _ in seen[key] if at < offset and (key, at) not in copies]
        if missed:
            yield f"offsets {missed} of {key} are committed, and were not copied"


async def asked(link: Link, topic: Topic, index: int, *, committed: bool) -> int:
    """An end offset, however often it must be asked for."""
    while True:
        try:
            offset = await end_offset(link, topic.name, index, committed=committed)
        except Disconnected:
            offset = -1
        if offset >= 0:
            return offset
        await link.backoff()


async def create(link: Link, topics: tuple[Topic, ...], configs: Mapping[str, str]) -> None:
    """Create the topics, before anything goes wrong."""
    request = creation_of(topics, configs)
    response = await link.ask(link.any_broker(), create_topics, CREATE_TOPICS_VERSION, request)
    for topic in response.topics:
        assert not topic.error_code, f"{topic.name}: {topic.error_message}"
