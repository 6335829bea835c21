"""A seed is all that a simulation depends on."""

import json
import os
import subprocess
import sys

import pytest

from penstock.testing.sim.run import Simulation

PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")
SEEDS = (2, 4)
SHORT_CLUSTER = ("--brokers", "3", "--seconds", "2", "--queues", "--schedules", "--tides")


def line_of(seed: int, hash_seed: str, *options: str) -> str:
    """The line of a seed, from a process of its own; one that is short does too little to be ok."""
    return subprocess.run(
        [*PENSTOCK, "sim", "run", "--seeds", "1", "--first-seed", str(seed), "-o", "json", *options],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=not options,
        capture_output=True,
        text=True,
    ).stdout


def test_a_seed_has_the_same_line_in_every_process_and_again_in_the_same_one() -> None:
    for seed in SEEDS:
        here = Simulation(seed=seed).run().line() + "\n"

        assert {line_of(seed, "0"), line_of(seed, "4711"), here} == {here}
        assert Simulation(seed=seed).run().line() + "\n" == here


@pytest.mark.slow
def test_a_seed_of_a_cluster_with_every_workload_has_the_same_line_in_every_process() -> None:
    lines = {line_of(5, hash_seed, *SHORT_CLUSTER) for hash_seed in ("0", "4711")}

    assert len(lines) == 1
    assert json.loads(lines.pop())["trace_hash"]


def test_two_seeds_have_two_traces() -> None:
    assert Simulation(seed=1).run().trace_hash != Simulation(seed=2).run().trace_hash


def test_a_recorded_run_is_the_same_run() -> None:
    recorded = Simulation(seed=2, recorded=True)

    assert recorded.run() == Simulation(seed=2).run()
    assert any("fault: " in line for line in recorded.lines)
