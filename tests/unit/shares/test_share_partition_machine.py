"""A share partition against a model of an object per record, and a coordinator that keeps what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model.generated_errors import InvalidRecordState, InvalidRequest
from penstock.model.ids import Offset
from penstock.shares.persister import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    SharePartitionState,
    StateBatch,
)
from penstock.shares.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    WAITING,
    WRITTEN_AS,
    Acknowledged,
    DeadRange,
    Limits,
    ReadBatch,
    SharePartition,
    Write,
)

LOCK_MS = 100
WALL_AHEAD_MS = 1_000_000
LIMITS = Limits(deliveries_max=4, unfinished_max=20, lock_ms=LOCK_MS)
MEMBERS = st.sampled_from("abc")
FINAL = (ACKNOWLEDGED, ARCHIVED)
TARGETS = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


@dataclass
class Record:
    """One offset of the window as the model sees it."""

    state: int = AVAILABLE
    deliveries: int = 0
    member: str | None = None
    deadline_ms: int = 0
    wanted: int | None = None
    """The state that is being written."""
    expired: bool = False
    not_before_ms: int = 0
    """End of the backoff that follows, or lasts."""


@dataclass
class Coordinator:
    """What is committed."""

    start: int = 0
    count: int = 0
    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    not_before_ms: dict[int, int] = field(default_factory=dict)

    def commit(self, write: Write) -> None:
        self.start, self.count = write.start, write.delivery_complete_count
        for batch in write.batches:
            assert batch.first >= write.start
            for offset in range(batch.first, batch.last + 1):
                self.known[offset] = (batch.state, batch.deliveries)
                self.not_before_ms[offset] = batch.not_before_ms
        self.known = {offset: known for offset, known in self.known.items() if offset >= self.start}

    def state(self) -> SharePartitionState:
        batches = [
            StateBatch(offset, offset, *known, self.not_before_ms[offset])
            for offset, known in sorted(self.known.items())
        ]
        return SharePartitionState(0, Offset(self.start), self.count, batches)


class Sharing(RuleBasedStateMachine):
    """Members acquire and acknowledge; time passes, writes fail, the leader and the log start move."""

    limits = LIMITS
    dead = ARCHIVED
    """What becomes of a record that is rejected, or delivered too often."""

    @initialize(sizes=st.lists(st.integers(1, 6), min_size=3, max_size=12))
    def begin(self, sizes: list[int]) -> None:
        self.batches: list[tuple[int, int]] = []
        at = 0
        for size in sizes:
            self.batches.append((at, at + size - 1))
            at += size
        self.coordinator = Coordinator()
        self.now_ms = 0
        self.writing: Write | None = None
        self.accepted: set[int] = set()
        """Offsets whose acceptance was written, and the leader knows it."""
        self.load()

    def load(self) -> None:
        committed = self.coordinator.state()
        self.share = SharePartition(
            committed, committed.start_offset, self.limits, now_ms=self.now_ms, wall_ahead_ms=WALL_AHEAD_MS
        )
        self.writing = None
        last = max(self.coordinator.known, default=committed.start_offset - 1)
        self.records = {offset: Record() for offset in range(committed.start_offset, last + 1)}
        for offset, (state, deliveries) in self.coordinator.known.items():
            self.records[offset].state, self.records[offset].deliveries = state, deliveries
        self.at = int(committed.start_offset)
        self.advance()

    def advance(self) -> None:
        while self.at in self.records and self.records[self.at].state in FINAL:
            del self.records[self.at]
            self.at += 1

    # What members do

    @rule(member=MEMBERS, most=st.integers(1, 15), exact=st.booleans(), size=st.integers(0, 5), read=st.integers(1, 4))
    def acquire(self, member: str, most: int, exact: bool, size: int, read: int) -> None:
        offset = self.share.next_offset()
        available = [at for at, record in self.records.items() if record.state == AVAILABLE and record.wanted is None]
        unfinished = sum(record.state not in FINAL for record in self.records.values())
        end = self.at + len(self.records)
        if offset is None:
            assert not available
            assert unfinished >= LIMITS.unfinished_max
            return
        assert offset == min(available, default=end)
        found = [ReadBatch(*batch) for batch in self.batches if batch[1] >= offset][:read]
        if not found:
            return
        acquired = self.share.acquire(
            member,
            found,
            fetch_offset=offset,
            records_max=most,
            records_exact=exact,
            batch_size=size,
            now_ms=self.now_ms,
        )
        assert acquired, "something could be acquired"
        taken: list[int] = []
        for first, last, deliveries in acquired:
            assert not taken or first > taken[-1]
            for at in range(first, last + 1):
                record = self.records.setdefault(at, Record())
                assert record.state == AVAILABLE, at
                assert record.wanted is None
                assert at not in self.accepted, f"{at} was accepted, and comes again"
                record.deliveries += 1
                assert record.deliveries == deliveries
                record.state, record.member, record.expired = ACQUIRED, member, False
                record.deadline_ms = self.now_ms + LOCK_MS
                taken.append(at)
        assert taken[0] == offset
        assert found[0].base <= taken[0]
        assert taken[-1] <= found[-1].last
        fresh = [at for at in taken if at >= end]
        assert fresh == list(range(end, end + len(fresh)))
        throttled = [at for at in taken if self.records[at].deliveries > LIMITS.throttled_from]
        if throttled:
            assert throttled == taken
            base, last, *_ = next(batch for batch in found if batch.last >= offset)
            assert len(taken) <= max(1, (last + 1 - base) // 2)
            if self.records[taken[0]].deliveries == LIMITS.deliveries_max:
                assert len(taken) == 1
        if exact:
            assert len(taken) <= most
            assert not fresh or unfinished + len(fresh) <= LIMITS.unfinished_max
        elif not throttled:
            last_batch = next(batch for batch in found if batch.last >= taken[-1])
            complete = [at for at in available if offset <= at <= last_batch.last]
            often = [at for at in complete if self.records[at].deliveries >= LIMITS.throttled_from]
            assert often or set(complete) <= set(taken), "batches are taken whole"
            assert len(taken) < most + last_batch.last + 1 - last_batch.base

    @rule(data=st.data(), member=MEMBERS)
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        if not self.records:
            return
        first = data.draw(st.sampled_from(sorted(self.records)))
        last = first + data.draw(st.integers(0, 6))
        single = data.draw(st.booleans())
        many = 1 if single else last + 1 - first
        types = data.draw(
            st.lists(st.sampled_from([GAP, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]), min_size=many, max_size=many)
        )
        offsets = range(first, last + 1)
        is_held = all(
            at in self.records
            and self.records[at].state == ACQUIRED
            and self.records[at].wanted is None
            and self.records[at].member == member
            for at in offsets
        )
        before = list(self.share.ranges())
        if not is_held:
            with pytest.raises((InvalidRecordState, InvalidRequest)):
                self.share.acknowledge(member, [Acknowledged(first, last, types)], self.now_ms)
            assert list(self.share.ranges()) == before
            return
        queued = self.share.acknowledge(member, [Acknowledged(first, last, types)], self.now_ms)
        all_types = types * len(offsets) if single else types
        assert queued == any(kind != RENEW for kind in all_types)
        self.want(zip(offsets, all_types, strict=True))

    def want(self, wanted: object) -> None:
        for at, kind in wanted:  # type: ignore[attr-defined]
            record = self.records[at]
            if kind == RENEW:
                record.deadline_ms = self.now_ms + LOCK_MS
            elif kind == RELEASE and record.deliveries >= LIMITS.deliveries_max:
                record.wanted = self.dead
            else:
                record.wanted = self.dead if kind == REJECT else TARGETS[kind]

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        held = [at for at, record in self.records.items() if self.is_held(record, member)]
        assert self.share.release_member(member) == bool(held)
        self.want((at, RELEASE) for at in held)

    @staticmethod
    def is_held(record: Record, member: str) -> bool:
        return record.state == ACQUIRED and record.wanted is None and record.member == member

    # What happens to them

    @rule(passed=st.integers(1, 120))
    def expire(self, passed: int) -> None:
        self.now_ms += passed
        expired = 0
        for record in self.records.values():
            if record.state == ACQUIRED and record.deadline_ms <= self.now_ms:
                if record.wanted is None:
                    self.released(record)
                    expired += 1
                else:
                    record.expired = True
        deadline = self.share.next_deadline_ms()
        assert self.share.expire(self.now_ms) == expired
        assert not expired or (deadline is not None and deadline <= self.now_ms)
        self.advance()

    def released(self, record: Record) -> None:
        record.state = self.dead if record.deliveries >= LIMITS.deliveries_max else AVAILABLE
        record.member = None

    @precondition(lambda self: self.writing is None)
    @rule()
    def write(self) -> None:
        self.writing = self.share.begin_write()
        for record in self.records.values():
            assert self.writing is not None or record.wanted is None
        if self.writing is not None:
            ends = {
                at: (record.state if record.wanted is None else record.wanted) for at, record in self.records.items()
            }
            start = self.writing.start
            assert all(ends[at] in FINAL for at in ends if at < start)
            assert ends.get(start) not in FINAL
            assert self.writing.delivery_complete_count == sum(at >= start and end in FINAL for at, end in ends.items())

    @precondition(lambda self: self.writing is not None)
    @rule()
    def commit(self) -> None:
        write = self.writing
        assert write is not None
        self.coordinator.commit(write)
        self.writing = None
        self.share.written(write)
        for at, record in self.changed(write):
            assert record.wanted is not None
            record.state, record.wanted, record.member = record.wanted, None, None
            if record.state == ACKNOWLEDGED:
                self.accepted.add(at)
        self.advance()

    @precondition(lambda self: self.writing is not None)
    @rule(committed=st.booleans())
    def fail(self, committed: bool) -> None:
        write = self.writing
        assert write is not None
        if committed:
            self.coordinator.commit(write)
        self.writing = None
        self.share.write_failed(write)
        for _, record in self.changed(write):
            record.wanted = None
            if record.expired:
                self.released(record)
        self.advance()

    def changed(self, write: Write) -> Sequence[tuple[int, Record]]:
        offsets = [at for change in write.changes if change.pending for at in range(change.first, change.last + 1)]
        return [(at, self.records[at]) for at in offsets if at in self.records]

    @rule()
    def move_leader(self) -> None:
        self.load()

    @rule(many=st.integers(1, 8))
    def move_log_start(self, many: int) -> None:
        start = self.at + many
        assert self.share.log_start_moved(Offset(start))
        self.records = {at: record for at, record in self.records.items() if at >= start}
        self.at = start
        self.advance()

    # What holds

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "share"):
            return
        share = self.share
        seen: dict[int, tuple[int, int]] = {}
        for first, last, state, deliveries in share.ranges():
            for at in range(first, last + 1):
                seen[at] = (state, deliveries)
        assert (share.start, share.end) == (self.at, self.at + len(self.records))
        held = 0
        for at, record in self.records.items():
            state, deliveries = seen.pop(at)
            assert deliveries == record.deliveries
            if record.wanted is None:
                assert state == record.state, at
            else:
                assert WRITTEN_AS[state] == record.wanted
                assert state != record.wanted
            is_held = record.state == ACQUIRED
            held += is_held
            assert share.holder(at) == (record.member if is_held else None)
        assert not seen
        assert share.held == held
        assert share.unfinished == sum(record.state not in FINAL for record in self.records.values())


class Burying(Sharing):
    """The same, for a group with dead letters: what it gives up is copied before it is archived."""

    limits = LIMITS._replace(has_dead_letters=True)
    dead = ARCHIVING

    def load(self) -> None:
        super().load()
        self.copying: list[DeadRange] = []
        if not hasattr(self, "buried"):
            self.buried: set[int] = set()

    @precondition(lambda self: not self.copying)
    @rule(most=st.integers(1, 6))
    def copy(self, most: int) -> None:
        self.copying = self.share.begin_copy(most)
        offsets = [at for first, last, _ in self.copying for at in range(first, last + 1)]
        assert len(offsets) == len(set(offsets)) <= most
        for first, last, deliveries in self.copying:
            for at in range(first, last + 1):
                assert self.records[at].state == ARCHIVING
                assert self.records[at].deliveries == deliveries
                assert self.coordinator.known[at] == (ARCHIVING, deliveries), "copied before it is written"
        if len(offsets) < most:
            settled = self.writing is None and not self.share.has_unwritten
            archiving = [at for at, record in self.records.items() if record.state == ARCHIVING]
            assert not settled or offsets == sorted(archiving)

    @precondition(lambda self: self.copying)
    @rule(some=st.integers(0, 5))
    def finish_copy(self, some: int) -> None:
        copied, self.copying = self.copying[:some], []
        if not copied:
            self.share.copy_failed()
            return
        self.share.copied(copied)
        for first, last, _ in copied:
            for at in range(first, last + 1):
                self.buried.add(at)
                if at in self.records:
                    self.records[at].state = ARCHIVED
        self.advance()

    @invariant()
    def nothing_is_given_up_that_is_not_a_dead_letter(self) -> None:
        for at, record in getattr(self, "records", {}).items():
            if record.state == ARCHIVED and record.deliveries and at not in self.gaps:
                assert at in self.buried

    def want(self, wanted: object) -> None:
        kinds = list(wanted)  # type: ignore[call-overload]
        self.gaps |= {at for at, kind in kinds if kind == GAP}
        super().want(kinds)

    @property
    def gaps(self) -> set[int]:
        """Offsets that a member said to have no record."""
        return self.__dict__.setdefault("_gaps", set())

    @gaps.setter
    def gaps(self, value: set[int]) -> None:
        self.__dict__["_gaps"] = value


class Backing(Sharing):
    """The same, for a group whose released records wait; those of a member that leaves do not."""

    limits = LIMITS._replace(backoff_ms=30, backoff_ms_max=100)

    def load(self) -> None:
        super().load()
        for at, not_before_ms in self.coordinator.not_before_ms.items():
            record = self.records.get(at)
            if record is not None and record.state == AVAILABLE and not_before_ms - WALL_AHEAD_MS > self.now_ms:
                record.state, record.not_before_ms = WAITING, not_before_ms - WALL_AHEAD_MS

    @staticmethod
    def backoff(record: Record) -> int:
        return min(30 * 2 ** (record.deliveries - 1), 100)

    def want(self, wanted: object) -> None:
        kinds = list(wanted)  # type: ignore[call-overload]
        super().want(kinds)
        for at, kind in kinds:
            record = self.records[at]
            waits = kind == RELEASE and record.wanted == AVAILABLE and not self.leaving
            record.not_before_ms = self.now_ms + self.backoff(record) if waits else 0

    leaving = False

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.leaving = True
        held = [at for at, record in self.records.items() if self.is_held(record, member)]
        assert self.share.release_member(member) == bool(held)
        self.want((at, RELEASE) for at in held)
        self.leaving = False

    def released(self, record: Record) -> None:
        super().released(record)
        if record.state == AVAILABLE:
            record.state, record.not_before_ms = WAITING, record.deadline_ms + self.backoff(record)

    @precondition(lambda self: self.writing is not None)
    @rule()
    def commit(self) -> None:
        write = self.writing
        assert write is not None
        offsets = [at for at, _ in self.changed(write)]
        super().commit()
        for at in offsets:
            record = self.records.get(at)
            if record is not None and record.state == AVAILABLE and record.not_before_ms:
                record.state = WAITING

    @rule(passed=st.integers(1, 120))
    def expire(self, passed: int) -> None:
        self.now_ms += passed
        changed = 0
        for record in self.records.values():
            if record.state == ACQUIRED and record.deadline_ms <= self.now_ms:
                if record.wanted is None:
                    self.released(record)
                    changed += 1
                else:
                    record.expired = True
            if record.state == WAITING and record.not_before_ms <= self.now_ms:
                record.state = AVAILABLE
                changed += 1
        deadline = self.share.next_deadline_ms()
        assert not changed or (deadline is not None and deadline <= self.now_ms)
        assert self.share.expire(self.now_ms) == changed
        self.advance()


class Ordering(Sharing):
    """The same, for a group whose records of one key go to one member at a time, in their order."""

    limits = LIMITS._replace(by_key=True)

    @staticmethod
    def key(at: int) -> int:
        """Every fifth record has none."""
        return 0 if at % 5 == 4 else at * 7 % 4 + 1

    def load(self) -> None:
        super().load()
        self.share.learn(self.at - 1, [self.key(at) for at in range(self.at - 1, self.at + 40)])

    def allowed(self, member: str) -> list[int]:
        """The offsets of the window that the member may get next, one by one."""
        found: list[int] = []
        most = self.limits.in_flight_max or len(self.records)
        for at in sorted(self.records):
            record, key = self.records[at], self.key(at)
            if record.state != AVAILABLE or record.wanted is not None:
                continue
            others = [(each, self.records[each]) for each in self.records if key and self.key(each) == key]
            held = [each for each, other in others if other.state == ACQUIRED and other.member == member]
            if any(other.state == ACQUIRED and other.member != member for _, other in others):
                continue
            before = [(each, other) for each, other in others if each < at and other.state not in FINAL]
            ready = all(
                each in found or (other.state == ACQUIRED and other.wanted != AVAILABLE) for each, other in before
            )
            count = len(held) + sum(self.key(each) == key for each in found)
            if not key or (ready and count < most):
                found.append(at)
        return found

    @rule(member=MEMBERS, most=st.integers(1, 15), exact=st.booleans(), size=st.integers(0, 5), read=st.integers(1, 4))
    def acquire(self, member: str, most: int, exact: bool, size: int, read: int) -> None:
        offset = self.share.next_offset(member)
        end = self.at + len(self.records)
        unfinished = sum(record.state not in FINAL for record in self.records.values())
        allowed = self.allowed(member)
        full = unfinished >= self.limits.unfinished_max
        assert offset == min(allowed, default=None if full else end)
        if offset is None:
            return
        found = [
            ReadBatch(base, last, keys=[self.key(at) for at in range(base, last + 1)])
            for base, last in self.batches
            if last >= offset
        ][:read]
        if not found:
            return
        acquired = self.share.acquire(
            member,
            found,
            fetch_offset=offset,
            records_max=most,
            records_exact=exact,
            batch_size=size,
            now_ms=self.now_ms,
        )
        for at in range(end, self.share.end):
            self.records[at] = Record()
        assert sum(record.state not in FINAL for record in self.records.values()) <= max(
            unfinished, self.limits.unfinished_max
        )
        allowed = self.allowed(member)
        taken = [at for first, last, _ in acquired for at in range(first, last + 1)]
        assert taken == [at for at in allowed if at >= offset][: len(taken)], "in order, and nothing out of turn"
        assert taken or not [at for at in allowed if at >= offset]
        assert len(taken) <= most
        for first, last, deliveries in acquired:
            for at in range(first, last + 1):
                record = self.records[at]
                assert at not in self.accepted
                record.deliveries += 1
                assert record.deliveries == deliveries
                record.state, record.member, record.expired = ACQUIRED, member, False
                record.deadline_ms = self.now_ms + LOCK_MS

    @invariant()
    def those_who_may_get_something_are_known(self) -> None:
        if not hasattr(self, "share"):
            return
        takers = self.share.takers()
        may = {member for member in "abcd" if self.allowed(member)}
        assert may == (set("abcd") if takers is None else takers)


class Queueing(Ordering):
    """The same in strict order: one record of a key at a time."""

    limits = LIMITS._replace(by_key=True, in_flight_max=1)


TestOrdering = Ordering.TestCase
TestOrdering.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestQueueing = Queueing.TestCase
TestQueueing.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestBacking = Backing.TestCase
TestBacking.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestBurying = Burying.TestCase
TestBurying.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
