"""Lake tables as a driver and its tasks write them, without Spark."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_penstock.lake import Batch, Held, LakeTable, TableFormat
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import FileWriting, RowWriting, Written

WRITER = "7f6c"
BY = ("topic", "day")


def rows(first: int, count: int, *, partition: int = 0, day: int = 1, value: dict[str, Any] | None = None) -> Any:
    times = [datetime(2026, 1, day, tzinfo=UTC) + timedelta(milliseconds=number) for number in range(count)]
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([value or {"id": first + number} for number in range(count)]),
            "headers": pa.array([[{"key": "h", "value": b"v"}]] * count),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "day": pa.array([each.date() for each in times]),
        }
    )


def batch_of(number: int, *, writer: str = WRITER) -> Batch:
    """A batch as its checkpoint identifies it."""
    return Batch(
        writer=writer,
        number=number,
        identity=identity_of(number),
        identity_before=identity_of(number - 1) if number else "",
        offsets=f"end of {number}",
    )


def identity_of(number: int, plan: str = "") -> str:
    return hashlib.sha256(f"{number}{plan}".encode()).hexdigest()[:20]


def write(table: LakeTable, number: int, *batches: Any, attempt: int = 0, writer: str = WRITER) -> Written:
    """Write a batch, with a task for each Arrow batch."""
    batch = batch_of(number, writer=writer)
    rows = RowWriting(layout=table.layout(batch), schema=schemas.to_text(batches[0].schema), spans=True)
    writing = FileWriting(batch=batch, rows=rows)
    return Written.of(
        result for task, each in enumerate(batches) for result in writing.write(iter([each]), f"{task}-{attempt}")
    )


def added(written: Written, topic_id: str = "id-1") -> Held:
    return Held(offsets=written.ends, topic_ids=dict.fromkeys((topic for topic, _ in written.ends), topic_id))


def put(table: LakeTable, number: int, *batches: Any, writer: str = WRITER) -> Written:
    table.prepare(batches[0].schema, BY)
    written = write(table, number, *batches, writer=writer)
    batch = batch_of(number, writer=writer)
    table.commit(batch, written.files, added(written))
    table.sweep(batch, written.files)
    return written


def held_offsets(table: LakeTable) -> list[int]:
    """Every offset in the table's files, sorted, duplicates included."""
    found: list[int] = []
    for each in table.files():
        file = pq.ParquetFile(table.store.full(each.path), filesystem=table.store.files)
        found += file.read(columns=["offset"]).column("offset").to_pylist()
    return sorted(found)


PLACES = {
    "parquet": (TableFormat.PARQUET, "{folder}/table"),
    "delta": (TableFormat.DELTA, "{folder}/table"),
    "iceberg": (TableFormat.ICEBERG, "{folder}/table"),
    "parquet-at-an-address": (TableFormat.PARQUET, "file://{folder}/table"),
    "delta-at-an-address": (TableFormat.DELTA, "file://{folder}/table"),
    "iceberg-at-an-address": (TableFormat.ICEBERG, "file://{folder}/table"),
    # Objects and no disk: nothing can be renamed, or lies at a path of this machine.
    "parquet-of-objects": (TableFormat.PARQUET, "fsspec+memory://{folder}/table"),
}
