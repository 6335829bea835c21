"""The programs of examples/spark, in one session; the declarative pipeline in its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from pages import ROOT
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import Child
from pyspark_penstock.spark_internals import SPARK_VERSION
from spark.spark_processes import DRIVER_SECONDS_MAX, SPARK_HOME, environment
from spark.topic_contents import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "examples" / "spark"


def example(name: str) -> ModuleType:
    """A program as a module that is not importable by name, so that Spark sends its classes to workers by value."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_moving_average_is_written_for_every_closed_window(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    program = example("moving_average")
    program.send(spark, broker.bootstrap)

    found = {row.until.minute: row.celsius for row in program.run(spark, broker.bootstrap, str(tmp_path))}

    assert found[1] == 10.0
    assert found[5] == 12.0
    assert found[10] == 17.0
    assert max(found) < 28


def test_two_topics_are_joined_within_their_time(spark: SparkSession, broker: PenstockProcess, tmp_path: Path) -> None:
    program = example("join_topics")
    program.send(spark, broker.bootstrap)

    assert [tuple(row) for row in program.run(spark, broker.bootstrap, str(tmp_path))] == [(1, "ada", 9.5)]


@pytest.mark.skipif(SPARK_VERSION < (4, 1), reason="transformWithState came to Python with Spark 4.1")
def test_a_state_machine_for_each_key_goes_on_with_its_state_in_the_next_run(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    program = example("transform_with_state")
    program.send(spark, broker.bootstrap)
    first = program.run(spark, broker.bootstrap, str(tmp_path))
    program.send(spark, broker.bootstrap)
    second = program.run(spark, broker.bootstrap, str(tmp_path))

    assert [(row.user, json.loads(row.alert)["failures"]) for row in first] == [("ada", 3)]
    assert [row.user for row in second] == ["ada", "ada"]


def test_a_slowly_changing_table_has_one_row_for_each_version_after_repeated_batches(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    program = example("slowly_changing")
    program.send(spark, broker.bootstrap, [("ada", "London", "01"), ("bob", "Boston", "01"), ("ada", "Bath", "09")])
    program.run(spark, broker.bootstrap, str(tmp_path))
    program.send(spark, broker.bootstrap, [("ada", "Bath", "10"), ("bob", "Berlin", "11")])
    found = program.run(spark, broker.bootstrap, str(tmp_path))
    known, new = ((offset, datetime(2026, 5, 12, tzinfo=UTC)) for offset in (0, 1000))
    columns = "customer string, city string, changed_at timestamp, partition int, offset bigint"
    write = program.keep_history(f"{tmp_path}/history")
    # As after a crash, with a lost checkpoint, and with one that is older than the table.
    write(spark.createDataFrame([("bob", "Bonn", known[1], 0, known[0])], columns), 7)
    same = program.DeltaTable(f"{tmp_path}/history").to_pyarrow_table().num_rows
    write(spark.createDataFrame([("bob", "Bonn", new[1], 0, new[0])], columns), 0)
    more = program.DeltaTable(f"{tmp_path}/history").to_pyarrow_table().num_rows

    def day(moment: datetime | None) -> int | None:
        return moment.day if moment else None

    expected = [
        ("ada", "London", 1, 9),
        ("ada", "Bath", 9, None),
        ("bob", "Boston", 1, 11),
        ("bob", "Berlin", 11, None),
    ]
    assert [(row["customer"], row["city"], day(row["valid_from"]), day(row["valid_to"])) for row in found] == expected
    assert (same, more) == (len(expected), len(expected) + 1)


@pytest.mark.skipif(SPARK_VERSION < (4, 1), reason="declarative pipelines came with Spark 4.1")
def test_a_declarative_pipeline_reads_a_topic_into_tables_and_writes_another(
    broker: PenstockProcess, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for page, user in (("home", "ada"), ("checkout", "ada"), ("home", "bob")):
        producer.produce("clicks", value=json.dumps({"page": page, "user": user}))
    assert producer.flush(60) == 0
    folder = tmp_path / "declarative"
    shutil.copytree(EXAMPLES / "declarative", folder)
    specification = folder / "spark-pipeline.yml"
    specification.write_text(specification.read_text().replace("/tmp/penstock-clicks", str(folder / "storage")))
    child = Child(
        [str(SPARK_HOME / "bin" / "spark-pipelines"), "run", "--conf", "spark.sql.catalogImplementation=hive"],
        log=tmp_path / "pipeline.log",
        environment={**environment(tmp_path), "PENSTOCK_BOOTSTRAP": broker.bootstrap, "PATH": os.environ["PATH"]},
        folder=folder,
    )
    status = child.wait(DRIVER_SECONDS_MAX)
    child.kill()

    assert status == 0, child.tail()
    assert values(broker.bootstrap, "checkouts") == ["checkout"]
