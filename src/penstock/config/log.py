"""The settings of a topic's log, and the broker's defaults for them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from penstock.config.key import LONG_MAX, Kind, Synonym, key, keys_of
from penstock.model.generated_errors import InvalidConfig
from penstock.model.topic import PARTITIONS_ACTIVE, PARTITIONS_FINALIZED, VIEW_FILTER, VIEW_OF

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
RETENTION_HOURS_DEFAULT = 14 * 24
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete", "consume")
CONSUME = "consume"
CONSUME_GROUP = "consume.group"
FLUSH_POLICIES = ("os", "group")
COMPRESSED_CHECKS = ("header", "records")
PARTITIONS_GHOSTS = "partitions.ghosts"
"""Described beside a topic's settings: drained partitions that are empty and have no replicas. Only brokers say so."""
SCHEDULE_TARGET = "schedule.target"
MISFIRES = ("once", "skip", "all")
ALL_PARTITIONS = -1
SEGMENT_BYTES_MIN = 1024 * 1024
DEDUPE_RECORDS_MAX = 1_000_000
REPLICA_PAIR = re.compile(r"\d+:\d+")


def check_throttled_replicas(name: str, items: tuple[str, ...]) -> None:
    """Check a list of throttled replicas: partition:broker pairs, or `*` for all."""
    if items == ("*",) or all(REPLICA_PAIR.fullmatch(item) for item in items):
        return
    raise InvalidConfig(
        f"Invalid value [{', '.join(items)}] for configuration {name}: {name} must be the literal '*' or a list of "
        "replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def of(*names: str) -> tuple[Synonym, ...]:
    return tuple(Synonym(name) for name in names)


def of_hours(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"{name}.ms"), Synonym(f"{name}.hours", HOUR_MS))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic: each value is the topic's own, else the broker's default."""

    cleanup_policy: frozenset[str] = key(
        "cleanup.policy",
        ("delete",),
        Kind.LIST,
        choices=CLEANUP_POLICIES,
        as_set=True,
        synonyms=of("log.cleanup.policy"),
        doc="How old records are removed: by age and size (delete), by newer records of a key (compact), or both; or "
        "as soon as consume.group has consumed them (consume), which may be combined with delete.",
    )
    consume_group: str = key(
        CONSUME_GROUP,
        "",
        Kind.STRING,
        doc="The group that cleanup.policy=consume follows: records below its committed offset are removed, and other "
        "groups cannot commit offsets of the topic.",
    )
    compression_gzip_level: int = key(
        "compression.gzip.level",
        -1,
        Kind.INT,
        minimum=1,
        maximum=9,
        also=-1,
        synonyms=of("compression.gzip.level"),
        doc="Level used when the broker itself compresses with gzip; -1 is the library's default.",
    )
    compression_lz4_level: int = key(
        "compression.lz4.level",
        9,
        Kind.INT,
        minimum=1,
        maximum=17,
        synonyms=of("compression.lz4.level"),
        doc="Level used when the broker itself compresses with lz4.",
    )
    compression_type: str = key(
        "compression.type",
        "producer",
        Kind.STRING,
        choices=COMPRESSION_TYPES,
        synonyms=of("compression.type"),
        doc="Codec of stored batches; 'producer' keeps each as it was sent.",
    )
    compression_zstd_level: int = key(
        "compression.zstd.level",
        3,
        Kind.INT,
        minimum=-131072,
        maximum=22,
        synonyms=of("compression.zstd.level"),
        doc="Level used when the broker itself compresses with zstd.",
    )
    dedupe_window_records: int = key(
        "dedupe.window.records",
        0,
        Kind.INT,
        minimum=0,
        maximum=DEDUPE_RECORDS_MAX,
        doc="Offsets of a partition within which a record is removed when it is produced if an earlier one has the "
        "same header penstock-msg-id; about 130 bytes of memory for each. 0 removes none.",
    )
    delete_retention_ms: int = key(
        "delete.retention.ms",
        24 * HOUR_MS,
        Kind.LONG,
        minimum=0,
        synonyms=of("log.cleaner.delete.retention.ms"),
        doc="How long compaction keeps a tombstone, so that consumers that read from the start still see it.",
    )
    errors_deadletterqueue_group_enable: bool = key(
        "errors.deadletterqueue.group.enable",
        False,
        Kind.BOOLEAN,
        doc="Whether share groups may copy to this topic what they give up (errors.deadletterqueue.topic.name).",
    )
    file_delete_delay_ms: int = key(
        "file.delete.delay.ms",
        MINUTE_MS,
        Kind.LONG,
        minimum=0,
        synonyms=of("log.segment.delete.delay.ms"),
        doc="How long a dropped segment's files stay on disk.",
    )
    compressed_check: str = key(
        "compressed.check",
        "header",
        Kind.STRING,
        choices=COMPRESSED_CHECKS,
        synonyms=of("log.compressed.check"),
        doc="Validation of compressed batches: header and checksum (header), or every record (records).",
    )
    flush: str = key(
        "flush",
        "os",
        Kind.STRING,
        choices=FLUSH_POLICIES,
        synonyms=of("log.flush.policy"),
        doc="When a produce is acknowledged: in the page cache (os), or on disk after a shared fsync (group).",
    )
    flush_messages: int = key(
        "flush.messages",
        LONG_MAX,
        Kind.LONG,
        minimum=1,
        synonyms=of("log.flush.interval.messages"),
        doc="Records after which an fsync is forced.",
    )
    flush_ms: int = key(
        "flush.ms",
        LONG_MAX,
        Kind.LONG,
        minimum=0,
        synonyms=of("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Milliseconds after which unflushed records are forced to disk.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        "follower.replication.throttled.replicas",
        (),
        Kind.LIST,
        check=check_throttled_replicas,
        doc="Replicas whose fetching is throttled, as partition:broker pairs or '*'.",
    )
    index_interval_bytes: int = key(
        "index.interval.bytes",
        4096,
        Kind.INT,
        minimum=0,
        synonyms=of("log.index.interval.bytes"),
        doc="Bytes of log between two entries of an index.",
    )
    internal_segment_bytes: int | None = key(
        "internal.segment.bytes",
        None,
        Kind.INT,
        internal=True,
        doc="Segment size below the usual minimum, for tests.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        "leader.replication.throttled.replicas",
        (),
        Kind.LIST,
        check=check_throttled_replicas,
        doc="Replicas whose fetches the leader throttles, as partition:broker pairs or '*'.",
    )
    local_retention_bytes: int = key(
        "local.retention.bytes",
        -2,
        Kind.LONG,
        minimum=-2,
        synonyms=of("log.local.retention.bytes"),
        doc="Accepted for tools that set it; there is no remote tier.",
    )
    local_retention_ms: int = key(
        "local.retention.ms",
        -2,
        Kind.LONG,
        minimum=-2,
        synonyms=of("log.local.retention.ms"),
        doc="Accepted for tools that set it; there is no remote tier.",
    )
    max_compaction_lag_ms: int = key(
        "max.compaction.lag.ms",
        LONG_MAX,
        Kind.LONG,
        minimum=1,
        synonyms=of("log.cleaner.max.compaction.lag.ms"),
        doc="The longest a record may stay uncompacted, also in a log with few dirty records.",
    )
    max_message_bytes: int = key(
        "max.message.bytes",
        1024 * 1024 + 12,
        Kind.INT,
        minimum=0,
        synonyms=of("message.max.bytes"),
        doc="The largest record batch accepted, as it was sent.",
    )
    message_timestamp_after_max_ms: int = key(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        Kind.LONG,
        minimum=0,
        synonyms=of("log.message.timestamp.after.max.ms"),
        doc="How far ahead of the broker's clock a record's time may be.",
    )
    message_timestamp_before_max_ms: int = key(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        Kind.LONG,
        minimum=0,
        synonyms=of("log.message.timestamp.before.max.ms"),
        doc="How far behind the broker's clock a record's time may be.",
    )
    message_timestamp_type: str = key(
        "message.timestamp.type",
        "CreateTime",
        Kind.STRING,
        choices=TIMESTAMP_TYPES,
        synonyms=of("log.message.timestamp.type"),
        doc="Whether timestamps are those of the producer (CreateTime) or of the append (LogAppendTime).",
    )
    min_cleanable_dirty_ratio: float = key(
        "min.cleanable.dirty.ratio",
        0.5,
        Kind.DOUBLE,
        minimum=0,
        maximum=1,
        synonyms=of("log.cleaner.min.cleanable.ratio"),
        doc="The share of uncompacted bytes at which a log is compacted.",
    )
    min_compaction_lag_ms: int = key(
        "min.compaction.lag.ms",
        0,
        Kind.LONG,
        minimum=0,
        synonyms=of("log.cleaner.min.compaction.lag.ms"),
        doc="The shortest time that a record stays uncompacted.",
    )
    min_insync_replicas: int = key(
        "min.insync.replicas",
        1,
        Kind.INT,
        minimum=1,
        synonyms=of("min.insync.replicas"),
        doc="In-sync replicas that acks=all needs.",
    )
    preallocate: bool = key(
        "preallocate",
        False,
        Kind.BOOLEAN,
        synonyms=of("log.preallocate"),
        doc="Accepted for compatibility, without effect: files grow as they are written.",
    )
    remote_log_copy_disable: bool = key(
        "remote.log.copy.disable",
        False,
        Kind.BOOLEAN,
        doc="Accepted for tools that set it; there is no remote tier.",
    )
    remote_log_delete_on_disable: bool = key(
        "remote.log.delete.on.disable",
        False,
        Kind.BOOLEAN,
        doc="Accepted for tools that set it; there is no remote tier.",
    )
    remote_storage_enable: bool = key(
        "remote.storage.enable",
        False,
        Kind.BOOLEAN,
        doc="Only false is accepted: there is no remote tier.",
    )
    retention_bytes: int = key(
        "retention.bytes",
        -1,
        Kind.LONG,
        synonyms=of("log.retention.bytes"),
        doc="Size above which a partition's oldest segments are deleted; negative is no limit.",
    )
    partitions_active: int = key(
        PARTITIONS_ACTIVE,
        ALL_PARTITIONS,
        Kind.INT,
        minimum=1,
        also=ALL_PARTITIONS,
        doc="Partitions that records are written to; records for the others are written to these. -1 is all of them.",
    )
    partitions_finalized: bool = key(
        PARTITIONS_FINALIZED,
        False,
        Kind.BOOLEAN,
        doc="Whether clients see only the active partitions. The others have to be empty, and lose committed offsets.",
    )
    retention_ms: int = key(
        "retention.ms",
        RETENTION_HOURS_DEFAULT * HOUR_MS,
        Kind.LONG,
        minimum=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
        doc="How long a record is kept; -1 is no limit.",
    )
    schedule_catchup_rate: int = key(
        "schedule.catchup.rate",
        20_000,
        Kind.INT,
        minimum=1,
        doc="Messages a second that a partition of schedules delivers of those that are late, as after a downtime.",
    )
    schedule_misfire: str = key(
        "schedule.misfire",
        "once",
        Kind.STRING,
        choices=MISFIRES,
        doc="Times that passed while nothing could be delivered: one message for all of them (once), none (skip), or "
        "one for each (all). A schedule's own header precedes it.",
    )
    schedule_paused: bool = key(
        "schedule.paused",
        False,
        Kind.BOOLEAN,
        doc="Whether no schedule of the topic is delivered for now.",
    )
    schedule_target: str = key(
        SCHEDULE_TARGET,
        "",
        Kind.STRING,
        doc="The topic that messages are delivered to when they are due: it makes this one a topic of schedules. Only "
        "at creation.",
    )
    ttl_enable: bool = key(
        "ttl.enable",
        False,
        Kind.BOOLEAN,
        doc="Whether share groups skip records that are older than their header penstock-ttl-ms; other consumers see "
        "them.",
    )
    segment_bytes: int = key(
        "segment.bytes",
        1024 * 1024 * 1024,
        Kind.INT,
        minimum=SEGMENT_BYTES_MIN,
        synonyms=of("log.segment.bytes"),
        doc="Size at which a segment is rolled.",
    )
    segment_index_bytes: int = key(
        "segment.index.bytes",
        10 * 1024 * 1024,
        Kind.INT,
        minimum=4,
        synonyms=of("log.index.size.max.bytes"),
        doc="Size of an index at which its segment is rolled.",
    )
    segment_jitter_ms: int = key(
        "segment.jitter.ms",
        0,
        Kind.LONG,
        minimum=0,
        synonyms=of_hours("log.roll.jitter"),
        doc="The most that is subtracted from segment.ms at random, so that partitions do not roll at once.",
    )
    segment_ms: int = key(
        "segment.ms",
        7 * 24 * HOUR_MS,
        Kind.LONG,
        minimum=1,
        synonyms=of_hours("log.roll"),
        doc="Age at which a segment is rolled, full or not.",
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable",
        False,
        Kind.BOOLEAN,
        synonyms=of("unclean.leader.election.enable"),
        doc="Whether a replica that is not in sync may become leader when no other can, which loses records.",
    )
    view_filter: str = key(
        VIEW_FILTER,
        "",
        Kind.STRING,
        doc="With view.of: the condition that a record of the parent has to meet, as in SQL's WHERE. Set at creation.",
    )
    view_of: str = key(
        VIEW_OF,
        "",
        Kind.STRING,
        doc="Makes the new topic a filtered view of this one, its parent. Set at creation.",
    )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: "BrokerConfig") -> "TopicConfig":
        """The settings in force: the topic's overrides over the broker's defaults.

        Topics without overrides share one object, since most of ten thousand have none.
        """
        if not overrides:
            return broker.topic_defaults
        return replace(broker.topic_defaults, **read_overrides(overrides))

    @property
    def segment_bytes_effective(self) -> int:
        """Size at which a segment rolls; tests may set it below the minimum of segment.bytes."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes


TOPIC_KEYS = keys_of(TopicConfig)


def read_overrides(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Overrides as attributes and values. A name this version does not know is skipped: a newer one may have set it."""
    return {
        TOPIC_KEYS[name].attribute: TOPIC_KEYS[name].read(text)
        for name, text in overrides.items()
        if name in TOPIC_KEYS
    }


def check_topic_configs(overrides: Mapping[str, str], broker: "BrokerConfig") -> None:
    """Raise `InvalidConfig` for an unknown key, an invalid value, or overrides that contradict each other."""
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise InvalidConfig(f"Unknown topic config name: {name}")
    config = TopicConfig.resolve(overrides, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.schedule_target and config.cleanup_policy != frozenset({"compact"}):
        raise InvalidConfig(f"{SCHEDULE_TARGET} needs cleanup.policy=compact: retention would delete what waits")
    if config.dedupe_window_records and "compact" in config.cleanup_policy:
        raise InvalidConfig(
            "dedupe.window.records needs a cleanup.policy without compact: compaction removes ids which a new leader "
            "has to find in the log"
        )
    check_consume(config)
    if config.remote_storage_enable:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def check_consume(config: TopicConfig) -> None:
    """Raise `InvalidConfig` where a policy and the group that it follows contradict each other."""
    if CONSUME not in config.cleanup_policy:
        if config.consume_group:
            raise InvalidConfig(f"{CONSUME_GROUP} needs cleanup.policy=consume")
        return
    if not config.consume_group:
        raise InvalidConfig(
            f"cleanup.policy=consume needs {CONSUME_GROUP}, the group whose consumed records are removed"
        )
    if "compact" in config.cleanup_policy:
        raise InvalidConfig("cleanup.policy=consume cannot be combined with compact: both decide what a key has left")


def topic_defaults(broker: "BrokerConfig") -> TopicConfig:
    """The settings of a topic without overrides: each from the first synonym that the broker has a value for."""
    values: dict[str, Any] = {}
    for each in fields(TopicConfig):
        for name, factor in TOPIC_KEYS_BY_ATTRIBUTE[each.name].synonyms:
            value = getattr(broker, name.replace(".", "_"))
            if value is not None:
                values[each.name] = value if factor == 1 else value * factor
                break
    if values["retention_ms"] < 0:
        values["retention_ms"] = -1
    return TopicConfig(**values)


TOPIC_KEYS_BY_ATTRIBUTE = {declared.attribute: declared for declared in TOPIC_KEYS.values()}
