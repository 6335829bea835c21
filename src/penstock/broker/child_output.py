"""The log of several brokers as one: each line says which broker wrote it."""

from __future__ import annotations

import io
import os
from typing import TextIO, cast

from penstock.model.printable import wants_colour

LINE_BYTES_MAX = 64 * 1024
"""Of a child's output; longer lines are cut."""

COLOURS = (36, 35, 33, 32, 34, 31)
SUPERVISOR = "supervisor"


class Lines:
    """Cuts output into lines."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def last(self) -> list[bytes]:
        """What came without an end of line."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class OneLog(io.TextIOBase):
    """Writes the lines of all brokers, and as a stream those of the supervisor itself.

    Text for people has a prefix; a line of JSON has the broker as its first field, so that it is still JSON.
    """

    def __init__(self, out: TextIO | io.TextIOBase, broker_ids: list[int], *, text: bool) -> None:
        self._out = out
        self._text = text
        names = {broker_id: f"broker {broker_id}" for broker_id in broker_ids}
        width = max(map(len, (SUPERVISOR, *names.values())))
        colours = wants_colour(cast("TextIO", out), os.environ)
        self._own = f"{SUPERVISOR:{width}} | "
        self._prefixes = {
            broker_id: _painted(f"{name:{width}} | ", COLOURS[number % len(COLOURS)] if colours else None)
            for number, (broker_id, name) in enumerate(names.items())
        }

    def isatty(self) -> bool:
        return self._out.isatty()

    def write(self, text: str, /) -> int:
        self._out.write(f"{self._own}{text}" if self._text and text.strip() else text)
        return len(text)

    def write_line(self, broker_id: int, line: str) -> None:
        """A line of a broker."""
        if not self._text and line.startswith('{"'):
            self._out.write(f'{{"broker": {broker_id}, {line[1:]}\n')
        else:
            self._out.write(f"{self._prefixes[broker_id]}{line}\n")


def _painted(text: str, colour: int | None) -> str:
    return text if colour is None else f"\x1b[{colour}m{text}\x1b[0m"
