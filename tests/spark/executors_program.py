"""A driver with executors in processes of their own, which it kills while a shuffle feeds a write.

    python executors_program.py FOLDER STREAM_TOPIC BATCH_TOPIC BOOTSTRAP KILLS_STREAM KILLS_BATCH SEED

Executors come back by themselves. The outcome of every write is a line of JSON in the file ``outcomes``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_penstock.pipelines.running import is_late_worker
from pyspark_penstock.session import local_session
from spark.batch_tables import write_table
from spark.counted_stream import CountedStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "events"
OUTCOMES = "outcomes"
EXECUTORS = 2
REDUCERS = 8
"""Tasks of the write, in two waves: the second must fetch from an executor that was killed during the first."""
ROW_MS = 40
MOMENT_SECONDS_MAX = 1.5
EXECUTORS_SECONDS_MAX = 90
POLL_SECONDS = 0.02
TRIES_MAX = 5


def shuffled_slowly(rows: DataFrame) -> DataFrame:
    """Rows behind a shuffle, each of which takes its time."""
    slept = f"java_method('java.lang.Thread', 'sleep', {ROW_MS}L)"
    return rows.repartition(REDUCERS).selectExpr(f"substring(concat(value, {slept}), 1, length(value)) as value")


def executors(application: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = entry.read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and application.encode() in command:
                found.append(int(entry.parent.name))
    return sorted(found)


class Killer(threading.Thread):
    """Kills one executor at a random moment of the stage that writes."""

    def __init__(self, spark: SparkSession, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._context = spark.sparkContext
        self._chance = chance
        self._over = threading.Event()
        self.killed = 0

    def run(self) -> None:
        while not self._is_writing():
            if self._over.wait(POLL_SECONDS):
                return
        if not self._over.wait(self._chance.uniform(0, MOMENT_SECONDS_MAX)):
            found = executors(self._context.applicationId)
            if found:
                os.kill(self._chance.choice(found), signal.SIGKILL)
                self.killed = 1

    def _is_writing(self) -> bool:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(each and each.numTasks == REDUCERS and each.numActiveTasks for each in stages)

    def end(self) -> int:
        self._over.set()
        self.join()
        return self.killed


def wait_for_executors(spark: SparkSession) -> None:
    """Wait until every executor has registered with the driver: before that it has nothing to lose."""
    application = spark.sparkContext.applicationId
    deadline = time.monotonic() + EXECUTORS_SECONDS_MAX
    memory = spark.sparkContext._jsc.sc()  # type: ignore[union-attr]
    while len(executors(application)) < EXECUTORS or memory.getExecutorMemoryStatus().size() <= EXECUTORS:
        assert time.monotonic() < deadline, "executors do not come back"
        time.sleep(POLL_SECONDS)


def main(place: str, stream_topic: str, batch_topic: str, bootstrap: str, *numbers: str) -> None:
    kills_stream, kills_batch, seed = map(int, numbers)
    folder, chance = Path(place), random.Random(seed)
    (folder / EVENTS).mkdir()
    conf = {
        "spark.master": f"local-cluster[{EXECUTORS},2,512]",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.stage.maxConsecutiveAttempts": "10",
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "500ms",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5",
        "spark.log.level": "WARN",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder / EVENTS}",
    }
    spark = local_session("killed", conf=conf)
    stream = CountedStream(folder, stream_topic)
    stream.between = shuffled_slowly

    def write_stream(_: int) -> None:
        stream.add_batch()
        stream.start(spark, bootstrap).awaitTermination()

    def write_batch(table: int) -> None:
        write_table(spark, bootstrap, batch_topic, table, shuffled_slowly)

    for kind, act, kills in (("stream", write_stream, kills_stream), ("batch", write_batch, kills_batch)):
        killed = number = 0
        while killed < kills and number < kills * TRIES_MAX:
            wait_for_executors(spark)
            killer = Killer(spark, chance)
            killer.start()
            outcome = ""
            try:
                act(number)
            except Exception as error:
                outcome = "late worker" if is_late_worker(error) else str(error)
            count = killer.end()
            killed += count
            with (folder / OUTCOMES).open("a") as file:
                file.write(json.dumps({"kind": kind, "number": number, "killed": count, "failure": outcome}) + "\n")
            number += 1
    # What a failed run has left is the next one's.
    stream.run(spark, bootstrap)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
