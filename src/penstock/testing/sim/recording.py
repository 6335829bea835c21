"""What the clients of a simulation did and saw: a history for the checker, counts, and findings of the clients' own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.testing.histories import Event, Operation, Outcome, Poll, Send

if TYPE_CHECKING:
    from penstock.testing.sim.world import World


def key_of(topic: str, index: int) -> str:
    """How a history names a partition."""
    return f"{topic}/{index}"


class Recording:
    """One simulation's history. Everything in it comes from clients; it asks the brokers nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._events: list[Event] = []
        self._open: dict[int, OpenOperation] = {}
        self._processes: list[str] = []
        self._values = 0
        self._operations = 0
        self.operations: Counter[str] = Counter()
        """Operations that ended, by workload."""
        self.findings: list[tuple[str | None, str]] = []
        """What no client may see, in the order of finding, by the partition whose losses would excuse it."""
        self.acknowledged: dict[tuple[str, str], int] = {}
        """By group and partition: the highest offset whose commit was acknowledged."""
        self.polled: dict[tuple[str, str], set[int]] = {}
        """By group and partition: the offsets that its members have read."""
        self.topics: dict[str, bool | None] = {}
        """By name of a topic: whether it must be there at the end; None where either is right."""
        self.weak: dict[tuple[str, int], float] = {}
        """By partition and value: when a record was sent that its leader acknowledged alone."""
        self.unflushed: set[int] = set()
        """Values that a power cut or an election may take."""
        self.unflushed_doubtful: set[int] = set()
        """Those of them whose request got no response: it may arrive when later ones have."""
        self.sources: dict[int, tuple[str, int]] = {}
        """By value of a copied record: partition and offset of the original."""

    # Names that are used once

    def process(self, name: str) -> int:
        """A process of the history: one life of a client."""
        self._processes.append(name)
        return len(self._processes)

    def values(self, count: int) -> range:
        """Values that nothing else sends."""
        first = self._values + 1
        self._values += count
        return range(first, first + count)

    # What happens

    def begin(self, workload: str, process: int, ops: Sequence[Send | Poll]) -> OpenOperation:
        """Note what is about to be sent. An operation whose client never says how it ended has an unknown outcome."""
        self._operations += 1
        operation = OpenOperation(self, self._operations, workload, process, tuple(ops))
        self._open[operation.number] = operation
        return operation

    def ended(self, operation: OpenOperation, outcome: Outcome, ops: Iterable[Send | Poll]) -> None:
        del self._open[operation.number]
        self.operations[operation.workload] += 1
        done = Operation(process=operation.process, outcome=outcome, ops=tuple(ops))
        self._events.append(done)
        self.line(f"{self._named(operation.process)} {operation.workload} {outcome.value}: {shown(done)}")

    def polled_by(self, workload: str, process: int, seen: dict[str, tuple[tuple[int, int], ...]]) -> None:
        """Note what a poll brought."""
        self.operations[workload] += 1
        done = Operation(process=process, outcome=Outcome.OK, ops=(Poll(seen=seen),))
        self._events.append(done)
        self.line(f"{self._named(process)} {workload}: {shown(done)}")

    def add(self, event: Event) -> None:
        self._events.append(event)

    def commit_acknowledged(self, group: str, offsets: dict[str, int]) -> None:
        for key, offset in offsets.items():
            self.acknowledged[group, key] = max(offset, self.acknowledged.get((group, key), offset))

    def finding(self, text: str, *, key: str | None = "") -> None:
        """Note what no client may see, unless the partition `key` may have lost records.

        Without a partition those of groups and transactions would excuse it; with None, nothing does.
        """
        self.findings.append((key, text))
        self.line(f"FINDING: {text}")

    def _named(self, process: int) -> str:
        return f"{self._processes[process - 1]} (process {process})"

    def line(self, text: str) -> None:
        """Show something in a replay."""
        self._world.trace.line(text)

    # The end

    def history(self) -> tuple[Event, ...]:
        """Everything, with the operations that never ended."""
        unknown = (
            Operation(process=each.process, outcome=Outcome.UNKNOWN, ops=each.ops) for each in self._open.values()
        )
        return (*self._events, *unknown)


class OpenOperation:
    """An operation that has begun."""

    __slots__ = ("_recording", "number", "ops", "process", "workload")

    def __init__(
        self, recording: Recording, number: int, workload: str, process: int, ops: tuple[Send | Poll, ...]
    ) -> None:
        self._recording = recording
        self.number = number
        self.workload = workload
        self.process = process
        self.ops = ops

    def extend(self, ops: Iterable[Send | Poll]) -> None:
        """Add what the operation does next."""
        self.ops = (*self.ops, *ops)

    def end(self, outcome: Outcome, ops: Iterable[Send | Poll] | None = None) -> None:
        """Note the outcome, and the sends with their offsets where they are known."""
        self._recording.ended(self, outcome, self.ops if ops is None else ops)


SHOWN_MAX = 6


def shown(operation: Operation) -> str:
    """A short text for a replay."""
    parts = [f"send {op.value} to {op.key} at {op.offset}" for op in operation.ops if isinstance(op, Send)]
    for op in operation.ops:
        if isinstance(op, Poll):
            parts += [f"read {key} {pairs[0][0]} to {pairs[-1][0]}" for key, pairs in op.seen.items() if pairs]
    more = f" and {len(parts) - SHOWN_MAX} more" if len(parts) > SHOWN_MAX else ""
    return ", ".join(parts[:SHOWN_MAX]) + more
