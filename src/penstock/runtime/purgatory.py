"""Where reads wait that found too little: until enough has been written, something went wrong, or time is up.

A waiting read is woken by the partitions it watches and looks at no others. Writes that wait, for replicas or for the
disk, are `PartitionHost.committed` and `durable`, with a timer beside them.
"""

from collections.abc import Callable, Iterable

from penstock.runtime.partition_host import PartitionHost
from penstock.runtime.timers import Timer, Timers


class DelayedFetch:
    """A read that waits. `complete` is called once, on the loop, and never after `cancel`."""

    __slots__ = ("_bytes_missing", "_complete", "_ended", "_seen", "_timer", "done")

    def __init__(self, hosts: Iterable[PartitionHost], bytes_missing: int, complete: Callable[[], None]) -> None:
        self._seen = {host: host.readable_bytes for host in hosts}
        """What each host had made visible when last looked at."""
        self._bytes_missing = bytes_missing
        self._complete = complete
        self._timer: Timer | None = None
        self._ended: Callable[[DelayedFetch], None] | None = None
        self.done = False

    def begin(self, timers: Timers, wait_ms: int, ended: Callable[["DelayedFetch"], None]) -> None:
        """Wait this long at most, for what happens from here on."""
        self._ended = ended
        self._timer = timers.after_ms(wait_ms, self.complete)
        for host in self._seen:
            host.watch(self)

    def notify(self, host: PartitionHost) -> None:
        """A host grew, lost something from its start, or is gone."""
        if host.gone is not None or not host.state.leads:
            self.complete()
            return
        grown = host.readable_bytes - self._seen[host]
        self._seen[host] = host.readable_bytes
        self._bytes_missing -= grown
        # Without growth the log start moved, which may have put the reader out of range.
        if self._bytes_missing <= 0 or grown == 0:
            self.complete()

    def complete(self) -> None:
        """Stop waiting and say so."""
        if not self.done:
            self._end()
            self._complete()

    def cancel(self) -> None:
        """Stop waiting in silence: whoever asked is gone."""
        if not self.done:
            self._end()

    def _end(self) -> None:
        self.done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for host in self._seen:
            host.unwatch(self)
        self._seen.clear()
        if self._ended is not None:
            self._ended(self)
            self._ended = None


class Purgatory:
    """The reads that wait now."""

    __slots__ = ("_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[DelayedFetch, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, delayed: DelayedFetch, wait_ms: int) -> None:
        """Let a read wait this long at most."""
        self._waiting[delayed] = None
        delayed.begin(self._timers, wait_ms, self._forget)

    def close(self) -> None:
        """Answer everybody with what there is: the broker stops."""
        for delayed in tuple(self._waiting):
            delayed.complete()

    def _forget(self, delayed: DelayedFetch) -> None:
        self._waiting.pop(delayed, None)
