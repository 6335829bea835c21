"""Indexes compared with a sorted list."""

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.storage import txn_index
from penstock.storage.offset_index import OffsetIndex, OffsetIndexFile, WouldBlock, encode
from penstock.storage.time_index import TimeIndex, last_entry
from penstock.storage.txn_index import AbortedTxn, TxnIndexDamaged
from penstock.testing.mem_disk import MemDisk

U31 = st.integers(0, 2**31 - 1)


@st.composite
def entries(draw: st.DrawFn, size_max: int = 1200) -> list[tuple[int, int]]:
    """Offsets and positions that both rise; sometimes more than one page of them."""
    count = draw(st.integers(0, size_max))
    seed = draw(st.randoms(use_true_random=False))
    offset = position = 0
    made: list[tuple[int, int]] = []
    for _ in range(count):
        offset += seed.randint(1, 50)
        position += seed.randint(61, 5000)
        made.append((offset, position))
    return made


def index_of(pairs: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in pairs:
        index.append(offset, position)
    return index


@given(entries(), st.lists(st.integers(0, 70_000), max_size=20))
def test_both_offset_indexes_find_the_greatest_entry_not_beyond(pairs, wanted):
    index = index_of(pairs)
    disk = MemDisk()
    disk.make_directory("/d")
    disk.write_file("/d/x", index.unsaved())
    file = OffsetIndexFile(disk.open_read("/d/x"), len(index.unsaved()))
    offsets = [offset for offset, _ in pairs]
    positions = [position for _, position in pairs]

    for target in [*wanted, *offsets[:3], *offsets[-3:]]:
        at = bisect_right(offsets, target)
        expected = positions[at - 1] if at else 0
        assert index.floor(target) == file.floor(target, wait=False) == expected
    for target in [*(w * 100 for w in wanted), *positions[:3], *positions[-3:]]:
        at = bisect_right(positions, target)
        expected = positions[at - 1] if at else 0
        assert index.boundary(target) == file.boundary(target, wait=False) == expected
        assert file.beyond(target, wait=False) in (index.beyond(target), None)


@given(entries(200), st.integers(0, 300_000))
def test_an_offset_index_is_the_same_after_saving_and_truncating(pairs, size):
    index = index_of(pairs)

    again = OffsetIndex.load(index.unsaved())
    assert (again.offsets, again.positions) == (index.offsets, index.positions)
    assert again.is_sound()
    assert again.unsaved() == b""

    again.truncate_to_size(size)
    assert list(zip(again.offsets, again.positions, strict=True)) == [pair for pair in pairs if pair[1] < size]


def test_an_offset_entry_is_two_big_endian_words():
    assert index_of([(1, 2), (0x01020304, 0x05060708)]).unsaved() == bytes.fromhex("00000001000000020102030405060708")


def test_a_page_of_zeros_makes_an_index_unsound():
    pairs = [(at, at * 100) for at in range(1, 600)]
    data = bytearray(index_of(pairs).unsaved())
    data[1000:2000] = bytes(1000)

    assert not OffsetIndex.load(bytes(data)).is_sound()


def test_a_torn_entry_is_left_out():
    data = index_of([(1, 2), (3, 4)]).unsaved()

    assert len(OffsetIndex.load(data[:-1])) == 1


def test_a_search_of_a_cold_index_would_block():
    disk = MemDisk()
    disk.make_directory("/d")
    index = index_of([(at, at * 100) for at in range(1, 2000)])
    disk.write_file("/d/x", encode(index.offsets, index.positions))
    disk.evict("/d/x")
    file = disk.open_read("/d/x")

    with pytest.raises(WouldBlock):
        OffsetIndexFile(file, file.size()).floor(700, wait=False)
    assert OffsetIndexFile(file, file.size()).floor(700, wait=True) == 70_000
    assert OffsetIndexFile(file, file.size()).floor(700, wait=False) == 70_000


def test_a_sequential_reader_uses_the_page_of_the_index_that_was_read_last():
    disk = MemDisk()
    disk.make_directory("/d")
    index = index_of([(at, at * 100) for at in range(1, 2000)])
    disk.write_file("/d/x", encode(index.offsets, index.positions))
    file = disk.open_read("/d/x")
    searched = OffsetIndexFile(file, file.size())
    assert searched.floor(700, wait=False) == 70_000
    disk.evict("/d/x")

    assert (searched.floor(701, wait=False), searched.boundary(80_050, wait=False)) == (70_100, 80_000)
    with pytest.raises(WouldBlock):
        searched.floor(1900, wait=False)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3)), max_size=60), st.lists(st.integers(-5, 510)))
def test_a_time_index_holds_each_new_maximum_and_finds_it(steps, wanted):
    index = TimeIndex()
    expected: list[tuple[int, int]] = []
    offset = newest = -1
    newest_at = 0
    for timestamp, delta in steps:
        offset += 1 + delta
        if timestamp > newest:
            newest, newest_at = timestamp, offset
        index.append(newest, newest_at)
        if not expected or newest > expected[-1][0]:
            expected.append((newest, newest_at))

    assert list(zip(index.timestamps, index.offsets, strict=True)) == expected
    assert last_entry(index.unsaved()) == (expected[-1] if expected else None)
    for target in wanted:
        before = [at for timestamp, at in expected if timestamp <= target]
        assert index.floor(target) == (before[-1] if before else 0)


@given(st.lists(st.tuples(U31, U31), max_size=30), U31)
def test_a_time_index_is_the_same_after_saving_and_truncating(pairs, cut):
    rising = sorted(dict(pairs).items())
    offsets = sorted(offset for _, offset in rising)
    index = TimeIndex()
    for (timestamp, _), offset in zip(rising, offsets, strict=True):
        index.append(timestamp, offset)

    again = TimeIndex.load(index.unsaved() + b"torn")
    assert again.is_sound()
    assert (again.timestamps, again.offsets) == (index.timestamps, index.offsets)
    again.truncate_to_offset(cut)
    assert list(again.offsets) == [offset for offset in offsets if offset < cut]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 9)), max_size=20), st.integers(0, 300))
def test_aborted_transactions_are_read_back_collected_and_truncated(steps, cut):
    disk = MemDisk()
    disk.make_directory("/d")
    made: list[AbortedTxn] = []
    last = 0
    for producer_id, length, gap in steps:
        last += length + gap
        made.append(AbortedTxn(producer_id, last - length, last, last - length))
        txn_index.append(disk, "/d/x", made[-1])

    assert txn_index.read(disk, "/d/x") == made
    assert txn_index.encode(made) == (disk.read_file("/d/x") if made else b"")
    assert txn_index.collect(made, cut, cut + 10) == [
        entry for entry in made if not (entry.last_offset < cut or entry.first_offset >= cut + 10)
    ]
    if made:
        txn_index.truncate_to(disk, "/d/x", cut)
        assert txn_index.read(disk, "/d/x") == [entry for entry in made if entry.last_offset < cut]


def test_a_torn_transaction_entry_is_damage():
    disk = MemDisk()
    disk.make_directory("/d")
    disk.write_file("/d/x", txn_index.encode([AbortedTxn(1, 2, 3, 2)])[:-1])

    with pytest.raises(TxnIndexDamaged):
        txn_index.read(disk, "/d/x")


def test_a_transaction_entry_of_zeros_is_damage():
    disk = MemDisk()
    disk.make_directory("/d")
    disk.write_file("/d/x", bytes(txn_index.ENTRY_BYTES))

    with pytest.raises(TxnIndexDamaged):
        txn_index.read(disk, "/d/x")
