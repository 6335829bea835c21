"""The option `filter` of a read: the rows of a filtered query are those of a query without one that meet it."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from penstock.wire.compression import NONE, ZSTD
from penstock.wire.records import Record, build_batch, build_marker, iter_batches
from pyspark_penstock.columns import ColumnReader
from pyspark_penstock.errors import CorruptBatch, WrongOption
from pyspark_penstock.fetching import Fetched
from pyspark_penstock.filtering import FilteredFetches
from pyspark_penstock.offsets import OffsetRange
from pyspark_penstock.options import ReadOptions

MINIMAL = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
WANTED = OffsetRange(topic="orders", partition=3, start=0, end=1 << 40)


def fetched_of(*batches: bytearray, aborted: list[tuple[int, int]] | None = None, first: int = 0) -> Fetched:
    whole = b"".join(bytes(each) for each in batches)
    found = [(pos, header) for pos, header in iter_batches(whole) if header.next_offset > first]
    return Fetched(
        records=whole, batches=found, aborted=aborted or [], first_offset=first, next_offset=found[-1][1].next_offset
    )


def orders(first: int, count: int, **given: Any) -> bytearray:
    made = [Record(at, 1_000, None, json.dumps({"n": at}).encode()) for at in range(first, first + count)]
    return build_batch(made, base_offset=first, **given)  # type: ignore[arg-type]


def read(*fetches: Fetched, **options: str) -> list[int]:
    parsed: ReadOptions = pickle.loads(pickle.dumps(ReadOptions.of({**MINIMAL, **options})))
    found: Any = fetches
    if parsed.filter is not None:
        found = FilteredFetches(fetches, parsed.filter, WANTED, check_crcs=parsed.fetch.check_crcs)
    reader = ColumnReader(parsed, WANTED)
    return [row["offset"] for each in found for chunk in reader.batches(each) for row in chunk.to_pylist()]


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_filter_drops_what_does_not_meet_it_and_nothing_else(codec: int, isolation: str) -> None:
    marker = build_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)  # type: ignore[arg-type]
    marker[:8] = (20).to_bytes(8, "big")
    fetches = (
        fetched_of(orders(0, 10, compression=codec), first=4),
        fetched_of(
            orders(10, 10, compression=codec, producer_id=7, is_transactional=True),
            marker,
            orders(21, 10, compression=codec),
            aborted=[(7, 10)],
            first=10,
        ),
        fetched_of(orders(31, 5, compression=codec), first=31),
    )
    options = {"kafka.isolation.level": isolation}

    everything = read(*fetches, **options)
    found = read(*fetches, filter="value.n % 10 IN (5, 6) AND partition = 3", **options)

    assert found == [offset for offset in everything if offset % 10 in (5, 6) and offset < 31] + [35]
    assert (15 in found) == (isolation == "read_uncommitted")


def test_a_wrong_filter_is_refused_with_its_place() -> None:
    with pytest.raises(WrongOption, match="Option 'filter': line 1, column 9"):
        ReadOptions.of({**MINIMAL, "filter": "value.n >"})


def test_corruption_is_found_before_a_batch_is_built_anew() -> None:
    batch = orders(0, 5)
    batch[-3] ^= 1

    with pytest.raises(CorruptBatch, match="offset 0 of orders-3"):
        read(fetched_of(batch), filter="value.n >= 0")
