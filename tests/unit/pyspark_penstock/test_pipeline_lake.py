"""Lake tables without Spark: commits, crashes, refusals and merges."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.pyspark_penstock.lake_tables import (
    BY,
    PLACES,
    WRITER,
    batch_of,
    held_offsets,
    identity_of,
    put,
    rows,
    write,
)

from pyspark_penstock.lake import (
    DataFile,
    Held,
    LakeError,
    LakeTable,
    LastBatch,
    OutOfStep,
    SchemaClash,
    TableFormat,
    check_step,
    open_table,
)
from pyspark_penstock.pipelines import data_files, schemas
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.data_files import FileWriting, RowWriting, Written, partitioned, with_footer
from pyspark_penstock.pipelines.store import Store


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
    last = again.last_batch(WRITER)
    assert last is not None
    assert last.is_of(batch_of(1))
    assert last.offsets == "end of 1"
    assert again.last_batch("another") is None
    assert again.held() == Held(offsets={("orders", 0): 15, ("orders", 1): 5}, topic_ids={"orders": "id-1"})
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


def test_files_of_an_earlier_attempt_are_deleted(table: LakeTable) -> None:
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
    with pytest.raises(SchemaClash, match=r"the column value\.id as int64, and the new rows have it as string"):
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
    last = table.last_batch(WRITER)
    assert last is not None
    assert last.is_of(batch_of(3))
    assert table.held().offsets == {("orders", 0): 40, ("orders", 1): 40}
    spans = [with_footer(table.store, each).spans[0] for each in table.files()]
    assert {(span.partition, span.offset_min, span.offset_max) for span in spans} == {(0, 0, 39), (1, 0, 39)}


def test_too_few_small_files_are_not_merged(table: LakeTable) -> None:
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


@pytest.mark.parametrize("is_archive", [True, False])
@pytest.mark.parametrize(("number", "last", "expected"), [(0, None, True), (1, 0, True), (1, 1, False), (0, 0, False)])
def test_a_batch_is_written_once(number: int, last: int | None, expected: bool, is_archive: bool) -> None:
    known = None if last is None else LastBatch(number=last, identity=identity_of(last))
    assert check_step(batch_of(number), known, is_archive=is_archive) is expected


@pytest.mark.parametrize(("number", "last"), [(3, None), (5, 3), (2, 3)])
def test_a_checkpoint_that_does_not_fit_the_table_is_refused(number: int, last: int | None) -> None:
    known = None if last is None else LastBatch(number=last, identity=identity_of(last))
    with pytest.raises(OutOfStep, match="Start with a new, empty checkpoint"):
        check_step(batch_of(number), known, is_archive=True)


@pytest.mark.parametrize("number", [4, 5], ids=["the same number", "the next number"])
def test_another_batch_of_a_committed_number_is_refused_and_both_are_named(number: int) -> None:
    last = LastBatch(number=4, identity=identity_of(4, plan="before the backup"), offsets='{"orders":{"0":20}}')
    with pytest.raises(
        OutOfStep, match=r'in the table it ends at \{"orders":\{"0":20\}\}, in the checkpoint at'
    ) as found:
        check_step(batch_of(number), last, is_archive=False)
    assert "Put back the checkpoint that belongs to the table" in str(found.value)


def test_a_table_from_before_identities_were_kept_is_taken_at_its_number() -> None:
    assert check_step(batch_of(4), LastBatch(number=4), is_archive=True) is False
    assert check_step(batch_of(5), LastBatch(number=4), is_archive=True) is True


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


def test_dead_letters_are_written_in_the_same_pass_with_their_offsets_counted(tmp_path: Path) -> None:
    table, beside = (open_table(TableFormat.PARQUET, str(tmp_path / name)) for name in ("table", "dead"))
    good = rows(0, 4)
    bad = good.append_column("value_error", pa.array([None, "no JSON", None, "no JSON"]))
    for each in (table, beside):
        each.prepare(good.schema, BY)
    batch = batch_of(0)
    schema = schemas.to_text(good.schema)
    writing = FileWriting(
        batch=batch,
        rows=RowWriting(layout=table.layout(batch), schema=schema, spans=True),
        error_column="value_error",
        dead=RowWriting(
            layout=beside.layout(batch),
            schema=schema,
            spans=True,
            columns=tuple((name, name) for name in good.schema.names),
            held=(("orders", 0, 2),),
        ),
    )
    written = Written.of(text for each in writing(iter([bad])) for text in each.column("result").to_pylist())
    assert written.dead_rows == 2
    assert [file.rows for file in written.files] == [2]
    assert written.ends == {("orders", 0): 4}
    # The first of them is in the folder already, from an attempt whose table commit failed.
    assert [(span.offset_min, span.offset_max) for file in written.dead_files for span in file.spans] == [(3, 3)]


def test_a_file_travels_as_json() -> None:
    file = DataFile(path="a/b.parquet", size=3, rows=2, values={"topic": "t", "day": None})
    assert DataFile.of_json(json.loads(json.dumps(file.to_json()))) == file
