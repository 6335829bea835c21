"""Who watches a partition, and how much it has to grow before each of them wants to hear of it.

A long poll that lacks a megabyte gains nothing from being notified of every record: it rests until there may be enough.
So thousands that wait for more cost an append nothing.
"""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.partition.watcher_notification import Watcher

NEVER = 2**63
DUE_STALE_MAX = 64
"""Entries of watchers that have left, or rest for something else, beyond as many as there are watchers."""


class Watchers:
    """The watchers of one partition, by the byte at which they are to be notified."""

    __slots__ = ("_any", "_due", "_order", "_resting")

    def __init__(self) -> None:
        self._any: dict[Watcher, None] = {}
        """Those who want to hear of everything."""
        self._resting: dict[Watcher, tuple[int, int]] = {}
        """The others, with their entry in `_due`."""
        self._due: list[tuple[int, int, Watcher]] = []
        """A heap of bytes, a number that tells entries apart, and the watcher; entries may be stale."""
        self._order = 0

    def __len__(self) -> int:
        return len(self._any) + len(self._resting)

    def __contains__(self, watcher: "Watcher") -> bool:
        return watcher in self._any or watcher in self._resting

    def add(self, watcher: "Watcher", at_bytes: int = 0) -> None:
        """Watch, or watch in another way: from `at_bytes` on, or everything."""
        if not at_bytes:
            self._resting.pop(watcher, None)
            self._any[watcher] = None
            return
        self._any.pop(watcher, None)
        self._order += 1
        self._resting[watcher] = (at_bytes, self._order)
        heappush(self._due, (at_bytes, self._order, watcher))
        if len(self._due) > 2 * len(self._resting) + DUE_STALE_MAX:
            self._due = [(at, order, resting) for resting, (at, order) in self._resting.items()]
            heapify(self._due)

    def discard(self, watcher: "Watcher") -> None:
        self._any.pop(watcher, None)
        self._resting.pop(watcher, None)

    def next_at(self) -> int:
        """The byte at which somebody wants to be notified; `NEVER` where nobody watches."""
        if self._any:
            return 0
        due = self._due
        while due and self._resting.get(due[0][2]) != due[0][:2]:
            heappop(due)
        return due[0][0] if due else NEVER

    def due(self, readable_bytes: int) -> list["Watcher"]:
        """Whom to tell that there are so many bytes; those who rested hear of everything from now on."""
        while self._due and self._due[0][0] <= readable_bytes:
            at, order, watcher = heappop(self._due)
            if self._resting.get(watcher) == (at, order):
                self.add(watcher)
        return list(self._any)

    def everyone(self) -> list["Watcher"]:
        """Whom to tell of what is not growth: all, who hear of everything from now on."""
        for watcher in list(self._resting):
            self.add(watcher)
        self._due.clear()
        return list(self._any)
