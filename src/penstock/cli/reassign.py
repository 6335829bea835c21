"""`penstock topic reassign`: move a topic's replicas to other brokers, and change how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.confirm import confirm
from penstock.cli.failure import Failure
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    YesOption,
    connection,
)
from penstock.cli.output import Number, bytes_text, counted, note, say, show_json, show_table
from penstock.cli.replica_moves import Left, ReplicaMoves, move_json
from penstock.client.admin import PartitionInfo
from penstock.client.broker_requests import cordoned_brokers
from penstock.client.cluster_state import ClusterState, state_of
from penstock.client.connection import Connection
from penstock.client.reassignment_plan import Move, PlanError, parse_plan, rotated, with_factor
from penstock.client.reassignments import Place, alter_reassignments, list_reassignments, replica_sizes
from penstock.client.wire_calls import WireCalls

PLAN_COLUMNS = ("topic", Number("partition"), "before", "after", "adding", "removing", "copies")
STATUS_COLUMNS = ("topic", Number("partition"), "replicas", "adding", "removing", "in_sync", "left")


def reassign(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="The topic's name; none with --from, or for all with --status."),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these; repeat for more.")
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas",
            metavar="ID,ID,...",
            help="The brokers to be on, the preferred leader first; several partitions take turns at being led.",
        ),
    ] = None,
    factor: Annotated[int | None, typer.Option("--factor", min=1, help="How many replicas to have.")] = None,
    plan_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A plan of kafka-reassign-partitions, as JSON.")
    ] = None,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, metavar="BYTES/S", help="Copy at most so fast, per broker.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Return to the replicas before.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show what is in progress.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it is done.")] = True,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Move a topic's replicas to other brokers, or change how many there are.

    Shows the plan and asks first. New replicas copy the log while the partition is served, and the old ones go when the
    new ones are in sync. It goes on without this command: call it again to see it (--status) or to end it (--cancel).
    """
    given = [replicas is not None, factor is not None, plan_file is not None, cancel, status]
    if sum(given) != 1:
        raise typer.BadParameter("say one of --replicas, --factor, --from, --cancel and --status")
    if topic is None and not (status or plan_file):
        raise typer.BadParameter("which TOPIC?")
    where = connection(bootstrap, properties)
    with WireCalls(where) as calls:
        work = Work(where=where, calls=calls, output=output)
        if status:
            work.show_status(topic, partitions)
            return
        if cancel:
            assert topic is not None, "checked above"
            work.cancel(topic, partitions, yes=yes, dry_run=dry_run)
            return
        try:
            moves = work.moves(topic, partitions, replicas=replicas, factor=factor, plan_file=plan_file)
        except PlanError as error:
            raise Failure(str(error)) from error
        work.carry_out(moves, throttle=throttle, dry_run=dry_run, yes=yes, wait=wait)


class Work:
    """One call of the command."""

    def __init__(self, *, where: Connection, calls: WireCalls, output: OutputFormat) -> None:
        self._where = where
        self._calls = calls
        self._output = output
        self._moves = ReplicaMoves(where=where, calls=calls, show=output is OutputFormat.TABLE)

    def moves(
        self,
        topic: str | None,
        partitions: list[int] | None,
        *,
        replicas: str | None,
        factor: int | None,
        plan_file: Path | None,
    ) -> list[Move]:
        """The partitions whose replicas change."""
        state = state_of(self._where)
        wanted: dict[Place, tuple[int, ...]] = {}
        if plan_file is not None:
            wanted = parse_plan(read_file(plan_file))
            if topic is not None:
                wanted = {place: brokers for place, brokers in wanted.items() if place[0] == topic}
        else:
            assert topic is not None, "only a file names its own topics"
            chosen = chosen_of(state, topic, partitions)
            if replicas is not None:
                brokers = broker_ids(replicas)
                wanted = {
                    (topic, each.partition): rotated(brokers, at if len(chosen) > 1 else 0)
                    for at, each in enumerate(chosen)
                }
            else:
                assert factor is not None, "one of three is given"
                racks = {each.broker_id: each.rack for each in state.brokers}
                load = state.replicas()
                # One that was drained has the fewest replicas of all.
                cordoned = cordoned_brokers(state, self._where)
                wanted = {
                    (topic, each.partition): with_factor(each, factor, racks=racks, load=load, cordoned=cordoned)
                    for each in chosen
                }
        return [move for place, brokers in wanted.items() if (move := self._move(state, place, brokers)) is not None]

    def _move(self, state: ClusterState, place: Place, brokers: tuple[int, ...]) -> Move | None:
        [found] = chosen_of(state, place[0], [place[1]])
        missing = sorted(set(brokers) - state.live - set(found.replicas))
        if missing:
            raise PlanError(f"{place[0]}-{place[1]}: broker {missing[0]} is not there, so it cannot copy anything")
        if tuple(found.replicas) == brokers:
            return None
        return Move(topic=place[0], partition=place[1], before=tuple(found.replicas), after=brokers)

    def carry_out(self, moves: list[Move], *, throttle: int | None, dry_run: bool, yes: bool, wait: bool) -> None:
        sizes = self._sizes(moves)
        if not moves:
            self._done([], "every partition has these replicas already")
            return
        if self._output is OutputFormat.TABLE:
            show_table(PLAN_COLUMNS, [plan_row(move, sizes) for move in moves])
        copied = sum(sizes[move.place] * len(move.adding) for move in moves)
        if dry_run:
            self._done(moves, f"copies {bytes_text(copied)}; nothing is changed")
            return
        confirm(f"reassign {counted(len(moves), 'partition')} and copy {bytes_text(copied)}?", yes)
        if throttle is not None:
            self._moves.throttle(moves, throttle)
        refused = alter_reassignments(self._calls, {move.place: move.after for move in moves})
        if refused:
            none_begun = len(refused) == len(moves)
            if throttle is not None and none_begun:
                self._moves.clear_throttles({move.topic for move in moves})
            first, *more = (str(error) for error in refused.values())
            raise Failure(first, "" if none_begun else "the others are under way; --status shows them", more=more)
        if not wait:
            self._done(moves, f"{counted(len(moves), 'reassignment')} under way; --status shows them")
            return
        try:
            self._moves.follow({move.place for move in moves}, copied, "reassigning")
        except KeyboardInterrupt:
            note("it goes on without this command; --status shows it, --cancel ends it")
            raise
        if throttle is not None:
            self._moves.clear_throttles({move.topic for move in moves})
        self._done(moves, f"reassigned {counted(len(moves), 'partition')}")

    def cancel(self, topic: str, partitions: list[int] | None, *, yes: bool, dry_run: bool) -> None:
        found = {
            place: each
            for place, each in list_reassignments(self._calls).items()
            if place[0] == topic and (not partitions or place[1] in partitions)
        }
        moves = [
            Move(topic=each.topic, partition=each.partition, before=each.replicas, after=each.original)
            for each in found.values()
        ]
        if self._output is OutputFormat.TABLE and moves:
            show_table(PLAN_COLUMNS, [plan_row(move, {move.place: 0}) for move in moves])
        if not moves or dry_run:
            self._done(moves, "nothing is changed" if moves else f"{topic} has no reassignment in progress")
            return
        confirm(f"cancel {counted(len(moves), 'reassignment')} of {topic}?", yes)
        self._moves.cancel(found)
        self._done(moves, f"cancelled {counted(len(moves), 'reassignment')}")

    def show_status(self, topic: str | None, partitions: list[int] | None) -> None:
        found = {
            place: each
            for place, each in list_reassignments(self._calls).items()
            if topic in (None, place[0]) and (not partitions or place[1] in partitions)
        }
        left = self._moves.left(found)
        if self._output is OutputFormat.JSON:
            show_json([status_json(each) for each in left])
        elif left:
            show_table(STATUS_COLUMNS, [status_row(each) for each in left])
        else:
            note("no reassignment is in progress")

    def _sizes(self, moves: Iterable[Move]) -> dict[Place, int]:
        """Bytes of each partition: those of its largest replica."""
        moving = list(moves)
        brokers = {broker for move in moving for broker in move.before}
        found = replica_sizes(self._calls, brokers, {move.topic for move in moving}) if moving else {}
        return {
            move.place: max((found.get((move.place, broker), 0) for broker in move.before), default=0)
            for move in moving
        }

    def _done(self, moves: list[Move], sentence: str) -> None:
        if self._output is OutputFormat.JSON:
            show_json([move_json(move) for move in moves])
        else:
            say(sentence)


def read_file(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read {path}: {error}") from error


def broker_ids(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of broker ids", param_hint="--replicas") from None
    if len(set(found)) < len(found):
        raise typer.BadParameter(f"{text} has a broker twice", param_hint="--replicas")
    return found


def chosen_of(state: ClusterState, topic: str, partitions: list[int] | None) -> list[PartitionInfo]:
    """The chosen partitions of a topic, all by default."""
    found = next((each for each in state.topics if each.name == topic), None)
    if found is None:
        raise Failure(f"there is no topic {topic}", "`penstock topic list` shows them")
    there = {each.partition: each for each in found.partitions}
    for index in partitions or ():
        if index not in there:
            raise Failure(f"topic {topic} has no partition {index}", f"it has partitions 0 to {len(there) - 1}")
    return [there[index] for index in (sorted(set(partitions)) if partitions else sorted(there))]


def plan_row(move: Move, sizes: Mapping[Place, int]) -> tuple[object, ...]:
    copies = bytes_text(sizes[move.place] * len(move.adding))
    return (*move.place, move.before, move.after, move.adding or None, move.removing or None, copies)


def status_row(left: Left) -> tuple[object, ...]:
    each = left.ongoing
    in_sync = f"{left.in_sync} of {len(each.adding)}"
    place = (each.topic, each.partition)
    return (*place, each.replicas, each.adding or None, each.removing or None, in_sync, bytes_text(left.bytes_left))


def status_json(left: Left) -> dict[str, Any]:
    each = left.ongoing
    return {
        "topic": each.topic,
        "partition": each.partition,
        "replicas": list(each.replicas),
        "adding": list(each.adding),
        "removing": list(each.removing),
        "in_sync": left.in_sync,
        "bytes_left": left.bytes_left,
        "bytes_total": left.bytes_total,
    }
