"""Streaming and batch writes in a real Spark: columns, modes, options, and refusals before the first row."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.foreach import each_batch
from pyspark_penstock.link import BrokerLink, LinkSettings
from pyspark_penstock.sink_state import SinkNames
from pyspark_penstock.sink_store import SinkStore
from pyspark_penstock.txn_calls import open_transactions
from pyspark_penstock.write_options import LEDGER_TOPIC
from spark.counted_stream import CountedStream
from spark.late_workers import run_query
from spark.topic_contents import committed, make_topic, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SECONDS_MAX = 240


def run_to_its_end(writer: Any) -> None:
    """A streaming query over the available data."""
    run_query(writer.trigger(availableNow=True).start)


def write(table: DataFrame, broker: PenstockProcess, topic: str | None, /, **options: str) -> None:
    writer = table.write.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap).mode("append")
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).save()


def test_every_column_becomes_its_part_of_the_record(spark: SparkSession, broker: PenstockProcess) -> None:
    first, second = (make_topic(broker.bootstrap, partitions=4) for _ in range(2))
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    rows = [
        (first, "k1", b"v1", [("h", b"1"), ("h", None)], 3, at),
        (second, None, b"v2", None, 1, at),
        (first, "k3", None, [], 0, None),
    ]
    schema = (
        "topic string, key string, value binary, headers array<struct<key string, value binary>>, partition int,"
        " at timestamp"
    )

    write(spark.createDataFrame(rows, schema), broker, None, **{"timestamp.column": "at"})

    one, three = sorted(committed(broker.bootstrap, first), key=lambda message: -message.partition())
    (two,) = committed(broker.bootstrap, second)
    assert (one.key(), one.value(), one.partition(), one.headers()) == (b"k1", b"v1", 3, [("h", b"1"), ("h", None)])
    assert one.timestamp()[1] == int(at.timestamp() * 1000)
    assert (two.key(), two.value(), two.partition(), two.headers()) == (None, b"v2", 1, None)
    assert (three.key(), three.value(), three.partition()) == (b"k3", None, 0)
    assert three.timestamp()[1] > one.timestamp()[1]


def test_a_timestamp_column_without_the_option_gives_the_time_of_writing(
    spark: SparkSession, broker: PenstockProcess
) -> None:
    topic = make_topic(broker.bootstrap)
    before_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)

    write(spark.sql("select 'x' as value, timestamp '2001-01-01' as timestamp"), broker, topic)

    (found,) = committed(broker.bootstrap, topic)
    assert found.timestamp()[1] >= before_ms


def test_keys_go_where_other_producers_put_them(spark: SparkSession, broker: PenstockProcess) -> None:
    ours, theirs = (make_topic(broker.bootstrap, partitions=7) for _ in range(2))
    keys = [f"key-{index}" for index in range(200)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs, key=key, value=key)
    assert producer.flush(SECONDS_MAX) == 0

    write(spark.createDataFrame([(key, key) for key in keys], "key string, value string"), broker, ours)

    def places(topic: str) -> dict[bytes, int]:
        return {message.key(): message.partition() for message in committed(broker.bootstrap, topic)}

    assert places(ours) == places(theirs)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read_by_others(spark: SparkSession, broker: PenstockProcess, codec: str) -> None:
    topic = make_topic(broker.bootstrap, partitions=3)

    write(
        spark.range(5000).selectExpr("concat('value-', id) as value"),
        broker,
        topic,
        **{"kafka.compression.type": codec, "kafka.batch.size": "4000"},
    )

    messages = committed(broker.bootstrap, topic)
    assert {message.value().decode() for message in messages} == {f"value-{index}" for index in range(5000)}
    assert len(messages) == 5000
    assert {message.partition() for message in messages} == {0, 1, 2}


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("id as value", {"topic": "t"}, "value attribute unsupported type bigint"),
        ("'x' as key", {"topic": "t"}, "Required attribute 'value' not found"),
        ("'x' as value", {"topic": "t", "timestamp.column": "at"}, "names the column 'at', and there is none"),
        ("'x' as value", {}, "topic option required when no 'topic' attribute is present"),
        ("'x' as value", {"topic": "t", "kafka.akcs": "all"}, "'akcs' is not a producer property"),
        (
            "'x' as value",
            {"topic": "t", "kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": "hunter2"},
            "SASL",
        ),
    ],
)
def test_wrong_options_and_schemas_are_refused_before_the_first_row(
    spark: SparkSession, broker: PenstockProcess, columns: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match=says) as refused:
        write(spark.range(3).selectExpr(columns), broker, None, **options)
    assert "hunter2" not in str(refused.value)


def test_overwriting_a_topic_is_refused(spark: SparkSession, broker: PenstockProcess) -> None:
    writer = spark.range(1).selectExpr("'x' as value").write.format("penstock").mode("overwrite")

    with pytest.raises(Exception, match="Save mode Overwrite not allowed"):
        writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "t").save()


def test_a_table_is_written_whole_or_not_at_all(spark: SparkSession, broker: PenstockProcess) -> None:
    topic = make_topic(broker.bootstrap)
    # The last of four tasks fails, when the others have long written their rows.
    broken = spark.range(0, 4000, 1, 4).selectExpr(
        "cast(id as string) as value", "cast(if(id = 3999, -1, id % 2) as int) as partition"
    )

    with pytest.raises(Exception, match="below zero"):
        write(broken, broker, topic)
    assert values(broker.bootstrap, topic) == []

    write(broken.where("partition >= 0"), broker, topic)
    assert len(values(broker.bootstrap, topic)) == 3999


def test_a_finished_batch_write_leaves_no_ledger_and_nothing_open(spark: SparkSession, broker: PenstockProcess) -> None:
    topic, sink = make_topic(broker.bootstrap), f"once-{uuid.uuid4().hex[:6]}"

    write(spark.range(0, 100, 1, 3).selectExpr("cast(id as string) value"), broker, topic, sinkId=sink)

    with BrokerLink(LinkSettings(bootstrap=broker.bootstrap)) as link:
        assert open_transactions(link, sink) == []
        assert SinkStore(link, SinkNames(sink=sink), LEDGER_TOPIC).read() is None
    assert len(values(broker.bootstrap, topic)) == 100


def test_a_numbered_batch_is_written_once_however_often_it_is_tried(
    spark: SparkSession, broker: PenstockProcess
) -> None:
    topic, sink = make_topic(broker.bootstrap), f"numbered-{uuid.uuid4().hex[:6]}"
    table = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) as value")

    for number in (0, 0, 1, 1):
        write(table, broker, topic, sinkId=sink, batchId=str(number))

    assert sorted(values(broker.bootstrap, topic)) == sorted([str(index) for index in range(10)] * 2)


def test_a_batch_that_was_committed_is_not_written_again_when_spark_replays_it(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    stream = CountedStream(tmp_path, make_topic(broker.bootstrap))
    for _ in range(3):
        stream.add_batch()
    assert stream.run(spark, broker.bootstrap) == []
    # As after a crash between the sink's commit and the note of it in the query's own log.
    for name in ("2", ".2.crc"):
        (stream.checkpoint / "commits" / name).unlink(missing_ok=True)

    stream.add_batch()
    assert stream.run(spark, broker.bootstrap) == []

    stream.check(broker.bootstrap)


def test_a_checkpoint_that_is_one_batch_older_than_the_output_drops_nothing(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    stream = CountedStream(tmp_path, make_topic(broker.bootstrap))
    stream.add_batch()
    assert stream.run(spark, broker.bootstrap) == []
    shutil.copytree(stream.checkpoint, tmp_path / "backup")
    stream.add_batch()
    assert stream.run(spark, broker.bootstrap) == []
    shutil.rmtree(stream.checkpoint)
    shutil.copytree(tmp_path / "backup", stream.checkpoint)
    # The second batch's files are gone from the source, so that batch 1 would be the third's.
    for path in sorted(stream.input.iterdir())[2:4]:
        path.rename(tmp_path / path.name)
    stream.add_batch()

    with pytest.raises(
        StreamingQueryException, match=r"the sink has batch 1 already.*80 rows.*resolveBatch to 1:write"
    ):
        stream.start(spark, broker.bootstrap).awaitTermination(SECONDS_MAX)

    # The query goes on if a user says that the batch is another.
    assert stream.run(spark, broker.bootstrap, resolveBatch="1:write") == []
    stream.check(broker.bootstrap)


def test_outputs_that_share_a_sink_and_queries_without_their_checkpoint_are_refused_in_each_batch(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    one, two = make_topic(broker.bootstrap), make_topic(broker.bootstrap)
    sink, bootstrap = f"shared-{uuid.uuid4().hex[:6]}", {"kafka.bootstrap.servers": broker.bootstrap}
    first, second = (each_batch(sink, {**bootstrap, "topic": topic}) for topic in (one, two))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("a\nb")

    def both(table: DataFrame, number: int) -> None:
        first(table, number)
        second(table, number)

    def run(write: Any, checkpoint: str) -> None:
        lines = spark.readStream.format("text").load(str(tmp_path / "in"))
        run_to_its_end(lines.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / checkpoint)))

    with pytest.raises(StreamingQueryException, match="two outputs cannot share a sinkId"):
        run(both, "c")
    (tmp_path / "in" / "1.txt").write_text("c")
    with pytest.raises(StreamingQueryException, match="two queries cannot share a sinkId"):
        run(first, "lost")
    run(first, "c")

    assert sorted(values(broker.bootstrap, one)) == ["a", "b", "c"]
    assert values(broker.bootstrap, two) == []


def test_a_checkpoint_without_its_ledger_is_a_clear_error(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    stream = CountedStream(tmp_path, make_topic(broker.bootstrap))
    sink = f"forgetful-{uuid.uuid4().hex[:6]}"
    stream.add_batch()
    assert stream.run(spark, broker.bootstrap, sinkId=sink) == []
    with BrokerLink(LinkSettings(bootstrap=broker.bootstrap)) as link:
        SinkStore(link, SinkNames(sink=sink), LEDGER_TOPIC).forget()

    stream.add_batch()
    with pytest.raises(StreamingQueryException, match="ledgerMissing"):
        stream.start(spark, broker.bootstrap, sinkId=sink).awaitTermination(SECONDS_MAX)

    # Spark lets the other task of the query that failed run on for a moment: it may take the sink back once.
    failures = stream.run(spark, broker.bootstrap, sinkId=sink, ledgerMissing="begin")
    if failures:
        assert re.search("took over|taken over", failures[0]), failures
        assert stream.run(spark, broker.bootstrap, sinkId=sink, ledgerMissing="begin") == []

    stream.check(broker.bootstrap)


def test_a_second_query_cannot_take_a_sink_by_its_name(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    topic, sink = make_topic(broker.bootstrap), f"shared-{uuid.uuid4().hex[:6]}"
    one, other = CountedStream(tmp_path / "one", topic), CountedStream(tmp_path / "other", topic)
    one.add_batch()
    other.add_batch()
    assert one.run(spark, broker.bootstrap, sinkId=sink) == []

    with pytest.raises(StreamingQueryException, match="two queries cannot share a sinkId"):
        other.start(spark, broker.bootstrap, sinkId=sink).awaitTermination(SECONDS_MAX)

    one.check(broker.bootstrap)


def counts(spark: SparkSession, folder: Path) -> DataFrame:
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(str(folder))
    return lines.groupBy("value").count().selectExpr("value as key", "cast(count as string) as value")


def test_complete_mode_writes_the_whole_result_every_time(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    topic = make_topic(broker.bootstrap)
    for round_ in range(2):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{round_}.txt").write_text("a\nb\na")
        query = counts(spark, tmp_path / "in").writeStream.format("penstock").outputMode("complete")
        query = query.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
        run_to_its_end(query.option("checkpointLocation", str(tmp_path / "c")))

    found = sorted((message.key().decode(), message.value().decode()) for message in committed(broker.bootstrap, topic))
    assert found == [("a", "2"), ("a", "4"), ("b", "1"), ("b", "2")]


def test_update_mode_goes_through_each_batch_and_is_replayed_without_duplicates(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    topic, sink = make_topic(broker.bootstrap), f"updates-{uuid.uuid4().hex[:6]}"
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    write_batch = each_batch(sink, options)

    def twice(table: Any, number: int) -> None:
        write_batch(table, number)
        write_batch(table, number)

    for round_, text in enumerate(("a\nb", "a\nc")):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{round_}.txt").write_text(text)
        query = counts(spark, tmp_path / "in").writeStream.outputMode("update").foreachBatch(twice)
        run_to_its_end(query.option("checkpointLocation", str(tmp_path / "c")))

    found = sorted((message.key().decode(), message.value().decode()) for message in committed(broker.bootstrap, topic))
    assert found == [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")]


def test_at_least_once_needs_no_ledger(spark: SparkSession, broker: PenstockProcess, tmp_path: Path) -> None:
    stream = CountedStream(tmp_path, make_topic(broker.bootstrap))
    stream.add_batch()

    assert stream.run(spark, broker.bootstrap, delivery="at-least-once") == []

    assert sorted(values(broker.bootstrap, stream.topic)) == sorted(stream.lines)
