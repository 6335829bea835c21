"""A Delta table: tasks write its files, and one entry of its log adds them with the batch and the offsets.

The log keeps a number for every application that writes: here one for each writer, its batch, and for archives one for
each partition, the offset after the last one held.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from penstock.model.clock import Clock, SystemClock
from pyspark_penstock.lake import (
    PIP_LAKE,
    Batch,
    DataFile,
    FormatMissing,
    LakeError,
    Layout,
    Span,
    check_offsets,
)
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import file_stem, folder_of
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.untyped import pyarrow

BATCHES = "penstock/batch/"
OFFSETS = "penstock/offset/"
KNOWN_PLACES = "penstock.partitions"
"""In the entry's own metadata: which partitions have an offset, since the log cannot be asked for all of them."""
UNREADABLE_FEATURES = frozenset({"deletionVectors", "columnMapping"})


def _deltalake() -> Any:
    try:
        return import_module("deltalake")
    except ModuleNotFoundError:
        raise FormatMissing(f"Delta tables need the package deltalake: {PIP_LAKE}") from None


class DeltaLakeTable:
    """See `LakeTable`."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._lake = _deltalake()
        self._transaction: Any = import_module("deltalake.transaction")
        self._store = store
        self._clock = clock or SystemClock()
        self._opened: Any = None

    @property
    def store(self) -> Store:
        return self._store

    @property
    def _uri(self) -> str:
        return self._store.root

    def _table(self) -> Any:
        """The newest version of the table; None where there is none."""
        if self._opened is None:
            if not self._lake.DeltaTable.is_deltatable(self._uri):
                return None
            self._opened = self._lake.DeltaTable(self._uri)
        else:
            self._opened.update_incremental()
        return self._opened

    def prepare(self, schema: Any, partition_by: Sequence[str]) -> None:
        table = self._table()
        if table is None:
            self._store.make_parent("_delta_log/x")
            self._lake.DeltaTable.create(self._uri, schema=schema, mode="ignore", partition_by=list(partition_by))
            return
        held_by = tuple(table.metadata().partition_columns)
        if held_by != tuple(partition_by):
            raise LakeError(f"{self._uri} is partitioned by {', '.join(held_by)}, not by {', '.join(partition_by)}")
        held = self.schema()
        if not schemas.has_all(held, schema):
            new = schemas.merged(held, schema)
            self._lake.write_deltalake(table, new.empty_table(), mode="append", schema_mode="merge")

    def schema(self) -> Any:
        table = self._table()
        return None if table is None else pyarrow.schema(table.schema().to_arrow())

    def last_batch(self, writer: str) -> int | None:
        table = self._table()
        found = None if table is None else table.transaction_version(BATCHES + writer)
        return None if found is None else int(found)

    def offsets(self) -> dict[Place, int]:
        table = self._table()
        if table is None:
            return {}
        names = json.loads(table.metadata().configuration.get(KNOWN_PLACES, "[]"))
        ends: dict[Place, int] = {}
        for topic, partition in names:
            end = table.transaction_version(_offset_name((topic, partition)))
            if end is not None:
                ends[topic, partition] = int(end)
        return ends

    def layout(self, batch: Batch) -> Layout:
        return Layout(
            store=self._store,
            folder="",
            partition_by=tuple(self._table().metadata().partition_columns),
            keeps_partition_columns=False,
        )

    def commit(self, batch: Batch, files: Sequence[DataFile], offsets: Mapping[Place, int]) -> None:
        held = self.offsets()
        check_offsets(files, held)
        self._note_places(held, offsets)
        transaction = self._transaction.Transaction
        numbers = [transaction(BATCHES + batch.writer, batch.number)]
        numbers += [transaction(_offset_name(place), end) for place, end in sorted(offsets.items())]
        self._write([self._added(each, changed=True) for each in files], numbers)

    def _note_places(self, held: Mapping[Place, int], offsets: Mapping[Place, int]) -> None:
        """Before the offsets themselves: a partition that is named and has none yet is harmless."""
        new = offsets.keys() - held.keys()
        if new:
            names = json.dumps(sorted(held.keys() | new))
            self._table().alter.set_table_properties({KNOWN_PLACES: names}, raise_if_not_exists=False)

    def _write(self, actions: Sequence[Any], numbers: Sequence[Any]) -> None:
        table = self._table()
        table.create_write_transaction(
            list(actions),
            mode="append",
            schema=table.schema(),
            partition_by=list(table.metadata().partition_columns),
            commit_properties=self._transaction.CommitProperties(app_transactions=list(numbers)),
        )

    def _added(self, file: DataFile, *, changed: bool) -> Any:
        return self._transaction.AddAction(
            path=file.path,
            size=file.size,
            partition_values=dict(file.values),
            modification_time=self._clock.now_ms(),
            data_change=changed,
            stats=json.dumps(_statistics(file)),
        )

    def sweep(self, batch: Batch, files: Sequence[DataFile]) -> None:
        committed = {each.path for each in files}
        for folder in {folder_of(each.values) for each in files}:
            for entry in self._store.list(folder, ".parquet"):
                name = entry.path.rpartition("/")[2]
                if name.startswith(file_stem(batch)) and entry.path not in committed:
                    self._store.delete(entry.path)

    def files(self) -> list[DataFile]:
        table = self._table()
        if table is None:
            return []
        unreadable = UNREADABLE_FEATURES.intersection(table.protocol().reader_features or ())
        if unreadable:
            raise LakeError(f"{self._uri} uses {', '.join(sorted(unreadable))}, which is not read here")
        found = pyarrow.table(table.get_add_actions(flatten=True)).to_pylist()
        names = table.metadata().partition_columns
        return [
            DataFile(
                path=self._store.relative(each["path"]),
                size=each["size_bytes"],
                rows=each.get("num_records") or 0,
                values={name: _text(each.get(f"partition.{name}")) for name in names},
            )
            for each in sorted(found, key=lambda row: str(row["path"]))
        ]

    def replace(self, old: Sequence[DataFile], new: DataFile) -> None:
        removed = [
            self._transaction.RemoveAction(
                path=each.path,
                data_change=False,
                deletion_timestamp=self._clock.now_ms(),
                partition_values=dict(each.values),
                size=each.size,
            )
            for each in old
        ]
        self._write([*removed, self._added(new, changed=False)], ())


def _offset_name(place: Place) -> str:
    return f"{OFFSETS}{place[0]}/{place[1]}"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _statistics(file: DataFile) -> dict[str, Any]:
    """What lets readers pass over the file."""
    found: dict[str, Any] = {"numRecords": file.rows}
    if file.spans:
        found["minValues"] = _extreme(file.spans, min)
        found["maxValues"] = _extreme(file.spans, max)
        found["nullCount"] = {"partition": 0, "offset": 0}
    return found


def _extreme(spans: Sequence[Span], choose: Any) -> dict[str, Any]:
    ends = {"min": ("offset_min", "timestamp_us_min"), "max": ("offset_max", "timestamp_us_max")}
    offset, time = ends[choose.__name__]
    moment = datetime.fromtimestamp(choose(getattr(each, time) for each in spans) / 1_000_000, UTC)
    if choose is max:
        # The log keeps milliseconds: rounded down, the greatest would not be the greatest.
        moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000 + 999)
    return {
        "partition": choose(each.partition for each in spans),
        "offset": choose(getattr(each, offset) for each in spans),
        "timestamp": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
