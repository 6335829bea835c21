"""`penstock cluster upgrade`: give a cluster the version that all its brokers support."""

from __future__ import annotations

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
from penstock.cli.output import Number, say, show_json, show_table
from penstock.client.cluster import BrokerInfo, describe_cluster
from penstock.client.cluster_version import change_version
from penstock.client.wire_calls import WireCalls
from penstock.model.cluster_versions import BEFORE_VERSIONS, FEATURE, FIRST, LEVELS, UpgradeType, VersionRange

COLUMNS = (Number("broker"), "host", Number("port"), "supports", Number("finalized"))


def upgrade(
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="VERSION", help="Which; the latest that all brokers support.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done only.")] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Finalize the version of a cluster, once every broker runs the new penstock.

    Until then brokers write what those of the version before can read, so a broker can still go back. Shows what each
    broker supports, and asks first: most versions have no way back.
    """
    where = connection(bootstrap, properties)
    found = describe_cluster(where)
    brokers = {each.broker_id: each for each in found.brokers}
    for each in brokers.values():
        if each.versions is None:
            raise Failure(f"broker {each.broker_id} does not say which versions it supports: {each.why}")
    ranges = {number: range_of(each) for number, each in brokers.items()}
    now = max((finalized_by(each) for each in brokers.values()), default=FIRST)
    wanted = min((each.highest for each in ranges.values()), default=FIRST) if to is None else to
    report: dict[str, Any] = {
        "cluster_id": found.cluster_id,
        "finalized": now,
        "wanted": wanted,
        "brokers": [
            {"broker": number, "lowest": each.lowest, "highest": each.highest} for number, each in ranges.items()
        ],
        "changed": False,
    }
    if output is OutputFormat.TABLE:
        show_table(COLUMNS, [row(each, ranges[number]) for number, each in brokers.items()])
        say("", f"the cluster has version {now}")
    if wanted == now:
        done(output, report, "there is nothing to do: it is the latest that all brokers support" if to is None else "")
        return
    behind = [number for number, each in ranges.items() if wanted > each.highest]
    if behind:
        # Also where the controller is of a version that does not know versions.
        raise Failure(
            f"broker {behind[0]} supports version {ranges[behind[0]]} and not {wanted}",
            "replace each broker with the new version of penstock first, then finalize the version",
        )
    how = UpgradeType.UPGRADE if wanted > now else UpgradeType.SAFE_DOWNGRADE
    with WireCalls(where) as calls:
        # Refused before anything is asked.
        change_version(calls, wanted, upgrade_type=how, validate_only=True)
        if output is OutputFormat.TABLE:
            for line in news(now, wanted):
                say(line)
        if dry_run:
            done(output, report, f"version {wanted} can be finalized; nothing is changed")
            return
        confirm(f"give the cluster version {wanted}?", yes)
        change_version(calls, wanted, upgrade_type=how)
    done(output, {**report, "changed": True}, f"the cluster has version {wanted}")


def range_of(broker: BrokerInfo) -> VersionRange:
    """What a broker supports; one from before versions does not say so."""
    assert broker.versions is not None, "checked by the caller"
    found = broker.versions.supported.get(FEATURE)
    return BEFORE_VERSIONS if found is None else VersionRange(lowest=found[0], highest=found[1])


def finalized_by(broker: BrokerInfo) -> int:
    assert broker.versions is not None, "checked by the caller"
    return broker.versions.features.get(FEATURE, FIRST)


def row(broker: BrokerInfo, range_: VersionRange) -> tuple[object, ...]:
    return (broker.broker_id, broker.host, broker.port, str(range_), finalized_by(broker))


def news(now: int, wanted: int) -> list[str]:
    """What a cluster gets with each version on the way."""
    lines: list[str] = []
    for level in range(now + 1, wanted + 1):
        known = LEVELS.get(level)
        if known is not None:
            lines.append(f"{level}: {known.adds}{'; there is no way back' if known.one_way else ''}")
    return lines


def done(output: OutputFormat, report: dict[str, Any], text: str) -> None:
    if output is OutputFormat.JSON:
        show_json(report)
    elif text:
        say(text)
