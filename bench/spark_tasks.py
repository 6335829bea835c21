"""Many small tasks of Spark: what a task costs beside its rows, for our source and sink and for Spark's connector."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench.comparison import line
from bench.samples import KAFKA, Sample
from bench.sides import Contender, Side, fresh_side
from bench.spark_source import FORMATS, SECONDS_MAX, WARM_ROUNDS, session
from bench.works import Sizes
from penstock.testing.processes import ProcessFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_PART = "spark-read-partitions"
SINK_TASKS_PART = "spark-sink-tasks"
SINK_PARTITIONS_PART = "spark-sink-partitions"
PARTS = (READ_PART, SINK_TASKS_PART, SINK_PARTITIONS_PART)
PARTITIONS = 200
ROWS_PER_PARTITION = 5
TASKS = 100
ROWS_OF_TASKS = 10
ROWS_TO_PARTITIONS = 20_000

Say = Callable[[str], None]
Measured = Callable[["SparkSession", Side], float]


def measure_spark_tasks(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    chosen = [(part, measured) for part, measured in MEASURED.items() if part in parts]
    if not chosen:
        return
    with session(any(contender.name == KAFKA for contender in contenders)) as spark, contextlib.ExitStack() as running:
        sides = [running.enter_context(fresh_side(contender, data)) for contender in contenders]
        for side in sides:
            side.start()
            side.create_topics([READ_PART, SINK_PARTITIONS_PART], partitions=PARTITIONS)
            side.create_topics([SINK_TASKS_PART], partitions=2)
            fill(side)
        for part, measured in chosen:
            for number in range(-WARM_ROUNDS, sizes.rounds):
                for side in sides if number % 2 == 0 else reversed(sides):
                    values = {"seconds": measured(spark, side)}
                    sample = Sample(work=part, side=side.name, round=number, values=values)
                    say(line(sample))
                    if number >= 0:
                        yield sample


def fill(side: Side) -> None:
    producer = Producer({"bootstrap.servers": side.bootstrap, "log_level": 0})
    for number in range(PARTITIONS * ROWS_PER_PARTITION):
        producer.produce(READ_PART, b"x" * 100, partition=number % PARTITIONS)
    if producer.flush(SECONDS_MAX):
        raise ProcessFailed(f"{side.name} did not take {PARTITIONS * ROWS_PER_PARTITION} records")


def read_partitions(spark: SparkSession, side: Side) -> float:
    """A few rows of each of many partitions, one task for each."""
    began = time.perf_counter()
    reader = spark.read.format(FORMATS[side.name]).option("kafka.bootstrap.servers", side.bootstrap)
    row: Any = reader.option("subscribe", READ_PART).load().selectExpr("count(1) as n", "sum(length(value))").collect()
    if row[0].n != PARTITIONS * ROWS_PER_PARTITION:
        raise ProcessFailed(f"{row[0].n} rows were read, there are {PARTITIONS * ROWS_PER_PARTITION}")
    return time.perf_counter() - began


def write_tasks(spark: SparkSession, side: Side) -> float:
    """A few rows, written by many tasks."""
    return _written(spark, side, SINK_TASKS_PART, rows=ROWS_OF_TASKS, tasks=TASKS)


def write_partitions(spark: SparkSession, side: Side) -> float:
    """A few tasks that write to many partitions each."""
    return _written(spark, side, SINK_PARTITIONS_PART, rows=ROWS_TO_PARTITIONS, tasks=2)


def _written(spark: SparkSession, side: Side, topic: str, *, rows: int, tasks: int) -> float:
    table = spark.range(0, rows, 1, tasks).selectExpr("cast(id as string) as key", "concat('v', id) as value")
    began = time.perf_counter()
    writer = table.write.format(FORMATS[side.name]).option("kafka.bootstrap.servers", side.bootstrap)
    writer.option("topic", topic).mode("append").save()
    return time.perf_counter() - began


MEASURED: dict[str, Measured] = {
    READ_PART: read_partitions,
    SINK_TASKS_PART: write_tasks,
    SINK_PARTITIONS_PART: write_partitions,
}
