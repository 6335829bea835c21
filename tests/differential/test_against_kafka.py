"""Every scenario at every version: penstock's responses equal Apache Kafka's recorded ones."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator

import pytest

from penstock.testing.broker_process import PenstockProcess

from . import recording
from .compare import FieldDifference, differences_between
from .differences import DIFFERENCES, PAGE, page, unexpected
from .scenarios import FAMILIES
from .script import SETTINGS, Responses, Scenario, Target, look_at, play

pytestmark = pytest.mark.xdist_group("differential")

NODE_ID = "1"
"""As in the recorded Kafka: some messages contain it."""

Compare = Callable[[Scenario, int], list[FieldDifference]]


@functools.cache
def recorded(family: str) -> recording.Recorded:
    return recording.load(family)


SCENARIOS = [scenario for family in FAMILIES.values() for scenario in family]
CASES = [
    pytest.param(scenario, version, id=f"{scenario.path}-v{version}")
    for scenario in SCENARIOS
    for version in recorded(scenario.family).get(scenario.name, {})
]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with PenstockProcess(settings={"node.id": NODE_ID, **SETTINGS}) as broker:
        yield look_at(broker.bootstrap)


@pytest.fixture(scope="module")
def compare(target: Target) -> Compare:
    """All differences of one case; each case is played once."""

    @functools.cache
    def compared(scenario: Scenario, version: int) -> list[FieldDifference]:
        def differing(responses: Responses) -> list[FieldDifference]:
            expected = recorded(scenario.family)[scenario.name][version]
            return differences_between(expected, json.loads(json.dumps(responses)))

        def is_right(responses: Responses) -> bool:
            return not unexpected(scenario.path, differing(responses))

        return differing(play(scenario, version, target, is_right=is_right))

    return compared


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.path)
def test_every_scenario_is_recorded(scenario: Scenario) -> None:
    assert recorded(scenario.family).get(scenario.name), "run `make record`"


@pytest.mark.parametrize(("scenario", "version"), CASES)
def test_penstock_responds_like_kafka(scenario: Scenario, version: int, compare: Compare) -> None:
    found = unexpected(scenario.path, compare(scenario, version))
    assert not found, f"{len(found)} fields differ\n" + "\n".join(str(item) for item in found)


def test_the_page_of_differences_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tools/record_differential.py --page`"


def test_every_declared_difference_still_exists(compare: Compare) -> None:
    """A difference that no longer exists must be removed from the list, or it would hide a new one."""
    waiting = [(difference.title, place) for difference in DIFFERENCES for place in difference.places]
    for case in CASES:
        scenario, version = case.values
        found = compare(scenario, version)
        waiting = [
            (title, place) for title, place in waiting if not any(place.covers(scenario.path, item) for item in found)
        ]
    assert not waiting
