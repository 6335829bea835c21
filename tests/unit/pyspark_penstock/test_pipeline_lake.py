"""Lake tables without Spark: what a commit makes of files, what a crash leaves, what is refused, what is merged."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_penstock.lake import (
    Batch,
    DataFile,
    LakeError,
    LakeTable,
    OutOfStep,
    SchemaClash,
    TableFormat,
    check_step,
    open_table,
)
from pyspark_penstock.pipelines import data_files, schemas
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.data_files import FileWriting, TaskFiles, Written, partitioned, with_footer
from pyspark_penstock.pipelines.store import Store

WRITER = "7f6c"
BY = ("topic", "day")


def rows(first: int, count: int, *, partition: int = 0, day: int = 1, value: dict[str, Any] | None = None) -> Any:
    times = [datetime(2026, 1, day, tzinfo=UTC) + timedelta(milliseconds=number) for number in range(count)]
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([value or {"id": first + number} for number in range(count)]),
            "headers": pa.array([[{"key": "h", "value": b"v"}]] * count),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "day": pa.array([each.date() for each in times]),
        }
    )


def write(table: LakeTable, number: int, *batches: Any, attempt: int = 0) -> Written:
    """What the tasks of a batch do, a task for each Arrow batch."""
    batch = Batch(writer=WRITER, number=number)
    schema = schemas.to_text(batches[0].schema)
    writing = FileWriting(layout=table.layout(batch), batch=batch, schema=schema, spans=True)
    told = [
        json.dumps({"file": file.to_json()})
        for task, each in enumerate(batches)
        for file in TaskFiles(writing, f"{task}-{attempt}").write(iter([each]))
    ]
    return Written.of(told)


def put(table: LakeTable, number: int, *batches: Any) -> Written:
    table.prepare(batches[0].schema, BY)
    written = write(table, number, *batches)
    batch = Batch(writer=WRITER, number=number)
    table.commit(batch, written.files, written.ends)
    table.sweep(batch, written.files)
    return written


def held_offsets(table: LakeTable) -> list[int]:
    """Every offset in the table's files, sorted: a row that is there twice is here twice."""
    found: list[int] = []
    for each in table.files():
        file = pq.ParquetFile(table.store.full(each.path), filesystem=table.store.files)
        found += file.read(columns=["offset"]).column("offset").to_pylist()
    return sorted(found)


PLACES = {
    "parquet": (TableFormat.PARQUET, "{folder}/table"),
    "delta": (TableFormat.DELTA, "{folder}/table"),
    "iceberg": (TableFormat.ICEBERG, "{folder}/table"),
    "parquet-at-an-address": (TableFormat.PARQUET, "file://{folder}/table"),
    "delta-at-an-address": (TableFormat.DELTA, "file://{folder}/table"),
    "iceberg-at-an-address": (TableFormat.ICEBERG, "file://{folder}/table"),
    # Objects and no disk: nothing can be renamed, or lies at a path of this machine.
    "parquet-of-objects": (TableFormat.PARQUET, "fsspec+memory://{folder}/table"),
}


@pytest.fixture(params=list(PLACES))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    kind, where = PLACES[request.param]
    return open_table(kind, where.format(folder=tmp_path))


def reopened(table: LakeTable, request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    kind, where = PLACES[request.node.callspec.params["table"]]
    return open_table(kind, where.format(folder=tmp_path))


def test_a_commit_adds_files_the_batch_and_the_offsets_together(
    table: LakeTable, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    put(table, 0, rows(0, 10), rows(0, 5, partition=1))
    put(table, 1, rows(10, 5))
    again = reopened(table, request, tmp_path)
    assert again.last_batch(WRITER) == 1
    assert again.last_batch("another") is None
    assert again.offsets() == {("orders", 0): 15, ("orders", 1): 5}
    assert held_offsets(again) == sorted([*range(15), *range(5)])


def test_files_lie_by_topic_and_day(table: LakeTable) -> None:
    put(table, 0, rows(0, 3, day=1), rows(3, 3, day=2))
    assert [dict(each.values) for each in table.files()] == [
        {"topic": "orders", "day": "2026-01-01"},
        {"topic": "orders", "day": "2026-01-02"},
    ]


def test_files_that_were_not_committed_are_not_in_the_table(table: LakeTable) -> None:
    put(table, 0, rows(0, 3))
    write(table, 1, rows(3, 3))
    assert held_offsets(table) == [0, 1, 2]


def test_what_an_earlier_attempt_left_is_swept(table: LakeTable) -> None:
    table.prepare(rows(0, 1).schema, BY)
    left = write(table, 0, rows(0, 3), attempt=7)
    put(table, 0, rows(0, 3))
    assert not table.store.exists(left.files[0].path)
    assert held_offsets(table) == [0, 1, 2]


def test_a_batch_that_begins_before_the_tables_end_is_refused(table: LakeTable) -> None:
    put(table, 0, rows(0, 10))
    with pytest.raises(OutOfStep, match=r"holds orders-0 up to offset 9, and this batch begins at 8"):
        put(table, 1, rows(8, 5))
    assert held_offsets(table) == list(range(10))


def test_a_new_field_is_added_to_the_table(table: LakeTable, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    put(table, 0, rows(0, 2))
    put(table, 1, rows(2, 2, value={"id": 1, "note": "new"}))
    again: Any = reopened(table, request, tmp_path)
    names = [field.name for field in again.schema().field("value").type]
    assert names == ["id", "note"]
    assert held_offsets(again) == [0, 1, 2, 3]


def test_a_field_that_changes_its_type_is_refused(table: LakeTable) -> None:
    put(table, 0, rows(0, 2))
    with pytest.raises(SchemaClash, match=r"the column value\.id as int64, and what is written has it as string"):
        table.prepare(rows(2, 2, value={"id": "seven"}).schema, BY)


def test_a_table_partitioned_by_something_else_is_refused(table: LakeTable) -> None:
    put(table, 0, rows(0, 2))
    with pytest.raises(LakeError, match="is partitioned by topic, day, not by topic"):
        table.prepare(rows(0, 2).schema, ("topic",))


def test_small_neighbours_become_one_file_with_the_same_rows(table: LakeTable) -> None:
    for number in range(4):
        put(table, number, rows(10 * number, 10), rows(10 * number, 10, partition=1))
    assert compact(table, files_min=2) == 6
    assert len(table.files()) == 2
    assert held_offsets(table) == sorted([*range(40), *range(40)])
    assert table.last_batch(WRITER) == 3
    assert table.offsets() == {("orders", 0): 40, ("orders", 1): 40}
    spans = [with_footer(table.store, each).spans[0] for each in table.files()]
    assert {(span.partition, span.offset_min, span.offset_max) for span in spans} == {(0, 0, 39), (1, 0, 39)}


def test_too_few_small_files_are_left_alone(table: LakeTable) -> None:
    for number in range(3):
        put(table, number, rows(10 * number, 10))
    assert compact(table, files_min=4) == 0
    assert len(table.files()) == 3


def test_files_of_different_columns_are_not_merged(table: LakeTable) -> None:
    put(table, 0, rows(0, 2))
    put(table, 1, rows(2, 2))
    put(table, 2, rows(4, 2, value={"id": 1, "note": "new"}))
    assert compact(table, files_min=2) == 1
    assert held_offsets(table) == list(range(6))


def test_a_larger_file_between_small_ones_keeps_them_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    put(table, 0, rows(0, 2))
    put(table, 1, rows(2, 50_000))
    put(table, 2, rows(50_002, 2))
    monkeypatch.setattr("pyspark_penstock.pipelines.compaction.SMALL_BYTES_MAX", 20_000)
    assert compact(table, files_min=2) == 0


# Parquet's own recovery


def test_a_batch_that_was_decided_and_not_moved_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    put(table, 0, rows(0, 3))
    written = write(table, 1, rows(3, 3), rows(0, 3, partition=1))
    moves: list[str] = []

    def killed(store: Store, source: str, target: str) -> None:
        if moves:
            raise KeyboardInterrupt
        moves.append(target)
        store.files.move(store.full(source), store.full(target))

    with monkeypatch.context() as patched:
        patched.setattr(Store, "move", killed)
        with pytest.raises(KeyboardInterrupt):
            table.commit(Batch(writer=WRITER, number=1), written.files, written.ends)
    assert len(held_offsets(table)) == 6
    again = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    assert again.last_batch(WRITER) == 1
    assert held_offsets(again) == sorted([*range(6), *range(3)])
    assert not again.store.exists("_staging/" + WRITER)


def test_a_merge_that_was_cut_short_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    put(table, 0, rows(0, 3))
    put(table, 1, rows(3, 3))
    real = Store.delete

    def killed(store: Store, path: str) -> None:
        if path.endswith(".parquet"):
            raise KeyboardInterrupt
        real(store, path)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            compact(table, files_min=2)
    again = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    again.prepare(rows(0, 1).schema, BY)
    assert held_offsets(again) == list(range(6))
    assert len(again.files()) == 1


# Steps of a query


@pytest.mark.parametrize(("number", "last", "expected"), [(0, None, True), (1, 0, True), (1, 1, False), (0, 0, False)])
def test_a_batch_is_written_once(number: int, last: int | None, expected: bool) -> None:
    assert check_step(Batch(writer=WRITER, number=number), last) is expected


@pytest.mark.parametrize(("number", "last"), [(3, None), (5, 3), (2, 3)])
def test_a_checkpoint_that_does_not_fit_the_table_is_refused(number: int, last: int | None) -> None:
    with pytest.raises(OutOfStep, match="Start with a new, empty checkpoint"):
        check_step(Batch(writer=WRITER, number=number), last)


# Tasks


def test_rows_are_split_by_their_values_and_keep_their_order() -> None:
    batch = pa.RecordBatch.from_pydict({"day": [date(2026, 1, 1), None, date(2026, 1, 1)], "n": [1, 2, 3]})
    found = {key: part.column("n").to_pylist() for key, part in partitioned(batch, ("day",))}
    assert found == {("2026-01-01",): [1, 3], (None,): [2]}


def test_a_task_with_more_partitions_than_it_may_hold_open_writes_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 2)
    table = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    days = [rows(10 * day, 2, day=day) for day in range(1, 6)]
    put(table, 0, pa.Table.from_batches(days).combine_chunks().to_batches()[0])
    assert len(table.files()) == 5


def test_dead_letters_are_counted_with_their_offsets_and_not_written(tmp_path: Path) -> None:
    table = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    good = rows(0, 4)
    table.prepare(good.schema, BY)
    bad = good.append_column("value_error", pa.array([None, "no JSON", None, "no JSON"]))
    batch = Batch(writer=WRITER, number=0)
    schema = schemas.to_text(good.schema)
    writing = FileWriting(
        layout=table.layout(batch), batch=batch, schema=schema, spans=True, error_column="value_error"
    )
    told = [text for each in writing(iter([bad])) for text in each.column("told").to_pylist()]
    written = Written.of(told)
    assert written.dead_rows == 2
    assert [file.rows for file in written.files] == [2]
    assert written.ends == {("orders", 0): 4}


def test_a_file_travels_as_json() -> None:
    file = DataFile(path="a/b.parquet", size=3, rows=2, values={"topic": "t", "day": None})
    assert DataFile.of_json(json.loads(json.dumps(file.to_json()))) == file
