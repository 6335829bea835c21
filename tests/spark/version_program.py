"""``version_program.py BOOTSTRAP FOLDER``: the source and the sink in the PySpark that is found first on the path."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from pyspark_penstock.session import local_session

sys.path.insert(0, str(Path(__file__).parents[1]))

from spark.late_workers import run_query

SECONDS_MAX = 120
LIMITED = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Whether a batch of a stream can be limited."""


class Story:
    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.topic, self.copy = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("from", "to"))
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(self.topic, 2, 1), NewTopic(self.copy, 2, 1)]).values():
            made.result(SECONDS_MAX)

    def write(self, first: int, count: int) -> None:
        rows = self.spark.range(first, first + count).selectExpr(
            "cast(id as string) as key", "to_json(named_struct('id', id)) as value"
        )
        writer = rows.write.format("penstock").option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("topic", self.topic).mode("append").save()

    def table(self, topic: str, **more: str) -> DataFrame:
        reader = self.spark.read.format("penstock").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).options(**more).load()

    def copied(self, name: str, **more: str) -> None:
        """Copy the available records from one topic to the other, exactly once."""
        source = self.spark.readStream.format("penstock").option("kafka.bootstrap.servers", self.bootstrap)
        rows = source.option("subscribe", self.topic).options(**more).load().select("key", "value")
        writer = rows.writeStream.format("penstock").option("kafka.bootstrap.servers", self.bootstrap)
        writer = writer.option("topic", self.copy).option("checkpointLocation", str(self.folder / name))
        run_query(writer.trigger(availableNow=True).start)

    def keys(self) -> list[int]:
        """The keys of the copies, in order."""
        found = self.table(self.copy, **{"kafka.isolation.level": "read_committed"}).selectExpr(
            "cast(cast(key as string) as int) as key"
        )
        return sorted(row.key for row in found.collect())


def check(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise SystemExit(f"{what}: {found!r}, not {expected!r}")
    print(what, flush=True)


def refusal(story: Story, **options: str) -> str:
    try:
        story.copied("refused", **options)
    except Exception as error:
        return str(error)
    return "none"


def main() -> None:
    bootstrap, folder = sys.argv[1], Path(sys.argv[2])
    spark = local_session("versions", conf={"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"})
    check("the version is the one on the path", spark.version, pyspark.__version__)
    story = Story(spark, bootstrap, folder)
    story.write(0, 20)
    check("a batch query reads what a batch sink wrote", story.table(story.topic).count(), 20)
    typed = story.table(story.topic, **{"value.format": "json", "value.schema": "id BIGINT"})
    check("values are typed", typed.selectExpr("sum(value.id) as s").collect()[0].s, sum(range(20)))
    check("filters hold", typed.where("partition >= 0 and offset >= 0 and value.id >= 15").count(), 5)
    story.copied("earliest", startingOffsets="earliest")
    check("a stream copies from the earliest offset", story.keys(), list(range(20)))
    story.copied("latest")
    check("and from the latest nothing yet", story.keys(), list(range(20)))
    story.write(20, 10)
    story.copied("earliest", startingOffsets="earliest")
    check("it goes on from its checkpoint", story.keys(), list(range(30)))
    story.copied("latest")
    check("from the latest what came since", story.keys(), sorted([*range(30), *range(20, 30)]))
    limited = refusal(story, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    check("a limit is honoured or refused", "PySpark 4.2" in limited, not LIMITED)
    check("a relative start too", "PySpark 4.2" in refusal(story, startingOffsets="-5"), not LIMITED)
    check("a wrong option is refused", "must be positive" in refusal(story, maxOffsetsPerTrigger="0"), True)
    spark.stop()
    print("all is well", flush=True)


if __name__ == "__main__":
    main()
