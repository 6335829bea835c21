"""What one controller costs in a large cluster: processor time, memory, and writes to the metadata store.

    python -m bench.scale [--size BROKERSxPARTITIONS]... [--per-topic N] [--json]

The control plane of `penstock.testing.sim.control_plane`: real controllers and planners on a simulated store, brokers
reduced to their registrations, no data. Each size runs in a process of its own. Transactions, operations and bytes are
the same in every run; processor time is of this machine. Heirs are the brokers that lead what the lost one led.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Node
from penstock.metadata.records import brokers_shared
from penstock.testing.sim.control_plane import FACTOR, ControlPlane, Cost
from penstock.testing.sim.world import World

SIZES = ("10x10000", "30x10000", "100x10000", "100x30000", "100x100000")
PER_TOPIC = 100
RUN_SECONDS_MAX = 1_800
RETURNING = 3
"""The broker that is lost and returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of a cluster."""

    brokers: int
    partitions: int
    per_topic: int

    def __str__(self) -> str:
        return f"{self.brokers} brokers, {self.partitions:,} partitions in topics of {self.per_topic:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one size took."""

    size: Size
    costs: tuple[Cost, ...]
    image_bytes: int
    """Of an image of the metadata in memory, which every broker has."""
    nodes: int
    stored_bytes: int
    """Of all nodes in the store."""
    heirs: int
    """Brokers that lead what the lost one led."""
    heir_share: float
    """Of what it led, at the one that leads most of it."""


def size_of(text: str, per_topic: int) -> Size:
    brokers, _, partitions = text.partition("x")
    return Size(brokers=int(brokers), partitions=int(partitions), per_topic=per_topic)


def image_bytes(nodes: Mapping[str, Node]) -> int:
    """What an image of the metadata takes, with nothing shared with others."""
    brokers_shared.cache_clear()
    tracemalloc.start()
    image = MetadataImage()
    image.replace_with(nodes)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken


async def story(plane: ControlPlane, size: Size) -> Result:
    await plane.start()
    await plane.create_topics(size.partitions, per_topic=size.per_topic)
    nodes = dict(plane.server.nodes)
    await plane.load_standby()
    await plane.take_over()
    await plane.lose(RETURNING)
    await plane.bring_back(RETURNING)
    await plane.stop()
    return Result(
        size=size,
        costs=tuple(plane.meter.costs),
        image_bytes=image_bytes(nodes),
        nodes=len(nodes),
        stored_bytes=sum(len(path) + len(node.data) for path, node in nodes.items()),
        heirs=len(plane.heirs),
        heir_share=max(plane.heirs.values()) / plane.heirs.total(),
    )


def run(size: Size) -> Result:
    world = World(1)
    try:
        result = world.run(story(ControlPlane(world, brokers=size.brokers), size))
    finally:
        world.close()
    assert not world.failures, world.failures
    return result


def run_apart(size: Size) -> Result:
    """Run a size in a process of its own: what one leaves in memory would count for the next."""
    command = [sys.executable, "-m", "bench.scale", "--json", "--per-topic", str(size.per_topic)]
    command += ["--size", f"{size.brokers}x{size.partitions}", "--here"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    if done.returncode:
        raise SystemExit(f"{size}: {done.stderr}")
    return unpacked(json.loads(done.stdout))


def unpacked(row: dict[str, object]) -> Result:
    fields: dict[str, object] = dict(row)
    size, costs = fields.pop("size"), fields.pop("costs")
    assert isinstance(size, dict), "a result is not one"
    assert isinstance(costs, list), "a result is not one"
    return Result(size=Size(**size), costs=tuple(Cost(**each) for each in costs), **fields)  # type: ignore[arg-type]


def table(results: Sequence[Result]) -> str:
    """As a page shows them: a row per phase and size."""
    lines = [
        "| phase | brokers | partitions | CPU s | transactions | operations | KB |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for phase in dict.fromkeys(cost.phase for result in results for cost in result.costs):
        lines += (
            f"| {phase} | {result.size.brokers} | {result.size.partitions:,} | {cost.cpu_s:.2f} "
            f"| {cost.transactions:,} | {cost.operations:,} | {cost.bytes / 1000:,.0f} |"
            for result in results
            for cost in result.costs
            if cost.phase == phase
        )
    lines += [
        "",
        "| brokers | partitions | nodes | KB stored | MB of an image | per partition | heirs | largest share |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += (
        f"| {result.size.brokers} | {result.size.partitions:,} | {result.nodes:,} | {result.stored_bytes / 1000:,.0f} "
        f"| {result.image_bytes / 1e6:,.1f} | {result.image_bytes / result.size.partitions:,.0f} B "
        f"| {result.heirs} | {result.heir_share:.0%} |"
        for result in results
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--size", action="append", metavar="BROKERSxPARTITIONS", help=f"default: {', '.join(SIZES)}")
    parser.add_argument("--per-topic", type=int, default=PER_TOPIC, help="partitions of a topic")
    parser.add_argument("--json", action="store_true", help="a line per size")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = [size_of(text, given.per_topic) for text in given.size or SIZES]
    results = [run(size) if given.here else run_apart(size) for size in sizes]
    if given.json:
        for result in results:
            print(json.dumps(asdict(result)))
        return
    print(f"{FACTOR} replicas, topics of {given.per_topic:,} partitions\n")
    print(table(results))


if __name__ == "__main__":
    main()
