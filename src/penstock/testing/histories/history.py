"""The events of a history, and their lines in a file.

Each line is a JSON object. An operation, written when it has ended:

    {"process": 3, "outcome": "ok", "ops": [["send", "t/0", 17, 204], ["poll", {"t/1": [[7, 12], [8, 14]]}]]}

`process` runs one operation at a time; `outcome` is `ok`, `fail` (it certainly has no effect: refused or aborted) or
`unknown`. A send has its key (a partition), its value and the offset it was acknowledged at, or null; a poll has pairs
of offset and value by key, in the order in which they arrived. A single send or poll is an operation too.

The other lines are observations:

    {"process": 3, "moved": ["t/0"]}                            its position was set: assignment, rebalance, seek
    {"group": "g", "key": "t/0", "committed": 8}                an offset that a group had committed
    {"key": "t/0", "last_stable": 8}                            a last stable offset, in the order of looking
    {"key": "t/0", "end": 9, "last_stable": 9}                  both bounds after everything has come to rest
    {"replica": 2, "key": "t/0", "high_watermark": 9, "values": [[0, 4], [1, 5]]}     what one replica holds
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

LINE_BYTES_MAX = 64 * 1024 * 1024
"""The longest line of a history."""


class HistoryError(Exception):
    """A line that is not part of a history."""


class Outcome(StrEnum):
    """The outcome of an operation as its process saw it."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One value for a key, and the offset at which it was acknowledged."""

    key: str
    value: int
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The records of each key, in the order in which they arrived."""

    seen: dict[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Sends and polls that have one outcome together."""

    process: int
    outcome: Outcome
    ops: tuple[Send | Poll, ...]

    def sends(self) -> Iterator[Send]:
        return (op for op in self.ops if isinstance(op, Send))

    def seen(self) -> Iterator[tuple[str, int, int]]:
        """Every key, offset and value that its polls saw."""
        for op in self.ops:
            if isinstance(op, Poll):
                for key, pairs in op.seen.items():
                    for offset, value in pairs:
                        yield key, offset, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A process's position in these keys was set, so that the next poll may begin anywhere."""

    process: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset of a group, as observed."""

    group: str
    key: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStable:
    """The last stable offset, as observed."""

    key: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnd:
    """Both bounds of a partition after all work has ended."""

    key: str
    end: int
    last_stable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The values of one replica, and its high watermark."""

    broker: int
    key: str
    high_watermark: int
    values: tuple[tuple[int, int], ...]


Event = Operation | Moved | CommittedOffset | LastStable | PartitionEnd | Replica


def to_line(event: Event) -> str:
    """One line, without its end."""
    return json.dumps(_as_json(event), separators=(",", ":"))


def _as_json(event: Event) -> dict[str, Any]:
    match event:
        case Operation():
            return {"process": event.process, "outcome": event.outcome.value, "ops": [_op_json(op) for op in event.ops]}
        case Moved():
            return {"process": event.process, "moved": event.keys}
        case CommittedOffset():
            return {"group": event.group, "key": event.key, "committed": event.offset}
        case LastStable():
            return {"key": event.key, "last_stable": event.offset}
        case PartitionEnd():
            return {"key": event.key, "end": event.end, "last_stable": event.last_stable}
        case Replica():
            return {
                "replica": event.broker,
                "key": event.key,
                "high_watermark": event.high_watermark,
                "values": event.values,
            }
    assert_never(event)


def _op_json(op: Send | Poll) -> list[Any]:
    if isinstance(op, Send):
        return ["send", op.key, op.value, op.offset]
    return ["poll", op.seen]


def load(path: Path) -> Iterator[Event]:
    """The events of a file, one by one."""
    with path.open(encoding="utf-8") as lines:
        yield from parse(lines)


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Events from lines; empty lines are skipped, an invalid line is an error with its number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(line) > LINE_BYTES_MAX:
            raise HistoryError(f"line {number}: {len(line)} bytes")
        try:
            yield _event(json.loads(line))
        except (ValueError, TypeError, AttributeError) as error:
            raise HistoryError(f"line {number}: {error!r}: {line.strip()[:120]}") from None


def _event(line: Any) -> Event:
    match line:
        case {"process": process, "outcome": outcome, "ops": ops}:
            return Operation(process=_number(process), outcome=Outcome(outcome), ops=tuple(_op(op) for op in ops))
        case {"process": process, "moved": keys}:
            return Moved(process=_number(process), keys=tuple(_text(key) for key in keys))
        case {"group": group, "key": key, "committed": offset}:
            return CommittedOffset(group=_text(group), key=_text(key), offset=_number(offset))
        case {"replica": broker, "key": key, "high_watermark": mark, "values": values}:
            held = _pairs(values)
            return Replica(broker=_number(broker), key=_text(key), high_watermark=_number(mark), values=held)
        case {"key": key, "end": end, "last_stable": stable}:
            return PartitionEnd(key=_text(key), end=_number(end), last_stable=_number(stable))
        case {"key": key, "last_stable": stable}:
            return LastStable(key=_text(key), offset=_number(stable))
        case _:
            raise ValueError("no kind of event has these fields")


def _op(op: Any) -> Send | Poll:
    match op:
        case ["send", key, value, offset]:
            return Send(key=_text(key), value=_number(value), offset=None if offset is None else _number(offset))
        case ["poll", seen]:
            return Poll(seen={_text(key): _pairs(pairs) for key, pairs in seen.items()})
        case _:
            raise ValueError(f"{op!r} is neither a send nor a poll")


def _pairs(pairs: Any) -> tuple[tuple[int, int], ...]:
    return tuple((_number(offset), _number(value)) for offset, value in pairs)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not a text")
    return value
