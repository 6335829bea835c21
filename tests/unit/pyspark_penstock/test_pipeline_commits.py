"""Commits of lake tables: two writers at once, a crash after every step, and tables of earlier versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pyspark_penstock.lake_tables import (
    BY,
    WRITER,
    added,
    batch_of,
    held_offsets,
    put,
    rows,
    write,
)

from pyspark_penstock.lake import (
    Held,
    LakeTable,
    OutOfStep,
    TableFormat,
    TopicRecreated,
    check_step,
    check_topic_ids,
    open_table,
)
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.parquet_table import COMMITS, COMMITS_KEPT, TABLE_FILE, ParquetTable
from pyspark_penstock.pipelines.store import Store

OTHER = "b2d1"
CHANGES = ("write_json", "create_json", "move", "delete", "delete_folder", "make_parent")


@pytest.mark.parametrize("kind", list(TableFormat))
def test_of_two_archives_that_commit_the_same_records_at_once_one_is_refused(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (open_table(kind, str(tmp_path / "table")) for _ in range(2))
    put(first, 0, rows(0, 3))
    second.prepare(rows(0, 1).schema, BY)
    mine = write(first, 1, rows(3, 3))
    theirs = write(second, 0, rows(3, 4), writer=OTHER)
    between_check_and_commit(
        kind, monkeypatch, lambda: second.commit(batch_of(0, writer=OTHER), theirs.files, added(theirs))
    )
    with pytest.raises(OutOfStep, match="holds orders-0 up to offset 6, and this batch begins at 3"):
        first.commit(batch_of(1), mine.files, added(mine))
    assert held_offsets(open_table(kind, str(tmp_path / "table"))) == list(range(7))


@pytest.mark.parametrize("kind", list(TableFormat))
def test_of_two_archives_that_commit_other_records_at_once_both_are_kept(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (open_table(kind, str(tmp_path / "table")) for _ in range(2))
    put(first, 0, rows(0, 3))
    second.prepare(rows(0, 1).schema, BY)
    mine = write(first, 1, rows(3, 3))
    theirs = write(second, 0, rows(0, 4, partition=1), writer=OTHER)
    between_check_and_commit(
        kind, monkeypatch, lambda: second.commit(batch_of(0, writer=OTHER), theirs.files, added(theirs))
    )
    first.commit(batch_of(1), mine.files, added(mine))
    again = open_table(kind, str(tmp_path / "table"))
    assert again.held().offsets == {("orders", 0): 6, ("orders", 1): 4}
    assert held_offsets(again) == sorted([*range(6), *range(4)])
    last = again.last_batch(OTHER)
    assert last is not None
    assert last.is_of(batch_of(0, writer=OTHER))


def between_check_and_commit(kind: TableFormat, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let another process act once, between the check of the offsets and the commit."""
    module = import_module(f"pyspark_penstock.pipelines.{kind.value}_table")
    real: Callable[..., None] = vars(module)["check_offsets"]
    waiting = [act]

    def check(*arguments: Any) -> None:
        real(*arguments)
        if waiting:
            waiting.pop()()

    monkeypatch.setattr(module, "check_offsets", check)


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_topic_that_was_created_again_is_distinguished_from_the_one_in_the_table(
    kind: TableFormat, tmp_path: Path
) -> None:
    table = open_table(kind, str(tmp_path / "table"))
    put(table, 0, rows(0, 3))
    held = open_table(kind, str(tmp_path / "table")).held()
    check_topic_ids(held, {"orders": "id-1", "customers": "id-2"})
    with pytest.raises(TopicRecreated, match=r"orders was deleted and created again: .* id id-1, .* now id-9"):
        check_topic_ids(held, {"orders": "id-9"})


def test_a_topic_that_the_table_holds_nothing_of_may_have_any_id() -> None:
    check_topic_ids(Held(topic_ids={"orders": "id-1"}), {"orders": "id-2"})
    check_topic_ids(Held(offsets={("orders", 0): 3}), {"orders": "id-2"})


# A crash after every step of a Parquet table


class Crash(BaseException):
    """The process is gone."""


class DyingStore(Store):
    """A store whose process dies at the n-th change, before it or after it."""

    def die_at(self, step: int, *, after: bool) -> None:
        DyingStore.steps = count(1)
        DyingStore.last, DyingStore.after = step, after

    steps: Iterator[int] = count(1)
    last = 0
    after = False


def dying(name: str) -> Callable[..., Any]:
    def change(self: DyingStore, *arguments: Any) -> Any:
        due = DyingStore.last and next(DyingStore.steps) == DyingStore.last
        if due and not DyingStore.after:
            raise Crash
        result = getattr(Store, name)(self, *arguments)
        if due:
            raise Crash
        return result

    return change


for each in CHANGES:
    setattr(DyingStore, each, dying(each))


def crash_at(folder: Path, step: int, act: Callable[[ParquetTable], object], *, after: bool) -> bool:
    """Whether the process died: False if the act has fewer steps."""
    store = DyingStore(str(folder))
    table = ParquetTable(store)
    table.prepare(rows(0, 1).schema, BY)
    store.die_at(step, after=after)
    try:
        act(table)
    except Crash:
        return True
    finally:
        DyingStore.last = 0
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
def test_a_commit_that_dies_at_any_step_is_in_the_table_whole_or_not_at_all(tmp_path: Path, after: bool) -> None:
    outcomes: list[bool] = []
    for step in count(1):
        folder = tmp_path / str(step)
        put(ParquetTable(Store(str(folder))), 0, rows(0, 3))

        def commit(table: ParquetTable) -> None:
            written = write(table, 1, rows(3, 3), rows(0, 3, partition=1), rows(6, 2, day=2))
            table.commit(batch_of(1), written.files, added(written))

        if not crash_at(folder, step, commit, after=after):
            break
        # The archive starts again: it repeats the batch if the table does not have it.
        again = ParquetTable(Store(str(folder)))
        again.prepare(rows(0, 1).schema, BY)
        is_missing = check_step(batch_of(1), again.last_batch(WRITER), is_archive=True)
        outcomes.append(is_missing)
        if is_missing:
            assert held_offsets(again) == [0, 1, 2]
            put(again, 1, rows(3, 3), rows(0, 3, partition=1), rows(6, 2, day=2))
        assert held_offsets(again) == sorted([*range(8), *range(3)])
        assert again.held().offsets == {("orders", 0): 8, ("orders", 1): 3}
        assert not list(again.store.list("_staging")), f"files were left behind after step {step}"
    assert len(outcomes) > 8, "every change of a commit is a step"
    assert set(outcomes) == {True, False}


def test_a_decided_batch_is_completed_even_if_its_checkpoint_is_lost(tmp_path: Path) -> None:
    """Another writer goes on where the table ends, so files that were not moved would be missing forever."""
    for step in count(1):
        folder = tmp_path / str(step)
        put(ParquetTable(Store(str(folder))), 0, rows(0, 3))

        def commit(table: ParquetTable) -> None:
            written = write(table, 1, rows(3, 3), rows(6, 3, day=2))
            table.commit(batch_of(1), written.files, added(written))

        if not crash_at(folder, step, commit, after=True):
            break
        again = ParquetTable(Store(str(folder)))
        end = again.held().offsets["orders", 0]
        put(again, 0, rows(end, 2), writer=OTHER)
        assert held_offsets(again) == list(range(end + 2))


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
def test_a_merge_that_dies_at_any_step_keeps_every_row_once(tmp_path: Path, after: bool) -> None:
    for step in count(1):
        folder = tmp_path / str(step)
        for number in range(3):
            put(ParquetTable(Store(str(folder))), number, rows(3 * number, 3))
        if not crash_at(folder, step, lambda table: compact(table, files_min=2), after=after):
            break
        again = ParquetTable(Store(str(folder)))
        again.prepare(rows(0, 1).schema, BY)
        assert held_offsets(again) == list(range(9))


# The commit log


def test_only_the_newest_commits_are_kept(tmp_path: Path) -> None:
    table = ParquetTable(Store(str(tmp_path)))
    for number in range(COMMITS_KEPT + 5):
        put(table, number, rows(number, 1))
    assert len(list(table.store.list(COMMITS))) == COMMITS_KEPT
    assert held_offsets(table) == list(range(COMMITS_KEPT + 5))


def test_a_commit_that_was_written_in_part_does_not_count(tmp_path: Path) -> None:
    """On a disk without links a note is created by an exclusive open, and a crash may leave a part of it."""
    table = ParquetTable(Store(str(tmp_path)))
    put(table, 0, rows(0, 3))
    (tmp_path / COMMITS / f"{2:020d}.json").write_text('{"version":2,"wri')
    last = table.last_batch(WRITER)
    assert last is not None
    assert last.is_of(batch_of(0))
    put(table, 1, rows(3, 3))
    assert held_offsets(table) == list(range(6))


def test_a_slow_writer_with_an_old_number_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is free again after old commits were deleted, and must not count."""
    slow, quick = (ParquetTable(Store(str(tmp_path))) for _ in range(2))
    put(slow, 0, rows(0, 3))
    mine = write(slow, 1, rows(3, 3))

    def overtake() -> None:
        for number in range(COMMITS_KEPT + 3):
            put(quick, number, rows(number, 1, partition=1), writer=OTHER)

    between_check_and_commit(TableFormat.PARQUET, monkeypatch, overtake)
    slow.commit(batch_of(1), mine.files, added(mine))
    again = ParquetTable(Store(str(tmp_path)))
    assert again.held().offsets == {("orders", 0): 6, ("orders", 1): COMMITS_KEPT + 3}
    assert held_offsets(again) == sorted([*range(6), *range(COMMITS_KEPT + 3)])


class UnconditionalStore(Store):
    """Objects without conditional puts, as Arrow's file systems for S3 and Google's storage."""

    @property
    def creates_once(self) -> bool:
        return False


@pytest.mark.parametrize("same", [True, False], ids=["the same partition", "another partition"])
def test_without_conditional_puts_two_commits_of_a_number_are_joined_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    first, second = (ParquetTable(UnconditionalStore(str(tmp_path))) for _ in range(2))
    put(first, 0, rows(0, 3))
    second.prepare(rows(0, 1).schema, BY)
    mine = write(first, 1, rows(3, 3))
    theirs = write(second, 0, rows(3, 4) if same else rows(0, 4, partition=1), writer=OTHER)
    between_check_and_commit(
        TableFormat.PARQUET,
        monkeypatch,
        lambda: second.commit(batch_of(0, writer=OTHER), theirs.files, added(theirs)),
    )
    if same:
        with pytest.raises(OutOfStep, match="another archive writes records of the same partitions"):
            first.commit(batch_of(1), mine.files, added(mine))
        assert held_offsets(second) == list(range(7))
        return
    first.commit(batch_of(1), mine.files, added(mine))
    assert first.held().offsets == {("orders", 0): 6, ("orders", 1): 4}
    put(second, 1, rows(4, 1, partition=1), writer=OTHER)
    assert held_offsets(second) == sorted([*range(6), *range(5)])


def test_a_file_is_created_once(tmp_path: Path) -> None:
    for where in (str(tmp_path), f"fsspec+memory://{tmp_path}/x"):
        store = Store.at(where)
        assert store.creates_once
        assert store.create_json("a/b.json", {"n": 1})
        assert not store.create_json("a/b.json", {"n": 2})
        assert store.read_json("a/b.json") == {"n": 1}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]


def test_a_disk_without_links_creates_a_file_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", no_links)
    store = Store.at(str(tmp_path))
    assert store.create_json("b.json", {"n": 1})
    assert not store.create_json("b.json", {"n": 2})
    assert store.read_json("b.json") == {"n": 1}


# Tables of earlier versions


def test_a_parquet_table_of_the_first_version_goes_on(tmp_path: Path) -> None:
    table = ParquetTable(Store(str(tmp_path)))
    put(table, 0, rows(0, 3))
    as_first_version(table, tmp_path, batch=0, ends=[["orders", 0, 3]], moves=[])
    again: LakeTable = open_table(TableFormat.PARQUET, str(tmp_path))
    assert again.held().offsets == {("orders", 0): 3}
    put(again, 1, rows(3, 3))
    last = again.last_batch(WRITER)
    assert last is not None
    assert last.is_of(batch_of(1))
    assert json.loads((tmp_path / TABLE_FILE).read_text())["version"] == 2
    assert held_offsets(again) == list(range(6))


def test_a_batch_that_the_first_version_has_decided_is_completed(tmp_path: Path) -> None:
    table = ParquetTable(Store(str(tmp_path)))
    put(table, 0, rows(0, 3))
    written = write(table, 1, rows(3, 3))
    folder = table.layout(batch_of(1)).folder
    moves = [[file.path, file.path.removeprefix(f"{folder}/")] for file in written.files]
    as_first_version(table, tmp_path, batch=1, ends=[["orders", 0, 6]], moves=moves)
    assert held_offsets(open_table(TableFormat.PARQUET, str(tmp_path))) == list(range(6))


def as_first_version(table: ParquetTable, folder: Path, *, batch: int, ends: list[Any], moves: list[Any]) -> None:
    shutil.rmtree(folder / COMMITS)
    table.store.write_json(f"_penstock/writers/{WRITER}.json", {"batch": batch, "moves": moves, "offsets": ends})
    known = table.store.read_json(TABLE_FILE)
    table.store.write_json(TABLE_FILE, {**known, "version": 1})
