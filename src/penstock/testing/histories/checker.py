"""Finds the anomalies of a history.

An operation is committed if it succeeded, or if its outcome is unknown and a successful operation has seen one of its
sends. The log of a key is made of the offsets of committed sends and all polls; gaps are legal, since control batches
and aborted values take offsets too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from penstock.testing.histories.anomalies import KAFKA_ALLOWS, Anomaly, Kind
from penstock.testing.histories.cycles import cycles
from penstock.testing.histories.history import (
    CommittedOffset,
    Event,
    HistoryError,
    LastStable,
    Moved,
    Operation,
    Outcome,
    PartitionEnd,
    Poll,
    Replica,
    Send,
)


def check(history: Iterable[Event]) -> tuple[Anomaly, ...]:
    """All anomalies, including allowed ones; none for a valid history."""
    events = tuple(history)
    log = Log(tuple(event for event in events if isinstance(event, Operation)))
    return (
        *log.check_offsets(),
        *log.check_reads(),
        *log.check_writes(),
        *log.check_sends(),
        *log.check_cycles(),
        *check_positions(events, log),
        *check_bounds(events),
        *check_replicas(events),
    )


def forbidden(anomalies: Iterable[Anomaly], *, allowed: frozenset[Kind] = KAFKA_ALLOWS) -> tuple[Anomaly, ...]:
    """The anomalies that Kafka's guarantees exclude."""
    return tuple(anomaly for anomaly in anomalies if anomaly.kind not in allowed)


class Log:
    """The writer, the offset and the readers of each value, from the operations of a history."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations
        self.writers = writers_of(operations)
        self.seen: dict[tuple[str, int], int] = {}
        """By key and value: the first successful operation that saw it."""
        self.read_up_to: dict[str, int] = {}
        """By key: the highest offset that a successful operation saw."""
        for index, operation in enumerate(operations):
            if operation.outcome is Outcome.OK:
                for key, offset, value in operation.seen():
                    self.seen.setdefault((key, value), index)
                    self.read_up_to[key] = max(offset, self.read_up_to.get(key, offset))
        self.committed = frozenset(index for index in range(len(operations)) if self._is_committed(index))
        self.values = self._values()
        self._certain = {
            key: sorted(at for at, values in offsets.items() if any(self._stays(key, value) for value in values))
            for key, offsets in self.values.items()
        }

    def _is_committed(self, index: int) -> bool:
        operation = self.operations[index]
        return operation.outcome is Outcome.OK or (
            operation.outcome is Outcome.UNKNOWN
            and any((send.key, send.value) in self.seen for send in operation.sends())
        )

    def _values(self) -> dict[str, dict[int, set[int]]]:
        values: defaultdict[str, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for index, operation in enumerate(self.operations):
            if index in self.committed:
                for send in operation.sends():
                    if send.offset is not None:
                        values[send.key][send.offset].add(send.value)
            for key, offset, value in operation.seen():
                values[key][offset].add(value)
        return {key: dict(offsets) for key, offsets in values.items()}

    def _stays(self, key: str, value: int) -> bool:
        """Whether every reader must see it: it is committed, or written outside the history."""
        writer = self.writers.get((key, value))
        return writer is None or writer in self.committed

    def between(self, key: str, after: int, before: int) -> list[int]:
        """The offsets between two others at which every reader must see something."""
        offsets = self._certain.get(key, [])
        return offsets[bisect_right(offsets, after) : bisect_left(offsets, before)]

    # The rules

    def check_offsets(self) -> Iterator[Anomaly]:
        for key, offsets in self.values.items():
            places: defaultdict[int, list[int]] = defaultdict(list)
            for offset, values in sorted(offsets.items()):
                if len(values) > 1:
                    found = f"offset {offset} holds {_listed(values)}"
                    yield Anomaly(kind=Kind.INCONSISTENT_OFFSETS, key=key, found=found)
                for value in values:
                    places[value].append(offset)
            for value, at in places.items():
                if len(at) > 1:
                    yield Anomaly(kind=Kind.DUPLICATE, key=key, found=f"{value} stands at offsets {_listed(at)}")

    def check_reads(self) -> Iterator[Anomaly]:
        for (key, value), reader in self.seen.items():
            writer = self.writers.get((key, value))
            if writer is not None and self.operations[writer].outcome is Outcome.FAIL:
                found = f"{value} of failed operation {writer} was seen by operation {reader}"
                yield Anomaly(kind=Kind.ABORTED_READ, key=key, found=found)
        for index, operation in enumerate(self.operations):
            own = {(send.key, send.value) for send in operation.sends()}
            for key, offset, value in operation.seen() if own else ():
                if (key, value) in own:
                    found = f"operation {index} saw its own {value} at offset {offset}"
                    yield Anomaly(kind=Kind.PRECOMMITTED_READ, key=key, found=found)

    def check_writes(self) -> Iterator[Anomaly]:
        for index in sorted(self.committed):
            for send in self.operations[index].sends():
                if (send.key, send.value) in self.seen:
                    continue
                read_up_to = self.read_up_to.get(send.key)
                if send.offset is not None and read_up_to is not None and send.offset <= read_up_to:
                    found = (
                        f"{send.value} of operation {index} was acknowledged at offset {send.offset}; "
                        f"{read_up_to} was read, and it never"
                    )
                    yield Anomaly(kind=Kind.LOST_WRITE, key=send.key, found=found)
                else:
                    found = f"{send.value} of operation {index} was never read"
                    yield Anomaly(kind=Kind.UNSEEN, key=send.key, found=found)

    def check_sends(self) -> Iterator[Anomaly]:
        last: dict[tuple[int, str], Send] = {}
        for index, operation in enumerate(self.operations):
            within: dict[str, int] = {}
            for send in operation.sends():
                if send.offset is None:
                    continue
                before = last.get((operation.process, send.key))
                if before is not None and before.offset is not None and send.offset <= before.offset:
                    found = (
                        f"process {operation.process} sent {before.value}, at offset {before.offset}, "
                        f"then {send.value}, at {send.offset}"
                    )
                    yield Anomaly(kind=Kind.NONMONOTONIC_SEND, key=send.key, found=found)
                skipped = self.between(send.key, within[send.key], send.offset) if send.key in within else []
                if skipped:
                    found = f"operation {index} has others' values between its own, at {_listed(skipped)}"
                    yield Anomaly(kind=Kind.SEND_SKIP, key=send.key, found=found)
                last[operation.process, send.key] = send
                within[send.key] = send.offset

    def check_cycles(self) -> Iterator[Anomaly]:
        writes, reads = self._write_edges(), self._read_edges()
        yield from _circles(Kind.G0, writes)
        yield from _circles(Kind.G1C, reads)
        # A component that needs edges of both kinds; those of a single kind were reported above.
        known = {frozenset(circle) for edges in (writes, reads) for circle in cycles(edges)}
        both = {node: writes.get(node, set()) | reads.get(node, set()) for node in writes.keys() | reads.keys()}
        for circle in cycles(both):
            if frozenset(circle) not in known:
                yield Anomaly(kind=Kind.G1C_WITH_WRITES, key="", found=_way(circle))

    def _write_edges(self) -> dict[int, set[int]]:
        edges: defaultdict[int, set[int]] = defaultdict(set)
        for key, offsets in self.values.items():
            order = [
                writer
                for offset in sorted(offsets)
                for value in sorted(offsets[offset])
                if (writer := self.writers.get((key, value))) in self.committed
            ]
            for before, after in pairwise(order):
                if before != after:
                    edges[before].add(after)
        return edges

    def _read_edges(self) -> dict[int, set[int]]:
        edges: defaultdict[int, set[int]] = defaultdict(set)
        for index, operation in enumerate(self.operations):
            if operation.outcome is Outcome.OK:
                for key, _, value in operation.seen():
                    writer = self.writers.get((key, value))
                    if writer is not None and writer != index:
                        edges[writer].add(index)
        return edges


def writers_of(operations: tuple[Operation, ...]) -> dict[tuple[str, int], int]:
    """The sender of each value. A value must be sent only once, or the result would be ambiguous."""
    writers: dict[tuple[str, int], int] = {}
    for index, operation in enumerate(operations):
        for send in operation.sends():
            if (send.key, send.value) in writers:
                raise HistoryError(f"{send.key}: {send.value} was sent twice: values must be unique")
            writers[send.key, send.value] = index
    return writers


def check_positions(events: tuple[Event, ...], log: Log) -> Iterator[Anomaly]:
    """Each process reads on from its position, between its polls and inside them, until its position is set."""
    positions: dict[tuple[int, str], int] = {}
    for event in events:
        if isinstance(event, Moved):
            for key in event.keys:
                positions.pop((event.process, key), None)
        elif isinstance(event, Operation):
            for op in event.ops:
                if isinstance(op, Poll):
                    yield from _check_poll(event.process, op, positions, log)


def _check_poll(process: int, poll: Poll, positions: dict[tuple[int, str], int], log: Log) -> Iterator[Anomaly]:
    for key, pairs in poll.seen.items():
        for offset, _ in pairs:
            before = positions.get((process, key))
            positions[process, key] = offset
            if before is None:
                continue
            if offset <= before:
                found = f"process {process} read offset {before}, then {offset}"
                yield Anomaly(kind=Kind.NONMONOTONIC_POLL, key=key, found=found)
            elif skipped := log.between(key, before, offset):
                found = f"process {process} read offset {before}, then {offset}, and not {_listed(skipped)}"
                yield Anomaly(kind=Kind.POLL_SKIP, key=key, found=found)


def check_bounds(events: tuple[Event, ...]) -> Iterator[Anomaly]:
    """Committed offsets and last stable offsets only grow, and the last stable offset reaches the end."""
    committed: dict[tuple[str, str], int] = {}
    stable: dict[str, int] = {}
    for event in events:
        if isinstance(event, CommittedOffset):
            before = committed.get((event.group, event.key), event.offset)
            if event.offset < before:
                found = f"group {event.group} had committed {before}, then {event.offset}"
                yield Anomaly(kind=Kind.COMMITTED_OFFSET_BACK, key=event.key, found=found)
            committed[event.group, event.key] = event.offset
        elif isinstance(event, LastStable):
            if event.offset < stable.get(event.key, event.offset):
                found = f"{stable[event.key]}, then {event.offset}"
                yield Anomaly(kind=Kind.LAST_STABLE_BACK, key=event.key, found=found)
            stable[event.key] = event.offset
        elif isinstance(event, PartitionEnd) and event.last_stable < event.end:
            found = f"{event.last_stable}, and the log ends at {event.end}"
            yield Anomaly(kind=Kind.LAST_STABLE_STUCK, key=event.key, found=found)


def check_replicas(events: tuple[Event, ...]) -> Iterator[Anomaly]:
    """Any two replicas hold the same below the lesser of their high watermarks."""
    first: dict[str, Replica] = {}
    for event in events:
        if not isinstance(event, Replica):
            continue
        other = first.setdefault(event.key, event)
        up_to = min(event.high_watermark, other.high_watermark)
        mine = {at: value for at, value in event.values if at < up_to}
        theirs = {at: value for at, value in other.values if at < up_to}
        differing = sorted(at for at in mine.keys() | theirs.keys() if mine.get(at) != theirs.get(at))
        if differing:
            found = f"brokers {other.broker} and {event.broker} at offsets {_listed(differing)}"
            yield Anomaly(kind=Kind.REPLICAS_DIFFER, key=event.key, found=found)


SHOWN_MAX = 8


def _circles(kind: Kind, edges: dict[int, set[int]]) -> Iterator[Anomaly]:
    for circle in cycles(edges):
        yield Anomaly(kind=kind, key="", found=_way(circle))


def _way(circle: list[int]) -> str:
    return "operations " + " -> ".join(str(index) for index in (*circle, circle[0]))


def _listed(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    shown = ", ".join(str(number) for number in listed[:SHOWN_MAX])
    return f"{shown} and {len(listed) - SHOWN_MAX} more" if len(listed) > SHOWN_MAX else shown
