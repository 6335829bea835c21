"""Transactions while brokers are killed: the history of every client is checked for every kind of anomaly."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.segment_file import log_files, verify_segment
from penstock.testing.histories import check, forbidden, load
from penstock.testing.histories.workload import Plan, Workload
from protocol.topics import create_topic, wait_until
from soak_time import kills

KILLS = kills(few=5)
"""In one run; two hundred take some minutes."""
FIXED_SEED = 20_261_115
PROGRESS_SECONDS_MAX = 150.0
PROGRESS_MAX = 30
PAUSE_SECONDS_MAX = 0.05


def killed_while_working(broker: Any, randomness: random.Random, path: Path, *, count: int, **plan: Any) -> Workload:
    """Run the workload and kill the broker repeatedly, each time after some operations have succeeded."""
    create_topic(broker.bootstrap, "history", partitions=3)
    workload = Workload(Plan(bootstrap=broker.bootstrap, topic="history", **plan), path, randomness)
    workload.start()
    try:
        for _ in range(count):
            goal = workload.recorder.counts["ok"] + randomness.randrange(1, PROGRESS_MAX)
            wait_until(
                lambda: workload.recorder.counts["ok"] >= goal,  # noqa: B023
                what="operations that came through after a restart",
                seconds_max=PROGRESS_SECONDS_MAX,
            )
            time.sleep(randomness.random() * PAUSE_SECONDS_MAX)
            broker.kill()
            broker.start()
    finally:
        workload.finish()
    return workload


def check_files(broker: Any) -> None:
    """The files on the disk are consistent, too: a short history may never read a wrong index."""
    broker.stop()
    segments = log_files(broker.data)
    assert segments
    for segment in segments:
        verify_segment(segment)


def check_history(path: Path) -> None:
    wrong = forbidden(check(load(path)))
    assert not wrong, f"{len(wrong)} anomalies in {path}\n" + "\n".join(str(anomaly) for anomaly in wrong[:20])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_fixed_series_of_kills_leaves_a_history_without_anomalies(start_broker: Any, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"

    broker = start_broker()

    workload = killed_while_working(broker, random.Random(FIXED_SEED), path, count=KILLS)

    assert workload.recorder.counts["ok"] > KILLS
    check_history(path)
    check_files(broker)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kills_at_random_leave_a_history_without_anomalies(
    start_broker: Any, randomness: random.Random, tmp_path: Path, protocol: str
) -> None:
    path = tmp_path / "history.jsonl"
    broker = start_broker()

    killed_while_working(broker, randomness, path, count=KILLS, group_protocol=protocol)

    check_history(path)
    check_files(broker)
