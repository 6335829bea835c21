"""A rule that nothing notices missing is not tested: each of these is noticed within a few seeds."""

import pytest

from penstock.testing.sim.ablations import ABLATIONS, replaced
from penstock.testing.sim.cluster_ablations import CLUSTER_ABLATIONS
from penstock.testing.sim.run import Simulation

SEEDS_MAX = 12
"""A missing rule is noticed by one of so many first seeds."""
CLUSTER_SEEDS_MAX = 20
"""And a rule of clusters by one of so many."""

TRIED_FIRST = {"generation-fencing": 3, "boot-id": 13, "maximal-isr": 15}
"""Seeds that notice a missing rule today, where that is not the first one: others follow only if they do not."""


def seeds_of(rule: str, most: int) -> list[int]:
    """The first seeds, in the order in which to try them."""
    first = TRIED_FIRST.get(rule, 1)
    return [first, *(seed for seed in range(1, most + 1) if seed != first)]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ABLATIONS)
def test_a_missing_rule_is_noticed_within_a_few_seeds(rule: str) -> None:
    noticed = next(
        (seed for seed in seeds_of(rule, SEEDS_MAX) if not Simulation(seed=seed).run(ABLATIONS[rule]).ok), None
    )

    assert noticed is not None, f"{SEEDS_MAX} seeds without {rule} show nothing"
    assert Simulation(seed=noticed).run().anomalies == (), "with the rule the same seed is clean"


@pytest.mark.slow
@pytest.mark.parametrize("rule", CLUSTER_ABLATIONS)
def test_a_missing_rule_of_clusters_is_noticed_within_a_few_seeds(rule: str) -> None:
    noticed = next(
        (
            seed
            for seed in seeds_of(rule, CLUSTER_SEEDS_MAX)
            # No broker is drained where topics need all three.
            if not Simulation(seed=seed, brokers=4 if rule == "cordons" else 3).run(CLUSTER_ABLATIONS[rule]).ok
        ),
        None,
    )

    assert noticed is not None, f"{CLUSTER_SEEDS_MAX} seeds without {rule} show nothing"


def test_a_rule_is_back_after_its_ablation() -> None:
    class Owner:
        def rule(self) -> str:
            return "kept"

    def without(owner: Owner) -> str:
        return "gone"

    with replaced(Owner, "rule", without):
        assert Owner().rule() == "gone"
    assert Owner().rule() == "kept"
