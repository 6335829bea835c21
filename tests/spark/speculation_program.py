"""Writes tables to topics and copies files by a stream, while Spark starts slow tasks a second time.

    python speculation_program.py MASTER BOOTSTRAP UNSENT TOPIC COPY FOLDER

The first attempt of the task that fills one partition stops halfway until its batch is committed, and the second, which
only speculation starts, waits until the first has come there. What Spark did is in its event log in the folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient
from pyspark import TaskContext

from pyspark_penstock.session import local_session
from spark.late_workers import run_query
from spark.pipeline_processes import wait_until
from spark.topic_contents import log_ends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
MICRO_BATCHES = 2
TASK_ROWS = 500
ARROW_ROWS = 50
HALFWAY = TASK_ROWS // ARROW_ROWS // 2
"""Of how many Arrow batches a task has given its rows when it stops."""
SLOW = 1
"""The partition whose task is slow at its first attempt."""
EVENTS = "events"
CONF = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    # Nothing but speculation starts a second attempt.
    "spark.task.maxFailures": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    # Rows go from process to process a few at a time, so that a task which stops halfway has written some.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.execution.pandas.udf.buffer.size": "1024",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


def main(master: str, bootstrap: str, unsent: str, topic: str, copy: str, folder: str) -> None:
    events = Path(folder, EVENTS)
    events.mkdir()
    conf = {"spark.master": master, "spark.eventLog.dir": f"file://{events}", **CONF}
    spark = local_session("speculation", conf=conf)
    files = input_files(Path(folder))
    brokers = {"kafka.bootstrap.servers": bootstrap}
    soon = {**brokers, "kafka.batch.size": "1024"}

    table = placed(spark.range(0, PARTITIONS * TASK_ROWS, 1, PARTITIONS).selectExpr("cast(id as string) as value"))
    # First, so that its slow attempt is long over when the cluster is stopped.
    slowness = SlownessUnsent(bootstrap, unsent, Path(folder, "halfway"))
    write = slow_at_first(table, slowness).write.format("penstock").mode("append")
    write.options(**brokers).option("topic", unsent).option("sinkId", unsent).save()

    write = slow_at_first(table, Slowness(bootstrap, topic)).write.format("penstock").mode("append")
    write.options(**soon).option("topic", topic).option("sinkId", topic).save()

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", PARTITIONS).load(files)
    copied = (
        slow_at_first(placed(lines), Slowness(bootstrap, copy))
        .writeStream.format("penstock")
        .options(**soon)
        .option("topic", copy)
        .option("sinkId", copy)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
    )
    run_query(copied.start)
    wait_until(lambda: running_tasks(spark) == 0, "the end of the attempts that have lost")
    spark.stop()


def placed(numbers: DataFrame) -> DataFrame:
    """The rows of each task go to a partition of their own."""
    return numbers.selectExpr("value", f"cast(value div {TASK_ROWS} % {PARTITIONS} as int) as partition")


def input_files(folder: Path) -> str:
    """A folder with one file for each task of the stream, one newer than the other."""
    folder = folder / "input"
    folder.mkdir()
    for number in range(MICRO_BATCHES * PARTITIONS):
        file = folder / f"{number}.txt"
        file.write_text("\n".join(map(str, range(number * TASK_ROWS, (number + 1) * TASK_ROWS))))
        os.utime(file, (number, number))
    return str(folder)


@dataclass(frozen=True)
class Slowness:
    """What the two attempts of a task wait for: the first has records in the log when it loses."""

    bootstrap: str
    topic: str

    def before_second(self) -> None:
        wait_until(self._is_open, "records of the first attempt")

    def amid_first(self) -> None:
        wait_until(self._is_open, "records of its own")
        wait_until(lambda: not self._is_open(), "the end of the batch")

    def _is_open(self) -> bool:
        """Whether the partition has records of an open transaction; no other process writes to it."""
        stable, end = self._ends()
        return stable < end

    def _ends(self) -> tuple[int, int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        stable = log_ends(admin, self.topic, [SLOW], IsolationLevel.READ_COMMITTED)
        return stable[SLOW], log_ends(admin, self.topic, [SLOW], IsolationLevel.READ_UNCOMMITTED)[SLOW]


@dataclass(frozen=True)
class SlownessUnsent(Slowness):
    """The first attempt has given rows to the sink and sent none of them; the topic was empty."""

    halfway: Path

    def before_second(self) -> None:
        wait_until(self.halfway.exists, "the first attempt")

    def amid_first(self) -> None:
        self.halfway.touch()
        wait_until(lambda: self._ends()[0] > 0, "the second attempt's commit")


def slow_at_first(rows: DataFrame, slowness: Slowness) -> DataFrame:
    """The same rows; those of one partition come slowly at the first attempt."""

    def given(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "not in a task"
        is_first = context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if batch["partition"][0].as_py() == SLOW:
                if is_first and number == HALFWAY:
                    slowness.amid_first()
                elif not is_first and number == 0:
                    slowness.before_second()
            yield batch

    return rows.mapInArrow(given, rows.schema)


def running_tasks(spark: SparkSession) -> int:
    """How many tasks run, including those that Spark no longer waits for."""
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(info.numRunningTasks() for info in infos)


if __name__ == "__main__":
    main(*sys.argv[1:])
