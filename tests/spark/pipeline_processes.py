"""`penstock pipeline` and `penstock demo` as processes: started, inspected, killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.testing.processes import Child
from pyspark_penstock.pipelines.registry import PipelineState, Registry
from spark.spark_processes import SHORT_LIVED_JAVA

RUN = "from penstock.cli.main import run; run()"
SECONDS_MAX = 300.0
POLL_SECONDS = 0.05


def wait_until(is_so: Callable[[], bool], what: str, seconds_max: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds_max:.0f} s: {what}"
        time.sleep(POLL_SECONDS)


def command(*arguments: str) -> list[str]:
    """As a user types it after ``penstock``."""
    return [sys.executable, "-c", RUN, *arguments]


def environment(state: Path, bootstrap: str = "") -> dict[str, str]:
    """What a user has exported."""
    chosen = {"PENSTOCK_BOOTSTRAP": bootstrap} if bootstrap else {}
    return {"PENSTOCK_STATE_DIR": str(state), **chosen, **SHORT_LIVED_JAVA}


def start_pipeline_process(folder: Path, name: str, bootstrap: str, *arguments: str) -> Child:
    """``penstock pipeline ARGUMENTS --name NAME``, with its state in the folder and its output in a file there."""
    chosen = [*arguments, "--name", name, "--master", "local[2]"]
    return Child(
        command("pipeline", *chosen),
        log=folder / f"{name}.log",
        environment=environment(folder / "state", bootstrap),
        folder=folder,
    )


def known_state(folder: Path, name: str) -> PipelineState:
    """The state that ``penstock pipeline status`` shows."""
    registry = Registry(folder / "state")
    found = registry.find(name)
    assert found is not None, f"nothing is known of {name}"
    return registry.judged(found)


def wait_for_batches(child: Child, folder: Path, name: str, count: int = 1) -> None:
    """Whether this very process has reported so many batches."""
    child.wait_until(
        lambda: has_reported(folder / "state", name, child.pid, count), what=f"batch of {name}", seconds_max=SECONDS_MAX
    )


def has_reported(state: Path, name: str, pid: int, batches: int = 1) -> bool:
    """Whether a process has noted so many batches of a pipeline."""
    found = Registry(state).find(name)
    return found is not None and found.pid == pid and sum(each.batches for each in found.queries) >= batches


def session_members(leader: int) -> list[int]:
    """The processes of a session that have not ended: Spark's Python workers have a process group of their own."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def kill_alone(child: Child) -> None:
    """SIGKILL to the process that a user sees; its children must end by themselves."""
    child.send_signal(signal.SIGKILL)
    child.wait(SECONDS_MAX)
    wait_until(lambda: session_members(child.pid) == [], "the end of what a killed pipeline has started")
    child.kill()


def kill_all(child: Child) -> None:
    """SIGKILL to all processes at once, as in a crash of the machine."""
    for pid in session_members(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.kill()
    wait_until(lambda: session_members(child.pid) == [], "the end of a killed session")


def run_command(arguments: list[str], variables: Mapping[str, str], folder: Path) -> Any:
    """The JSON output of a command."""
    done = subprocess.run(
        [*command(*arguments), "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        cwd=folder,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
