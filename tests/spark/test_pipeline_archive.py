"""Archives and replays on real Spark and a real broker: every record once, through all failures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.lake import LakeTable, OutOfStep, SchemaClash, TableFormat
from pyspark_penstock.pipelines.archive import Archive, finish_archive, start_archive
from pyspark_penstock.pipelines.checkpoint import WrongCheckpoint
from pyspark_penstock.pipelines.replay import Replay, start_replay
from pyspark_penstock.pipelines.replay_plan import Wanted
from spark.late_workers import run_query
from spark.topic_contents import committed, make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, note STRING"
SEND_SECONDS_MAX = 90.0
ADDRESS = "file://"
"""An address is never mistaken for a local path."""


def send(bootstrap: str, topic: str, first: int, count: int, *, broken: tuple[int, ...] = ()) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        value = b"{broken" if number in broken else json.dumps({"id": number, "note": "n"}).encode()
        producer.produce(topic, value, b"k%d" % (number % 7), headers=[("n", str(number).encode())])
    assert producer.flush(SEND_SECONDS_MAX) == 0


def archive(spark: SparkSession, what: Archive) -> None:
    run_query(lambda: start_archive(spark, what))


def ids(table: LakeTable) -> list[int]:
    """The header that numbers every record, sorted, duplicates included."""
    found: list[int] = []
    for each in table.files():
        for headers in pq.ParquetFile(table.store.full(each.path)).read(columns=["headers"]).column("headers"):
            found += [int(header["value"]) for header in headers.as_py()]
    return sorted(found)


def new_archive(bootstrap: str, topic: str, folder: Path, kind: TableFormat, scheme: str = "", **more: Any) -> Archive:
    return Archive(
        name=f"archive-{topic}",
        bootstrap=bootstrap,
        topics=(topic,),
        to=f"{scheme}{folder}/table",
        format=kind,
        checkpoint=f"{scheme}{folder}/checkpoint",
        once=True,
        **more,
    )


@pytest.mark.parametrize("kind", list(TableFormat))
def test_an_archive_keeps_every_record_once_and_separates_dead_letters(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path, kind: TableFormat
) -> None:
    topic = make_topic(broker.bootstrap)
    send(broker.bootstrap, topic, 0, 200, broken=(3, 199))
    what = new_archive(broker.bootstrap, topic, tmp_path, kind, ADDRESS, value_format="json", value_schema=SCHEMA)
    archive(spark, what)
    send(broker.bootstrap, topic, 200, 50)
    # A lost checkpoint: the table itself says where to go on.
    again = replace(what, checkpoint=f"{ADDRESS}{tmp_path}/another", compacts=True)
    archive(spark, again)
    finish_archive(again)
    table = what.open_table()
    assert ids(table) == [number for number in range(250) if number not in (3, 199)]
    assert sum(table.held().offsets.values()) == 250
    assert len(table.files()) == 2
    dead = ds.dataset(str(tmp_path / "table" / "_dead_letters"), partitioning="hive").to_table().to_pylist()
    assert [each["value"] for each in dead] == [b"{broken"] * 2
    assert all(each["error"].startswith("no JSON: ") for each in dead)


def test_a_schema_may_grow_and_may_not_change(broker: PenstockProcess, spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic(broker.bootstrap, 1)
    send(broker.bootstrap, topic, 0, 10)
    what = new_archive(
        broker.bootstrap, topic, tmp_path, TableFormat.DELTA, value_format="json", value_schema="id BIGINT"
    )
    archive(spark, what)
    send(broker.bootstrap, topic, 10, 10)
    archive(spark, replace(what, value_schema=SCHEMA))
    import deltalake

    rows = deltalake.DeltaTable(what.to).to_pyarrow_table().sort_by("offset").column("value").to_pylist()
    assert rows[9] == {"id": 9, "note": None}
    assert rows[10] == {"id": 10, "note": "n"}
    with pytest.raises(SchemaClash, match=r"value\.id as int64"):
        start_archive(spark, replace(what, value_schema="id STRING, note STRING"))


def test_a_checkpoint_of_something_else_is_refused(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic, other = make_topic(broker.bootstrap, 1), make_topic(broker.bootstrap, 1)
    send(broker.bootstrap, topic, 0, 10)
    what = new_archive(broker.bootstrap, topic, tmp_path, TableFormat.PARQUET)
    archive(spark, what)
    with pytest.raises(WrongCheckpoint, match=f"reads {topic}, not {other}"):
        start_archive(spark, replace(what, topics=(other,)))
    # The checkpoint is this topic's, and the table is not its own. There is nothing to archive.
    with pytest.raises(OutOfStep, match="they do not belong together"):
        start_archive(spark, replace(what, to=str(tmp_path / "elsewhere")))


def test_dead_letters_go_to_a_topic_and_a_replay_brings_the_rest_back_in_order(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    topic, dead, again = (make_topic(broker.bootstrap, name=name) for name in ("orders", "dead", "again"))
    send(broker.bootstrap, topic, 0, 300, broken=(7,))
    what = new_archive(
        broker.bootstrap,
        topic,
        tmp_path,
        TableFormat.PARQUET,
        ADDRESS,
        value_format="json",
        value_schema=SCHEMA,
        dead_letters_topic=dead,
    )
    archive(spark, what)
    (letter,) = committed(broker.bootstrap, dead)
    headers = dict(letter.headers())
    assert letter.value() == b"{broken"
    assert headers["n"] == b"7"
    assert headers["penstock.topic"] == topic.encode()
    before = committed(broker.bootstrap, topic)
    assert [letter.timestamp()] == [each.timestamp() for each in before if each.value() == b"{broken"]
    replay = Replay(
        name="replay",
        bootstrap=broker.bootstrap,
        table=what.to,
        to_topic=again,
        checkpoint=f"{ADDRESS}{tmp_path}/replay",
        wanted=Wanted(offset_min=10),
        rate=150,
        keeps_partitions=True,
    )
    for _ in range(2):
        # The second time there is nothing left to send.
        run_query(lambda: start_replay(spark, replay))
    wanted = [each for each in before if each.offset() >= 10 and each.value() != b"{broken"]
    assert seen(committed(broker.bootstrap, again)) == seen(wanted)
    with pytest.raises(WrongCheckpoint, match="is of another replay"):
        start_replay(spark, replace(replay, to_topic=dead))


def seen(messages: list[Any]) -> list[tuple[Any, ...]]:
    """What a consumer sees of records, in the order of each partition."""
    ordered = sorted(messages, key=lambda each: (each.partition(), each.offset()))
    return [(each.partition(), each.key(), each.value(), each.headers(), each.timestamp()) for each in ordered]
