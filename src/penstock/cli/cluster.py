"""`penstock cluster`: the brokers, the controller, partitions, versions, and brokers that come and go."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.drain import drain, remove
from penstock.cli.options import BOOTSTRAP, BootstrapOption, OutputFormat, OutputOption, PropertyOption, connection
from penstock.cli.output import Number, counted, note, say, show_json, show_table
from penstock.cli.rebalance import rebalance
from penstock.cli.upgrade import upgrade
from penstock.client.broker_requests import cordoned_brokers
from penstock.client.cluster import BrokerInfo, describe_cluster
from penstock.client.cluster_state import ClusterState, TopicHealth, state_of, topics_health, waiting_topics

app = typer.Typer(
    help="Show a cluster's brokers and what partitions lack; upgrade it; even out, empty and remove brokers.",
    no_args_is_help=True,
    add_completion=False,
)
COLUMNS = (Number("broker"), "host", Number("port"), "rack", "controller", Number("apis"), "features")
STATUS_COLUMNS = (
    Number("broker"),
    "host",
    Number("port"),
    "rack",
    "controller",
    Number("leaders"),
    Number("replicas"),
    Number("in_sync"),
    "drain",
)
TOPIC_COLUMNS = (
    "topic",
    Number("partitions"),
    Number("replicas"),
    Number("offline"),
    Number("under_replicated"),
    Number("under_min_isr"),
)


app.command()(upgrade)
app.command()(rebalance)
app.command()(drain)
app.command()(remove)


@app.callback()
def cluster() -> None:
    """Show a cluster's brokers and what partitions lack; upgrade it; even out, empty and remove brokers."""


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


@app.command()
def status(
    every: Annotated[bool, typer.Option("--all", "-a", help="Show topics that lack nothing, too.")] = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show each broker's leaders and replicas, and the topics with offline or under-replicated partitions.

    A partition is offline without a leader, under-replicated if a replica is not in sync, and under min ISR if acks=all
    is refused. A broker that is down is known only by the replicas assigned to it. One that is being drained gets no
    new replicas; it is drained when it has none. -o json has every topic.
    """
    where = connection(bootstrap, properties)
    state = state_of(where)
    topics = topics_health(state, where)
    waiting = waiting_topics(state, where)
    cordoned = cordoned_brokers(state, where)
    if output is OutputFormat.JSON:
        show_json({**status_json(state, topics, cordoned), "waiting": list(waiting)})
        return
    led = "no controller" if state.controller is None else f"controller {state.controller}"
    say(f"cluster {state.cluster_id}  {counted(len(state.brokers), 'broker')}  {led}")
    show_table(STATUS_COLUMNS, broker_states(state, cordoned))
    say("", totals_text(topics))
    shown = [each for each in topics if every or not each.is_healthy]
    if shown:
        show_table(TOPIC_COLUMNS, [topic_row(each) for each in shown])
    for each in waiting:
        say(each)


def broker_states(state: ClusterState, cordoned: frozenset[int]) -> list[tuple[object, ...]]:
    """The live brokers, then those that are only known by the replicas assigned to them."""
    leaders, replicas, in_sync = state.leaders(), state.replicas(), state.in_sync()
    rows: list[tuple[object, ...]] = []
    for each in state.brokers:
        number = each.broker_id
        place = (number, each.host, each.port, each.rack, number == state.controller)
        drained = None if number not in cordoned else "draining" if replicas[number] else "drained"
        rows.append((*place, leaders[number], replicas[number], in_sync[number], drained))
    rows += (
        (number, "(down)", None, None, False, leaders[number], replicas[number], in_sync[number], None)
        for number in sorted(set(replicas) - state.live)
    )
    return rows


def totals_text(topics: tuple[TopicHealth, ...]) -> str:
    partitions = sum(each.partitions for each in topics)
    found = {
        "offline": sum(each.offline for each in topics),
        "under-replicated": sum(each.under_replicated for each in topics),
        "under min ISR": sum(each.under_min_isr for each in topics),
    }
    trouble = ", ".join(f"{count:,} {word}" for word, count in found.items() if count)
    return f"{counted(len(topics), 'topic')}, {counted(partitions, 'partition')}: {trouble or 'all in sync'}"


def topic_row(topic: TopicHealth) -> tuple[object, ...]:
    counts = (topic.partitions, topic.replicas, topic.offline, topic.under_replicated, topic.under_min_isr)
    return (topic.topic, *counts)


def status_json(
    state: ClusterState, topics: tuple[TopicHealth, ...], cordoned: frozenset[int] = frozenset()
) -> dict[str, Any]:
    names = [str(column) for column in STATUS_COLUMNS]
    rows = [dict(zip(names, row, strict=True)) for row in broker_states(state, cordoned)]
    brokers = [{**row, "live": row["port"] is not None, "host": row["host"] if row["port"] else None} for row in rows]
    return {
        "cluster_id": state.cluster_id,
        "controller": state.controller,
        "offline": sum(each.offline for each in topics),
        "under_replicated": sum(each.under_replicated for each in topics),
        "under_min_isr": sum(each.under_min_isr for each in topics),
        "brokers": brokers,
        "topics": [asdict(each) for each in topics],
    }


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
