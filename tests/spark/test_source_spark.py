"""Topics through Spark itself: batch and stream, options of users, and errors for wrong ones."""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from pyspark.errors import PySparkException
from tests.unit.pyspark_penstock.java_patterns import NAMES, TRANSLATED

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.java_regex import translated
from spark.late_workers import run_query, running_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SECONDS_MAX = 240.0
SECRET = "hunter2-is-no-password"
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


class Case:
    """One test's topic, and the reads it makes."""

    def __init__(self, spark: SparkSession, broker: PenstockProcess, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = broker.bootstrap
        self.folder = folder
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        [made] = self.admin.create_topics([NewTopic(self.topic, 2, 1)]).values()
        made.result(SECONDS_MAX)

    def fill(self, *values: bytes, partition: int = 0, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for value in values:
            producer.produce(self.topic, value, partition=partition, **more)
        assert producer.flush(SECONDS_MAX) == 0

    def options(self, given: dict[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, **given}

    def table(self, **options: str) -> DataFrame:
        return self.spark.read.format("penstock").options(**self.options(options)).load()

    def stream(self, **options: str) -> DataFrame:
        given = self.options({"startingOffsets": "earliest", **options})
        return self.spark.readStream.format("penstock").options(**given).load()

    def run(self, frame: DataFrame, take: Callable[[DataFrame, int], None], **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def drained(self, frame: DataFrame) -> list[list[bytes]]:
        """The values of each batch until all that is there now is read."""
        found: list[list[bytes]] = []
        run_query(lambda: self.run(frame, lambda batch, _: found.append([bytes(row.value) for row in batch.collect()])))
        return found


@pytest.fixture
def case(spark: SparkSession, broker: PenstockProcess, tmp_path: Path) -> Case:
    return Case(spark, broker, tmp_path)


def test_a_topic_is_a_table_with_the_connectors_columns(case: Case) -> None:
    case.fill(b"hello", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1_700_000_000_123)
    case.fill(b"plain", partition=1)
    table = case.table(includeHeaders="true")
    assert table.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    first, second = table.orderBy("partition").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"hello", case.topic)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    seconds = case.spark.sql("select timestamp_millis(1700000000123) as t").collect()[0].t
    assert first.timestamp == seconds
    assert [(each.key, each.value) for each in first.headers] == [("h", b"1"), ("n", None)]
    assert (second.key, second.headers) == (None, None)


def test_typed_values_are_columns_and_values_that_do_not_parse_are_found(case: Case) -> None:
    case.fill(b'{"id": 1, "tags": ["a"]}', b"oops", b'{"id": "x"}')
    table = case.table(**{"value.format": "json", "value.schema": "id bigint, tags array<string>"})
    good = table.where("value_error is null").select("value.id", "value.tags").collect()
    assert [(row.id, list(row.tags)) for row in good] == [(1, ["a"])]
    assert [row.value_error for row in table.where("value_error is not null").orderBy("offset").collect()] == [
        "no JSON: invalid character (byte 0)",
        "id is a string",
    ]
    text = case.table(**{"value.format": "string", "columns": "offset,value"})
    assert text.where("offset = 1").collect()[0].value == "oops"


def test_filters_on_partition_offset_and_time_are_pushed_where_spark_pushes(case: Case) -> None:
    for index in range(10):
        case.fill(b"%d" % index, timestamp=1_700_000_000_000 + index * 1000)
    case.fill(b"other", partition=1)
    wanted = "partition = 0 and offset >= 2 and offset < 8 and timestamp >= timestamp_millis(1700000005000)"
    plain = case.table().where(wanted)
    expected = [b"5", b"6", b"7"]
    assert [bytes(row.value) for row in plain.collect()] == expected
    case.spark.conf.set(PUSH_DOWN, "true")
    try:
        pushed = case.table(filterPushdown="true").where(wanted)
        assert [bytes(row.value) for row in pushed.collect()] == expected
        assert pushed.rdd.getNumPartitions() == 1
        assert case.table(filterPushdown="true").where("partition = 1").rdd.getNumPartitions() == 1
        # Spark keeps what it planned with a filter for the frame's next query.
        reused = case.table()
        everything = case.table().count()
        assert reused.where("partition = 1").count() < everything
        assert reused.count() == everything
    finally:
        case.spark.conf.unset(PUSH_DOWN)
    assert plain.rdd.getNumPartitions() == 2


def test_a_stream_stops_and_goes_on_from_its_checkpoint(case: Case) -> None:
    case.fill(*[b"%d" % index for index in range(10)])
    batches = case.drained(case.stream(maxOffsetsPerTrigger="4"))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    case.fill(b"later", partition=1)
    assert case.drained(case.stream(maxOffsetsPerTrigger="4")) == [[b"later"]]
    assert case.drained(case.stream(startingOffsets="latest")) == []


def test_a_stream_that_starts_at_the_end_reads_later_records(case: Case) -> None:
    case.fill(b"before")
    assert case.drained(case.stream(startingOffsets="latest")) == [[]]
    case.fill(b"after")
    assert case.drained(case.stream(startingOffsets="latest")) == [[b"after"]]


def test_the_offsets_of_a_query_are_visible_as_those_of_a_group(case: Case) -> None:
    case.fill(b"a", b"b", b"c")
    group = f"g-{case.topic}"
    case.drained(case.stream(commitGroup=group))
    consumer = Consumer({"bootstrap.servers": case.bootstrap, "group.id": group, "log_level": 0})
    [committed] = consumer.committed([TopicPartition(case.topic, 0)], SECONDS_MAX)
    consumer.close()
    assert committed.offset == 3
    case.fill(b"d")
    follower = case.table(startingGroup=group)
    assert [bytes(row.value) for row in follower.collect()] == [b"d"]


def test_a_running_query_reads_new_partitions_and_survives_a_broker_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    with PenstockProcess() as broker:
        case = Case(spark, broker, tmp_path)
        found: list[bytes] = []
        query = running_query(
            lambda: case.run(
                case.stream(),
                lambda batch, _: found.extend(bytes(row.value) for row in batch.collect()),
                processingTime="0 seconds",
            )
        )
        try:
            case.fill(b"a")
            query.processAllAvailable()
            [made] = case.admin.create_partitions([NewPartitions(case.topic, 3)]).values()
            made.result(SECONDS_MAX)
            case.fill(b"new", partition=2)
            query.processAllAvailable()
            broker.kill()
            broker.start()
            case.fill(b"after")
            query.processAllAvailable()
        finally:
            query.stop()
    assert found == [b"a", b"new", b"after"]


def refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as failure:
        attempt()
    return str(failure.value)


def test_wrong_options_are_refused_when_the_table_is_made(case: Case) -> None:
    assert "minPartitions must be positive" in refused(lambda: case.table(minPartitions="0"))
    unknown = refused(lambda: case.spark.read.format("penstock").option("subscribe", "t").load())
    assert "Option 'kafka.bootstrap.servers' must be specified" in unknown
    assert "starting offset can't be latest" in refused(lambda: case.table(startingOffsets="latest").count())
    ended = case.stream(endingOffsets="latest")
    assert "ending offset not valid in streaming queries" in refused(lambda: case.drained(ended))
    typed = case.spark.read.format("penstock").schema("a int").options(**case.options({}))
    assert "fixed schema and cannot be set with a custom one" in refused(lambda: typed.load().count())


def test_a_topic_that_does_not_exist_is_named(case: Case) -> None:
    assert "Topic nowhere does not exist" in refused(lambda: case.table(subscribe="nowhere").count())


def test_lost_data_fails_a_query_unless_fail_on_data_loss_is_false(case: Case) -> None:
    case.fill(b"a", b"b")
    assert case.drained(case.stream()) == [[b"a", b"b"]]
    case.fill(*[b"%d" % index for index in range(8)])
    [done] = case.admin.delete_records([TopicPartition(case.topic, 0, 6)]).values()
    done.result(SECONDS_MAX)
    words = refused(lambda: case.drained(case.stream()))
    assert "KAFKA_DATA_LOSS" in words
    assert "offset [2, 6)" in words
    assert case.drained(case.stream(failOnDataLoss="false")) == [[b"4", b"5", b"6", b"7"]]


def test_no_secret_is_in_a_plan_or_an_error(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    secret = {"kafka.ssl.key.password": SECRET, "kafka.sasl.jaas.config": f"password={SECRET}"}
    case.fill(b"a")
    table = case.table(**secret)
    table.explain("extended")
    assert table.count() == 1
    words = refused(lambda: case.table(subscribe="nowhere", **secret).count())
    words += refused(lambda: case.table(minPartitions="0", **secret))
    query = run_query(lambda: case.run(case.stream(**secret), lambda batch, _: None))
    words += str(query.lastProgress) + str(query.recentProgress)
    shown = capfd.readouterr()
    assert "penstock" in shown.out
    assert SECRET not in words + shown.out + shown.err


def test_timestamps_are_instants_in_any_session_time_zone(case: Case) -> None:
    moment = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
    case.fill(b"a", timestamp=int(moment.timestamp() * 1000))
    shown = case.table().selectExpr("unix_millis(timestamp) as t").collect()[0].t
    assert shown == int(moment.timestamp() * 1000)


def test_java_agrees_with_every_pattern_that_is_translated(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    assert java is not None
    for pattern in TRANSLATED:
        compiled, ours = java.java.util.regex.Pattern.compile(pattern), re.compile(translated(pattern))
        theirs = [name for name in NAMES if compiled.matcher(name).matches()]
        assert [name for name in NAMES if ours.fullmatch(name)] == theirs, pattern


def set_active(case: Case, count: int | None) -> None:
    """Write to so many partitions of the topic, or to all of them."""
    operation = AlterConfigOpType.DELETE if count is None else AlterConfigOpType.SET
    entry = ConfigEntry("partitions.active", None if count is None else str(count), incremental_operation=operation)
    wanted = ConfigResource("topic", case.topic, incremental_configs=[entry])
    [changed] = case.admin.incremental_alter_configs([wanted]).values()
    changed.result(SECONDS_MAX)


def test_a_stream_reads_on_while_a_partition_is_drained_and_when_it_resumes(case: Case) -> None:
    frame = case.stream()
    found: list[bytes] = []

    def read_on() -> None:
        found.extend(value for batch in case.drained(frame) for value in batch)

    case.fill(b"before", partition=1)
    read_on()
    set_active(case, 1)
    case.fill(b"drained", partition=1)
    rows = case.spark.createDataFrame([("by spark", 1)], "value string, partition int")
    writer = rows.write.format("penstock").option("kafka.bootstrap.servers", case.bootstrap)
    writer.option("topic", case.topic).mode("append").save()
    read_on()
    set_active(case, None)
    case.fill(b"after", partition=1)
    read_on()

    assert found == [b"before", b"drained", b"by spark", b"after"]
    table = {bytes(row.value): row.partition for row in case.table().collect()}
    assert table == {b"before": 1, b"drained": 0, b"by spark": 0, b"after": 1}
