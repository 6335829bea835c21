"""Parquet files of a table: writing them in tasks, and reading their footers.

Rows go from Arrow to Parquet batch by batch; a task holds at most `OPEN_FILES_MAX` files open and `BUFFER_BYTES_MAX`
bytes of rows in each.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote

from pyspark_penstock.lake import Batch, DataFile, LakeError, Layout, Span, ends_of
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.untyped import pyarrow

_parquet: Any = import_module("pyarrow.parquet")
_compute: Any = import_module("pyarrow.compute")

OPEN_FILES_MAX = 64
BUFFER_BYTES_MAX = 16 << 20
FILE_BYTES_MAX = 256 << 20
"""Bytes of Arrow data after which a file is closed and the next one begun."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for the folder of null values and of empty texts."""
ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""Characters that mean the same path to every reader."""
DIGEST_DIGITS = 32
FOLDER_NAME_BYTES_MAX = 255
"""The longest name of a folder on the usual file systems."""
CODEC = "zstd"
READ_ROWS = 1 << 14
SPAN_COLUMNS = ("partition", "offset", "timestamp")
RESULT_SCHEMA = "result STRING"

Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriting:
    """Where rows are written, and which spans are recorded."""

    layout: Layout
    schema: str
    """The Arrow schema to which rows are cast, as text."""
    spans: bool = False
    """Whether rows have a topic, a partition and an offset to record."""
    columns: tuple[tuple[str, str], ...] = ()
    """The names under which columns are written; if it is empty, all columns keep their names."""
    held: tuple[tuple[str, int, int], ...] = ()
    """Rows below these offsets are already in the table, and are not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWriting:
    """A function for ``mapInArrow`` that writes a task's rows; its result has a row for each file."""

    batch: Batch
    rows: RowWriting
    error_column: str = ""
    """Rows with a value here are dead letters."""
    dead: RowWriting | None = None
    """Where dead letters are written, in the same pass over the rows."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        results = self.write(
            batches, "0-0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
        )
        # A task without rows returns nothing.
        if results:
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(results, pyarrow.string())], names=["result"])

    def write(self, batches: Iterator[Any], task: str) -> list[str]:
        """Write the rows; returns a JSON text for each file, and one for the dead letters."""
        stem = f"{file_stem(self.batch)}{task}"
        living = TaskFiles(self.rows, stem)
        dead = None if self.dead is None else TaskFiles(self.dead, stem)
        dead_rows, dead_ends = 0, dict[Place, int]()
        for given in batches:
            batch = given
            if self.error_column:
                errors = given.column(self.error_column)
                if errors.null_count < len(errors):
                    broken = given.filter(errors.is_valid())
                    batch = given.filter(errors.is_null())
                    dead_rows += broken.num_rows
                    for span in spans_of(broken):
                        dead_ends[span.place] = max(span.offset_max + 1, dead_ends.get(span.place, 0))
                    if dead is not None:
                        dead.add(broken)
                batch = batch.drop_columns([self.error_column])
            living.add(batch)
        results: list[dict[str, Any]] = [{"file": each.to_json()} for each in living.close()]
        if dead is not None:
            results += [{"dead_file": each.to_json()} for each in dead.close()]
        if dead_rows:
            results.append({"dead": dead_rows, "ends": [[*place, end] for place, end in dead_ends.items()]})
        return [json.dumps(each) for each in results]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files of all tasks of a batch."""

    files: tuple[DataFile, ...]
    dead_files: tuple[DataFile, ...]
    dead_rows: int
    ends: Mapping[Place, int]
    """For archives: the offset after the last row of each partition, dead letters included."""

    @classmethod
    def of(cls, results: Iterable[str]) -> Written:
        found = [json.loads(each) for each in results]
        files = tuple(DataFile.of_json(each["file"]) for each in found if "file" in each)
        dead_files = tuple(DataFile.of_json(each["dead_file"]) for each in found if "dead_file" in each)
        ends = ends_of(files)
        for each in found:
            for topic, partition, end in each.get("ends", ()):
                ends[topic, partition] = max(end, ends.get((topic, partition), 0))
        dead_rows = sum(each.get("dead", 0) for each in found)
        return cls(files=files, dead_files=dead_files, dead_rows=dead_rows, ends=ends)


def file_stem(batch: Batch) -> str:
    """The prefix of the names of a batch's files, for all tasks."""
    return f"{quote(batch.writer, safe='')[:40]}-{batch.number:08d}-"


@dataclass(slots=True)
class OpenFile:
    """A file while it is written."""

    path: str
    writer: Any
    footer: list[Any]
    values: dict[str, str | None]
    waiting: list[Any] = field(default_factory=list[Any])
    waiting_bytes: int = 0
    total_bytes: int = 0
    rows: int = 0
    spans: dict[tuple[str, int], Span] = field(default_factory=dict[tuple[str, int], Span])


class TaskFiles:
    """The files of one task while they are written."""

    def __init__(self, what: RowWriting, stem: str) -> None:
        self._what = what
        self._stem = stem
        self._open: dict[Key, OpenFile] = {}
        self._count = 0
        self._done: list[DataFile] = []
        self._schema: Any = schemas.of_text(what.schema)
        self._held = {(topic, partition): end for topic, partition, end in what.held}

    def add(self, rows: Any) -> None:
        batch = self._missing(rows) if self._held else rows
        if self._what.columns:
            columns = [batch.column(name) for name, _ in self._what.columns]
            batch = pyarrow.RecordBatch.from_arrays(columns, names=[name for _, name in self._what.columns])
        if batch.schema != self._schema:
            batch = batch.cast(self._schema)
        for key, part in partitioned(batch, self._what.layout.partition_by):
            self._add(key, part)

    def close(self) -> list[DataFile]:
        for key in list(self._open):
            self._close(key)
        return self._done

    def _missing(self, rows: Any) -> Any:
        """The rows that are not in the table yet."""
        for (topic, partition), end in self._held.items():
            here = _compute.and_(
                _compute.equal(rows.column("topic"), topic), _compute.equal(rows.column("partition"), partition)
            )
            rows = rows.filter(_compute.invert(_compute.and_(here, _compute.less(rows.column("offset"), end))))
        return rows

    def _add(self, key: Key, rows: Any) -> None:
        layout = self._what.layout
        kept = rows if layout.keeps_partition_columns else rows.drop_columns(list(layout.partition_by))
        file = self._open.get(key)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            file = self._open[key] = self._begin(key, kept.schema)
        take_rows(file, kept, spans_of(rows) if self._what.spans else ())
        if file.total_bytes >= FILE_BYTES_MAX:
            self._close(key)

    def _begin(self, key: Key, schema: Any) -> OpenFile:
        layout = self._what.layout
        values = dict(zip(layout.partition_by, key, strict=True))
        if not layout.keeps_partition_columns:
            values = {name: value or None for name, value in values.items()}
        path = path_in(layout, values, f"{self._stem}-{self._count}.parquet")
        self._count += 1
        return open_file(layout.store, path, schema, values)

    def _close(self, key: Key) -> None:
        file = self._open.pop(key)
        self._done.append(close_file(self._what.layout.store, file))


def open_file(store: Store, path: str, schema: Any, values: Mapping[str, str | None]) -> OpenFile:
    store.make_parent(path)
    footer: list[Any] = []
    writer = _parquet.ParquetWriter(
        store.full(path), schema, filesystem=store.files, compression=CODEC, metadata_collector=footer
    )
    return OpenFile(path=path, writer=writer, footer=footer, values=dict(values))


def take_rows(file: OpenFile, rows: Any, spans: Iterable[Span]) -> None:
    """Add rows to a file, and record their spans."""
    file.waiting.append(rows)
    file.waiting_bytes += rows.nbytes
    file.total_bytes += rows.nbytes
    file.rows += rows.num_rows
    for span in spans:
        known = file.spans.get(span.place)
        file.spans[span.place] = span if known is None else joined(known, span)
    if file.waiting_bytes >= BUFFER_BYTES_MAX:
        _flush(file)


def _flush(file: OpenFile) -> None:
    if file.waiting:
        table = pyarrow.Table.from_batches(file.waiting)
        file.writer.write_table(table, row_group_size=max(table.num_rows, 1))
        file.waiting, file.waiting_bytes = [], 0


def close_file(store: Store, file: OpenFile) -> DataFile:
    _flush(file)
    file.writer.close()
    store.settle(file.path)
    size = store.files.get_file_info(store.full(file.path)).size
    spans = tuple(file.spans[place] for place in sorted(file.spans))
    return DataFile(path=file.path, size=size, rows=file.rows, values=file.values, spans=spans)


# Partitioning


def partitioned(batch: Any, names: Sequence[str]) -> Iterator[tuple[Key, Any]]:
    """The rows of a batch by the values of some columns, in their order."""
    if not names:
        yield (), batch
        return
    if not batch.num_rows:
        return
    columns = [text_of(batch.column(name)) for name in names]
    if all(_is_constant(column) for column in columns):
        yield tuple(column[0].as_py() for column in columns), batch
        return
    keys = list(zip(*(column.to_pylist() for column in columns), strict=True))
    places: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        places.setdefault(key, []).append(row)
    for key, rows in places.items():
        yield key, batch.take(pyarrow.array(rows, pyarrow.int64()))


def _is_constant(column: Any) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    return len(column.unique()) == 1


def text_of(column: Any) -> Any:
    """The values of a column as they are written in paths and logs."""
    return column.cast(pyarrow.string())


def path_in(layout: Layout, values: Mapping[str, str | None], name: str) -> str:
    """The path of a file with these values."""
    return "/".join(part for part in (folder_in(layout, values), name) if part)


def folder_in(layout: Layout, values: Mapping[str, str | None]) -> str:
    """The folder of the files with these values.

    If the table itself keeps the values, the folder of a value that would have to be escaped is named by a digest:
    readers disagree about escapes in paths.
    """
    if layout.values_in_paths:
        parts = [_hive_part(name, value) for name, value in values.items()]
    else:
        parts = [f"{_plain(name)}={_plain(value or NULL_FOLDER)}" for name, value in values.items()]
    return "/".join(part for part in (layout.folder, *parts) if part)


def _hive_part(name: str, value: str | None) -> str:
    part = f"{escaped(name)}={escaped(value) if value else NULL_FOLDER}"
    if len(part.encode()) > FOLDER_NAME_BYTES_MAX:
        raise LakeError(
            f"the value {value!r:.60} of the column {name} makes a folder name of {len(part.encode())} bytes, and at "
            f"most {FOLDER_NAME_BYTES_MAX} are allowed: partition by another column, or use a Delta or Iceberg table"
        )
    return part


def _plain(text: str) -> str:
    if PLAIN.fullmatch(text):
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def values_of(path: str) -> dict[str, str | None]:
    """The values of the columns that a path names."""
    pairs = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == NULL_FOLDER else unquote(value) for name, _, value in pairs}


def escaped(text: str) -> str:
    """A name or a value as Hive and Spark write it in a folder's name.

    Other characters stay as they are: Spark reads each escape as one character, so those of UTF-8 would be several.
    """
    return ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def spans_of(rows: Any) -> Iterator[Span]:
    """The spans of rows of an archive."""
    topics = rows.column("topic").unique().to_pylist()
    partitions = rows.column("partition").unique().to_pylist()
    if len(topics) == 1 and len(partitions) == 1:
        yield _span(topics[0], partitions[0], rows)
        return
    for topic in topics:
        for partition in partitions:
            here = rows.filter(
                _compute.and_(
                    _compute.equal(rows.column("topic"), topic), _compute.equal(rows.column("partition"), partition)
                )
            )
            if here.num_rows:
                yield _span(topic, partition, here)


def _span(topic: str, partition: int, rows: Any) -> Span:
    offsets = _compute.min_max(rows.column("offset")).as_py()
    times = _compute.min_max(rows.column("timestamp").cast(pyarrow.int64())).as_py()
    return Span(
        topic=topic,
        partition=partition,
        offset_min=offsets["min"],
        offset_max=offsets["max"],
        timestamp_us_min=times["min"] or 0,
        timestamp_us_max=times["max"] or 0,
    )


def joined(one: Span, other: Span) -> Span:
    return Span(
        topic=one.topic,
        partition=one.partition,
        offset_min=min(one.offset_min, other.offset_min),
        offset_max=max(one.offset_max, other.offset_max),
        timestamp_us_min=min(one.timestamp_us_min, other.timestamp_us_min),
        timestamp_us_max=max(one.timestamp_us_max, other.timestamp_us_max),
    )


# Footers


def with_footer(store: Store, file: DataFile) -> DataFile:
    """A file with the number of rows and the span from its footer.

    Statistics have one minimum and maximum per column, so a file with several partitions has no span here.
    """
    with store.files.open_input_file(store.full(file.path)) as source:
        footer = _parquet.read_metadata(source)
    found = _extremes(footer)
    spans: tuple[Span, ...] = ()
    topic = file.values.get("topic") or _only(found.get("topic"))
    partition = _only(found.get("partition"))
    if topic is not None and partition is not None and "offset" in found:
        times = found.get("timestamp", (None, None))
        low, high = (0 if each is None else round(each.timestamp() * 1_000_000) for each in times)
        spans = (
            Span(
                topic=topic,
                partition=partition,
                offset_min=found["offset"][0],
                offset_max=found["offset"][1],
                timestamp_us_min=low,
                timestamp_us_max=high,
            ),
        )
    return DataFile(path=file.path, size=file.size, rows=footer.num_rows, values=file.values, spans=spans)


def _only(pair: tuple[Any, Any] | None) -> Any:
    return pair[0] if pair is not None and pair[0] == pair[1] else None


def _extremes(footer: Any) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    complete: dict[str, int] = {}
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group)
        for index in range(rows.num_columns):
            column = rows.column(index)
            name, statistics = column.path_in_schema, column.statistics
            if name not in ("topic", *SPAN_COLUMNS) or statistics is None or not statistics.has_min_max:
                continue
            low, high = statistics.min, statistics.max
            known = found.get(name, (low, high))
            found[name] = min(low, known[0]), max(high, known[1])
            complete[name] = complete.get(name, 0) + 1
    return {name: pair for name, pair in found.items() if complete[name] == footer.num_row_groups}


def read_schema(store: Store, path: str) -> Any:
    """The Arrow schema of a file."""
    with store.files.open_input_file(store.full(path)) as source:
        return _parquet.read_schema(source)


def read_rows(store: Store, path: str, first: int, end: int, columns: Sequence[str]) -> Iterator[Any]:
    """Some rows of a file, in Arrow batches, with those of the columns that the file has."""
    with store.files.open_input_file(store.full(path)) as source:
        file = _parquet.ParquetFile(source)
        here = [name for name in columns if name in file.schema_arrow.names]
        begins = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if begins + rows > first and begins < end:
                position = begins
                for batch in file.iter_batches(batch_size=READ_ROWS, row_groups=[group], columns=here):
                    low, high = max(first - position, 0), min(end - position, batch.num_rows)
                    if low < high:
                        yield batch.slice(low, high - low)
                    position += batch.num_rows
            begins += rows
