"""`penstock cluster rebalance`: even out replicas, leaders, bytes and traffic over the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from penstock.cli.cluster_loads import (
    BROKER_COLUMNS,
    CHANGE_COLUMNS,
    Change,
    as_moves,
    broker_changes,
    change_cells,
    change_json,
    measure,
    together,
)
from penstock.cli.confirm import confirm
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    YesOption,
    connection,
)
from penstock.cli.output import bytes_text, counted, note, say, show_json, show_table
from penstock.cli.replica_moves import ReplicaMoves, move_json
from penstock.client.connection import Connection
from penstock.client.reassignment_plan import Move
from penstock.client.reassignments import list_reassignments
from penstock.client.wire_calls import WireCalls
from penstock.controller.balance import BrokerPlace, plan_balance

AT_ONCE_MAX = 100
"""Partitions that are moved at the same time by default."""
SAMPLE_S = 2.0

ThrottleOption = Annotated[
    int | None, typer.Option("--throttle", min=1, metavar="BYTES/S", help="Copy at most so fast, per broker.")
]
AtOnceOption = Annotated[int, typer.Option("--at-once", min=1, help="Partitions that are moved at the same time.")]


def rebalance(
    throttle: ThrottleOption = None,
    at_once: AtOnceOption = AT_ONCE_MAX,
    copies_max: Annotated[
        int | None, typer.Option("--copies-max", min=0, help="Copy at most so many replicas, and leave the rest.")
    ] = None,
    sample: Annotated[
        float,
        typer.Option("--sample", min=0, metavar="SECONDS", help="How long to measure the traffic; 0 leaves it out."),
    ] = SAMPLE_S,
    cancel: Annotated[bool, typer.Option("--cancel", help="End what is in progress: return to the replicas.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Give every broker its share of replicas, leaders, bytes and traffic, with few copies.

    Shows each broker before and after, and asks. Replicas of a partition stay on as many racks and hosts as they are
    on; cordoned brokers get none. It may be interrupted: what is in progress goes on, and the command, called again,
    goes on from there.
    """
    where = connection(bootstrap, properties)
    with WireCalls(where) as calls:
        work = Rebalance(where=where, calls=calls, output=output)
        if cancel:
            work.cancel(yes=yes, dry_run=dry_run)
        else:
            work.carry_out(
                throttle=throttle, at_once=at_once, copies_max=copies_max, sample_s=sample, yes=yes, dry_run=dry_run
            )


class Rebalance:
    """One call of the command."""

    def __init__(self, *, where: Connection, calls: WireCalls, output: OutputFormat) -> None:
        self._where = where
        self._calls = calls
        self._output = output
        self._moves = ReplicaMoves(where=where, calls=calls, show=output is OutputFormat.TABLE)

    def carry_out(
        self, *, throttle: int | None, at_once: int, copies_max: int | None, sample_s: float, yes: bool, dry_run: bool
    ) -> None:
        ongoing = list_reassignments(self._calls)
        if ongoing:
            note(f"{counted(len(ongoing), 'reassignment')} in progress: the plan goes on from their end")
        loads = measure(self._where, self._calls, sample_s=sample_s, ongoing=ongoing)
        planned = plan_balance(loads.places(), loads.partitions, copies_max=copies_max)
        moves = as_moves(planned)
        copies = sum(len(move.adding) for move in moves)
        copied = sum(loads.sizes[move.place] * len(move.adding) for move in moves)
        changes = broker_changes(loads, planned)
        facts = plan_json(changes, moves, copied)
        if self._output is OutputFormat.TABLE:
            show_changes(changes)
        behind = loads.state.under_replicated
        if behind and not ongoing:
            note(f"{counted(behind, 'partition')} under-replicated: copies compete with those that repair them")
        if not moves and not ongoing:
            self._done(facts, "brokers are even: nothing to move")
            return
        text = f"{counted(len(moves), 'partition')} and copy {counted(copies, 'replica')} ({bytes_text(copied)})"
        if dry_run:
            self._done(facts, f"it would change {text}; nothing is changed")
            return
        if moves:
            confirm(f"change {text}?", yes)
        try:
            if ongoing:
                self._moves.follow(ongoing)
            if throttle is not None:
                self._moves.throttle(moves, throttle)
            self._moves.carry_out(moves, loads.sizes, at_once_max=at_once)
            self._moves.lead_preferred(moves)
        except KeyboardInterrupt:
            note("what is in progress goes on; call the command again to go on, or with --cancel to end it")
            raise
        self._moves.clear_leftovers()
        self._done(facts, f"brokers are even: changed {counted(len(moves), 'partition')}, copied {bytes_text(copied)}")

    def cancel(self, *, yes: bool, dry_run: bool) -> None:
        ongoing = list_reassignments(self._calls)
        moves = [
            Move(topic=each.topic, partition=each.partition, before=each.replicas, after=each.original)
            for each in ongoing.values()
        ]
        facts: dict[str, Any] = {"cancelled": [move_json(move) for move in moves]}
        if not moves and not dry_run:
            self._moves.clear_leftovers()
        if not moves or dry_run:
            self._done(facts, f"{counted(len(moves), 'reassignment')} in progress; nothing is changed")
            return
        confirm(f"cancel {counted(len(moves), 'reassignment')} in progress?", yes)
        self._moves.cancel(ongoing)
        self._moves.clear_leftovers()
        self._done(facts, f"cancelled {counted(len(moves), 'reassignment')}; what was complete stays")

    def _done(self, facts: dict[str, Any], sentence: str) -> None:
        if self._output is OutputFormat.JSON:
            show_json(facts)
        else:
            say(sentence)


def show_changes(changes: Sequence[tuple[BrokerPlace, Change]]) -> None:
    """Every broker before and after; racks and hosts as well, where they have several brokers."""
    rows = [(place.broker_id, place.rack, place.host or "(down)", *change_cells(change)) for place, change in changes]
    show_table(BROKER_COLUMNS, rows)
    for name, found in grouped(changes).items():
        say("")
        show_table((name, *CHANGE_COLUMNS), [(each.name, *change_cells(each)) for each in found])


def grouped(changes: Sequence[tuple[BrokerPlace, Change]]) -> dict[str, list[Change]]:
    """Brokers by rack and by host, where that says more than the brokers by themselves."""
    found = {
        "rack": together(changes, lambda place: place.rack or ""),
        "host": together(changes, lambda place: place.host),
    }
    return {name: each for name, each in found.items() if 1 < len(each) < len(changes)}


def plan_json(changes: Sequence[tuple[BrokerPlace, Change]], moves: Sequence[Move], copied: int) -> dict[str, Any]:
    return {
        "brokers": [
            {"broker": place.broker_id, "rack": place.rack, "host": place.host or None, **change_json(change)}
            for place, change in changes
        ],
        **{
            f"{name}s": [{name: each.name, **change_json(each)} for each in found]
            for name, found in grouped(changes).items()
        },
        "copies": sum(len(move.adding) for move in moves),
        "bytes": copied,
        "moves": [move_json(move) for move in moves],
    }
