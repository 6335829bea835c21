"""Controllers on a store that loses watches, outcomes and sessions; and that each rule is needed there."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.unit.controller.faulty_cluster import FaultyCluster
from tests.unit.controller.faulty_run import first_broken, run_to_end

from penstock.controller import controller as controller_module
from penstock.controller import membership as membership_module
from penstock.controller import topics
from penstock.controller.controller import Controller
from penstock.controller.outcomes import Sent
from penstock.metadata.catalog import Catalog
from penstock.metadata.following import Following
from penstock.metadata.nodes import Changes, Gap
from penstock.metadata.operations import ANY_VERSION, Check, Operation, Set
from penstock.metadata.records import CHANGES, CLUSTER
from penstock.testing.sim.store import SimSession

SEEDS = 15
ABLATION_SEEDS = 60


def run_seed(seed: int) -> FaultyCluster:
    return run_to_end(FaultyCluster(seed))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_and_no_image_goes_back(seed: int) -> None:
    cluster = run_seed(seed)
    assert cluster.acknowledged > 20


def test_the_seeds_together_have_every_fault_and_every_request() -> None:
    counts: Counter[str] = Counter()
    kinds: set[str] = set()
    for seed in range(5):
        cluster = run_seed(seed)
        counts += cluster.server.counts
        kinds |= cluster.kinds
    assert kinds == {"create", "delete", "grow", "settings"}
    for fault in (
        "expired",
        "suspended",
        "unknown_done",
        "unknown_late",
        "unknown_never",
        "watch_lost",
        "session_behind",
    ):
        assert counts[fault] > 0, fault


def without_waiting_for_the_image(patch: pytest.MonkeyPatch) -> None:
    def at_least(self: Catalog, number: int) -> Awaitable[None]:
        return asyncio.sleep(0)

    patch.setattr(Catalog, "at_least", at_least)


def without_the_epoch_fence(patch: pytest.MonkeyPatch) -> None:
    def fence(epoch_version: int, sent: Sent) -> tuple[Operation, Operation]:
        return Check(CLUSTER, 0), Set(CHANGES, sent.mark, sent.expected)

    patch.setattr(controller_module, "fence", fence)
    # A controller that knows of its successor has resigned; `test_membership` has one that does not know.
    patch.setattr(membership_module.Membership, "_check_still_elected", lambda self: None)
    patch.setattr(membership_module.Membership, "_resign", lambda self, reason: None)


def without_the_expected_version(patch: pytest.MonkeyPatch) -> None:
    def fence(epoch_version: int, sent: Sent) -> tuple[Operation, Operation]:
        return Check("/controller-epoch", epoch_version), Set(CHANGES, sent.mark, ANY_VERSION)

    patch.setattr(controller_module, "fence", fence)


def without_reading_back(patch: pytest.MonkeyPatch) -> None:
    async def found_out(self: Controller, sent: Sent) -> int | None:
        return self._catalog.number

    patch.setattr(Controller, "_found_out", found_out)


def without_reading_again_after_a_gap(patch: pytest.MonkeyPatch) -> None:
    arrived = Following.arrived

    def deaf(self: Following, report: Changes | Gap) -> Changes | None:
        return None if isinstance(report, Gap) else arrived(self, report)

    patch.setattr(Following, "arrived", deaf)


def without_refusing_an_older_tree(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Following, "is_newer", lambda self, snapshot: True)

    async def no_sync(self: SimSession) -> None:
        self._check_usable()

    # With it, no tree is older; other stores may still give one.
    patch.setattr(SimSession, "sync", no_sync)


def without_partitions_before_topics(patch: pytest.MonkeyPatch) -> None:
    ordered = topics.creation_steps

    def reversed_steps(topic: Any, level: int) -> Sequence[Any]:
        return ordered(topic, level)[::-1]

    patch.setattr(topics, "creation_steps", reversed_steps)


ABLATIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "waiting for the image": (without_waiting_for_the_image, "before this broker's image had it"),
    "the epoch fence and resigning": (without_the_epoch_fence, "wrote after that of"),
    "the expected version of /changes": (without_the_expected_version, "is not in the store|after the response to"),
    "reading back": (without_reading_back, "is not in the store|is missing|image had it"),
    "reading again after a gap": (without_reading_again_after_a_gap, "answered|has no partitions|differs|think|had it"),
    "refusing an older tree": (without_refusing_an_older_tree, "would go back|went back"),
    "partitions before their topic": (without_partitions_before_topics, "chunk 0 is missing"),
}


@pytest.mark.parametrize("rule", ABLATIONS)
def test_the_absence_of_a_rule_is_found(rule: str) -> None:
    ablation, sign = ABLATIONS[rule]
    with pytest.MonkeyPatch.context() as patch:
        ablation(patch)
        found = first_broken(run_seed, range(ABLATION_SEEDS))
    assert re.search(sign, found), f"found {found}"
