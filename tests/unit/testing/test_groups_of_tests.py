"""Tests that share a server or follow one another name a group, and the runner keeps a group in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GROUPED = """
import os
from pathlib import Path
import pytest

pytestmark = pytest.mark.xdist_group("one")

@pytest.mark.parametrize("number", range(6))
def test_where(number):
    Path(__file__).with_name(f"ran-in-{os.getpid()}").touch()
"""


def test_a_group_of_tests_runs_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-c"]

    ran = subprocess.run([*command, "/dev/null", "--rootdir", tmp_path, tmp_path], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(list(tmp_path.glob("ran-in-*"))) == 1
