"""`penstock group`: list consumer groups, describe one, move its offsets, delete it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import sleep
from typing import Annotated, Any, NamedTuple

import typer

from penstock.cli.confirm import confirm
from penstock.cli.failure import Failure
from penstock.cli.group_report import COLUMNS, Report, make_report
from penstock.cli.offsets import POSITION_EXPLAINED, OffsetsParser
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    YesOption,
    connection,
)
from penstock.cli.output import Number, counted, note, say, show_done, show_json, show_rows, show_table
from penstock.cli.topic import chosen_partitions
from penstock.client.admin import Admin
from penstock.client.failures import ClientError
from penstock.client.groups import GroupInfo, Groups, Move, Place, Shift, plan_moves
from penstock.client.positions import At, AtTime, Bounds, Position
from penstock.client.share_groups import ShareGroups
from penstock.model.clock import SystemClock

app = typer.Typer(
    help="List, describe, move and delete groups of consumers.", no_args_is_help=True, add_completion=False
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
CSV_COLUMNS = 3
MOVE_COLUMNS = (
    "topic",
    Number("partition"),
    Number("committed"),
    Number("new"),
    Number("change"),
    Number("end"),
    Number("lag"),
)
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
WATCH_SECONDS_DEFAULT = 2.0
WATCH_SECONDS_MIN = 0.1


@app.command("list")
def list_(
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List groups."""
    where = connection(bootstrap, properties)
    found = {each.name: each for each in (*Groups(where).list(), *ShareGroups(where).list())}
    rows = [(each.name, each.kind, each.state) for _, each in sorted(found.items())]
    show_rows(output, ("group", "type", "state"), rows, empty="there are no groups")


@app.command()
def describe(
    group: GroupArgument,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat it, with offsets per second.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=WATCH_SECONDS_MIN, help="Seconds between two reports of --watch.")
    ] = WATCH_SECONDS_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show a group's members, their partitions, committed offsets and lag.

    Of a share group the committed offset is the first that is not finished, and members share their partitions.
    """
    where = connection(bootstrap, properties)
    groups, admin, clock = Seen(Groups(where), ShareGroups(where)), Admin(where), SystemClock()
    report = look(groups, admin, group, clock, None)
    show_report(output, report, watching=False)
    try:
        while watch:
            sleep(interval)
            report = look(groups, admin, group, clock, report)
            show_report(output, report, watching=True)
    except KeyboardInterrupt:
        sys.stdout.flush()


class Seen(NamedTuple):
    """Where groups of every kind are looked up."""

    groups: Groups
    shares: ShareGroups


def look(seen: Seen, admin: Admin, group: str, clock: SystemClock, earlier: Report | None) -> Report:
    try:
        info, progress = seen.groups.describe(group), None
        committed: Mapping[Place, int] = seen.groups.committed(group)
    except ClientError:
        found = seen.shares.describe(group)
        if found is None:
            raise
        info, progress = found
        committed = {place: each.start for place, each in progress.items()}
    bounds = bounds_of(admin, {*committed, *info.owners()}, times=())
    lags = None if progress is None else {place: each.lag for place, each in progress.items()}
    return make_report(info, committed, bounds, now_ms=clock.now_ms(), earlier=earlier, lags=lags)


def show_report(output: OutputFormat, report: Report, *, watching: bool) -> None:
    if output is OutputFormat.JSON:
        show_json(report.as_json())
        sys.stdout.flush()
        return
    if watching and sys.stdout.isatty():
        print(CLEAR_SCREEN, end="")
    say(*report.heading())
    rows = report.rows(with_rate=watching)
    if rows:
        show_table(COLUMNS if watching else COLUMNS[:-1], rows)
    else:
        note("it has committed nothing and reads nothing")
    sys.stdout.flush()


@app.command()
def seek(
    group: GroupArgument,
    to: Annotated[str | None, typer.Option("--to", metavar="POSITION", help=f"Where to: {POSITION_EXPLAINED}.")] = None,
    by: Annotated[int | None, typer.Option("--by", metavar="N", help="So many offsets forward, or back (-N).")] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Lines of topic,partition,offset; - is stdin.", allow_dash=True),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,P]",
            help="Only these, or some partitions of them; all committed if unset.",
        ),
    ] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Move the committed offsets of a group without live members.

    Shows the changes of each partition, and applies them with --yes.

    penstock group seek billing --to earliest
    penstock group seek billing --to @2026-11-01T08:00 --topic orders --yes
    penstock group seek billing --by -100 --topic orders:0,2
    penstock group seek billing --csv offsets.csv
    """
    if sum(given is not None for given in (to, by, csv)) != 1:
        raise typer.BadParameter("say one of --to, --by and --csv")
    if csv is not None and topics:
        raise typer.BadParameter("the file says which topics", param_hint="--topic")
    target = OffsetsParser(SystemClock().now_ms()).position(to, option="--to") if to is not None else None
    listed = read_csv(csv) if csv is not None else None
    where = connection(bootstrap, properties)
    groups, admin = Groups(where), Admin(where)
    refuse_live_members(f"cannot move group {group}", known_or_new(groups, group))
    committed = groups.committed(group)
    if listed is not None:
        for topic in sorted({topic for topic, _ in listed}):
            chosen_partitions(admin, topic, [index for named, index in listed if named == topic])
    wanted: dict[Place, Position | Shift] = (
        dict(listed)
        if listed is not None
        else dict.fromkeys(
            chosen_places(admin, topics, committed), target if target is not None else Shift(count=by or 0)
        )
    )
    if not wanted:
        raise Failure(f"group {group} has committed nothing", "say --topic TOPIC to give it offsets")
    times = {each.timestamp_ms for each in wanted.values() if isinstance(each, AtTime)}
    moves = plan_moves(wanted, committed, bounds_of(admin, wanted, times=times))
    carry_out(groups, group, moves, yes=yes, output=output)


def carry_out(groups: Groups, group: str, moves: tuple[Move, ...], *, yes: bool, output: OutputFormat) -> None:
    """Show the moves, and apply them after a confirmation."""
    changing = [move for move in moves if move.before != move.after]
    for move in moves:
        if move.asked is not None:
            note(
                f"{move.place[0]} partition {move.place[1]} does not hold offset {move.asked}: {move.after} is nearest"
            )
    if output is OutputFormat.TABLE:
        show_table(MOVE_COLUMNS, [move_row(move) for move in moves])
    if changing:
        if output is OutputFormat.JSON and not yes:
            show_json(moves_json(group, moves, applied=False))
        confirm(f"move {counted(len(changing), 'partition')} of group {group}?", yes)
        groups.commit(group, {move.place: move.after for move in changing})
    if output is OutputFormat.JSON:
        show_json(moves_json(group, moves, applied=bool(changing)))
    else:
        moved = f"moved {counted(len(changing), 'partition')} of group {group}"
        say(moved if changing else "nothing to move: the group is there already")


def move_row(move: Move) -> tuple[object, ...]:
    change = None if move.change is None else f"{move.change:+d}"
    return (*move.place, move.before, move.after, change, move.end, move.lag)


def moves_json(group: str, moves: Iterable[Move], *, applied: bool) -> dict[str, Any]:
    rows = [
        dict(zip(MOVE_COLUMNS, (*move.place, move.before, move.after, move.change, move.end, move.lag), strict=True))
        for move in moves
    ]
    return {"group": group, "applied": applied, "partitions": rows}


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' names.")],
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Delete groups without live members, with their offsets."""
    client = Groups(connection(bootstrap, properties))
    for name in groups:
        refuse_live_members(f"cannot delete group {name}", client.describe(name))
    confirm(f"delete {', '.join(groups)} with their offsets?", yes)
    client.delete(groups)
    show_done(output, f"deleted {', '.join(groups)}", {"deleted": groups})


def known_or_new(groups: Groups, name: str) -> GroupInfo | None:
    """The group, or None: a new group can be given offsets before its first member joins."""
    return groups.describe(name) if any(each.name == name for each in groups.list()) else None


def refuse_live_members(doing: str, group: GroupInfo | None) -> None:
    if group is None or not group.members:
        return
    named = "; ".join(str(member) for member in group.members)
    raise Failure(
        f"{doing}: it has {counted(len(group.members), 'live member')}: {named}",
        "stop them first, or wait until their sessions end",
    )


def chosen_places(admin: Admin, topics: list[str] | None, committed: Iterable[Place]) -> list[Place]:
    """The partitions that `--topic` names, or all with a committed offset."""
    if not topics:
        return sorted(committed)
    places: set[Place] = set()
    for text in topics:
        topic, colon, indexes = text.partition(":")
        try:
            wanted = [int(part) for part in indexes.split(",")] if colon else None
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:P,P", param_hint="--topic") from None
        places.update((topic, index) for index in chosen_partitions(admin, topic, wanted))
    return sorted(places)


def bounds_of(admin: Admin, places: Iterable[Place], *, times: Iterable[int]) -> dict[Place, Bounds]:
    """The offset range of each partition."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        by_topic.setdefault(topic, []).append(index)
    return {
        (topic, index): held
        for topic, indexes in by_topic.items()
        for index, held in admin.bounds(topic, indexes, times).items()
    }


def read_csv(path: Path) -> dict[Place, Position]:
    """Lines of topic,partition,offset; empty lines, comments (#) and a heading of these words are skipped."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read {path}: {error}") from None
    offsets: dict[Place, Position] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = [part.strip().strip('"') for part in line.split(",")]
        if not line.strip() or line.lstrip().startswith("#") or parts == ["topic", "partition", "offset"]:
            continue
        if (
            len(parts) != CSV_COLUMNS
            or not parts[0]
            or not all(part.isascii() and part.isdigit() for part in parts[1:])
        ):
            raise Failure(f"{path} line {number}: {line.strip()!r} is not topic,partition,offset")
        place = parts[0], int(parts[1])
        if place in offsets:
            raise Failure(f"{path} line {number}: {place[0]} partition {place[1]} stands there twice")
        offsets[place] = At(int(parts[2]))
    if not offsets:
        raise Failure(f"{path} names no partition", "write lines of topic,partition,offset")
    return offsets
