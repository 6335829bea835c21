"""`penstock check`: the health of a cluster in one line and an exit code, for monitoring."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any

import typer

from penstock.cli.options import BOOTSTRAP, BootstrapOption, OutputFormat, OutputOption, PropertyOption, connection
from penstock.cli.output import counted, say, show_json
from penstock.client.admin import Admin
from penstock.client.cluster_state import ClusterState, TopicHealth, is_offline, state_of, topics_health, waiting_topics
from penstock.client.connection import Connection
from penstock.client.failures import ClientError
from penstock.client.groups import Groups, Place

SECONDS_DEFAULT = 5.0
NAMES_MAX = 5


class Severity(IntEnum):
    """The exit code, as Nagios and its heirs read it."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    severity: Severity
    text: str


def check(
    lag_max: Annotated[
        int | None, typer.Option("--lag-max", min=0, help="Warn if a group is more records than this behind.")
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only this group's lag; repeat for more.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=600, help="Seconds for each request.")
    ] = SECONDS_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Check a cluster: one line, and an exit code for monitoring.

    0: all is well. 1: under-replicated partitions, coordinators that wait for more brokers, or a group's lag above
    --lag-max. 2: no broker responds, there is no controller, or partitions are offline or refuse acks=all for lack of
    in-sync replicas.
    """
    where = connection(bootstrap, properties)
    facts: dict[str, Any] = {}
    try:
        state = state_of(where, timeout)
        topics = topics_health(state, where, timeout)
        facts = figures(state, topics)
        problems = problems_of(state, topics)
        waiting = waiting_topics(state, where, timeout)
        problems += (Problem(severity=Severity.WARNING, text=each) for each in waiting)
        if lag_max is not None:
            lags = group_lags(where, state, groups, timeout)
            facts["lag"] = lags
            problems += lag_problems(lags, lag_max)
    except ClientError as error:
        problems = [Problem(severity=Severity.CRITICAL, text=str(error))]
    worst = max((each.severity for each in problems), default=Severity.OK)
    if output is OutputFormat.JSON:
        found = [{"severity": each.severity.name.lower(), "problem": each.text} for each in problems]
        show_json({"status": worst.name.lower(), "code": int(worst), "problems": found, **facts})
    else:
        ordered = sorted(problems, key=lambda each: -each.severity)
        say(f"{worst.name}: {'; '.join(each.text for each in ordered) or summary(facts)}")
    raise typer.Exit(int(worst))


def problems_of(state: ClusterState, topics: Iterable[TopicHealth]) -> list[Problem]:
    """What is wrong with the brokers and the partitions."""
    found: list[Problem] = []
    health = tuple(topics)
    if state.controller is None:
        found.append(Problem(severity=Severity.CRITICAL, text="no controller"))
    for count, words, severity, lacking in (
        (sum(each.offline for each in health), "offline", Severity.CRITICAL, [t for t in health if t.offline]),
        (
            sum(each.under_min_isr for each in health),
            "under min ISR",
            Severity.CRITICAL,
            [t for t in health if t.under_min_isr],
        ),
        (
            sum(each.under_replicated for each in health),
            "under-replicated",
            Severity.WARNING,
            [t for t in health if t.under_replicated],
        ),
    ):
        if count:
            text = f"{counted(count, 'partition')} {words} ({names(each.topic for each in lacking)})"
            found.append(Problem(severity=severity, text=text))
    return found


def lag_problems(lags: dict[str, int], lag_max: int) -> list[Problem]:
    behind = {name: lag for name, lag in lags.items() if lag > lag_max}
    return [
        Problem(severity=Severity.WARNING, text=f"group {name} is {counted(lag, 'record')} behind")
        for name, lag in sorted(behind.items(), key=lambda each: -each[1])[:NAMES_MAX]
    ]


def group_lags(
    where: Connection, state: ClusterState, wanted: Iterable[str] | None, seconds_max: float
) -> dict[str, int]:
    """The lag of each group over the partitions that have a leader."""
    groups, admin = Groups(where, seconds_max), Admin(where, seconds_max)
    led = {(topic.name, each.partition) for topic in state.topics for each in topic.partitions if not is_offline(each)}
    committed = {
        name: {place: offset for place, offset in groups.committed(name).items() if place in led}
        for name in (wanted or [each.name for each in groups.list()])
    }
    by_topic: dict[str, set[int]] = {}
    for offsets in committed.values():
        for topic, index in offsets:
            by_topic.setdefault(topic, set()).add(index)
    bounds = {
        (topic, index): held
        for topic, indexes in by_topic.items()
        for index, held in admin.bounds(topic, sorted(indexes)).items()
    }

    def lag(place: Place, offset: int) -> int:
        return max(0, bounds[place].end - max(offset, bounds[place].start))

    return {name: sum(lag(place, offset) for place, offset in found.items()) for name, found in committed.items()}


def figures(state: ClusterState, topics: Iterable[TopicHealth]) -> dict[str, Any]:
    health = tuple(topics)
    return {
        "brokers": sorted(state.live),
        "controller": state.controller,
        "topics": len(health),
        "partitions": sum(each.partitions for each in health),
        "offline": sum(each.offline for each in health),
        "under_replicated": sum(each.under_replicated for each in health),
        "under_min_isr": sum(each.under_min_isr for each in health),
    }


def summary(facts: dict[str, Any]) -> str:
    return (
        f"{counted(len(facts['brokers']), 'broker')}, controller {facts['controller']}, "
        f"{counted(facts['partitions'], 'partition')} in sync"
    )


def names(topics: Iterable[str]) -> str:
    """The first few of the names."""
    listed = list(topics)
    more = f" and {len(listed) - NAMES_MAX} more" if len(listed) > NAMES_MAX else ""
    return ", ".join(listed[:NAMES_MAX]) + more
