"""Structured logs: one event with fields per line, JSON for machines or colour for a person at a terminal.

The standard library's loggers (asyncio's, and those of the libraries we use) come out the same way.
structlog is imported when logging is configured or a logger is created, not with this module.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from penstock.model.printable import printable, wants_colour

if TYPE_CHECKING:
    from structlog.typing import Processor

LEVELS = ("debug", "info", "warning", "error")
LEVEL_NUMBERS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""The levels by their names in Kafka's tools."""
ROOT = "root"
PARTS = (
    "admin",
    "asyncio",
    "broker",
    "controller",
    "deletions",
    "groups",
    "internal_topics",
    "log",
    "maintenance",
    "membership",
    "metadata",
    "moving",
    "observe",
    "replication",
    "runtime",
    "schedules",
    "shares",
    "storage",
    "supervisor",
    "transactions",
    "zookeeper",
)
"""The loggers, by the `part` field of their lines."""
METHOD_NUMBERS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}
FIELD_CHARACTERS_MAX = 4_096
"""Longer values are truncated: a client must not be able to fill the disk with the text of a request."""


class LogFormat(StrEnum):
    """The format of log lines. AUTO is TEXT on a terminal and JSON elsewhere."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class Levels:
    """The log levels: one for all parts, and overrides for single parts. They may change at any time."""

    def __init__(self, level: str = "info") -> None:
        if level not in LEVELS:
            raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
        self._root = METHOD_NUMBERS[level]
        # At INFO asyncio only logs which selector it uses.
        self._own = {"asyncio": max(self._root, METHOD_NUMBERS["warning"])}

    def number(self, part: str) -> int:
        return self._own.get(part, self._root)

    def names(self) -> dict[str, str]:
        """The level of every logger, by the names that Kafka's tools use."""
        names = {number: name for name, number in LEVEL_NUMBERS.items()}
        return {ROOT: names[self._root]} | {part: names[self.number(part)] for part in PARTS}

    def set(self, logger_name: str, level: str) -> None:
        if logger_name == ROOT:
            self._root = LEVEL_NUMBERS[level]
        else:
            self._own[logger_name] = LEVEL_NUMBERS[level]

    def unset(self, part: str) -> None:
        """Remove the override of a part."""
        self._own.pop(part, None)

    def drop_lower(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Drop events below the level; the first processor."""
        import structlog

        if METHOD_NUMBERS.get(method, 0) < self.number(event.get("part", ROOT)):
            raise structlog.DropEvent
        return event

    def passes(self, record: logging.LogRecord) -> bool:
        """The same for a record of the standard library, whose part is the first component of the logger's name."""
        return record.levelno >= self.number(record.name.partition(".")[0])


def _structlog() -> Any:
    """structlog, without the tracebacks of rich, which it imports where it can: 5 MB that no line of ours uses."""
    if not {"structlog", "rich"} & sys.modules.keys():
        sys.modules["rich"] = None  # type: ignore[assignment]
        try:
            import structlog
        finally:
            del sys.modules["rich"]
    import structlog

    return structlog


class Logger(Protocol):
    """A structured logger: the event's name in snake_case, and its fields."""

    def debug(self, event: str, /, **fields: Any) -> Any: ...
    def info(self, event: str, /, **fields: Any) -> Any: ...
    def warning(self, event: str, /, **fields: Any) -> Any: ...
    def error(self, event: str, /, **fields: Any) -> Any: ...
    def exception(self, event: str, /, **fields: Any) -> Any: ...
    def bind(self, **fields: Any) -> Logger: ...


def logger(part: str, **fields: Any) -> Logger:
    """A logger whose lines carry the name of their part. It follows `configure` even if made before it."""
    structlog = _structlog()
    return cast("Logger", structlog.get_logger(part=part, **fields))


def configure(
    *, level: str = "info", log_format: LogFormat = LogFormat.AUTO, stream: TextIO | io.TextIOBase | None = None
) -> Levels:
    """Set up both structlog and the standard library's logging for this process; call it once, at start.

    The returned `Levels` change the levels at run time.
    """
    structlog = _structlog()
    out = sys.stderr if stream is None else cast("TextIO", stream)
    levels = Levels(level)
    text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and out.isatty())
    shared = _shared_processors(text)
    last = _renderer(text, out)
    structlog.configure(
        processors=[levels.drop_lower, *shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.addFilter(levels.passes)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_name_of_record, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    return levels


def _shared_processors(text: bool) -> list[Processor]:
    import structlog

    clock = structlog.processors.TimeStamper(
        fmt="%H:%M:%S.%f" if text else "iso", utc=not text, key="timestamp" if text else "time"
    )
    return [structlog.processors.add_log_level, clock, _bounded]


def _renderer(text: bool, out: TextIO) -> list[Processor]:
    import structlog

    if text:
        colours = wants_colour(out, os.environ)
        return [_printable, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=_plain)]


def _bounded(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Truncate long text."""
    for name, value in event.items():
        if isinstance(value, str) and len(value) > FIELD_CHARACTERS_MAX:
            event[name] = f"{value[:FIELD_CHARACTERS_MAX]}... ({len(value)} characters)"
    return event


def _printable(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in names that clients choose; JSON escapes them anyway."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
    return event


def _traceback(out: TextIO, exc_info: Any) -> None:
    import structlog

    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(printable(text.getvalue(), keep="\n\t"))


def _name_of_record(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The name of a standard library logger, under the same field as ours."""
    record: logging.LogRecord | None = event.get("_record")
    if record is not None:
        event["part"] = record.name
    return event


def _plain(value: object) -> object:
    """A JSON form for other types: sets become sorted lists, everything else a string."""
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in cast("set[object]", value))
    return str(value)
