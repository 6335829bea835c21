"""Works of groups: assignment, heartbeats, commits, loading after a restart, assignors. Brokers of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer

from bench.comparison import MEGABYTE, cost, counted, run_step
from bench.group_wire import GroupWire
from bench.samples import KAFKA, PENSTOCK, Sample
from bench.sides import Contender, Meter, Side, started_sides, turns
from bench.works import Sizes, Step
from penstock.groups.assignors import ASSIGNORS
from penstock.groups.assignors.spec import GroupSpec, MemberSpec
from penstock.model.ids import TopicId
from penstock.testing.processes import Deadline, ProcessFailed

ASSIGNORS_PART = "group-assignors"
STALL_PART = "group-stall"
PARTS = ("group-commits", "group-assignment", "group-heartbeats", "group-load", ASSIGNORS_PART, STALL_PART)
COMMIT_SHAPES = {"group-commits-piped": (1, 64), "group-commits": (64, 8)}
"""Connections, and commits in flight on each: one pipelining consumer, and many consumers."""
COMMIT_TOPIC = "commits"
MEMBERS = 10
SETTLE_SECONDS_MAX = 120.0
HEARTBEAT_SECONDS = 3.0
PARTITIONS_PER_TOPIC = 100
LOAD_PARTITIONS = 1_000
ASSIGNOR_PARTITIONS_PER_MEMBER = 10
PROBE_PAUSE_SECONDS = 0.002
ASSIGNMENT_SECONDS = 2.5
CONNECTIONS_AT_ONCE = 50
LEAVE_EPOCH = -1

Say = Callable[[str], None]
T = TypeVar("T")


def measure_groups(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    if "group-commits" in parts:
        yield from commits(contenders, sizes, data, say)
    if "group-assignment" in parts:
        yield from assignments(contenders, sizes, data, say)
    if "group-heartbeats" in parts:
        yield from heartbeats(contenders, sizes, data, say)
    if "group-load" in parts:
        yield from loads(contenders, sizes, data, say)
    penstocks = [contender for contender in contenders if contender.name != KAFKA]
    if ASSIGNORS_PART in parts and penstocks:
        yield from assignors(sizes, say)
    if STALL_PART in parts and penstocks:
        yield from stalls(penstocks, sizes, data, say)


def commits(contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say) -> Iterator[Sample]:
    """Commits in flight on one connection and on many, the sides in turn."""
    connections_max = max(connections for connections, _ in COMMIT_SHAPES.values())
    groups = [f"bench-commits-{number:04}" for number in range(connections_max)]
    with started_sides(contenders, data) as sides:
        for side in sides:
            side.create_topics([COMMIT_TOPIC], partitions=1)
            asyncio.run(await_coordinators(side.bootstrap, groups))
        for work, (connections, in_flight) in COMMIT_SHAPES.items():
            counts = ("--connections", str(connections), "--in-flight", str(in_flight))
            step = Step(work=work, mode="commits", arguments=(*counts, "--seconds", str(sizes.request_seconds)))
            for number, side in turns(sides, sizes.rounds, sizes.request_warm_rounds):
                values = run_step(step, side, COMMIT_TOPIC)
                yield from counted(Sample(work=work, side=side.name, round=number, values=values), say)


async def await_coordinators(bootstrap: str, groups: Sequence[str]) -> None:
    wire = await GroupWire.open(bootstrap)
    for group in groups:
        await wire.await_coordinator(group)
    await wire.close()


class PollingConsumer:
    """A consumer of the new protocol that polls in a thread until it is closed."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        self.owned = 0
        self._stopping = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
        self._consumer.subscribe(topics)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._consumer.poll(0.02)
            self.owned = len(self._consumer.assignment())

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()


def assignments(contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say) -> Iterator[Sample]:
    """From the join of the last of ten consumers until each owns its tenth of the partitions for good."""
    topics = [f"assigned-{number}" for number in range(sizes.group_partitions // PARTITIONS_PER_TOPIC)]
    share = sizes.group_partitions // MEMBERS
    with started_sides(contenders, data) as sides:
        for side in sides:
            side.create_topics(topics, partitions=PARTITIONS_PER_TOPIC)
            asyncio.run(await_coordinators(side.bootstrap, ["warm-up"]))
        for number, side in turns(sides, sizes.rounds):
            members: list[PollingConsumer] = []
            meter = Meter(side)
            try:
                members += [PollingConsumer(side.bootstrap, f"group-{number}", topics) for _ in range(MEMBERS)]
                began = time.perf_counter()
                seconds = settled_after(lambda: all(member.owned == share for member in members), began)  # noqa: B023
                values = {"settle_seconds": seconds, **cost(meter.read(), {})}
                yield reported(say, "group-assignment", side, number, **values)
            finally:
                for member in members:
                    member.close()


def settled_after(is_settled: Callable[[], bool], began: float) -> float:
    """Seconds until it holds; it must still hold a second later."""
    deadline = Deadline(SETTLE_SECONDS_MAX)
    while not deadline.passed:
        if is_settled():
            found = time.perf_counter() - began
            time.sleep(1.0)
            if is_settled():
                return found
        time.sleep(0.01)
    raise ProcessFailed(f"not settled within {SETTLE_SECONDS_MAX:g} s")


def heartbeats(contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say) -> Iterator[Sample]:
    """Groups of one member, each with its own connection and a heartbeat every three seconds: the share of a core."""
    with started_sides(contenders, data) as sides:
        for number, side in turns(sides, sizes.rounds):
            os.sync()
            values = asyncio.run(beat_all(side, sizes.groups, sizes.heartbeat_seconds, number))
            yield reported(say, "group-heartbeats", side, number, **values)


async def beat_all(side: Side, groups: int, seconds: float, number: int) -> dict[str, float]:
    names = [f"beating-{number}-{index}" for index in range(groups)]
    await await_coordinators(side.bootstrap, names[:1])
    wires = await gathered([GroupWire.open(side.bootstrap) for _ in names])
    members = await gathered([join(wire, group) for wire, group in zip(wires, names, strict=True)], at_once=len(names))
    stopping = asyncio.Event()

    async def beat(index: int) -> None:
        # Heartbeats of members that joined together are spread out.
        await asyncio.sleep(HEARTBEAT_SECONDS * index / groups)
        while not stopping.is_set():
            await wires[index].beat(names[index], *members[index])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), HEARTBEAT_SECONDS)

    beating = [asyncio.create_task(beat(index)) for index in range(groups)]
    await asyncio.sleep(HEARTBEAT_SECONDS)
    meter, began = Meter(side), time.perf_counter()
    await asyncio.sleep(seconds)
    passed, spent = time.perf_counter() - began, meter.read()
    stopping.set()
    await asyncio.gather(*beating)
    for wire, group, (member_id, _) in zip(wires, names, members, strict=True):
        # A member that only goes away expires in a later round, at the broker's expense.
        await wire.leave(group, member_id)
        await wire.close()
    return {"core_percent": spent.cpu_seconds / passed * 100, **cost(spent, {})}


async def join(wire: GroupWire, group: str) -> tuple[str, int]:
    await wire.await_coordinator(group)
    return await wire.join_alone(group)


async def gathered(works: Sequence[Coroutine[Any, Any, T]], at_once: int = CONNECTIONS_AT_ONCE) -> list[T]:
    """All results in order, with a bound on how many run at a time."""
    room = asyncio.Semaphore(at_once)

    async def one(work: Coroutine[Any, Any, T]) -> T:
        async with room:
            return await work

    return await asyncio.gather(*(one(work) for work in works))


def loads(contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say) -> Iterator[Sample]:
    """From the start of the process until every group's offsets are loaded, and their memory."""
    groups = [f"loaded-{index}" for index in range(sizes.offsets // LOAD_PARTITIONS)]
    with started_sides(contenders, data) as sides:
        for side in sides:
            side.create_topics(["loaded"], partitions=LOAD_PARTITIONS)
            asyncio.run(commit_all(side.bootstrap, groups))
        for number, side in turns(sides, sizes.rounds):
            side.stop()
            os.sync()
            began = time.perf_counter()
            side.start()
            asyncio.run(await_loaded(side.bootstrap, groups))
            seconds, used = time.perf_counter() - began, side.usage()
            values = {"cpu_seconds": used.cpu_seconds, "resident_mb": used.resident_bytes / MEGABYTE}
            yield reported(say, "group-load", side, number, load_seconds=seconds, **values)


async def commit_all(bootstrap: str, groups: Sequence[str]) -> None:
    wire = await GroupWire.open(bootstrap)
    for group in groups:
        await wire.await_coordinator(group)
        await wire.commit_many(group, "loaded", LOAD_PARTITIONS, offset=1_000)
    await wire.close()


async def await_loaded(bootstrap: str, groups: Sequence[str]) -> None:
    wire = await GroupWire.open(bootstrap)
    for group in groups:
        await wire.await_coordinator(group)
    await wire.close()


def assignors(sizes: Sizes, say: Say) -> Iterator[Sample]:
    """The assignors alone: with one new member, so that they have to be even and sticky."""
    partitions = sizes.assignor_members * ASSIGNOR_PARTITIONS_PER_MEMBER
    topics = {TopicId(uuid.UUID(int=number + 1).bytes): PARTITIONS_PER_TOPIC for number in range(partitions // 100)}
    subscribed = frozenset(topics)
    for name, assign in ASSIGNORS.items():
        members = [
            MemberSpec(member_id=f"m{index:05}", topics=subscribed, target={})
            for index in range(sizes.assignor_members - 1)
        ]
        targets = assign(GroupSpec(members=members, partition_counts=topics))
        grown = [
            MemberSpec(member_id=member.member_id, topics=subscribed, target=targets[member.member_id])
            for member in members
        ]
        grown.append(MemberSpec(member_id="newcomer", topics=subscribed, target={}))
        for number in range(sizes.rounds):
            began = time.perf_counter()
            assign(GroupSpec(members=grown, partition_counts=topics))
            values = {"assign_ms": (time.perf_counter() - began) * 1e3}
            say(f"{time.strftime('%H:%M:%S')} assignor-{name} round {number + 1} {values['assign_ms']:.1f} ms")
            yield Sample(work=f"assignor-{name}", side=PENSTOCK, round=number, values=values)


def stalls(contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say) -> Iterator[Sample]:
    """How long another group's heartbeat waits while a large group is reassigned."""
    partitions = sizes.assignor_members * ASSIGNOR_PARTITIONS_PER_MEMBER
    topics = [f"large-{number}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
    with started_sides(contenders, data) as sides:
        for side in sides:
            for topic in topics:
                side.create_topics([topic], partitions=PARTITIONS_PER_TOPIC)
        for number, side in turns(sides, sizes.rounds):
            values = asyncio.run(probe_while_joining(side, topics, sizes.assignor_members, number))
            yield reported(say, STALL_PART, side, number, **values)


async def probe_while_joining(side: Side, topics: list[str], members: int, number: int) -> dict[str, float]:
    """The slowest response to a small group's heartbeats while the last members of a large one join."""
    small, large = f"small-{number}", f"large-{number}"
    await await_coordinators(side.bootstrap, [small, large])
    probe, crowd = await GroupWire.open(side.bootstrap), await GroupWire.open(side.bootstrap)
    member = await probe.join_alone(small)
    meter = Meter(side)
    joined_before = [f"m{index:05}" for index in range(members - 1)]
    for member_id in joined_before:
        await crowd.consumer_beat(large, member_id, 0, topics)
    slowest, joined = 0.0, asyncio.Event()

    async def beat() -> None:
        nonlocal slowest
        while not joined.is_set():
            began = time.perf_counter()
            await probe.beat(small, *member)
            slowest = max(slowest, time.perf_counter() - began)
            await asyncio.sleep(PROBE_PAUSE_SECONDS)

    beating = asyncio.create_task(beat())
    await crowd.consumer_beat(large, "last", 0, topics)
    # Assignments of a group are a second apart at least, so the last one may begin a second later.
    await asyncio.sleep(ASSIGNMENT_SECONDS)
    joined.set()
    await beating
    values = {"stall_ms": slowest * 1e3, **cost(meter.read(), {})}
    # Members that only go away expire in a later round, at the broker's expense.
    await probe.leave(small, member[0])
    for member_id in (*joined_before, "last"):
        await crowd.consumer_beat(large, member_id, LEAVE_EPOCH)
    await probe.close()
    await crowd.close()
    return values


def reported(say: Say, work: str, side: Side, number: int, **values: float) -> Sample:
    figures = "  ".join(f"{name}={value:,.3f}" for name, value in values.items())
    say(f"{time.strftime('%H:%M:%S')} {work:24} {side.name:8} round {number + 1:2} {figures}")
    return Sample(work=work, side=side.name, round=number, values=values)
