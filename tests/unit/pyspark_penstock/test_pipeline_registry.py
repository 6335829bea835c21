"""The registry of pipelines, as another terminal sees it; and the order of a replay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyspark_penstock.lake import DataFile, Span
from pyspark_penstock.pipelines.checkpoint import WrongCheckpoint, check_topics
from pyspark_penstock.pipelines.registry import (
    PipelineError,
    PipelineState,
    QueryProgress,
    Registry,
    advanced,
    default_state_dir,
    lag_of,
    process_started,
)
from pyspark_penstock.pipelines.replay_plan import Plan, Wanted, ordered, slices
from pyspark_penstock.pipelines.running import (
    LATE_WORKER,
    WORKER_STARTS_MAX,
    PipelineFailed,
    StopRequest,
    Watch,
    cause_of,
    new_batches,
    run_to_end,
    started,
    stopped_by_signals,
)
from pyspark_penstock.pipelines.store import Store

REPORT: dict[str, Any] = {
    "batchId": 4,
    "numInputRows": 100,
    "processedRowsPerSecond": 50.5,
    "batchDuration": 1980,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "stateOperators": [{"numRowsDroppedByWatermark": 3}],
    "sources": [
        {"endOffset": {"orders": {"0": 5, "1": 7}}, "latestOffset": {"orders": {"0": 9, "1": 7}}},
        {"endOffset": '{"other":{"0":1}}', "latestOffset": '{"other":{"0":2}}'},
    ],
}


def state(name: str = "p", *, pid: int = 7, began: int = 70) -> PipelineState:
    return PipelineState(name=name, kind="run", what="a to b", pid=pid, pid_started=began, started_ms=1)


def test_a_pipeline_that_runs_keeps_its_name(tmp_path: Path) -> None:
    registry = Registry(tmp_path, alive=lambda pid: pid * 10)
    registry.claim(state(pid=7, began=70))
    with pytest.raises(PipelineError, match="runs already, as process 7"):
        registry.claim(state(pid=8, began=80))


def test_a_name_is_free_when_its_process_is_gone_or_another(tmp_path: Path) -> None:
    Registry(tmp_path, alive=lambda _: None).claim(state())
    Registry(tmp_path, alive=lambda _: 71).claim(state(pid=8))
    (found,) = Registry(tmp_path, alive=lambda _: 70).every()
    assert (found.pid, found.status) == (8, "starting")


def test_a_pipeline_without_a_process_has_died_unless_its_state_says_how_it_ended(tmp_path: Path) -> None:
    registry = Registry(tmp_path, alive=lambda _: None)
    registry.save(replace(state("a"), status="running"))
    registry.save(replace(state("b"), status="finished"))
    assert [each.status for each in registry.every()] == ["died", "finished"]


def test_a_saved_state_is_read_back(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    kept = replace(state(), queries=(advanced(QueryProgress(query="q"), REPORT),))
    registry.save(kept)
    assert registry.find("p") == kept
    assert registry.find("other") is None
    assert not list(tmp_path.glob("**/*.draft"))


def test_stopping_ends_the_process_and_no_other(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        registry = Registry(tmp_path)
        registry.save(state(pid=process.pid, began=process_started(process.pid) or 0))
        registry.stop("p")
        assert process_started(process.pid) is None
    with pytest.raises(PipelineError, match="does not run: it died"):
        registry.stop("p")
    registry.save(state(pid=os.getpid(), began=1))
    with pytest.raises(PipelineError, match="does not run"):
        registry.stop("p")
    with pytest.raises(PipelineError, match="there is no pipeline q"):
        registry.stop("q")


def test_a_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is not a pipeline name"):
        Registry(tmp_path).find("../etc")


def test_the_state_directory_is_where_people_keep_state() -> None:
    assert default_state_dir({"PENSTOCK_STATE_DIR": "/a"}) == Path("/a")
    assert default_state_dir({"XDG_STATE_HOME": "/b"}) == Path("/b/penstock")
    assert default_state_dir({"HOME": "/c"}) == Path("/c/.local/state/penstock")


def test_reports_add_up() -> None:
    once = advanced(QueryProgress(query="q"), REPORT)
    twice = advanced(once, {**REPORT, "batchId": 5, "numInputRows": 1})
    assert (twice.batch, twice.batches, twice.rows, twice.late_rows) == (5, 2, 101, 6)
    assert (twice.rows_per_second, twice.batch_ms) == (50.5, 1980)


def test_an_idle_query_does_not_hide_its_next_batch() -> None:
    """Numbers and rows as Spark reports them of a query with pauses."""
    waiting, run = {"triggerExecution": 1}, {"addBatch": 5, "triggerExecution": 9}
    progress = [(0, 0, run), (1, 7, run), (2, 0, waiting), (2, 0, waiting), (2, 5, run), (3, 0, waiting)]
    reports = [{"batchId": batch, "numInputRows": rows, "durationMs": parts} for batch, rows, parts in progress]
    assert [each["numInputRows"] for each in new_batches(reports, -1)] == [0, 7, 5]
    assert [each["numInputRows"] for each in new_batches(reports, 1)] == [5]
    assert new_batches(reports, 2) == []


def test_lag_is_the_number_of_unread_records() -> None:
    assert lag_of(REPORT) == 5
    assert lag_of({"sources": [{"endOffset": {"row": 3}, "latestOffset": {"row": 9}}]}) is None
    assert lag_of({"sources": [{"endOffset": "text", "latestOffset": None}]}) is None


def test_the_cause_of_javas_stack_is_the_python_error_in_it() -> None:
    text = "Job aborted.\n  at org.x\nTraceback (most recent call last):\npyspark_penstock.lake.OutOfStep: no fit\n"
    assert cause_of(RuntimeError(text)) == "no fit"
    assert cause_of(RuntimeError("[CODE] first: line\nsecond")) == "[CODE] first: line"


def test_a_checkpoint_of_other_topics_is_refused(tmp_path: Path) -> None:
    store = Store.at(str(tmp_path))
    assert not check_topics(store, {"orders"})
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "9").write_text('v1\n{"batchWatermarkMs":0}\n{"old":{"0":1}}')
    (tmp_path / "offsets" / "10").write_text('v1\n{"batchWatermarkMs":0}\n{"orders":{"0":1}}')
    assert check_topics(store, {"orders", "more"})
    with pytest.raises(WrongCheckpoint, match="of a query that reads orders, not old"):
        check_topics(store, {"old"})


def test_a_ctrl_c_while_spark_starts_is_a_wish_and_no_interruption() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopped_by_signals() as request:
        with request.while_spark_starts():
            # As Spark does when it starts.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)
            assert not request.wanted
        assert request.wanted
        request.wanted = False
        signal.raise_signal(signal.SIGTERM)
        assert request.wanted
    assert signal.getsignal(signal.SIGINT) is before


# Starting


class FakeQuery:
    """A query that goes through statuses, one at every read, and may fail after the last."""

    def __init__(self, *messages: str, error: str = "") -> None:
        self.name = "q"
        self.messages = list(messages)
        self.error = error
        self.recentProgress: list[Any] = []

    @property
    def isActive(self) -> bool:
        return bool(self.messages) or not self.error

    @property
    def status(self) -> dict[str, str]:
        return {"message": self.messages.pop(0) if self.messages else "Waiting for next trigger"}

    def exception(self) -> Exception | None:
        return RuntimeError(self.error) if self.error else None

    def stop(self) -> None:
        self.messages = []


def test_the_next_query_starts_once_the_first_batch_of_the_last_one_is_planned() -> None:
    query: Any = FakeQuery("Initializing sources", "Getting offsets from penstock", "Processing new data", "and so on")
    assert started(lambda: query) is query
    assert query.messages == ["and so on"]


def test_a_query_whose_worker_was_late_is_started_again_so_often_and_no_more() -> None:
    late: list[Any] = [FakeQuery("Initializing sources", error=LATE_WORKER) for _ in range(WORKER_STARTS_MAX + 1)]
    starts: Any = iter(late)
    assert started(lambda: next(starts)) is late[WORKER_STARTS_MAX - 1]
    starts = iter([late[0], FakeQuery("Initializing sources", "Processing new data")])
    assert started(lambda: next(starts)).isActive


def test_a_query_that_fails_for_another_reason_is_not_started_again() -> None:
    starts: Any = iter([FakeQuery("Initializing sources", error="no such topic")])
    assert not started(lambda: next(starts)).isActive


def test_a_machine_that_is_too_busy_is_reported_as_such(tmp_path: Path) -> None:
    late: Any = [FakeQuery(error=LATE_WORKER)]
    registry = Registry(tmp_path)
    watch = Watch(registry, state())
    with pytest.raises(PipelineFailed, match=r"^q: Python processes did not start within the ten seconds"):
        run_to_end(late, watch, StopRequest(), restart=lambda: late)
    found = registry.find("p")
    assert found is not None
    assert "the machine is too busy" in found.error


# Replays


def file(path: str, partition: int, first: int, last: int, time: int) -> DataFile:
    span = Span(
        topic="t", partition=partition, offset_min=first, offset_max=last, timestamp_us_min=time, timestamp_us_max=time
    )
    return DataFile(path=path, size=1, rows=last - first + 1, values={"topic": "t"}, spans=(span,))


def test_files_of_a_partition_keep_its_order_even_where_times_go_back() -> None:
    files = [file("c", 0, 20, 29, 5), file("a", 0, 0, 9, 50), file("b", 0, 10, 19, 10), file("d", 1, 0, 9, 20)]
    assert [each.path for each in ordered(files)] == ["d", "a", "b", "c"]


def test_rows_of_one_partition_are_sent_by_one_task() -> None:
    files = [file("a", 0, 0, 9, 1), file("d", 1, 0, 9, 2), file("b", 0, 10, 19, 3)]
    found = slices(files, 5, 25)
    assert [[(each.file.path, each.first, each.end) for each in group] for group in found] == [
        [("a", 5, 10), ("b", 0, 5)],
        [("d", 0, 10)],
    ]
    assert slices(files, 30, 30) == []


def test_a_file_of_several_partitions_is_sent_alone() -> None:
    mixed = DataFile(path="m", size=1, rows=4, values={"topic": "t"})
    assert len(slices([file("a", 0, 0, 9, 1), mixed, file("d", 1, 0, 9, 2)], 0, 24)) == 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), True),
        (Wanted(topics=("t",)), True),
        (Wanted(topics=("u",)), False),
        (Wanted(offset_min=9), True),
        (Wanted(offset_min=10), False),
        (Wanted(offset_end=0), False),
        (Wanted(time_us_min=51), False),
        (Wanted(time_us_end=50), False),
        (Wanted(time_us_min=50, time_us_end=51), True),
    ],
)
def test_files_without_wanted_records_are_omitted(wanted: Wanted, expected: bool) -> None:
    assert wanted.may_hold(file("a", 0, 0, 9, 50)) is expected


def test_a_plan_is_read_back_from_its_file() -> None:
    plan = Plan(root="/r", wanted=Wanted(topics=("t",), offset_min=3), files=(file("a", 0, 0, 9, 1),))
    assert Plan.of_json(json.loads(json.dumps(plan.to_json()))) == plan
