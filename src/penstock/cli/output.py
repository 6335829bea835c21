"""Results go to stdout: aligned columns for a person, JSON for a program. Progress goes to a terminal's stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from penstock.cli.options import OutputFormat
from penstock.model.printable import printable, printable_json, wants_colour

BOLD, DIM, RED, YELLOW, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"
GAP = "  "
BYTES = "bytes"


class Number(str):
    """The name of a column of numbers, which is always right-aligned."""

    __slots__ = ()


def say(*lines: str) -> None:
    """Lines of a result, on stdout. Names in them are untrusted, so control codes are escaped."""
    for line in lines:
        print(printable(line))


def show_json(value: Any) -> None:
    """One JSON document; indented on a terminal."""
    print(json_text(value, indent=2 if sys.stdout.isatty() else None))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON in stdout's encoding, without control codes."""
    utf = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=not utf))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns without rules, so that other programs can cut them too."""
    texts = [tuple(printable(_cell(value)) for value in row) for row in rows]
    widths = [max([len(column), *(len(row[index]) for row in texts)]) for index, column in enumerate(columns)]
    right = [isinstance(column, Number) for column in columns]
    heading = GAP.join(_align(column, width, to) for column, width, to in zip(columns, widths, right, strict=True))
    print(styled(BOLD, heading.rstrip(), sys.stdout))
    for row in texts:
        print(GAP.join(_align(text, width, to) for text, width, to in zip(row, widths, right, strict=True)).rstrip())


def show_rows(output: OutputFormat, columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """The same rows as a table, or as a JSON list of objects whose keys are the columns.

    Without rows, the table is the sentence `empty` instead of a heading.
    """
    if output is OutputFormat.JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        show_table(columns, rows)
    else:
        note(empty)


def show_done(output: OutputFormat, sentence: str, facts: dict[str, Any]) -> None:
    """The change of a command: a sentence, or the same facts as JSON."""
    if output is OutputFormat.JSON:
        show_json(facts)
    else:
        say(sentence)


def note(text: str) -> None:
    """A remark for the user: dim, on stderr."""
    print(styled(DIM, printable(text), sys.stderr), file=sys.stderr)


def complain(what: Sequence[str], hint: str) -> None:
    """Why a command failed, and what to do, on stderr."""
    first, *more = what
    print(f"{styled(RED, 'error:', sys.stderr)} {printable(first)}", file=sys.stderr)
    for line in more:
        print(f"       {printable(line)}", file=sys.stderr)
    if hint:
        print(f"{styled(YELLOW, 'hint:', sys.stderr)} {printable(hint)}", file=sys.stderr)


def styled(style: str, text: str, stream: TextIO) -> str:
    return f"{style}{text}{PLAIN}" if wants_colour(stream, os.environ) else text


def counted(count: int, noun: str) -> str:
    """1 partition, 2 partitions; 1 batch, 2 batches."""
    plural = noun if count == 1 else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {plural}"


def bytes_text(count: float) -> str:
    """1536 as 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Progress(Protocol):
    """The progress of a long operation."""

    def advance(self, done: int, note: str = "") -> None: ...


class _Silent:
    def advance(self, done: int, note: str = "") -> None:
        pass


class _Bar:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, done: int, note: str = "") -> None:
        self._bar.update(self._task, completed=done, note=note)


@contextmanager
def progress(what: str, total: int | None, *, unit: str = "records", show: bool = True) -> Generator[Progress]:
    """A bar on a terminal's stderr; nothing elsewhere. `total` None is "no end known"."""
    if not show or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    amount: list[ProgressColumn] = [DownloadColumn()] if unit == BYTES else [MofNCompleteColumn(), TextColumn(unit)]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *amount,
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task(what, total=total, note=""))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)


def _align(text: str, width: int, to_right: bool) -> str:
    return text.rjust(width) if to_right else text.ljust(width)
