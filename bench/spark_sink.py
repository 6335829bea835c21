"""Spark writes: our exactly-once sink on penstock beside the at-least-once sink of Spark's connector on Kafka."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.comparison import counted
from bench.samples import Sample
from bench.sides import Contender, Side, started_sides, turns
from bench.spark_process import FORMATS, SparkProcess, sessions, spark_costed
from bench.spark_session import CORES
from bench.spark_source import PARTITIONS, WARM_ROUNDS
from bench.works import Sizes
from penstock.testing.processes import ProcessFailed

PARTS = ("spark-sink",)
TOPIC = "spark-sink"
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
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    table = folder / "table"
    try:
        with sessions(contenders) as sparks, started_sides(contenders, data) as sides:
            # As many files as there are tasks in all micro-batches.
            tables = {"folder": str(table), "count": count, "files": BATCHES * CORES, "value_bytes": VALUE_BYTES}
            sparks[sides[0].name].run("make_table", **tables)
            for number, side in turns(sides, sizes.rounds, WARM_ROUNDS):
                values = written(sparks[side.name], side, table, count)
                yield from counted(Sample(work=PARTS[0], side=side.name, round=number, values=values), say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def written(spark: SparkProcess, side: Side, table: Path, count: int) -> dict[str, float]:
    """One run of the query, from its start to its end."""
    side.create_topics([TOPIC], partitions=PARTITIONS)
    options = {"kafka.bootstrap.servers": side.bootstrap, "topic": TOPIC}
    arguments = {"sink": FORMATS[side.name], "options": options, "table": str(table)}
    values = spark_costed(side, spark, "write_stream", VALUE_BYTES, **arguments)
    if values["messages"] != count:
        raise ProcessFailed(f"{values['messages']} rows were written, there are {count}")
    side.delete_topics([TOPIC])
    return values
