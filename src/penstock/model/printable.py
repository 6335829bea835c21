"""Text from outside, made safe for a terminal: it is shown, and cannot steer what shows it."""

from collections.abc import Mapping
from typing import TextIO

BLANKS_KEPT = frozenset("\u00a0\u3000\u200c\u200d")
"""Spaces of other scripts and the joiners inside emoji: no terminal takes them for a command."""


def printable(text: str, *, keep: str = "") -> str:
    """The text with control characters, bidirectional overrides and lone surrogates as escapes such as \\x1b.

    Backslashes stay as they are: this is for a person to read, and JSON is there for what must be read back.
    """
    if text.isprintable():
        return text
    return "".join(mark if _harmless(mark) or mark in keep else _escape(mark) for mark in text)


def printable_json(document: str) -> str:
    """The same for a JSON document, which stays valid and means the same: only its strings hold such characters."""
    if document.isprintable():
        return document
    return "".join(mark if _harmless(mark) or mark == "\n" else _json_escape(mark) for mark in document)


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to write escape sequences of our own: a terminal, and a user who has not said NO_COLOR."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _harmless(mark: str) -> bool:
    return mark.isprintable() or mark in BLANKS_KEPT


def _escape(mark: str) -> str:
    code = ord(mark)
    if mark in _SHORT:
        return _SHORT[mark]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(mark: str) -> str:
    units = mark.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
