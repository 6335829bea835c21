"""`penstock consume`: read records of a topic, from anywhere to anywhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.formats import FIELDS_HELP, TABLE_HEADING, Render, compile_format, json_line, table_line
from penstock.cli.offsets import EXPLAINED, OffsetsParser
from penstock.cli.options import BOOTSTRAP, BootstrapOption, OutputFormat, PropertyOption, connection
from penstock.cli.output import progress
from penstock.cli.topic import chosen_partitions
from penstock.client.admin import Admin
from penstock.client.positions import Span, resolve, total
from penstock.client.reader import Reader
from penstock.client.records import Record
from penstock.model.clock import SystemClock

FORMAT_DEFAULT = "%v\\n"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    offsets: Annotated[
        list[str] | None,
        typer.Option("--offsets", "-o", metavar="POSITION[:POSITION]|json|table", help=f"Where to read: {EXPLAINED}."),
    ] = None,
    format_: Annotated[str | None, typer.Option("--format", "-f", metavar="FORMAT", help=FIELDS_HELP)] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Go on with new records; starts at the end unless -o says where.")
    ] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these; repeat for more.")
    ] = None,
    output: Annotated[OutputFormat | None, typer.Option("--output", help="The same as -o json or -o table.")] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Show records of open and aborted transactions too.")
    ] = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    properties: PropertyOption = None,
) -> None:
    """Read a topic: all of it, unless told otherwise, and then stop.

    penstock consume orders -n 10                  the first ten records
    penstock consume orders -o -10 -F              the last ten, and then new ones
    penstock consume orders -o @-1h:end -o json    the last hour, as JSON lines
    penstock consume orders -p 0 -o 100:200 -f '%o %k %v\\n'
    """
    range_text, shown_as = split_output(offsets or [], output)
    render = renderer(shown_as, format_)
    wanted = OffsetsParser(SystemClock().now_ms()).parse(range_text or ("end" if follow else "beginning"))
    where = connection(bootstrap, properties)
    admin = Admin(where)
    bounds = admin.bounds(topic, chosen_partitions(admin, topic, partitions), wanted.times())
    spans = resolve(wanted, bounds, follow=follow)
    isolation = "read_uncommitted" if uncommitted else "read_committed"
    with Reader(where, topic, spans, isolation_level=isolation) as reader:
        try:
            write_all(reader, render, heading=shown_as is OutputFormat.TABLE, count=count, total=goal(spans, count))
        except KeyboardInterrupt:
            sys.stdout.flush()


def split_output(texts: list[str], output: OutputFormat | None) -> tuple[str | None, OutputFormat | None]:
    """-o is both the offsets (as in kcat) and the output format (as in every other command): tell them apart."""
    formats = [text for text in texts if text in tuple(OutputFormat)]
    ranges = [text for text in texts if text not in tuple(OutputFormat)]
    if len(ranges) > 1:
        raise typer.BadParameter(f"one range at a time, not {' and '.join(ranges)}", param_hint="--offsets")
    return (ranges[0] if ranges else None), (OutputFormat(formats[-1]) if formats else output)


def renderer(shown_as: OutputFormat | None, format_: str | None) -> Render:
    if format_ is not None and shown_as is not None:
        raise typer.BadParameter(f"--format and -o {shown_as} exclude each other", param_hint="--format")
    match shown_as:
        case OutputFormat.JSON:
            return json_line
        case OutputFormat.TABLE:
            return table_line
        case None:
            return compile_format(FORMAT_DEFAULT if format_ is None else format_)


def goal(spans: tuple[Span, ...], count: int | None) -> int | None:
    """How many records to expect, for the progress bar; None when nobody knows."""
    there = total(spans)
    if there is None:
        return count
    return there if count is None else min(there, count)


def write_all(reader: Reader, render: Render, *, heading: bool, count: int | None, total: int | None) -> None:
    """Print until the reader or the count is done. The bar shows only while stdout is not the terminal."""
    out = sys.stdout.buffer
    if heading:
        out.write(TABLE_HEADING)
    written = 0
    with progress("reading", total, show=not sys.stdout.isatty()) as bar:
        for batch in reader.batches():
            wanted = batch if count is None else batch[: count - written]
            for message in wanted:
                out.write(render(Record.of(message)))
            out.flush()
            written += len(wanted)
            bar.advance(written)
            if count is not None and written >= count:
                return
