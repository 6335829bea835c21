"""One hundred seeds of clusters: three to five brokers under all faults, and nothing that Kafka forbids."""

import pytest

from penstock.testing.sim.faults import Fault
from penstock.testing.sim.run import OPERATIONS_MIN, Simulation
from penstock.testing.sim.workloads import WORKLOADS

SEEDS = 100
AT_ONCE = 4
"""Seeds of one test: small enough for the workers of a run to share them evenly."""
FAULTS_MIN = 20
BROKERS = (3, 3, 4, 5)
"""How many brokers each seed has, in turn."""

ALONE = frozenset({Fault.POWER_CUT_ALL})
"""Faults that one of four seeds does not have."""

pytestmark = pytest.mark.slow


def cluster_of(seed: int) -> Simulation:
    return Simulation(seed=seed, brokers=BROKERS[seed % len(BROKERS)])


@pytest.mark.parametrize("first", range(1, SEEDS + 1, AT_ONCE))
def test_clients_of_a_cluster_see_nothing_that_kafka_forbids(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        simulation = cluster_of(seed)
        verdict = simulation.run()

        assert verdict.anomalies == (), f"penstock sim replay {seed} --brokers {simulation.brokers}"
        assert verdict.simulated_s >= 60
        assert sum(verdict.operations.values()) >= OPERATIONS_MIN
        assert sum(verdict.faults.values()) >= FAULTS_MIN


def test_seeds_of_a_cluster_have_every_workload_and_every_fault_and_together_every_rare_event() -> None:
    verdicts = [cluster_of(seed).run() for seed in (1, 3)]

    for verdict in verdicts:
        assert list(verdict.operations) == list(WORKLOADS)
        assert min(verdict.operations.values()) > 0
        assert list(verdict.faults) == [fault.value for fault in Fault]
        assert min(verdict.faults.values()) > 0
    for event in (
        "elections",
        "truncations",
        "ISR changes",
        "restarts with loss",
        "coordinator moves",
        "controller take-overs",
        "reads from followers",
    ):
        assert max(verdict.events[event] for verdict in verdicts) > 0, event


def test_a_seed_that_acknowledges_from_page_caches_does_not_lose_all_of_them_at_once() -> None:
    verdict = cluster_of(2).run()

    assert list(verdict.faults) == [fault.value for fault in Fault if fault not in ALONE]


def test_a_seed_of_a_cluster_has_the_same_line_again() -> None:
    assert cluster_of(3).run().line() == cluster_of(3).run().line()
