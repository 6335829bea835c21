"""`penstock topic shrink`: write to fewer partitions of a topic, and to all of them again."""

from __future__ import annotations

from typing import Annotated

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
from penstock.cli.output import Number, counted, note, show_done, show_table
from penstock.client.admin import Admin, ConfigValue, Resource
from penstock.client.cluster_state import PARTITIONS_GHOSTS

PARTITIONS_ACTIVE = "partitions.active"
PARTITIONS_FINALIZED = "partitions.finalized"
ALL_PARTITIONS = -1
REMOVED_COLUMNS = (Number("partition"), Number("written_to"), Number("goes_on_at"))
COSTS = (
    "producers in Java and kafka-python: batches that wait for these partitions when they hear of it expire",
    "librdkafka and franz-go go on sending to these partitions until they are restarted; that is no loss, the brokers "
    "write it to the others",
    "franz-go fails such records once it had to send one again, as after a change of leaders: restart its producers",
    "groups rebalance, and their committed offsets for these partitions are deleted",
    "a Spark stream with failOnDataLoss=true fails",
    "partitions that come back, with --undo or `penstock topic grow`, go on at the offsets above",
)
"""What taking partitions out of a topic does to clients."""
PLAN_COLUMNS = (Number("partition"), Number("written_to"), Number("records_left"))


def shrink(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="COUNT", help="How many partitions records are written to.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Write to all partitions again.")] = False,
    finalize: Annotated[
        bool, typer.Option("--finalize", help="Show clients only the partitions that records are written to.")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Write a topic's records to fewer of its partitions, without any change for its clients.

    Partition P from COUNT on is drained: producers go on sending to it, and the brokers write their records to
    partition P modulo COUNT. It stays in the topic, can be read to its end, and is emptied by retention; then its files
    and replicas go. --finalize takes such partitions out of the topic, which clients do notice: it says how, and asks.
    """
    if [undo, finalize, to is not None].count(True) != 1:
        raise typer.BadParameter("give one of --to COUNT, --undo and --finalize")
    Shrink(Admin(connection(bootstrap, properties)), topic, output, yes=yes).carry_out(to, undo=undo)


class Shrink:
    """One call of the command."""

    def __init__(self, admin: Admin, topic: str, output: OutputFormat, *, yes: bool) -> None:
        self._admin = admin
        self._topic = topic
        self._target = Resource(kind="topic", name=topic)
        self._output = output
        self._yes = yes
        self._have = [each.partition for each in admin.describe(topic).partitions]
        self._configs = admin.configs(self._target)
        self._active = active_of(self._configs)

    def carry_out(self, to: int | None, *, undo: bool) -> None:
        if undo:
            self._undo()
        elif to is None:
            self._finalize()
        else:
            self._drain(to)

    def _undo(self) -> None:
        topic, removed = self._topic, [PARTITIONS_ACTIVE]
        if self._active == ALL_PARTITIONS:
            raise Failure(f"records of {topic} are written to all its partitions", "there is nothing to undo")
        ghosts = ghosts_of(self._configs)
        count = len({*self._have, *ghosts})
        if is_finalized(self._configs):
            removed.append(PARTITIONS_FINALIZED)
        confirm(f"write records of {topic} to all its {counted(count, 'partition')} again?", self._yes)
        self._admin.alter(self._target, put={}, remove=removed)
        facts = {"topic": topic, "partitions": count, "active": count}
        show_done(self._output, f"records of {topic} are written to all {counted(count, 'partition')} again", facts)

    def _drain(self, to: int) -> None:
        topic, have = self._topic, self._have
        if to >= len(have):
            raise Failure(
                f"topic {topic} has {counted(len(have), 'partition')}", f"--to has to be less than {len(have)}"
            )
        if self._output is not OutputFormat.JSON:
            left = self._admin.bounds(topic, have[to:])
            rows = [(index, index % to, held.end - held.start) for index, held in sorted(left.items())]
            show_table(PLAN_COLUMNS, rows)
        if len(have) % to:
            note(f"{len(have)} is no multiple of {to}: keys spread over the {to} partitions less evenly than before")
        confirm(f"write records of {topic} to {counted(to, 'partition')} only?", self._yes)
        self._admin.alter(self._target, put={PARTITIONS_ACTIVE: str(to)}, remove=())
        facts = {"topic": topic, "partitions": len(have), "active": to}
        show_done(self._output, f"records of {topic} are written to {counted(to, 'partition')} of {len(have)}", facts)

    def _finalize(self) -> None:
        topic, active = self._topic, self._active
        if active == ALL_PARTITIONS:
            raise Failure(f"no partition of {topic} is drained", "`penstock topic shrink --to COUNT` comes first")
        if is_finalized(self._configs):
            raise Failure(f"{topic} is finalized already", "`penstock topic shrink --undo` brings its partitions back")
        drained = [index for index in self._have if index >= active]
        ghosts = ghosts_of(self._configs)
        left = [index for index in drained if index not in ghosts]
        if left:
            raise Failure(
                f"partitions {left[:10]} of {topic} still have logs, whose records nobody could read any more",
                "wait until retention has emptied them, or delete their records with `penstock topic truncate`",
            )
        if self._output is not OutputFormat.JSON:
            ends = self._admin.bounds(topic, drained)
            show_table(REMOVED_COLUMNS, [(index, index % active, ends[index].end) for index in drained])
        for cost in COSTS:
            note(cost)
        confirm(f"take {counted(len(drained), 'partition')} out of {topic}?", self._yes)
        self._admin.alter(self._target, put={PARTITIONS_FINALIZED: "true"}, remove=())
        facts = {"topic": topic, "partitions": active, "removed": drained}
        show_done(self._output, f"{topic} has {counted(active, 'partition')}", facts)


def is_finalized(configs: tuple[ConfigValue, ...]) -> bool:
    """Whether clients see only the active partitions of a topic."""
    return any(each.name == PARTITIONS_FINALIZED and each.value == "true" for each in configs)


def ghosts_of(configs: tuple[ConfigValue, ...]) -> frozenset[int]:
    """The drained partitions of a topic that are empty and have no replicas."""
    found = [each.value for each in configs if each.name == PARTITIONS_GHOSTS and each.value]
    return frozenset(int(index) for value in found for index in value.split(","))


def active_of(configs: tuple[ConfigValue, ...]) -> int:
    """How many partitions of a topic are active, by its settings; -1 for all."""
    for each in configs:
        if each.name == PARTITIONS_ACTIVE and each.value is not None:
            return int(each.value)
    return ALL_PARTITIONS
