"""The rules of replication in the model: random schedules break no promise, and shrinking keeps what is broken."""

from dataclasses import replace

import pytest

from penstock.controller import reassignments
from penstock.controller.elections import Brokers
from penstock.model.topic import PartitionState
from penstock.testing.model import draw_reassigning_schedule, draw_schedule, run, shrink
from penstock.testing.model.ablations import ABLATIONS, patched
from penstock.testing.model.explore import explore
from penstock.testing.model.settings import Settings

SEEDS = 100
SEEDS_REASSIGNING = 60


def test_random_schedules_break_no_promise() -> None:
    counts: dict[str, int] = {}
    for seed in range(SEEDS):
        result = run(draw_schedule(seed))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        for what, number in result.counts.items():
            counts[what] = counts.get(what, 0) + number

    rare = ("elections", "truncations", "ISR changes", "power cuts", "controllers", "ineligible", "reported losses")
    assert {what: counts.get(what, 0) for what in rare if not counts.get(what)} == {}


def test_random_schedules_with_reassignments_break_no_promise() -> None:
    counts: dict[str, int] = {}
    for seed in range(SEEDS_REASSIGNING):
        result = run(draw_reassigning_schedule(seed))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        for what, number in result.counts.items():
            counts[what] = counts.get(what, 0) + number

    rare = ("reassignments", "removals", "elections", "truncations", "power cuts", "controllers")
    assert {what: counts.get(what, 0) for what in rare if not counts.get(what)} == {}


def test_a_removal_that_takes_every_replica_for_in_sync_is_noticed() -> None:
    rule = reassignments.with_leader_among

    def trusting(state: PartitionState, brokers: Brokers, *, removed: bool) -> PartitionState:
        everyone = replace(state, isr=state.replicas, eligible_leader_replicas=())
        return rule(everyone, brokers, removed=removed)

    with patched(reassignments, "with_leader_among", trusting):
        results = (run(draw_reassigning_schedule(seed)) for seed in range(SEEDS_REASSIGNING))
        assert next((result.kind for result in results if result.violation is not None), None) is not None


def test_a_seed_is_the_same_run_each_time() -> None:
    one: list[str] = []
    two: list[str] = []

    run(draw_schedule(7), one)
    run(draw_schedule(7), two)

    assert one == two


@pytest.mark.slow
def test_shrinking_finds_a_shorter_schedule_that_fails_alike() -> None:
    with ABLATIONS["leader-keeps-its-log"]():
        schedule = next(schedule for seed in range(100) if run(schedule := draw_schedule(seed)).kind == "LOST")
        shorter = shrink(schedule, lambda result: result.kind == "LOST")

        assert run(shorter).kind == "LOST"
    assert len(shorter.steps) < len(schedule.steps) // 4
    assert run(shorter).violation is None, "with the rule the schedule is sound"


@pytest.mark.parametrize("in_sync_min", [1, 2])
def test_no_order_of_three_moves_breaks_a_promise(in_sync_min: int) -> None:
    explored = explore(Settings(in_sync_min=in_sync_min), depth=3)

    assert explored.result is None
    assert explored.clusters > 100


def test_some_order_of_three_moves_shows_a_leader_that_truncates_itself() -> None:
    with ABLATIONS["leader-keeps-its-log"]():
        explored = explore(Settings(in_sync_min=2), depth=3)

    assert explored.result is not None
    assert explored.result.kind == "LOST"
