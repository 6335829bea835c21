"""Runs a pipeline: watches its queries, saves its state for other terminals, and stops it in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.model.clock import Clock, SystemClock
from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.pipelines.registry import PipelineState, QueryProgress, Registry, advanced, process_started
from pyspark_penstock.spark_internals import release_gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.5
STOP_POLL_SECONDS = 0.02
BATCH_SECONDS_MAX = 10.0
"""How long a stop waits for running batches."""
BATCH_RUN = "addBatch"
"""Spark's name for the step of a trigger that runs a batch."""
LATE_WORKER = "Python worker failed to connect back"
"""Spark gives the Python process of a streaming source or sink ten seconds to connect, and has no setting for it."""
PLANNED = ("Processing new data", "Waiting for")
"""The prefixes of a query's status once its batch is planned. Seen in 4.0 to 4.3."""
PLANNED_SECONDS_MAX = 120.0
"""How long the next query waits for it: another wording in a later Spark must not stop a pipeline."""
WORKER_STARTS_MAX = 6
"""How often a pipeline is started on a machine that is too busy."""
LATE_ADVICE = (
    f"Python processes did not start within the ten seconds that Spark gives them, in {WORKER_STARTS_MAX} tries: the "
    "machine is too busy. Give it more processors, or run fewer queries at once; the same command goes on"
)
STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class PipelineFailed(PenstockRuntimeError):
    """A query failed; the message is the cause, without Java's stack trace."""


@dataclass(slots=True)
class StopRequest:
    """A request to stop the pipeline."""

    wanted: bool = False

    def listen(self) -> None:
        for number in STOPPING_SIGNALS:
            signal.signal(number, self.on_signal)

    @contextmanager
    def while_spark_starts(self) -> Generator[None]:
        """Block Ctrl-C while Spark starts, which would otherwise be interrupted halfway.

        Spark's processes inherit the blocked signal, so that a running batch is completed.
        """
        mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            self.listen()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True


@contextmanager
def stopped_by_signals() -> Generator[StopRequest]:
    """Turn SIGTERM and Ctrl-C into a request to stop."""
    request = StopRequest()
    before = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    request.listen()
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def new_state(name: str, kind: str, what: str, checkpoint: str, clock: Clock | None = None) -> PipelineState:
    """The state of a pipeline in this process."""
    now = (clock or SystemClock()).now_ms()
    return PipelineState(
        name=name,
        kind=kind,
        what=what,
        pid=os.getpid(),
        pid_started=process_started(os.getpid()) or 0,
        started_ms=now,
        checkpoint=checkpoint,
        updated_ms=now,
    )


@dataclass(slots=True)
class Watch:
    """Reads the progress of the queries and saves the pipeline's state."""

    registry: Registry
    state: PipelineState
    clock: Clock = field(default_factory=SystemClock)
    _seen: dict[str, int] = field(default_factory=dict[str, int])

    def look(self, queries: Sequence[StreamingQuery]) -> PipelineState:
        known = {each.query: each for each in self.state.queries}
        progress: list[QueryProgress] = []
        for query in queries:
            name = query.name or str(query.id)
            now = known.get(name, QueryProgress(query=name))
            for report in self._new_reports(name, query):
                now = advanced(now, report)
            progress.append(now)
        self._keep(replace(self.state, status="running", queries=tuple(progress)))
        return self.state

    def end(self, status: str, error: str = "") -> PipelineState:
        self._keep(replace(self.state, status=status, error=error))
        return self.state

    def _keep(self, state: PipelineState) -> None:
        if replace(state, updated_ms=0) != replace(self.state, updated_ms=0) or state.status != self.state.status:
            self.registry.save(replace(state, updated_ms=self.clock.now_ms()))
        self.state = state

    def _new_reports(self, name: str, query: StreamingQuery) -> list[Any]:
        reports = new_batches(query.recentProgress, self._seen.get(name, -1))
        if reports:
            self._seen[name] = reports[-1]["batchId"]
        return reports


def new_batches(reports: Sequence[Any], last: int) -> list[Any]:
    """The reports of batches after the one of that number.

    An idle query reports too, with the number of the next batch: such a report has no batch duration.
    """
    return [each for each in reports if each["batchId"] > last and BATCH_RUN in each["durationMs"]]


def run_to_end(
    queries: Sequence[StreamingQuery],
    watch: Watch,
    request: StopRequest,
    *,
    on_progress: Callable[[PipelineState], None] | None = None,
    restart: Callable[[], Sequence[StreamingQuery]] | None = None,
) -> PipelineState:
    """Wait until every query has ended by itself, one has failed, or a stop is requested; PipelineFailed if one failed.

    ``restart`` starts the queries again if one of Spark's Python workers connected too late. They go on from their
    checkpoints, so nothing is written twice.
    """
    for starts_left in reversed(range(WORKER_STARTS_MAX)):
        try:
            return _watch_to_end(queries, watch, request, on_progress or _say_nothing)
        except Exception as error:
            failed = _failed_query(queries)
            stop_all(queries)
            if restart is None or not starts_left or not is_late_worker(failed[1] if failed else error):
                found = _reason(failed[1] if failed else error, has_tried=restart is not None)
                if failed:
                    found = f"{failed[0]}: {found}"
                watch.end("failed", found)
                raise PipelineFailed(found) from error
            queries = restart()
    raise AssertionError("the last start ends or raises")


def _watch_to_end(
    queries: Sequence[StreamingQuery], watch: Watch, request: StopRequest, on_progress: Callable[[PipelineState], None]
) -> PipelineState:
    while True:
        active = [query for query in queries if query.isActive]
        on_progress(watch.look(queries))
        # Ctrl-C reaches Spark's workers too; their errors are not a failure.
        if request.wanted:
            stop_all(queries, seconds_max=BATCH_SECONDS_MAX)
            on_progress(watch.look(queries))
            return watch.end("stopped")
        failed = _failed_query(queries)
        if failed:
            raise failed[1]
        if not active:
            return watch.end("finished")
        waiting: Any = active[0]
        waiting.awaitTermination(POLL_SECONDS)


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait until its first batch is planned; start it again if a worker was late.

    A batch is planned by the Python process of the query's source. Queries that are started one by one do not compete
    for the processor while these processes start.
    """
    for starts_left in reversed(range(WORKER_STARTS_MAX)):
        query = start()
        waits = int(PLANNED_SECONDS_MAX / STOP_POLL_SECONDS)
        while query.isActive and not _is_planned(query) and waits:
            sleep(STOP_POLL_SECONDS)
            waits -= 1
        error = None if query.isActive else query.exception()
        if error is None or not starts_left or not is_late_worker(error):
            return query
    raise AssertionError("the last start is returned")


def _is_planned(query: StreamingQuery) -> bool:
    status: Any = query.status
    return str(status["message"]).startswith(PLANNED) or bool(query.recentProgress)


def is_late_worker(error: BaseException) -> bool:
    """Whether a Python process had not connected in time, as on a very busy machine."""
    return LATE_WORKER in str(error)


def _reason(error: BaseException, *, has_tried: bool) -> str:
    return LATE_ADVICE if has_tried and is_late_worker(error) else cause_of(error)


def _say_nothing(state: PipelineState) -> None:
    pass


def _failed_query(queries: Sequence[StreamingQuery]) -> tuple[str, BaseException] | None:
    for query in queries:
        if not query.isActive and (error := query.exception()) is not None:
            return str(query.name), error
    return None


def stop_all(queries: Sequence[StreamingQuery], *, seconds_max: float = 0.0) -> None:
    """Stop queries between two batches if possible in time; the next run repeats an interrupted batch."""
    left = seconds_max
    for query in queries:
        while left > 0 and query.isActive and query.status["isTriggerActive"]:
            sleep(STOP_POLL_SECONDS)
            left -= STOP_POLL_SECONDS
        if query.isActive:
            query.stop()


def cause_of(error: BaseException) -> str:
    """The line with the cause: the last Python error in Java's stack trace, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    quoted = [line for line in lines if _is_python_error(line)]
    if quoted:
        return quoted[-1].partition(": ")[2]
    return lines[0] if lines else type(error).__name__


def _is_python_error(line: str) -> bool:
    name, colon, rest = line.partition(": ")
    last = name.rpartition(".")[2]
    own = name.startswith("pyspark_penstock.") or last in ("ValueError", "MissingTopic", "OutOfStep")
    return bool(colon and rest) and own and " " not in name


def end_session(spark: SparkSession) -> None:
    """Stop Spark and its JVM, so that no process outlives the command."""
    spark.stop()
    process = release_gateway()
    if process is not None:
        process.stdin.close()
        process.wait()
