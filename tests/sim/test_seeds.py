"""Two hundred seeds: whole brokers under faults, with clients of every kind, and nothing that Kafka forbids."""

from collections import Counter

import pytest

from penstock.testing.sim.faults import BROKER_FAULTS, OTHER_FAULTS, Fault
from penstock.testing.sim.run import FAULTS_MIN, OPERATIONS_MIN, Simulation
from penstock.testing.sim.workloads import WORKLOADS

SEEDS = 200
AT_ONCE = 5
"""Seeds of one test: small enough for the workers of a run to share them evenly."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", range(1, SEEDS + 1, AT_ONCE))
def test_clients_see_nothing_that_kafka_forbids(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        verdict = Simulation(seed=seed).run()

        assert verdict.anomalies == (), f"penstock sim replay {seed}"
        assert verdict.simulated_s >= 60
        assert sum(verdict.operations.values()) >= OPERATIONS_MIN
        assert sum(verdict.faults.values()) >= FAULTS_MIN


def test_a_seed_has_every_workload_and_every_fault() -> None:
    verdict = Simulation(seed=1).run()

    assert list(verdict.operations) == list(WORKLOADS)
    assert min(verdict.operations.values()) > 0
    assert set(verdict.faults) == {*BROKER_FAULTS, *OTHER_FAULTS}
    assert min(verdict.faults.values()) > 0


def test_what_the_faults_are_there_for_happens() -> None:
    events: Counter[str] = Counter()
    for seed in range(1, 4):
        events.update(Simulation(seed=seed).run().events)

    assert {event for event, count in events.items() if not count} == set()


def test_a_seed_whose_acknowledgements_do_not_wait_for_the_disk_has_every_fault_but_power_cuts() -> None:
    verdict = Simulation(seed=4).run()

    assert set(verdict.faults) == {*BROKER_FAULTS, *OTHER_FAULTS} - {Fault.POWER_CUT}
    assert min(verdict.faults.values()) > 0


def test_a_run_that_does_too_little_fails() -> None:
    verdict = Simulation(seed=1, pace=0.05).run()

    assert not verdict.ok
    assert any(anomaly.startswith(("only ", "no ")) for anomaly in verdict.anomalies)
