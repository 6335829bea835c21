"""An archive and its table out of step: restored checkpoints, other tables, topics that were created again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.lake import LakeError, OutOfStep, TableFormat, TopicRecreated, open_table
from pyspark_penstock.pipelines.archive import start_archive
from pyspark_penstock.pipelines.spec import SpecError, parse_spec
from pyspark_penstock.pipelines.spec_run import start_pipeline
from pyspark_penstock.pipelines.table_sink import TableSink
from spark.late_workers import run_queries, run_query
from spark.test_pipeline_archive import SCHEMA, archive, ids, new_archive, send
from spark.topic_contents import committed, make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADMIN_SECONDS_MAX = 60
ODD = ["a b", "x/y", "50%", "k=v", ":", "é", "", None, "a%20b", "nul\u0001", "..", "back\\slash", "[x]^{y}"]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_an_archive_mistakes_no_batch_or_topic_for_another(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path, kind: TableFormat
) -> None:
    topic = make_topic(broker.bootstrap, 1)
    what = new_archive(broker.bootstrap, topic, tmp_path, kind)
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    send(broker.bootstrap, topic, 0, 2)
    archive(spark, what)
    shutil.copytree(checkpoint, backup)
    send(broker.bootstrap, topic, 2, 2)
    archive(spark, what)

    # One batch older than the table: its next batch has a number that the table holds, and other records.
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    send(broker.bootstrap, topic, 4, 2)
    with pytest.raises(OutOfStep, match="the checkpoint is at batch 0: it is older than the table"):
        start_archive(spark, what)

    # What the message says to do: nothing is lost, nothing doubled.
    fresh = replace(what, checkpoint=str(tmp_path / "fresh"))
    archive(spark, fresh)
    assert ids(what.open_table()) == list(range(6))

    # Nothing is new, and the table is another one: not a success.
    with pytest.raises(OutOfStep, match="the table holds no batch of this query"):
        start_archive(spark, replace(fresh, to=str(tmp_path / "second")))

    # The same name, other records: with the checkpoint, and with a lost one.
    create_again(broker.bootstrap, topic)
    send(broker.bootstrap, topic, 100, 9)
    for lost in (fresh, replace(what, checkpoint=str(tmp_path / "lost"))):
        with pytest.raises(TopicRecreated, match=f"topic {topic} was deleted and created again"):
            start_archive(spark, lost)
    other = replace(what, to=str(tmp_path / "new"), checkpoint=str(tmp_path / "new-checkpoint"))
    archive(spark, other)
    assert ids(other.open_table()) == list(range(100, 109))


def create_again(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([topic]).values():
        future.result(ADMIN_SECONDS_MAX)
    for future in admin.create_topics([NewTopic(topic, 1)]).values():
        future.result(ADMIN_SECONDS_MAX)


def test_rows_are_read_and_counted_once_although_some_are_dead_letters(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic, dead = make_topic(broker.bootstrap, 2), make_topic(broker.bootstrap, 1)
    send(broker.bootstrap, topic, 0, 100, broken=(60, 99))
    # Several batches, of which the first has no dead letters.
    typed: dict[str, Any] = {"value_format": "json", "value_schema": SCHEMA, "records_per_batch_max": 30}
    for number, more in enumerate(({}, {"dead_letters_topic": dead})):
        folder = tmp_path / str(number)
        what = new_archive(broker.bootstrap, topic, folder, TableFormat.PARQUET, **typed, **more)
        query = run_query(lambda: start_archive(spark, what))  # noqa: B023
        assert sum(report["numInputRows"] for report in query.recentProgress) == 100
        assert ids(what.open_table()) == [number for number in range(100) if number not in (60, 99)]
    found = ds.dataset(str(tmp_path / "0" / "table" / "_dead_letters"), partitioning="hive").to_table()
    assert sorted(row["headers"][0]["value"] for row in found.to_pylist()) == [b"60", b"99"]
    assert sorted(dict(each.headers())["n"] for each in committed(broker.bootstrap, dead)) == [b"60", b"99"]
    assert not any((tmp_path / "1" / "table" / "_dead_letters").rglob("*.parquet")), "files of sent letters were left"


def test_an_archive_may_be_partitioned_by_the_hour_and_by_a_field(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(broker.bootstrap, 1)
    send(broker.bootstrap, topic, 0, 10, broken=(4,))
    what = new_archive(
        broker.bootstrap,
        topic,
        tmp_path,
        TableFormat.DELTA,
        value_format="json",
        value_schema=SCHEMA,
        partition_by=("topic", "hour", "value.note"),
    )
    archive(spark, what)
    values = [each.values for each in what.open_table().files()]
    hours = {row["timestamp"].strftime("%Y-%m-%d-%H") for row in rows_of_delta(what.to)}
    assert {each["hour"] for each in values} == hours
    assert {(each["topic"], each["note"]) for each in values} == {(topic, "n")}
    assert len(rows_of_delta(what.to)) == 9
    with pytest.raises(LakeError, match="is partitioned by topic, hour, note, not by topic, day"):
        start_archive(spark, replace(what, partition_by=("topic", "day")))


def rows_of_delta(where: str) -> list[Any]:
    import deltalake

    return list(deltalake.DeltaTable(where).to_pyarrow_table().to_pylist())


def test_spark_reads_odd_values_of_partitions_back(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    """Like Hive, Spark has no empty text in a folder's name: it is null."""
    from pyspark.sql import Row

    rows = spark.createDataFrame([Row(n=number, c=each) for number, each in enumerate(ODD)], "n INT, c STRING")
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("n INT, c STRING").parquet(str(tmp_path / "rows"))
    sink = TableSink(table=open_table(TableFormat.PARQUET, str(tmp_path / "table")), partition_by=("c",))
    sink.prepare(stream)
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_query(lambda: query.trigger(availableNow=True).start())
    read = spark.read.schema("n INT, c STRING").parquet(str(tmp_path / "table")).collect()
    assert sorted((row.n, row.c) for row in read) == [(number, each or None) for number, each in enumerate(ODD)]


SPEC: dict[str, Any] = {
    "pipeline": {"name": "kept", "trigger": "once"},
    "sinks": {"kept": {"from": "numbers", "table": "kept", "partition_by": ["note", "hour(_timestamp)"]}},
}


def test_a_table_of_a_declared_pipeline_mistakes_no_batch_for_another(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(broker.bootstrap, 1)
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    found = {**SPEC, "sources": {"numbers": {"topic": topic, "schema": SCHEMA}}}
    spec = parse_spec(found, folder=tmp_path)

    def start() -> list[Any]:
        return start_pipeline(spark, spec, bootstrap=broker.bootstrap, checkpoint=str(checkpoint))

    send(broker.bootstrap, topic, 0, 2)
    run_queries(start)
    shutil.copytree(checkpoint, backup)
    send(broker.bootstrap, topic, 2, 2)
    run_queries(start)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    send(broker.bootstrap, topic, 4, 2)
    with pytest.raises(SpecError, match=r"^sinks\.kept: .*older than the table\. Put back the checkpoint"):
        start()
    rows = ds.dataset(str(tmp_path / "kept"), partitioning="hive").to_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 3]
    hours = {(row["note"], row["timestamp_hour"], row["_timestamp"].strftime("%Y-%m-%d-%H")) for row in rows}
    assert all(note == "n" and hour == expected for note, hour, expected in hours)
