"""When to deliver: the options of `penstock produce` and `penstock schedule`, and the topic that they write to."""

from __future__ import annotations

import re
from dataclasses import dataclass

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import require_text
from penstock.client.admin import Admin, Resource
from penstock.client.connection import Connection
from penstock.client.records import Header
from penstock.config.log import SCHEDULE_TARGET
from penstock.schedules.headers import CRON, DELAY, DELIVER_AT, ZONE, BadSchedule, at_time, read

DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DELAY_HELP = "Deliver so much later, such as 90s, 10m, 1h30m or 7d."
AT_HELP = "Deliver then: ISO 8601, such as 2030-01-01T00:00Z, or epoch milliseconds."
CRON_HELP = "Deliver again and again: minute, hour, day of month, month, day of week."
ZONE_HELP = "The time zone of --cron, and of --at without an offset, such as Europe/Berlin; UTC if unset."


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When messages are delivered, as the headers of their schedules."""

    headers: tuple[Header, ...]
    recurs: bool


def when(delay: str | None, at: str | None, cron: str | None, zone: str | None) -> When | None:
    """What the options ask for; None where they ask for nothing."""
    require_text(*(text for text in (delay, at, cron, zone) if text is not None))
    given = [name for name, text in (("--delay", delay), ("--at", at), ("--cron", cron)) if text is not None]
    if not given:
        if zone is not None:
            raise typer.BadParameter("a time zone is for --cron and --at", param_hint="--tz")
        return None
    if len(given) > 1:
        raise typer.BadParameter(f"give one of {' and '.join(given)}")
    headers: list[Header] = [] if zone is None else [(ZONE, zone.encode())]
    if delay is not None:
        headers.append((DELAY, b"%d" % milliseconds(delay)))
    elif at is not None:
        headers.append((DELIVER_AT, at.encode()))
    else:
        headers.append((CRON, (cron or "").encode()))
    try:
        read(b"", headers, 0)
        if at is not None:
            at_time(DELIVER_AT, at.encode(), zone or "UTC")
    except BadSchedule as error:
        raise typer.BadParameter(str(error), param_hint=given[0]) from None
    return When(headers=tuple(headers), recurs=cron is not None)


def milliseconds(text: str) -> int:
    """A duration such as 1h30m."""
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise typer.BadParameter(f"{text!r} is no duration such as 90s, 10m or 1h30m", param_hint="--delay")
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts)


def schedule_topic(where: Connection, target: str) -> str:
    """The topic of schedules of a topic; says how to make one."""
    admin = Admin(where)
    admin.describe(target)
    found = [topic.name for topic in admin.topics() if not topic.internal and target_of(admin, topic.name) == target]
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(
            f"several topics hold schedules of {target}: {', '.join(found)}", "choose one with --via", more=()
        )
    raise Failure(
        f"no topic holds schedules of {target}",
        f"make one: penstock topic create {target}-later --config {SCHEDULE_TARGET}={target}",
    )


def target_of(admin: Admin, topic: str) -> str:
    """The target of a topic of schedules; empty for any other topic."""
    settings = admin.configs(Resource(kind="topic", name=topic))
    return next((each.value or "" for each in settings if each.name == SCHEDULE_TARGET), "")
