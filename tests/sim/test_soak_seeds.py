"""New seeds of simulated clusters, for as long as `make soak` says."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.testing.sim.run import Simulation
from soak_time import SEED_VARIABLE, soak_seed, soak_time

BROKERS = (3, 3, 4, 5)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_clients_of_a_cluster_see_nothing_that_kafka_forbids_in_new_seeds() -> None:
    first, seeds = soak_seed(), 0
    print(f"\n{SEED_VARIABLE}={first}")
    faults: Counter[str] = Counter()
    events: Counter[str] = Counter()
    deadline = soak_time()
    while not deadline.passed:
        seed = first + seeds
        brokers = BROKERS[seed % len(BROKERS)]
        verdict = Simulation(seed=seed, brokers=brokers).run()
        assert verdict.anomalies == (), f"penstock sim replay {seed} --brokers {brokers}"
        seeds += 1
        faults.update(verdict.faults)
        events.update(verdict.events)
    print(f"simulator: {seeds} seeds from {first} on, {sum(faults.values())} faults, {dict(events)}")
