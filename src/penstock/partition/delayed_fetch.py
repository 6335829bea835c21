"""Where reads wait that found too little: until enough has been written, something went wrong, or time is up.

Readers with a session keep their watches from one poll to the next, so that waiting on a thousand quiet partitions
costs the same as on one. A watch that has told its news while nobody waited closes by itself: the partition is marked
in the session, and a reader that never comes back costs nothing.

Writes that wait, for replicas or for the disk, are `Replica.committed` and `durable`, with a timer beside them.
"""

from collections.abc import Callable, Iterable

from penstock.model.errors import BrokerError
from penstock.model.timers import Timer, Timers
from penstock.partition.fetch_session import FetchPartition, FetchSession
from penstock.partition.leader import Leader
from penstock.partition.replica import Replica

RESTING_AT_ONCE_MAX = 1_000
"""Partitions of one read that rest from the start; of more, each rests when it has been heard of."""


class PartitionWatch:
    """One reader's eye on one partition."""

    __slots__ = ("held_back", "partition", "reader", "replica", "resting", "seen", "stable", "watching")

    def __init__(self, replica: Replica, partition: FetchPartition, reader: "Reader") -> None:
        self.replica = replica
        self.partition = partition
        self.reader = reader
        self.seen = replica.watchers.readable_bytes
        """What the replica had made visible when last looked at."""
        self.stable = replica.offsets.last_stable
        """Up to where committed data was counted."""
        self.held_back = False
        """Whether open transactions kept readers of committed data from bytes that `seen` includes."""
        self.watching = False
        self.resting = False
        """Whether it waits for more than the next byte."""

    def open(self) -> None:
        """Hear of everything that happens from now on."""
        offsets = self.replica.offsets
        self.seen = self.replica.watchers.readable_bytes
        self.stable = offsets.last_stable
        self.held_back = offsets.last_stable < offsets.high_watermark
        if not self.watching or self.resting:
            self.watching = True
            self.resting = False
            self.replica.watch(self)

    def rest(self, grown_bytes: int) -> None:
        """Hear of growth only when there is so much more than `seen`."""
        if grown_bytes > 1 or self.resting:
            self.resting = grown_bytes > 1
            self.replica.watch(self, grown_bytes)

    def grow(self) -> int:
        """How many bytes there are more than `seen`, which then includes them."""
        grown = self.replica.watchers.readable_bytes - self.seen
        self.seen = self.replica.watchers.readable_bytes
        return grown

    def close(self) -> None:
        if self.watching:
            self.watching = self.resting = False
            self.replica.unwatch(self)

    def notify(self) -> None:
        self.resting = False
        self.reader.moved(self, self.grow())

    def grown_committed(self, grown: int) -> int:
        """How much more committed data there is, where all readers see `grown` bytes more.

        A transaction's bytes become readable with its end, long after they were written: then the log is measured.
        """
        offsets = self.replica.offsets
        counted, self.stable = self.stable, offsets.last_stable
        was_held_back, self.held_back = self.held_back, offsets.last_stable < offsets.high_watermark
        if not was_held_back and not self.held_back:
            return grown
        if counted == offsets.last_stable:
            return 0
        return self.replica.bytes_committed(max(counted, self.partition.fetch_offset), self.partition.bytes_max)


class Reader:
    """Whoever polls: a session, over many requests, or a single request without one."""

    __slots__ = ("session", "waiting")

    def __init__(self, session: FetchSession | None) -> None:
        self.session = session
        self.waiting: DelayedRead | None = None

    def moved(self, watch: PartitionWatch, grown: int) -> None:
        """A watched partition has news. With nobody waiting, it is enough to remember it: the next poll will look."""
        if self.session is not None:
            self.session.activate(watch.partition)
        if self.waiting is None:
            watch.close()
        else:
            self.waiting.moved(watch, grown)

    def left(self, partitions: Iterable[FetchPartition]) -> None:
        """These partitions are no longer the session's, or the session is closed."""
        for partition in partitions:
            watch = partition.place
            if isinstance(watch, PartitionWatch):
                watch.close()
                partition.place = None
        if self.session is not None and self.session.closed and self.waiting is not None:
            self.waiting.complete()


class DelayedRead:
    """A read that waits. `completed` is called once, on the loop, and never after `cancel`."""

    __slots__ = (
        "_bytes_missing", "_completed", "_count", "_grown", "_patience", "_read_committed", "_reader", "_resting",
        "_timer", "_watches", "done",
    )  # fmt: skip

    def __init__(
        self,
        reader: Reader,
        watches: Iterable[PartitionWatch],
        *,
        bytes_missing: int,
        read_committed: bool,
        completed: Callable[[], None],
    ) -> None:
        """Watch these partitions; a reader with a session has others open already, which count as well."""
        assert reader.waiting is None, "one read at a time waits for a reader"
        self._reader = reader
        self._bytes_missing = bytes_missing
        self._read_committed = read_committed
        self._completed = completed
        self._grown: dict[PartitionWatch, int] = {}
        self._timer: Timer | None = None
        self.done = False
        reader.waiting = self
        self._watches = list(watches)
        self._count = max(1, len(self._watches) if reader.session is None else len(reader.session))
        self._patience = self._bytes_missing // (2 * self._count)
        self._resting: dict[PartitionWatch, None] = {}
        rests = self._patience > 1 and len(self._watches) <= RESTING_AT_ONCE_MAX
        for watch in self._watches:
            watch.open()
            if rests:
                self._rest(watch)

    def start(self, timers: Timers, wait_ms: int) -> None:
        """Wait this long at most."""
        if not self.done:
            self._timer = timers.after_ms(wait_ms, self.complete)

    def moved(self, watch: PartitionWatch, grown: int) -> None:
        """A partition grew, or can no longer be read as before."""
        if self._is_over(watch, grown):
            self.complete()
            return
        if self._bytes_missing < self._count * self._patience:
            # Those that rest may have enough between them: count them, and let them rest for less.
            resting, self._resting = self._resting, {}
            if any(self._is_over(each, each.grow()) for each in resting):
                self.complete()
                return
            self._patience = self._bytes_missing // (2 * self._count)
            for each in resting:
                self._rest(each)
        self._rest(watch)

    def _rest(self, watch: PartitionWatch) -> None:
        """Let a partition be quiet until it has grown by its share of half of what is missing.

        Together they then have less than is missing, so that none has to be asked. Bytes that open transactions hold
        back become readable without growth: a reader of committed data is told of everything while there are some.
        """
        patience = min(self._patience, watch.partition.bytes_max - self._grown.get(watch, 0))
        if patience > 1 and not (self._read_committed and watch.held_back):
            self._resting[watch] = None
            watch.rest(patience)
        else:
            watch.rest(0)

    def _is_over(self, watch: PartitionWatch, grown: int) -> bool:
        """Count what a partition has more; whether that ends the wait."""
        offsets = watch.replica.offsets
        wanted = watch.partition
        if not isinstance(watch.replica.role, Leader) or wanted.fetch_offset < offsets.log_start:
            return True
        if self._read_committed:
            if offsets.last_stable <= wanted.fetch_offset:
                watch.held_back = True
                return False
            try:
                grown = watch.grown_committed(grown)
            except BrokerError:
                # The log cannot be read: reading it once more gives the error to the client.
                return True
        self._bytes_missing -= grown
        total = self._grown[watch] = self._grown.get(watch, 0) + grown
        # A partition that has given all it may is not worth waiting for, whatever the others lack.
        return self._bytes_missing <= 0 or total >= wanted.bytes_max

    def complete(self) -> None:
        """Stop waiting and say so."""
        if not self.done:
            self._end()
            self._completed()

    def cancel(self) -> None:
        """Stop waiting in silence: whoever asked is gone."""
        if not self.done:
            self._end()

    def _end(self) -> None:
        self.done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reader.waiting = None
        if self._reader.session is None:
            for watch in self._watches:
                watch.close()
        self._watches = []
