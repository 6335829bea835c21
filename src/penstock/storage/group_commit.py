"""Group commit: producers that wait for an fsync of one log share it.

Appends during a flush share the next one. The speed of the disk bounds the number of fsyncs, not the number of
producers.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Protocol

from penstock.model.clock import Clock
from penstock.observe.counters import StorageCounters
from penstock.observe.histogram import MICROS
from penstock.storage.flush import FlushJob


class Flushable(Protocol):
    """A partition whose log can be flushed."""

    def begin_flush(self) -> FlushJob | None:
        """The flush that is due; None when everything is durable."""
        ...

    def end_flush(self, job: FlushJob, failure: OSError | None) -> None:
        """Apply a finished job, or its failure, which is final."""
        ...


class GroupCommit:
    """Flushes partitions on a few threads, each partition by one thread at a time."""

    __slots__ = ("_again", "_call_threadsafe", "_clock", "_counters", "_running", "_threads")

    def __init__(
        self,
        threads: Executor,
        call_threadsafe: Callable[[Callable[[], None]], object],
        *,
        clock: Clock,
        counters: StorageCounters | None = None,
    ) -> None:
        self._threads = threads
        self._call_threadsafe = call_threadsafe
        self._clock = clock
        self._counters = StorageCounters() if counters is None else counters
        self._running: set[Flushable] = set()
        self._again: set[Flushable] = set()

    def __len__(self) -> int:
        """Partitions being flushed."""
        return len(self._running)

    def want(self, partition: Flushable) -> None:
        """Request a flush; it starts at once unless one of this partition is under way."""
        if partition in self._running:
            self._again.add(partition)
            return
        job = partition.begin_flush()
        if job is not None:
            self._running.add(partition)
            began_s = self._clock.monotonic()
            self._threads.submit(job.run).add_done_callback(lambda done: self._finished(partition, job, done, began_s))

    def _finished(self, partition: Flushable, job: FlushJob, done: "Future[None]", began_s: float) -> None:
        """Apply a finished job on the loop. Called in a flushing thread."""
        self._call_threadsafe(lambda: self._apply(partition, job, done, began_s))

    def _apply(self, partition: Flushable, job: FlushJob, done: "Future[None]", began_s: float) -> None:
        self._running.discard(partition)
        again = partition in self._again
        self._again.discard(partition)
        if done.cancelled():
            return
        failure = done.exception()
        if failure is not None and not isinstance(failure, OSError):
            raise failure
        self._counters.flush_seconds.add(int((self._clock.monotonic() - began_s) * MICROS))
        self._counters.flush_errors += failure is not None
        partition.end_flush(job, failure)
        if again and failure is None:
            self.want(partition)
