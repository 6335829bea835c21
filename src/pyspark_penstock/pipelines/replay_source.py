"""A table's records as a stream, in order and with a limited rate."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.model.clock import Clock, SystemClock
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.headers import ARRAY_TYPE
from pyspark_penstock.lake import LakeError
from pyspark_penstock.pipelines.data_files import read_rows, read_schema
from pyspark_penstock.pipelines.replay_plan import Plan, Slice, Wanted, slices, value_column
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.spark_internals import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
    arrow_schema,
)
from pyspark_penstock.untyped import pyarrow

_compute: Any = import_module("pyarrow.compute")

SOURCE_NAME = "penstock-replay"
SLICE_SECONDS = 1.0
"""The duration of a batch at the given rate."""
BURST_SECONDS_MAX = 5.0
"""How much of the delay of a slow batch the next one may make up for."""
ROWS_PER_BATCH = 500_000
PLAN_FILE = "plan.json"
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ARRAY_TYPE),
        StructField("timestamp", TimestampType()),
        StructField("source_topic", StringType()),
        StructField("source_partition", IntegerType()),
    ]
)


class ReplaySource(DataSource):
    """Options: ``plan``, the folder that holds it, and ``rate``, records a second or 0."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> ReplayReader:
        if not HAS_ADMISSION_CONTROL:
            raise WrongOption("a replay limits its batches, which needs PySpark 4.2 or newer")
        return ReplayReader(str(self.options["plan"]), float(self.options.get("rate", "0")))


class ReplayPartition(InputPartition):
    """Rows that one task sends."""

    def __init__(self, root: str, wanted: Wanted, chosen: Sequence[Slice]) -> None:
        super().__init__(0)
        self.root = root
        self.wanted = wanted
        self.chosen = tuple(chosen)


class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Positions are rows of the plan."""

    def __init__(self, plan: str, rate: float, clock: Clock | None = None) -> None:
        self._folder = plan
        self._rate = rate
        self._clock = clock or SystemClock()
        self._plan: Plan | None = None
        self._last: float | None = None

    def __reduce__(self) -> tuple[type[ReplayReader], tuple[str, float]]:
        return ReplayReader, (self._folder, self._rate)

    def _planned(self) -> Plan:
        if self._plan is None:
            self._plan = Plan.of_json(Store.at(self._folder).read_json(PLAN_FILE))
        return self._plan

    def initialOffset(self) -> dict[str, Any]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """A plan does not grow."""

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {"row": self._planned().rows}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        row, total = int(start["row"]), self._planned().rows
        if row >= total:
            return start
        return {"row": min(total, row + self._allowed())}

    def _allowed(self) -> int:
        """The rows that the next batch may have; waits until there are some."""
        if not self._rate:
            return ROWS_PER_BATCH
        now = self._clock.monotonic()
        if self._last is None:
            self._last = now - SLICE_SECONDS
        if now - self._last < SLICE_SECONDS:
            time.sleep(SLICE_SECONDS - (now - self._last))
            now = self._clock.monotonic()
        passed = min(now - self._last, BURST_SECONDS_MAX)
        self._last = now
        return max(1, int(self._rate * passed))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        plan = self._planned()
        groups = slices(plan.files, int(start["row"]), int(end["row"]))
        return [ReplayPartition(plan.root, plan.wanted, each) for each in groups]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint is enough."""

    def stop(self) -> None:
        """Nothing is held open."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, ReplayPartition), f"{type(partition).__name__} was not planned here"
        store = Store.at(partition.root)
        for each in partition.chosen:
            yield from records(store, each, partition.wanted)


def records(store: Store, chosen: Slice, wanted: Wanted) -> Iterator[Any]:
    """The records of a slice as the stream's columns, in Arrow batches; LakeError if their file is gone."""
    path = chosen.file.path
    try:
        value = value_column(read_schema(store, path))
    except FileNotFoundError:
        raise LakeError(
            f"{store.uri(path)} is gone, and this replay has yet to send it: a merge of small files or a clean-up has "
            "deleted it. Replay the remaining records under another --name, with --from"
        ) from None
    assert value is not None, f"{path} was planned without values"
    columns = ("key", value, "headers", "topic", "partition", "offset", "timestamp")
    for batch in read_rows(store, path, chosen.first, chosen.end, columns):
        rows = filtered(batch, wanted)
        if rows.num_rows:
            yield as_records(rows, value, chosen.file.values)


def filtered(rows: Any, wanted: Wanted) -> Any:
    """The wanted rows of a file."""
    tests: list[Any] = []
    if wanted.topics and "topic" in rows.schema.names:
        tests.append(_compute.is_in(rows.column("topic"), pyarrow.array(wanted.topics)))
    times = rows.column("timestamp").cast(pyarrow.int64()) if "timestamp" in rows.schema.names else None
    bounds = (
        (times, wanted.time_us_min, _compute.greater_equal),
        (times, wanted.time_us_end, _compute.less),
        (_column(rows, "offset"), wanted.offset_min, _compute.greater_equal),
        (_column(rows, "offset"), wanted.offset_end, _compute.less),
    )
    tests += [test(column, bound) for column, bound, test in bounds if bound is not None and column is not None]
    if not tests:
        return rows
    kept = tests[0]
    for each in tests[1:]:
        kept = _compute.and_(kept, each)
    return rows.filter(kept)


def _column(rows: Any, name: str) -> Any:
    return rows.column(name) if name in rows.schema.names else None


def as_records(rows: Any, value: str, values: Mapping[str, str | None]) -> Any:
    schema: Any = arrow_schema(SCHEMA)
    count = rows.num_rows
    topic = _column(rows, "topic")
    found = {
        "key": _column(rows, "key"),
        "value": rows.column(value),
        "headers": _column(rows, "headers"),
        "timestamp": _column(rows, "timestamp"),
        "source_topic": topic if topic is not None else pyarrow.array([values.get("topic")] * count, pyarrow.string()),
        "source_partition": _column(rows, "partition"),
    }
    arrays = [
        pyarrow.nulls(count, field.type) if found[field.name] is None else found[field.name].cast(field.type)
        for field in schema
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
