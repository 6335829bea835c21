"""Partition columns of tables: unusual values read back by other readers, and the syntax of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.unit.pyspark_penstock.lake_tables import batch_of

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.lake import Held, LakeError, LakeTable, TableFormat, open_table
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.data_files import FileWriting, RowWriting, Written, escaped, values_of
from pyspark_penstock.pipelines.partitioning import PartitionColumn, archive_columns, sink_columns
from pyspark_penstock.pipelines.table_sink import check_partition_columns

ODD = [
    "a b",
    "x/y",
    "../x",
    "..",
    ".",
    "50%",
    "%41",
    "k=v",
    ":",
    "é",
    "日本",
    "",
    None,
    "a%20b",
    "nul\u0001",
    "line\nbreak",
    "zero\x00",
    "\x7f",
    "'quoted' \"twice\"",
    "back\\slash",
    "A",
    "a",
    "{[^]}*?#",
    "~tilde",
    "_hidden",
]
LONG = "long" * 100
ODD_SCHEMA = pa.schema([("n", pa.int64()), ("c", pa.string())])


def put_odd(table: LakeTable, number: int, values: list[str | None]) -> None:
    batch = batch_of(number)
    table.prepare(ODD_SCHEMA, ("c",))
    found = pa.RecordBatch.from_pydict({"n": list(range(len(values))), "c": values}, schema=ODD_SCHEMA)
    writing = FileWriting(batch=batch, rows=RowWriting(layout=table.layout(batch), schema=schemas.to_text(ODD_SCHEMA)))
    written = Written.of(writing.write(iter([found]), "0-0"))
    table.commit(batch, written.files, Held())
    table.sweep(batch, written.files)


def read_back(kind: TableFormat, where: Path) -> list[tuple[int, str | None]]:
    """The rows as the format's own reader sees them."""
    if kind is TableFormat.DELTA:
        import deltalake

        found = deltalake.DeltaTable(str(where)).to_pyarrow_table()
    elif kind is TableFormat.ICEBERG:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("penstock", uri=f"sqlite:///{where}/catalog.sqlite", warehouse=f"file://{where}")
        found = catalog.load_table("penstock.archive").scan().to_arrow()
        catalog.close()
    else:
        by = ds.partitioning(pa.schema([("c", pa.string())]), flavor="hive")
        found = ds.dataset(str(where), partitioning=by).to_table()
    return sorted((row["n"], row["c"]) for row in found.to_pylist())


def expected(kind: TableFormat, values: list[str | None]) -> list[tuple[int, str | None]]:
    """Hive's folders and Delta's log have no empty text: it is null."""
    keeps_empty = kind is TableFormat.ICEBERG
    return [(number, each if each or keeps_empty else None) for number, each in enumerate(values)]


@pytest.mark.parametrize("kind", list(TableFormat))
def test_odd_values_are_read_back_as_they_were(kind: TableFormat, tmp_path: Path) -> None:
    table = open_table(kind, str(tmp_path))
    put_odd(table, 0, ODD)
    assert read_back(kind, tmp_path) == expected(kind, ODD)
    listed = {each.values["c"] for each in open_table(kind, str(tmp_path)).files()}
    assert listed == {value for _, value in expected(kind, ODD)}


@pytest.mark.parametrize("kind", list(TableFormat))
def test_files_of_odd_values_are_merged(kind: TableFormat, tmp_path: Path) -> None:
    for number in range(2):
        put_odd(open_table(kind, str(tmp_path)), number, ["x/y%41", "é", ""])
    compact(open_table(kind, str(tmp_path)), files_min=2)
    assert read_back(kind, tmp_path) == sorted(expected(kind, ["x/y%41", "é", ""]) * 2)
    assert len(open_table(kind, str(tmp_path)).files()) == 3


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_a_long_value_needs_no_long_folder_name(kind: TableFormat, tmp_path: Path) -> None:
    put_odd(open_table(kind, str(tmp_path)), 0, [LONG, LONG + "er"])
    assert read_back(kind, tmp_path) == [(0, LONG), (1, LONG + "er")]


def test_a_value_that_no_folder_can_be_named_by_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"of the column c makes a folder name of 402 bytes, and at most 255"):
        put_odd(open_table(TableFormat.PARQUET, str(tmp_path)), 0, [LONG])


def test_a_column_whose_folders_readers_would_ignore_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("_topic", pa.string())])
    with pytest.raises(LakeError, match="readers ignore folders whose names begin with '_'"):
        open_table(TableFormat.PARQUET, str(tmp_path)).prepare(schema, ("_topic",))
    open_table(TableFormat.DELTA, str(tmp_path)).prepare(schema, ("_topic",))


def test_folders_are_named_as_spark_names_them() -> None:
    # By Spark's ExternalCatalogUtils, which reads every escape as one character.
    assert escaped("é a/b:c%d=e") == "é a%2Fb%3Ac%25d%3De"
    assert values_of("c=é a%2Fb/x=__HIVE_DEFAULT_PARTITION__/f.parquet") == {"c": "é a/b", "x": None}


@pytest.mark.parametrize("kind", [pa.float64(), pa.timestamp("us", "UTC"), pa.binary(), pa.struct([("a", pa.int8())])])
def test_a_column_whose_values_are_no_texts_is_refused(kind: Any) -> None:
    with pytest.raises(LakeError, match="a table cannot be partitioned by c, which is of type"):
        check_partition_columns(pa.schema([("c", kind)]), ("c",))


@pytest.mark.parametrize("kind", [pa.string(), pa.int32(), pa.bool_(), pa.date32()])
def test_texts_whole_numbers_booleans_and_dates_are_possible(kind: Any) -> None:
    check_partition_columns(pa.schema([("c", kind)]), ("c",))


# As users write it


def test_an_archive_is_partitioned_by_the_hour_or_by_fields_of_its_values() -> None:
    columns = archive_columns(("topic", "hour", "value.address.city", "day(value.ordered_at)"), typed=True)
    assert [each.name for each in columns] == ["topic", "hour", "address_city", "ordered_at_day"]
    assert columns[0] == PartitionColumn(name="topic")
    assert columns[2].sql == "`value`.`address`.`city`"


@pytest.mark.parametrize(
    ("items", "typed", "words"),
    [
        (("offset",), True, "an archive is partitioned by topic, day, hour"),
        (("value.a",), False, "values have fields only if"),
        (("value.topic", "topic"), True, "the table has another column topic"),
        (("value.key",), True, "the table has another column key"),
        (("day", "day"), True, "the table has another column day"),
        (("topic; drop",), True, "is neither a column nor day"),
        (("value.a`b",), True, "is neither a column nor day"),
    ],
)
def test_unsupported_partition_columns_of_an_archive_are_refused(
    items: tuple[str, ...], typed: bool, words: str
) -> None:
    with pytest.raises(WrongOption, match=words):
        archive_columns(items, typed=typed)


def test_a_sink_is_partitioned_by_its_columns_or_their_hours() -> None:
    columns = sink_columns(("customer", "hour(ordered_at)", "order.country", "day(_timestamp)"))
    assert [each.name for each in columns] == ["customer", "ordered_at_hour", "order_country", "timestamp_day"]
    assert columns[0].sql == ""
