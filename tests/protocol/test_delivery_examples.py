"""The examples of delivery do what they promise when they are killed at every step."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from protocol.group_members import QUICK, SECONDS_MAX, committed, fill, numbered
from protocol.topics import fresh_name

BROKER_SETTINGS = QUICK
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
EXAMPLE_NAMES = ("at_most_once.py", "at_least_once.py")
SIDE_BY_SIDE = "side_by_side.py"
KILLER = Path(__file__).parent / "killed_at_a_step.py"
SIDE_BY_SIDE_SECONDS_MAX = 500
MESSAGES = 6
KILLED_AT = 3
"""Which message of a run meets the kill: the first and second get through."""
STEPS = ("polled", "before-commit", "after-commit", "before-process", "after-process")


def run(broker: Any, example: str, topic: str, group: str, ledger: Path, *, step: str, number: int, count: int) -> int:
    command = [sys.executable, str(KILLER), str(EXAMPLES / example), step, str(number)]
    command += ["--bootstrap", broker.bootstrap, "--topic", topic, "--group", group, "--instance", "one"]
    command += ["--ledger", str(ledger), "--count", str(count)]
    return subprocess.run(command, timeout=SECONDS_MAX, check=False, capture_output=True).returncode


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_killed_at_a_step_it_loses_or_repeats_only_what_it_promises(
    broker: Any, topic: str, tmp_path: Path, example: str, step: str
) -> None:
    fill(broker, topic, numbered(MESSAGES))
    group, ledger = fresh_name(f"{example}-{step}"), tmp_path / "ledger.txt"

    killed = run(broker, example, topic, group, ledger, step=step, number=KILLED_AT, count=MESSAGES)
    assert killed == -signal.SIGKILL
    behind = max(committed(broker, group, topic, 1)[0], 0)
    ended = run(broker, example, topic, group, ledger, step=step, number=0, count=MESSAGES - behind)
    assert ended == 0

    done = Counter(int(line) for line in ledger.read_text().splitlines())
    victim = KILLED_AT - 1
    lost = [number for number in range(MESSAGES) if done[number] == 0]
    doubled = [number for number, times in done.items() if times > 1]
    if example == "at_most_once.py":
        assert not doubled
        assert lost == ([victim] if step in ("after-commit", "before-process") else [])
    else:
        assert not lost
        assert doubled == ([victim] if step in ("before-commit", "after-process") else [])
    assert committed(broker, group, topic, 1) == [MESSAGES]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_side_by_side_each_loses_and_doubles_only_what_it_may(broker: Any) -> None:
    command = [sys.executable, str(EXAMPLES / SIDE_BY_SIDE), "--bootstrap", broker.bootstrap]
    command += ["--messages", "800", "--kills", "3", "--seed", "5"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SIDE_BY_SIDE_SECONDS_MAX)

    rows = [line.split() for line in ran.stdout.splitlines()[3:]]
    lost = {name: int(count) for name, count, _ in rows}
    doubled = {name: int(count) for name, _, count in rows}
    assert set(lost) == {"at_most_once", "at_least_once", "read_process_write"}
    assert doubled["at_most_once"] == lost["at_least_once"] == 0
    assert lost["read_process_write"] == doubled["read_process_write"] == 0
    # One message is under way at a time, so that a kill costs one at most.
    assert lost["at_most_once"] <= 3
    assert doubled["at_least_once"] <= 3


@pytest.mark.parametrize("example", [*EXAMPLE_NAMES, SIDE_BY_SIDE])
def test_an_example_says_how_it_is_used(example: str) -> None:
    shown = subprocess.run(
        [sys.executable, str(EXAMPLES / example), "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )

    assert "python examples/" in shown.stdout
