"""Parses positions in a topic on the command line: `beginning`, `42`, `-10`, `@-1h`, `@2026-11-01T08:00:end`."""

from __future__ import annotations

import re
from datetime import datetime

import typer

from penstock.client.positions import At, AtTime, BeforeEnd, Beginning, End, Position, PositionRange

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
AGO = re.compile(r"-([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|w)")
WHOLE = re.compile(r"-?[0-9]{1,19}")
EPOCH_MS = re.compile(r"[0-9]{1,19}")

POSITION_EXPLAINED = (
    "a position is beginning, end, an offset N, -N before the end, @-1h (ms, s, m, h, d, w), @MILLISECONDS "
    "or @2026-11-01T08:00 (local time without a zone)"
)
EXPLAINED = f"{POSITION_EXPLAINED}; A:B reads from A up to B"


class OffsetsParser:
    """Parses positions; "ago" is relative to `now_ms`."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def parse(self, text: str, *, option: str = "--offsets") -> PositionRange:
        """`A` or `A:B`, either side of the colon may be empty.

        A time of day has colons too: a text that is a single position is one, otherwise the longest left side wins.
        """
        found = self._range(text)
        if found is None:
            raise typer.BadParameter(f"{text!r} is not a position: {EXPLAINED}", param_hint=option)
        return found

    def position(self, text: str, *, option: str) -> Position:
        """One position, where a range has no meaning."""
        place = self._position(text)
        if place is not None:
            return place
        what = "one position" if self._range(text) is None else "one position, but a range"
        raise typer.BadParameter(f"{text!r} is not {what}: {POSITION_EXPLAINED}", param_hint=option)

    def _range(self, text: str) -> PositionRange | None:
        whole = self._position(text)
        if whole is not None:
            return PositionRange(start=whole)
        for cut in (index for index in reversed(range(len(text))) if text[index] == ":"):
            left, right = text[:cut], text[cut + 1 :]
            start = Beginning() if not left else self._position(left)
            stop = self._position(right) if right else None
            if start is not None and (stop is not None or not right):
                return PositionRange(start=start, stop=stop)
        return None

    def _position(self, text: str) -> Position | None:
        if text in ("beginning", "earliest", "start"):
            return Beginning()
        if text in ("end", "latest"):
            return End()
        if WHOLE.fullmatch(text):
            return BeforeEnd(int(text[1:])) if text.startswith("-") else At(int(text))
        if text.startswith("@"):
            timestamp_ms = self._time(text[1:])
            return None if timestamp_ms is None else AtTime(timestamp_ms)
        return None

    def _time(self, text: str) -> int | None:
        """Milliseconds since the epoch, never negative, which the protocol reads as something else."""
        ago = AGO.fullmatch(text)
        if ago is not None:
            return max(0, self._now_ms - int(float(ago[1]) * UNIT_MS[ago[2]]))
        if EPOCH_MS.fullmatch(text):
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        try:
            # Without a zone it is the user's local time.
            return max(0, int(moment.timestamp() * 1000))
        except (OverflowError, ValueError, OSError):
            return None
