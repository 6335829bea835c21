"""A rule that nothing notices missing is not tested: each of these is noticed within a few seeds."""

import pytest

from penstock.testing.sim.ablations import ABLATIONS, replaced
from penstock.testing.sim.run import Simulation

SEEDS_MAX = 12
"""A missing rule is noticed by one of so many first seeds."""


@pytest.mark.slow
@pytest.mark.parametrize("rule", ABLATIONS)
def test_a_missing_rule_is_noticed_within_a_few_seeds(rule: str) -> None:
    noticed = next(
        (seed for seed in range(1, SEEDS_MAX + 1) if not Simulation(seed=seed).run(ABLATIONS[rule]).ok), None
    )

    assert noticed is not None, f"{SEEDS_MAX} seeds without {rule} show nothing"
    assert Simulation(seed=noticed).run().anomalies == (), "with the rule the same seed is clean"


def test_a_rule_is_back_after_its_ablation() -> None:
    class Owner:
        def rule(self) -> str:
            return "kept"

    def without(owner: Owner) -> str:
        return "gone"

    with replaced(Owner, "rule", without):
        assert Owner().rule() == "gone"
    assert Owner().rule() == "kept"
