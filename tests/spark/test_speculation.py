"""Spark starts slow tasks a second time on a real cluster, and the second attempts win: every row is committed once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK
from pyspark_penstock.link import BrokerLink, LinkSettings
from pyspark_penstock.txn_calls import open_transactions
from spark.pipeline_processes import wait_until
from spark.spark_processes import DRIVER_SECONDS_MAX, driver, processes_of, standalone_cluster
from spark.speculation_program import EVENTS, MICRO_BATCHES, PARTITIONS, TASK_ROWS
from spark.topic_contents import make_topic, values

TWO_HOSTS = (LOOPBACK, "127.0.0.2")
"""Spark never starts a speculative attempt on a host that has one of the same task already."""

BATCHES = 1 + MICRO_BATCHES + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one attempt of a task ended, from Spark's event log."""

    stage: int
    task: int
    number: int
    is_speculative: bool
    outcome: str


def attempts(events: Path) -> Iterator[Attempt]:
    for file in events.rglob("events_*"):
        for event in map(json.loads, file.read_text().splitlines()):
            if event["Event"] == "SparkListenerTaskEnd":
                task = event["Task Info"]
                yield Attempt(
                    stage=event["Stage ID"],
                    task=task["Index"],
                    number=task["Attempt"],
                    is_speculative=task["Speculative"],
                    outcome=event["Task End Reason"]["Reason"],
                )


@pytest.mark.slow
def test_of_tasks_that_spark_runs_twice_every_row_is_in_once_and_nothing_stays_open(
    broker: PenstockProcess, tmp_path: Path
) -> None:
    unsent, topic, copy = topics = [make_topic(broker.bootstrap, PARTITIONS, "speculated") for _ in range(3)]

    with standalone_cluster(tmp_path, TWO_HOSTS) as master:
        arguments = (master, broker.bootstrap, *topics, str(tmp_path))
        child = driver(tmp_path, *arguments, program="speculation_program.py")
        try:
            assert child.wait(DRIVER_SECONDS_MAX) == 0, child.tail()
        finally:
            child.kill()

    ended = list(attempts(tmp_path / EVENTS))
    assert len([each for each in ended if each.is_speculative and each.outcome == "Success"]) == BATCHES, ended
    assert len([each for each in ended if each.number == 0 and each.outcome == "TaskKilled"]) == BATCHES, ended
    for name, tasks in ((unsent, PARTITIONS), (topic, PARTITIONS), (copy, MICRO_BATCHES * PARTITIONS)):
        assert sorted(map(int, values(broker.bootstrap, name))) == list(range(tasks * TASK_ROWS))
        with BrokerLink(LinkSettings(bootstrap=broker.bootstrap)) as link:
            assert open_transactions(link, name) == []
    wait_until(lambda: processes_of(tmp_path) == [], "the end of everything that was started")
