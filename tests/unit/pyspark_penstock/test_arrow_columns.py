"""Batches of records as Arrow: every record of a range, as Spark's Kafka connector would show it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from penstock.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from penstock.wire.records import Record, build_batch, build_marker, iter_batches
from pyspark_penstock import columns
from pyspark_penstock.batch_reader import read_range
from pyspark_penstock.chunks import Room
from pyspark_penstock.columns import ColumnReader, read_schema
from pyspark_penstock.errors import CorruptBatch
from pyspark_penstock.fetching import Fetched
from pyspark_penstock.offsets import OffsetRange
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.spark_internals import arrow_schema
from pyspark_penstock.untyped import pyarrow

ALL = 1 << 40
MINIMAL = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}

blobs = some.none() | some.binary(max_size=40)
headers = some.lists(some.tuples(some.text(max_size=5), some.none() | some.binary(max_size=5)), max_size=3)
contents = some.lists(some.tuples(some.integers(0, 1 << 40), blobs, blobs, headers), min_size=1, max_size=30)


def records_of(*values: bytes | None, first: int = 0) -> list[Record]:
    return [Record(first + index, 1_000 + index, None, value) for index, value in enumerate(values)]


def fetched_of(*batches: bytearray, aborted: list[tuple[int, int]] | None = None, first: int = 0) -> Fetched:
    whole = b"".join(bytes(each) for each in batches)
    found = list(iter_batches(whole))
    return Fetched(
        records=whole, batches=found, aborted=aborted or [], first_offset=first, next_offset=found[-1][1].next_offset
    )


def read(fetched: Fetched, *, end: int = ALL, **options: str) -> list[dict[str, Any]]:
    parsed = ReadOptions.of({**MINIMAL, **options})
    wanted = OffsetRange(topic="orders", partition=3, start=0, end=end)
    found = list(ColumnReader(parsed, wanted).batches(fetched))
    for each in found:
        each.validate(full=True)
        assert each.schema.equals(arrow_schema(read_schema(parsed)))
    return [row for each in found for row in each.to_pylist()]


@settings(max_examples=60, deadline=None)
@given(contents, some.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]), some.integers(0, 1 << 40))
def test_every_record_is_a_row(content: Any, codec: int, base: int) -> None:
    made = [Record(base + index, *each) for index, each in enumerate(content)]
    rows = read(fetched_of(build_batch(made, base_offset=base, compression=codec)), end=1 << 50, includeHeaders="true")
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (record.offset, record.key, record.value) for record in made
    ]
    assert [row["timestamp"].timestamp() for row in rows] == [record.timestamp_ms / 1000 for record in made]
    shown = [[{"key": name, "value": value} for name, value in record.headers] or None for record in made]
    assert [row["headers"] for row in rows] == shown
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("orders", 3, 0)}


def test_records_outside_of_the_range_are_left_out() -> None:
    rows = read(fetched_of(build_batch(records_of(b"0", b"1", b"2", b"3")), first=1), end=3)
    assert [row["value"] for row in rows] == [b"1", b"2"]


def test_offsets_that_compaction_has_taken_are_no_rows() -> None:
    made = [Record(5, 1, None, b"a"), Record(9, 1, None, b"b")]
    rows = read(fetched_of(build_batch(made, base_offset=5, last_offset_delta=7)))
    assert [(row["offset"], row["value"]) for row in rows] == [(5, b"a"), (9, b"b")]


def test_a_time_of_the_broker_shows_in_both_columns_of_times() -> None:
    appended = build_batch(records_of(b"a", b"b"), timestamp_type=1)
    created = build_batch(records_of(b"c", first=2), base_offset=2)
    rows = read(fetched_of(appended, created))
    assert [row["timestampType"] for row in rows] == [1, 1, 0]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [1_001, 1_001, 1_000]


def transaction(producer: int, *values: bytes, base: int) -> bytearray:
    return build_batch(
        records_of(*values, first=base),
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(producer: int, base: int, *, commit: bool) -> bytearray:
    made = build_marker(commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    made[0:8] = base.to_bytes(8, "big")
    return made


def test_a_read_committed_range_has_no_rows_of_aborted_transactions_and_markers() -> None:
    fetched = fetched_of(
        transaction(7, b"aborted", base=0),
        transaction(8, b"committed", base=1),
        marker(7, 2, commit=False),
        transaction(7, b"after", base=3),
        marker(8, 4, commit=True),
        marker(7, 5, commit=True),
        aborted=[(7, 0)],
    )
    committed = read(fetched, **{"kafka.isolation.level": "read_committed"})
    assert [row["value"] for row in committed] == [b"committed", b"after"]
    assert [row["value"] for row in read(fetched)] == [b"aborted", b"committed", b"after"]


def test_a_batch_that_was_damaged_on_the_way_is_an_error() -> None:
    batch = build_batch(records_of(b"hello"))
    batch[-3] ^= 1
    with pytest.raises(CorruptBatch, match="offset 0 of orders-3"):
        read(fetched_of(batch))


def test_an_arrow_batch_holds_no_more_than_its_bounds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "CHUNK_BYTES_MAX", 1_000)
    values = [bytes([index]) * 300 for index in range(10)]
    values[4] = b"x" * 5_000
    for codec in (NONE, LZ4):
        fetched = fetched_of(build_batch(records_of(*values), compression=codec))
        parsed = ReadOptions.of(MINIMAL)
        wanted = OffsetRange(topic="orders", partition=0, start=0, end=ALL)
        found = list(ColumnReader(parsed, wanted).batches(fetched))
        assert [row["value"] for each in found for row in each.to_pylist()] == values
        # A record that passes the bound alone has the room that is left in its batch.
        assert max(each.num_rows for each in found if b"x" * 5_000 not in each["value"].to_pylist()) <= 3


def test_rows_of_an_arrow_batch_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "CHUNK_ROWS_MAX", 4)
    fetched = fetched_of(build_batch(records_of(*[b"v"] * 10)))
    found = list(
        ColumnReader(ReadOptions.of(MINIMAL), OffsetRange(topic="o", partition=0, start=0, end=ALL)).batches(fetched)
    )
    assert [each.num_rows for each in found] == [4, 4, 2]


def batches_of_two(monkeypatch: pytest.MonkeyPatch, count: int, **options: str) -> Iterator[Any]:
    """Records named by their offset and with headers, two to an Arrow batch."""
    monkeypatch.setattr(columns, "CHUNK_ROWS_MAX", 2)
    made = [
        Record(index, index, b"k%d" % index, None if index % 3 == 0 else b"v%d" % index, (("h", b"%d" % index),))
        for index in range(2 * count)
    ]
    reader = ColumnReader(ReadOptions.of({**MINIMAL, **options}), OffsetRange(topic="o", partition=0, start=0, end=ALL))
    return reader.batches(fetched_of(build_batch(made)))


def value_addresses(batch: Any) -> int:
    """The memory addresses of the values."""
    address: int = batch["value"].buffers()[2].address
    return address


def test_unreferenced_memory_of_arrow_batches_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {value_addresses(batch) for batch in batches_of_two(monkeypatch, 20)}
    assert len(places) <= columns.ROOMS_MAX


def test_an_arrow_batch_that_is_held_is_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    held = list(batches_of_two(monkeypatch, 20, includeHeaders="true"))
    assert len({value_addresses(batch) for batch in held}) == 20
    assert [row["offset"] for batch in held for row in batch.to_pylist()] == list(range(40))


@pytest.mark.parametrize("column", ["key", "value", "offset", "timestamp", "headers"])
def test_a_part_of_one_column_that_is_held_is_not_written_over(monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    expected = [batch[column].to_pylist()[1] for batch in batches_of_two(monkeypatch, 20, includeHeaders="true")]
    held = [batch[column].slice(1) for batch in batches_of_two(monkeypatch, 20, includeHeaders="true")]
    assert [each.to_pylist()[0] for each in held] == expected
    assert len({str(each) for each in expected}) > 1


def test_imports_are_exempt_from_a_workers_collection_after_a_task() -> None:
    nothing = OffsetRange(topic="orders", partition=0, start=5, end=5)
    assert list(read_range(ReadOptions.of(MINIMAL), nothing)) == []
    assert gc.get_freeze_count() > 0


def test_only_the_columns_that_were_chosen_are_made() -> None:
    rows = read(fetched_of(build_batch(records_of(b"a"))), columns="offset,value")
    assert rows == [{"offset": 0, "value": b"a"}]


def test_values_are_parsed_or_have_a_reason() -> None:
    fetched = fetched_of(build_batch(records_of(b'{"id": 1}', b"{", None)))
    schema = {"value.format": "json", "value.schema": "id bigint", "columns": "value,value_error,value_bytes"}
    first, second, third = read(fetched, **schema)
    assert first == {"value": {"id": 1}, "value_error": None, "value_bytes": b'{"id": 1}'}
    assert (second["value"], second["value_bytes"]) == (None, b"{")
    assert "no JSON" in second["value_error"]
    assert third == {"value": None, "value_error": None, "value_bytes": None}


def test_keys_are_parsed_by_a_format_of_their_own() -> None:
    made = [Record(0, 1, b'{"id": 7}', b"x"), Record(1, 1, b"7", b"y"), Record(2, 1, None, b"\xff")]
    typed = {"key.format": "json", "key.schema": "id int", "value.format": "string"}
    rows = read(fetched_of(build_batch(made)), columns="key,key_error,key_bytes,value,value_error", **typed)
    assert [row["key"] for row in rows] == [{"id": 7}, None, None]
    assert [row["key_error"] for row in rows] == [None, "a JSON object was expected, not a number", None]
    assert [row["key_bytes"] for row in rows] == [b'{"id": 7}', b"7", None]
    assert [row["value"] for row in rows] == ["x", "y", None]
    assert [row["value_error"] is None for row in rows] == [True, True, False]


@settings(max_examples=60, deadline=None)
@given(some.lists(some.lists(some.tuples(some.sampled_from("abc"), blobs), max_size=5), min_size=1, max_size=8))
def test_headers_as_maps_keep_the_last_of_equal_names(content: Any) -> None:
    made = [Record(index, 1, None, b"v", each) for index, each in enumerate(content)]
    rows = read(fetched_of(build_batch(made)), columns="headers,offset", **{"headers.format": "map"})
    assert [None if row["headers"] is None else dict(row["headers"]) for row in rows] == [
        dict(each) or None for each in content
    ]
    assert all(row["headers"] is None or len(row["headers"]) == len(dict(row["headers"])) for row in rows)


def test_a_response_without_records_of_the_range_gives_no_batch() -> None:
    assert read(fetched_of(marker(7, 0, commit=True))) == []


def test_a_room_has_one_lease_at_a_time_and_outlives_the_arrays_made_of_it() -> None:
    room = Room(rows=4, size=16, headers_max=None)
    lease = room.lease()
    room.offsets[:] = [5, 6, 7, 8]
    held = lease.buffer(room.offsets, 2)
    del lease
    assert not room.is_free()
    with pytest.raises(AssertionError, match="still held"):
        room.lease()
    array = pyarrow.Array.from_buffers(pyarrow.int64(), 2, [None, held]).slice(1)
    del held
    assert not room.is_free()
    del room
    gc.collect()
    assert array.to_pylist() == [6]
