"""A reader at a terminal: one shell in a checkout, into which the blocks of pages are pasted."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from pages import ROOT, Block
from penstock.testing.apache_kafka import tool_command
from programs import have, missing

BLOCK_SECONDS_MAX = 300.0
POLL_SECONDS = 0.05
INTERRUPTED_AFTER_SECONDS = 5
UNTIL_CTRL_C = re.compile(r"^([^#\n]+\S)\s+#[^\n]*until Ctrl-C.*$", re.MULTILINE)
KAFKA_TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
PRELUDE = f"""
set -e -o pipefail
# What runs until Ctrl-C gets it after a while; ending by it is no failure.
interrupted() {{
    timeout --foreground --signal=INT {INTERRUPTED_AFTER_SECONDS} "$@" || case $? in 124 | 130) ;; *) return 1 ;; esac
}}
"""


class Reader:
    """One shell. A command that fails ends it, and whatever was to follow fails too."""

    def __init__(self, folder: Path, bootstrap: str, data: Path) -> None:
        self.bootstrap = bootstrap
        self._folder = folder / "penstock"
        self._folder.mkdir()
        self._scratch = folder
        self._pasted = 0
        for name in ("examples", "bench", "tools"):
            (self._folder / name).symlink_to(ROOT / name)
        (self._folder / ".venv").symlink_to(sys.prefix)
        (self._folder / "penstock-data").symlink_to(data)
        self._output = folder / "output.txt"
        with self._output.open("wb") as output:
            self._shell = subprocess.Popen(
                ["bash"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment(folder, programs(folder / "programs"), bootstrap),
                start_new_session=True,
            )
        self._type(PRELUDE)

    def paste(self, block: Block) -> str:
        """Run a block to its end; what it printed. Raises where a command of it fails."""
        self._pasted += 1
        before = len(self._output.read_bytes())
        script, done = (self._scratch / f"{self._pasted}.{ending}" for ending in ("sh", "done"))
        script.write_text(as_shell(block, self.bootstrap), encoding="utf-8")
        self._type(f". {script} < /dev/null\n: > {done}\n")
        deadline = time.monotonic() + BLOCK_SECONDS_MAX
        while not done.exists():
            printed = self._output.read_bytes()[before:].decode(errors="replace")
            assert self._shell.poll() is None, f"{block.place} fails:\n{block.text}\n{printed}"
            assert time.monotonic() < deadline, f"{block.place} does not end:\n{block.text}\n{printed}"
            time.sleep(POLL_SECONDS)
        return self._output.read_bytes()[before:].decode(errors="replace")

    def close(self) -> None:
        """End the shell and what a block that failed has left running."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    def _type(self, text: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(text.encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            raise AssertionError("the shell has ended: a block before this one has failed") from None


def as_shell(block: Block, bootstrap: str) -> str:
    text = block.at(bootstrap)
    if block.language == "python":
        return f"python - <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n"
    return UNTIL_CTRL_C.sub(r"interrupted \1", text)


def environment(folder: Path, path: Path, bootstrap: str) -> dict[str, str]:
    """What a reader's terminal has; pip finds everything installed, and must not look for it elsewhere."""
    home = folder / "home"
    home.mkdir()
    return {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP": bootstrap,
        "PENSTOCK_STATE_DIR": str(folder / "state"),
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONWARNINGS": "ignore",
    }


def programs(folder: Path) -> Path:
    """Kafka's tools by the names of its scripts; a tool that is not installed here does nothing and says so."""
    folder.mkdir()
    for name, tool in KAFKA_TOOLS.items():
        run = f'exec {shlex.join(tool_command(tool))} "$@"' if have("kafka-jars") else saying(missing("kafka-jars"))
        make_program(folder / name, run)
    if not have("kcat"):
        make_program(folder / "kcat", saying(missing("kcat")))
    return folder


def saying(words: str) -> str:
    return f"echo {shlex.quote(words)} >&2"


def make_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
