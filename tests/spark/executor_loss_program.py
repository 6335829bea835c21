"""A driver whose write loses an executor: the stage is run again while tasks of its first run still write.

    python executor_loss_program.py BOOTSTRAP TOPIC_OF_BATCH TOPIC_OF_STREAM FOLDER

Each task sends a large row, leaves a mark in the folder, and waits until two attempts of one task with the same attempt
number have left theirs. To get there an executor is killed when two tasks wait: the files of its shuffle are gone, so
that Spark runs both stages again while the task on the other executor is still running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASKS = 4
ROWS_PER_TASK = 5
FILLER_CHARACTERS = 300_000
"""More than a batch, so that the first row is sent, and with it the transaction is opened."""
POLL_SECONDS = 0.05
EXECUTORS = 2
INPUT_FILES = 4


def marks(folder: Path) -> list[tuple[int, int, int]]:
    """Partition, attempt number and Spark's id of each attempt that waits or has waited."""
    found: list[tuple[int, int, int]] = []
    for path in folder.glob("mark-*"):
        partition, number, attempt = path.name.removeprefix("mark-").split("-")
        found.append((int(partition), int(number), int(attempt)))
    return found


def twins(folder: Path) -> set[tuple[int, int]]:
    """Tasks of which two attempts have the same number."""
    seen = [(partition, number) for partition, number, _ in marks(folder)]
    return {each for each in seen if seen.count(each) > 1}


def rows_of(folder: str) -> Any:
    """The rows that a task writes, independent of its input."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        yield pa.record_batch({"value": [f"{partition}-0-{'x' * FILLER_CHARACTERS}"]})
        mark = f"mark-{partition}-{context.attemptNumber()}-{context.taskAttemptId()}"
        (Path(folder) / mark).touch()
        while not (Path(folder) / "go").exists():
            time.sleep(POLL_SECONDS)
        for row in range(1, ROWS_PER_TASK):
            yield pa.record_batch({"value": [f"{partition}-{row}"]})

    return rows


def executors(application: str) -> list[int]:
    found: list[int] = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and application.encode() in command:
                found.append(int(entry))
    return sorted(found)


def registered(spark: SparkSession) -> int:
    """How many executors take tasks; Spark counts the driver as one more."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def kill_one(application: str, folder: Path) -> None:
    while len(marks(folder)) < 2:
        time.sleep(POLL_SECONDS)
    os.kill(executors(application)[0], signal.SIGKILL)
    while not twins(folder):
        time.sleep(POLL_SECONDS)
    (folder / "go").touch()


def main(bootstrap: str, of_batch: str, of_stream: str, folder: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,700]").appName("executor-loss")
    for name, value in {
        "spark.executor.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(TASKS),
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "100ms",
        "spark.locality.wait": "0",
        "spark.sql.files.maxPartitionBytes": "16",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
        "spark.log.level": "WARN",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    batch, stream = Path(folder) / "batch", Path(folder) / "stream"
    with killing(spark, batch):
        writer = written(spark.range(0, 40, 1, 4).repartition(TASKS), batch).write.format("penstock").mode("append")
        writer.option("kafka.bootstrap.servers", bootstrap).option("topic", of_batch).save()
    with killing(spark, stream):
        source = stream / "in"
        source.mkdir()
        for number in range(INPUT_FILES):
            (source / f"{number}.txt").write_text("\n".join(map(str, range(10))))
        query = (
            written(spark.readStream.text(str(source)).repartition(TASKS), stream)
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", of_stream)
            .option("checkpointLocation", str(stream / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


@contextlib.contextmanager
def killing(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Kill an executor while the body runs.

    Both executors must be there before the first stage, so that both hold files of its shuffle: the loss of one that
    holds none makes Spark run a task again, and no stage.
    """
    folder.mkdir()
    while len(executors(spark.sparkContext.applicationId)) < EXECUTORS or registered(spark) < EXECUTORS:
        time.sleep(POLL_SECONDS)
    killer = threading.Thread(target=kill_one, args=(spark.sparkContext.applicationId, folder), daemon=True)
    killer.start()
    yield
    killer.join()


def written(table: DataFrame, folder: Path) -> DataFrame:
    return table.mapInArrow(rows_of(str(folder)), "value string")


if __name__ == "__main__":
    main(*sys.argv[1:])
