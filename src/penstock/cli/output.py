"""Answers go to stdout: aligned columns for a person, JSON for a program. Progress goes to a terminal's stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.cli.options import OutputFormat

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
GAP = "  "


def show_json(value: Any) -> None:
    """One JSON document; indented when a person looks at it."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns without rules, so that other programs can cut them too."""
    texts = [tuple(_cell(value) for value in row) for row in rows]
    widths = [max([len(column), *(len(row[index]) for row in texts)]) for index, column in enumerate(columns)]
    right = [bool(rows) and all(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))]
    heading = GAP.join(_align(column, width, to) for column, width, to in zip(columns, widths, right, strict=True))
    print(_styled(BOLD, heading.rstrip()))
    for row in texts:
        print(GAP.join(_align(text, width, to) for text, width, to in zip(row, widths, right, strict=True)).rstrip())


def show_rows(output: OutputFormat, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The same rows as a table, or as a JSON list of objects whose keys are the columns."""
    if output is OutputFormat.JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows)


def show_done(output: OutputFormat, sentence: str, facts: dict[str, Any]) -> None:
    """What a command changed: a sentence, or the same facts as JSON."""
    if output is OutputFormat.JSON:
        show_json(facts)
    else:
        print(sentence)


def note(text: str) -> None:
    """Something for the person and not for the pipe: dim, on stderr."""
    print(f"{DIM}{text}{PLAIN}" if sys.stderr.isatty() else text, file=sys.stderr)


def counted(count: int, noun: str) -> str:
    """1 partition, 2 partitions."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def bytes_text(count: float) -> str:
    """1536 as 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Progress(Protocol):
    """How far long work has come."""

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
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
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


def _styled(style: str, text: str) -> str:
    return f"{style}{text}{PLAIN}" if sys.stdout.isatty() else text
