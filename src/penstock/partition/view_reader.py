"""Looks through filtered views for a fetch request: pieces of the parent's log, in threads where they are large.

The response leaves when enough has passed, or when the request is out of time or has looked at as much as it may,
and always with what was looked at: a consumer's position moves on where nothing passes too. Only bytes that pass count
for `fetch.min.bytes`. While it waits, a request keeps what it has found, and goes on from there when the log grows.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop, shield
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from math import ceil
from operator import attrgetter
from typing import cast

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CorruptMessage, KafkaStorageError
from penstock.model.ids import Offset
from penstock.model.timers import Timers
from penstock.model.turns import Turns
from penstock.partition.fetch import FetchJob, FetchLimits, PartitionWatch, never_gone
from penstock.partition.fetch_session import CachedPartition
from penstock.partition.results import Fetched
from penstock.partition.views import View
from penstock.storage.slices import FileSlice
from penstock.storage.txn_index import AbortedTxn
from penstock.views.look import HEAVY_BYTES, Hold, Look, Tally, TooHeavy
from penstock.wire.primitives import Malformed

PIECE_BYTES = 1024 * 1024
"""Looked at in one go, by one thread."""

LOOK_BYTES_MAX = 16 * 1024 * 1024
LOOK_SECONDS_MAX = 0.05
"""What one request looks at most, before the response."""

RESPONSE_BYTES_ENOUGH = 64 * 1024
"""With so much the response leaves, even if there is more to look at."""

RESPONSE_BYTES_MAX = 4 * 1024 * 1024
"""Of all that passed, in the memory of one request; the first batch may be larger."""

THREADS_MAX = 2
"""Looks in threads at once: a broker has four threads at least, and its disks need the others.

A filter may work on one large record for seconds.
"""

BUSY_PAUSE_S = 0.005
"""After which a request looks again for a free thread."""


class Spending:
    """What one request has looked at."""

    __slots__ = ("bytes", "delay_s", "passed_bytes", "seconds")

    def __init__(self) -> None:
        self.bytes = 0
        self.seconds = 0.0
        self.delay_s = 0.0
        """How long a view has to wait that has used its share of a core, or has no thread."""
        self.passed_bytes = 0
        """Of all looks of the request, as far as they still count."""

    @property
    def is_over(self) -> bool:
        return self.bytes >= LOOK_BYTES_MAX or self.seconds >= LOOK_SECONDS_MAX


class ViewReader:
    """Serves the views in fetch requests."""

    def __init__(
        self,
        *,
        threads: Executor,
        monotonic: Callable[[], float],
        cpu_percent_max: Callable[[], float],
        hold: Hold,
        timers: Timers,
        turns: Turns,
    ) -> None:
        """`cpu_percent_max` is the share of a core that a view may use; `hold` reserves memory for decompression."""
        self._threads = threads
        self._monotonic = monotonic
        self._cpu_percent_max = cpu_percent_max
        self._hold = hold
        self._timers = timers
        self._turns = turns
        self._in_threads = 0

    async def read(self, job: FetchJob, wait_ms: int, is_gone: Callable[[], bool] = never_gone) -> None:
        """Look through the views of a job that has been read, and wait, until its results are worth a response."""
        ends_s = self._monotonic() + wait_ms / 1000
        spending = Spending()
        looks: dict[CachedPartition, Look] = {}
        while True:
            await self._look_at_all(job, looks, spending)
            left_s = ends_s - self._monotonic()
            full = any(look.is_full for look in looks.values())
            if job.is_enough or full or spending.is_over or left_s <= 0 or job.is_stale or is_gone():
                break
            if spending.delay_s:
                await self._pause(min(spending.delay_s, left_s))
                await self._read_again(job, spending)
                continue
            # What came while a thread looked would wake no one.
            await self._read_again(job, spending)
            if not job.is_enough and not self._has_more(job, looks):
                await self._wait(job, spending, int(left_s * 1000) + 1)
        for at, (partition, outcome) in enumerate(job.results):
            look = looks.get(partition)
            # A reader that was sent to another replica meanwhile begins there, and gets no records from here.
            if look is not None and isinstance(outcome, Fetched) and not outcome.is_urgent:
                outcome.records = look.records()
                if outcome.aborted is not None:
                    outcome.aborted = in_order(look)
                job.results[at] = (partition, outcome)

    async def _read_again(self, job: FetchJob, spending: Spending) -> None:
        if job.is_large:
            await job.read_in_turns(self._turns)
        else:
            job.read()
        job.bytes_read += spending.passed_bytes

    async def _pause(self, seconds: float) -> None:
        done = get_running_loop().create_future()
        timer = self._timers.after_ms(seconds * 1000, lambda: done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()

    async def _wait(self, job: FetchJob, spending: Spending, wait_ms: int) -> None:
        """Wait for growth, or the time, and read the job again."""
        done = get_running_loop().create_future()
        job.wait(wait_ms, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            job.cancel()
        if job.is_large:
            await job.read_in_turns(self._turns)
        # The end of the wait has read a job that is not large.
        job.bytes_read += spending.passed_bytes

    def _has_more(self, job: FetchJob, looks: dict[CachedPartition, Look]) -> bool:
        """Whether a view has records that have not been looked at."""
        for partition, watch in job.views():
            look, end = looks.get(partition), end_of(watch, job.limits)
            if look is None or (look.at < end and end != look.stalled_at):
                return True
        return False

    async def _look_at_all(self, job: FetchJob, looks: dict[CachedPartition, Look], spending: Spending) -> None:
        """Look at every view, in the order of the request, in which the first that has records always gets a batch."""
        spending.delay_s = 0.0
        served = False
        for at, (partition, outcome) in enumerate(job.results):
            watch = job.view_watch(partition, outcome)
            if watch is None:
                served = served or (isinstance(outcome, Fetched) and len(outcome.records) > 0)
                continue
            try:
                await self._look_at(job, partition, watch, looks, spending, at_least_one=not served)
            except BrokerError as error:
                self._forget(job, partition, looks, spending)
                job.fail(at, error)
            else:
                look = looks.get(partition)
                served = served or (look is not None and look.size > 0)
            if self._turns.spent():
                await self._turns.pause()
        if spending.passed_bytes and job.bytes_read > job.limits.bytes_max:
            # A batch that was sent in any case leaves no room for those of topics behind it.
            job.drop_records()
            job.bytes_read = spending.passed_bytes

    def _forget(
        self, job: FetchJob, partition: CachedPartition, looks: dict[CachedPartition, Look], spending: Spending
    ) -> None:
        """Look anew at a partition, if at all: what was found does not count."""
        look = looks.pop(partition, None)
        if look is not None:
            job.bytes_read -= look.size
            spending.passed_bytes -= look.size

    async def _look_at(
        self,
        job: FetchJob,
        partition: CachedPartition,
        watch: PartitionWatch,
        looks: dict[CachedPartition, Look],
        spending: Spending,
        *,
        at_least_one: bool,
    ) -> None:
        """Look at one partition, as far as there is more and the request may."""
        view, replica, limits = watch.view, watch.replica, job.limits
        assert view is not None
        look = looks.get(partition)
        if look is None or look.leader_epoch != replica.role.leader_epoch:
            self._forget(job, partition, looks, spending)
            looks[partition] = look = Look(
                view.condition, partition.partition, partition.fetch_offset, replica.role.leader_epoch
            )
        while look.at < end_of(watch, limits) and not look.is_full and not spending.is_over:
            if spending.bytes and job.bytes_read >= max(limits.bytes_min, RESPONSE_BYTES_ENOUGH):
                # One piece is looked at in any case: topics in the same request may always have enough.
                return
            delay_s = view.throttle.delay_s(self._monotonic(), self._cpu_percent_max())
            if delay_s:
                view.throttled += 1
                spending.delay_s = max(spending.delay_s, delay_s)
                return
            fetched = replica.read(
                max(look.at, replica.offsets.log_start) if look.at > look.begin else look.at,
                min(PIECE_BYTES, LOOK_BYTES_MAX - spending.bytes),
                at_least_one=True,
                read_committed=limits.read_committed,
                leader_epoch=partition.leader_epoch,
                from_follower=limits.from_follower,
            )
            at, before = look.at, look.size
            room_bytes = min(
                partition.bytes_max,
                limits.bytes_max - job.bytes_read + look.size,
                RESPONSE_BYTES_MAX - spending.passed_bytes + look.size,
            )
            first = at_least_one or job.bytes_read == 0
            try:
                looked = await self._look_through(view, look, fetched, room_bytes, first, spending)
            finally:
                job.bytes_read += look.size - before
                spending.passed_bytes += look.size - before
            if not looked:
                spending.delay_s = max(spending.delay_s, BUSY_PAUSE_S)
                return
            if replica.role.leader_epoch != look.leader_epoch:
                # The log may have been another's meanwhile.
                self._forget(job, partition, looks, spending)
                return
            if look.at == at and not look.is_full:
                # Nothing is there: compaction left a hole, or retention is about to move the log start.
                look.stalled_at = end_of(watch, limits)
                return

    async def _look_through(
        self, view: View, look: Look, fetched: Fetched, room_bytes: int, at_least_one: bool, spending: Spending
    ) -> bool:
        """Look through one piece: here if it is small and in memory, else in a thread. False if none is free."""
        records, aborted = fetched.records, fetched.aborted or ()
        monotonic, hold = self._monotonic, self._hold

        def work(hold: Hold | None) -> float:
            began_s = monotonic()
            data = records.contents() if isinstance(records, FileSlice) else records
            look.through(
                data,
                aborted=aborted,
                room_bytes=room_bytes,
                at_least_one=at_least_one,
                hold=hold,
                is_over=lambda: monotonic() - began_s >= LOOK_SECONDS_MAX,
            )
            return monotonic() - began_s

        try:
            light_bytes = HEAVY_BYTES // view.condition.heaviness
            is_light = len(records) <= light_bytes and (not isinstance(records, FileSlice) or records.resident())
            seconds = 0.0
            if is_light:
                try:
                    seconds = work(None)
                except TooHeavy:
                    is_light = False
                else:
                    view.throttle.worked(seconds)
            if not is_light:
                if not self._has_thread(view):
                    return False
                seconds = await self._in_thread(view, lambda: work(hold))
        except Malformed as error:
            raise CorruptMessage(str(error)) from None
        except OSError as error:
            raise KafkaStorageError(str(error)) from None
        finally:
            view.tally.add(look.tally)
            look.tally = Tally()
        spending.bytes += len(records)
        spending.seconds += seconds
        return True

    def _has_thread(self, view: View) -> bool:
        """Whether there is a thread for one more look; a view has no more of them than cores that it may use."""
        return self._in_threads < THREADS_MAX and view.in_threads < ceil(self._cpu_percent_max() / 100)

    async def _in_thread(self, view: View, work: Callable[[], float]) -> float:
        """Do work, which tells how long it took. Its thread is in use until it ends, also when the reader leaves."""
        self._in_threads += 1
        view.in_threads += 1

        def ended(done: Future[float]) -> None:
            self._in_threads -= 1
            view.in_threads -= 1
            if not done.cancelled() and done.exception() is None:
                view.throttle.worked(done.result())

        working = get_running_loop().run_in_executor(self._threads, work)
        working.add_done_callback(ended)
        return await shield(working)


def in_order(look: Look) -> list[AbortedTxn]:
    """The aborted transactions that a look met, in order of their markers."""
    return sorted(cast("Iterable[AbortedTxn]", look.aborted.values()), key=attrgetter("last_offset"))


def end_of(watch: PartitionWatch, limits: FetchLimits) -> Offset:
    """The end of what the reader may see."""
    offsets = watch.replica.offsets
    return offsets.last_stable if limits.read_committed else offsets.high_watermark
