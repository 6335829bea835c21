"""Columns become valid records, in the partitions that Kafka's producers choose."""

from array import array
from typing import Any

import pytest
from either_way import both, from_source
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.batch import HEADER_BYTES, MAGIC, BatchHeader
from penstock.wire.records import HEADER, Record, decode_records

EITHER = both("column_batches")
STICKY_ROWS = from_source("column_batches").STICKY_ROWS

blobs = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)
rows = st.lists(st.tuples(blobs, blobs, headers, st.integers(0, 2**41)), min_size=1, max_size=30)


def ends_of(parts: list[bytes]) -> array:
    ends = array("i", [0])
    for part in parts:
        ends.append(ends[-1] + len(part))
    return ends


def column(module: Any, values: list[bytes | None]) -> Any:
    parts = [value or b"" for value in values]
    valid = None if None not in values else bytes(value is not None for value in values)
    return module.BytesColumn(ends_of(parts), b"".join(parts), valid)


def batch_of(records: Any) -> bytes:
    """The batch of these records, as a broker receives it."""
    count, base, latest, size = records.count, records.base_time, records.time_max, records.size
    header = BatchHeader(0, HEADER_BYTES - 12 + size, -1, MAGIC, 0, 0, count - 1, base, latest, -1, -1, -1, count)
    return HEADER.pack(*header) + records.take()


@pytest.mark.parametrize("module", EITHER)
@settings(max_examples=60)
@given(table=rows)
def test_rows_round_trip_through_records(module: Any, table: list[Any]) -> None:
    names = [name.encode() for _, _, each, _ in table for name, _ in each]
    contents = [content for _, _, each, _ in table for _, content in each]
    header_ends = array("i", [0])
    for _, _, each, _ in table:
        header_ends.append(header_ends[-1] + len(each))
    records = module.RecordsOfPartition()

    done = module.add_rows(
        [records],
        array("i", [0]) * len(table),
        array("q", [time for *_, time in table]),
        column(module, [key for key, *_ in table]),
        column(module, [value for _, value, *_ in table]),
        module.HeaderColumns(header_ends, column(module, names), column(module, contents)),
        0,
        1 << 30,
    )

    assert done == len(table)
    assert decode_records(batch_of(records)) == [
        Record(offset, time, key, value, list(each) if each else ())
        for offset, (key, value, each, time) in enumerate(table)
    ]
    assert records.count == 0


@pytest.mark.parametrize("module", EITHER)
def test_a_full_partition_stops_the_rows_so_that_it_can_be_sent(module: Any) -> None:
    records = [module.RecordsOfPartition(), module.RecordsOfPartition()]
    values = column(module, [b"x" * 100] * 10)
    chosen, times = array("i", [0, 1] * 5), array("q", [7]) * 10

    first = module.add_rows(records, chosen, times, None, values, None, 0, 250)
    records[0].take()
    second = module.add_rows(records, chosen, times, None, values, None, first, 250)

    assert (first, second) == (5, 6)
    assert records[1].count == 3


@pytest.mark.parametrize("module", EITHER)
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_the_hash_of_a_key_is_that_of_kafkas_java_client(module: Any, key: bytes, hashed: int) -> None:
    assert module.murmur2(key or b"\0", 0, len(key)) == hashed & 0xFFFFFFFF


@pytest.mark.parametrize("module", EITHER)
def test_explicit_partitions_stay_and_keys_choose_the_others(module: Any) -> None:
    chosen = array("i", [2, -1, -1])
    keys = column(module, [b"foobar", b"foobar", b"abc"])

    module.choose_partitions(chosen, keys, array("i", [0, 0, 1]), array("i", [5, 7]), array("i", [0, 5]), 0)

    assert chosen.tolist() == [2, (-790332482 & 0x7FFFFFFF) % 5, 5 + 479470107 % 7]


@pytest.mark.parametrize("module", EITHER)
def test_rows_without_a_key_take_turns_over_all_partitions(module: Any) -> None:
    count = STICKY_ROWS * 6
    chosen = array("i", [-1]) * count

    turn = module.choose_partitions(chosen, None, array("i", [0]) * count, array("i", [3]), array("i", [0]), 1)

    assert [chosen.tolist().count(partition) for partition in range(3)] == [STICKY_ROWS * 2] * 3
    assert chosen[0] == 1
    assert turn == 7


@pytest.mark.parametrize("module", EITHER)
def test_inconsistent_columns_are_rejected(module: Any) -> None:
    with pytest.raises(AssertionError, match="rows to 9 in 3 bytes"):
        module.BytesColumn(array("i", [0, 9]), b"abc")
    with pytest.raises(AssertionError, match="1 times for 2 rows"):
        module.add_rows(
            [module.RecordsOfPartition()],
            array("i", [0, 0]),
            array("q", [1]),
            None,
            column(module, [b"a", b"b"]),
            None,
            0,
            100,
        )


def hashes(module: Any, table: list[tuple[bytes | None, bytes | None]]) -> int:
    keys, contents = column(module, [key for key, _ in table]), column(module, [value for _, value in table])
    return module.sum_of_hashes(keys, contents, array("i", [0]) * len(table), array("Q", [7]))


@settings(max_examples=60)
@given(table=st.lists(st.tuples(blobs, blobs), min_size=1, max_size=20), randomness=st.randoms(use_true_random=False))
def test_the_sum_of_hashes_does_not_depend_on_order_or_pieces(table: list[Any], randomness: Any) -> None:
    shuffled = table[:]
    randomness.shuffle(shuffled)
    cut = randomness.randint(1, len(table))
    (expected,) = {hashes(module, table) for module in (each.values[0] for each in EITHER)}

    for module in (each.values[0] for each in EITHER):
        pieces = [part for part in (shuffled[:cut], shuffled[cut:]) if part]
        assert sum(hashes(module, part) for part in pieces) % 2**64 == expected


@pytest.mark.parametrize("module", EITHER)
def test_different_rows_have_different_hashes(module: Any) -> None:
    tables = [
        [(b"a", b"b")],
        [(b"b", b"a")],
        [(None, b"ab")],
        [(b"", b"ab")],
        [(b"ab", b"")],
        [(b"ab", None)],
        [(None, None)],
        [(b"a", b"b"), (b"a", b"b")],
        [(b"a", b"c"), (b"b", b"b")],
        [(b"a", b"\0")],
        [(b"a", b"\0" * 9)],
        [(b"a", b"\xff" * 9)],
    ]

    assert len({hashes(module, table) for table in tables}) == len(tables)
