"""What a replay reads of each kind of table, without Spark: its records, their order and its rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_penstock.lake import Batch, Held, LakeError, LakeTable, TableFormat, open_table
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import FileWriting, RowWriting, Written
from pyspark_penstock.pipelines.replay_plan import Plan, Wanted, make_plan, slices
from pyspark_penstock.pipelines.replay_source import PLAN_FILE, ReplayReader, records
from pyspark_penstock.pipelines.store import Store

BEGIN = datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC)


def rows(first: int, count: int, partition: int) -> Any:
    times = [BEGIN + timedelta(seconds=first + number) for number in range(count)]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * count),
            "value": pa.array([b"%d-%d" % (partition, first + number) for number in range(count)]),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "day": pa.array([each.date() for each in times]),
        }
    )


def put(table: LakeTable, number: int, *batches: Any) -> None:
    table.prepare(batches[0].schema, ("topic", "day"))
    batch = Batch(writer="w", number=number)
    layout = RowWriting(layout=table.layout(batch), schema=schemas.to_text(batches[0].schema), spans=True)
    writing = FileWriting(batch=batch, rows=layout)
    written = Written.of(
        result for task, each in enumerate(batches) for result in writing.write(iter([each]), f"{task}-0")
    )
    table.commit(batch, written.files, Held(offsets=written.ends))


@pytest.fixture(params=list(TableFormat))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    made = open_table(request.param, str(tmp_path / "table"))
    for number in range(3):
        put(made, number, rows(5 * number, 5, 0), rows(5 * number, 5, 1))
    return made


def values(plan: Plan) -> list[str]:
    found: list[str] = []
    for group in slices(plan.files, 0, plan.rows):
        for each in group:
            for batch in records(Store.at(plan.root), each, plan.wanted):
                found += [value.decode() for value in batch.column("value").to_pylist()]
    return found


def expected(*offsets: int) -> list[str]:
    return [f"{partition}-{offset}" for partition in range(2) for offset in offsets]


def test_every_record_is_read_in_the_order_of_its_partition(table: LakeTable) -> None:
    plan = make_plan(table, Wanted())
    assert plan.rows == 30
    assert sorted(values(plan), key=lambda each: each[0]) == expected(*range(15))


def test_offsets_choose_records(table: LakeTable) -> None:
    plan = make_plan(table, Wanted(offset_min=4, offset_end=11))
    assert sorted(values(plan), key=lambda each: each[0]) == expected(*range(4, 11))


def test_times_choose_records_over_the_end_of_a_day(table: LakeTable) -> None:
    low = round(BEGIN.timestamp() * 1_000_000)
    plan = make_plan(table, Wanted(time_us_min=low, time_us_end=low + 3_000_000))
    assert sorted(values(plan), key=lambda each: each[0]) == expected(0, 1, 2)
    assert {each.values["day"] for each in plan.files} == {"2026-01-01", "2026-01-02"}


def test_topics_choose_records(table: LakeTable) -> None:
    assert make_plan(table, Wanted(topics=("other",))).files == ()
    assert make_plan(table, Wanted(topics=("orders",))).rows == 30


def test_a_slice_begins_and_ends_anywhere(table: LakeTable) -> None:
    plan = make_plan(table, Wanted())
    found: list[str] = []
    for first in range(0, plan.rows, 7):
        for group in slices(plan.files, first, min(first + 7, plan.rows)):
            for each in group:
                for batch in records(Store.at(plan.root), each, plan.wanted):
                    found += [value.decode() for value in batch.column("value").to_pylist()]
    assert sorted(found, key=lambda each: each[0]) == expected(*range(15))


def test_a_folder_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is nothing at"):
        make_plan(open_table(TableFormat.PARQUET, str(tmp_path / "nothing")), Wanted())


def test_typed_values_without_their_bytes_are_refused(tmp_path: Path) -> None:
    table = open_table(TableFormat.PARQUET, str(tmp_path / "typed"))
    typed = rows(0, 2, 0)
    struct = pa.array([{"id": 1}, {"id": 2}])
    put(table, 0, typed.set_column(1, "value", struct))
    with pytest.raises(LakeError, match="no column of values as bytes"):
        make_plan(table, Wanted())


def test_a_file_that_is_gone_is_named(table: LakeTable) -> None:
    plan = make_plan(table, Wanted())
    gone = plan.files[0].path
    table.store.delete(gone)
    with pytest.raises(LakeError, match="is gone, and this replay has yet to send it") as refused:
        values(plan)
    assert gone in str(refused.value)


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def test_a_rate_limits_each_batch_to_the_records_that_are_due(tmp_path: Path) -> None:
    table = open_table(TableFormat.PARQUET, str(tmp_path / "table"))
    put(table, 0, rows(0, 1000, 0))
    plan = make_plan(table, Wanted())
    Store.at(str(tmp_path / "plan")).write_json(PLAN_FILE, plan.to_json())
    clock = Hands()
    reader = ReplayReader(str(tmp_path / "plan"), 50, clock)
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"row": 0}, limit) == {"row": 50}
    clock.seconds += 2
    assert reader.latestOffset({"row": 50}, limit) == {"row": 150}
    # What a long batch has cost is made up for in part.
    clock.seconds += 60
    assert reader.latestOffset({"row": 150}, limit) == {"row": 400}
    clock.seconds += 1
    assert reader.latestOffset({"row": 990}, limit) == {"row": 1000}
    assert reader.latestOffset({"row": 1000}, limit) == {"row": 1000}
