"""Filters of a batch query as bounds of what is fetched."""

from __future__ import annotations

import datetime
import pickle

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from pyspark_penstock.batch_reader import BatchReader, batch_reader
from pyspark_penstock.columns import read_schema
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.pushdown import Bounds, narrowed

WITHOUT = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
MINIMAL = {**WITHOUT, "filterPushdown": "true"}
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def reader() -> BatchReader:
    return batch_reader(MINIMAL, read_schema(ReadOptions.of(MINIMAL)))


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(("partition",), 1)], Bounds(partitions=frozenset({1}))),
        ([In(("partition",), (1, 2)), EqualTo(("partition",), 2)], Bounds(partitions=frozenset({2}))),
        ([GreaterThan(("partition",), 1), LessThan(("partition",), 5)], Bounds(partition_min=2, partition_end=5)),
        ([EqualTo(("topic",), "a")], Bounds(topics=frozenset({"a"}))),
        ([EqualTo(("offset",), 7)], Bounds(offset_min=7, offset_end=8)),
        ([GreaterThanOrEqual(("offset",), 7), LessThanOrEqual(("offset",), 9)], Bounds(offset_min=7, offset_end=10)),
        ([GreaterThan(("offset",), 7), LessThan(("offset",), 9)], Bounds(offset_min=8, offset_end=9)),
        ([IsNotNull(("offset",))], Bounds()),
    ],
)
def test_partitions_and_offsets_are_bounds_that_say_all(filters: list[Filter], bounds: Bounds) -> None:
    made = reader()
    assert list(made.pushFilters(filters)) == []
    assert made.bounds == bounds


def test_a_time_filter_sets_the_start_and_spark_evaluates_it_again() -> None:
    made = reader()
    since = GreaterThan(("timestamp",), NOON)
    assert list(made.pushFilters([since])) == [since]
    assert made.bounds.time_ms_min == int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    "untouched",
    [
        LessThan(("timestamp",), NOON),
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        Not(EqualTo(("partition",), 1)),
        StringContains(("topic",), "x"),
        GreaterThan(("value", "offset"), 5),
    ],
)
def test_spark_evaluates_other_filters(untouched: Filter) -> None:
    assert narrowed(Bounds(), untouched) is None
    made = reader()
    assert list(made.pushFilters([untouched])) == [untouched]
    assert made.bounds == Bounds()


def test_spark_sees_no_push_down_where_it_is_off() -> None:
    made = reader()
    assert getattr(made.pushFilters, "__func__", None) is DataSourceReader.pushFilters


def test_a_reader_keeps_its_bounds_on_the_way_to_an_executor() -> None:
    made = reader()
    made.pushFilters([EqualTo(("partition",), 1)])
    assert pickle.loads(pickle.dumps(made)).bounds == made.bounds


def test_filters_narrow_nothing_without_the_option() -> None:
    made = batch_reader(WITHOUT, read_schema(ReadOptions.of(WITHOUT)))
    filters = [EqualTo(("partition",), 1)]

    assert list(made.pushFilters(filters)) == filters
    assert made.bounds == Bounds()
