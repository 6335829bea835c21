"""A filter for records that a client has, one at a time: what a view would pass, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from penstock.views.conditions import FAILURES, Compiler, each_node
from penstock.views.form import Node
from penstock.views.language import parse
from penstock.views.paths import Documents
from penstock.views.rows import UNREAD


class Verdict(Enum):
    """What a filter is for a record."""

    TRUE = "true"
    FALSE = "false"
    NULL = "null"
    UNDEFINED = "undefined"
    """An operation is not defined for the types of its values."""


class SingleRecord:
    """A record as a client has it."""

    __slots__ = ("_headers", "_key", "_value", "document", "offset", "partition", "timestamp", "undecodable")

    def __init__(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = -1,
        partition: int = 0,
        offset: int = 0,
    ) -> None:
        self._key = key
        self._value = value
        self._headers = headers
        self.timestamp = timestamp_ms
        self.partition = partition
        self.offset = offset
        self.document: Any = UNREAD
        self.undecodable = False

    def key(self) -> str | None:
        return self._text(self._key)

    def value(self) -> str | None:
        return self._text(self._value)

    def value_bytes(self) -> bytes | None:
        return self._value

    def header(self, name: str) -> str | None:
        return next((self._text(value) for found, value in reversed(self._headers) if found == name), None)

    def _text(self, data: bytes | None) -> str | None:
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            self.undecodable = True
            return None


class Filter:
    """A filter of a text; raises `FilterError` for one that is not in the language."""

    def __init__(self, text: str) -> None:
        self.where: Node = parse(text)
        paths = [node[1] for node in each_node(self.where) if node[0] == "path"]
        self._value = Compiler(Documents(paths)).value(self.where)

    def verdict(self, record: SingleRecord) -> Verdict:
        try:
            found = self._value(record)
        except FAILURES:
            return Verdict.UNDEFINED
        if found is None:
            return Verdict.NULL
        return Verdict.TRUE if found is True else Verdict.FALSE

    def passes(self, record: SingleRecord) -> bool:
        """Whether a view of this filter has the record."""
        return self.verdict(record) is Verdict.TRUE
