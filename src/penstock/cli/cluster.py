"""`penstock cluster`: the brokers, the controller, and their versions."""

from __future__ import annotations

from typing import Any

import typer

from penstock.cli.options import BOOTSTRAP, BootstrapOption, OutputFormat, OutputOption, PropertyOption, connection
from penstock.cli.output import Number, counted, note, say, show_json, show_table
from penstock.client.cluster import BrokerInfo, describe_cluster

app = typer.Typer(
    help="Show the brokers of a cluster, its controller and their versions.", no_args_is_help=True, add_completion=False
)
COLUMNS = (Number("broker"), "host", Number("port"), "rack", "controller", Number("apis"), "features")


@app.callback()
def cluster() -> None:
    """Show the brokers of a cluster, its controller and their versions."""


@app.command()
def info(
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show the cluster's id, its controller, and each broker's address, requests and feature levels.

    With -o json, every broker has the range of versions of each request too.
    """
    found = describe_cluster(connection(bootstrap, properties))
    if output is OutputFormat.JSON:
        brokers = [broker_json(each) for each in found.brokers]
        show_json({"cluster_id": found.cluster_id, "controller": found.controller, "brokers": brokers})
        return
    led = "no controller" if found.controller is None else f"controller {found.controller}"
    say(f"cluster {found.cluster_id}  {counted(len(found.brokers), 'broker')}  {led}")
    show_table(COLUMNS, [broker_row(each, found.controller) for each in found.brokers])
    for why in dict.fromkeys(each.why for each in found.brokers if each.why):
        note(why)


def broker_row(broker: BrokerInfo, controller: int | None) -> tuple[object, ...]:
    versions = broker.versions
    features = None if versions is None else [f"{name}={level}" for name, level in sorted(versions.features.items())]
    return (
        broker.broker_id,
        broker.host,
        broker.port,
        broker.rack,
        broker.broker_id == controller,
        None if versions is None else len(versions.apis),
        features,
    )


def broker_json(broker: BrokerInfo) -> dict[str, Any]:
    versions = broker.versions
    return {
        "broker": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "features": None if versions is None else versions.features,
        "apis": None
        if versions is None
        else {name: {"min": low, "max": high} for name, (low, high) in versions.apis.items()},
    }
