"""`penstock topic`: create, list, describe, change, grow, shrink, move, truncate and delete topics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import typer

from penstock.cli.confirm import confirm
from penstock.cli.failure import Failure
from penstock.cli.offsets import OffsetsParser
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    YesOption,
    assignments,
    connection,
)
from penstock.cli.output import Number, counted, say, show_done, show_json, show_rows, show_table
from penstock.cli.reassign import reassign
from penstock.cli.setting_hints import require_settings, setting_hints
from penstock.cli.shrink import active_of, ghosts_of, is_finalized, shrink
from penstock.cli.view import app as view
from penstock.client.admin import Admin, ConfigValue, Resource
from penstock.client.cluster_state import candidates_of
from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError
from penstock.client.positions import PositionRange
from penstock.client.reassignments import Ongoing, list_reassignments
from penstock.client.wire_calls import WireCalls, speaks_plaintext
from penstock.model.clock import SystemClock

app = typer.Typer(
    help="Create, list, describe, change, grow, shrink, move, truncate and delete topics.",
    no_args_is_help=True,
    add_completion=False,
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
ConfigsOption = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; repeat for more.")
]
BROKER_DEFAULT = -1
LIST_COLUMNS = ("topic", Number("partitions"), Number("replicas"), Number("under_replicated"))
DESCRIBE_COLUMNS = (
    Number("partition"),
    Number("leader"),
    "replicas",
    "isr",
    "adding",
    "removing",
    "eligible",
    "last_known",
    Number("start"),
    Number("end"),
    Number("records"),
)
TRUNCATE_COLUMNS = (Number("partition"), Number("start_before"), Number("start"), Number("deleted"))


@app.command()
def create(
    topic: TopicArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many; the broker's num.partitions if unset.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--rf", "-r", min=1, help="Copies; default.replication.factor if unset.")
    ] = None,
    configs: ConfigsOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if it exists already.")] = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Create a topic."""
    settings = assignments(configs or (), option="--config")
    admin = Admin(connection(bootstrap, properties))
    if if_not_exists and any(each.name == topic for each in admin.topics()):
        show_done(output, f"{topic} is there already", {"topic": topic, "created": False})
        return
    with setting_hints(topic_settings, settings):
        admin.create(
            topic, partitions=partitions or BROKER_DEFAULT, replicas=replicas or BROKER_DEFAULT, configs=settings
        )
    made = admin.described_when_led(topic)
    facts = {"topic": topic, "created": True, "id": made.topic_id, "partitions": len(made.partitions)}
    show_done(output, f"created {topic} with {counted(len(made.partitions), 'partition')}", facts)


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Show the broker's own topics too.")] = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List topics."""
    rows: list[tuple[object, ...]] = []
    for each in Admin(connection(bootstrap, properties)).topics():
        if each.internal and not internal:
            continue
        replicas = max((len(partition.replicas) for partition in each.partitions), default=0)
        behind = sum(1 for partition in each.partitions if len(partition.isr) < len(partition.replicas))
        rows.append((each.name, len(each.partitions), replicas, behind))
    show_rows(output, LIST_COLUMNS, rows, empty="there are no topics yet; `penstock topic create` makes one")


@app.command()
def describe(
    topic: TopicArgument,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show a topic's partitions, their offsets, and the settings that differ from the defaults.

    Adding and removing are replicas of a reassignment in progress. Eligible are replicas outside a small ISR that hold
    all committed records, so that they may lead; last_known is the last leader of a partition that has none.
    """
    where = connection(bootstrap, properties)
    admin = Admin(where)
    found = admin.describe(topic)
    candidates = candidates_of(topic, where)
    moving = reassignments_of(topic, where)
    led = [each.partition for each in found.partitions if each.leader >= 0]
    bounds = admin.bounds(topic, led) if led else {}
    configs = admin.configs(topic_resource(topic))
    settings = {each.name: each.value for each in configs if not each.default}
    active = active_of(configs)
    drained = {} if active < 0 else {index: index % active for index in range(active, len(found.partitions))}
    ghosts = ghosts_of(configs)
    rows: list[tuple[object, ...]] = []
    for each in found.partitions:
        held = bounds.get(each.partition)
        offsets = (held.start, held.end, held.end - held.start) if held is not None else (None, None, None)
        known = candidates.get(each.partition)
        may_lead = (None, None) if known is None else (list(known.eligible), list(known.last_known))
        ongoing = moving.get(each.partition)
        changes = (None, None) if ongoing is None else (list(ongoing.adding), list(ongoing.removing))
        rows.append((each.partition, each.leader, list(each.replicas), list(each.isr), *changes, *may_lead, *offsets))
    if output is OutputFormat.JSON:
        partitions = [dict(zip(DESCRIBE_COLUMNS, row, strict=True)) for row in rows]
        facts = {"topic": topic, "id": found.topic_id, "configs": settings, "partitions": partitions}
        show_json({**facts, "drained": [drained_json(each, to, ghosts) for each, to in drained.items()]})
        return
    say(f"{topic}  id {found.topic_id}  {counted(len(rows), 'partition')}")
    say(*(f"  {name} = {value}" for name, value in settings.items()))
    for index, to in drained.items():
        held = bounds.get(index)
        left = "" if held is None else f", {counted(held.end - held.start, 'offset')} left to read"
        if index in ghosts:
            left = "; it is empty and has no replicas, and that partition's leader serves it"
        say(f"  partition {index} is drained: its records are written to partition {to}{left}")
    if is_finalized(configs):
        removed = sorted(ghosts)
        say(f"  partitions {removed} are taken out: what is sent to them goes to those below")
    show_table(DESCRIBE_COLUMNS, rows)


@app.command()
def alter(
    topic: TopicArgument,
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default.")] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Change a topic's settings; those not named stay as they are."""
    put = assignments(settings or (), option="KEY=VALUE")
    if not put and not unset:
        raise typer.BadParameter("nothing to change: give KEY=VALUE or --unset KEY")
    admin, target = Admin(connection(bootstrap, properties)), topic_resource(topic)
    if unset:
        # A broker accepts and ignores unknown names here.
        require_settings(unset, admin.configs(target), f"topic {topic}")
    with setting_hints(lambda: admin.configs(target), put):
        admin.alter(target, put=put, remove=unset or ())
    show_done(output, f"altered {topic}", {"topic": topic, "set": put, "unset": unset or []})


@app.command()
def grow(
    topic: TopicArgument,
    to: Annotated[int, typer.Option("--to", min=1, help="The new number of partitions.")],
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Give a topic more partitions. Keys move to other partitions from then on."""
    Admin(connection(bootstrap, properties)).grow(topic, to)
    show_done(output, f"{topic} has {counted(to, 'partition')}", {"topic": topic, "partitions": to})


@app.command()
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")],
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Delete topics with all their records."""
    admin = Admin(connection(bootstrap, properties))
    confirm(f"delete {', '.join(topics)} with all records?", yes)
    for topic in topics:
        admin.delete(topic)
    show_done(output, f"deleted {', '.join(topics)}", {"deleted": topics})


@app.command()
def truncate(
    topic: TopicArgument,
    before: Annotated[
        str, typer.Option("--before", metavar="POSITION", help="end, an offset, -N from the end, @TIME or @-1h.")
    ] = "end",
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these; repeat for more.")
    ] = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Delete a topic's records before a position (all of them, if none is given). The topic stays."""
    place = OffsetsParser(SystemClock().now_ms()).position(before, option="--before")
    admin = Admin(connection(bootstrap, properties))
    wanted = chosen_partitions(admin, topic, partitions)
    bounds = admin.bounds(topic, wanted, PositionRange(start=place).times())
    cuts = {index: held.offset_of(place) for index, held in bounds.items()}
    count = sum(cuts[index] - held.start for index, held in bounds.items())
    confirm(f"delete {counted(count, 'record')} of {topic}?", yes)
    starts = admin.truncate(topic, cuts)
    rows = [(index, bounds[index].start, start, start - bounds[index].start) for index, start in sorted(starts.items())]
    show_rows(output, TRUNCATE_COLUMNS, rows, empty=f"{topic} has no partitions")


def topic_settings() -> tuple[ConfigValue, ...]:
    """Every topic setting, for a topic that does not exist yet."""
    from penstock.config.log import TOPIC_KEYS

    return tuple(ConfigValue(name=name, value=None, source="", read_only=False, sensitive=False) for name in TOPIC_KEYS)


def reassignments_of(topic: str, where: Connection) -> dict[int, Ongoing]:
    """The reassignments of a topic in progress, by partition; none where brokers cannot be asked."""
    if not speaks_plaintext(where):
        return {}
    try:
        with WireCalls(where, REQUEST_SECONDS_MAX) as calls:
            found = list_reassignments(calls)
    except ClientError:
        return {}
    return {index: each for (name, index), each in found.items() if name == topic}


def drained_json(index: int, to: int, ghosts: Collection[int]) -> dict[str, Any]:
    return {"partition": index, "written_to": to, "state": "ghost" if index in ghosts else "draining"}


def topic_resource(topic: str) -> Resource:
    return Resource(kind="topic", name=topic)


def chosen_partitions(admin: Admin, topic: str, partitions: list[int] | None) -> list[int]:
    """The requested partitions, all by default; Failure for one that the topic does not have."""
    there = [each.partition for each in admin.describe(topic).partitions]
    for index in partitions or ():
        if index not in there:
            raise Failure(f"topic {topic} has no partition {index}", f"it has partitions 0 to {len(there) - 1}")
    return sorted(set(partitions)) if partitions else there


app.command()(reassign)
app.command()(shrink)
app.add_typer(view, name="view")
