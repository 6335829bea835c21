"""Expiry of old versions of tables: deleted files, kept files, and files that replays need."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.pyspark_penstock.lake_tables import batch_of, held_offsets, put, rows, write
from typer.testing import CliRunner

from penstock.cli import pipeline
from penstock.model.clock import SystemClock
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.lake import DataFile, LakeError, LakeTable, TableFormat, open_table
from pyspark_penstock.pipelines import expiry
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.delta_table import DeltaLakeTable
from pyspark_penstock.pipelines.expiry import HOUR_MS, Expiry, expire, replays_of
from pyspark_penstock.pipelines.registry import PipelineState, Registry
from pyspark_penstock.pipelines.replay_plan import Plan, Wanted
from pyspark_penstock.pipelines.replay_source import PLAN_FILE
from pyspark_penstock.pipelines.store import Store

DAY_MS = 24 * HOUR_MS
VERSIONED = [TableFormat.DELTA, TableFormat.ICEBERG]


class ShiftedClock(SystemClock):
    """The clock of a machine whose time is some milliseconds off."""

    def __init__(self, shift_ms: int) -> None:
        self.shift_ms = shift_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


@pytest.fixture(params=VERSIONED)
def merged(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    """A table whose small files were merged two days ago, and one that was added since."""
    kind: TableFormat = request.param
    table = opened(kind, tmp_path / "table", shift_ms=-2 * DAY_MS)
    for number in range(4):
        put(table, number, rows(10 * number, 10))
    compact(table, files_min=2)
    put(table, 4, rows(40, 10))
    age_files(tmp_path / "table", 2 * DAY_MS)
    return opened(kind, tmp_path / "table")


def opened(kind: TableFormat, folder: Path, *, shift_ms: int = 0) -> LakeTable:
    """Delta records in its log when a file was removed, by the given clock."""
    if kind is TableFormat.DELTA and shift_ms:
        return DeltaLakeTable(Store.at(str(folder)), clock=ShiftedClock(shift_ms))
    return open_table(kind, str(folder))


def age_files(folder: Path, age_ms: int) -> None:
    now = SystemClock().now_ms()
    for each in folder.rglob("*"):
        os.utime(each, ((now - age_ms) / 1000, (now - age_ms) / 1000))


def later(table: LakeTable) -> Any:
    """Iceberg records the time of a snapshot itself, so the clock of the expiry is shifted."""
    return SystemClock() if isinstance(table, DeltaLakeTable) else ShiftedClock(2 * DAY_MS)


def parquet_files(table: LakeTable) -> set[str]:
    return {each.path for each in table.store.list("", ".parquet") if not each.path.startswith("_delta_log")}


def test_files_that_only_old_versions_need_are_deleted(merged: LakeTable) -> None:
    needed = {each.path for each in merged.files()}
    old = parquet_files(merged) - needed
    assert len(old) == 4
    listed = expire(merged, DAY_MS, dry_run=True, clock=later(merged))
    assert set(listed.files) == old
    assert parquet_files(merged) == old | needed
    assert set(expire(merged, DAY_MS, clock=later(merged)).files) == old
    assert parquet_files(merged) == needed
    assert held_offsets(merged) == list(range(50))
    # The table goes on, and knows its last batch.
    put(merged, 5, rows(50, 10))
    last = merged.last_batch("7f6c")
    assert last is not None
    assert last.is_of(batch_of(5))
    assert held_offsets(merged) == list(range(60))


def test_younger_versions_keep_their_files(merged: LakeTable) -> None:
    before = parquet_files(merged)
    assert expire(merged, 3 * DAY_MS, clock=later(merged)).files == ()
    assert parquet_files(merged) == before


def test_files_that_are_being_written_stay(merged: LakeTable) -> None:
    """They are in no version of the table yet."""
    merged.prepare(rows(0, 1).schema, ("topic", "day"))
    written = write(merged, 5, rows(50, 10))
    expire(merged, HOUR_MS, clock=SystemClock())
    assert merged.store.exists(written.files[0].path)


def test_files_of_a_killed_batch_in_an_iceberg_table_expire(tmp_path: Path) -> None:
    table = open_table(TableFormat.ICEBERG, str(tmp_path))
    put(table, 0, rows(0, 3))
    left = write(table, 1, rows(3, 3)).files[0].path
    age_files(tmp_path, 2 * DAY_MS)
    assert left in expire(table, DAY_MS).files
    assert not table.store.exists(left)
    assert held_offsets(table) == [0, 1, 2]


def test_files_that_a_replay_has_still_to_send_stay(merged: LakeTable, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "state", alive=lambda _: None)
    old = sorted(parquet_files(merged) - {each.path for each in merged.files()})
    files = (DataFile(path=old[0], size=1, rows=1, values={}),)
    plan = Plan(root=merged.store.root, wanted=Wanted(), files=files)
    Store.at(str(tmp_path / "replay")).write_json(PLAN_FILE, plan.to_json())
    state = PipelineState(
        name="again",
        kind="replay",
        what="",
        pid=1,
        pid_started=1,
        started_ms=1,
        status="stopped",
        checkpoint=str(tmp_path / "replay"),
    )
    registry.save(state)
    needed_by = replays_of(registry, merged)
    assert expire(merged, DAY_MS, needed_by=needed_by, clock=later(merged)).needed_by == ("again",)
    assert merged.store.exists(old[0])
    registry.save(replace(state, status="finished"))
    assert expire(merged, DAY_MS, needed_by=needed_by, clock=later(merged)).needed_by == ()
    assert not merged.store.exists(old[0])


def test_a_parquet_folder_has_nothing_to_expire(tmp_path: Path) -> None:
    table = open_table(TableFormat.PARQUET, str(tmp_path))
    with pytest.raises(LakeError, match="has no older versions to expire"):
        expire(table, DAY_MS)


def test_an_age_that_a_running_batch_may_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongOption, match="at least 1h"):
        expire(open_table(TableFormat.DELTA, str(tmp_path)), HOUR_MS - 1)


def test_a_query_expires_its_table_once_an_hour(merged: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(expiry, "expire", lambda table, age_ms, **_: calls.append(age_ms))
    clock = ShiftedClock(0)
    due = Expiry(table=merged, age_ms=DAY_MS, clock=clock)
    for shift_ms in (0, HOUR_MS // 2, HOUR_MS + 1000, 2 * HOUR_MS):
        clock.shift_ms = shift_ms
        due()
    assert calls == [DAY_MS, DAY_MS]


# The command


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(pipeline.app, ["expire", *arguments])


def test_the_command_lists_and_deletes(merged: LakeTable, tmp_path: Path) -> None:
    kind = "delta" if isinstance(merged, DeltaLakeTable) else "iceberg"
    arguments = [str(tmp_path / "table"), "--format", kind, "--state-dir", str(tmp_path / "state"), "-o", "json"]
    found = json.loads(run_command(*arguments, "--older-than", "1d", "--dry-run").stdout)
    # Snapshots of Iceberg are as old as this test; their files are not needed by them alone.
    assert len(found["files"]) == (4 if kind == "delta" else 0)
    done = json.loads(run_command(*arguments, "--older-than", "1d").stdout)
    assert done["files"] == found["files"]
    assert held_offsets(merged) == list(range(50))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "parquet", "--older-than", "1d"], "has no older versions"),
        (["--format", "delta", "--older-than", "5m"], "at least 1h"),
        (["--format", "delta", "--older-than", "soon"], "is not a time such as"),
    ],
)
def test_expiring_an_unsupported_table_is_bad_usage(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = run_command(str(tmp_path), *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())


def test_a_missing_table_is_reported(tmp_path: Path) -> None:
    result = run_command(
        str(tmp_path / "x"), "--format", "delta", "--older-than", "1d", "--state-dir", str(tmp_path / "s")
    )
    assert "there is no Delta table" in str(result.exception)
    assert not isinstance(result.exception, typer.Exit)
