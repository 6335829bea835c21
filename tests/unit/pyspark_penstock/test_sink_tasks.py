"""The overhead of a task of the sink."""

import gc
from collections.abc import Iterator
from typing import cast

import pytest
from pyspark import TaskContext

from pyspark_penstock.sink import SinkBatch, TaskDone
from pyspark_penstock.write_options import AT_LEAST_ONCE, EXACTLY_ONCE, WriteOptions
from pyspark_penstock.writer import written_by_task

FRESH = SinkBatch(sink="sink-1", batch=0, run="run-1", query="sink-1", is_fresh=True)


class FirstTask:
    """The part of Spark's task context that a writer reads."""

    def partitionId(self) -> int:
        return 0

    def taskAttemptId(self) -> int:
        return 0


@pytest.fixture
def nothing_exempted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which no task has run."""
    gc.unfreeze()
    monkeypatch.setattr("pyspark_penstock.spark_internals._exempted.modules", 0)
    yield
    gc.unfreeze()


def write_nothing(**options: str) -> TaskDone:
    no_broker = {"kafka.bootstrap.servers": "localhost:1", "kafka.default.api.timeout.ms": "1000"}
    parsed = WriteOptions.of({**no_broker, "topic": "orders", **options})
    return written_by_task(parsed, FRESH, cast("TaskContext", FirstTask()), iter(()))


def test_a_task_of_a_new_table_without_rows_needs_no_broker() -> None:
    assert write_nothing().written is None


@pytest.mark.usefixtures("nothing_exempted")
@pytest.mark.parametrize("delivery", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_imports_are_exempt_from_a_workers_collection_after_a_written_task(delivery: str) -> None:
    assert gc.get_freeze_count() == 0
    write_nothing(delivery=delivery)
    assert gc.get_freeze_count() > 0
