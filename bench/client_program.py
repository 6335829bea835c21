"""The C load program: built when it is missing or old, run once per work, its one line of JSON read back."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = Path(__file__).resolve().parent / "client"
PROGRAM = ROOT / ".cache" / "bench" / "client"
RUN_SECONDS_MAX = 300


class LoadFailed(Exception):
    """The load program could not be built or failed; the message has its output."""


def build() -> None:
    """Compile the program with make and a C compiler against librdkafka's headers."""
    if shutil.which("make") is None or (shutil.which("cc") is None and shutil.which("gcc") is None):
        raise LoadFailed("make and a C compiler are needed (Debian: apt install make gcc)")
    done = subprocess.run(
        ["make", "--silent", "-C", str(SOURCES), f"OUT={PROGRAM}"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return
    if "rdkafka" in done.stderr:
        raise LoadFailed(f"librdkafka's headers are needed (Debian: apt install librdkafka-dev)\n{done.stderr}")
    raise LoadFailed(f"the load program does not compile:\n{done.stderr}")


def librdkafka_version() -> str:
    done = subprocess.run([str(PROGRAM), "version"], capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["librdkafka"])


def run_client(mode: str, bootstrap: str, topic: str, *arguments: str) -> dict[str, float]:
    """The numbers of one execution against a broker."""
    return run_program(mode, "--bootstrap", bootstrap, "--topic", topic, *arguments)


def run_program(*arguments: str) -> dict[str, float]:
    """The numbers of one execution."""
    command = [str(PROGRAM), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{' '.join(command)}\ndid not end within {RUN_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise LoadFailed(f"{' '.join(command)}\nstatus {done.returncode}: {done.stderr.strip()}")
    figures: dict[str, object] = json.loads(done.stdout)
    return {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
