"""Serves a member's fetch: which share partitions to read, what the member gets of them, and how to wait for more.

A request runs through here as

    job = fetches.begin(...)        the partitions that the member fetches
    job.read()                      True: respond now; False: `job.wait(ms, callback)`, which reads what wakes it
    job.results                     what each partition gave, or its error

Records are acquired in the step that reads them. Reading waits for no disk: records that are not in memory are first
read by a thread, and the step is repeated.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import KafkaStorageError, OffsetOutOfRange
from penstock.model.ids import Offset
from penstock.model.timers import Timer, Timers
from penstock.model.turns import Turns
from penstock.observe.histogram import Histogram
from penstock.partition.results import Fetched
from penstock.shares.batches import ReadBatches
from penstock.shares.leader import LedSharePartition, LedSharePartitions
from penstock.shares.sessions import SharedPartition
from penstock.shares.share_partition import Acquired
from penstock.storage.slices import FileSlice

PARTITIONS_AT_ONCE_MAX = 100
"""Partitions that a request reads in one turn of the loop; a larger request takes several turns."""

READS_AT_ONCE_MAX = 16
"""Reads of a partition that acquire nothing, because all they find is to be skipped, until the response goes out."""


class Shared(NamedTuple):
    """What a member gets of one partition."""

    records: FileSlice | bytes
    acquired: Sequence[Acquired]


class ShareFetchLimits(NamedTuple):
    """The most that a member wants, and the least that ends a wait."""

    records_max: int
    records_exact: bool
    """Whether it gets no more than that (record_limit), else whole batches (batch_optimized)."""
    batch_size: int
    bytes_min: int
    bytes_max: int


class Candidate(NamedTuple):
    """A partition that has something to acquire."""

    key: SharedPartition
    led: LedSharePartition
    offset: Offset
    fetched: Fetched


class ShareFetchJob:
    """One fetch of one member."""

    __slots__ = (
        "_bytes_left",
        "_completed",
        "_fetches",
        "_group",
        "_has_acquired",
        "_led",
        "_limits",
        "_member",
        "_records_left",
        "_timer",
        "_waits_since_ms",
        "_warming",
        "_woken",
        "results",
    )

    def __init__(
        self,
        fetches: ShareFetches,
        group: str,
        member: str,
        partitions: Sequence[SharedPartition],
        limits: ShareFetchLimits,
    ) -> None:
        self._fetches = fetches
        self._group = group
        self._member = member
        self._limits = limits
        self.results: dict[SharedPartition, Shared | BrokerError] = {}
        """What there is to respond: of each partition that gave something, or failed."""
        self._has_acquired = False
        self._records_left = limits.records_max
        self._bytes_left = limits.bytes_max
        self._woken: dict[SharedPartition, None] = {}
        """Partitions that changed before the wait began."""
        self._led: dict[SharedPartition, LedSharePartition] = {}
        self._completed: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._waits_since_ms: int | None = None
        """Since when it waits; None for one that does not."""
        self._warming: Future[None] | None = None
        self._add(partitions)

    def _add(self, partitions: Sequence[SharedPartition]) -> None:
        if self._records_left > 0 and self._bytes_left > 0:
            for key in partitions:
                try:
                    self._led[key] = self._fetches.led.get(self._group, key)
                except BrokerError as error:
                    self.results[key] = error

    @property
    def member(self) -> str:
        return self._member

    @property
    def is_over(self) -> bool:
        """Whether a partition gave something, or none is left that could."""
        return self._has_acquired or not self._led

    @property
    def has_fetched(self) -> bool:
        """Whether the member asked for records."""
        return bool(self._led or self.results)

    @property
    def is_warming(self) -> bool:
        """Whether a thread reads records from the disk."""
        return self._warming is not None

    async def read_in_turns(
        self, partitions: Sequence[SharedPartition], turns: Turns, gone: Callable[[], bool]
    ) -> bool:
        """As `read` for many partitions, over several turns; not all of them once there are enough records.

        It ends early when the member is gone, which would hold records in vain. `wait` or `leave` has to follow.
        """
        for first in range(0, len(partitions), PARTITIONS_AT_ONCE_MAX):
            some = partitions[first : first + PARTITIONS_AT_ONCE_MAX]
            self._add(some)
            for key in some:
                led = self._led.get(key)
                if led is not None:
                    led.wait(self)
            self.read(only=some)
            if self._records_left <= 0 or self._bytes_left <= 0 or self._warming is not None:
                break
            if turns.spent():
                await turns.pause()
            if gone():
                break
        return self.is_over

    def read(self, *, is_last: bool = False, only: Sequence[SharedPartition] | None = None) -> bool:
        """Acquire what there is; True when the response can go out. The last read asks for no least number of bytes.

        A partition that failed goes out with what others give, or when the time is up. False also where records are
        read from the disk first: `wait` goes on with them.
        """
        found, cold = self._look(list(self._led) if only is None else only)
        if cold:
            self._warm(cold)
            return False
        if not is_last and sum(len(each.fetched.records) for each in found) < self._limits.bytes_min:
            return self.is_over
        for candidate in found:
            self._records_left -= self._acquire(candidate, self._records_left)
            if self._records_left <= 0:
                break
        return self.is_over

    def _look(self, partitions: Sequence[SharedPartition]) -> tuple[list[Candidate], list[FileSlice]]:
        """The partitions with records that may be acquired, or their records that are not in memory."""
        ready: list[tuple[SharedPartition, LedSharePartition, Offset]] = []
        for key in partitions:
            led = self._led.get(key)
            if led is None:
                continue
            if led.gone is not None:
                self._fail(key, led.gone)
                continue
            offset = led.next_offset(self._member)
            if offset is not None:
                ready.append((key, led, offset))
        found: list[Candidate] = []
        cold: list[FileSlice] = []
        bytes_each = self._bytes_left // max(len(ready), 1)
        for key, led, offset in ready:
            try:
                fetched = self._read(led, offset, bytes_each, at_least_one=not (found or self._has_acquired))
            except BrokerError as error:
                self._fail(key, error)
                continue
            records = fetched.records
            if isinstance(records, FileSlice) and not records.resident():
                cold.append(records)
            elif len(records):
                found.append(Candidate(key, led, offset, fetched))
        return found, cold

    def _read(self, led: LedSharePartition, offset: Offset, bytes_max: int, *, at_least_one: bool) -> Fetched:
        return led.replica.read(
            offset, bytes_max, at_least_one=at_least_one, read_committed=led.settings.read_committed
        )

    def _fail(self, key: SharedPartition, error: BrokerError) -> None:
        led = self._led.pop(key)
        led.leave(self)
        self.results[key] = error

    def _acquire(self, candidate: Candidate, records_max: int) -> int:
        """Acquire of one partition; the number of records."""
        key, led, offset, fetched = candidate
        limits = self._limits
        for _ in range(READS_AT_ONCE_MAX):
            batches = ReadBatches(fetched.records, fetched.aborted)
            acquired = led.acquire(
                self._member,
                batches,
                offset,
                records_max=records_max,
                records_exact=limits.records_exact,
                batch_size=limits.batch_size,
            )
            if acquired:
                records = batches.cut(acquired[0].first, acquired[-1].last)
                self.results[key] = Shared(records, acquired)
                self._bytes_left -= len(records)
                if not self._has_acquired:
                    self._has_acquired = True
                    self._fetches.count_wait(self._waits_since_ms)
                return sum(each.last + 1 - each.first for each in acquired)
            again = led.next_offset(self._member)
            if again is None or again == offset:
                return 0
            # All that was read is to be skipped.
            offset = again
            try:
                fetched = self._read(led, offset, limits.bytes_max, at_least_one=True)
            except OffsetOutOfRange:
                return 0
            read = fetched.records
            if not len(read) or (isinstance(read, FileSlice) and not read.resident()):
                break
        # The next request goes on from there.
        self.results.setdefault(key, Shared(b"", ()))
        self._has_acquired = True
        return 0

    # Waiting

    def wait(self, wait_ms: float, completed: Callable[[], None]) -> None:
        """Call back when there is something to respond, or the time is up. `cancel` ends the wait without it."""
        self._completed = completed
        self._waits_since_ms = self._fetches.led.now_ms()
        self._fetches.waiting += 1
        self._timer = self._fetches.timers.after_ms(wait_ms, self._time_is_up)
        for led in self._led.values():
            led.wait(self)
        if self._woken and self.read():
            self._complete()

    def wake(self, led: LedSharePartition) -> None:
        """A partition may have something to acquire, or is gone."""
        if self._completed is None:
            self._woken[led.key] = None
        elif self._warming is None and self.read(only=(led.key,) if self._limits.bytes_min <= 1 else None):
            self._complete()

    def _time_is_up(self) -> None:
        self._timer = None
        if self._completed is not None and self._warming is None:
            self.read(is_last=True)
            if self._warming is None:
                self._complete()

    def _complete(self) -> None:
        completed = self._completed
        if completed is not None:
            self.cancel()
            completed()

    def end(self) -> None:
        """Stop waiting, and respond without acquiring anything."""
        self._complete()

    def cancel(self) -> None:
        """Stop waiting without a response: the connection closed."""
        if self._completed is not None:
            self._completed = None
            self._fetches.waiting -= 1
            if self._timer is not None:
                self._timer.cancel()
            self.leave()

    def leave(self) -> None:
        """Be woken by no partition any more."""
        for led in self._led.values():
            led.leave(self)

    # Records that are not in memory

    def _warm(self, cold: list[FileSlice]) -> None:
        self._warming = warming = self._fetches.loop.run_in_executor(self._fetches.threads, warm_all, cold)
        warming.add_done_callback(self._warmed)

    def _warmed(self, warming: Future[None]) -> None:
        self._warming = None
        failure = warming.exception()
        if self._completed is None:
            return
        if failure is not None:
            for key in list(self._led):
                self._fail(key, failure if isinstance(failure, BrokerError) else KafkaStorageError(str(failure)))
            self._complete()
        elif self.read(is_last=self._timer is None) or (self._timer is None and self._warming is None):
            self._complete()


def warm_all(cold: list[FileSlice]) -> None:
    for records in cold:
        records.warm()


class ShareFetches:
    """The fetches of members over all share partitions of this broker."""

    __slots__ = ("acquisition_wait", "led", "loop", "threads", "timers", "waiting")

    def __init__(self, *, led: LedSharePartitions, timers: Timers, threads: Executor, loop: AbstractEventLoop) -> None:
        self.led = led
        self.timers = timers
        self.threads = threads
        self.loop = loop
        self.waiting = 0
        """Number of requests that wait."""
        self.acquisition_wait = Histogram()
        """How long the requests that acquired something had waited for it."""

    def count_wait(self, since_ms: int | None) -> None:
        self.acquisition_wait.add(0 if since_ms is None else (self.led.now_ms() - since_ms) * 1_000)

    def begin(
        self, group: str, member: str, partitions: Sequence[SharedPartition], limits: ShareFetchLimits
    ) -> ShareFetchJob:
        return ShareFetchJob(self, group, member, partitions, limits)
