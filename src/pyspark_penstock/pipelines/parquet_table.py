"""A folder of Parquet files that any reader can read, with what makes its writing exactly once in `_penstock`.

Tasks write below `_staging`. The driver notes which files the batch is made of, which decides it, and moves them to
their places; whoever comes after a crash moves those that are left. A reader may see a part of a batch for a moment,
never a row twice. Readers pass over names that begin with an underscore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark_penstock.lake import Batch, DataFile, LakeError, Layout, check_offsets
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import values_of
from pyspark_penstock.pipelines.store import Store

STATE = "_penstock"
STAGING = "_staging"
TABLE_FILE = f"{STATE}/table.json"
WRITERS = f"{STATE}/writers"
MERGES = f"{STATE}/merges"
VERSION = 1


class ParquetTable:
    """See `LakeTable`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partition_by: tuple[str, ...] = ()

    @property
    def store(self) -> Store:
        return self._store

    def prepare(self, schema: Any, partition_by: Sequence[str]) -> None:
        self._finish_merges()
        held = self._store.read_json(TABLE_FILE)
        self._partition_by = tuple(partition_by)
        if held is None:
            self._note_table(schema)
            return
        if held["version"] != VERSION:
            raise LakeError(f"{self._store.root} was written by a newer version of penstock")
        if tuple(held["partition_by"]) != self._partition_by:
            raise LakeError(
                f"{self._store.root} is partitioned by {', '.join(held['partition_by'])}, not by "
                f"{', '.join(self._partition_by) or 'nothing'}"
            )
        known = schemas.of_text(held["schema"])
        if not schemas.has_all(known, schema):
            self._note_table(schemas.merged(known, schema))

    def _note_table(self, schema: Any) -> None:
        fields = {"version": VERSION, "partition_by": list(self._partition_by), "schema": schemas.to_text(schema)}
        self._store.write_json(TABLE_FILE, fields)

    def schema(self) -> Any:
        """Arrow's, of all columns there have been; None where this is no table."""
        held = self._store.read_json(TABLE_FILE)
        return None if held is None else schemas.of_text(held["schema"])

    def last_batch(self, writer: str) -> int | None:
        state = self._store.read_json(f"{WRITERS}/{writer}.json")
        if state is None:
            return None
        self._move(writer, state["moves"])
        return int(state["batch"])

    def offsets(self) -> dict[Place, int]:
        ends: dict[Place, int] = {}
        for entry in self._store.list(WRITERS, ".json"):
            for topic, partition, end in self._store.read_json(entry.path)["offsets"]:
                ends[topic, partition] = max(end, ends.get((topic, partition), 0))
        return ends

    def layout(self, batch: Batch) -> Layout:
        return Layout(
            store=self._store,
            folder=f"{STAGING}/{batch.writer}/{batch.number}",
            partition_by=self._partition_by,
            keeps_partition_columns=False,
        )

    def commit(self, batch: Batch, files: Sequence[DataFile], offsets: Mapping[Place, int]) -> None:
        check_offsets(files, self.offsets())
        path = f"{WRITERS}/{batch.writer}.json"
        known: Any = self._store.read_json(path)
        noted: list[tuple[str, int, int]] = [] if known is None else known["offsets"]
        ends = {(topic, partition): end for topic, partition, end in noted} | dict(offsets)
        folder = self.layout(batch).folder
        moves = [[each.path, each.path.removeprefix(f"{folder}/")] for each in files]
        ended = [[topic, partition, end] for (topic, partition), end in sorted(ends.items())]
        self._store.write_json(path, {"batch": batch.number, "moves": moves, "offsets": ended})
        self._move(batch.writer, moves)

    def sweep(self, batch: Batch, files: Sequence[DataFile]) -> None:
        """Nothing: what was not moved goes with the folder it was staged in."""

    def files(self) -> list[DataFile]:
        found = [each for each in self._store.list("", ".parquet") if not each.path.startswith("_")]
        return [DataFile(path=each.path, size=each.size, rows=0, values=values_of(each.path)) for each in found]

    def replace(self, old: Sequence[DataFile], new: DataFile) -> None:
        """Readers that list the folder between the two steps see the merged rows twice: Parquet has no transactions."""
        target = new.path.partition("/")[2].partition("/")[2].partition("/")[2]
        note = f"{MERGES}/{target.rpartition('/')[2]}.json"
        self._store.write_json(note, {"from": new.path, "to": target, "delete": [each.path for each in old]})
        self._finish_merge(note)

    # Recovery

    def _move(self, writer: str, moves: Sequence[Sequence[str]]) -> None:
        if not self._store.exists(f"{STAGING}/{writer}"):
            return
        staged = {entry.path for entry in self._store.list(f"{STAGING}/{writer}")}
        for source, target in moves:
            if source in staged:
                self._store.move(source, target)
        self._store.delete_folder(f"{STAGING}/{writer}")

    def _finish_merges(self) -> None:
        for entry in list(self._store.list(MERGES, ".json")):
            self._finish_merge(entry.path)

    def _finish_merge(self, note: str) -> None:
        merge = self._store.read_json(note)
        if self._store.exists(merge["from"]):
            self._store.move(merge["from"], merge["to"])
        for path in merge["delete"]:
            self._store.delete(path)
        self._store.delete_folder("/".join(merge["from"].split("/")[:2]))
        self._store.delete(note)
