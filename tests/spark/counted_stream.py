"""A streaming query over files, restarted as often as it fails; every line must be in its topic once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from pyspark_penstock.pipelines.running import is_late_worker
from spark.topic_contents import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_PER_BATCH = 2
LINES_PER_FILE = 40
STARTS_MAX = 8
RUN_SECONDS_MAX = 240


class CountedStream:
    """Files in a folder, a query that copies their lines, and a checkpoint."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.input = folder / "input"
        self.checkpoint = folder / "checkpoint"
        self.topic = topic
        self.lines: list[str] = []
        self.starts = 0
        self.between: Callable[[DataFrame], DataFrame] = lambda lines: lines
        """What the query does with the lines."""
        self.input.mkdir(parents=True, exist_ok=True)

    def add_batch(self) -> None:
        """Two more files, which one micro-batch of two tasks will read."""
        for _ in range(FILES_PER_BATCH):
            lines = [f"{len(self.lines) + index}" for index in range(LINES_PER_FILE)]
            name = f"{len(self.lines):08}.txt"
            draft = self.input.parent / name
            draft.write_text("\n".join(lines))
            draft.rename(self.input / name)
            self.lines += lines

    def start(self, spark: SparkSession, bootstrap: str, **options: str) -> Any:
        """The query; it ends by itself when all files are read."""
        self.starts += 1
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", FILES_PER_BATCH).load(str(self.input))
        return (
            self.between(lines)
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", self.topic)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )

    def run(self, spark: SparkSession, bootstrap: str, **options: str) -> list[str]:
        """Start it until it succeeds; returns the failures."""
        failures: list[str] = []
        for _ in range(STARTS_MAX):
            query = self.start(spark, bootstrap, **options)
            try:
                assert query.awaitTermination(RUN_SECONDS_MAX), "the query does not end"
            except StreamingQueryException as failure:
                if not is_late_worker(failure):
                    failures.append(str(failure))
                continue
            return failures
        raise AssertionError(f"failed {STARTS_MAX} times: {failures[-1]}")

    def check(self, bootstrap: str) -> None:
        """Every line is in once."""
        check_once(self.lines, values(bootstrap, self.topic))


def check_once(wanted: Iterable[str], found: Iterable[str]) -> None:
    """Every line is there once, and nothing else."""
    expected, counts = list(wanted), Counter(found)
    lost = [line for line in expected if not counts[line]]
    doubled = [line for line, count in counts.items() if count > 1]
    assert not lost, f"lost {len(lost)} lines: {lost[:10]}"
    assert not doubled, f"doubled {len(doubled)} lines: {doubled[:10]}"
    assert counts.total() == len(expected), f"{counts.total()} lines, and not {len(expected)}"
