"""A checkpoint and a table before the query starts: a matching pair continues, any other is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.pyspark_penstock.lake_tables import BY, added, rows, write

from pyspark_penstock.lake import Batch, OutOfStep, TableFormat, open_table
from pyspark_penstock.pipelines.checkpoint import check_table, planned_batch

QUERY = "6a1c4b3e"


def checkpoint_with(folder: Path, *ends: int, completed: int, planned_at: int = 1) -> str:
    """A checkpoint as Spark writes it: an entry for each batch that was planned, by its end offset."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    for number, end in enumerate(ends):
        settings = json.dumps({"batchTimestampMs": planned_at + number})
        entry = "\n".join(["v1", settings, json.dumps({"orders": {"0": end}})])
        (folder / "offsets" / str(number)).write_text(entry)
    for number in range(completed):
        (folder / "commits" / str(number)).write_text("v1\n{}")
    return str(folder)


def table_with(kind: TableFormat, folder: Path, checkpoint: str, *, is_archive: bool) -> None:
    """A table that holds the last planned batch of a checkpoint."""
    batch = planned_batch(checkpoint, is_archive=is_archive)
    assert batch is not None
    table = open_table(kind, str(folder))
    table.prepare(rows(0, 1).schema, BY)
    written = write(table, batch.number, rows(0, 3))
    table.commit(Batch(**{**fields_of(batch), "writer": QUERY}), written.files, added(written))


def fields_of(batch: Batch) -> dict[str, object]:
    return {name: getattr(batch, name) for name in ("number", "identity", "identity_before", "offsets")}


@pytest.mark.parametrize("kind", list(TableFormat))
@pytest.mark.parametrize("is_archive", [True, False])
def test_a_checkpoint_goes_on_with_the_table_it_belongs_to(kind: TableFormat, tmp_path: Path, is_archive: bool) -> None:
    checkpoint = checkpoint_with(tmp_path / "checkpoint", 2, 4, completed=2)
    table_with(kind, tmp_path / "table", checkpoint, is_archive=is_archive)
    table = open_table(kind, str(tmp_path / "table"))
    check_table(checkpoint, table, is_archive=is_archive)
    # Killed before Spark could note the batch as completed, and before the next one was written.
    for planned in ([2, 4], [2, 4, 9]):
        later = checkpoint_with(tmp_path / f"later{len(planned)}", *planned, completed=len(planned) - 1)
        check_table(later, table, is_archive=is_archive)


@pytest.mark.parametrize("kind", list(TableFormat))
@pytest.mark.parametrize(
    ("planned", "completed", "words"),
    [
        ([2], 1, "it is older than the table"),
        ([2, 6], 1, r'in the table it ends at \{"orders": \{"0": 4\}\}, in the checkpoint at \{"orders": \{"0": 6\}\}'),
        ([2, 6], 2, "is not batch 1 of the checkpoint"),
        ([2, 6, 9], 2, "is not batch 1 of the checkpoint"),
        ([2, 4, 9], 3, "the checkpoint is at batch 2, and the table holds batch 1"),
        ([2, 4, 9, 12], 3, "they do not belong together"),
    ],
    ids=["restored", "restored and planned", "copied", "copied, a batch ahead", "table restored", "table behind"],
)
def test_a_checkpoint_that_was_restored_or_copied_is_refused(
    kind: TableFormat, tmp_path: Path, planned: list[int], completed: int, words: str
) -> None:
    own = checkpoint_with(tmp_path / "checkpoint", 2, 4, completed=2)
    table_with(kind, tmp_path / "table", own, is_archive=True)
    other = checkpoint_with(tmp_path / "other", *planned, completed=completed)
    with pytest.raises(OutOfStep, match=words):
        check_table(other, open_table(kind, str(tmp_path / "table")), is_archive=True)


def test_an_archive_that_planned_the_same_offsets_twice_has_the_same_batch(tmp_path: Path) -> None:
    """Rows of other queries may depend on more than offsets."""
    for is_archive in (True, False):
        own = checkpoint_with(tmp_path / f"checkpoint{is_archive}", 2, 4, completed=2)
        table_with(TableFormat.PARQUET, tmp_path / f"table{is_archive}", own, is_archive=is_archive)
    copied = checkpoint_with(tmp_path / "copied", 2, 4, completed=1, planned_at=99)
    check_table(copied, open_table(TableFormat.PARQUET, str(tmp_path / "tableTrue")), is_archive=True)
    with pytest.raises(OutOfStep, match="Put back the checkpoint that belongs to the table"):
        check_table(copied, open_table(TableFormat.PARQUET, str(tmp_path / "tableFalse")), is_archive=False)


def test_a_table_that_is_not_the_checkpoints_is_refused_even_if_nothing_is_new(tmp_path: Path) -> None:
    checkpoint = checkpoint_with(tmp_path / "checkpoint", 2, completed=1)
    with pytest.raises(OutOfStep, match="the table holds no batch of this query"):
        check_table(checkpoint, open_table(TableFormat.PARQUET, str(tmp_path / "second")), is_archive=True)


def test_a_checkpoint_without_a_completed_batch_suits_any_table(tmp_path: Path) -> None:
    for name, ends in (("empty", ()), ("planned", (2,))):
        checkpoint = checkpoint_with(tmp_path / name, *ends, completed=0)
        check_table(checkpoint, open_table(TableFormat.PARQUET, str(tmp_path / "table")), is_archive=True)
    check_table(str(tmp_path / "missing"), open_table(TableFormat.PARQUET, str(tmp_path / "table")), is_archive=True)
