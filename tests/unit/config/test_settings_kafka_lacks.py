"""A topic's or group's setting that Kafka does not have shows in DescribeConfigs, so it is a declared difference."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from differential.compare import ABSENT, FieldDifference
from differential.differences import unexpected
from differential.recording import load
from penstock.config.group_settings import GROUP_KEYS
from penstock.config.log import TOPIC_KEYS

DECLARE_IT = "Kafka lacks {}: declare it in tests/differential/differences.py and run `make docs`"


SHOWN_TOPIC_KEYS = [name for name, key in TOPIC_KEYS.items() if not key.internal]


def kafkas_names(scenario: str, label: str) -> set[str]:
    """The settings that Kafka's recorded response shows."""
    responses = next(iter(load("configs")[scenario].values()))
    (result,) = responses[label]["results"]
    return {each["name"] for each in result["configs"]}


def undeclared(scenario: str, label: str, names: Iterable[str]) -> list[str]:
    lacking = sorted(set(names) - kafkas_names(scenario, label))
    places = [f"{label}.results[<a>].configs[{name}]" for name in lacking]
    shown = [FieldDifference(path=place, kafka=ABSENT, penstock={}) for place in places]
    return [each.path for each in unexpected(f"configs/{scenario}", shown)]


@pytest.mark.parametrize(
    ("scenario", "label", "ours"),
    [("topic_by_default", "all", SHOWN_TOPIC_KEYS), ("groups_and_client_metrics", "group", GROUP_KEYS)],
)
def test_a_setting_that_kafka_lacks_is_a_declared_difference(
    scenario: str, label: str, ours: dict[str, object]
) -> None:
    found = undeclared(scenario, label, ours)

    assert not found, DECLARE_IT.format(found)


def test_a_setting_that_is_not_declared_is_found() -> None:
    found = undeclared("topic_by_default", "all", [*SHOWN_TOPIC_KEYS, "flush.never"])

    assert found == ["all.results[<a>].configs[flush.never]"]
