"""Partitions that are drained into others: the model finds nothing wrong, and what goes wrong without each rule."""

import pytest

from penstock.testing.model.redirect import World, explore
from penstock.testing.model.redirect_ablations import ABLATIONS

SEEDS = 300

WITNESSES = {
    "adoption": 1,
    "adoption_waits_for_marker": 94,
    "answer_of_the_fence": 764,
    "barrier": 21,
    "both_markers_committed": 3,
    "committed_table": 1,
    "fence": 143,
    "fence_outlives_leader": 506,
    "first_batch_is_remembered": 131,
    "first_sequence": 26,
    "frozen_table": 471,
    "greater_sequence": 258,
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
