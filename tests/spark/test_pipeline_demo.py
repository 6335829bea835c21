"""`penstock demo` from start to Ctrl-C, after one that was killed: it shows figures, and nothing is left of either."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.cli.demo_folder import end_processes
from penstock.testing.processes import port_responds
from spark.pipeline_processes import SECONDS_MAX, command, session_members, wait_until
from spark.spark_processes import SHORT_LIVED_JAVA

STARTED = re.compile(r"sent \d")
FILLED = re.compile(r"windows [1-9].*table [1-9]")


class Demo:
    """One demo in a session of its own, as a terminal starts it."""

    def __init__(self, folder: Path, temporary: Path, *arguments: str) -> None:
        self.errors = folder / f"errors-{len(list(folder.iterdir()))}"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command("demo", "--rate", "200", "-o", "json", *arguments),
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **SHORT_LIVED_JAVA, "TMPDIR": str(temporary)},
                start_new_session=True,
            )

    def wait_for(self, pattern: re.Pattern[str]) -> None:
        def is_printed() -> bool:
            assert self.process.poll() is None, self.errors.read_text()
            return pattern.search(self.errors.read_text()) is not None

        wait_until(is_printed, pattern.pattern)

    def interrupt(self) -> str:
        """Ctrl-C, sent to the whole group as by a terminal; returns the demo's output."""
        os.killpg(self.process.pid, signal.SIGINT)
        output, _ = self.process.communicate(timeout=SECONDS_MAX)
        assert self.process.returncode == 0, self.errors.read_text()
        return output.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=SECONDS_MAX)
        wait_until(lambda: session_members(self.process.pid) == [], "the end of a killed demo's Spark")


def brokers_in(folder: Path) -> list[str]:
    """The command lines of brokers whose data is in a folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if b"penstock.broker" in line and f"{folder}/".encode() in line:
            found.append(line.decode(errors="replace"))
    return found


def left_in(folder: Path) -> list[str]:
    """The remaining files, without the Java wrapper, which is created once per user."""
    return [each.name for each in folder.iterdir() if not each.name.startswith("pyspark-penstock")]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demo_counts_orders_and_leaves_nothing_of_itself_or_of_one_that_was_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    first = Demo(tmp_path, temporary)
    try:
        first.wait_for(STARTED)
        first.kill()
        assert len(left_in(temporary)) == 1
        assert len(brokers_in(temporary)) == 1
        check_demo_after_another(tmp_path, temporary)
    finally:
        first.kill()
        end_processes(temporary)


def check_demo_after_another(tmp_path: Path, temporary: Path) -> None:
    second = Demo(tmp_path, temporary)
    try:
        second.wait_for(FILLED)
        facts = json.loads(second.interrupt())
    finally:
        second.kill()
    errors = second.errors.read_text()
    assert "of a demo that was killed" in errors
    assert not [word for word in ("WARN", "ERROR", "log4j") if word in errors]
    assert facts["sent"] == facts["windowed"] == facts["table_rows"] > 0
    assert not Path(facts["folder"]).exists()
    assert not port_responds(facts["port"])
    assert brokers_in(temporary) == []
    assert left_in(temporary) == []


def servers_in(folder: Path) -> list[str]:
    """The command lines of brokers and ZooKeepers with files in a folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = entry.read_bytes()
            if f"{folder}/".encode() in line and (b"penstock.broker" in line or b"QuorumPeerMain" in line):
                found.append(line.decode(errors="replace"))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demo_of_a_cluster_kills_a_leader_and_counts_every_order_once(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    demo = Demo(tmp_path, temporary, "--brokers", "3", "--seconds", "1")
    try:
        output, _ = demo.process.communicate(timeout=SECONDS_MAX * 2)
        errors = demo.errors.read_text()
        assert demo.process.returncode == 0, errors
    finally:
        demo.kill()
        end_processes(temporary)
    facts = json.loads(output)
    story = [
        rf"kill -9 {facts['loss']['pid']}: broker {facts['loss']['broker']} is gone, which led orders-0",
        rf"s later: broker {facts['loss']['leader']} leads orders-0",
        rf"broker {facts['loss']['broker']} starts again",
        rf"broker {facts['loss']['broker']} has caught up",
        r"no more orders",
    ]
    assert re.search(".*".join(story), errors, re.DOTALL), errors
    assert facts["loss"]["leader"] != facts["loss"]["broker"]
    assert facts["loss"]["is_back"]
    assert facts["sent"] == facts["windowed"] == facts["table_rows"] > 0
    assert facts["doubled"] == 0
    assert left_in(temporary) == []
    assert not [port for port in facts["ports"] if port_responds(port)]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting ZooKeeper", "starting brokers"])
def test_ctrl_c_while_a_cluster_starts_leaves_nothing(tmp_path: Path, moment: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    demo = Demo(tmp_path, temporary, "--brokers", "3")
    try:
        demo.wait_for(re.compile(moment))
        demo.interrupt()
        assert servers_in(temporary) == []
    finally:
        demo.kill()
        end_processes(temporary)
    assert "stopped before it began" in demo.errors.read_text()
    assert left_in(temporary) == []
