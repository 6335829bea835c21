"""The load program's own limits, measured almost without a broker: figures near them are limited by the client."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.client_program import PROGRAM, LoadFailed, run_client, run_program
from bench.comparison import line
from bench.page_cache import settle
from bench.samples import CEILING, Sample
from bench.works import Sizes, Step, latency, produce

PARTS = ("ceilings",)
TOPIC = "bench-ceiling"
BROKER_SECONDS_MAX = 30.0
MOCK = "mock"
PASSING = "passing"

Say = Callable[[str], None]


def measure_ceilings(parts: set[str], sizes: Sizes, data: Path, say: Say) -> Iterator[Sample]:
    """The works that the client may limit, against a minimal broker."""
    if not parts & set(PARTS):
        return
    for step, broker in steps(sizes):
        for number in range(-sizes.warm_rounds, sizes.rounds):
            settle(data)
            sample = Sample(work=step.work, side=CEILING, round=number, values=run_alone(step, broker))
            say(line(sample))
            if number >= 0:
                yield sample


def steps(sizes: Sizes) -> tuple[tuple[Step, str | None], ...]:
    """Each step with the arguments of its work, and the broker in memory for it."""
    return (
        (produce("ceiling-produce-100", sizes.messages_100b, 100), MOCK),
        (produce("ceiling-produce-100-idempotent", sizes.messages_100b, 100, "--idempotent"), MOCK),
        (latency("ceiling-latency-1000", 1_000, sizes.latency_seconds), PASSING),
        (replace(latency("ceiling-relay-1000", 1_000, sizes.latency_seconds), mode="relay"), None),
    )


def run_alone(step: Step, broker: str | None) -> dict[str, float]:
    """The load program's figures, against a broker for this one execution, or without a broker."""
    if broker is None:
        return run_program(step.mode, *step.arguments)
    with memory_broker(broker, TOPIC) as bootstrap:
        return run_client(step.mode, bootstrap, TOPIC, *step.arguments)


@contextlib.contextmanager
def memory_broker(mode: str, topic: str) -> Iterator[str]:
    """The address of a broker in memory; it ends with its standard input, or is killed when this fails."""
    command = [str(PROGRAM), mode, "--topic", topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield _bootstrap(process)
            _, stderr = process.communicate(timeout=BROKER_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"the broker in memory did not end within {BROKER_SECONDS_MAX:g} s") from None
        finally:
            # Does nothing to a process that has ended.
            process.kill()
    if process.returncode != 0:
        raise LoadFailed(f"{' '.join(command)}\nstatus {process.returncode}: {stderr.strip()}")


def _bootstrap(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None, "its output is a pipe"
    assert process.stderr is not None, "its errors are a pipe"
    readable, _, _ = select.select([process.stdout], [], [], BROKER_SECONDS_MAX)
    if not readable:
        raise LoadFailed(f"the broker in memory said nothing within {BROKER_SECONDS_MAX:g} s")
    announced = process.stdout.readline()
    if not announced:
        raise LoadFailed(f"the broker in memory did not start: {process.stderr.read().strip()}")
    return str(json.loads(announced)["bootstrap"])
