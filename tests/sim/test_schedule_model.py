"""Schedules under random leaders, clocks and users: nothing goes wrong, and what does without each rule."""

import pytest

from penstock.testing.model.schedule_ablations import ABLATIONS
from penstock.testing.model.schedules import World, explore

SEEDS = 120

WITNESSES = {
    "sent_when_committed": 3,
    "inherited_is_committed": 3,
    "function_of_the_log": 0,
    "order_of_due_times": 4,
    "known_sequences": 1,
    "never_forgotten": 0,
    "one_open_fire": 0,
    "still_pending": 0,
    "closing_check": 0,
    "closing_sees_open_transactions": 17,
    "leftovers_are_closed": 70,
    "transactions_are_decided": 0,
    "greatest_offset_wins": 7,
    "tombstones_are_remembered": 9,
    "epoch_goes_up": 0,
    "refusals_fence": 1487,
    "due_by_the_clock": 27,
}
"""A seed that shows what goes wrong without a rule."""


def test_every_schedule_is_delivered_once_and_none_early() -> None:
    assert explore(range(SEEDS)) == {}


@pytest.mark.parametrize("rule", ABLATIONS)
def test_a_seed_shows_what_goes_wrong_without_a_rule_of_schedules(rule: str) -> None:
    with ABLATIONS[rule]():
        assert World(WITNESSES[rule]).run() is not None
    assert World(WITNESSES[rule]).run() is None
