"""The invariants of admission, ISRs and elections under every fault; and that each rule is needed for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.faulty_replicas import FaultyReplicas
from tests.unit.controller.faulty_run import first_broken, run_to_end

from penstock.controller import brokers, elections, isr, leaders
from penstock.controller.elections import Brokers
from penstock.model.topic import PartitionState

SEEDS = 100
AT_ONCE = 20
ABLATION_SEEDS = 200


def run_seed(seed: int) -> FaultyReplicas:
    return run_to_end(FaultyReplicas(seed))


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_the_invariants_hold_under_every_fault(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        run_seed(seed)


def test_the_seeds_together_have_every_event() -> None:
    events: Counter[str] = Counter()
    for seed in range(8):
        events += run_seed(seed).judge.events
    for event in ("admitted", "elected", "without leader", "expanded", "shrunk", "last resort"):
        assert events[event] > 0, event


def without_ending_leaderships(patch: pytest.MonkeyPatch) -> None:
    with_leader = elections._with_leader

    def kept(state: PartitionState, before: PartitionState, known: Brokers) -> PartitionState:
        return with_leader(state, before, replace(known, fenced=frozenset()))

    patch.setattr(elections, "_with_leader", kept)


def without_removing_the_unsafe(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "_without_unsafe", lambda state, known: state)


def without_broker_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr, "is_eligible", lambda image, member, epoch: image.is_live(member))


def without_partition_epochs(patch: pytest.MonkeyPatch) -> None:
    checked = isr.checked

    def blind(image: Any, broker_id: Any, change: Any) -> PartitionState:
        topic = image.topics_by_id[change.topic_id]
        state = topic.partitions[change.partition]
        return checked(image, broker_id, replace(change, partition_epoch=state.partition_epoch))

    patch.setattr(isr, "checked", blind)


def without_waiting_for_eligible_replicas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leaders, "unclean_allowed", lambda configs, *, default: True)


def without_reporting_risky_elections(patch: pytest.MonkeyPatch) -> None:
    def silent(state: PartitionState, leader: Any) -> PartitionState:
        alone = replace(state, isr=(leader,), eligible_leader_replicas=())
        return elections.led_by(alone, leader)

    patch.setattr(leaders, "elected_at_risk", silent)


def without_raising_leader_epochs(patch: pytest.MonkeyPatch) -> None:
    def raised(after: PartitionState, before: PartitionState) -> PartitionState:
        return replace(after, leader_epoch=before.leader_epoch, partition_epoch=before.partition_epoch + 1)

    for module in (elections, brokers, leaders, isr):
        patch.setattr(module, "raised", raised)


ABLATIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "ending leaderships of former lives": (without_ending_leaderships, "^5:"),
    "removing brokers that may have lost records": (without_removing_the_unsafe, "^11:"),
    "broker epochs of members": (without_broker_epochs, "^13:"),
    "partition epochs of changes": (without_partition_epochs, "^(7|13):"),
    "waiting for eligible replicas": (without_waiting_for_eligible_replicas, "^12:"),
    "reporting elections at risk": (without_reporting_risky_elections, "^10:"),
    "raising leader epochs": (without_raising_leader_epochs, "^6:"),
}


@pytest.mark.parametrize("rule", ABLATIONS)
def test_the_absence_of_a_rule_is_found(rule: str) -> None:
    ablation, sign = ABLATIONS[rule]
    with pytest.MonkeyPatch.context() as patch:
        ablation(patch)
        found = first_broken(run_seed, range(ABLATION_SEEDS))
    assert re.search(sign, found), f"found {found}"
