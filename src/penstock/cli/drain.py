"""`penstock cluster drain` and `penstock cluster remove`: empty a broker, and forget it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from penstock.cli.cluster_loads import ClusterLoads, as_moves, measure
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
from penstock.cli.output import bytes_text, counted, note, say, show_json
from penstock.cli.rebalance import AT_ONCE_MAX, AtOnceOption, ThrottleOption
from penstock.cli.replica_moves import ReplicaMoves, move_json
from penstock.client.admin import PartitionInfo
from penstock.client.broker_requests import cordon, elect_preferred, unregister
from penstock.client.cluster_state import ClusterState, broker_settings, replicated_state_of, state_of
from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError
from penstock.client.reassignment_plan import Move
from penstock.client.reassignments import Ongoing, Place, list_reassignments
from penstock.client.wire_calls import WireCalls
from penstock.config.replica import CORDONED_LOG_DIRS
from penstock.controller.balance import plan_balance

ROUNDS_MAX = 5
"""Plans in a row: partitions that other commands are moving meanwhile are left to the next one."""

INVALID_REQUEST = 42

BrokerArgument = Annotated[int, typer.Argument(metavar="BROKER", min=0, help="The broker's id.")]


def drain(
    broker: BrokerArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Stop emptying it: it gets new replicas again.")] = False,
    throttle: ThrottleOption = None,
    at_once: AtOnceOption = AT_ONCE_MAX,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be moved only.")] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Empty a broker: leaders first, then replicas, and no new ones from the first moment on.

    Says when the broker may be stopped and removed. A broker that is down is emptied as well, from the other replicas.
    It may be interrupted, and called again; --undo works at any time, and leaves what has moved where it is.
    """
    where = connection(bootstrap, properties)
    with WireCalls(where) as calls:
        work = Drain(where=where, calls=calls, output=output, broker=broker)
        if undo:
            work.undo(yes=yes, dry_run=dry_run)
        else:
            work.carry_out(throttle=throttle, at_once=at_once, yes=yes, dry_run=dry_run)


def remove(
    broker: BrokerArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Forget a broker that is empty and stopped: nothing waits for it any more, and its own settings are gone.

    A broker with its id may join again, with an empty data directory: it is a new one.
    """
    where = connection(bootstrap, properties)
    state = state_of(where)
    held = state.replicas()[broker]
    if held:
        raise Failure(
            f"broker {broker} has {counted(held, 'replica')}",
            f"`penstock cluster drain {broker}` moves them, also while it is down",
        )
    if broker in state.live:
        raise Failure(f"broker {broker} is up", "stop it first: it is empty")
    confirm(f"forget broker {broker}?", yes)
    with WireCalls(where) as calls:
        unregister(calls, broker)
    if output is OutputFormat.JSON:
        show_json({"broker": broker, "removed": True})
    else:
        say(f"broker {broker} is removed")


class Drain:
    """One call of the command."""

    def __init__(self, *, where: Connection, calls: WireCalls, output: OutputFormat, broker: int) -> None:
        self._where = where
        self._calls = calls
        self._output = output
        self._broker = broker
        self._seen_cordoned = False
        """Whether the broker has said that it is cordoned: it learns that a moment after the controller."""
        self._moves = ReplicaMoves(where=where, calls=calls, show=output is OutputFormat.TABLE)

    def carry_out(self, *, throttle: int | None, at_once: int, yes: bool, dry_run: bool) -> None:
        broker = self._broker
        loads, moves = self._plan()
        held = loads.state.replicas()[broker]
        if broker not in loads.state.live and not held:
            raise Failure(
                f"broker {broker} is not there, and has no replicas",
                f"`penstock cluster status` shows the brokers; `penstock cluster remove {broker}` forgets one that was",
            )
        copied = sum(loads.sizes[move.place] * len(move.adding) for move in moves)
        leaders = loads.state.leaders()[broker]
        stuck = self._stuck(loads, moves)
        text = f"{counted(leaders, 'leader')} and {counted(held, 'replica')} ({bytes_text(copied)}) of broker {broker}"
        if dry_run:
            self._done(moves, f"would move {text}; nothing is changed{stuck_text(stuck)}")
            return
        confirm(f"move {text}, and place no new ones there?{stuck_text(stuck)}", yes)
        self._cordon(loads.state, begins=True)
        moved: list[Move] = []
        try:
            self._pass_leaders_on(replicated_state_of(self._where))
            for _ in range(ROUNDS_MAX):
                # One that adds a replica here, or on a broker that is down, may never end: the plan replaces it.
                ongoing = list_reassignments(self._calls)
                live = state_of(self._where).live
                leaving = {
                    place for place, each in ongoing.items() if broker in each.removing and live.issuperset(each.adding)
                }
                if leaving:
                    self._moves.follow(leaving)
                self._check_cordoned()
                # Again: topics may be created and deleted until the broker is cordoned.
                loads, moves = self._plan()
                if not moves:
                    break
                if throttle is not None:
                    self._moves.throttle(moves, throttle)
                self._moves.carry_out(moves, loads.sizes, at_once_max=at_once, check=self._check_cordoned)
                moved += moves
        except KeyboardInterrupt:
            note("what is in progress goes on; call the command again to go on, or with --undo to end it")
            raise
        self._moves.clear_leftovers()
        self._report(moved)

    def _report(self, moved: Sequence[Move]) -> None:
        state = replicated_state_of(self._where)
        left = [place for place, each in partitions_of(state) if self._broker in each.replicas]
        if left:
            names = ", ".join(f"{topic}-{index}" for topic, index in left[:5])
            raise Failure(
                f"broker {self._broker} still has {counted(len(left), 'replica')}: {names}",
                "no other broker has room for them: start one, or lower the number of replicas with "
                "`penstock topic reassign --factor`, and call the command again",
            )
        there = self._broker in state.live
        next_step = "stop it, and then " if there else ""
        self._done(
            moved,
            f"broker {self._broker} is empty: {next_step}`penstock cluster remove {self._broker}` forgets it",
        )

    def undo(self, *, yes: bool, dry_run: bool) -> None:
        broker = self._broker
        found = {place: each for place, each in list_reassignments(self._calls).items() if broker in each.removing}
        moves = [
            Move(topic=each.topic, partition=each.partition, before=each.replicas, after=each.original)
            for each in found.values()
        ]
        text = f"{counted(len(found), 'reassignment')} in progress"
        if dry_run:
            self._done(moves, f"would cancel {text}; nothing is changed")
            return
        if found:
            confirm(f"cancel {text}?", yes)
        self._cordon(state_of(self._where), begins=False)
        if found:
            self._moves.cancel(found)
        self._moves.clear_leftovers()
        cancelled = f"; {counted(len(found), 'reassignment')} cancelled" if found else ""
        self._done(
            moves,
            f"broker {broker} gets new replicas again{cancelled}; `penstock cluster rebalance` gives it its share back",
        )

    def _cordon(self, state: ClusterState, *, begins: bool) -> None:
        """Cordon the broker, or end that. One that is not registered any more gets no replicas anyway."""
        try:
            cordon(self._calls, self._broker, begins=begins)
        except ClientError as error:
            if error.code != INVALID_REQUEST or self._broker in state.live:
                raise

    def _check_cordoned(self) -> None:
        """Stop where another command has undone the drain meanwhile."""
        for each in state_of(self._where).brokers:
            if each.broker_id == self._broker:
                found = broker_settings(each, (CORDONED_LOG_DIRS,), self._where, REQUEST_SECONDS_MAX)
                cordoned = found.get(CORDONED_LOG_DIRS)
                if self._seen_cordoned and cordoned == "":
                    raise Failure(
                        f"broker {self._broker} is not cordoned any more: the drain was undone",
                        "call the command again to empty the broker all the same",
                    )
                self._seen_cordoned = self._seen_cordoned or bool(cordoned)

    def _plan(self) -> tuple[ClusterLoads, list[Move]]:
        """The moves that empty the broker. What is being reassigned counts with the replicas that it will have."""
        live = state_of(self._where).live
        ongoing = {
            place: as_cancelled(each) if self._broker in each.removing and not live.issuperset(each.adding) else each
            for place, each in list_reassignments(self._calls).items()
        }
        loads = measure(self._where, self._calls, ongoing=ongoing)
        return loads, as_moves(plan_balance(loads.places(emptied=self._broker), loads.partitions, even=False))

    def _stuck(self, loads: ClusterLoads, moves: Sequence[Move]) -> int:
        """Replicas for which there is no other broker."""
        moving = {move.place for move in moves}
        return sum(
            self._broker in each.replicas and (each.tp.topic, each.tp.partition) not in moving
            for each in loads.partitions
        )

    def _pass_leaders_on(self, state: ClusterState) -> None:
        """Make the broker the last choice of a leader of each of its partitions, and elect another one."""
        moves = [
            Move(topic=place[0], partition=place[1], before=each.replicas, after=last_of(each, self._broker))
            for place, each in partitions_of(state)
            if self._broker in (each.leader, each.replicas[0]) and len(each.isr) > 1
        ]
        # A partition that is being reassigned keeps its target; its leader goes with its replica.
        ongoing = list_reassignments(self._calls)
        moves = [move for move in moves if move.place not in ongoing]
        if moves:
            self._moves.carry_out(moves, {}, at_once_max=AT_ONCE_MAX)
            elect_preferred(self._calls, [move.place for move in moves])

    def _done(self, moves: Sequence[Move], sentence: str) -> None:
        if self._output is OutputFormat.JSON:
            facts: dict[str, Any] = {"broker": self._broker, "moves": [move_json(move) for move in moves]}
            show_json(facts)
        else:
            say(sentence)


def partitions_of(state: ClusterState) -> list[tuple[Place, PartitionInfo]]:
    return [((topic.name, each.partition), each) for topic in state.topics for each in topic.partitions]


def as_cancelled(ongoing: Ongoing) -> Ongoing:
    return replace(ongoing, replicas=ongoing.original, adding=(), removing=())


def last_of(partition: PartitionInfo, broker: int) -> tuple[int, ...]:
    """The replicas with one that is in sync first, and the broker last."""
    others = [each for each in partition.replicas if each != broker]
    others.sort(key=lambda each: each not in partition.isr)
    return (*others, broker)


def stuck_text(stuck: int) -> str:
    return f" ({counted(stuck, 'replica')} cannot go: there is no other broker for them)" if stuck else ""
