"""The broker's log settings: directories, flushing, retention, compaction, and the defaults of topics."""

from dataclasses import dataclass
from typing import Any

from penstock.config.key import DOUBLE_MAX, LONG_MAX, Kind, Mode, Value, key
from penstock.config.log import COMPRESSED_CHECKS, FLUSH_POLICIES, RETENTION_HOURS_DEFAULT, TOPIC_KEYS

LIVE = Mode.CLUSTER_WIDE


def default_of(topic_name: str, name: str, *, unset: bool = False, choices: tuple[str, ...] | None = None) -> Any:
    """Declare the broker's key that gives a topic's key its default. `unset` leaves that to the next synonym.

    `choices` are fewer than the topic's where one makes sense only for a topic.
    """
    topic_key = TOPIC_KEYS[topic_name]
    default: Value = None if unset else topic_key.default
    return key(
        name,
        default,
        topic_key.kind,
        minimum=None if unset else topic_key.minimum,
        maximum=topic_key.maximum,
        also=topic_key.also,
        choices=topic_key.choices if choices is None else choices,
        as_set=topic_key.as_set,
        mode=LIVE,
        doc=f"Default of a topic's {topic_name}. {topic_key.doc}",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LogDefaults:
    """Settings of all logs of a broker."""

    __slots__ = ()

    log_dirs: tuple[str, ...] | None = key(
        "log.dirs", None, Kind.LIST, doc="Directories that hold the data, several to spread it over disks."
    )
    log_dir: tuple[str, ...] = key(
        "log.dir", ("penstock-data",), Kind.LIST, doc="The data directory, if log.dirs is not set."
    )
    num_recovery_threads_per_data_dir: int = key(
        "num.recovery.threads.per.data.dir",
        2,
        Kind.INT,
        minimum=1,
        mode=LIVE,
        doc="Threads that recover the logs of a directory after an unclean stop.",
    )

    log_cleanup_policy: frozenset[str] = default_of(
        "cleanup.policy", "log.cleanup.policy", choices=("compact", "delete")
    )
    compression_gzip_level: int = default_of("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = default_of("compression.lz4.level", "compression.lz4.level")
    compression_type: str = default_of("compression.type", "compression.type")
    compression_zstd_level: int = default_of("compression.zstd.level", "compression.zstd.level")
    log_cleaner_delete_retention_ms: int = default_of("delete.retention.ms", "log.cleaner.delete.retention.ms")
    log_segment_delete_delay_ms: int = default_of("file.delete.delay.ms", "log.segment.delete.delay.ms")
    log_compressed_check: str = key(
        "log.compressed.check",
        "header",
        Kind.STRING,
        choices=COMPRESSED_CHECKS,
        mode=LIVE,
        doc=f"Default of a topic's compressed.check. {TOPIC_KEYS['compressed.check'].doc}",
    )
    log_flush_policy: str = key(
        "log.flush.policy",
        "os",
        Kind.STRING,
        choices=FLUSH_POLICIES,
        mode=LIVE,
        doc=f"Default of a topic's flush. {TOPIC_KEYS['flush'].doc}",
    )
    log_flush_interval_messages: int = default_of("flush.messages", "log.flush.interval.messages")
    log_flush_interval_ms: int | None = default_of("flush.ms", "log.flush.interval.ms", unset=True)
    log_flush_scheduler_interval_ms: int = key(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        Kind.LONG,
        doc="The default of log.flush.interval.ms; how often logs are checked does not depend on it.",
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        Kind.INT,
        minimum=0,
        doc="How often recovery points are checkpointed.",
    )
    log_index_interval_bytes: int = default_of("index.interval.bytes", "log.index.interval.bytes")
    log_index_size_max_bytes: int = default_of("segment.index.bytes", "log.index.size.max.bytes")
    log_local_retention_bytes: int = default_of("local.retention.bytes", "log.local.retention.bytes")
    log_local_retention_ms: int = default_of("local.retention.ms", "log.local.retention.ms")
    log_message_timestamp_after_max_ms: int = default_of(
        "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"
    )
    log_message_timestamp_before_max_ms: int = default_of(
        "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"
    )
    log_message_timestamp_type: str = default_of("message.timestamp.type", "log.message.timestamp.type")
    log_preallocate: bool = default_of("preallocate", "log.preallocate")
    log_retention_bytes: int = default_of("retention.bytes", "log.retention.bytes")
    log_retention_check_interval_ms: int = key(
        "log.retention.check.interval.ms",
        300_000,
        Kind.LONG,
        minimum=1,
        doc="How often logs are checked for segments that retention deletes.",
    )
    log_retention_hours: int = key(
        "log.retention.hours",
        RETENTION_HOURS_DEFAULT,
        Kind.INT,
        doc="How long records are kept, if neither log.retention.ms nor log.retention.minutes is set. The default is "
        "two weeks; Kafka's is one.",
    )
    log_retention_minutes: int | None = key(
        "log.retention.minutes",
        None,
        Kind.INT,
        doc="How long records are kept, if log.retention.ms is not set.",
    )
    log_retention_ms: int | None = default_of("retention.ms", "log.retention.ms", unset=True)
    log_roll_hours: int = key(
        "log.roll.hours",
        7 * 24,
        Kind.INT,
        minimum=1,
        doc="Age at which a segment is rolled, if log.roll.ms is not set.",
    )
    log_roll_ms: int | None = default_of("segment.ms", "log.roll.ms", unset=True)
    log_roll_jitter_hours: int = key(
        "log.roll.jitter.hours",
        0,
        Kind.INT,
        minimum=0,
        doc="Jitter of log.roll.hours, if log.roll.jitter.ms is not set.",
    )
    log_roll_jitter_ms: int | None = default_of("segment.jitter.ms", "log.roll.jitter.ms", unset=True)
    log_segment_bytes: int = default_of("segment.bytes", "log.segment.bytes")
    message_max_bytes: int = default_of("max.message.bytes", "message.max.bytes")
    min_insync_replicas: int = default_of("min.insync.replicas", "min.insync.replicas")
    unclean_leader_election_enable: bool = default_of(
        "unclean.leader.election.enable", "unclean.leader.election.enable"
    )

    log_cleaner_enable: bool = key("log.cleaner.enable", True, Kind.BOOLEAN, doc="Whether the log cleaner runs.")
    log_cleaner_backoff_ms: int = key(
        "log.cleaner.backoff.ms",
        15_000,
        Kind.LONG,
        minimum=0,
        mode=LIVE,
        doc="Pause of the cleaner between two rounds over the compacted logs.",
    )
    log_cleaner_dedupe_buffer_size: int = key(
        "log.cleaner.dedupe.buffer.size",
        128 * 1024 * 1024,
        Kind.LONG,
        mode=LIVE,
        doc="Memory of one compaction for the offset map (last offset by key).",
    )
    log_cleaner_io_buffer_load_factor: float = key(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        Kind.DOUBLE,
        mode=LIVE,
        doc="Load factor of the offset map.",
    )
    log_cleaner_io_max_bytes_per_second: float = key(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        Kind.DOUBLE,
        mode=LIVE,
        doc="Bytes per second that the cleaner reads and writes at most.",
    )
    log_cleaner_max_compaction_lag_ms: int = default_of("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
    log_cleaner_min_compaction_lag_ms: int = default_of("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = default_of("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio")

    log_consume_check_interval_ms: int = key(
        "log.consume.check.interval.ms",
        5_000,
        Kind.LONG,
        minimum=1,
        mode=LIVE,
        doc="How often leaders of topics with cleanup.policy=consume ask what their group has consumed.",
    )
    log_files_open_max: int = key(
        "log.files.open.max",
        2048,
        Kind.INT,
        minimum=64,
        doc="Segment and index files open at once; the least recently used is closed first. At most half of the "
        "process's limit of file descriptors.",
    )
    log_scrub_interval_ms: int = key(
        "log.scrub.interval.ms",
        7 * 24 * 3_600_000,
        Kind.LONG,
        minimum=1,
        doc="How often every inactive segment is verified to find damage.",
    )
    log_scrub_max_bytes_per_second: int = key(
        "log.scrub.max.bytes.per.second",
        8 * 1024 * 1024,
        Kind.LONG,
        minimum=1,
        doc="Bytes per second that the scrubber reads at most.",
    )
