"""Spark reads: our source on penstock beside Spark's Kafka connector on Apache Kafka, in one session of two cores."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from tools.spark_jars import is_complete, jars, jars_folder

from bench.client_program import ROOT, run_client
from bench.comparison import MEGABYTE, line, moved
from bench.page_cache import settle
from bench.samples import KAFKA, PENSTOCK, Sample
from bench.sides import Contender, Side, fresh_side
from bench.works import Sizes
from penstock.testing.processes import ProcessFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_PARTS = {"spark-read-1kb": 1024, "spark-read-100b": 100}
STREAM_PART = "spark-stream-1kb"
LATENCY_PART = "spark-latency"
MEMORY_PART = "spark-memory"
PARTS = (*READ_PARTS, STREAM_PART, LATENCY_PART, MEMORY_PART)
FORMATS = {KAFKA: "kafka", PENSTOCK: "penstock"}
PARTITIONS = 2
CORES = 2
WARM_ROUNDS = 3
TRIGGER_OFFSETS = 200_000
LATENCY_RECORDS = 40
LATENCY_RECORDS_WARM = 10
SECONDS_MAX = 600
WORKER_PROGRAM = b"pyspark.daemon"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A side, and how Spark reads from it."""

    side: Side
    spark: SparkSession
    topic: str

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.side.bootstrap, "subscribe": self.topic, **more}

    def table(self) -> DataFrame:
        return self.spark.read.format(FORMATS[self.side.name]).options(**self.options()).load()

    def stream(self, **more: str) -> DataFrame:
        return self.spark.readStream.format(FORMATS[self.side.name]).options(**self.options(**more)).load()


def measure_spark_source(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    if not parts & set(PARTS):
        return
    with session(any(contender.name == KAFKA for contender in contenders)) as spark, contextlib.ExitStack() as running:
        sides = [running.enter_context(fresh_side(contender, data)) for contender in contenders]
        for side in sides:
            side.start()
        for work, size in READ_PARTS.items():
            alone = work == "spark-read-1kb" and parts & {STREAM_PART, MEMORY_PART}
            if work in parts or alone:
                count = sizes.messages_1kb if size == 1024 else sizes.messages_100b
                yield from _of_size(
                    parts, [_filled(side, spark, work, count, size) for side in sides], work, sizes, say
                )
        if LATENCY_PART in parts:
            yield from _rounds(
                LATENCY_PART, [_filled(side, spark, LATENCY_PART, 1, 100) for side in sides], 1, say, _waited
            )


@contextlib.contextmanager
def session(with_connector: bool) -> Iterator[SparkSession]:
    """One session for both: the jars of Spark's connector are in it where Apache Kafka is measured."""
    from pyspark_penstock.session import local_session

    folder = jars_folder(ROOT)
    if with_connector and not is_complete(folder):
        raise ProcessFailed(f"no jars of Spark's Kafka connector in {folder}: run `make spark-jars`")
    conf = {"spark.log.level": "ERROR", UNIX_SOCKETS: "true"}
    if with_connector:
        conf["spark.jars"] = ",".join(map(str, jars(folder)))
    spark = local_session("penstock-bench", cores=CORES, conf=conf)
    try:
        yield spark
    finally:
        spark.stop()


def _filled(side: Side, spark: SparkSession, topic: str, count: int, size: int) -> Reading:
    side.create_topics([topic], partitions=PARTITIONS)
    arguments = ("--messages", str(count), "--size", str(size), "--partitions", str(PARTITIONS))
    run_client("produce", side.bootstrap, topic, *arguments)
    settle(side.data_root)
    return Reading(side=side, spark=spark, topic=topic)


def _of_size(parts: set[str], readings: list[Reading], work: str, sizes: Sizes, say: Say) -> Iterator[Sample]:
    if work in parts:
        yield from _rounds(work, readings, sizes.rounds, say, _summed)
    if STREAM_PART in parts and work == "spark-read-1kb":
        yield from _rounds(STREAM_PART, readings, sizes.rounds, say, _drained)
    if MEMORY_PART in parts and work == "spark-read-1kb":
        ours = [reading for reading in readings if reading.side.name == PENSTOCK]
        yield from _rounds(MEMORY_PART, ours, 1, say, _remembered)
    for reading in readings:
        reading.side.delete_topics([reading.topic])


def _rounds(
    work: str, readings: list[Reading], rounds: int, say: Say, measure: Callable[[Reading], dict[str, float]]
) -> Iterator[Sample]:
    """Warm rounds, then counted ones; who begins changes from round to round."""
    for number in range(-WARM_ROUNDS, rounds):
        for reading in readings if number % 2 == 0 else reversed(readings):
            sample = Sample(work=work, side=reading.side.name, round=number, values=measure(reading))
            say(line(sample))
            if number >= 0:
                yield sample


def _summed(reading: Reading) -> dict[str, float]:
    began = time.perf_counter()
    row: Any = reading.table().selectExpr("count(1) as messages", "sum(length(value)) as bytes").collect()[0]
    return moved(row.messages, row.bytes, time.perf_counter() - began)


def _drained(reading: Reading) -> dict[str, float]:
    """Everything there is as micro-batches of so many offsets, into a sink that takes it and does nothing.

    The time is that of the triggers: a query that goes on starts once.
    """
    folder = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        stream = reading.stream(startingOffsets="earliest", maxOffsetsPerTrigger=str(TRIGGER_OFFSETS))
        writer = stream.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(SECONDS_MAX):
            raise ProcessFailed(f"a stream did not end within {SECONDS_MAX} s")
        messages = sum(progress["numInputRows"] for progress in query.recentProgress)
        spent_ms = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress)
        return moved(messages, messages * READ_PARTS["spark-read-1kb"], spent_ms / 1000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _waited(reading: Reading) -> dict[str, float]:
    """From the acknowledgement of a record until a micro-batch has handed it over, one record after the other."""
    folder = tempfile.mkdtemp(prefix="penstock-bench-")
    arrived = threading.Event()

    def take(batch: DataFrame, _: int) -> None:
        if batch.count():
            arrived.set()

    stream = reading.stream(startingOffsets="latest")
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", folder)
    query = writer.trigger(processingTime="0 seconds").start()
    producer = Producer({"bootstrap.servers": reading.side.bootstrap, "linger.ms": 0, "log_level": 0})
    waits: list[float] = []
    try:
        query.processAllAvailable()
        for number in range(LATENCY_RECORDS_WARM + LATENCY_RECORDS):
            arrived.clear()
            producer.produce(reading.topic, b"x" * 100)
            producer.flush()
            began = time.perf_counter()
            if not arrived.wait(SECONDS_MAX):
                raise ProcessFailed("a record did not arrive")
            if number >= LATENCY_RECORDS_WARM:
                waits.append((time.perf_counter() - began) * 1000)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {"ms_p50": statistics.median(waits), "ms_p99": statistics.quantiles(waits, n=100)[98]}


def _remembered(reading: Reading) -> dict[str, float]:
    """The most that any of Spark's Python workers has held while it read the topic."""
    _summed(reading)
    peaks = [peak for pid in Path("/proc").glob("[0-9]*") if (peak := _worker_peak(pid))]
    if not peaks:
        raise ProcessFailed("no Python worker of Spark was found")
    return {"resident_mb": max(peaks) / MEGABYTE}


def _worker_peak(process: Path) -> float:
    """Peak resident bytes of a worker that Spark has forked, 0 for any other process."""
    try:
        if WORKER_PROGRAM not in (process / "cmdline").read_bytes():
            return 0.0
        fields = dict(each.split(":", 1) for each in (process / "status").read_text().splitlines() if ":" in each)
    except (OSError, ValueError):
        return 0.0
    return float(fields.get("VmHWM", "0 kB").split()[0]) * 1024
