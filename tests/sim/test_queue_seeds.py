"""Share groups on clusters under all faults: nothing finished comes again, nothing is lost, one holder at a time."""

import pytest

from penstock.testing.histories.deliveries import Fault
from penstock.testing.sim.queue_ablations import LETTER_ABLATIONS, QUEUE_ABLATIONS
from penstock.testing.sim.queues import DEAD_LETTER, EVENTS
from penstock.testing.sim.run import Simulation

SEEDS = ((1, 3), (2, 4), (3, 5))
"""Seeds with their brokers; `penstock sim run --queues` runs more."""
LETTER_SEEDS = ((1, 3), (2, 1))
"""The same with --letters."""
SEEDS_MAX = 6
"""A missing rule is noticed by one of so many first seeds."""
ABLATION_S = 30.0

SHOWN_BY = {
    "Q1-locks-last": "InvalidRecordState",
    "Q2-holders": Fault.FOREIGN_ACKNOWLEDGEMENT.value,
    "Q3-written-first": Fault.FINISHED_DELIVERED.value,
    "Q4-final-states": Fault.FINISHED_DELIVERED.value,
    "Q5-delivery-limit": Fault.COUNT_ABOVE_LIMIT.value,
    "Q6-start-behind-unfinished": Fault.START_TOO_FAR.value,
    "Q7-committed-reads": Fault.NOT_IN_LOG.value,
    "Q8-leader-epochs": Fault.FINISHED_DELIVERED.value,
    "Q9-gaps-are-available": Fault.START_TOO_FAR.value,
    "QK1-key-order": Fault.KEY_ORDER.value,
    "QB1-backoff": Fault.TOO_SOON.value,
    "QD1-letters-first": Fault.LOST.value,
}
"""What a member sees where the rule is missing."""
TRIED_FIRST: dict[str, int] = {"Q2-holders": 5, "QK1-key-order": 2}
"""Seeds that show it today, where that is not the first one."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("seed", "brokers"), SEEDS)
def test_members_of_share_groups_see_nothing_that_kafka_forbids(seed: int, brokers: int) -> None:
    verdict = Simulation(seed=seed, brokers=brokers, queues=True).run()

    assert verdict.anomalies == ()
    assert min(verdict.events[event] for event in EVENTS) > 0


@pytest.mark.parametrize(("seed", "brokers"), LETTER_SEEDS)
def test_records_keep_the_order_of_their_keys_wait_and_are_dead_letters_at_last(seed: int, brokers: int) -> None:
    verdict = Simulation(seed=seed, brokers=brokers, letters=True).run()

    assert verdict.anomalies == ()
    assert verdict.events[DEAD_LETTER] > 0


@pytest.mark.parametrize("rule", [*QUEUE_ABLATIONS, *LETTER_ABLATIONS])
def test_a_missing_rule_of_share_groups_is_noticed_within_a_few_seeds(rule: str) -> None:
    first = TRIED_FIRST.get(rule, 1)
    ablation = (QUEUE_ABLATIONS | LETTER_ABLATIONS)[rule]
    kind = {"queues": rule in QUEUE_ABLATIONS, "letters": rule in LETTER_ABLATIONS}
    for seed in (first, *(seed for seed in range(1, SEEDS_MAX + 1) if seed != first)):
        verdict = Simulation(seed=seed, brokers=3, duration_s=ABLATION_S, **kind).run(ablation)
        if any(SHOWN_BY[rule] in anomaly for anomaly in verdict.anomalies):
            return
    raise AssertionError(f"{SEEDS_MAX} seeds without {rule} show nothing")


def test_a_seed_with_share_groups_has_the_same_line_again() -> None:
    simulations = [Simulation(seed=5, brokers=3, queues=True, duration_s=ABLATION_S) for _ in range(2)]

    assert simulations[0].run().line() == simulations[1].run().line()
