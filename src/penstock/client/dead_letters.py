"""Dead letters of share groups: where each is from, and how it goes back."""

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


def number(text: str | None) -> int:
    """A number in a header; -1 for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else -1
