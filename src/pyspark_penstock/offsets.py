"""Offsets of partitions: in Spark's checkpoints, in options, and as ranges that tasks read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pyspark_penstock.errors import WrongOption

EARLIEST = -2
LATEST = -1

Place = tuple[str, int]
"""A topic and one of its partitions."""
Offsets = dict[Place, int]
"""For each partition the first offset that is not read yet."""


def named(places: Iterable[Place]) -> str:
    """Partitions as Kafka prints them: ``[orders-0, orders-1]``."""
    return "[" + ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)) + "]"


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """The JSON of checkpoints: ``{"orders": {"0": 5}}``, the form of Spark's Kafka connector."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(value: object, text_given: str | None = None) -> Offsets:
    """The offsets of a checkpoint or of an option; ValueError with the connector's message for anything else."""
    try:
        return _partition_numbers(value)
    except (TypeError, ValueError, AttributeError):
        text = json.dumps(value) if text_given is None else text_given
        raise WrongOption(f'Expected e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {text}') from None


def offsets_option(text: str) -> Offsets:
    found = from_json(_parsed(text), text)
    if any(offset < EARLIEST for offset in found.values()):
        raise WrongOption(f"Offsets are 0 or more, {LATEST} for latest or {EARLIEST} for earliest, got {text}")
    return found


def timestamps_option(text: str) -> Offsets:
    """A time in milliseconds for each partition."""
    try:
        return _partition_numbers(_parsed(text))
    except (TypeError, ValueError, AttributeError):
        raise WrongOption(
            'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789},\n'
            f'"topicB": {{"0": 123456789, "1": 123456789}}}}, got {text}'
        ) from None


def assignment_option(text: str) -> frozenset[Place]:
    """The partitions of ``assign``: ``{"orders": [0, 1]}``."""
    try:
        topics = cast("dict[str, list[int]]", _parsed(text))
        return frozenset((topic, _integer(each)) for topic, parts in topics.items() for each in parts)
    except (TypeError, ValueError, AttributeError):
        raise WrongOption(f'Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}') from None


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _partition_numbers(value: object) -> Offsets:
    if not isinstance(value, dict):
        raise TypeError
    found: Offsets = {}
    for topic, parts in cast("dict[str, Any]", value).items():
        for partition, number in parts.items():
            found[topic, int(partition)] = _integer(number)
    return found


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets of one partition, the end excluded. It may have fewer records than offsets."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = bytes(16)
    leader: tuple[str, int] | None = None
    """Host and port of the broker that led the partition when the range was planned."""
    leader_epoch: int = -1
    """That leader's epoch; -1 if it is not known."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        return self.end - self.start

    def split(self, parts: int) -> list[OffsetRange]:
        """Split into so many ranges of about the same size, none of them empty."""
        ranges: list[OffsetRange] = []
        start = self.start
        for part in range(parts):
            end = start + (self.end - start) // (parts - part)
            if end > start:
                ranges.append(replace(self, start=start, end=end))
            start = end
        return ranges


def divided(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """The ranges that tasks read: none empty, none of more than ``records_max`` offsets, large ones split until there
    are about ``partitions_min``."""
    found = [each for each in ranges if each.size > 0]
    if records_max is not None:
        found = [part for each in found for part in each.split(-(-each.size // records_max))]
    if partitions_min is None or len(found) >= partitions_min:
        return found
    total = sum(each.size for each in found)
    small = {
        each.place: each for each in found if _share(each.size, total, partitions_min) == 1 and records_max is None
    }
    total_split = total - sum(each.size for each in small.values())
    wanted = max(partitions_min - len(small), 1)
    return [
        part
        for each in found
        for part in each.split(1 if each.place in small else _share(each.size, total_split, wanted))
    ]


def _share(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def limited(limit: int, start: Mapping[Place, int], end: Mapping[Place, int]) -> Offsets:
    """At most about ``limit`` offsets from start to end, shared among partitions in proportion to their sizes.

    Each partition with records gets at least one, so the sum may be a little more.
    """
    return weighted(limit, start, end, {})


def weighted(
    limit: float, start: Mapping[Place, int], end: Mapping[Place, int], weights: Mapping[Place, float]
) -> Offsets:
    """The same with an offset of a partition counting as much as its weight, 1 by default."""
    sizes = {place: until - start[place] for place, until in end.items() if until > start.get(place, until)}
    total = sum(size * weights.get(place, 1.0) for place, size in sizes.items())
    found = dict(end)
    if total <= limit:
        return found
    for place, size in sizes.items():
        share = size * (limit / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        found[place] = min(end[place], start[place] + taken)
    return found
