"""Standard streams that are closed, full or limited: a failure is a message and exit code 1, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FUNCTION = """penstock() { "$PYTHON" -c 'from penstock.cli.main import run; run()' "$@"; }"""
SECONDS_MAX = 120.0


def run(shell: str, *, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A line of shell that has the command `penstock`."""
    return subprocess.run(
        ["bash", "-c", f"{FUNCTION}; {shell}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable, **(environment or {})},
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize("command", ["explain 6", "explain 6 -o json", "version", "--version", "--help"])
@pytest.mark.parametrize("target", [">/dev/full", ">&-"])
def test_a_response_that_cannot_be_written_is_a_failure(command: str, target: str) -> None:
    done = run(f"penstock {command} {target}")

    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot read stdin or write to stdout: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("closed", ["2>&-", "0<&-", "0<&- 2>&-"])
def test_streams_that_are_not_needed_may_be_closed(closed: str) -> None:
    done = run(f"penstock explain 6 {closed}")

    assert done.returncode == 0
    assert done.stdout.startswith("6 NOT_LEADER_OR_FOLLOWER")


def test_a_reader_that_has_seen_enough_is_no_reason_to_complain() -> None:
    done = run("for i in 1 2 3; do penstock explain 6; done | true; penstock --help | true")

    assert done.stderr == ""


def test_text_that_the_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "größe").mkdir()

    done = run(f"penstock log dump '{tmp_path}/größe/none.log'", environment={"PYTHONIOENCODING": "ascii"})

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
