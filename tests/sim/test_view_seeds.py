"""Filtered views under all faults: readers get what passes, each record once, and reach the end."""

import pytest

from penstock.testing.sim.run import Simulation
from penstock.testing.sim.views import VIEW_ABLATIONS

SEEDS = ((1, 1), (2, 1), (6, 3))
"""Seeds with their brokers; `penstock sim run --views` runs more. In 6 a reader is sent to a follower as it waits."""
SEEDS_MAX = 6
"""A missing rule is noticed by one of so many first seeds."""

SHOWN_BY = {
    "V1-last-run": "fetches bring nothing",
    "V2-advance-batches": "fetches bring nothing",
    "V3-markers": "too little",
    "V4-records-that-pass": "too little",
    "V5-agreement": "too little",
}
"""What is found where the rule is missing."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("seed", "brokers"), SEEDS)
def test_readers_of_views_get_what_passes_whatever_fails(seed: int, brokers: int) -> None:
    verdict = Simulation(seed=seed, brokers=brokers, views=True).run()

    assert verdict.anomalies == ()
    assert verdict.events["record of a view"] > 100


@pytest.mark.parametrize("rule", VIEW_ABLATIONS)
def test_a_missing_rule_of_views_is_noticed_within_a_few_seeds(rule: str) -> None:
    for seed in range(1, SEEDS_MAX + 1):
        verdict = Simulation(seed=seed, views=True).run(VIEW_ABLATIONS[rule])
        if any(SHOWN_BY[rule] in anomaly for anomaly in verdict.anomalies):
            return
    raise AssertionError(f"{SEEDS_MAX} seeds without {rule} show nothing")
