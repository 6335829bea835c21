"""The folder of a demo, and the clean-up after demos that were killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from time import sleep

from pyspark_penstock.pipelines.registry import process_started

NAME = re.compile(r"penstock-demo-(\d+)-(\d+)-.*")
END_POLL_SECONDS = 0.05
END_SECONDS_MAX = 30.0


def make_folder() -> Path:
    """A new folder whose name has the id of its process."""
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"penstock-demo-{pid}-{process_started(pid) or 0}-"))


def remove_leftovers(parent: Path | None = None) -> list[Path]:
    """Remove the folders of killed demos and stop their brokers; returns the folders.

    A broker outlives the demo that started it. It is found by the folder in its arguments, which no other process uses.
    """
    # Without access to processes it is unknown whether a demo still runs.
    if process_started(os.getpid()) is None:
        return []
    removed: list[Path] = []
    for folder in sorted((parent or Path(tempfile.gettempdir())).glob("penstock-demo-*")):
        named = NAME.fullmatch(folder.name)
        if named is None or not _is_ours(folder):
            continue
        if process_started(int(named[1])) != int(named[2]):
            end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _is_ours(folder: Path) -> bool:
    """Whether it is a directory of this user: any user can create such a name in the shared temporary directory."""
    try:
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()


def end_processes(folder: Path) -> None:
    """Kill the processes that were started with a path in this folder, and wait until they have ended."""
    found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if works_in(pid, folder)]
    began = {pid: process_started(pid) for pid in found}
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(int(END_SECONDS_MAX / END_POLL_SECONDS)):
        if all(process_started(pid) != began[pid] or began[pid] is None for pid in found):
            return
        sleep(END_POLL_SECONDS)


def works_in(pid: int, folder: Path) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return pid != os.getpid() and f"{folder}/".encode() in arguments
