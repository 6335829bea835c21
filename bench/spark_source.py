"""Spark reads: our source on penstock beside Spark's Kafka connector on Apache Kafka, in sessions of two cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.client_program import run_client
from bench.comparison import MEGABYTE, counted
from bench.page_cache import settle
from bench.samples import KAFKA, Sample
from bench.sides import Contender, Side, started_sides, turns
from bench.spark_process import FORMATS, SparkProcess, sessions, spark_costed
from bench.works import Sizes
from penstock.testing.processes import ProcessFailed

READ_PARTS = {"spark-read-1kb": 1024, "spark-read-100b": 100}
STREAM_PART = "spark-stream-1kb"
LATENCY_PART = "spark-latency"
MEMORY_PART = "spark-memory"
PARTS = (*READ_PARTS, STREAM_PART, LATENCY_PART, MEMORY_PART)
PARTITIONS = 2
WARM_ROUNDS = 3
TRIGGER_OFFSETS = 200_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A side, and how Spark reads from it."""

    side: Side
    spark: SparkProcess
    topic: str
    size: int

    def run(self, query: str, arguments: dict[str, str] | None = None, **options: str) -> dict[str, float]:
        given = {"kafka.bootstrap.servers": self.side.bootstrap, "subscribe": self.topic, **options}
        source = FORMATS[self.side.name]
        more = arguments or {}
        return spark_costed(self.side, self.spark, query, self.size, source=source, options=given, **more)


def measure_spark_source(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    if not parts & set(PARTS):
        return
    with sessions(contenders) as sparks, started_sides(contenders, data) as sides:

        def filled(topic: str, count: int, size: int) -> list[Reading]:
            return [_filled(side, sparks[side.name], topic, count, size) for side in sides]

        for work, size in READ_PARTS.items():
            alone = work == "spark-read-1kb" and parts & {STREAM_PART, MEMORY_PART}
            if work in parts or alone:
                count = sizes.messages_1kb if size == 1024 else sizes.messages_100b
                yield from _of_size(parts, filled(work, count, size), work, sizes, say)
        if LATENCY_PART in parts:
            yield from _rounds(LATENCY_PART, filled(LATENCY_PART, 1, 100), sizes.spark_latency_rounds, say, _waited)


def _filled(side: Side, spark: SparkProcess, topic: str, count: int, size: int) -> Reading:
    side.create_topics([topic], partitions=PARTITIONS)
    arguments = ("--messages", str(count), "--size", str(size), "--partitions", str(PARTITIONS))
    run_client("produce", side.bootstrap, topic, *arguments)
    settle(side.data_root)
    return Reading(side=side, spark=spark, topic=topic, size=size)


def _of_size(parts: set[str], readings: list[Reading], work: str, sizes: Sizes, say: Say) -> Iterator[Sample]:
    if work in parts:
        yield from _rounds(work, readings, sizes.rounds, say, _summed)
    if STREAM_PART in parts and work == "spark-read-1kb":
        yield from _rounds(STREAM_PART, readings, sizes.rounds, say, _drained)
    if MEMORY_PART in parts and work == "spark-read-1kb":
        ours = [reading for reading in readings if reading.side.name != KAFKA]
        yield from _rounds(MEMORY_PART, ours, 1, say, _remembered)
    for reading in readings:
        reading.side.delete_topics([reading.topic])


def _rounds(
    work: str, readings: list[Reading], rounds: int, say: Say, measure: Callable[[Reading], dict[str, float]]
) -> Iterator[Sample]:
    """Warm rounds, then counted ones; the side that begins changes from round to round."""
    for number, reading in turns(readings, rounds, WARM_ROUNDS):
        sample = Sample(work=work, side=reading.side.name, round=number, values=measure(reading))
        yield from counted(sample, say)


def _summed(reading: Reading) -> dict[str, float]:
    return reading.run("read")


def _drained(reading: Reading) -> dict[str, float]:
    return reading.run("drain", startingOffsets="earliest", maxOffsetsPerTrigger=str(TRIGGER_OFFSETS))


def _waited(reading: Reading) -> dict[str, float]:
    sent = {"bootstrap": reading.side.bootstrap, "topic": reading.topic}
    return reading.run("wait_for_each", sent, startingOffsets="latest")


def _remembered(reading: Reading) -> dict[str, float]:
    """The most that any of Spark's Python workers has held while it read the topic."""
    _summed(reading)
    peak = reading.spark.worker_peak_bytes()
    if not peak:
        raise ProcessFailed("no Python worker of Spark was found")
    return {"resident_mb": peak / MEGABYTE}
