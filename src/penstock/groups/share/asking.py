"""Asks share coordinators about many share partitions."""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId

Place = tuple[TopicId, int]
"""A topic's id and a partition."""

Responses = Mapping[Place, Any]
"""What each share coordinator responded: a value or an error."""


def ask_each(
    partitions: Mapping[TopicId, frozenset[int]], ask: Callable[[TopicId, int], Deferred[Any]]
) -> Eventual[Responses]:
    """All responses, once the last one is there."""
    places = [(topic_id, index) for topic_id, indexes in partitions.items() for index in sorted(indexes)]
    asked: list[Eventual[Any]] = [ask(*place).catch(BrokerError, lambda error: error) for place in places]
    responses = Deferred.all(asked)
    return after(responses, lambda found: dict(zip(places, found, strict=True)))


def divided(responses: Responses) -> tuple[dict[TopicId, frozenset[int]], dict[TopicId, frozenset[int]]]:
    """The partitions that succeeded, and those that failed."""
    good: dict[TopicId, set[int]] = {}
    bad: dict[TopicId, set[int]] = {}
    for (topic_id, index), response in responses.items():
        (bad if isinstance(response, BrokerError) else good).setdefault(topic_id, set()).add(index)
    return {each: frozenset(found) for each, found in good.items()}, {
        each: frozenset(found) for each, found in bad.items()
    }
