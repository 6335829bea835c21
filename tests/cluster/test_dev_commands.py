"""`penstock dev up` and the commands beside it, as people use them: one real cluster for the module."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.processes import Child, Deadline, free_ports_in_a_row, port_responds, process_state

pytestmark = pytest.mark.xdist_group("zookeeper")
PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")
SECONDS_MAX = 120.0
BROKERS = 3
FAST = ("--set", "broker.session.timeout.ms=2000", "--set", "offsets.topic.num.partitions=2")


class Dev:
    """A running `dev up`, and the commands on its directory."""

    def __init__(self, data: Path, log: Path, *arguments: str) -> None:
        self.data = data
        self.port = free_ports_in_a_row(BROKERS)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in range(self.port, self.port + BROKERS))
        self.up = Child(
            (*PENSTOCK, "dev", "up", "--port", str(self.port), "--data", str(data), *FAST, *arguments), log=log
        )

    def wait_until_ready(self) -> None:
        self.up.wait_until(lambda: "ready; Ctrl-C" in self.up.tail(), what="ready", seconds_max=SECONDS_MAX)

    def run(self, *arguments: str, status: int = 0) -> str:
        done = run("dev", *arguments, "--data", str(self.data))
        assert done.returncode == status, f"{arguments}: {done.stdout}{done.stderr}\n{self.up.tail()}"
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "-o", "json"))
        return found

    def broker(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["brokers"][number - 1]
        return found

    def until(self, number: int, **facts: object) -> dict[str, Any]:
        """The broker's entry, once it has these facts."""
        deadline = Deadline(SECONDS_MAX)
        while True:
            found = self.broker(number)
            if facts.items() <= found.items():
                return found
            assert not deadline.passed, f"{found}\n{self.up.tail()}"
            time.sleep(0.2)

    def pids(self) -> list[int]:
        found = self.status()
        return [each["pid"] for each in (*found["brokers"], *found["zookeepers"])]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PENSTOCK, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    folder = tmp_path_factory.mktemp("dev")
    started = Dev(folder / "cluster", folder / "up.log")
    with started.up:
        started.wait_until_ready()
        yield started


def test_it_is_ready_when_all_brokers_are_live_and_there_is_a_controller(dev: Dev) -> None:
    found = dev.status()
    assert [each["state"] for each in found["brokers"]] == ["live"] * BROKERS
    assert found["controller"] in (1, 2, 3)
    assert [each["address"] for each in found["brokers"]] == dev.bootstrap.split(",")
    assert found["zookeepers"][0]["state"] == "standalone"
    assert "controller" in dev.run("status")


def test_topics_have_three_replicas_by_default(dev: Dev) -> None:
    done = run("topic", "create", "orders", "-p", "3", "-b", dev.bootstrap)
    assert done.returncode == 0, done.stderr
    assert [dev.until(number, in_sync=3)["replicas"] for number in (1, 2, 3)] == [3, 3, 3]


def test_a_killed_broker_is_stopped_until_it_is_restarted(dev: Dev) -> None:
    before = dev.broker(2)["pid"]
    dev.run("kill", "2")
    dev.until(2, state="stopped", pid=None, leaders=0)
    assert "does not run" in dev.run("pause", "2", status=1)

    dev.run("restart", "2")
    after = dev.until(2, state="live")
    assert after["pid"] != before
    dev.until(2, in_sync=after["replicas"])


def test_a_paused_broker_goes_on_when_it_is_resumed(dev: Dev) -> None:
    before = dev.broker(3)["pid"]
    dev.run("pause", "3")
    dev.until(3, state="paused")
    dev.run("resume", "3")
    assert dev.until(3, state="live")["pid"] == before


def test_a_running_broker_can_be_restarted(dev: Dev) -> None:
    before = dev.broker(1)["pid"]
    dev.run("restart", "1")
    assert dev.until(1, state="live")["pid"] != before


def test_logs_show_each_broker_with_its_id(dev: Dev) -> None:
    assert all(line.startswith("2 | ") for line in dev.run("logs", "2", "-n", "3").splitlines())
    assert {line[:4] for line in dev.run("logs", "-n", "1").splitlines()} == {"1 | ", "2 | ", "3 | "}


def test_a_second_cluster_on_the_same_directory_is_refused(dev: Dev) -> None:
    assert f"already (process {dev.up.pid})" in dev.run("up", status=1)


def test_an_unknown_broker_is_refused(dev: Dev) -> None:
    assert "the brokers are 1 to 3" in dev.run("kill", "4", status=1)


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    for command in (("status",), ("kill", "1"), ("restart", "1"), ("logs",)):
        done = run("dev", *command, "--data", str(tmp_path))
        assert done.returncode == 1
        assert "dev up --data" in done.stderr


def test_a_stop_ends_every_process_and_keeps_the_data_which_fresh_removes(tmp_path: Path) -> None:
    data, log = tmp_path / "cluster", tmp_path / "up.log"
    with (first := Dev(data, log)).up:
        first.wait_until_ready()
        assert run("topic", "create", "kept", "-b", first.bootstrap).returncode == 0
        pids = first.pids()
        first.up.send_signal(signal.SIGINT)
        assert first.up.wait(SECONDS_MAX) == 0, first.up.tail()
    assert [pid for pid in pids if process_state(pid)] == []
    assert "stopped" in first.run("status")
    refused = run("dev", "up", "--data", str(data), "--zookeepers", "3")
    assert refused.returncode == 1
    assert "--zookeepers 1, or --fresh" in refused.stderr

    with (second := Dev(data, tmp_path / "second.log")).up:
        second.wait_until_ready()
        assert "kept" in run("topic", "list", "-b", second.bootstrap).stdout
        orphans = second.pids()
        os.kill(second.up.pid, signal.SIGKILL)
        second.up.wait(SECONDS_MAX)
        assert port_responds(second.port), "children outlive a killed parent"

    with (third := Dev(data, tmp_path / "third.log", "--fresh")).up:
        third.wait_until_ready()
        assert [pid for pid in orphans if process_state(pid)] == []
        assert json.loads(run("topic", "list", "-b", third.bootstrap, "-o", "json").stdout) == []
