"""How a record is printed: kcat's format strings, JSON objects, or columns."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import typer

from penstock.client.records import Header, Record
from penstock.model.printable import printable, printable_json

Render = Callable[[Record], bytes]

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
TWO_DIGITS = re.compile("[0-9A-Fa-f]{2}")
COLUMN_CHARACTERS_MAX = 100
TOPIC_WIDTH = 20


def _text(data: bytes | None) -> bytes:
    return b"" if data is None else data


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


FIELDS: dict[str, Render] = {
    "v": lambda record: _text(record.value),
    "s": lambda record: _text(record.value),
    "S": lambda record: _length(record.value),
    "R": lambda record: (-1 if record.value is None else len(record.value)).to_bytes(4, "big", signed=True),
    "k": lambda record: _text(record.key),
    "K": lambda record: _length(record.key),
    "h": _headers,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: str(record.partition).encode(),
    "o": lambda record: str(record.offset).encode(),
    "T": lambda record: str(record.timestamp_ms).encode(),
    "D": lambda record: when(record.timestamp_ms).encode(),
    "%": lambda record: b"%",
}

FIELDS_HELP = (
    "%v or %s value, %S its length (-1 for null), %R that as 4 bytes, %k key, %K its length, %h headers, %t topic, "
    "%p partition, %o offset, %T timestamp in ms, %D as a date, %% a percent sign; \\n \\t \\r \\0 \\\\ \\xHH"
)


def compile_format(text: str, *, terminal: bool = False) -> Render:
    """A function that prints a record in the given format; unknown fields are refused.

    For a terminal, control characters and bytes that are not text are escaped in the fields, since records are
    untrusted. The text of the format itself is the user's own and stays, colours included.
    """
    parts: list[bytes | Render] = []
    at = 0
    while at < len(text):
        mark = text[at]
        if mark == "%":
            field = _field(text[at + 1 : at + 2])
            parts.append(_for_terminal(field) if terminal else field)
            at += 2
        elif mark == "\\":
            escaped, length = _escape(text[at + 1 :])
            parts.append(escaped)
            at += 1 + length
        else:
            parts.append(os.fsencode(mark))
            at += 1
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def _for_terminal(field: Render) -> Render:
    return lambda record: terminal_text(field(record)).encode()


def terminal_text(data: bytes, *, keep: str = "\n\t") -> str:
    """Bytes of a record for a terminal: lines stay lines, control characters are escaped."""
    return printable(data.decode(errors="backslashreplace"), keep=keep)


def _field(letter: str) -> Render:
    found = FIELDS.get(letter)
    if found is None:
        raise typer.BadParameter(f"%{letter} is not a field: {FIELDS_HELP}", param_hint="--format")
    return found


def _escape(rest: str) -> tuple[bytes, int]:
    """The bytes of an escape after a backslash, and its length in characters."""
    if rest[:1] == "x":
        if not TWO_DIGITS.fullmatch(rest[1:3]):
            raise typer.BadParameter(f"\\x{rest[1:3]} is not \\x and two hexadecimal digits", param_hint="--format")
        return bytes.fromhex(rest[1:3]), 3
    if rest[:1] in ESCAPES and rest:
        return ESCAPES[rest[0]], 1
    raise typer.BadParameter(f"\\{rest[:1]} is not an escape: {FIELDS_HELP}", param_hint="--format")


def json_line(record: Record) -> bytes:
    """One JSON object. Bytes that are not UTF-8 are in base64 under a name with that suffix."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "log_append_time" if record.timestamp_set_by_broker else "create_time",
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"name": name, **json_bytes("value", value)} for name, value in record.headers],
    }
    return printable_json(json.dumps(fields, ensure_ascii=False)).encode() + b"\n"


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def from_json_bytes(name: str, fields: dict[str, Any]) -> bytes | None:
    """The inverse of `json_bytes`: text, base64 or null. Raises ValueError for anything else."""
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = fields.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def headers_from_json(listed: object) -> tuple[Header, ...]:
    if not isinstance(listed, list):
        raise ValueError("headers is not a list")
    found: list[Header] = []
    for each in cast("list[object]", listed):
        fields = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        if not isinstance(fields.get("name"), str):
            raise ValueError("a header is not an object with a name")
        # librdkafka's binding crashes on a name without an encoding.
        fields["name"].encode()
        found.append((fields["name"], from_json_bytes("value", fields)))
    return tuple(found)


def table_line(*, with_topic: bool = False) -> Render:
    """One line of fixed columns: topic (of several), partition, offset, time, key, value; long values are cut."""

    def render(record: Record) -> bytes:
        topic = f"{record.topic:<{TOPIC_WIDTH}}  " if with_topic else ""
        return (
            f"{topic}{record.partition:>5} {record.offset:>12}  {when(record.timestamp_ms):<23}  "
            f"{_column(record.key):<20}  {_column(record.value)}\n"
        ).encode()

    return render


def table_heading(*, with_topic: bool = False) -> bytes:
    topic = f"{'topic':<{TOPIC_WIDTH}}  " if with_topic else ""
    return f"{topic}{'part':>5} {'offset':>12}  {'time':<23}  {'key':<20}  value\n".encode()


def _column(data: bytes | None) -> str:
    if data is None:
        return "(null)"
    shown = terminal_text(data[: COLUMN_CHARACTERS_MAX * 4], keep="")
    return shown if len(shown) <= COLUMN_CHARACTERS_MAX else shown[: COLUMN_CHARACTERS_MAX - 1] + "…"


def when(timestamp_ms: int) -> str:
    """A timestamp for people, in UTC; a dash for none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"
