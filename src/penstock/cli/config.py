"""`penstock config`: settings of topics, brokers and groups."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    assignments,
    connection,
)
from penstock.cli.output import show_done, show_rows
from penstock.cli.setting_hints import require_settings, setting_hints
from penstock.client.admin import Admin, Resource

app = typer.Typer(
    help="Show and change the settings of topics, brokers and groups.", no_args_is_help=True, add_completion=False
)


class Entity(StrEnum):
    """The kinds of resources with settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


EntityArgument = Annotated[Entity, typer.Argument(help="What has the settings.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a topic or group, or a broker's id.")]


@app.command()
def describe(
    entity: EntityArgument,
    name: NameArgument,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show those with their default value too.")] = False,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="Only these.")] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show settings, their values and where these come from."""
    target = resource(entity, name)
    admin = Admin(connection(bootstrap, properties))
    require_broker(admin, target)
    found = admin.configs(target)
    require_settings(key or (), found, f"{entity} {name}")
    shown = [each for each in found if (each.name in key if key else everything or not each.default)]
    rows = [(each.name, "(hidden)" if each.sensitive else each.value, each.source, each.read_only) for each in shown]
    show_rows(
        output, ("key", "value", "source", "read_only"), rows, empty="all settings have their defaults: see --all"
    )


@app.command("set")
def set_(
    entity: EntityArgument,
    name: NameArgument,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="What to set.")],
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Set settings; those not named stay as they are."""
    put = assignments(settings, option="KEY=VALUE")
    target = resource(entity, name)
    admin = Admin(connection(bootstrap, properties))
    require_broker(admin, target)
    with setting_hints(lambda: admin.configs(target), put):
        admin.alter(target, put=put, remove=())
    show_done(output, f"set {', '.join(put)} of {entity} {name}", {"entity": entity, "name": name, "set": put})


@app.command()
def unset(
    entity: EntityArgument,
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="What to put back to its default.")],
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Put settings back to their defaults."""
    target = resource(entity, name)
    admin = Admin(connection(bootstrap, properties))
    require_broker(admin, target)
    # A broker accepts and ignores unknown names here.
    require_settings(keys, admin.configs(target), f"{entity} {name}", to_change=True)
    admin.alter(target, put={}, remove=keys)
    show_done(output, f"unset {', '.join(keys)} of {entity} {name}", {"entity": entity, "name": name, "unset": keys})


def resource(entity: Entity, name: str) -> Resource:
    if entity is Entity.BROKER and not (name.isascii() and name.isdigit()):
        raise typer.BadParameter(f"{name!r} is not a broker id, which is a number", param_hint="NAME")
    return Resource(kind=entity.value, name=name)


def require_broker(admin: Admin, target: Resource) -> None:
    """Refuse a broker that does not exist: librdkafka would wait for it until a timeout."""
    if target.kind != Entity.BROKER:
        return
    there = admin.brokers()
    if int(target.name) not in there:
        ids = ", ".join(str(each) for each in there)
        raise Failure(f"there is no broker {target.name}", f"the cluster has {ids}: see `penstock cluster info`")
