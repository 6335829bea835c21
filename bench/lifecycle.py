"""Start times, idle memory and many partitions: works on brokers of their own, one at a time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.client_program import run_client
from bench.comparison import MEGABYTE
from bench.samples import Sample
from bench.sides import Contender, Side, fresh_side, turns

IDLE_SECONDS = 2.0
PARTITIONS_PER_TOPIC = 100
TOPICS_READ_AFTER_RESTART = 3

Say = Callable[[str], None]


def empty_starts(contenders: Sequence[Contender], rounds: int, data_root: Path, say: Say) -> Iterator[Sample]:
    """Time to readiness of a broker without data, and its memory once it has been idle for a moment."""
    for number, contender in turns(contenders, rounds):
        with fresh_side(contender, data_root) as side:
            os.sync()
            side.start()
            cpu_seconds = side.usage().cpu_seconds
            time.sleep(IDLE_SECONDS)
            yield _reported(say, "start-empty", side, number, cpu_seconds=cpu_seconds, resident_mb=_resident_mb(side))


def restarts(
    contenders: Sequence[Contender], partitions: int, rounds: int, data_root: Path, say: Say
) -> Iterator[Sample]:
    """Time to readiness after a clean stop, with a record in every partition."""
    with contextlib.ExitStack() as running:
        sides = [running.enter_context(fresh_side(contender, data_root)) for contender in contenders]
        for side in sides:
            side.start()
            topics = _fill(side, partitions)
            side.stop()
        for number, side in turns(sides, rounds):
            os.sync()
            side.start()
            cpu_seconds = side.usage().cpu_seconds
            _read_back(side, topics[:TOPICS_READ_AFTER_RESTART])
            resident_mb = _resident_mb(side)
            yield _reported(say, "start-partitions", side, number, cpu_seconds=cpu_seconds, resident_mb=resident_mb)
            side.stop()


def many_partitions(contender: Contender, partitions: int, data_root: Path, say: Say) -> Iterator[Sample]:
    """Every partition is written and read, then again some of them after a restart; the memory is the larger one."""
    with fresh_side(contender, data_root) as side:
        side.start()
        began = time.perf_counter()
        topics = _fill(side, partitions)
        create_seconds = time.perf_counter() - began
        _read_back(side, topics)
        serving_mb = _resident_mb(side)
        side.stop()
        os.sync()
        side.start()
        ready_seconds = side.ready_seconds
        _read_back(side, topics[:TOPICS_READ_AFTER_RESTART])
        yield _reported(
            say,
            "partitions-many",
            side,
            0,
            partitions=partitions,
            create_and_write_seconds=create_seconds,
            ready_seconds=ready_seconds,
            resident_mb=max(serving_mb, _resident_mb(side)),
        )


def memory_after_run(sides: Sequence[Side], say: Say) -> Iterator[Sample]:
    for side in sides:
        peak_mb = side.usage().resident_bytes_peak / MEGABYTE
        yield _reported(say, "memory-after", side, 0, resident_mb=_resident_mb(side), resident_mb_peak=peak_mb)


def _fill(side: Side, partitions: int) -> list[str]:
    """Topics with so many partitions in all, one record in each (and one more in the first of each topic)."""
    assert partitions % PARTITIONS_PER_TOPIC == 0, partitions
    topics = [f"many-{number}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
    for topic in topics:
        side.create_topics([topic], partitions=PARTITIONS_PER_TOPIC)
        run_client("produce", side.bootstrap, topic, "--messages", "1", "--partitions", str(PARTITIONS_PER_TOPIC))
    return topics


def _read_back(side: Side, topics: Sequence[str]) -> None:
    arguments = ("--messages", str(PARTITIONS_PER_TOPIC + 1), "--partitions", str(PARTITIONS_PER_TOPIC))
    for topic in topics:
        run_client("consume", side.bootstrap, topic, *arguments)


def _resident_mb(side: Side) -> float:
    return side.usage().resident_bytes / MEGABYTE


def _reported(say: Say, work: str, side: Side, number: int, **values: float) -> Sample:
    found = {"ready_seconds": side.ready_seconds, **values}
    figures = "  ".join(f"{name}={value:,.3f}" for name, value in found.items())
    say(f"{time.strftime('%H:%M:%S')} {work:24} {side.name:8} round {number + 1:2} {figures}")
    return Sample(work=work, side=side.name, round=number, values=found)
