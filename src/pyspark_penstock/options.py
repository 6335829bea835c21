"""The options of a read, parsed and checked before anything is asked of a broker.

Names, defaults and refusals are those of Spark's Kafka connector; what it does not have is said in docs/spark.md.
Only what is parsed is kept: option values that may be secrets are in no field, log line or representation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pyspark_penstock.fetching import FETCH_BYTES_DEFAULT, FetchSettings
from pyspark_penstock.link import LinkSettings
from pyspark_penstock.offsets import (
    EARLIEST,
    LATEST,
    Place,
    assignment_option,
    named,
    offsets_option,
    timestamps_option,
)

STRATEGIES = ("subscribe", "subscribepattern", "assign")
TRIGGER_DELAY_MAX_DEFAULT_MS = 15 * 60_000
POLL_TIMEOUT_DEFAULT_MS = 120_000
"""How long a task waits for records that its range promised; Spark's network timeout."""
_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_RELATIVE = re.compile(r"-(\d+)(ms|s|m|min|h|d)?")
_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")

Parsed = TypeVar("Parsed")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions are read: one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    places: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """How values are parsed: ``json``, ``avro`` or ``string``, and their schema as it was given."""

    name: str
    schema: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """How much one micro-batch takes."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = TRIGGER_DELAY_MAX_DEFAULT_MS
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Everything a read was told."""

    link: LinkSettings
    fetch: FetchSettings
    subscription: Subscription
    start: Limit
    end: Limit
    admission: Admission
    partitions_min: int | None
    records_per_partition_max: int | None
    include_headers: bool
    columns: tuple[str, ...]
    value_format: ValueFormat | None
    commit_group: str | None

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
        """ValueError where an option is wrong, in the words of Spark's Kafka connector where it has them.

        What holds for streams or for batches alone is looked at once it is known which of them this is.
        """
        given = {name.lower(): value for name, value in options.items()}
        subscription = _subscription(given)
        _refuse_kafka_options(given)
        kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
        if "bootstrap.servers" not in kafka:
            raise ValueError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
        start = _starting(given, Everywhere(offset=LATEST if streaming else EARLIEST))
        end = _limit(given, "ending", Everywhere(offset=LATEST))
        if streaming:
            _refuse_in_streams(given)
        elif streaming is not None:
            _check_batch(given, start, end)
        include_headers = _flag(given, "includeHeaders", False)
        value_format = _value_format(given)
        return cls(
            link=LinkSettings.of(kafka),
            fetch=_fetch_settings(given, kafka),
            subscription=subscription,
            start=start,
            end=end,
            admission=_admission(given),
            partitions_min=_positive(given, "minPartitions"),
            records_per_partition_max=_positive(given, "maxRecordsPerPartition"),
            include_headers=include_headers,
            columns=_columns(given, include_headers, value_format),
            value_format=value_format,
            commit_group=given.get("commitgroup") or None,
        )


# Which partitions


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in STRATEGIES if name in given]
    if not chosen:
        raise ValueError(
            "One of the following options must be specified for Kafka source: "
            f"{', '.join(STRATEGIES)}. See the docs for more details."
        )
    if len(chosen) > 1:
        raise ValueError(
            "Only one of the following options can be specified for Kafka source: "
            f"{', '.join(STRATEGIES)}. See the docs for more details."
        )
    text = given[chosen[0]]
    match chosen[0]:
        case "assign":
            if not text.strip().startswith("{"):
                raise ValueError(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")
            return Subscription(places=assignment_option(text))
        case "subscribe":
            topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
            if not topics:
                raise ValueError(f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'")
            return Subscription(topics=topics)
        case _:
            return Subscription(pattern=_pattern(text))


def _pattern(text: str) -> str:
    pattern = text.strip()
    if not pattern:
        raise ValueError(f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"Option 'subscribePattern' is no regular expression: {error}") from None
    return pattern


# From where to where


def _starting(given: Mapping[str, str], default: Everywhere) -> Limit:
    limit = _limit(given, "starting", default)
    group = given.get("startinggroup")
    if group is None:
        return limit
    if not group.strip():
        raise ValueError("Option 'startingGroup' is empty")
    return OfGroup(group=group.strip(), otherwise=limit)


def _limit(given: Mapping[str, str], which: str, default: Everywhere) -> Everywhere | AtOffsets | AtTime | Back:
    """The first of the three options that is there: a time, times, offsets."""
    # An end that nothing has reached yet is the end there is.
    or_latest = _or_latest(given) or which == "ending"
    if (text := given.get(f"{which}timestamp")) is not None:
        try:
            return AtTime(timestamp_ms=int(text), or_latest=or_latest)
        except ValueError:
            raise ValueError(f"Expected a single long value, got {text.strip()}") from None
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        return AtTime(timestamps_ms=timestamps_option(text.strip()), or_latest=or_latest)
    text = given.get(f"{which}offsets", "").strip()
    if not text:
        return default
    if text.lower() in ("earliest", "latest"):
        return Everywhere(offset=EARLIEST if text.lower() == "earliest" else LATEST)
    if which == "starting" and (relative := _RELATIVE.fullmatch(text)):
        number, unit = int(relative[1]), relative[2]
        return Back(duration_ms=int(number * _UNITS_MS[unit])) if unit else Back(records=number)
    return AtOffsets(offsets=offsets_option(text))


def _or_latest(given: Mapping[str, str]) -> bool:
    text = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if text not in ("error", "latest"):
        raise ValueError(f"No value found for '{text.upper()}': startingOffsetsByTimestampStrategy is error or latest")
    return text == "latest"


def _refuse_in_streams(given: Mapping[str, str]) -> None:
    if "endingoffsets" in given:
        raise ValueError("ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in given or "endingtimestamp" in given:
        raise ValueError("ending timestamp not valid in streaming queries")


def _check_batch(given: Mapping[str, str], start: Limit, end: Limit) -> None:
    if "commitgroup" in given:
        raise ValueError("commitGroup is for streaming queries: a batch query does not say when it has been read")
    if start == Everywhere(offset=LATEST):
        raise ValueError("starting offset can't be latest for batch queries on Kafka")
    if end == Everywhere(offset=EARLIEST):
        raise ValueError("ending offset can't be earliest for batch queries on Kafka")
    if isinstance(start, AtOffsets):
        for topic, partition in _places_at(start.offsets, LATEST):
            raise ValueError(f"startingOffsets for {topic}-{partition} can't be latest for batch queries on Kafka")
    if isinstance(end, AtOffsets):
        for topic, partition in _places_at(end.offsets, EARLIEST):
            raise ValueError(f"ending offset for {topic}-{partition} can't be earliest for batch queries on Kafka")
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_order(start.offsets, end.offsets, "offset")
    if isinstance(start, AtTime) and isinstance(end, AtTime) and start.timestamps_ms and end.timestamps_ms:
        _check_order(start.timestamps_ms, end.timestamps_ms, "timestamp")


def _places_at(offsets: Mapping[Place, int], offset: int) -> list[Place]:
    return sorted(place for place, each in offsets.items() if each == offset)


def _check_order(start: Mapping[Place, int], end: Mapping[Place, int], what: str) -> None:
    if start.keys() != end.keys():
        raise ValueError(
            "The specified start offset and end offset should have the same topic-partitions. Topic-partitions for "
            f"start offset: {named(start)}, topic-partitions for end offset: {named(end)}."
        )
    for (topic, partition), first in start.items():
        last = end[topic, partition]
        if first > last and first >= 0 and last >= 0:
            raise ValueError(
                f"The specified start {what} {first} is greater than the end {what} {last} for topic {topic} "
                f"partition {partition}."
            )


# How much and how


def _admission(given: Mapping[str, str]) -> Admission:
    offsets_max = _positive(given, "maxOffsetsPerTrigger")
    offsets_min = _positive(given, "minOffsetsPerTrigger")
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise ValueError(
            f"The value of minOffsetPerTrigger({offsets_min}) is higher than the maxOffsetsPerTrigger({offsets_max})."
        )
    return Admission(
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        delay_ms_max=_duration_ms(given, "maxTriggerDelay", TRIGGER_DELAY_MAX_DEFAULT_MS),
        bytes_max=_positive(given, "maxBytesPerTrigger"),
    )


def _fetch_settings(given: Mapping[str, str], kafka: Mapping[str, str]) -> FetchSettings:
    isolation = kafka.get("isolation.level", "read_uncommitted").strip().lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"Option 'kafka.isolation.level' is read_uncommitted or read_committed, not {isolation!r}")
    return FetchSettings(
        read_committed=isolation == "read_committed",
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        bytes_max=_positive(given, "kafka.max.partition.fetch.bytes") or FETCH_BYTES_DEFAULT,
        wait_ms=_positive(given, "kafka.fetch.max.wait.ms") or 500,
        timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_DEFAULT_MS,
        check_crcs=_flag(given, "kafka.check.crcs", True),
    )


_UNSUPPORTED = {
    "auto.offset.reset": (
        "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets' to "
        "'earliest' or 'latest' to specify where to start. Structured Streaming manages which offsets are consumed "
        "internally, rather than relying on the kafkaConsumer to do it. See the docs for more details."
    ),
    "key.deserializer": (
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys."
    ),
    "value.deserializer": (
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values."
    ),
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}


def _refuse_kafka_options(given: Mapping[str, str]) -> None:
    for name, words in _UNSUPPORTED.items():
        if f"kafka.{name}" in given:
            raise ValueError(words)


# Columns

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN = "headers"
VALUE_ERROR_COLUMN = "value_error"
VALUE_BYTES_COLUMN = "value_bytes"
VALUE_FORMATS = ("string", "json", "avro")


def _columns(given: Mapping[str, str], include_headers: bool, value_format: ValueFormat | None) -> tuple[str, ...]:
    """The columns that were asked for, in that order; without the option those of the connector."""
    usual = COLUMNS + ((HEADERS_COLUMN,) if include_headers else ())
    usual += (VALUE_ERROR_COLUMN,) if value_format else ()
    text = given.get("columns")
    if text is None:
        return usual
    known = {name.lower(): name for name in (*usual, HEADERS_COLUMN)}
    if value_format:
        known[VALUE_BYTES_COLUMN] = VALUE_BYTES_COLUMN
    asked = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in asked if name.lower() not in known]
    if unknown or not asked:
        raise ValueError(f"Option 'columns': {', '.join(unknown) or 'nothing'} is none of {', '.join(known.values())}")
    if len({name.lower() for name in asked}) < len(asked):
        raise ValueError(f"Option 'columns' names a column twice: {text}")
    return tuple(known[name.lower()] for name in asked)


def _value_format(given: Mapping[str, str]) -> ValueFormat | None:
    name = given.get("value.format", "binary").strip().lower()
    schema = given.get("value.schema", "").strip()
    if name == "binary":
        if schema:
            raise ValueError("Option 'value.schema' needs 'value.format': json or avro")
        return None
    if name not in VALUE_FORMATS:
        raise ValueError(f"Option 'value.format' is one of binary, {', '.join(VALUE_FORMATS)}, not {name!r}")
    if name == "string" and schema:
        raise ValueError("Option 'value.schema' has no meaning with 'value.format' string")
    if name != "string" and not schema:
        raise ValueError(f"Option 'value.format' {name} needs 'value.schema'")
    return ValueFormat(name=name, schema=schema)


# Single values


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"Option '{name}': For input string: \"{text}\"")
    return text.lower() == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    value = _parsed(given, name, int)
    if value is not None and value <= 0:
        raise ValueError(f"{name} must be positive")
    return value


def _parsed(given: Mapping[str, str], name: str, parse: Callable[[str], Parsed]) -> Parsed | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        return parse(text.strip())
    except ValueError:
        raise ValueError(f"Option '{name}': For input string: \"{text}\"") from None


def _duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"Option '{name}': {text!r} is no time such as 500ms, 30s, 15m, 2h or 1d")
    return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])
