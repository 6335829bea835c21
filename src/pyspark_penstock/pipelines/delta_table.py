"""A Delta table: tasks write its files, and one entry of its log adds them with the batch and the offsets.

The log keeps a number for every application that writes: here two for each writer, its batch and the batch's
identity, and for archives one for each partition, the offset after the last one held. Of two writers
that change the same numbers at the same time, the log refuses the second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from penstock.model.clock import Clock, SystemClock
from pyspark_penstock.lake import (
    PIP_LAKE,
    Batch,
    DataFile,
    Expired,
    FormatMissing,
    Held,
    LakeError,
    LastBatch,
    Layout,
    Span,
    check_offsets,
    commit_again,
    partitioned_otherwise,
)
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import file_stem, folder_in
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.untyped import pyarrow

BATCHES = "penstock/batch/"
IDENTITIES = "penstock/identity/"
OFFSETS = "penstock/offset/"
KNOWN_PLACES = "penstock.partitions"
"""A property of the table: the partitions that have an offset, since the log cannot list them."""
TOPIC_IDS = "penstock.topics"
"""A property of the table: the ids of the topics it holds."""
WRITER_NOTE, SOURCES_NOTE = "penstock.writer", "penstock.sources"
"""In an entry's metadata: the batch's writer and where its sources end, for messages."""
IDENTITY_DIGITS = 15
"""The number of hexadecimal digits that fit into the log's integers."""
HISTORY_MAX = 5
"""The most entries that are searched for it."""
HOUR_MS = 3_600_000
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
        self._exceptions: Any = import_module("deltalake.exceptions")
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
        """The newest version of the table; None if it does not exist."""
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
            raise partitioned_otherwise(self._uri, held_by, partition_by)
        held = self.schema()
        if not schemas.has_all(held, schema):
            new = schemas.merged(held, schema)
            self._lake.write_deltalake(table, new.empty_table(), mode="append", schema_mode="merge")

    def schema(self) -> Any:
        table = self._table()
        return None if table is None else pyarrow.schema(table.schema().to_arrow())

    def last_batch(self, writer: str) -> LastBatch | None:
        table = self._table()
        if table is None:
            return None
        found = table.transaction_version(BATCHES + writer)
        if found is None:
            return None
        identity = table.transaction_version(IDENTITIES + writer)
        return LastBatch(
            number=int(found),
            identity="" if identity is None else f"{identity:0{IDENTITY_DIGITS}x}",
            offsets=next(
                (
                    str(each.get(SOURCES_NOTE, ""))
                    for each in table.history(HISTORY_MAX)
                    if each.get(WRITER_NOTE) == writer
                ),
                "",
            ),
        )

    def held(self) -> Held:
        table = self._table()
        return Held() if table is None else _held(table)

    def layout(self, batch: Batch) -> Layout:
        return Layout(
            store=self._store,
            folder="",
            partition_by=tuple(self._table().metadata().partition_columns),
            keeps_partition_columns=False,
            values_in_paths=False,
        )

    def commit(self, batch: Batch, files: Sequence[DataFile], added: Held) -> None:
        transaction = self._transaction.Transaction
        numbers = [transaction(BATCHES + batch.writer, batch.number)]
        if batch.identity:
            numbers.append(transaction(IDENTITIES + batch.writer, int(batch.identity[:IDENTITY_DIGITS], 16)))
        numbers += [transaction(_offset_name(place), end) for place, end in sorted(added.offsets.items())]
        note = {WRITER_NOTE: batch.writer, SOURCES_NOTE: batch.offsets}
        actions = [self._added(each, changed=True) for each in files]

        def change() -> None:
            self._note_topics(added)
            # The check and the commit use the same version: the log refuses the commit if there is a newer one.
            table = self._table()
            check_offsets(files, _held(table))
            self._write(table, actions, numbers, note)

        def is_done() -> bool:
            last = self.last_batch(batch.writer)
            return last is not None and last.is_of(batch)

        commit_again(change, is_done, (self._exceptions.CommitFailedError,))

    def _note_topics(self, added: Held) -> None:
        """Written before the offsets: a partition in the list without an offset is harmless."""
        held = _held(self._table())
        joined = held.joined(added)
        properties: dict[str, str] = {}
        if joined.offsets.keys() != held.offsets.keys():
            properties[KNOWN_PLACES] = json.dumps(sorted(joined.offsets))
        if joined.topic_ids != held.topic_ids:
            properties[TOPIC_IDS] = json.dumps(dict(joined.topic_ids), sort_keys=True)
        if properties:
            self._table().alter.set_table_properties(properties, raise_if_not_exists=False)

    def _write(self, table: Any, actions: Sequence[Any], numbers: Sequence[Any], note: Mapping[str, str]) -> None:
        table.create_write_transaction(
            list(actions),
            mode="append",
            schema=table.schema(),
            partition_by=list(table.metadata().partition_columns),
            commit_properties=self._transaction.CommitProperties(
                app_transactions=list(numbers), custom_metadata=dict(note)
            ),
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
        layout = self.layout(batch)
        for folder in {folder_in(layout, each.values) for each in files}:
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
        self._write(self._table(), [*removed, self._added(new, changed=False)], (), {})

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        """Deletes only files in the log, so none that a task is writing."""
        table = self._table()
        if table is None:
            raise LakeError(f"there is no Delta table at {self._uri}")
        hours = -(-(self._clock.now_ms() - before_ms) // HOUR_MS)
        gone = table.vacuum(retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False)
        if not dry_run:
            # Without these settings, the log would keep every version.
            table.update_incremental()
            table.create_checkpoint()
            table.cleanup_metadata()
        return Expired(versions=0, files=tuple(sorted(self._store.relative(unquote(each)) for each in gone)))


def _held(table: Any) -> Held:
    settings = table.metadata().configuration
    ends: dict[Place, int] = {}
    for topic, partition in json.loads(settings.get(KNOWN_PLACES, "[]")):
        end = table.transaction_version(_offset_name((topic, partition)))
        if end is not None:
            ends[topic, partition] = int(end)
    return Held(offsets=ends, topic_ids=json.loads(settings.get(TOPIC_IDS, "{}")))


def _offset_name(place: Place) -> str:
    return f"{OFFSETS}{place[0]}/{place[1]}"


def _text(value: Any) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _statistics(file: DataFile) -> dict[str, Any]:
    """Statistics with which readers can skip the file."""
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
        # The log keeps milliseconds: a maximum must not be rounded down.
        moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000 + 999)
    return {
        "partition": choose(each.partition for each in spans),
        "offset": choose(getattr(each, offset) for each in spans),
        "timestamp": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
