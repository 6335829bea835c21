"""Rules of schedules, each with a way to take it out: the model must find what goes wrong without it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Any

from penstock.model.ids import Offset
from penstock.model.producers import PRODUCER_ID_MAX
from penstock.partition import producers
from penstock.partition.producers import ProducerTable
from penstock.schedules import delivery
from penstock.schedules.firing import Lane, PartitionSchedules
from penstock.schedules.index import Pending
from penstock.testing.model import schedules as model
from penstock.testing.model.ablations import Ablation, always, nothing, patched
from penstock.wire.schedule_records import Fire, Outcome


@contextmanager
def sent_when_committed() -> Generator[None]:
    """A fire is sent as soon as it is appended."""

    def deliverable(state: PartitionSchedules, _: int) -> list[Lane]:
        return [lane for lane in state.lanes.values() if lane.open is not None]

    with patched(PartitionSchedules, "deliverable", deliverable):
        yield


@contextmanager
def inherited_is_committed() -> Generator[None]:
    """A leader acts at once, before what it inherited is committed, and so sends what may be truncated yet."""

    def deliverable(state: PartitionSchedules, _: int) -> list[Lane]:
        return [lane for lane in state.lanes.values() if lane.open is not None]

    with (
        patched(PartitionSchedules, "may_begin", staticmethod(always)),
        patched(PartitionSchedules, "deliverable", deliverable),
    ):
        yield


@contextmanager
def function_of_the_log() -> Generator[None]:
    """A delivery has something that its sender knows and the log does not: here, how many were built before."""
    built = count()

    def timestamp_of(due_ms: int, fired_ms: int) -> int:
        return fired_ms + next(built)

    with patched(delivery, "timestamp_of", timestamp_of):
        yield


@contextmanager
def order_of_due_times() -> Generator[None]:
    """A fire names what is due in any order."""
    candidates = PartitionSchedules.candidates

    def backwards(state: PartitionSchedules, lane: Lane, most: int) -> list[Pending]:
        return candidates(state, lane, most)[::-1]

    with patched(PartitionSchedules, "candidates", backwards):
        yield


@contextmanager
def known_sequences() -> Generator[None]:
    """The target knows no more than the last batch of a producer: it appends every other one again."""
    check = ProducerTable.check_scheduled

    def latest(table: ProducerTable, producer_id: Any, epoch: Any, base: int, delta: int) -> Any:
        try:
            found = check(table, producer_id, epoch, base, delta)
        except Exception:
            return None
        entry = table.get(producer_id)
        same = entry is not None and entry.batches and entry.batches[-1][0] == base + delta
        return found if same else None

    with patched(ProducerTable, "check_scheduled", latest):
        yield


@contextmanager
def never_forgotten() -> Generator[None]:
    """The target forgets producers of schedules that are idle, as others."""
    with (
        patched(producers, "SCHEDULE_IDS_FROM", 2**63 - 1),
        patched(ProducerTable, "check_scheduled", unasserted(ProducerTable.check_scheduled)),
    ):
        yield


def unasserted(check: Any) -> Any:
    def with_real_bound(table: ProducerTable, *args: Any) -> Any:
        with patched(producers, "SCHEDULE_IDS_FROM", PRODUCER_ID_MAX):
            return check(table, *args)

    return with_real_bound


@contextmanager
def one_open_fire() -> Generator[None]:
    """A lane fires again while its last fire is not closed."""

    def ready(state: PartitionSchedules) -> list[Lane]:
        return [lane for lane in state.lanes.values() if lane.waiting]

    with patched(PartitionSchedules, "ready", ready), patched(PartitionSchedules, "make_fire", unchecked):
        yield


@contextmanager
def still_pending() -> Generator[None]:
    """What was due when it was read is fired, also if it was replaced or cancelled meanwhile."""

    def is_pending(state: PartitionSchedules, entry: Pending) -> bool:
        return entry.offset not in state.fired

    with patched(PartitionSchedules, "is_pending", is_pending):
        yield


@contextmanager
def closing_check() -> Generator[None]:
    """A closing does not look whether the key has a later record."""
    with patched(PartitionSchedules, "is_to_close", always):
        yield


@contextmanager
def closing_sees_open_transactions() -> Generator[None]:
    """A closing does not look at open transactions."""

    def is_to_close(state: PartitionSchedules, offset: int, digest: Any) -> bool:
        return state.index.last_of(digest) == offset

    with patched(PartitionSchedules, "is_to_close", is_to_close):
        yield


@contextmanager
def leftovers_are_closed() -> Generator[None]:
    """What waited for a transaction that is aborted is never closed."""
    with patched(PartitionSchedules, "leftovers", nothing_left):
        yield


def nothing_left(state: PartitionSchedules) -> list[Any]:
    state.check_leftovers = False
    return []


@contextmanager
def transactions_are_decided() -> Generator[None]:
    """A record of a transaction counts at once."""

    def hold(state: PartitionSchedules, _: int, held: Any) -> None:
        if held.is_tombstone:
            state.remove(held.offset, held.digest)
        else:
            state.put(held.offset, held.digest, held.due_ms, held.partition_hash)

    with patched(PartitionSchedules, "hold", hold):
        yield


@contextmanager
def greatest_offset_wins() -> Generator[None]:
    """A transaction's record replaces what was written after it."""
    put = PartitionSchedules.put

    def forgetful(state: PartitionSchedules, offset: Any, digest: Any, *rest: Any) -> None:
        before = state.index.last_of(digest)
        if before > offset:
            state.index.remove(digest, Offset(before + 1))
        put(state, offset, digest, *rest)

    with patched(PartitionSchedules, "put", forgetful):
        yield


@contextmanager
def tombstones_are_remembered() -> Generator[None]:
    """A tombstone is forgotten while a transaction with an older record of its key is open."""
    remove = PartitionSchedules.remove

    def forgetful(state: PartitionSchedules, offset: Any, digest: Any) -> None:
        remove(state, offset, digest)
        state._cancelled.clear()  # pyright: ignore[reportPrivateUsage]

    with patched(PartitionSchedules, "remove", forgetful):
        yield


@contextmanager
def epoch_goes_up() -> Generator[None]:
    """After a refusal the next fire goes on in the same epoch, with the sequence of the refused one."""
    close = PartitionSchedules.close

    def same_epoch(state: PartitionSchedules, closed: Any) -> None:
        lane = next(
            (
                each
                for each in state.lanes.values()
                if (each.open_at, each.partition) == (closed.fire, closed.partition)
            ),
            None,
        )
        before = None if lane is None else (lane.epoch, lane.next_sequence)
        close(state, closed)
        if lane is not None and before is not None and closed.outcome is not Outcome.DELIVERED:
            lane.epoch, lane.next_sequence = before

    with patched(PartitionSchedules, "close", same_epoch):
        yield


@contextmanager
def refusals_fence() -> Generator[None]:
    """The target refuses a batch, and accepts it later."""
    with patched(model, "EPOCH_MAX", -1):
        yield


@contextmanager
def due_by_the_clock() -> Generator[None]:
    """What was due once is fired, though the clock was set back."""
    with patched(PartitionSchedules, "make_fire", unchecked), patched(model, "is_early", nothing):
        yield


def unchecked(state: PartitionSchedules, lane: Lane, now_ms: int, named: Any, entries: Any) -> Any:
    lane.firing = list(entries)
    return Fire(now_ms, lane.topic_id, lane.partition, lane.producer_id, lane.epoch, lane.next_sequence, tuple(named))


ABLATIONS: dict[str, Ablation] = {
    each.__name__: each
    for each in (
        sent_when_committed,
        inherited_is_committed,
        function_of_the_log,
        order_of_due_times,
        known_sequences,
        never_forgotten,
        one_open_fire,
        still_pending,
        closing_check,
        closing_sees_open_transactions,
        leftovers_are_closed,
        transactions_are_decided,
        greatest_offset_wins,
        tombstones_are_remembered,
        epoch_goes_up,
        refusals_fence,
        due_by_the_clock,
    )
}
