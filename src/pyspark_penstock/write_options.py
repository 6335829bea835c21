"""The options of a writer: Spark's, those of Kafka's producer, and our own.

Spark passes their names in lower case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pyspark.sql.types import StructType

from penstock.wire.compression import CODEC_NAMES, GZIP, LZ4, NONE, ZSTD
from pyspark_penstock.batch_identity import BatchOffsets
from pyspark_penstock.column_options import WRITE_OPTIONS, ValueFormat, write_formats
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.link import LinkSettings
from pyspark_penstock.sink_state import BatchAction, Resolution

KAFKA_PREFIX = "kafka."
LEDGER_TOPIC = "__penstock_spark_sinks"
STREAM_SINK_PREFIX = "penstock-spark-"
BATCH_SINK_PREFIX = "penstock-spark-batch-"
TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow by default."""
BATCH_BYTES = 256 * 1024
BATCH_BYTES_MAX = 16 * 1024 * 1024
BACKOFF_MS = 10
"""Brokers may still finish the id's last transaction when the next begins: a long backoff would delay every
micro-batch."""
SINK_ID_CHARACTERS_MAX = 150

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
FAIL = "fail"
BEGIN = "begin"

_SINK_ID = re.compile(r"[A-Za-z0-9._-]+")

_OURS = frozenset(
    {
        "topic",
        "timestamp.column",
        "sinkid",
        "batchid",
        "resolvebatch",
        "ledgertopic",
        "ledgermissing",
        "delivery",
        "includeheaders",
    }
)
_OF_FOREACH = frozenset({"batchoffsets", "queryid", "queryrun"})
"""Options that `foreach.each_batch` sets from the calling query."""
_SPARKS = frozenset({"checkpointlocation", "path", "queryname"})
_LINK = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "default.api.timeout.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
_USED = frozenset(
    {
        "acks",
        "batch.size",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "transaction.timeout.ms",
    }
)
_WITHOUT_MEANING = frozenset(
    {
        "buffer.memory",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Properties of Kafka's producer that change nothing here: there is no background thread and no buffer to size."""
_REFUSED = {
    "key.serializer": "is not supported as keys are serialized with ByteArraySerializer.",
    "value.serializer": "is not supported as value are serialized with ByteArraySerializer.",
    "transactional.id": "is not supported: transactions are named after the option 'sinkId', if there is one.",
    "partitioner.class": "is not supported: put the partition into a column 'partition'.",
    "partitioner.ignore.keys": "is not supported: put the partition into a column 'partition'.",
    "interceptor.classes": "is not supported.",
    "transaction.two.phase.commit.enable": "is not supported.",
}
_SECRET_PREFIXES = ("ssl.", "sasl.", "security.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Checked options; sent to executors."""

    link: LinkSettings
    topic: str | None
    formats: Mapping[str, ValueFormat] = field(default_factory=dict[str, ValueFormat])
    """The formats of ``key`` and ``value``, if they are structs."""
    schema: StructType | None = None
    """The schema of the rows, if something is encoded."""
    timestamp_column: str | None = None
    """The column of the records' timestamps; None for the time of writing."""
    codec: int = NONE
    level: int | None = None
    batch_bytes: int = BATCH_BYTES
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    delivery: str = EXACTLY_ONCE
    sink_id: str | None = None
    batch_id: int | None = None
    ledger_topic: str = LEDGER_TOPIC
    ledger_missing: str = FAIL
    resolution: Resolution | None = None
    checkpoint: str = ""
    query_name: str = ""
    query_id: str = ""
    query_run: str = ""
    offsets: BatchOffsets | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse the options; ValueError for a wrong one, without values that may be secret."""
        lowered = {name.lower(): value for name, value in options.items()}
        producer = {
            name.removeprefix(KAFKA_PREFIX): value for name, value in lowered.items() if name.startswith(KAFKA_PREFIX)
        }
        _refuse_unknown({name: lowered[name] for name in lowered if name not in WRITE_OPTIONS}, producer)
        codec = _choice("kafka.compression.type", producer.get("compression.type", "none"), CODEC_NAMES)
        link = LinkSettings.of(producer)
        given = {name for name in ("retry.backoff.ms", "delivery.timeout.ms") if name in producer}
        if "retry.backoff.ms" not in given:
            link = replace(link, backoff_ms=BACKOFF_MS)
        if "delivery.timeout.ms" in given:
            link = replace(
                link, api_timeout_ms=_number("kafka.delivery.timeout.ms", producer["delivery.timeout.ms"], 1)
            )
        made = cls(
            link=link,
            topic=lowered.get("topic", "").strip() or None,
            formats=write_formats(lowered),
            timestamp_column=lowered.get("timestamp.column"),
            codec=CODEC_NAMES.index(codec),
            level=_level(CODEC_NAMES.index(codec), producer),
            batch_bytes=_number("kafka.batch.size", producer.get("batch.size", str(BATCH_BYTES)), 0, BATCH_BYTES_MAX),
            transaction_timeout_ms=_number(
                "kafka.transaction.timeout.ms", producer.get("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS)), 1
            ),
            delivery=_choice("delivery", lowered.get("delivery", EXACTLY_ONCE), (EXACTLY_ONCE, AT_LEAST_ONCE)),
            sink_id=lowered.get("sinkid"),
            batch_id=_number("batchId", lowered["batchid"], 0) if "batchid" in lowered else None,
            ledger_topic=lowered.get("ledgertopic", LEDGER_TOPIC),
            ledger_missing=_choice("ledgerMissing", lowered.get("ledgermissing", FAIL), (FAIL, BEGIN)),
            resolution=_resolution(lowered["resolvebatch"]) if "resolvebatch" in lowered else None,
            checkpoint=lowered.get("checkpointlocation", ""),
            query_name=lowered.get("queryname", ""),
            query_id=lowered.get("queryid", ""),
            query_run=lowered.get("queryrun", ""),
            offsets=BatchOffsets(**json.loads(lowered["batchoffsets"])) if "batchoffsets" in lowered else None,
        )
        made._check()
        return made

    def _check(self) -> None:
        if self.sink_id is not None and (
            not _SINK_ID.fullmatch(self.sink_id) or len(self.sink_id) > SINK_ID_CHARACTERS_MAX
        ):
            raise WrongOption(
                f"Option 'sinkId' must be letters, digits, '.', '_' and '-', at most {SINK_ID_CHARACTERS_MAX},"
                f" not {self.sink_id!r}"
            )
        if self.batch_id is not None and self.sink_id is None:
            raise WrongOption("Option 'batchId' needs the option 'sinkId', which names the sink")


def _refuse_unknown(lowered: Mapping[str, str], producer: Mapping[str, str]) -> None:
    for name in producer:
        if name in _REFUSED:
            raise WrongOption(f"Kafka option '{name}' {_REFUSED[name]}")
        known = name in _LINK or name in _USED or name in _WITHOUT_MEANING or name.startswith(_SECRET_PREFIXES)
        if not known:
            raise WrongOption(f"Kafka option '{name}' is not a producer property: is it misspelt?")
    for name in lowered:
        if not (name.startswith(KAFKA_PREFIX) or name in _OURS or name in _OF_FOREACH or name in _SPARKS):
            raise WrongOption(f"Option '{name}' is not a writer option: is it misspelt?")
    if producer.get("acks", "all") not in ("all", "-1"):
        raise WrongOption("Kafka option 'acks' must be 'all' for exactly-once")
    if producer.get("enable.idempotence", "true").lower() != "true":
        raise WrongOption("Kafka option 'enable.idempotence' must be 'true' for exactly-once")


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise WrongOption(f"Option '{name}' must be one of {', '.join(choices)}, not {value!r}")
    return value.lower()


def _resolution(text: str) -> Resolution:
    batch, _, action = text.strip().lower().partition(":")
    if not batch.isdecimal() or action not in [each.value for each in BatchAction]:
        raise WrongOption(
            f"Option 'resolveBatch' must be the number of a batch and what to do with it, as 12:skip or 12:write,"
            f" not {text!r}"
        )
    return Resolution(batch=int(batch), action=BatchAction(action))


def _number(name: str, text: str, least: int, most: int = 2**31 - 1) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise WrongOption(f"Option '{name}' must be a number from {least} to {most}, not {text!r}")
    return value


def _level(codec: int, producer: Mapping[str, str]) -> int | None:
    names = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
    text = producer.get(f"compression.{names[codec]}.level") if codec in names else None
    return None if text is None else _number(f"kafka.compression.{names[codec]}.level", text, -(1 << 17), 22)
