"""Parquet files of a table: what tasks write, and what their footers say.

Rows go from Arrow to Parquet batch by batch; a task holds at most `OPEN_FILES_MAX` files open and `BUFFER_BYTES_MAX`
bytes of rows in each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote

from pyspark_penstock.lake import Batch, DataFile, Layout, Span, ends_of
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
"""How Hive, and everybody since, names the folder of rows without a value."""
CODEC = "zstd"
READ_ROWS = 1 << 14
SPAN_COLUMNS = ("partition", "offset", "timestamp")
RESULT_SCHEMA = "told STRING"

Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWriting:
    """What a task does with its rows: a function for ``mapInArrow``, whose answer is a row for each file."""

    layout: Layout
    batch: Batch
    schema: str
    """Arrow's, as text: what the rows are cast to."""
    spans: bool = False
    """Whether rows have a topic, a partition and an offset to note."""
    error_column: str = ""
    """Rows with a value here are dead letters: told of, and not written."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = "0-0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
        files = TaskFiles(self, task)
        told: list[dict[str, Any]] = [{"file": each.to_json()} for each in files.write(batches)]
        if files.dead_rows:
            told.append({"dead": files.dead_rows, "ends": [[*place, end] for place, end in files.dead_ends.items()]})
        # A task without rows has nothing to tell.
        if told:
            texts = [json.dumps(each) for each in told]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(texts, pyarrow.string())], names=["told"])

    @property
    def stem(self) -> str:
        """How the names of a batch's files begin, whoever writes them."""
        return file_stem(self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the tasks of a batch have written, together."""

    files: tuple[DataFile, ...]
    dead_rows: int
    ends: Mapping[Place, int]
    """Of archives: the offset after the last row of each partition, dead letters included."""

    @classmethod
    def of(cls, told: Iterable[str]) -> Written:
        found = [json.loads(each) for each in told]
        files = tuple(DataFile.of_json(each["file"]) for each in found if "file" in each)
        ends = ends_of(files)
        for each in found:
            for topic, partition, end in each.get("ends", ()):
                ends[topic, partition] = max(end, ends.get((topic, partition), 0))
        return cls(files=files, dead_rows=sum(each.get("dead", 0) for each in found), ends=ends)


def file_stem(batch: Batch) -> str:
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

    def __init__(self, what: FileWriting, task: str) -> None:
        self._what = what
        self._task = task
        self._open: dict[Key, OpenFile] = {}
        self._count = 0
        self._done: list[DataFile] = []
        self._schema: Any = schemas.of_text(what.schema)
        self.dead_rows = 0
        self.dead_ends: dict[Place, int] = {}

    def write(self, batches: Iterator[Any]) -> list[DataFile]:
        for given in batches:
            batch = self._living(given) if self._what.error_column else given
            if batch.schema != self._schema:
                batch = batch.cast(self._schema)
            for key, rows in partitioned(batch, self._what.layout.partition_by):
                self._add(key, rows)
        for key in list(self._open):
            self._close(key)
        return self._done

    def _living(self, rows: Any) -> Any:
        """The rows without an error, and without the column for it; the others are counted."""
        errors = rows.column(self._what.error_column)
        if errors.null_count < len(errors):
            dead = rows.filter(errors.is_valid())
            self.dead_rows += dead.num_rows
            for span in spans_of(dead):
                self.dead_ends[span.place] = max(span.offset_max + 1, self.dead_ends.get(span.place, 0))
            rows = rows.filter(errors.is_null())
        return rows.drop_columns([self._what.error_column])

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
        name = f"{self._what.stem}{self._task}-{self._count}.parquet"
        self._count += 1
        path = "/".join(part for part in (layout.folder, folder_of(values), name) if part)
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
    """Rows to write, and what they hold of which partitions."""
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


# Which rows belong together


def partitioned(batch: Any, names: Sequence[str]) -> Iterator[tuple[Key, Any]]:
    """The rows of a batch by the values of some columns, each in the order it had."""
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
    """A column as paths and logs write its values."""
    return column.cast(pyarrow.string())


def folder_of(values: Mapping[str, str | None]) -> str:
    return "/".join(
        f"{name}={NULL_FOLDER if value is None else quote(value, safe='')}" for name, value in values.items()
    )


def values_of(path: str) -> dict[str, str | None]:
    """The values of the columns that a path names."""
    pairs = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {name: None if value == NULL_FOLDER else unquote(value) for name, _, value in pairs}


def spans_of(rows: Any) -> Iterator[Span]:
    """What rows of an archive hold of which partitions."""
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
    """A file with the rows and the span that its footer tells.

    Statistics name one span: of a file with several partitions they tell the least and the greatest of all of them,
    and such a file has no span here.
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
    """Arrow's, of a file."""
    with store.files.open_input_file(store.full(path)) as source:
        return _parquet.read_schema(source)


def read_rows(store: Store, path: str, first: int, end: int, columns: Sequence[str]) -> Iterator[Any]:
    """Some rows of a file, in Arrow batches; of the columns those that it has."""
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
