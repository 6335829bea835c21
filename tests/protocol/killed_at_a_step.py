"""Runs an example and kills it (-9) at one step of one message.

    python killed_at_a_step.py EXAMPLE.py STEP N example's arguments...

Steps: polled, before-commit, after-commit, before-process, after-process. N counts from 1; 0 lets it live.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message


def main(path: str, step: str, number: int) -> None:
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    reached = dict.fromkeys(("polled", "before-commit", "after-commit", "before-process", "after-process"), 0)
    process = example.process

    def at(name: str) -> None:
        reached[name] += 1
        if name == step and reached[name] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    class Watched(Consumer):
        def poll(self, timeout: float = -1) -> Message | None:
            message = super().poll(timeout)
            if message is not None:
                at("polled")
            return message

        def commit(self, *arguments: Any, **options: Any) -> Any:
            at("before-commit")
            committed = super().commit(*arguments, **options)
            at("after-commit")
            return committed

    def watched_process(message: Message, ledger: str | None) -> None:
        at("before-process")
        process(message, ledger)
        at("after-process")

    example.Consumer = Watched
    example.process = watched_process
    example.main()


if __name__ == "__main__":
    example, step, number = sys.argv[1:4]
    sys.path.insert(0, str(Path(example).parent))
    sys.argv = [example, *sys.argv[4:]]
    main(example, step, int(number))
