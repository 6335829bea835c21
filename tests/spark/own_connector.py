"""``own_connector.py BOOTSTRAP FOLDER``: a session with the jars of Spark's Kafka connector, and what it does here."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from pyspark_penstock.session import local_session

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tools.spark_jars import jars, jars_folder  # noqa: E402

SECONDS_MAX = 120


class Tried:
    """One topic that is written and read by one connector and the other."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.topic = f"own-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        [made] = admin.create_topics([NewTopic(self.topic, 2, 1)]).values()
        made.result(SECONDS_MAX)

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "includeHeaders": "true", **more}

    def write(self, first: int, count: int) -> None:
        rows = self.spark.range(first, first + count).selectExpr(
            "cast(id as string) as key",
            "concat('v', id) as value",
            "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers",
        )
        rows.write.format("kafka").options(**self.options(topic=self.topic)).save()

    def table(self, source: str) -> DataFrame:
        return self.spark.read.format(source).options(**self.options()).load()

    def drained(self, source: str) -> list[int]:
        """The sizes of the next batches of a stream with this checkpoint."""
        found: list[int] = []

        def take(batch: DataFrame, _: int) -> None:
            found.append(batch.count())

        given = self.options(startingOffsets="earliest", maxOffsetsPerTrigger="30")
        stream = self.spark.readStream.format(source).options(**given).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder / "moved"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS_MAX), "the stream did not end"
        return found

    def stream_sink(self) -> None:
        source = self.spark.readStream.format("kafka").options(**self.options(startingOffsets="earliest")).load()
        writer = source.select("key", "value").writeStream.format("kafka").options(**self.options(topic=self.topic))
        query = writer.option("checkpointLocation", str(self.folder / "sink")).trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS_MAX), "the sink did not end"


def check(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise SystemExit(f"{what}: {found!r}, not {expected!r}")
    print(what, flush=True)


def main() -> None:
    bootstrap, folder = sys.argv[1], Path(sys.argv[2])
    paths = ",".join(map(str, jars(jars_folder(ROOT))))
    spark = local_session("own-connector", conf={"spark.jars": paths, "spark.log.level": "ERROR"})
    tried = Tried(spark, bootstrap, folder)
    tried.write(0, 100)
    theirs, ours = tried.table("kafka"), tried.table("penstock")
    check("the schemas are the same", ours.schema.simpleString(), theirs.schema.simpleString())
    order = ("partition", "offset")
    check("the rows are the same", ours.orderBy(*order).collect(), theirs.orderBy(*order).collect())
    check("all were written", theirs.selectExpr("count(distinct key) as n").collect()[0].n, 100)
    check("its stream reads them", sum(tried.drained("kafka")), 100)
    tried.write(100, 50)
    check("ours goes on from its checkpoint", sum(tried.drained("penstock")), 50)
    tried.write(150, 10)
    check("and it from ours", sum(tried.drained("kafka")), 10)
    tried.stream_sink()
    check("its streaming sink writes", tried.table("penstock").count(), 320)
    spark.stop()
    print("all is well", flush=True)


if __name__ == "__main__":
    main()
