"""The options of a read, parsed and checked before the first request to a broker.

Names, defaults and refusals are those of Spark's Kafka connector; docs/spark.md lists the others. Only parsed values
are kept: options that may be secrets are in no field, log line or representation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_penstock.column_options import ReadColumns, ValueFormat
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.fetching import FETCH_BYTES_DEFAULT, FetchSettings
from pyspark_penstock.link import LinkSettings
from pyspark_penstock.offset_options import Everywhere, Limit, check_batch, limit_of, refuse_in_streams, starting
from pyspark_penstock.offsets import EARLIEST, LATEST
from pyspark_penstock.option_values import duration_ms, flag, parsed, positive
from pyspark_penstock.topic_options import Subscription, subscription_of

TRIGGER_DELAY_MAX_DEFAULT_MS = 15 * 60_000
POLL_TIMEOUT_DEFAULT_MS = 120_000
"""How long a task waits for records of its range; Spark's network timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Limits of one micro-batch."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = TRIGGER_DELAY_MAX_DEFAULT_MS
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """All options of a read."""

    link: LinkSettings
    fetch: FetchSettings
    subscription: Subscription
    start: Limit
    end: Limit
    admission: Admission
    partitions_min: int | None
    records_per_partition_max: int | None
    include_headers: bool
    filter_pushdown: bool
    columns: tuple[str, ...]
    read_columns: ReadColumns
    commit_group: str | None
    filter: Mapping[str, object] | None = None
    """The stored form of the condition that records have to meet."""

    @property
    def value_format(self) -> ValueFormat | None:
        return self.read_columns.formats.get("value")

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
        """Parse the options; ValueError for a wrong one, with the message of Spark's Kafka connector if it has one.

        Options for streams or batches alone are checked if ``streaming`` is given.
        """
        given = {name.lower(): value for name, value in options.items()}
        subscription = subscription_of(given)
        _refuse_kafka_options(given)
        kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
        if "bootstrap.servers" not in kafka:
            raise WrongOption("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
        start = starting(given, Everywhere(offset=LATEST if streaming else EARLIEST))
        end = limit_of(given, "ending", Everywhere(offset=LATEST))
        if streaming:
            refuse_in_streams(given)
        elif streaming is not None:
            check_batch(given, start, end)
        _check_without_effect(given)
        include_headers = flag(given, "includeHeaders", False)
        read_columns = ReadColumns.of(given, include_headers)
        return cls(
            link=LinkSettings.of(kafka),
            fetch=_fetch_settings(given, kafka),
            subscription=subscription,
            start=start,
            end=end,
            admission=_admission(given),
            partitions_min=positive(given, "minPartitions"),
            records_per_partition_max=positive(given, "maxRecordsPerPartition"),
            include_headers=include_headers,
            filter_pushdown=flag(given, "filterPushdown", False),
            columns=read_columns.names,
            read_columns=read_columns,
            commit_group=given.get("commitgroup") or None,
            filter=_filter(given),
        )


def _filter(given: Mapping[str, str]) -> Mapping[str, object] | None:
    if not given.get("filter"):
        return None
    # The parser is imported only by queries that have a filter.
    from pyspark_penstock.filtering import filter_of

    return filter_of(given["filter"])


# How much and how


def _admission(given: Mapping[str, str]) -> Admission:
    offsets_max = positive(given, "maxOffsetsPerTrigger")
    offsets_min = positive(given, "minOffsetsPerTrigger")
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise WrongOption(
            f"The value of minOffsetPerTrigger({offsets_min}) is higher than the maxOffsetsPerTrigger({offsets_max})."
        )
    return Admission(
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        delay_ms_max=duration_ms(given, "maxTriggerDelay", TRIGGER_DELAY_MAX_DEFAULT_MS),
        bytes_max=positive(given, "maxBytesPerTrigger"),
    )


def _fetch_settings(given: Mapping[str, str], kafka: Mapping[str, str]) -> FetchSettings:
    isolation = kafka.get("isolation.level", "read_uncommitted").strip().lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise WrongOption(f"Option 'kafka.isolation.level' is read_uncommitted or read_committed, not {isolation!r}")
    return FetchSettings(
        read_committed=isolation == "read_committed",
        fail_on_data_loss=flag(given, "failOnDataLoss", True),
        bytes_max=positive(given, "kafka.max.partition.fetch.bytes") or FETCH_BYTES_DEFAULT,
        wait_ms=positive(given, "kafka.fetch.max.wait.ms") or 500,
        timeout_ms=positive(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_DEFAULT_MS,
        check_crcs=flag(given, "kafka.check.crcs", True),
    )


def _check_without_effect(given: Mapping[str, str]) -> None:
    """Refuse values that are not numbers, as Spark's connector does; here `kafka.default.api.timeout.ms` bounds
    retries."""
    for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"):
        value = parsed(given, name, int)
        if value is not None and value < 0:
            raise WrongOption(f"Option '{name}' must not be negative, not {value}")


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
    for name, message in _UNSUPPORTED.items():
        if f"kafka.{name}" in given:
            raise WrongOption(message)
