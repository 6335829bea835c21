"""A rule of replication that nothing notices missing is not tested: the model finds what goes wrong without each."""

import pytest

from penstock.testing.model import draw_schedule, run
from penstock.testing.model.ablations import ABLATIONS
from penstock.testing.model.scripts import SCRIPTS, play

SEEDS_MAX = 100
"""A missing rule that random schedules find is found by one of so many first seeds."""

FOUND_BY_SCRIPT = {
    "acks-need-min-isr": ("response_after_the_isr_shrank", "TOO FEW"),
    "cut-waits-for-an-epoch": ("damage_while_an_expansion_waits", "LOST"),
    "failed-log-keeps-its-records": ("failed_log_of_the_last_member", "GIVEN UP"),
    "fetch-broker-epoch": ("fetch_of_a_former_life", "LOST"),
    "fetch-leader-epoch": ("fetch_of_an_earlier_epoch", "READ"),
    "held-end": ("power_cut_before_a_flush", "LOST"),
    "join-at-epoch-start": ("follower_at_a_stale_high_watermark", "LOST"),
    "join-at-high-watermark": ("follower_at_a_stale_high_watermark", "LOST"),
    "late-claim-is-deleted": ("claim_that_lands_late", "STUCK"),
    "loss-is-remembered": ("second_start_after_a_power_cut", "LOST"),
    "maximal-isr": ("response_to_an_expansion_is_lost", "LOST"),
    "members-broker-epochs": ("restart_without_data_while_an_expansion_waits", "LOST"),
    "min-isr-counts-the-committed": ("proposed_member_below_the_minimum", "TOO FEW"),
    "min-isr-of-the-state": ("minimum_raised", "TOO FEW"),
    "partition-epoch-is-compared": ("repeated_request", "LOST"),
    "proposal-outlives-timeout": ("response_to_an_expansion_is_lost", "LOST"),
    "refusal-of-a-version": ("response_to_an_expansion_is_lost", "LOST"),
    "refusals-know-admissions": ("refusal_of_a_deposed_controller", "LOST"),
    "response-leader-epoch": ("response_of_an_earlier_epoch", "TRUNCATED"),
    "responses-wait-for-outcomes": ("refusal_while_a_write_is_unknown", "LOST"),
    "shrink-waits-for-write": ("removal_that_is_not_written", "LOST"),
    "transactions-are-fenced": ("late_expansion", "LOST"),
    "truncation-by-epoch": ("truncation_of_a_lagging_high_watermark", "LOST"),
    "truncation-is-reported": ("loss_that_is_reported", "SILENT"),
}

FOUND_BY_SEED = {
    "eligible-after-isr": {"LOST"},
    "eligible-below-min": {"LOST"},
    "fenced-until-admitted": {"TWO LIVES", "LOST"},
    "high-watermark-needs-min-isr": {"TOO FEW"},
    "last-resort-after-eligible": {"NEEDLESS"},
    "latest-waits": {"LATEST"},
    "leader-keeps-its-log": {"LOST"},
    "lost-session-stops": {"FENCED"},
    "new-epoch-for-each-life": {"TWO LIVES"},
    "replaced-disk-leaves": {"LOST"},
    "unsafe-restart-leaves": {"LOST"},
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_breaks_no_promise_while_every_rule_holds(name: str) -> None:
    assert play(*SCRIPTS[name]).violation is None


@pytest.mark.parametrize("rule", FOUND_BY_SCRIPT)
def test_a_script_shows_what_goes_wrong_without_a_rule(rule: str) -> None:
    script, kind = FOUND_BY_SCRIPT[rule]

    with ABLATIONS[rule]():
        assert play(*SCRIPTS[script]).kind == kind


@pytest.mark.parametrize("rule", FOUND_BY_SEED)
def test_a_random_schedule_shows_what_goes_wrong_without_a_rule(rule: str) -> None:
    with ABLATIONS[rule]():
        kinds = (run(draw_schedule(seed)).kind for seed in range(SEEDS_MAX))
        found = next((kind for kind in kinds if kind is not None), None)

    assert found in FOUND_BY_SEED[rule]


def test_every_ablation_is_found() -> None:
    assert set(ABLATIONS) == {*FOUND_BY_SCRIPT, *FOUND_BY_SEED}
