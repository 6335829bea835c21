"""`penstock schedule`, and the times that `penstock produce` takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from protocol.topics import attempts, create_topic, fresh_name
from protocol.under_test import Broker

pytestmark = [pytest.mark.xdist_group("schedules"), pytest.mark.penstock_only]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(broker: Broker) -> Run:
    def penstock(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from penstock.cli.main import run; run()", *words],
            env={**os.environ, "PENSTOCK_BOOTSTRAP": broker.bootstrap},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done

    return penstock


def test_schedules_are_made_listed_moved_and_cancelled_from_the_command_line(broker: Broker, run: Run) -> None:
    target = fresh_name("cli")
    later = f"{target}-later"
    create_topic(broker.bootstrap, target)
    refused = run("produce", target, "-v", "x", "--delay", "1h30m", code=1)
    assert f"topic create {later} --config schedule.target={target}" in refused.stderr
    create_topic(broker.bootstrap, later, configs={"schedule.target": target})

    run("produce", target, "-k", "c7", "-v", "far", "--at", "2030-01-01T00:00Z", "--id", "far")
    run("produce", target, "-v", "soon", "--delay", "0s", "--id", "soon")
    run("schedule", "move", later, "far", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin")
    run("schedule", "pause", later, "far")

    [listed] = json.loads(run("schedule", "list", later, "-o", "json").stdout)
    assert (listed["id"], listed["due"], listed["repeats"]) == ("far", "paused", "0 9 * * MON Europe/Berlin")
    run("schedule", "cancel", later, "far")
    for _ in attempts(what="the end of the schedule that is due"):
        events = [each["event"] for each in json.loads(run("schedule", "show", later, "soon", "-o", "json").stdout)]
        if events[-1] == "delivered":
            break
    assert events == ["scheduled", "fired to partition 0", "done", "delivered"]
    events = [each["event"] for each in json.loads(run("schedule", "show", later, "far", "-o", "json").stdout)]
    assert events == ["scheduled", "scheduled", "scheduled", "cancelled"]


def test_a_change_after_the_fire_is_shown_as_too_late() -> None:
    from penstock.cli.schedule import rows_of
    from penstock.model.ids import Offset, ProducerEpoch, ProducerId, TopicId
    from penstock.wire.records import Record, build_batch, iter_batches
    from penstock.wire.schedule_records import Fire, Named, build_fires

    named = (Named(Offset(0), 5),)
    batches = [
        build_batch([Record(0, 1, b"k", b"v", [("penstock-deliver-at", b"5")])]),
        build_fires([Fire(6, TopicId(b"t" * 16), 3, ProducerId(1), ProducerEpoch(0), 0, named)]),
        build_batch([Record(0, 7, b"k", None)]),
    ]

    rows = rows_of(((header, bytes(batch)) for batch in batches for _, header in iter_batches(batch)), b"k", 0)

    assert [event for _, event, *_ in rows] == [
        "scheduled",
        "fired to partition 3",
        "cancelled, too late: it was fired already",
    ]


def test_times_that_were_skipped_are_shown_as_skipped() -> None:
    from penstock.cli.schedule import rows_of
    from penstock.wire.records import Record, build_batch, iter_batches

    skipped = [("penstock-fire", b"-1")]
    batches = [
        build_batch([Record(0, 1, b"k", b"v", [("penstock-cron", b"0 * * * *")])]),
        build_batch([Record(0, 7, b"k", b"v", [("penstock-cron", b"0 * * * *"), *skipped])]),
        build_batch([Record(0, 8, b"k", None, skipped)]),
    ]

    rows = rows_of(((header, bytes(batch)) for batch in batches for _, header in iter_batches(batch)), b"k", 0)

    assert [event for _, event, *_ in rows] == ["scheduled", "skipped, goes on", "skipped, done"]
