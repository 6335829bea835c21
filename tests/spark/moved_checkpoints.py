"""A query whose user restores its checkpoint from a backup, or copies it: it continues correctly, or is refused."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from pyspark_penstock.foreach import each_batch
from pyspark_penstock.pipelines.running import is_late_worker
from spark.counted_stream import RUN_SECONDS_MAX, STARTS_MAX, check_once
from spark.topic_contents import SECONDS_MAX, make_topic, values

if TYPE_CHECKING:
    import random

    from pyspark.sql import SparkSession

ROUND_ROWS = 20
BATCHES_OLDER_MAX = 3


def with_sink(writer: Any, options: dict[str, str]) -> Any:
    return writer.format("penstock").options(**options)


def with_each_batch(writer: Any, options: dict[str, str]) -> Any:
    """The batch writes of ``foreachBatch``, which have the query's batch numbers."""
    return writer.foreachBatch(each_batch(f"moved-{options['topic']}", options))


@dataclass(slots=True, kw_only=True)
class MovedQuery:
    """Copies one topic to another, with a checkpoint that its user moves."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    chance: random.Random
    sink: Callable[[Any, dict[str, str]], Any]
    source: str = ""
    topic: str = ""
    checkpoint: Path = Path()
    lines: list[str] = field(default_factory=list[str])
    history: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.source, self.topic = (make_topic(self.bootstrap, name=name) for name in ("in", "out"))
        self.checkpoint = self.folder / uuid.uuid4().hex

    def send(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(ROUND_ROWS):
            producer.produce(self.source, f"{len(self.lines)}", key=f"{len(self.lines)}")
            self.lines.append(f"{len(self.lines)}")
        assert producer.flush(SECONDS_MAX) == 0
        self.history.append(f"sent up to {len(self.lines)}")

    def run(self, checkpoint: Path) -> str:
        """Run until all is read; returns the refusal."""
        cuts = self.chance.random() < 0.5
        for _ in range(STARTS_MAX):
            rows = (
                self.spark.readStream.format("penstock")
                .option("kafka.bootstrap.servers", self.bootstrap)
                .option("subscribe", self.source)
                .option("startingOffsets", "earliest")
                .options(**({"maxOffsetsPerTrigger": str(ROUND_ROWS)} if cuts else {}))
                .load()
                .select("value")
            )
            options = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic}
            writer = self.sink(rows.writeStream, options).option("checkpointLocation", str(checkpoint))
            query = writer.trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(RUN_SECONDS_MAX), "the query does not end"
            except StreamingQueryException as failure:
                if is_late_worker(failure):
                    continue
                self.history.append(f"{checkpoint.name[:4]} refused: {failure}")
                return str(failure)
            self.history.append(f"{checkpoint.name[:4]} ran, {'in rounds' if cuts else 'in one'}")
            return ""
        raise AssertionError("Python workers do not start in time")

    def round(self) -> None:
        self.send()
        self.must_run(self.checkpoint)

    def must_run(self, checkpoint: Path) -> None:
        failure = self.run(checkpoint)
        assert not failure, self.with_history(failure)

    def copy(self) -> Path:
        made = self.folder / uuid.uuid4().hex
        shutil.copytree(self.checkpoint, made)
        self.history.append(f"copied {self.checkpoint.name[:4]} to {made.name[:4]}")
        return made

    def restore_older(self) -> bool:
        """Go on from a backup; whether that was refused."""
        self.round()
        backup = self.copy()
        for _ in range(self.chance.choice((1, self.chance.randint(2, BATCHES_OLDER_MAX)))):
            self.round()
        if self.chance.random() < 0.7:
            self.send()
        return self._end(self.run(backup), backup)

    def use_twice(self) -> bool:
        """Let two queries go on from one checkpoint; whether one of them was refused."""
        self.round()
        first, second = self.chance.sample((self.checkpoint, self.copy()), 2)
        self.send()
        self.must_run(first)
        self.checkpoint = first
        if self.chance.random() < 0.7:
            self.send()
        return self._end(self.run(second), second)

    def _end(self, refusal: str, moved: Path) -> bool:
        """Continue with one of two checkpoints, the moved one unless it was refused, and check that every record is
        there once."""
        if refusal:
            assert is_refusal(refusal), self.with_history("refused without a reason")
        else:
            self.checkpoint = moved
        self.round()
        try:
            check_once(self.lines, values(self.bootstrap, self.topic))
        except AssertionError as error:
            raise AssertionError(self.with_history(str(error))) from None
        return bool(refusal)

    def with_history(self, what: str) -> str:
        return "\n".join([what, "this is what happened:", *self.history])


def is_refusal(refusal: str) -> bool:
    """Whether a failure is a refusal of the sink that names the batch or the checkpoint."""
    return any("pyspark_penstock." in line and "batch" in line for line in refusal.splitlines())
