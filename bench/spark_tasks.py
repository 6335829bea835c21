"""Many small tasks of Spark: the overhead of a task, for our source and sink and for Spark's connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer

from bench.comparison import counted
from bench.samples import Sample
from bench.sides import Contender, Side, started_sides, turns
from bench.spark_process import FORMATS, SparkProcess, sessions, spark_costed
from bench.spark_session import SECONDS_MAX
from bench.spark_source import WARM_ROUNDS
from bench.works import Sizes
from penstock.testing.processes import ProcessFailed

READ_PART = "spark-read-partitions"
SINK_TASKS_PART = "spark-sink-tasks"
SINK_PARTITIONS_PART = "spark-sink-partitions"
PARTS = (READ_PART, SINK_TASKS_PART, SINK_PARTITIONS_PART)
PARTITIONS = 200
ROWS_PER_PARTITION = 5
ROW_BYTES = 100
WRITTEN_BYTES = 8
"""About: a number as the key, and once more in the value."""
TASKS = 100
ROWS_OF_TASKS = 10
ROWS_TO_PARTITIONS = 20_000

Say = Callable[[str], None]
Measured = Callable[[SparkProcess, Side], dict[str, float]]


def measure_spark_tasks(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    chosen = [(part, measured) for part, measured in MEASURED.items() if part in parts]
    if not chosen:
        return
    with sessions(contenders) as sparks, started_sides(contenders, data) as sides:
        for side in sides:
            side.create_topics([READ_PART, SINK_PARTITIONS_PART], partitions=PARTITIONS)
            side.create_topics([SINK_TASKS_PART], partitions=2)
            fill(side)
        for part, measured in chosen:
            for number, side in turns(sides, sizes.rounds, WARM_ROUNDS):
                values = measured(sparks[side.name], side)
                yield from counted(Sample(work=part, side=side.name, round=number, values=values), say)


def fill(side: Side) -> None:
    producer = Producer({"bootstrap.servers": side.bootstrap, "log_level": 0})
    for number in range(PARTITIONS * ROWS_PER_PARTITION):
        producer.produce(READ_PART, b"x" * ROW_BYTES, partition=number % PARTITIONS)
    if producer.flush(SECONDS_MAX):
        raise ProcessFailed(f"{side.name} did not take {PARTITIONS * ROWS_PER_PARTITION} records")


def read_partitions(spark: SparkProcess, side: Side) -> dict[str, float]:
    """A few rows of each of many partitions, one task for each."""
    options = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": READ_PART}
    values = spark_costed(side, spark, "read", ROW_BYTES, source=FORMATS[side.name], options=options)
    if values["messages"] != PARTITIONS * ROWS_PER_PARTITION:
        raise ProcessFailed(f"{values['messages']} rows were read, there are {PARTITIONS * ROWS_PER_PARTITION}")
    return values


def write_tasks(spark: SparkProcess, side: Side) -> dict[str, float]:
    """A few rows, written by many tasks."""
    return _written(spark, side, SINK_TASKS_PART, rows=ROWS_OF_TASKS, tasks=TASKS)


def write_partitions(spark: SparkProcess, side: Side) -> dict[str, float]:
    """A few tasks that write to many partitions each."""
    return _written(spark, side, SINK_PARTITIONS_PART, rows=ROWS_TO_PARTITIONS, tasks=2)


def _written(spark: SparkProcess, side: Side, topic: str, *, rows: int, tasks: int) -> dict[str, float]:
    options = {"kafka.bootstrap.servers": side.bootstrap, "topic": topic}
    arguments = {"sink": FORMATS[side.name], "options": options, "rows": rows, "tasks": tasks}
    return spark_costed(side, spark, "write_batch", WRITTEN_BYTES, **arguments)


MEASURED: dict[str, Measured] = {
    READ_PART: read_partitions,
    SINK_TASKS_PART: write_tasks,
    SINK_PARTITIONS_PART: write_partitions,
}
