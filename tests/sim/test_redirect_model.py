"""Partitions that are drained into others: the model finds nothing wrong, and what goes wrong without each rule."""

import pytest

from penstock.testing.model.redirect import World, explore
from penstock.testing.model.redirect_ablations import ABLATIONS

SEEDS = 300

WITNESSES = {
    "adoption": 1,
    "adoption_waits_for_marker": 2354,
    "response_of_the_fence": 764,
    "barrier": 21,
    "both_markers_committed": 4,
    "committed_table": 1,
    "fence": 23,
    "fence_outlives_leader": 375,
    "first_batch_is_remembered": 144,
    "first_sequence": 71,
    "frozen_table": 696,
    "ghost_end_is_final": 38,
    "ghost_waits_for_open_transaction": 2006,
    "greater_sequence": 321,
    "markers_in_both": 0,
}
"""A seed that shows what goes wrong without a rule."""


def test_every_record_is_in_one_partition_once_and_every_transaction_ends_alike() -> None:
    assert explore(range(SEEDS)) == {}


@pytest.mark.parametrize("rule", ABLATIONS)
def test_a_seed_shows_what_goes_wrong_without_a_rule(rule: str) -> None:
    with ABLATIONS[rule]():
        assert World(WITNESSES[rule]).run() is not None
    assert World(WITNESSES[rule]).run() is None
