"""Structured logs: one event with fields per line, JSON for machines or colour for a person at a terminal.

The standard library's loggers (asyncio's, and those of the libraries we use) come out the same way.
structlog is imported when logging is set up or a logger is asked for, not with this module.
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
FIELD_CHARACTERS_MAX = 4_096
"""A longer value is cut: a client must not be able to fill the disk with one request's text."""


class LogStyle(StrEnum):
    """Who reads it. AUTO is CONSOLE on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class Logger(Protocol):
    """What the code logs through: the event's name in snake_case, and its facts as fields."""

    def debug(self, event: str, /, **fields: Any) -> Any: ...
    def info(self, event: str, /, **fields: Any) -> Any: ...
    def warning(self, event: str, /, **fields: Any) -> Any: ...
    def error(self, event: str, /, **fields: Any) -> Any: ...
    def exception(self, event: str, /, **fields: Any) -> Any: ...
    def bind(self, **fields: Any) -> Logger: ...


def logger(part: str, **fields: Any) -> Logger:
    """A logger whose lines carry the name of their part. It follows `configure` even if made before it."""
    import structlog

    return cast("Logger", structlog.get_logger(part=part, **fields))


def configure(*, level: str = "info", style: LogStyle = LogStyle.AUTO, stream: TextIO | None = None) -> None:
    """Set up both structlog and the standard library's logging for this process; call it once, at start."""
    import structlog

    out = sys.stderr if stream is None else stream
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    number = logging.getLevelNamesMapping()[level.upper()]
    colour = style is LogStyle.CONSOLE or (style is LogStyle.AUTO and out.isatty())
    shared = _shared_processors(colour)
    last = _renderer(colour, out)
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_name_of_record, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # It says at INFO which selector it uses; nobody asked.
    logging.getLogger("asyncio").setLevel(max(number, logging.WARNING))


def _shared_processors(colour: bool) -> list[Processor]:
    import structlog

    clock = structlog.processors.TimeStamper(
        fmt="%H:%M:%S.%f" if colour else "iso", utc=not colour, key="timestamp" if colour else "time"
    )
    return [structlog.processors.add_log_level, clock, _bounded]


def _renderer(colour: bool, out: TextIO) -> list[Processor]:
    import structlog

    if colour:
        colours = wants_colour(out, os.environ)
        return [_printable, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=_plain)]


def _bounded(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut long text, wherever it came from."""
    for name, value in event.items():
        if isinstance(value, str) and len(value) > FIELD_CHARACTERS_MAX:
            event[name] = f"{value[:FIELD_CHARACTERS_MAX]}... ({len(value)} characters)"
    return event


def _printable(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Names that clients choose must not steer the terminal; JSON escapes them anyway."""
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
    """What JSON has no form for: sets become sorted lists, everything else its text."""
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in cast("set[object]", value))
    return str(value)
