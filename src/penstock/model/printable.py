"""Escapes untrusted text for a terminal, so that it cannot contain control sequences."""

from collections.abc import Mapping
from typing import TextIO

BLANKS_KEPT = frozenset("\u00a0\u3000\u200c\u200d")
"""Spaces of other scripts and the joiners inside emoji, which are harmless in a terminal."""


def printable(text: str, *, keep: str = "") -> str:
    """The text with control characters, bidirectional overrides and lone surrogates as escapes such as \\x1b.

    Backslashes are not escaped: this is for people; programs read JSON.
    """
    if text.isprintable():
        return text
    return "".join(mark if _harmless(mark) or mark in keep else _escape(mark) for mark in text)


def printable_json(document: str) -> str:
    """The same for a JSON document, which keeps its meaning: only its strings contain such characters."""
    if document.isprintable():
        return document
    return "".join(mark if _harmless(mark) or mark == "\n" else _json_escape(mark) for mark in document)


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to write colours: the stream is a terminal, and NO_COLOR is not set."""
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
