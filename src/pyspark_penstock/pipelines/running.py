"""A pipeline while it runs: its queries watched, its state kept for other terminals, its end orderly."""

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
"""How long a stop waits for the batches that are being written."""
BATCH_RUN = "addBatch"
"""What Spark calls the part of a trigger in which a batch is run."""
LATE_WORKER = "Python worker failed to connect back"
"""Spark gives the Python process of a streaming source or sink ten seconds to connect, and has no setting for it."""
PLANNED = ("Processing new data", "Waiting for")
"""How Spark's status of a query begins once its sources have been asked for their offsets. Seen in 4.0 to 4.3."""
PLANNED_SECONDS_MAX = 120.0
"""How long the next query waits for that: a status that a later Spark words differently must not stop a pipeline."""
WORKER_STARTS_MAX = 6
"""How often a pipeline is started on a machine that is too busy for that."""
LATE_ADVICE = (
    f"Python processes did not start within the ten seconds that Spark gives them, in {WORKER_STARTS_MAX} tries: the "
    "machine is too busy. Give it more processors, or run fewer queries at once; the same command goes on"
)
STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class PipelineFailed(PenstockRuntimeError):
    """A query ended with an error; the message is the cause, without Java's stack."""


@dataclass(slots=True)
class StopRequest:
    """Whether somebody wants the pipeline to end."""

    wanted: bool = False

    def listen(self) -> None:
        for number in STOPPING_SIGNALS:
            signal.signal(number, self.on_signal)

    @contextmanager
    def while_spark_starts(self) -> Generator[None]:
        """A Ctrl-C that comes meanwhile waits: Spark takes it for itself as it starts, and is interrupted half-made.

        Spark's own processes inherit that they do not hear it, so that the batch they are at ends well.
        """
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            self.listen()
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True


@contextmanager
def stopped_by_signals() -> Generator[StopRequest]:
    """SIGTERM and Ctrl-C ask for an end instead of making one, from here on."""
    request = StopRequest()
    before = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    request.listen()
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def new_state(name: str, kind: str, what: str, checkpoint: str, clock: Clock | None = None) -> PipelineState:
    """Of this process."""
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
    """Reads what the queries report and keeps the pipeline's file."""

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
    """The reports of batches that were run after the one of that number.

    A query that waits reports too, under the number of the batch to come: such a report has no time of a batch.
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

    ``restart`` starts the queries again where a Python worker of Spark's connected too late. They go on from their
    checkpoints, so this repeats nothing.
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
    queries: Sequence[StreamingQuery], watch: Watch, request: StopRequest, tell: Callable[[PipelineState], None]
) -> PipelineState:
    while True:
        active = [query for query in queries if query.isActive]
        tell(watch.look(queries))
        # Ctrl-C reaches Spark's workers too, and what they say about it is no failure.
        if request.wanted:
            stop_all(queries, seconds_max=BATCH_SECONDS_MAX)
            tell(watch.look(queries))
            return watch.end("stopped")
        failed = _failed_query(queries)
        if failed:
            raise failed[1]
        if not active:
            return watch.end("finished")
        waiting: Any = active[0]
        waiting.awaitTermination(POLL_SECONDS)


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait until its first batch is planned; start it again where a worker was late.

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
    """Whether Spark gave up on a Python process that had not connected in time, as on a very busy machine."""
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
    """Stop queries between two batches, if one ends in time: a batch that is cut short is repeated by the next run."""
    left = seconds_max
    for query in queries:
        while left > 0 and query.isActive and query.status["isTriggerActive"]:
            sleep(STOP_POLL_SECONDS)
            left -= STOP_POLL_SECONDS
        if query.isActive:
            query.stop()


def cause_of(error: BaseException) -> str:
    """The line that says what is wrong: the last Python error that Java's stack quotes, else the first line."""
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
    """Stop Spark and its Java, so that nothing outlives the command."""
    spark.stop()
    process = release_gateway()
    if process is not None:
        process.stdin.close()
        process.wait()
