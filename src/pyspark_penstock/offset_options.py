"""The options that say from where to where a read goes: offsets, times, relative starts, a group's offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.offsets import EARLIEST, LATEST, Place, named, offsets_option, timestamps_option
from pyspark_penstock.option_values import UNITS_MS

_RELATIVE = re.compile(r"-(\d+)(ms|s|m|min|h|d)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Everywhere:
    """The beginning or the end of every partition."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """An offset for every partition, some of them EARLIEST or LATEST."""

    offsets: Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first record of this time or later, in every partition or in each at its own time."""

    timestamp_ms: int | None = None
    timestamps_ms: Mapping[Place, int] | None = None
    or_latest: bool = False
    """Where a partition has no such record: its end, or an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """So many records, or so long, before the end."""

    records: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfGroup:
    """Where a consumer group is; elsewhere where it has committed nothing."""

    group: str
    otherwise: Everywhere | AtOffsets | AtTime | Back


Limit = Everywhere | AtOffsets | AtTime | Back | OfGroup


def starting(given: Mapping[str, str], default: Everywhere) -> Limit:
    limit = limit_of(given, "starting", default)
    group = given.get("startinggroup")
    if group is None:
        return limit
    if not group.strip():
        raise WrongOption("Option 'startingGroup' is empty")
    return OfGroup(group=group.strip(), otherwise=limit)


def limit_of(given: Mapping[str, str], which: str, default: Everywhere) -> Everywhere | AtOffsets | AtTime | Back:
    """The first of the three options that is there: a time, times, offsets."""
    # An end that nothing has reached yet is the end there is.
    or_latest = _or_latest(given) or which == "ending"
    if (text := given.get(f"{which}timestamp")) is not None:
        try:
            return AtTime(timestamp_ms=int(text), or_latest=or_latest)
        except ValueError:
            raise WrongOption(f"Expected a single long value, got {text.strip()}") from None
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        return AtTime(timestamps_ms=timestamps_option(text.strip()), or_latest=or_latest)
    text = given.get(f"{which}offsets", "").strip()
    if not text:
        return default
    if text.lower() in ("earliest", "latest"):
        return Everywhere(offset=EARLIEST if text.lower() == "earliest" else LATEST)
    if which == "starting" and (relative := _RELATIVE.fullmatch(text)):
        number, unit = int(relative[1]), relative[2]
        return Back(duration_ms=int(number * UNITS_MS[unit])) if unit else Back(records=number)
    return AtOffsets(offsets=offsets_option(text))


def _or_latest(given: Mapping[str, str]) -> bool:
    text = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if text not in ("error", "latest"):
        raise WrongOption(f"No value found for '{text.upper()}': startingOffsetsByTimestampStrategy is error or latest")
    return text == "latest"


def refuse_in_streams(given: Mapping[str, str]) -> None:
    if "endingoffsets" in given:
        raise WrongOption("ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in given or "endingtimestamp" in given:
        raise WrongOption("ending timestamp not valid in streaming queries")


def check_batch(given: Mapping[str, str], start: Limit, end: Limit) -> None:
    if "commitgroup" in given:
        raise WrongOption("commitGroup is for streaming queries: a batch query does not say when it has been read")
    if start == Everywhere(offset=LATEST):
        raise WrongOption("starting offset can't be latest for batch queries on Kafka")
    if end == Everywhere(offset=EARLIEST):
        raise WrongOption("ending offset can't be earliest for batch queries on Kafka")
    if isinstance(start, AtOffsets):
        for topic, partition in _places_at(start.offsets, LATEST):
            raise WrongOption(f"startingOffsets for {topic}-{partition} can't be latest for batch queries on Kafka")
    if isinstance(end, AtOffsets):
        for topic, partition in _places_at(end.offsets, EARLIEST):
            raise WrongOption(f"ending offset for {topic}-{partition} can't be earliest for batch queries on Kafka")
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_order(start.offsets, end.offsets, "offset")
    if isinstance(start, AtTime) and isinstance(end, AtTime) and start.timestamps_ms and end.timestamps_ms:
        _check_order(start.timestamps_ms, end.timestamps_ms, "timestamp")


def _places_at(offsets: Mapping[Place, int], offset: int) -> list[Place]:
    return sorted(place for place, each in offsets.items() if each == offset)


def _check_order(start: Mapping[Place, int], end: Mapping[Place, int], what: str) -> None:
    if start.keys() != end.keys():
        raise WrongOption(
            "The specified start offset and end offset should have the same topic-partitions. Topic-partitions for "
            f"start offset: {named(start)}, topic-partitions for end offset: {named(end)}."
        )
    for (topic, partition), first in start.items():
        last = end[topic, partition]
        if first > last and first >= 0 and last >= 0:
            raise WrongOption(
                f"The specified start {what} {first} is greater than the end {what} {last} for topic {topic} "
                f"partition {partition}."
            )
