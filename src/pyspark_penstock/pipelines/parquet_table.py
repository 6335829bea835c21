"""A folder of Parquet files that any reader can read, with a commit log in `_penstock` for exactly-once writes.

Tasks write below `_staging`. The driver creates the next file of the commit log, which decides the batch, and moves the
batch's files to their places; the next process that opens the table moves those that a crash has left. A reader may see
a part of a batch for a moment, never a row twice. Readers ignore names that begin with an underscore.

Every file of the log holds the whole state, so only the newest counts. Of two writers one creates the next file, and
the other checks its batch against the new state and retries. On a store that cannot create a file exclusively each
writer has its own file names, and simultaneous commits are merged, or refused if they overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_penstock.lake import (
    Batch,
    DataFile,
    Expired,
    Held,
    LakeError,
    LastBatch,
    Layout,
    OutOfStep,
    check_offsets,
    partitioned_otherwise,
)
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import values_of
from pyspark_penstock.pipelines.store import Store

STATE = "_penstock"
STAGING = "_staging"
TABLE_FILE = f"{STATE}/table.json"
COMMITS = f"{STATE}/commits"
WRITERS = f"{STATE}/writers"
"""Where version 1 kept a note for each writer."""
MERGES = f"{STATE}/merges"
VERSION = 2
VERSIONS_READ = (1, 2)
COMMIT_TRIES_MAX = 20
COMMITS_KEPT = 10
HIDDEN = ("_", ".")
"""Prefixes of names that readers of a folder ignore."""

Move = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState:
    """The last batch of a writer, and the moves of its files."""

    last: LastBatch
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state in the commit log."""

    writers: Mapping[str, WriterState] = field(default_factory=dict[str, WriterState])
    held: Held = field(default_factory=Held)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "writers": {
                name: {
                    "batch": each.last.number,
                    "identity": each.last.identity,
                    "offsets": each.last.offsets,
                    "moves": each.moves,
                }
                for name, each in self.writers.items()
            },
            "offsets": [[topic, partition, end] for (topic, partition), end in sorted(self.held.offsets.items())],
            "topics": dict(self.held.topic_ids),
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> TableState:
        if found["version"] > VERSION:
            raise LakeError("the table was written by a newer version of penstock: install that one")
        writers = {
            name: WriterState(
                last=LastBatch(number=each["batch"], identity=each["identity"], offsets=each["offsets"]),
                moves=tuple((source, target) for source, target in each["moves"]),
            )
            for name, each in found["writers"].items()
        }
        return cls(writers=writers, held=Held(offsets=_ends(found["offsets"]), topic_ids=found["topics"]))

    @classmethod
    def of_old_note(cls, writer: str, found: Mapping[str, Any]) -> TableState:
        """From the note that version 1 kept for a writer."""
        moves = tuple((source, target) for source, target in found["moves"])
        state = WriterState(last=LastBatch(number=int(found["batch"])), moves=moves)
        return cls(writers={writer: state}, held=Held(offsets=_ends(found["offsets"])))

    def joined(self, other: TableState) -> TableState:
        writers = dict(self.writers)
        for name, each in other.writers.items():
            if name not in writers or writers[name].last.number <= each.last.number:
                writers[name] = each
        return TableState(writers=writers, held=self.held.joined(other.held))


def _ends(found: Iterable[Any]) -> dict[tuple[str, int], int]:
    return {(topic, partition): end for topic, partition, end in found}


class ParquetTable:
    """See `LakeTable`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partition_by: tuple[str, ...] = ()

    @property
    def store(self) -> Store:
        return self._store

    def prepare(self, schema: Any, partition_by: Sequence[str]) -> None:
        for name in partition_by:
            if name.startswith(HIDDEN):
                raise LakeError(
                    f"a Parquet table cannot be partitioned by {name}: readers ignore folders whose names begin with "
                    f"{name[0]!r}. Give the column another name"
                )
        self._finish_merges()
        held = self._store.read_json(TABLE_FILE)
        self._partition_by = tuple(partition_by)
        if held is None:
            self._note_table(schema)
            return
        if held["version"] not in VERSIONS_READ:
            raise LakeError(f"{self._store.root} was written by a newer version of penstock")
        if tuple(held["partition_by"]) != self._partition_by:
            raise partitioned_otherwise(self._store.root, held["partition_by"], self._partition_by)
        known = schemas.of_text(held["schema"])
        if not schemas.has_all(known, schema):
            self._note_table(schemas.merged(known, schema))
        elif held["version"] != VERSION:
            self._note_table(known)
        self._finish_moves(self._newest()[1])

    def _note_table(self, schema: Any) -> None:
        fields = {"version": VERSION, "partition_by": list(self._partition_by), "schema": schemas.to_text(schema)}
        self._store.write_json(TABLE_FILE, fields)

    def schema(self) -> Any:
        """The Arrow schema of all columns so far; None if there is no table."""
        held = self._store.read_json(TABLE_FILE)
        return None if held is None else schemas.of_text(held["schema"])

    def last_batch(self, writer: str) -> LastBatch | None:
        state = self._newest()[1]
        self._finish_moves(state)
        return state.writers[writer].last if writer in state.writers else None

    def held(self) -> Held:
        return self._newest()[1].held

    def layout(self, batch: Batch) -> Layout:
        return Layout(
            store=self._store,
            folder=f"{STAGING}/{batch.writer}/{batch.number}",
            partition_by=self._partition_by,
            keeps_partition_columns=False,
            values_in_paths=True,
        )

    def commit(self, batch: Batch, files: Sequence[DataFile], added: Held) -> None:
        folder = self.layout(batch).folder
        moves = tuple((each.path, each.path.removeprefix(f"{folder}/")) for each in files)
        last = LastBatch(number=batch.number, identity=batch.identity, offsets=batch.offsets)
        mine = WriterState(last=last, moves=moves)
        for _ in range(COMMIT_TRIES_MAX):
            number, state = self._newest()
            check_offsets(files, state.held)
            writers = {**self._without_finished_moves(state), batch.writer: mine}
            new = TableState(writers=writers, held=state.held.joined(added))
            path = self._commit_path(number + 1, batch.writer)
            if self._store.create_json(path, new.to_json()) and self._stands(path, number + 1, batch, state.held):
                self._finish_moves(TableState(writers={batch.writer: mine}))
                self._store.delete_folder(f"{STAGING}/{batch.writer}")
                self._forget_commits(number + 1)
                return
        raise OutOfStep(f"{self._store.root}: other writers were faster {COMMIT_TRIES_MAX} times: start again")

    def sweep(self, batch: Batch, files: Sequence[DataFile]) -> None:
        """Nothing: files that were not moved are deleted with their staging folder."""

    def files(self) -> list[DataFile]:
        self._finish_moves(self._newest()[1])
        found = [each for each in self._store.list("", ".parquet") if not each.path.startswith("_")]
        return [DataFile(path=each.path, size=each.size, rows=0, values=values_of(each.path)) for each in found]

    def replace(self, old: Sequence[DataFile], new: DataFile) -> None:
        """Readers that list the folder between the two steps see the merged rows twice: Parquet has no transactions."""
        target = new.path.partition("/")[2].partition("/")[2].partition("/")[2]
        note = f"{MERGES}/{target.rpartition('/')[2]}.json"
        self._store.write_json(note, {"from": new.path, "to": target, "delete": [each.path for each in old]})
        self._finish_merge(note)

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        raise LakeError(f"{self._store.root} is a folder of Parquet files, which has no older versions to expire")

    # The commit log

    def _commit_path(self, number: int, writer: str) -> str:
        own = "" if self._store.creates_once else f"-{writer}"
        return f"{COMMITS}/{number:020d}{own}.json"

    def _numbered(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for entry in self._store.list(COMMITS, ".json"):
            number = int(entry.path.rpartition("/")[2].removesuffix(".json").partition("-")[0])
            found.setdefault(number, []).append(entry.path)
        return found

    def _newest(self) -> tuple[int, TableState]:
        """The number of the newest commit, 0 if there is none, and the state of the table."""
        numbered = self._numbered()
        for number in sorted(numbered, reverse=True):
            states = [TableState.of_json(found) for path in numbered[number] if (found := self._read(path)) is not None]
            if states:
                state = states[0]
                for each in states[1:]:
                    state = state.joined(each)
                return max(numbered), state
        return max(numbered, default=0), self._of_old_notes()

    def _read(self, path: str) -> Any:
        """A commit; None if it was deleted, or is incomplete on a store that cannot create files atomically."""
        try:
            return self._store.read_json(path)
        except ValueError:
            return None

    def _of_old_notes(self) -> TableState:
        state = TableState()
        for entry in self._store.list(WRITERS, ".json"):
            writer = entry.path.rpartition("/")[2].removesuffix(".json")
            state = state.joined(TableState.of_old_note(writer, self._store.read_json(entry.path)))
        return state

    def _stands(self, path: str, number: int, batch: Batch, before: Held) -> bool:
        """Whether a created commit is part of the log: a slow writer may have created it after later ones.

        OutOfStep if two writers have created commits of this number for the same partitions.
        """
        numbered = self._numbered()
        if max(numbered) > number:
            known = self._newest()[1].writers.get(batch.writer)
            return known is not None and known.last.is_of(batch)
        if len(numbered[number]) > 1:
            found = [TableState.of_json(state) for each in numbered[number] if (state := self._read(each)) is not None]
            changed = [place for each in found for place in dict(each.held.offsets.items() - before.offsets.items())]
            if len(changed) != len(set(changed)):
                self._store.delete(path)
                raise OutOfStep(
                    f"{self._store.root}: another archive writes records of the same partitions at the same moment. "
                    "Stop one of them, and start the other one again"
                )
        return True

    def _forget_commits(self, number: int) -> None:
        for each, paths in self._numbered().items():
            if each <= number - COMMITS_KEPT:
                for path in paths:
                    self._store.delete(path)

    # Recovery

    def _without_finished_moves(self, state: TableState) -> dict[str, WriterState]:
        return {
            name: each if each.moves and self._is_staged(name, each) else replace(each, moves=())
            for name, each in state.writers.items()
        }

    def _is_staged(self, writer: str, state: WriterState) -> bool:
        return any(True for _ in self._store.list(f"{STAGING}/{writer}/{state.last.number}"))

    def _finish_moves(self, state: TableState) -> None:
        """Move the staged files of committed batches of all writers.

        A writer whose checkpoint is lost does not come back, but its last batch is part of the table.
        """
        for writer, each in state.writers.items():
            staging = f"{STAGING}/{writer}/{each.last.number}"
            staged = {entry.path for entry in self._store.list(staging)} if each.moves else set[str]()
            if staged:
                for source, target in each.moves:
                    if source in staged:
                        self._store.move(source, target)
                self._store.delete_folder(staging)

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
