"""`penstock consume`: read records of topics, from anywhere to anywhere, or as a member of a group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer

from penstock.cli.formats import FIELDS_HELP, Render, compile_format, json_line, table_heading, table_line
from penstock.cli.offsets import EXPLAINED, OffsetsParser
from penstock.cli.options import BOOTSTRAP, BootstrapOption, OutputFormat, PropertyOption, connection
from penstock.cli.output import note, progress
from penstock.cli.streams import abandon_stdout
from penstock.cli.topic import chosen_partitions
from penstock.client.admin import Admin
from penstock.client.connection import Connection
from penstock.client.group_reader import GroupReader
from penstock.client.positions import PositionRange, Span, resolve, total
from penstock.client.reader import Reader
from penstock.client.records import Record
from penstock.client.share_reader import Acknowledge, ShareReader
from penstock.model.clock import SystemClock

FORMAT_DEFAULT = "%v\\n"
Passes = Callable[[Record], bool]


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")],
    offsets: Annotated[
        str | None,
        typer.Option("--offsets", "-o", metavar="POSITION[:POSITION]", help=f"Where to read: {EXPLAINED}."),
    ] = None,
    format_: Annotated[str | None, typer.Option("--format", "-f", metavar="FORMAT", help=FIELDS_HELP)] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Go on with new records; starts at the end unless -o says where.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Read as a member of this group, and commit the records shown."
        ),
    ] = None,
    share: Annotated[
        str | None, typer.Option("--share", metavar="GROUP", help="Read as a member of this share group.")
    ] = None,
    release: Annotated[
        bool, typer.Option("--release", help="With --share: release the records shown, for others; else accept them.")
    ] = False,
    reject: Annotated[bool, typer.Option("--reject", help="With --share: reject the records shown.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these; repeat for more.")
    ] = None,
    output: Annotated[
        OutputFormat | None, typer.Option("--output", help="JSON lines to process, or columns to read.")
    ] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Show records of open and aborted transactions too.")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="CONDITION", help='Show only these, as a view would: "value.n > 100".'),
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    properties: PropertyOption = None,
) -> None:
    """Read topics, by default all records, and then stop.

    On a terminal, control characters and bytes that are not text are escaped; a pipe or file gets the bytes unchanged.

    penstock consume orders -n 10                       the first ten records
    penstock consume orders -o -10 -F                   the last ten, and then new ones
    penstock consume orders -o @-1h:end --output json   the last hour, as JSON lines
    penstock consume orders -p 0 -o 100:200 -f '%o %k %v\\n'
    penstock consume orders payments -g billing -F      as a member of a group
    penstock consume orders -w "value.country = 'FR'"   those that meet a condition, as in SQL's WHERE
    penstock consume jobs --share workers -n 1          as a member of a share group, which accepts the record
    """
    topics = list(dict.fromkeys(topics))
    check_choices(topics, offsets, group if share is None else share, partitions)
    if group is not None and share is not None:
        raise typer.BadParameter("a member of a group is none of a share group", param_hint="--share")
    if release and reject:
        raise typer.BadParameter("a record is released or rejected, not both", param_hint="--release")
    if (release or reject) and share is None:
        raise typer.BadParameter("only members of a share group release or reject records", param_hint="--share")
    if where is not None and share is not None:
        raise typer.BadParameter("a share group would finish what is not shown", param_hint="--where")
    kind = Acknowledge.RELEASE if release else Acknowledge.REJECT if reject else Acknowledge.ACCEPT
    render = renderer(output, format_, terminal=sys.stdout.isatty(), with_topic=len(topics) > 1)
    wanted = OffsetsParser(SystemClock().now_ms()).parse(offsets or ("end" if follow else "beginning"))
    passes = None if where is None else passing(where)
    cluster = connection(bootstrap, properties)
    isolation = "read_uncommitted" if uncommitted else "read_committed"
    heading = table_heading(with_topic=len(topics) > 1) if output is OutputFormat.TABLE else b""
    try:
        if group is not None:
            read_as_member(
                cluster, topics, group, render, heading, follow=follow, count=count, isolation=isolation, passes=passes
            )
            return
        if share is not None:
            read_as_share_member(cluster, topics, share, render, heading, follow=follow, count=count, kind=kind)
            return
        spans = spans_of(Admin(cluster), topics, partitions, wanted, follow=follow)
        expected = goal(spans.values(), count if passes is None else None)
        with Reader(cluster, spans, isolation_level=isolation) as reader:
            write_all(reader.batches(), render, heading=heading, count=count, total=expected, passes=passes)
    except KeyboardInterrupt:
        # Output that stdout has not taken yet would delay the end until a slow reader takes it.
        abandon_stdout()
        # Ctrl-C is the normal end of --follow; otherwise it is an interruption.
        if not follow:
            raise


def passing(where: str) -> Passes:
    """The condition of an option; only who uses it waits for the parser's import."""
    from penstock.cli.view import filter_of, single

    wanted = filter_of(where)
    return lambda record: wanted.passes(single(record))


def check_choices(
    topics: Sequence[str], offsets: str | None, group: str | None, partitions: Sequence[int] | None
) -> None:
    """Refuse options that exclude each other, before the first request to a broker."""
    if offsets in tuple(OutputFormat):
        raise typer.BadParameter(f"-o is where to read; the output is --output {offsets}", param_hint="--offsets")
    if group is None:
        return
    if not group:
        raise typer.BadParameter("the group's name is empty", param_hint="--group or --share")
    if offsets is not None:
        raise typer.BadParameter(
            f"a group begins at its committed offsets: `penstock group seek {group} --to {offsets}` moves them",
            param_hint="--offsets",
        )
    if partitions:
        raise typer.BadParameter("a group assigns partitions to its members by itself", param_hint="--partition")


def spans_of(
    admin: Admin, topics: Sequence[str], partitions: list[int] | None, wanted: PositionRange, *, follow: bool
) -> dict[str, tuple[Span, ...]]:
    """The offsets to read of each topic."""
    return {
        topic: resolve(
            wanted,
            admin.bounds(topic, chosen_partitions(admin, topic, partitions), wanted.times()),
            follow=follow,
        )
        for topic in topics
    }


def read_as_member(
    where: Connection,
    topics: Sequence[str],
    group: str,
    render: Render,
    heading: bytes,
    *,
    follow: bool,
    count: int | None,
    isolation: str,
    passes: Passes | None,
) -> None:
    """Show records that the group has not read yet, and commit them after they are written."""
    admin = Admin(where)
    for topic in topics:
        admin.describe(topic)
    with GroupReader(where, topics, group, follow=follow, isolation_level=isolation) as reader:
        noted = False

        def batches() -> Iterator[list[Any]]:
            nonlocal noted
            for batch in reader.batches():
                if reader.assigned == frozenset() and not noted:
                    note(f"other members of group {group} have all partitions: waiting for one")
                    noted = True
                yield batch

        expected = count if passes is None else None
        write_all(
            batches(), render, heading=heading, count=count, total=expected, written=reader.mark_read, passes=passes
        )


def read_as_share_member(
    where: Connection,
    topics: Sequence[str],
    group: str,
    render: Render,
    heading: bytes,
    *,
    follow: bool,
    count: int | None,
    kind: Acknowledge,
) -> None:
    """Show records that the share group has not finished, and acknowledge them after they are written."""
    admin = Admin(where)
    for topic in topics:
        admin.describe(topic)
    with ShareReader(where, topics, group, follow=follow, records_max=count) as reader:
        write_all(
            reader.batches(),
            render,
            heading=heading,
            count=count,
            total=count,
            written=lambda shown: reader.acknowledge(shown, kind),
        )


def renderer(output: OutputFormat | None, format_: str | None, *, terminal: bool, with_topic: bool) -> Render:
    if format_ is not None and output is not None:
        raise typer.BadParameter(f"--format and --output {output} exclude each other", param_hint="--format")
    match output:
        case OutputFormat.JSON:
            return json_line
        case OutputFormat.TABLE:
            return table_line(with_topic=with_topic)
        case None:
            return compile_format(FORMAT_DEFAULT if format_ is None else format_, terminal=terminal)


def goal(spans: Iterable[Sequence[Span]], count: int | None) -> int | None:
    """The expected number of records, for the progress bar; None if it is not known."""
    there = total(span for each in spans for span in each)
    if there is None:
        return count
    return there if count is None else min(there, count)


def write_all(
    batches: Iterator[list[Any]],
    render: Render,
    *,
    heading: bytes,
    count: int | None,
    total: int | None,
    written: Callable[[Sequence[Any]], None] | None = None,
    passes: Passes | None = None,
) -> None:
    """Print until the batches or the count are done. The bar shows only while stdout is not the terminal.

    `written` is called with each batch once stdout has it, with the records that do not pass as well.
    """
    out = sys.stdout.buffer
    out.write(heading)
    shown = read = 0
    with progress("reading", total, show=not sys.stdout.isatty()) as bar:
        for batch in batches:
            done = 0
            for message in batch:
                if count is not None and shown >= count:
                    break
                done += 1
                record = Record.of(message)
                if passes is None or passes(record):
                    out.write(render(record))
                    shown += 1
            out.flush()
            if written is not None:
                written(batch[:done])
            read += done
            bar.advance(read)
            if count is not None and shown >= count:
                return
