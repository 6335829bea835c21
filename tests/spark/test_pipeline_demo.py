"""`penstock demo` from start to Ctrl-C: it shows figures, and nothing is left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.testing.processes import port_answers

RUN = "from penstock.cli.main import run; run()"
DEMO_SECONDS_MAX = 120.0
FILLED = re.compile(r"windows [1-9].*table [1-9]")


def group_members(group: int) -> list[int]:
    """The processes of a process group that have not ended."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def test_the_demo_counts_orders_and_leaves_nothing_behind(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "demo", "--rate", "200", "-o", "json"],
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            start_new_session=True,
        )
    deadline = time.monotonic() + DEMO_SECONDS_MAX
    try:
        while not FILLED.search(errors.read_text()):
            assert process.poll() is None, errors.read_text()
            assert time.monotonic() < deadline, errors.read_text()
            time.sleep(0.2)
        # Ctrl-C goes to the whole group, as a terminal sends it.
        os.killpg(process.pid, signal.SIGINT)
        answered, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            # The broker is in a group of its own: only the demo can end it.
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode == 0, errors.read_text()
    facts = json.loads(answered)
    assert facts["sent"] >= facts["windowed"] > 0
    assert facts["table_rows"] > 0
    assert not Path(facts["folder"]).exists()
    assert not port_answers(facts["port"])
    assert group_members(process.pid) == []
    left = [each.name for each in tmp_path.iterdir() if each != errors and not each.name.startswith("pyspark-penstock")]
    assert left == []
