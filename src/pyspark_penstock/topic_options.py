"""The options that choose the partitions of a read: ``subscribe``, ``subscribePattern``, ``assign``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.java_regex import translated
from pyspark_penstock.offsets import Place, assignment_option

STRATEGIES = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The partitions to read: one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    places: frozenset[Place] = frozenset()


def subscription_of(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in STRATEGIES if name in given]
    if not chosen:
        raise WrongOption(
            "One of the following options must be specified for Kafka source: "
            f"{', '.join(STRATEGIES)}. See the docs for more details."
        )
    if len(chosen) > 1:
        raise WrongOption(
            "Only one of the following options can be specified for Kafka source: "
            f"{', '.join(STRATEGIES)}. See the docs for more details."
        )
    text = given[chosen[0]]
    match chosen[0]:
        case "assign":
            if not text.strip().startswith("{"):
                raise WrongOption(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")
            return Subscription(places=assignment_option(text))
        case "subscribe":
            topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
            if not topics:
                raise WrongOption(f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'")
            return Subscription(topics=topics)
        case _:
            return Subscription(pattern=_pattern(text))


def _pattern(text: str) -> str:
    pattern = text.strip()
    if not pattern:
        raise WrongOption(f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'")
    translated(pattern)
    return pattern
