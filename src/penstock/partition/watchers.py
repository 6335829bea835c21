"""Watchers of a partition: long polls that are notified when readers can see more, or something else.

A watcher is notified in a later turn of the event loop, once for all that happened in a turn: several appends (a
pipelined producer, a request for many partitions) make one notification. A long poll that still needs a megabyte is not
notified of every record: it rests until there may be enough, so that thousands of waiting polls cost an append nothing.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

from penstock.model.turns import Turns

NEVER = 2**63
DUE_STALE_MAX = 64
"""Heap entries allowed beyond twice the number of resting watchers; with more, stale ones are removed."""

NOTIFIED_PER_LOOK = 32
"""Watchers that are notified between two reads of the clock."""


class Watcher(Protocol):
    """Is notified when a partition changes."""

    def notify(self) -> None:
        """Readers can see more than before, or less, or the replica is offline."""
        ...


class Watchers:
    """The watchers of one partition, by the readable bytes at which they are to be notified."""

    __slots__ = (
        "_any",
        "_changed",
        "_due",
        "_is_queued",
        "_order",
        "_resting",
        "notifier",
        "notify_at_bytes",
        "readable_bytes",
    )

    def __init__(self, notifier: "WatcherNotifier") -> None:
        self.notifier = notifier
        self.readable_bytes: int = 0
        """Bytes that have become visible to readers since the replica was opened; only differences are meaningful."""
        self.notify_at_bytes: int = NEVER
        """The readable bytes at which the next watcher is due."""
        self._any: dict[Watcher, None] = {}
        """Watchers of everything."""
        self._resting: dict[Watcher, tuple[int, int]] = {}
        """The others, with their entry in `_due`."""
        self._due: list[tuple[int, int, Watcher]] = []
        """Heap of (bytes, unique number, watcher); entries may be stale."""
        self._order = 0
        self._changed = False
        """Whether every watcher is due, because something other than growth happened."""
        self._is_queued = False

    def __len__(self) -> int:
        return len(self._any) + len(self._resting)

    def __contains__(self, watcher: Watcher) -> bool:
        return watcher in self._any or watcher in self._resting

    def add(self, watcher: Watcher, grown_bytes: int = 0) -> None:
        """Notify of everything until `discard`; with `grown_bytes`, only from that many more readable bytes on."""
        if grown_bytes <= 1:
            self._watch_everything(watcher)
            self.notify_at_bytes = 0
            return
        at_bytes = self.readable_bytes + grown_bytes
        self._any.pop(watcher, None)
        self._order += 1
        self._resting[watcher] = (at_bytes, self._order)
        heappush(self._due, (at_bytes, self._order, watcher))
        if len(self._due) > 2 * len(self._resting) + DUE_STALE_MAX:
            self._due = [(at, order, resting) for resting, (at, order) in self._resting.items()]
            heapify(self._due)
        if at_bytes < self.notify_at_bytes:
            self.notify_at_bytes = at_bytes

    def _watch_everything(self, watcher: Watcher) -> None:
        self._resting.pop(watcher, None)
        self._any[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        self._any.pop(watcher, None)
        self._resting.pop(watcher, None)

    def grow(self, grown_bytes: int) -> None:
        """Readers see so many more bytes: notify the watchers that are due."""
        self.readable_bytes += grown_bytes
        if self.readable_bytes >= self.notify_at_bytes:
            self.queue()

    def change(self) -> None:
        """Readers see something other than growth: notify every watcher."""
        if self:
            self._changed = True
            self.queue()

    def queue(self) -> None:
        """Schedule the notification of the watchers that are due."""
        if not self._is_queued:
            self._is_queued = True
            self.notifier.add(self)

    def notify(self) -> Iterator[None]:
        """Notify the watchers that are due, one per step; a watcher may leave between steps."""
        self._is_queued = False
        changed, self._changed = self._changed, False
        failure: Exception | None = None
        for watcher in self._all() if changed else self._due_by_bytes():
            # A watcher that fails is a bug of its own and must not leave the others waiting.
            try:
                if watcher in self:
                    watcher.notify()
            except Exception as error:
                failure = error
            yield
        self.notify_at_bytes = self._next_at()
        if failure is not None:
            raise failure

    def _next_at(self) -> int:
        """The readable bytes at which the next watcher is due."""
        if self._any:
            return 0
        due = self._due
        while due and self._resting.get(due[0][2]) != due[0][:2]:
            heappop(due)
        return due[0][0] if due else NEVER

    def _due_by_bytes(self) -> list[Watcher]:
        """Watchers whose bytes have been reached; those that rested watch everything from now on."""
        while self._due and self._due[0][0] <= self.readable_bytes:
            at, order, watcher = heappop(self._due)
            if self._resting.get(watcher) == (at, order):
                self._watch_everything(watcher)
        return list(self._any)

    def _all(self) -> list[Watcher]:
        """All watchers; they watch everything from now on."""
        for watcher in list(self._resting):
            self._watch_everything(watcher)
        self._due.clear()
        return list(self._any)


class WatcherNotifier:
    """Notifies the watchers of all partitions, in each turn of the loop as many as it has time for."""

    __slots__ = ("_call_soon", "_notifying", "_queue", "_scheduled", "_turns")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], turns: Turns) -> None:
        self._call_soon = call_soon
        self._turns = turns
        self._queue: deque[Watchers] = deque()
        self._notifying: Iterator[None] | None = None
        """The watchers of a partition that the last turn had no time for."""
        self._scheduled = False

    def add(self, watchers: Watchers) -> None:
        """Notify this partition's watchers in the next turn; the caller adds it once until they are notified."""
        self._queue.append(watchers)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        failure: Exception | None = None
        # Partitions added meanwhile wait for the next turn.
        for _ in range(len(self._queue) + (self._notifying is not None)):
            if self._notifying is None:
                self._notifying = self._queue.popleft().notify()
            try:
                if not self._notify(self._notifying):
                    break
            except Exception as error:
                failure = error
            self._notifying = None
        if self._queue or self._notifying is not None:
            self._schedule()
        if failure is not None:
            raise failure

    def _notify(self, watchers: Iterator[None]) -> bool:
        """Notify the watchers of one partition; False when the turn has no time for the rest of them."""
        for notified, _ in enumerate(watchers, 1):
            if notified % NOTIFIED_PER_LOOK == 0 and self._turns.spent():
                return False
        return True
