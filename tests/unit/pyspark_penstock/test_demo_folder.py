"""A demo removes the files and processes of a killed one, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.demo_folder import make_folder, remove_leftovers
from pyspark_penstock.pipelines.registry import process_started


@pytest.fixture
def sleeper() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that wait forever, killed after the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.communicate()


def wait_for_ever(path: Path) -> subprocess.Popen[bytes]:
    """A process with a path among its arguments; it runs when this returns."""
    program = "print(flush=True); input()"
    made = subprocess.Popen([sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdout is not None
    made.stdout.readline()
    return made


def test_a_folder_names_its_process_and_stays_while_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = make_folder()
    assert folder.name.startswith(f"penstock-demo-{os.getpid()}-{process_started(os.getpid())}-")
    assert remove_leftovers() == []
    assert folder.exists()


def test_the_processes_and_folder_of_a_killed_demo_are_removed(
    tmp_path: Path, sleeper: list[subprocess.Popen[bytes]]
) -> None:
    # The process id is in use by a process that started at another time.
    left = tmp_path / f"penstock-demo-{os.getpid()}-1-abc"
    (left / "data").mkdir(parents=True)
    sleeper += [wait_for_ever(left / "data"), wait_for_ever(tmp_path / "elsewhere" / "data")]
    assert remove_leftovers(tmp_path) == [left]
    assert not left.exists()
    assert sleeper[0].wait(60) == -9
    assert sleeper[1].poll() is None


def test_folders_with_other_names_are_not_touched(tmp_path: Path) -> None:
    kept = tmp_path / "penstock-demo-mine"
    kept.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    link = tmp_path / f"penstock-demo-{os.getpid()}-1-link"
    link.symlink_to(target)
    assert remove_leftovers(tmp_path) == []
    assert kept.exists()
    assert link.exists()


def test_a_folder_of_another_user_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / f"penstock-demo-{os.getpid()}-1-abc"
    planted.mkdir()
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)

    assert remove_leftovers(tmp_path) == []
    assert planted.exists()
