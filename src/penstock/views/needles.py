"""Bytes that a record must have to match a filter, so that most batches are passed over with one search each.

Of `headers['type'] = 'refund'`, every match has the bytes of `refund`. So has every JSON value with a member equal
to it, unless the JSON has escapes. Nothing is concluded from batches with a backslash for needles in JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.views.form import Node

ALTERNATIVES_MAX = 16
"""Needles of which one is needed: with more, the searches cost more than the evaluation."""

ESCAPE = b"\\"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needles:
    """At least one of these is in the bytes of every record that matches."""

    any_of: tuple[bytes, ...]
    in_json: bool
    """Whether one of them is looked for in JSON, where an escape may hide it."""

    @property
    def selectivity(self) -> tuple[int, int]:
        """Greater for needles that are expected in fewer records: few alternatives, and long ones."""
        return -len(self.any_of), min(map(len, self.any_of))

    def next_in(self, data: bytes, start: int, end: int) -> int:
        """Where the first of them is between two places, or -1. Escapes are the caller's affair."""
        first = -1
        for needle in self.any_of:
            found = data.find(needle, start, end)
            if found >= 0:
                first = found
                end = min(end, found + len(needle))
        return first


def needles_of(node: Node) -> Needles | None:
    """What every match of a condition has; None where nothing is known."""
    match node:
        case ["and", *parts]:
            known = [found for part in parts if (found := needles_of(part)) is not None]
            return max(known, key=lambda each: each.selectivity, default=None)
        case ["or", *parts]:
            each = [needles_of(part) for part in parts]
            return joined([found for found in each if found is not None]) if None not in each else None
        case ["=" | "same", field, ["literal", str(text)]] | ["=" | "same", ["literal", str(text)], field]:
            return of_field(field, [text])
        case ["in", field, values] if all(isinstance(value, str) for value in values):
            return of_field(field, values)
        case ["like", field, pattern, escape, False]:
            texts = [piece for piece in literal_pieces(pattern, escape) if piece]
            return of_field(field, [max(texts, key=len)]) if texts else None
        case ["call", ("contains" | "starts_with" | "ends_with"), field, ["literal", str(text)]]:
            return of_field(field, [text])
        case _:
            return None


def of_field(field: Node, texts: list[str]) -> Needles | None:
    """The needles of a part of a record that has to contain one of some texts; none for an expression on parts."""
    if field[0] not in ("key", "value", "header", "path") or len(texts) > ALTERNATIVES_MAX or not all(texts):
        return None
    try:
        return Needles(any_of=tuple(text.encode() for text in texts), in_json=field[0] == "path")
    except UnicodeEncodeError:
        # Half a surrogate pair, which no UTF-8 has.
        return None


def joined(alternatives: list[Needles]) -> Needles | None:
    every = tuple(dict.fromkeys(needle for one in alternatives for needle in one.any_of))
    if len(every) > ALTERNATIVES_MAX:
        return None
    return Needles(any_of=every, in_json=any(one.in_json for one in alternatives))


def literal_pieces(pattern: str, escape: str | None) -> list[str]:
    """The texts between the wildcards of a pattern of LIKE."""
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            pieces[-1] += next(characters, "")
        elif character in "%_":
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces
