"""Offsets as they are written, and how ranges are divided among tasks and triggers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from pyspark_penstock.offsets import OffsetRange, Place, divided, from_json, limited, to_json, weighted

places = some.tuples(some.sampled_from(["a", "b"]), some.integers(0, 5))
begun_and_ended = some.dictionaries(places, some.tuples(some.integers(0, 1 << 40), some.integers(0, 10_000)))


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange(topic="t", partition=index, start=10, end=10 + size) for index, size in enumerate(sizes)]


def offsets_of(found: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in found]


@given(some.dictionaries(places, some.integers(-2, 1 << 62)))
def test_offsets_are_read_back_from_their_json(offsets: dict[Place, int]) -> None:
    assert from_json(to_json(offsets)) == offsets


def test_each_partition_is_a_task_and_empty_ones_are_none() -> None:
    assert offsets_of(divided(ranges(5, 0, 7))) == [(0, 10, 15), (2, 10, 17)]


def test_a_large_partition_is_split_so_that_there_are_enough_tasks() -> None:
    assert offsets_of(divided(ranges(10, 90), partitions_min=4)) == [
        (0, 10, 20),
        (1, 10, 40),
        (1, 40, 70),
        (1, 70, 100),
    ]


def test_no_task_reads_more_records_than_it_may() -> None:
    found = divided(ranges(25), records_max=10)
    assert offsets_of(found) == [(0, 10, 18), (0, 18, 26), (0, 26, 35)]


@given(
    some.lists(some.integers(0, 1000), max_size=6),
    some.none() | some.integers(1, 20),
    some.none() | some.integers(1, 200),
)
def test_divided_or_not_every_offset_is_read_once(sizes: list[int], least: int | None, most: int | None) -> None:
    whole = ranges(*sizes)
    found = divided(whole, partitions_min=least, records_max=most)
    assert all(each.size > 0 for each in found)
    assert most is None or all(each.size <= most for each in found)
    read = sorted((each.partition, offset) for each in found for offset in range(each.start, each.end))
    assert read == [(each.partition, offset) for each in whole for offset in range(each.start, each.end)]


@given(begun_and_ended, some.integers(1, 20_000))
def test_a_trigger_reads_about_its_limit_and_at_least_one_record(
    spans: dict[Place, tuple[int, int]], limit: int
) -> None:
    start = {place: begun for place, (begun, _) in spans.items()}
    end = {place: begun + size for place, (begun, size) in spans.items()}
    found = limited(limit, start, end)
    taken = {place: found[place] - start[place] for place in spans}
    assert all(0 <= taken[place] <= size for place, (_, size) in spans.items())
    assert all(taken[place] > 0 for place, (_, size) in spans.items() if size)
    assert sum(taken.values()) <= limit + len(spans)


def test_a_byte_limit_is_shared_in_proportion_to_the_size_of_partitions() -> None:
    start, end = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 100, ("t", 1): 100}
    found = weighted(5_500, start, end, {("t", 0): 100.0, ("t", 1): 10.0})
    assert found == {("t", 0): 50, ("t", 1): 50}
