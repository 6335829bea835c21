"""Spark writes: our exactly-once sink on penstock beside the at-least-once sink of Spark's connector on Kafka."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.comparison import line, moved
from bench.page_cache import settle
from bench.samples import KAFKA, Sample
from bench.sides import Contender, Side, fresh_side
from bench.spark_source import CORES, FORMATS, PARTITIONS, SECONDS_MAX, WARM_ROUNDS, session
from bench.works import Sizes
from penstock.testing.processes import ProcessFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = ("spark-sink",)
VALUE_BYTES = 100
MESSAGES_MAX = 2_000_000
BATCHES = 4

Say = Callable[[str], None]


def measure_spark_sink(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    """The same table of values, as a stream of a few micro-batches, into a new topic of each side."""
    if not parts & set(PARTS):
        return
    count = min(sizes.messages_100b, MESSAGES_MAX)
    with session(any(contender.name == KAFKA for contender in contenders)) as spark, contextlib.ExitStack() as running:
        folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        running.callback(shutil.rmtree, folder, ignore_errors=True)
        make_table(spark, folder / "table", count)
        sides = [running.enter_context(fresh_side(contender, data)) for contender in contenders]
        for side in sides:
            side.start()
        for number in range(-WARM_ROUNDS, sizes.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                sample = Sample(work=PARTS[0], side=side.name, round=number, values=written(spark, side, folder, count))
                say(line(sample))
                if number >= 0:
                    yield sample


def make_table(spark: SparkSession, folder: Path, count: int) -> None:
    """Parquet files of values, as many as there are tasks in all micro-batches."""
    rows = spark.range(0, count, 1, BATCHES * CORES)
    rows.selectExpr(f"encode(lpad(cast(id as string), {VALUE_BYTES}, 'x'), 'utf-8') as value").write.parquet(
        str(folder)
    )


def written(spark: SparkSession, side: Side, folder: Path, count: int) -> dict[str, float]:
    """One run of the query, from its start to its end."""
    topic, checkpoint = "spark-sink", tempfile.mkdtemp(dir=folder)
    side.create_topics([topic], partitions=PARTITIONS)
    settle(side.data_root)
    stream = spark.readStream.schema("value binary").option("maxFilesPerTrigger", CORES).parquet(str(folder / "table"))
    writer = stream.writeStream.format(FORMATS[side.name]).option("kafka.bootstrap.servers", side.bootstrap)
    began = time.perf_counter()
    query = writer.option("topic", topic).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(SECONDS_MAX):
        raise ProcessFailed(f"a stream did not end within {SECONDS_MAX} s")
    seconds = time.perf_counter() - began
    messages = sum(progress["numInputRows"] for progress in query.recentProgress)
    if messages != count:
        raise ProcessFailed(f"{messages} rows were written, there are {count}")
    side.delete_topics([topic])
    return moved(messages, messages * VALUE_BYTES, seconds)
