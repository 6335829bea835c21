"""Dead letters of share groups: where each is from, how it goes back, and which have gone back."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.client.records import Header, Record

PREFIX = "__dlq.errors."
MESSAGE_ID = "penstock-msg-id"
REDRIVEN = "penstock-redriven"
"""Header of a record that came back from the dead letters: how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic, and what its headers say."""

    record: Record
    topic: str
    partition: int
    offset: int
    group: str
    deliveries: int
    reason: str
    redriven: int
    """How often it came back before."""

    @classmethod
    def of(cls, record: Record) -> DeadLetter | None:
        """None for a record that no share group has put there."""
        headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        topic = headers.get(f"{PREFIX}topic", "")
        if not topic:
            return None
        return cls(
            record=record,
            topic=topic,
            partition=number(headers.get(f"{PREFIX}partition")),
            offset=number(headers.get(f"{PREFIX}offset")),
            group=headers.get(f"{PREFIX}group", ""),
            deliveries=number(headers.get(f"{PREFIX}delivery.count")),
            reason=headers.get(f"{PREFIX}message", ""),
            redriven=max(number(headers.get(REDRIVEN)), 0),
        )

    @property
    def has_copy(self) -> bool:
        """Whether there is something to send back: a letter without key and value says only where its record is."""
        return self.record.key is not None or self.record.value is not None

    def headers_back(self) -> tuple[Header, ...]:
        """The headers with which it goes back: its own, and how often it did.

        Its message id gets a suffix: with the same id, a topic with `dedupe.window.records` would remove it as a
        repetition of the record that died.
        """
        times = b"%d" % (self.redriven + 1)
        own = tuple(
            (name, value + b"/redriven-" + times if name == MESSAGE_ID and value is not None else value)
            for name, value in self.record.headers
            if not name.startswith(PREFIX) and name != REDRIVEN
        )
        return (*own, (REDRIVEN, times))


NOTE_BYTES_MAX = 4_000
"""Below what brokers keep beside a committed offset by default (offset.metadata.max.bytes)."""


class Redriven:
    """Which letters of a partition need no look any more: all below a position, and some ranges above it.

    The position is committed as the offset of a group, and the ranges as the text beside it. Without conditions there
    are no ranges; one that picks single letters leaves others between them. Letters are passed in their order.
    """

    __slots__ = ("_earlier", "_later", "_leaves", "_seen", "position")

    def __init__(self, position: int, note: str = "") -> None:
        self.position = position
        self._earlier = [] if not note else ranges_of(note)
        """What earlier runs did above the position."""
        self._later: list[tuple[int, int]] = []
        """What this run found or did above the position."""
        self._seen = position - 1
        """The last offset that was passed."""
        self._leaves = False
        """Whether the last one that was passed is left for another run."""

    def has(self, offset: int) -> bool:
        """Whether a letter was dealt with before this run."""
        return offset < self.position or any(first <= offset <= last for first, last in self._earlier)

    def done(self, offset: int) -> None:
        """A letter needs no look any more."""
        self._seen = offset
        if not self._later and not self._leaves:
            self.position = offset + 1
        elif self._later and not self._leaves:
            self._later[-1] = self._later[-1][0], offset
        else:
            self._later.append((offset, offset))
            self._leaves = False

    def leave(self, offset: int) -> None:
        """A letter is left for another run."""
        self._seen = offset
        self._leaves = True

    @property
    def note(self) -> str:
        """The ranges above the position, to be committed beside it."""
        rest = [(max(first, self._seen + 1), last) for first, last in self._earlier if last > self._seen]
        return ",".join(f"{first}-{last}" for first, last in (*self._later, *rest))

    @property
    def is_full(self) -> bool:
        """Whether another range may not fit beside the committed offset."""
        return len(self.note) >= NOTE_BYTES_MAX


def ranges_of(note: str) -> list[tuple[int, int]]:
    """The ranges in a note; none in a text that is no note, which another program may have committed."""
    found: list[tuple[int, int]] = []
    for text in note.split(","):
        first, last = (number(part) for part in (*text.split("-", 1), "")[:2])
        if first < 0 or last < first:
            return []
        found.append((first, last))
    return found


def number(text: str | None) -> int:
    """A number in a header; -1 for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else -1
