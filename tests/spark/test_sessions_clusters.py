"""Where users run Spark: a standalone cluster and a Connect server, both from the files that pip installed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock.testing.broker_process import PenstockProcess
from spark.cluster_program import ROWS, SECRET
from spark.cutting import CLIENT, PRODUCE, Cut, CuttingProxy
from spark.spark_processes import (
    DRIVER_SECONDS_MAX,
    connect_server,
    driver,
    executor_of,
    standalone_cluster,
)
from spark.topic_contents import make_topic, values

# Each of the four tasks of the batch write sends one request, so the fifth is of the stream.
AN_EXECUTOR_OF_THE_STREAM = Cut(PRODUCE, 5, True, CLIENT)
EXPECTED = sorted(f"value-{index}" for index in range(ROWS))


def runs_there(kind: str, address: str, bootstrap: str, folder: Path) -> None:
    """The program writes, reads and streams, and what it wrote is there once."""
    topic, copy = (make_topic(bootstrap, partitions=2) for _ in range(2))
    arguments = (kind, address, bootstrap, topic, copy, str(folder))
    child = driver(folder, *arguments, program="cluster_program.py")
    assert child.wait(DRIVER_SECONDS_MAX) == 0, child.tail()
    child.kill()

    output = (folder / "driver.log").read_text(errors="replace")
    assert f"read {ROWS}" in output
    assert "copied" in output
    assert "Physical Plan" in output
    assert sorted(values(bootstrap, topic)) == EXPECTED
    assert sorted(values(bootstrap, copy)) == EXPECTED


def files_with(secret: str, folder: Path) -> list[Path]:
    """Files of these folders, event logs among them, that hold the secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "stderr" for path in files), "no log of an executor"
    assert any(path.name.startswith("events_") for path in files), "no event log"
    return [path for path in files if secret.encode() in path.read_bytes()]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_standalone_cluster_writes_and_reads_and_survives_the_loss_of_an_executor(tmp_path: Path) -> None:
    with CuttingProxy() as proxy, standalone_cluster(tmp_path) as master:
        proxy.kill_client = lambda pid: os.kill(executor_of(pid), signal.SIGKILL)
        proxy.arm(AN_EXECUTOR_OF_THE_STREAM)

        runs_there("master", master, proxy.bootstrap, tmp_path)

        assert proxy.fired
    assert files_with(SECRET, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_connect_client_writes_and_reads(broker: PenstockProcess, tmp_path: Path) -> None:
    with connect_server(tmp_path) as address:
        runs_there("remote", address, broker.bootstrap, tmp_path)
