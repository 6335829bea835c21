"""One seed: unmodified brokers and clients of every kind, faults, and a verdict on what the clients saw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.testing.histories import CommittedOffset, PartitionEnd, check, forbidden
from penstock.testing.sim import cluster as cluster_settings
from penstock.testing.sim import queues as queue_settings
from penstock.testing.sim import store as store_settings
from penstock.testing.sim.actors import Actor
from penstock.testing.sim.administrators import CREATE_TOPICS_VERSION, TRIED_AGAIN, check_topics, creation_of
from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.cluster import EVENTS_OF_RUNS, ROOM_NEEDED, Cluster, Excuses
from penstock.testing.sim.cluster_faults import ClusterFaults
from penstock.testing.sim.consumers import Seen, end_offset, read_everything
from penstock.testing.sim.faults import CLOCK_JUMP_MS_MAX, NotReady, Schedule, eventually
from penstock.testing.sim.garbage import collected_after
from penstock.testing.sim.links import Link
from penstock.testing.sim.loop import Stuck
from penstock.testing.sim.metadata_history import MetadataHistory
from penstock.testing.sim.observer import Observer
from penstock.testing.sim.plan import COPY_GROUP, EVENTS, OFFSETS_PARTITIONS, PAIRS, UNFLUSHED, Plan, Topic, rack_name
from penstock.testing.sim.producers import UnflushedProducer
from penstock.testing.sim.queues import (
    DEAD_LETTER,
    JOBS,
    LETTERS,
    LETTERS_CONFIGS,
    PARCELS,
    Queue,
    configure,
    drain,
    letter_queue,
    queue_workers,
    queues,
)
from penstock.testing.sim.recording import Recording, key_of
from penstock.testing.sim.schedules import LATER, LATER_CONFIGS, SCHEDULE_EVENTS, TARGET, Agenda, schedule_workers
from penstock.testing.sim.store import SimStore
from penstock.testing.sim.tides import DISCARD, GROWTH, TIDE, TIDE_EVENTS, Tide, tide_workers
from penstock.testing.sim.views import PARENTS, Gallery, view_configs, view_workers
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
PAGE_CACHE_EVERY_CLUSTER = 2
"""One seed of a cluster of so many does; its power cuts wait until every replica is in sync."""
LOSSES_EVERY = 4
"""One of so many has power cuts of all brokers all the same: it may lose what elections report as lost."""

SETTINGS: dict[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
}
"""Of every simulated broker: groups settle, and transactions time out, within seconds."""

EXPECTED_ERRORS = frozenset(
    {
        "compaction_refused",
        "directory_offline",
        "directory_refuses",
        "follower_not_opened",
        "maintenance_refused",
        "metadata_not_followed",
    }
)
"""What brokers log as an error because of a fault of their disk."""

LOSSES = frozenset(
    {
        "committed_records_missing",
        "committed_records_truncated",
        "election_may_have_lost_records",
        "segment_quarantined",
    }
)
"""What brokers log as an error of a partition whose acknowledged records a power cut took."""

REPLICA_LOSSES = frozenset({"replica_damaged", "replica_records_missing"})
"""And of a replica that lost what only the page cache had: it copies it from its leader."""

EVENTS_COUNTED = ("zombie commits", "fenced commits", "fenced transactions", "idempotent retries")

TOPIC_CONFIGS: dict[str, str] = {"internal.segment.bytes": "20000", "index.interval.bytes": "1000"}
"""Segments roll, and indexes have entries."""

UNFLUSHED_CONFIGS: dict[str, str] = {"flush": "os", "internal.segment.bytes": "5000"}
"""Many segments of which nothing was fsynced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a seed showed. The same seed has the same verdict on any machine."""

    seed: int
    brokers: int
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
                "brokers": self.brokers,
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
    tides: bool = False
    """Whether the partitions of a topic are drained and resume, on a cluster."""
    schedules: bool = False
    """Whether there is a topic of schedules, on a cluster."""
    queues: bool = False
    """Whether there are share groups."""
    letters: bool = False
    """Whether there is a share group in order of keys, with backoff and dead letters."""
    views: bool = False
    """Whether there are filtered views."""
    recorded: bool = False
    """Keep lines for a person to read."""
    lines: list[str] = field(default_factory=list[str])
    """What happened, where it was recorded."""

    @property
    def power_cuts(self) -> bool:
        """Whether any broker may lose its page cache at any time: what is acknowledged is on the disk."""
        return self.seed % (PAGE_CACHE_EVERY if self.brokers == 1 else PAGE_CACHE_EVERY_CLUSTER) != 0

    @property
    def losses(self) -> bool:
        """Whether all brokers of a cluster may lose their page caches at once, with what is only there.

        Tides and schedules are judged by numbers that must go on without a gap, and dead letters have to be there, so
        they have no such seeds.
        """
        judged_whole = self.tides or self.schedules or self.letters
        return self.brokers > 1 and self.seed % LOSSES_EVERY == 0 and not judged_whole

    def run(self, without: Callable[[], AbstractContextManager[Any]] = nullcontext) -> Verdict:
        """Simulate, with a rule taken out where a context manager does that."""
        with collected_after():
            return self._run(without)

    def _run(self, without: Callable[[], AbstractContextManager[Any]]) -> Verdict:
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
        self._is_cluster = simulation.brokers > 1
        self._plan = Plan(pace=simulation.pace)
        if self._is_cluster:
            self._plan.topics += (PAIRS,)
            self._plan.replicated = True
            self._plan.reassigned = simulation.brokers > cluster_settings.FACTOR_MAX
        self._queues: tuple[Queue, ...] = queues() if simulation.queues else ()
        if simulation.queues:
            self._plan.topics += (JOBS,)
        if simulation.letters:
            self._queues += (letter_queue(),)
            self._plan.topics += (PARCELS,)
        self._recording = Recording(world)
        self._tide = Tide() if simulation.tides else None
        self._agenda = Agenda() if simulation.schedules else None
        self._gallery = Gallery() if simulation.views else None
        self._cluster: Cluster | None = None

    def run(self) -> Verdict:
        world, recording = self._world, self._recording
        try:
            world.run(self._main(), limit_s=LIMIT_S)
        except Stuck as stuck:
            recording.finding(f"the simulation does not end: {stuck}", key=None)
        except NotReady as reason:
            recording.finding(f"the simulation cannot go on: {reason}", key=None)
        excuses = Excuses() if self._cluster is None else self._cluster.excuses()
        anomalies = [
            *(text for key, text in recording.findings if key is None or not excuses.cover(key)),
            *(f"{failure.node}: {failure.message}: {failure.error!r}" for failure in world.failures),
            *(str(each) for each in forbidden(check(recording.history())) if not excuses.cover(each.key)),
            *self._errors_logged(excuses),
        ]
        operations = {workload: recording.operations[workload] for workload in WORKLOADS}
        faults = {kind.value: self._schedule.counts[kind] for kind in self._schedule.kinds}
        events = {event: world.counts[event] for event in EVENTS_COUNTED}
        done = {**operations, **faults}
        if self._tide is not None:
            done |= {event: self._tide.counts[event] for event in TIDE_EVENTS}
            events = {**events, **{event: self._tide.counts[event] for event in (*TIDE_EVENTS, GROWTH, DISCARD)}}
        if self._agenda is not None:
            done |= {event: self._agenda.counts[event] for event in SCHEDULE_EVENTS}
            events = {**events, **{event: self._agenda.counts[event] for event in SCHEDULE_EVENTS}}
        if self._gallery is not None:
            done |= {"record of a view": self._gallery.records}
            events = {**events, "record of a view": self._gallery.records}
        if self._queues:
            shared = {event: sum(queue.counts[event] for queue in self._queues) for event in queue_settings.EVENTS}
            if self._simulation.letters:
                shared[DEAD_LETTER] = sum(queue.counts[DEAD_LETTER] for queue in self._queues)
            done |= shared
            events = {**events, **shared}
        if self._cluster is not None:
            anomalies += self._cluster.history.findings
            seen = self._cluster.events()
            missing_allowed = EVENTS_OF_RUNS if self._plan.reassigned else (*EVENTS_OF_RUNS, *ROOM_NEEDED)
            done |= {event: count for event, count in seen.items() if event not in missing_allowed}
            events = {**seen, "partitions with possible loss": len(excuses.partitions), **events}
        anomalies += [f"no {what} happened" for what, count in done.items() if not count]
        if sum(operations.values()) < OPERATIONS_MIN:
            anomalies.append(f"only {sum(operations.values())} operations")
        return Verdict(
            seed=self._simulation.seed,
            brokers=self._simulation.brokers,
            trace_hash=world.trace.hexdigest(),
            anomalies=tuple(anomalies),
            operations=operations,
            faults=faults,
            events=events,
            requests=world.counts["requests"],
            simulated_s=round(world.now - 1000.0, 3),
        )

    def _errors_logged(self, excuses: Excuses) -> Iterator[str]:
        """What brokers logged as errors and no fault explains."""
        for broker in self._brokers:
            for (event, partition), count in broker.log.errors.items():
                topic, _, index = partition.rpartition("-")
                lossy = topic == UNFLUSHED.name or f"{topic}/{index}" in excuses.partitions
                unsynced = self._is_cluster and not self._simulation.power_cuts and event in REPLICA_LOSSES
                if event not in EXPECTED_ERRORS and not unsynced and not (event in LOSSES and lossy):
                    yield f"{broker.name} logged {count} x {event} {partition}".rstrip()

    def _operations(self) -> int:
        return sum(self._recording.operations[workload] for workload in WORKLOADS)

    async def _main(self) -> None:
        simulation, world, plan = self._simulation, self._world, self._plan
        self._make_brokers()
        for broker in self._brokers:
            broker.start()
        for broker in self._brokers:
            await broker.ready()
        cluster = self._cluster
        reign = None if cluster is None else cluster.reign
        auditor = world.node("auditor")
        auditor.start()
        link = Link(world, auditor, self._addresses, self._recording, reign)
        await auditor.spawn(self._create_topics(link))
        workers = workers_of(plan)
        if self._tide is not None:
            workers |= tide_workers(plan, self._tide)
        if self._agenda is not None:
            workers |= schedule_workers(plan, self._agenda)
        if self._gallery is not None:
            workers |= view_workers(plan, self._gallery)
        if self._queues:
            workers |= queue_workers(plan, self._queues)
        self._actors = [
            Actor(world, name, self._addresses, self._recording, make, reign) for name, make in workers.items()
        ]
        for actor in self._actors:
            actor.start()
        self._schedule = Schedule(
            world,
            brokers=self._brokers,
            store=self._store,
            actors=self._actors,
            power_cuts=simulation.power_cuts,
        )
        if cluster is not None:
            ClusterFaults(
                world,
                self._schedule,
                brokers=self._brokers,
                store=self._store,
                history=cluster.history,
                recording=self._recording,
                power_cut_all=simulation.power_cuts or simulation.losses,
            )
        await self._schedule.run(simulation.duration_s)
        await asyncio.sleep(CALM_S)
        await eventually(world, lambda: self._operations() >= OPERATIONS_MIN, limit_s=MORE_S)
        plan.stopping = True
        for actor in self._actors:
            await actor.finish(REST_S)
        if cluster is not None:
            if not await cluster.settle():
                # Most that could be looked at now follows from that.
                return
            cluster.compare()
            if cluster.excuses().coordinators:
                # A transaction may be open for ever.
                return
        before = await auditor.spawn(self._audit(link))
        if self._tide is not None:
            await auditor.spawn(self._check_tide(link, self._tide))
        if self._agenda is not None:
            await auditor.spawn(self._check_agenda(link, self._agenda))
        if self._gallery is not None:
            await auditor.spawn(self._check_views(link, self._gallery, before))
        for queue in self._queues:
            await auditor.spawn(self._check_queue(link, queue, before))
        if cluster is not None:
            for finding in cluster.check_weak(before):
                self._recording.finding(finding)
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
                self._recording.finding(f"{key} does not read the same after the last crash", key=key)
        await auditor.spawn(UnflushedProducer(link, plan).read())
        for broker in self._brokers:
            await broker.stop()

    def _make_brokers(self) -> None:
        simulation, world = self._simulation, self._world
        timeout_s = cluster_settings.SESSION_TIMEOUT_S if self._is_cluster else store_settings.SESSION_TIMEOUT_S
        self._store = SimStore(SimRandomness(world.stream("store")), session_timeout_s=timeout_s)
        flush = {"log.flush.policy": "group" if simulation.power_cuts else "os"}
        more = cluster_settings.SETTINGS if self._is_cluster else {}
        if self._queues:
            of_state = queue_settings.CLUSTER_SETTINGS if self._is_cluster else queue_settings.ALONE_SETTINGS
            more = {**more, **queue_settings.SETTINGS, **of_state}
        self._brokers = [
            SimBroker(
                world,
                broker_id=number,
                store=self._store,
                alone=not self._is_cluster,
                settings={**SETTINGS, **flush, **more, "broker.rack": rack_name(number)},
            )
            for number in range(1, simulation.brokers + 1)
        ]
        self._addresses = [broker.address for broker in self._brokers]
        if self._is_cluster:
            self._cluster = Cluster(world, self._brokers, MetadataHistory(self._store, world), self._recording)

    async def _create_topics(self, link: Link) -> None:
        """Create the topics, and set the settings of share groups, before anything goes wrong."""
        for queue in self._queues:
            await configure(link, queue)
        if self._cluster is None:
            await create(link, creation_of(self._plan.topics, TOPIC_CONFIGS))
            await create(link, creation_of((UNFLUSHED,), {**TOPIC_CONFIGS, **UNFLUSHED_CONFIGS}))
            if self._simulation.letters:
                await create(link, creation_of((LETTERS,), {**TOPIC_CONFIGS, **LETTERS_CONFIGS}))
        else:
            await self._create_replicated(link)
        if self._gallery is not None:
            for view, parent in PARENTS.items():
                await create(link, creation_of((view,), view_configs(parent), factor=-1))

    async def _create_replicated(self, link: Link) -> None:
        losses, power_cuts = self._simulation.losses, self._simulation.power_cuts
        for layout in cluster_settings.layouts(TOPIC_CONFIGS, UNFLUSHED_CONFIGS, losses=losses, power_cuts=power_cuts):
            await create(link, creation_of((layout.topic,), layout.configs, factor=layout.factor))
        safe = {**TOPIC_CONFIGS, "min.insync.replicas": "2"}
        if self._tide is not None:
            await create(link, creation_of((TIDE,), safe, factor=3))
        if self._agenda is not None:
            await create(link, creation_of((TARGET,), safe, factor=3))
            await create(link, creation_of((LATER,), {**safe, **LATER_CONFIGS}, factor=3))
        if self._simulation.queues:
            await create(link, creation_of((JOBS,), safe, factor=3))
        if self._simulation.letters:
            await create(link, creation_of((PARCELS,), safe, factor=3))
            await create(link, creation_of((LETTERS,), {**safe, **LETTERS_CONFIGS}, factor=3))

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
        while True:
            # Leaders may still be given back to preferred replicas.
            with suppress(Disconnected):
                if await observer.look(stable=True):
                    break
            await link.backoff()
        await check_topics(link)
        seen = await self._read(link)
        for key, finding in check_groups(self._recording, seen):
            self._recording.finding(finding, key=key)
        return seen

    async def _check_tide(self, link: Link, tide: Tide) -> None:
        """Read the topic whose partitions were drained, once no transaction is open in it."""
        deadline = self._world.now + REST_S + CLOCK_BACK_S
        ends: dict[str, int] = {}
        for index in range(TIDE.partitions):
            while True:
                stable = await asked(link, TIDE, index, committed=True)
                ends[key_of(TIDE.name, index)] = end = await asked(link, TIDE, index, committed=False)
                if stable == end:
                    break
                if self._world.now > deadline:
                    self._recording.finding(
                        f"{TIDE.name}-{index} is stable to {stable} only, and ends at {end}", key=None
                    )
                    return
                await asyncio.sleep(AUDIT_PAUSE_S)
        starts = {key_of(TIDE.name, index): await tide.start_of(link, index) for index in range(TIDE.partitions)}
        for finding in tide.check(await read_everything(link, (TIDE,), ends, starts)):
            self._recording.finding(finding, key=None)

    async def _check_agenda(self, link: Link, agenda: Agenda) -> None:
        """Read what was delivered, once all that is owed is there or should be."""
        deadline = self._world.now + REST_S + CLOCK_BACK_S
        while True:
            ends = {
                key_of(TARGET.name, index): await asked(link, TARGET, index, committed=False)
                for index in range(TARGET.partitions)
            }
            seen = await read_everything(link, (TARGET,), ends)
            delivered = {value for pairs in seen.values() for _, value in pairs}
            if agenda.owed <= delivered or self._world.now > deadline:
                break
            await asyncio.sleep(AUDIT_PAUSE_S)
        for finding in agenda.check(seen):
            self._recording.finding(finding, key=None)

    async def _check_views(self, link: Link, gallery: Gallery, before: Seen) -> None:
        """Read views to the ends of their parents, and judge that and all that readers saw."""
        ends = {
            key_of(view.name, index): await asked(link, parent, index, committed=True)
            for view, parent in PARENTS.items()
            for index in range(view.partitions)
        }
        seen = await read_everything(link, tuple(PARENTS), ends)
        for view, parent in PARENTS.items():
            for index in range(view.partitions):
                key = key_of(parent.name, index)
                found = list(seen[key_of(view.name, index)])
                gallery.spans.append(("the auditor", key, (0, ends[key_of(view.name, index)], found)))
        for key, finding in gallery.check(before):
            self._recording.finding(finding, key=key)

    async def _check_queue(self, link: Link, queue: Queue, seen: Seen) -> None:
        """Read a share group to its end, and judge all that its members saw."""
        await drain(link, self._plan, queue)
        letters: Seen | None = None
        if queue.letters is not None:
            ends = {
                key_of(queue.letters.name, index): await asked(link, queue.letters, index, committed=True)
                for index in range(queue.letters.partitions)
            }
            letters = await read_everything(link, (queue.letters,), ends)
        for key, finding in queue.check(seen, letters):
            self._recording.finding(finding, key=key)

    async def _read(self, link: Link) -> Seen:
        ends = {
            key_of(topic.name, index): await asked(link, topic, index, committed=True)
            for topic in self._plan.topics
            for index in range(topic.partitions)
        }
        seen = await read_everything(link, self._plan.topics, ends)
        self._recording.polled_by("audit", self._recording.process("auditor"), seen)
        return seen


def check_groups(recording: Recording, seen: Seen) -> Iterator[tuple[str, str]]:
    """Whether groups have read what they have committed, and copied it once: partition and finding."""
    committed = {
        (event.group, event.key): event.offset for event in recording.history() if isinstance(event, CommittedOffset)
    }
    for (group, key), offset in committed.items():
        if group != COPY_GROUP:
            read = recording.polled.get((group, key), set())
            missed = [at for at, _ in seen[key] if at < offset and at not in read]
            if missed:
                yield key, f"group {group} has committed {offset} in {key}, and none of its members read {missed}"
    copies = Counter(
        recording.sources[value] for pairs in seen.values() for _, value in pairs if value in recording.sources
    )
    for (key, at), count in copies.items():
        if count > 1:
            yield key, f"offset {at} of {key} was copied {count} times"
        if at >= committed.get((COPY_GROUP, key), 0):
            yield key, f"offset {at} of {key} was copied, and is not committed"
    for key in EVENTS.partition_keys():
        offset = committed.get((COPY_GROUP, key), 0)
        missed = [at for at, _ in seen[key] if at < offset and (key, at) not in copies]
        if missed:
            yield key, f"offsets {missed} of {key} are committed, and were not copied"


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


async def create(link: Link, request: create_topics.Request) -> None:
    """Create topics, once there are enough brokers for them."""
    while True:
        response = await link.ask(link.any_broker(), create_topics, CREATE_TOPICS_VERSION, request)
        if not any(topic.error_code in TRIED_AGAIN for topic in response.topics):
            break
        await link.backoff()
    for topic in response.topics:
        assert not topic.error_code, f"{topic.name}: {topic.error_message}"
