"""The parts of one record that a filter reads, taken from the record's bytes when they are asked for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.wire.primitives import Malformed
from penstock.wire.record_loops import read_headers

UNREAD = object()
"""In place of a document that nothing has asked for."""

_EMPTY: Any = array("q")


class Parts(Protocol):
    """What a filter reads of a record."""

    document: Any
    """The value as JSON, or `UNREAD`."""
    undecodable: bool
    partition: int

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    def key(self) -> str | None: ...
    def value(self) -> str | None: ...
    def value_bytes(self) -> bytes | None: ...
    def header(self, name: str) -> str | None: ...


class Row:
    """A cursor over the records of a batch, as `record_loops.Rows` found them.

    Moving it sets three attributes; whatever a filter does not read of a record costs nothing.
    """

    __slots__ = (
        "_ends",
        "_headers",
        "_headers_at",
        "_headers_count",
        "_key_at",
        "_key_size",
        "_offsets",
        "_times",
        "_value_at",
        "_value_size",
        "append_time",
        "at",
        "base_offset",
        "base_time",
        "data",
        "document",
        "partition",
        "undecodable",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.data = b""
        self.base_offset = self.base_time = 0
        self.append_time: int | None = None
        self.at = 0
        self.document: Any = UNREAD
        """The record's value as JSON, once a path in it was read."""
        self.undecodable = False
        """Whether a part of this record that was read is not what it has to be: UTF-8, or JSON."""
        self._headers: list[tuple[str, bytes | None]] | None = None
        self.place((_EMPTY,) * 10)

    def begin(self, data: bytes, base_offset: int, base_time: int, append_time: int | None) -> None:
        """Read records of another batch from here on; `append_time` is the time of all of them, if there is one."""
        self.data = data
        self.base_offset = base_offset
        self.base_time = base_time
        self.append_time = append_time

    def place(self, columns: Sequence[array[int]]) -> None:
        """Read records at these places."""
        (
            _,
            self._ends,
            self._times,
            self._offsets,
            self._key_at,
            self._key_size,
            self._value_at,
            self._value_size,
            self._headers_at,
            self._headers_count,
        ) = columns

    def move(self, at: int) -> None:
        """Read the record of this number."""
        self.at = at
        self.document = UNREAD
        self.undecodable = False
        self._headers = None

    @property
    def offset(self) -> int:
        return self.base_offset + self._offsets[self.at]

    @property
    def timestamp(self) -> int:
        return self.base_time + self._times[self.at] if self.append_time is None else self.append_time

    def value_bytes(self) -> bytes | None:
        at = self.at
        size = self._value_size[at]
        if size < 0:
            return None
        start = self._value_at[at]
        return self.data[start : start + size]

    def key(self) -> str | None:
        """The key as text; None where there is none, or it is not UTF-8."""
        at = self.at
        size = self._key_size[at]
        if size < 0:
            return None
        start = self._key_at[at]
        return self._text(self.data[start : start + size])

    def value(self) -> str | None:
        """The value as text."""
        found = self.value_bytes()
        return None if found is None else self._text(found)

    def header(self, name: str) -> str | None:
        """The value of the last header of a name, as text."""
        if self._headers is None:
            self._headers = self._read_headers()
        for found, value in reversed(self._headers):
            if found == name:
                return None if value is None else self._text(value)
        return None

    def _read_headers(self) -> list[tuple[str, bytes | None]]:
        at = self.at
        if not self._headers_count[at]:
            return []
        try:
            return read_headers(self.data, self._headers_at[at], self._ends[at])
        except (UnicodeDecodeError, Malformed):
            self.undecodable = True
            return []

    def _text(self, data: bytes) -> str | None:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.undecodable = True
            return None
