"""The state of the records of one share partition, at the partition's leader: who holds which, and what is finished.

The records that are neither all finished nor all untouched form a window, from the start (SPSO) to the end, the first
offset that was never handed out. For each offset of the window there is a byte of state, a byte that counts its
deliveries and the number of the lock that holds or held it, in columns; ranges of them change by slices, so that a
batch of a thousand records costs little more than one of a single record.

    AVAILABLE --acquire--> ACQUIRED --acknowledge--> ENDING_... or RELEASING --written--> ACKNOWLEDGED, ARCHIVED or
        ^                     |                             |                             AVAILABLE
        |                     |                             +--write failed--> ACQUIRED, or what follows from expiry
        +------expire---------+  (ARCHIVED at the limit of deliveries)

Acknowledgements are applied when they are written (`begin_write`, `written`, `write_failed`): one write at a time, and
what arrives meanwhile is in the next one. A write names the start as it will be when the write is committed, so that
what lies below need not be written. Expiry of a lock applies at once, and is written with the next write.

`acquirable` is the one place that decides what may be handed out.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import NamedTuple

from penstock.model.generated_errors import InvalidRecordState, InvalidRequest
from penstock.model.ids import Offset
from penstock.shares.persister import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINAL,
    JOINED_FROM,
    SharePartitionState,
    StateBatch,
    check_batches,
    finished_joined,
)

# States of the column beyond those of the persister: a change that is being written.
ENDING_ACKNOWLEDGED = 5
ENDING_ARCHIVED = 6
RELEASING = 7
ENDING_ARCHIVING = 8

WAITING = 9
"""State of the column of what was released, and is not handed out before the end of its backoff."""

ENDING_OF = {
    ACKNOWLEDGED: ENDING_ACKNOWLEDGED,
    ARCHIVED: ENDING_ARCHIVED,
    ARCHIVING: ENDING_ARCHIVING,
    AVAILABLE: RELEASING,
}
"""The state of an offset while its next state is being written."""

# How a member acknowledges.
GAP = 0
"""There is no record at this offset."""
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4

SPAN_MAX = 1_000_000
"""Offsets in the window: with so many, nothing new is handed out until the start moves."""

RANGES_MAX = 10_000
"""Runs of finished and unfinished offsets in the window, which bound the coordinator's snapshot."""

RECOUNT_AFTER = 1_000
"""Changes of a window with too many runs until the runs are counted again."""

BACKOFF_SHIFT_MAX = 20

DELIVERIES_MAX = 255
"""What a byte can count; the limit of deliveries is far below."""

THROTTLED_DELIVERIES_MIN = 2
LEADING_MAX = 1_000
"""Batches at the beginning of what was read that are looked at for one with records."""

STALE_DEADLINES_MAX = 100
"""Deadlines of locks that are gone or were renewed, beyond one for each lock, until they are removed."""

LOCK_BYTES = 4
LOCK_IDS = 1 << 32

_LOCK = Struct("=I")
_AVAILABLE_RUN = re.compile(rb"\x00+")
_ACQUIRED_RUN = re.compile(rb"\x01+")
_HELD_RUN = re.compile(rb"[\x01\x05-\x08]+")
_ARCHIVING_RUN = re.compile(rb"\x03+")
_FINISHED_RUN = re.compile(rb"[\x02\x04]*")
_FINISHED_WHEN_WRITTEN = re.compile(rb"[\x02\x04\x05\x06]*")
_FINISHED_OR_NOT = re.compile(rb"[\x02\x04]+|[^\x02\x04]+")
_FINISHED_MARKS = bytes(state in FINAL for state in range(256))
"""1 for each state that is final."""

_EQUAL_RUN = re.compile(rb"(.)\1*", re.DOTALL)


class ReadBatch(NamedTuple):
    """A batch of the log that was read for a member."""

    base: int
    last: int
    is_aborted: bool = False
    """Whether the reader of committed data skips it."""
    is_expired: bool = False
    """Whether its time to live is over; a part of a batch may be."""
    keys: Sequence[int] = ()
    """For a group that is ordered by key, a hash of the key of each offset; 0 where there is none."""
    is_empty: bool = False
    """Whether it has no record for an application: a control batch, or one whose records were all removed."""


class Acquired(NamedTuple):
    """A range that a member holds now."""

    first: int
    last: int
    deliveries: int


class Acknowledged(NamedTuple):
    """What a member says of a range: one type for all of it, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


class Limits(NamedTuple):
    """The settings of the group that bound what is handed out."""

    deliveries_max: int
    """Deliveries of a record before it is archived."""
    unfinished_max: int
    """Unfinished records in the window before nothing new is handed out."""
    lock_ms: int
    may_renew: bool = True
    backoff_ms: int = 0
    """How long a record waits after its first delivery that failed."""
    backoff_ms_max: int = 0
    """The wait doubles with each delivery up to this; it never does if this is no longer."""
    by_key: bool = False
    """Whether records of one key go to one member at a time, in their order."""
    in_flight_max: int = 0
    """Records of one key that are handed out at a time, if they are ordered; 0 is any number."""
    has_dead_letters: bool = False
    """Whether what is rejected, or delivered too often, is copied to a topic before it is archived."""

    def backoff_after(self, deliveries: int) -> int:
        """How long a record that was delivered so often waits until it may be handed out again."""
        if not self.backoff_ms:
            return 0
        longest = max(self.backoff_ms, self.backoff_ms_max)
        return min(self.backoff_ms << min(max(deliveries - 1, 0), BACKOFF_SHIFT_MAX), longest)

    @property
    def throttled_from(self) -> int:
        """From so many deliveries on, fewer records go out together: one of them may be what kills the consumers."""
        return max(THROTTLED_DELIVERIES_MIN, (self.deliveries_max + 1) // 2)


class Lock:
    """A member's hold on what one request acquired, or on what it renewed together."""

    __slots__ = ("deadline_ms", "expired", "first", "held", "id", "last", "member")

    def __init__(self, lock_id: int, member: str, deadline_ms: int, first: int, last: int, held: int) -> None:
        self.id = lock_id
        self.member = member
        self.deadline_ms = deadline_ms
        self.first = first
        self.last = last
        """All offsets it holds are between the two."""
        self.held = held
        """Offsets that it holds, those among them that are being written included."""
        self.expired = False
        """Whether its deadline passed while offsets of it were being written."""


class Change(NamedTuple):
    """A range that has another state when it is written, or had it before."""

    first: int
    last: int
    state: int
    deliveries: int
    pending: bool
    """Whether it applies when the write is committed; else it has been applied, and is only to be written."""
    not_before_ms: int = 0
    """When an AVAILABLE range may be handed out; 0 for at once."""


class DeadRange(NamedTuple):
    """Records that are to be copied to the dead letters."""

    first: int
    last: int
    deliveries: int


class Write(NamedTuple):
    """What the persister is to write."""

    start: Offset
    """The start when the write is committed."""
    delivery_complete_count: int
    batches: list[StateBatch]
    changes: list[Change]


class SharePartition:
    """One share partition at its leader."""

    __slots__ = (
        "_copying",
        "_deadlines",
        "_deliveries",
        "_edits",
        "_ending",
        "_finished",
        "_held",
        "_keys",
        "_lock_id",
        "_lock_ids",
        "_locks",
        "_of_member",
        "_queue",
        "_recount_at",
        "_rewrite",
        "_state",
        "_waits",
        "_wall_ahead_ms",
        "_writing",
        "limits",
        "locks_expired",
        "start",
        "state_epoch",
    )

    def __init__(
        self,
        state: SharePartitionState,
        start: Offset,
        limits: Limits,
        *,
        now_ms: int = 0,
        wall_ahead_ms: int = 0,
    ) -> None:
        """`start` is that of the state, or where the group begins if the state has none.

        Times are of a clock that never goes back; `wall_ahead_ms` is how far the wall clock, whose times are written,
        is ahead of it.
        """
        self._wall_ahead_ms = wall_ahead_ms
        self._keys: array[int] | None = array("Q") if limits.by_key else None
        """The hash of each offset's key, where the group is ordered by key."""
        self._waits: list[tuple[int, int, int]] = []
        """Heap of (end of the backoff, first offset, last offset) of what is WAITING."""
        self.limits = limits
        self.state_epoch = state.state_epoch
        self.locks_expired = 0
        """Offsets that were released because their lock expired, since their leader counted them."""
        self.start: int = start
        self._state = bytearray()
        self._deliveries = bytearray()
        self._lock_ids = bytearray()
        self._locks: dict[int, Lock] = {}
        self._of_member: dict[str, set[int]] = {}
        self._deadlines: list[tuple[int, int]] = []
        """Heap of (deadline, lock); an entry whose lock is gone or was renewed is stale."""
        self._lock_id = 0
        self._held = 0
        """Offsets that are held, those being written included."""
        self._finished = 0
        """Offsets of the window in a final state."""
        self._ending = 0
        """Offsets that are being written to a final state."""
        self._queue: list[Change] = []
        self._writing: Write | None = None
        self._rewrite = False
        """Whether the coordinator may have committed a write that failed here: the next one has to say everything."""
        self._edits = 0
        """At least the number of runs of finished and unfinished offsets."""
        self._recount_at = RANGES_MAX
        self._copying = False
        """Whether dead letters are on their way."""
        self._load(state.batches, now_ms)

    def _load(self, batches: Sequence[StateBatch], now_ms: int) -> None:
        """Fill the window; what lies between the batches is AVAILABLE, and was not handed out as far as is known."""
        check_batches(batches, self.start)
        if batches:
            length = batches[-1].last + 1 - self.start
            self._extend(length, AVAILABLE, 0)
        for batch in batches:
            if batch.first < self.start:
                raise ValueError(f"batch {batch.first} before the start {self.start}")
            a, b = batch.first - self.start, batch.last + 1 - self.start
            self._state[a:b] = bytes((batch.state,)) * (b - a)
            self._deliveries[a:b] = bytes((min(batch.deliveries, DELIVERIES_MAX),)) * (b - a)
            # The wall clock of the leader that wrote it may have been another.
            longest_ms = now_ms + self.limits.backoff_after(batch.deliveries)
            not_before_ms = min(batch.not_before_ms - self._wall_ahead_ms, longest_ms)
            if batch.state == AVAILABLE and batch.not_before_ms and not_before_ms > now_ms:
                self._wait(a, b, not_before_ms)
        self._edits = 2 * len(batches)
        self._finished = self._count_finished(0, len(self._state))
        self._advance()

    # What is known

    @property
    def by_key(self) -> bool:
        """Whether it orders by key, which was decided when it was loaded."""
        return self._keys is not None

    def learn(self, first: int, keys: Sequence[int]) -> None:
        """The hashes of the keys of some offsets, as far as they are in the window."""
        if self._keys is None:
            return
        a, b = max(first, self.start), min(first + len(keys), self.end)
        if a < b:
            self._keys[a - self.start : b - self.start] = array("Q", keys[a - first : b - first])

    @property
    def end(self) -> int:
        """The first offset that was never handed out."""
        return self.start + len(self._state)

    @property
    def unfinished(self) -> int:
        """Offsets of the window in no final state."""
        return len(self._state) - self._finished

    @property
    def held(self) -> int:
        """Offsets that members hold."""
        return self._held

    @property
    def delivery_complete_count(self) -> int:
        """Finished offsets in the window: what a group's lag does not count."""
        return self._finished

    def ranges(self) -> Iterator[tuple[int, int, int, int]]:
        """First and last offset, state and deliveries of the whole window, in runs."""
        for a, b, state in _runs(self._state, 0, len(self._state)):
            for c, d, deliveries in _runs(self._deliveries, a, b):
                yield self.start + c, self.start + d - 1, state, deliveries

    def holder(self, offset: int) -> str | None:
        """The member that holds an offset."""
        at = offset - self.start
        if not 0 <= at < len(self._state) or self._state[at] not in b"\x01\x05\x06\x07\x08":
            return None
        (lock_id,) = _LOCK.unpack_from(self._lock_ids, at * LOCK_BYTES)
        return self._locks[lock_id].member

    # Acquiring

    def acquirable(self, member: str, first: int, until: int, now_ms: int) -> list[tuple[int, int]]:
        """The ranges of [first, until) within the window that may be handed out, as (first, after the last).

        The one place that decides it. Offsets beyond the window are acquirable as far as `room` goes, except in order
        of keys.
        """
        if self._keys is None:
            return self.available(first, until)
        return self._next_of_keys(self._keys, member, first, until)

    def _next_of_keys(self, keys: array[int], member: str, first: int, until: int) -> list[tuple[int, int]]:
        """The available offsets of keys that no other member holds, and of which the member holds all before them."""
        state, start = self._state, self.start
        foreign: set[int] = set()
        mine: dict[int, int] = {}
        unfinished = self._unfinished_runs()
        held = (run for begin, end in unfinished for run in _HELD_RUN.finditer(state, begin, end))
        for run in held:
            for a, b, lock in self._locked(run.start(), run.end()):
                if lock.member != member:
                    foreign.update(keys[a:b])
                else:
                    for key in keys[a:b]:
                        mine[key] = mine.get(key, 0) + 1
        stuck: set[int] = set()
        """Keys of which an earlier record waits for something."""
        most = self.limits.in_flight_max or len(state)
        found: list[tuple[int, int]] = []
        for begin, end in unfinished:
            for at in range(begin, min(end, until - start)):
                key, now = keys[at], state[at]
                is_free = not key or (key not in foreign and key not in stuck and mine.get(key, 0) < most)
                if now == AVAILABLE and at >= first - start and is_free:
                    mine[key] = mine.get(key, 0) + 1
                    if found and found[-1][1] == start + at:
                        found[-1] = found[-1][0], start + at + 1
                    else:
                        found.append((start + at, start + at + 1))
                    continue
                if now in (AVAILABLE, WAITING, RELEASING):
                    stuck.add(key)
        return found

    def takers(self) -> frozenset[str] | None:
        """The members that may get something of the window in the order of keys; None is any member.

        Those that wait are asked by it whether they are worth a look, which costs as much for each of them.
        """
        keys, state = self._keys, self._state
        if keys is None:
            return None
        unfinished = self._unfinished_runs()
        holders: dict[int, str] = {}
        many: dict[int, int] = {}
        for run in (run for begin, end in unfinished for run in _HELD_RUN.finditer(state, begin, end)):
            for a, b, lock in self._locked(run.start(), run.end()):
                for key in keys[a:b]:
                    holders[key] = lock.member
                    many[key] = many.get(key, 0) + 1
        most = self.limits.in_flight_max or len(state)
        stuck: set[int] = set()
        found: set[str] = set()
        for begin, end in unfinished:
            for at in range(begin, end):
                key, now = keys[at], state[at]
                if now == AVAILABLE and key not in stuck:
                    holder = holders.get(key) if key else None
                    if holder is None:
                        return None
                    if many[key] < most:
                        found.add(holder)
                if now in (AVAILABLE, WAITING, RELEASING) and key:
                    stuck.add(key)
        return frozenset(found)

    def _unfinished_runs(self) -> list[tuple[int, int]]:
        """The runs of offsets in no final state, relative to the start.

        A regular expression would take 10 ms for a million finished offsets between them, this takes one.
        """
        marks = self._state.translate(_FINISHED_MARKS)
        runs: list[tuple[int, int]] = []
        begin = marks.find(0)
        while begin >= 0:
            end = marks.find(1, begin)
            if end < 0:
                end = len(marks)
            runs.append((begin, end))
            begin = marks.find(0, end)
        return runs

    def available(self, first: int, until: int) -> list[tuple[int, int]]:
        """The AVAILABLE ranges of [first, until), as (first, after the last)."""
        start = self.start
        return [
            (start + found.start(), start + found.end())
            for found in _AVAILABLE_RUN.finditer(self._state, max(first - start, 0), max(until - start, 0))
        ]

    def room(self) -> int:
        """How many offsets beyond the window may be handed out now."""
        if len(self._state) >= SPAN_MAX or self._is_scattered():
            return 0
        return max(self.limits.unfinished_max - self.unfinished, 0)

    def next_offset(self, member: str | None = None) -> Offset | None:
        """The first offset that may be handed out, or None: what to read from the log.

        Which that is depends on the member where keys are ordered; without one it is what some member may get.
        """
        if self._keys is not None and member is not None:
            found = self._next_of_keys(self._keys, member, self.start, self.end)
            return Offset(found[0][0]) if found else Offset(self.end) if self.room() else None
        if self.unfinished > self._held:
            at = self._state.find(AVAILABLE)
            if at >= 0:
                return Offset(self.start + at)
        return Offset(self.end) if self.room() else None

    def acquire(
        self,
        member: str,
        batches: Iterable[ReadBatch],
        *,
        fetch_offset: int,
        records_max: int,
        records_exact: bool,
        batch_size: int,
        now_ms: int,
    ) -> list[Acquired]:
        """Hand out what may be of the batches that were read from `fetch_offset` on.

        Batches are taken whole, even if there are more than `records_max` records, unless that is exact. Ranges of new
        records are divided between batches where they have `batch_size` records. Records that were delivered often go
        out alone or few together. Offsets that no batch has are archived, since compaction removed them, and so are
        those of aborted transactions.
        """
        if self._keys is not None:
            return self._acquire_by_key(member, batches, fetch_offset=fetch_offset, most=records_max, now_ms=now_ms)
        taken: list[Acquired] = []
        count = 0
        room = self.room()
        new_first = new_end = -1
        """The new range that is being collected."""
        position = max(fetch_offset, self.start)
        for base, last, is_aborted, is_expired, *_ in self._without_lone(batches, records_max, exact=records_exact):
            if count >= records_max:
                break
            if new_first >= 0 and (is_aborted or is_expired):
                self._extend_acquired(taken, new_first, new_end)
                new_first = -1
            if base > position and new_first < 0 and not self._skip(position, base):
                break
            first = max(base, self.start)
            position = last + 1
            if is_aborted or is_expired:
                if not self._skip(first, position, is_written=is_expired):
                    break
                continue
            window_end = self.end
            if first < window_end:
                some, is_over = self._acquire_again(
                    member,
                    first,
                    min(position, window_end),
                    now_ms,
                    batch_records=position - base,
                    records_max=records_max - count if records_exact else None,
                    is_first=not taken,
                )
                taken += some
                count += sum(each.last + 1 - each.first for each in some)
                if is_over:
                    break
                if position <= window_end:
                    continue
            if room <= 0 or count >= records_max or not self._fits(last):
                break
            if new_first < 0:
                new_first = new_end = max(first, window_end)
            elif not records_exact and base - new_first >= batch_size > 0:
                self._extend_acquired(taken, new_first, base)
                new_first = base
            many = position - new_end
            if records_exact:
                many = min(many, records_max - count, room)
            new_end += many
            count += many
            room -= many
        if new_first >= 0:
            self._extend_acquired(taken, new_first, new_end)
        if taken:
            self._hold(member, taken, now_ms)
        return taken

    def _without_lone(self, batches: Iterable[ReadBatch], records_max: int, *, exact: bool) -> Iterator[ReadBatch]:
        """The batches; those without records at the beginning pass for expired, unless records go out with them.

        librdkafka acknowledges them as gaps only beside records, and would hold them until their lock expires.
        """
        leading: list[ReadBatch] = []
        empty = 0
        rest = iter(batches)
        first = None
        for each in rest:
            if len(leading) == LEADING_MAX or not (each.is_empty or each.is_aborted or each.is_expired):
                first = each
                break
            leading.append(each)
            empty += each.last + 1 - each.base if each.is_empty else 0
        if empty and (first is None or first.is_empty or exact or empty >= records_max or leading[0].base < self.end):
            leading = [each._replace(is_expired=each.is_expired or each.is_empty) for each in leading]
        yield from leading
        if first is not None:
            yield first
        yield from rest

    def _acquire_by_key(
        self, member: str, batches: Iterable[ReadBatch], *, fetch_offset: int, most: int, now_ms: int
    ) -> list[Acquired]:
        """Take what was read into the window, with its keys, and hand out of it what the order allows."""
        position = begin = max(fetch_offset, self.start)
        for base, last, is_aborted, is_expired, keys, is_empty in batches:
            if base > position and not self._skip(position, base):
                break
            first = max(base, self.start)
            position = last + 1
            if is_aborted or is_expired or is_empty:
                if not self._skip(first, position, is_written=is_expired or is_empty):
                    break
                continue
            if position > self.end:
                self._extend(min(position - self.end, self.room()) if self._fits(last) else 0, AVAILABLE, 0)
            self.learn(base, keys)
            if position > self.end:
                break
        # What was not read is not sent either, though it may be in the window since it was released.
        until = min(position, self.end)
        taken, _ = self._acquire_again(
            member,
            begin,
            until,
            now_ms,
            batch_records=max(until - begin, 1),
            records_max=most,
            is_first=True,
        )
        if taken:
            self._hold(member, taken, now_ms)
        return taken

    def _acquire_again(
        self,
        member: str,
        first: int,
        until: int,
        now_ms: int,
        *,
        batch_records: int,
        records_max: int | None,
        is_first: bool,
    ) -> tuple[list[Acquired], bool]:
        """What of [first, until) in the window a member gets, and whether nothing may follow it in the response."""
        taken: list[Acquired] = []
        throttled_from = self.limits.throttled_from
        for c, d in self.acquirable(member, first, until, now_ms):
            for e, f, deliveries in _runs(self._deliveries, c - self.start, d - self.start):
                many, is_throttled = f - e, deliveries >= throttled_from
                if is_throttled:
                    if taken or not is_first:
                        return taken, True
                    many = min(many, self._few(batch_records, deliveries))
                if records_max is not None:
                    many = min(many, records_max)
                    records_max -= many
                at = self.start + e
                taken.append(Acquired(at, at + many - 1, min(deliveries + 1, DELIVERIES_MAX)))
                if is_throttled or records_max == 0:
                    return taken, True
        return taken, False

    def _extend_acquired(self, taken: list[Acquired], first: int, until: int) -> None:
        """Take a range at the end of the window."""
        if until > first:
            taken.append(Acquired(first, until - 1, 1))
            self._extend(until - self.end, ACQUIRED, 1)

    def _few(self, batch_records: int, deliveries: int) -> int:
        """How many records with so many deliveries go out together: half a batch, then a quarter, at last one alone."""
        limits = self.limits
        if deliveries >= limits.deliveries_max - 1:
            return 1
        return max(1, batch_records >> (deliveries - limits.throttled_from + 1))

    def _fits(self, last: int) -> bool:
        """Whether the window may reach so far; an empty one may reach anywhere."""
        return last - self.start < SPAN_MAX or not self._state

    def _skip(self, first: int, until: int, *, is_written: bool = False) -> bool:
        """Archive offsets that are not to be handed out; False where the window would become too long.

        A next leader that reads the log skips them too, unless that is by the clock: then it `is_written`, as is what
        may be all that is left of a partition.
        """
        window_end = self.end
        for c, d in self.available(first, min(until, window_end)):
            if is_written:
                for e, f, deliveries in _runs(self._deliveries, c - self.start, d - self.start):
                    self._queue.append(Change(self.start + e, self.start + f - 1, ARCHIVED, deliveries, False))
            self._state[c - self.start : d - self.start] = bytes((ARCHIVED,)) * (d - c)
            self._finished += d - c
            self._edits += 2
        if is_written and until > window_end:
            self._queue.append(Change(max(first, window_end), until - 1, ARCHIVED, 0, False))
        if until > window_end:
            if not self._state:
                self.start = until
            elif not self._fits(until):
                return False
            else:
                self._extend(until - window_end, ARCHIVED, 0)
                self._finished += until - window_end
                self._edits += 2
        self._advance()
        return True

    def _extend(self, many: int, state: int, deliveries: int) -> None:
        self._state += bytes((state,)) * many
        self._deliveries += bytes((deliveries,)) * many
        self._lock_ids += bytes(LOCK_BYTES * many)
        if self._keys is not None:
            self._keys.frombytes(bytes(self._keys.itemsize * many))

    def _hold(self, member: str, taken: list[Acquired], now_ms: int) -> None:
        count = sum(each.last + 1 - each.first for each in taken)
        lock = self._lock(member, now_ms, taken[0].first, taken[-1].last, count)
        packed = _LOCK.pack(lock.id)
        start = self.start
        for first, last, deliveries in taken:
            a, b = first - start, last + 1 - start
            many = b - a
            self._state[a:b] = bytes((ACQUIRED,)) * many
            self._deliveries[a:b] = bytes((deliveries,)) * many
            self._lock_ids[a * LOCK_BYTES : b * LOCK_BYTES] = packed * many
        self._held += count

    def _lock(self, member: str, now_ms: int, first: int, last: int, held: int) -> Lock:
        """A new lock of a member."""
        lock_id = (self._lock_id + 1) % LOCK_IDS
        while lock_id in self._locks:
            lock_id = (lock_id + 1) % LOCK_IDS
        self._lock_id = lock_id
        deadline_ms = now_ms + self.limits.lock_ms
        lock = self._locks[lock_id] = Lock(lock_id, member, deadline_ms, first, last, held)
        self._of_member.setdefault(member, set()).add(lock_id)
        self._plan(lock)
        return lock

    def _plan(self, lock: Lock) -> None:
        """Note when a lock expires."""
        heappush(self._deadlines, (lock.deadline_ms, lock.id))
        if len(self._deadlines) > 2 * len(self._locks) + STALE_DEADLINES_MAX:
            self._deadlines = [(each.deadline_ms, each.id) for each in self._locks.values() if not each.expired]
            heapify(self._deadlines)

    def _unhold(self, a: int, b: int) -> None:
        """The locks of a range hold these offsets no more."""
        self._held -= b - a
        for c, d, lock in self._locked(a, b):
            lock.held -= d - c
            if not lock.held:
                self._unlock(lock)

    def _unlock(self, lock: Lock) -> None:
        del self._locks[lock.id]
        ids = self._of_member[lock.member]
        ids.discard(lock.id)
        if not ids:
            del self._of_member[lock.member]

    def _locked(self, a: int, b: int) -> Iterator[tuple[int, int, Lock]]:
        """A range of held offsets by lock, in runs."""
        ids = self._lock_ids[a * LOCK_BYTES : b * LOCK_BYTES]
        one = ids[:LOCK_BYTES]
        if ids == one * (b - a):
            yield a, b, self._locks[_LOCK.unpack(one)[0]]
            return
        each = memoryview(ids).cast("I")
        c = a
        for d in range(a + 1, b + 1):
            if d == b or each[d - a] != each[c - a]:
                yield c, d, self._locks[each[c - a]]
                c = d

    # Acknowledging

    def acknowledge(self, member: str, ranges: Sequence[Acknowledged], now_ms: int) -> bool:
        """Take a member's acknowledgements: all of them or, if one is refused, none.

        True when they are to be written, and apply when they are; False when there is nothing to write.
        """
        wanted: list[tuple[int, int, int]] = []
        beyond = -1
        for first, last, types in ranges:
            if first < beyond:
                raise InvalidRecordState("The offset cannot be acknowledged. The offset is not acquired.")
            beyond = last + 1
            if last < self.start:
                # Finished by a log start that moved, or removed by retention: as good as acknowledged.
                continue
            self._check_held(member, first, last)
            if len(types) == 1:
                wanted.append((max(first, self.start), last, types[0]))
            else:
                for a, b, kind in _runs(bytes(types), max(self.start - first, 0), len(types)):
                    wanted.append((first + a, first + b - 1, kind))
        if not self.limits.may_renew and any(kind == RENEW for _, _, kind in wanted):
            raise InvalidRecordState("Renewing acquisition locks is not enabled for the group.")
        queued = len(self._queue)
        for first, last, kind in wanted:
            a, b = first - self.start, last + 1 - self.start
            if kind == RENEW:
                self._renew(a, b, now_ms)
            elif kind == RELEASE:
                self._release(a, b, now_ms)
            else:
                self._end(a, b, ACKNOWLEDGED if kind == ACCEPT else self._dead_state if kind == REJECT else ARCHIVED)
        return len(self._queue) > queued

    def _check_held(self, member: str, first: int, last: int) -> None:
        """Raise unless the member holds all of a range that is above the start."""
        if not self._state:
            raise InvalidRecordState("Batch record not found. The request batch offsets are not found in the cache.")
        if last >= self.end:
            which = "first" if first >= self.end else "last"
            raise InvalidRequest(f"Batch record not found. The {which} offset in request is past acquired records.")
        a, b = max(first - self.start, 0), last + 1 - self.start
        if self._state.count(ACQUIRED, a, b) != b - a:
            raise InvalidRecordState("The batch cannot be acknowledged. The batch is not in the acquired state.")
        if any(lock.member != member for _, _, lock in self._locked(a, b)):
            raise InvalidRecordState("Member is not the owner of batch record")

    def _renew(self, a: int, b: int, now_ms: int) -> None:
        """Let the locks of a range begin again, which is not written."""
        members = {lock.member for _, _, lock in self._locked(a, b)}
        assert len(members) == 1, f"renewed for {members}"
        whole = next(self._locked(a, b))
        if whole[:2] == (a, b) and whole[2].held == b - a:
            lock = whole[2]
            lock.deadline_ms = now_ms + self.limits.lock_ms
            self._plan(lock)
            return
        self._unhold(a, b)
        self._held += b - a
        lock = self._lock(members.pop(), now_ms, self.start + a, self.start + b - 1, b - a)
        self._lock_ids[a * LOCK_BYTES : b * LOCK_BYTES] = _LOCK.pack(lock.id) * (b - a)

    def _release(self, a: int, b: int, now_ms: int | None = None) -> None:
        """Queue the release of held offsets, without a backoff unless there is a time; some are at their limit."""
        for c, d, deliveries in _runs(self._deliveries, a, b):
            state = self._released_state(deliveries)
            self._queue_change(c, d, state, deliveries, self._not_before(state, deliveries, now_ms))

    def _not_before(self, state: int, deliveries: int, now_ms: int | None) -> int:
        """When a record that is released now may be handed out; 0 for at once."""
        backoff_ms = 0 if state != AVAILABLE or now_ms is None else self.limits.backoff_after(deliveries)
        return 0 if now_ms is None or not backoff_ms else now_ms + backoff_ms

    def _wait(self, a: int, b: int, not_before_ms: int) -> None:
        """Hand out a range again only after a time."""
        self._state[a:b] = bytes((WAITING,)) * (b - a)
        heappush(self._waits, (not_before_ms, self.start + a, self.start + b - 1))

    def _released_state(self, deliveries: int) -> int:
        return self._dead_state if deliveries >= self.limits.deliveries_max else AVAILABLE

    @property
    def _dead_state(self) -> int:
        """What becomes of a record that will not be delivered again."""
        return ARCHIVING if self.limits.has_dead_letters else ARCHIVED

    def _end(self, a: int, b: int, state: int) -> None:
        for c, d, deliveries in _runs(self._deliveries, a, b):
            self._queue_change(c, d, state, deliveries)

    def _queue_change(self, a: int, b: int, state: int, deliveries: int, not_before_ms: int = 0) -> None:
        self._state[a:b] = bytes((ENDING_OF[state],)) * (b - a)
        if state in FINAL:
            self._ending += b - a
        self._edits += 2
        self._queue.append(Change(self.start + a, self.start + b - 1, state, deliveries, True, not_before_ms))

    def release_member(self, member: str) -> bool:
        """Queue the release of all that a member holds; True when there is something to write."""
        queued = len(self._queue)
        for lock_id in sorted(self._of_member.get(member, ())):
            for a, b in self._acquired_by(self._locks[lock_id]):
                self._release(a, b)
        return len(self._queue) > queued

    def _acquired_by(self, lock: Lock) -> list[tuple[int, int]]:
        """What a lock holds and is not being written, relative to the start."""
        first, until = max(lock.first - self.start, 0), lock.last + 1 - self.start
        if until <= first:
            return []
        return [
            (a, b)
            for found in _ACQUIRED_RUN.finditer(self._state, first, until)
            for a, b, holder in self._locked(found.start(), found.end())
            if holder is lock
        ]

    # Expiry

    def next_deadline_ms(self) -> int | None:
        """When the next lock expires, or the next backoff ends."""
        lock_ms = self._next_expiry_ms()
        if not self._waits:
            return lock_ms
        wait_ms = self._waits[0][0]
        return wait_ms if lock_ms is None else min(lock_ms, wait_ms)

    def _next_expiry_ms(self) -> int | None:
        deadlines = self._deadlines
        while deadlines:
            deadline_ms, lock_id = deadlines[0]
            lock = self._locks.get(lock_id)
            if lock is not None and lock.deadline_ms == deadline_ms and not lock.expired:
                return deadline_ms
            heappop(deadlines)
        return None

    def expire(self, now_ms: int) -> int:
        """Release what is locked beyond its time, at once, and end backoffs; the number of offsets.

        What is released is written with the next write.
        """
        expired = 0
        while (deadline_ms := self._next_expiry_ms()) is not None and deadline_ms <= now_ms:
            _, lock_id = heappop(self._deadlines)
            lock = self._locks[lock_id]
            lock.expired = True
            for a, b in self._acquired_by(lock):
                self._expired(a, b, deadline_ms)
                expired += b - a
        while self._waits and self._waits[0][0] <= now_ms:
            _, first, last = heappop(self._waits)
            expired += self._end_wait(first, last)
        if expired:
            self._advance()
        return expired

    def _expired(self, a: int, b: int, deadline_ms: int) -> None:
        """Release offsets whose lock expired at a time."""
        self.locks_expired += b - a
        self._unhold(a, b)
        for c, d, deliveries in _runs(self._deliveries, a, b):
            state = self._released_state(deliveries)
            not_before_ms = self._not_before(state, deliveries, deadline_ms)
            if not_before_ms:
                self._wait(c, d, not_before_ms)
            else:
                self._state[c:d] = bytes((state,)) * (d - c)
            if state in FINAL:
                self._finished += d - c
            self._edits += 2
            self._queue.append(Change(self.start + c, self.start + d - 1, state, deliveries, False, not_before_ms))

    def _end_wait(self, first: int, last: int) -> int:
        """Make what waits in a range AVAILABLE; the number of offsets."""
        a, b = max(first - self.start, 0), last + 1 - self.start
        if a >= b:
            return 0
        assert self._state.count(WAITING, a, b) == b - a, f"{first} to {last} do not wait"
        self._state[a:b] = bytes((AVAILABLE,)) * (b - a)
        return b - a

    # Writing

    @property
    def is_writing(self) -> bool:
        return self._writing is not None

    @property
    def has_unwritten(self) -> bool:
        """Whether there are changes that no write has yet."""
        return bool(self._queue)

    def begin_write(self) -> Write | None:
        """What is to be written now; None when a write is on its way, or nothing is to be written."""
        if self._writing is not None or not self._queue:
            return None
        found = _FINISHED_WHEN_WRITTEN.match(self._state)
        passed = 0 if found is None else found.end()
        start = self.start + passed
        changes, self._queue = self._queue, []
        batches = self._everything(changes, start) if self._rewrite else _batches(changes, start, self._wall_ahead_ms)
        self._rewrite = False
        count = self._finished + self._ending - passed
        self._writing = Write(Offset(start), count, batches, changes)
        return self._writing

    def _everything(self, changes: list[Change], start: int) -> list[StateBatch]:
        """The whole window as the coordinator has to know it; a delivery in flight does not count."""
        # Only the changes say until when what is being released will wait.
        batches = _batches(
            [each for each in changes if each.pending and each.state == AVAILABLE], start, self._wall_ahead_ms
        )
        waits = sorted((first, last, until_ms) for until_ms, first, last in self._waits)
        for first, last, state, deliveries in self.ranges():
            if last < start or state == RELEASING:
                continue
            if state == WAITING:
                batches += (
                    StateBatch(max(a, first), min(b, last), AVAILABLE, deliveries, until_ms + self._wall_ahead_ms)
                    for a, b, until_ms in waits
                    if a <= last and b >= first
                )
                continue
            known, counted = WRITTEN_AS[state], deliveries - (state == ACQUIRED)
            if known != AVAILABLE or counted:
                batches.append(StateBatch(max(first, start), last, known, counted))
        batches.sort()
        return finished_joined(batches) if len(batches) >= JOINED_FROM else batches

    def written(self, write: Write) -> None:
        """The write is committed: what it changes applies."""
        assert write is self._writing, "another write is on its way"
        self._writing = None
        for change in write.changes:
            if change.pending:
                a, b = max(change.first - self.start, 0), change.last + 1 - self.start
                if a < b:
                    self._settle(a, b, change.state, change.not_before_ms)
        self._advance()

    def _settle(self, a: int, b: int, state: int, not_before_ms: int) -> None:
        self._unhold(a, b)
        if not_before_ms:
            self._wait(a, b, not_before_ms)
            return
        self._state[a:b] = bytes((state,)) * (b - a)
        if state in FINAL:
            self._ending -= b - a
            self._finished += b - a

    def write_failed(self, write: Write) -> None:
        """The write failed, or its outcome is unknown: its offsets are ACQUIRED again, unless their lock expired."""
        assert write is self._writing, "another write is on its way"
        self._writing = None
        self._rewrite = True
        for change in write.changes:
            if not change.pending:
                self._queue.append(change)
                continue
            a, b = max(change.first - self.start, 0), change.last + 1 - self.start
            if a >= b:
                continue
            if change.state in FINAL:
                self._ending -= b - a
            self._state[a:b] = bytes((ACQUIRED,)) * (b - a)
            for c, d, lock in list(self._locked(a, b)):
                if lock.expired:
                    self._expired(c, d, lock.deadline_ms)
        self._advance()

    # Dead letters

    def begin_copy(self, records_max: int) -> list[DeadRange]:
        """The first records to copy to the dead letters, from one on whose end is written; none while others are."""
        found: list[DeadRange] = []
        if self._copying or ARCHIVING not in self._state:
            return found
        queued = [*self._queue, *(self._writing.changes if self._writing is not None else ())]
        unwritten = sorted((each.first, each.last) for each in queued if each.state == ARCHIVING)
        left = records_max
        for run in _ARCHIVING_RUN.finditer(self._state):
            for a, b in _without(self.start + run.start(), self.start + run.end(), unwritten):
                for c, d, deliveries in _runs(self._deliveries, a - self.start, b - self.start):
                    many = min(d - c, left)
                    left -= many
                    found.append(DeadRange(self.start + c, self.start + c + many - 1, deliveries))
                    if not left:
                        break
                if not left:
                    break
            if not left:
                break
        self._copying = bool(found)
        return found

    def copied(self, ranges: Sequence[DeadRange]) -> None:
        """These are among the dead letters: archive them, which is to be written."""
        self._copying = False
        for first, last, deliveries in ranges:
            a, b = max(first - self.start, 0), last + 1 - self.start
            if a >= b:
                # The log start passed them meanwhile.
                continue
            assert self._state.count(ARCHIVING, a, b) == b - a, f"copied {first} to {last}, which are not archiving"
            self._state[a:b] = bytes((ARCHIVED,)) * (b - a)
            self._finished += b - a
            self._edits += 2
            self._queue.append(Change(self.start + a, last, ARCHIVED, deliveries, False))
        self._advance()

    def copy_failed(self) -> None:
        """They may or may not be among the dead letters, and are copied again."""
        self._copying = False

    # The start

    def log_start_moved(self, log_start: Offset) -> bool:
        """Forget what retention or DeleteRecords removed; True when the start moved. It is written with the next write.

        A member that holds removed records may acknowledge them, which has no effect.
        """
        many = log_start - self.start
        if many <= 0:
            return False
        b = min(many, len(self._state))
        for found in _HELD_RUN.finditer(self._state, 0, b):
            self._unhold(found.start(), found.end())
        self._ending -= self._state.count(ENDING_ACKNOWLEDGED, 0, b) + self._state.count(ENDING_ARCHIVED, 0, b)
        self._finished -= self._count_finished(0, b)
        self._drop(b)
        self.start = log_start
        self._advance()
        return True

    def _advance(self) -> None:
        """Move the start over what is finished."""
        state = self._state
        if state and state[0] in (ACKNOWLEDGED, ARCHIVED):
            found = _FINISHED_RUN.match(state)
            many = 0 if found is None else found.end()
            self._drop(many)
            self._finished -= many
            self.start += many

    def _drop(self, many: int) -> None:
        del self._state[:many], self._deliveries[:many], self._lock_ids[: many * LOCK_BYTES]
        if self._keys is not None:
            del self._keys[:many]

    def _count_finished(self, a: int, b: int) -> int:
        return self._state.count(ACKNOWLEDGED, a, b) + self._state.count(ARCHIVED, a, b)

    def _is_scattered(self) -> bool:
        """Whether the window has too many runs. They are counted only when there may be too many."""
        if self._edits > self._recount_at:
            self._edits = sum(1 for _ in _FINISHED_OR_NOT.finditer(self._state))
            self._recount_at = max(self._edits + RECOUNT_AFTER, RANGES_MAX)
        return self._edits > RANGES_MAX


WRITTEN_AS = {
    **{state: state for state in range(ENDING_ACKNOWLEDGED)},
    ACQUIRED: AVAILABLE,
    ENDING_ACKNOWLEDGED: ACKNOWLEDGED,
    ENDING_ARCHIVED: ARCHIVED,
    ENDING_ARCHIVING: ARCHIVING,
    RELEASING: AVAILABLE,
    WAITING: AVAILABLE,
}
"""The state that the coordinator is to know of each state of the column."""


def _without(first: int, until: int, taken: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What is left of [first, until) without ranges, in order, whose ends belong to them."""
    for begin, last in taken:
        if last < first or begin >= until:
            continue
        if begin > first:
            yield first, begin
        first = max(first, last + 1)
    if first < until:
        yield first, until


def _runs(column: bytearray | bytes, a: int, b: int) -> Iterator[tuple[int, int, int]]:
    """The runs of equal bytes of a column between two indexes."""
    if a >= b:
        return iter(())
    value = column[a]
    if column.count(value, a, b) == b - a:
        return iter(((a, b, value),))
    return iter([(found.start(), found.end(), column[found.start()]) for found in _EQUAL_RUN.finditer(column, a, b)])


def _batches(changes: list[Change], start: int, wall_ahead_ms: int) -> list[StateBatch]:
    """Changes from an offset on as the persister writes them, adjacent ones joined."""
    batches: list[StateBatch] = []
    for first, last, state, deliveries, _, not_before_ms in changes:
        if last < start:
            continue
        found = StateBatch(max(first, start), last, state, deliveries, not_before_ms and not_before_ms + wall_ahead_ms)
        if batches and batches[-1].last + 1 == found.first and batches[-1][2:] == found[2:]:
            found = found._replace(first=batches.pop().first)
        batches.append(found)
    return batches
