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
ALL_PARTITIONS = -1
PLAN_COLUMNS = (Number("partition"), Number("written_to"), Number("records_left"))


def shrink(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="COUNT", help="How many partitions records are written to.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Write to all partitions again.")] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Write a topic's records to fewer of its partitions, without any change for its clients.

    Partition P from COUNT on is drained: producers go on sending to it, and the brokers write their records to
    partition P modulo COUNT. It stays in the topic, can be read to its end, and is emptied by retention.
    """
    if undo == (to is not None):
        raise typer.BadParameter("give either --to COUNT or --undo")
    admin, target = Admin(connection(bootstrap, properties)), Resource(kind="topic", name=topic)
    have = [each.partition for each in admin.describe(topic).partitions]
    current = active_of(admin.configs(target))
    if undo:
        if current == ALL_PARTITIONS:
            raise Failure(f"records of {topic} are written to all its partitions", "there is nothing to undo")
        confirm(f"write records of {topic} to all its {counted(len(have), 'partition')} again?", yes)
        admin.alter(target, put={}, remove=[PARTITIONS_ACTIVE])
        facts = {"topic": topic, "partitions": len(have), "active": len(have)}
        show_done(output, f"records of {topic} are written to all {counted(len(have), 'partition')} again", facts)
        return
    assert to is not None
    if to >= len(have):
        raise Failure(f"topic {topic} has {counted(len(have), 'partition')}", f"--to has to be less than {len(have)}")
    if output is not OutputFormat.JSON:
        left = admin.bounds(topic, have[to:])
        show_table(PLAN_COLUMNS, [(index, index % to, held.end - held.start) for index, held in sorted(left.items())])
    if len(have) % to:
        note(f"{len(have)} is no multiple of {to}: keys spread over the {to} partitions less evenly than before")
    confirm(f"write records of {topic} to {counted(to, 'partition')} only?", yes)
    admin.alter(target, put={PARTITIONS_ACTIVE: str(to)}, remove=())
    facts = {"topic": topic, "partitions": len(have), "active": to}
    show_done(output, f"records of {topic} are written to {counted(to, 'partition')} of {len(have)}", facts)


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
