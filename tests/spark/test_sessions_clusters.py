"""Where users run Spark: a Connect server on a standalone cluster, all of it from the files that pip installed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from spark.cluster_program import ROWS, SECRET
from spark.cutting import CLIENT, PRODUCE, Cut, CuttingProxy
from spark.spark_processes import DRIVER_SECONDS_MAX, connect_server, driver, executor_of, standalone_cluster
from spark.topic_contents import make_topic, values

# Each of the four tasks of the batch write sends one request, so the fifth is of the stream.
AN_EXECUTOR_OF_THE_STREAM = Cut(PRODUCE, 5, True, CLIENT)
EXPECTED = sorted(f"value-{index}" for index in range(ROWS))


def logs_with(secret: str, folder: Path) -> list[Path]:
    """Files of this folder, logs of executors among them, that hold the secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "stderr" for path in files), "no log of an executor"
    return [path for path in files if secret.encode() in path.read_bytes()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_client_of_a_cluster_writes_and_reads_through_the_loss_of_an_executor_and_its_secrets_stay_its_own(
    tmp_path: Path,
) -> None:
    with (
        CuttingProxy() as proxy,
        standalone_cluster(tmp_path) as master,
        connect_server(tmp_path, master) as address,
    ):
        topic, copy = (make_topic(proxy.bootstrap, partitions=2) for _ in range(2))
        proxy.kill_client = lambda pid: os.kill(executor_of(pid), signal.SIGKILL)
        proxy.arm(AN_EXECUTOR_OF_THE_STREAM)

        child = driver(tmp_path, address, proxy.bootstrap, topic, copy, str(tmp_path), program="cluster_program.py")
        assert child.wait(DRIVER_SECONDS_MAX) == 0, child.tail()
        child.kill()

        assert proxy.fired
        output = (tmp_path / "driver.log").read_text(errors="replace")
        assert f"read {ROWS}" in output
        assert "copied" in output
        assert "Physical Plan" in output
        assert sorted(values(proxy.bootstrap, topic)) == EXPECTED
        assert sorted(values(proxy.bootstrap, copy)) == EXPECTED
    assert logs_with(SECRET, tmp_path) == []
