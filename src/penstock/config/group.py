"""The broker's settings of groups and committed offsets."""

from dataclasses import dataclass

from penstock.config.key import INT_MAX, Kind, Mode, key

LIVE = Mode.CLUSTER_WIDE


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GroupKeys:
    """Settings of the group coordinators."""

    __slots__ = ()

    group_initial_rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms",
        3000,
        Kind.INT,
        doc="How long a new group waits for more members before its first rebalance.",
    )
    group_max_session_timeout_ms: int = key(
        "group.max.session.timeout.ms",
        1_800_000,
        Kind.INT,
        doc="The longest session timeout that a classic member may have.",
    )
    group_min_session_timeout_ms: int = key(
        "group.min.session.timeout.ms",
        6000,
        Kind.INT,
        doc="The shortest session timeout that a classic member may have.",
    )
    group_max_size: int = key(
        "group.max.size", INT_MAX, Kind.INT, minimum=1, doc="The most members of a classic group."
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = key(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        Kind.LIST,
        choices=("consumer", "classic", "share", "streams"),
        doc="Group protocols that clients may use.",
    )
    group_consumer_assignors: tuple[str, ...] = key(
        "group.consumer.assignors", ("uniform", "range"), Kind.LIST, doc="Assignors, the default one first."
    )
    group_consumer_session_timeout_ms: int = key(
        "group.consumer.session.timeout.ms",
        45_000,
        Kind.INT,
        minimum=1,
        doc="A member without a heartbeat for this long leaves the group.",
    )
    group_consumer_min_session_timeout_ms: int = key(
        "group.consumer.min.session.timeout.ms",
        45_000,
        Kind.INT,
        minimum=1,
        doc="Lower bound of a group's own timeout.",
    )
    group_consumer_max_session_timeout_ms: int = key(
        "group.consumer.max.session.timeout.ms",
        60_000,
        Kind.INT,
        minimum=1,
        doc="Upper bound of a group's own timeout.",
    )
    group_consumer_heartbeat_interval_ms: int = key(
        "group.consumer.heartbeat.interval.ms", 5000, Kind.INT, minimum=1, doc="Interval between a member's heartbeats."
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        Kind.INT,
        minimum=1,
        doc="Lower bound of a group's own interval.",
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        Kind.INT,
        minimum=1,
        doc="Upper bound of a group's own interval.",
    )
    group_consumer_max_size: int = key(
        "group.consumer.max.size", INT_MAX, Kind.INT, minimum=1, doc="The most members of a consumer group."
    )
    group_consumer_migration_policy: str = key(
        "group.consumer.migration.policy",
        "bidirectional",
        Kind.STRING,
        doc="In which directions a group may change between the classic and the consumer protocol.",
    )
    group_consumer_assignment_interval_ms: int = key(
        "group.consumer.assignment.interval.ms",
        1000,
        Kind.INT,
        minimum=0,
        mode=LIVE,
        doc="The shortest time between two assignments of a group.",
    )
    group_consumer_min_assignment_interval_ms: int = key(
        "group.consumer.min.assignment.interval.ms",
        0,
        Kind.INT,
        minimum=0,
        doc="Lower bound of a group's own interval.",
    )
    group_consumer_max_assignment_interval_ms: int = key(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        Kind.INT,
        minimum=0,
        doc="Upper bound of a group's own interval.",
    )

    group_share_delivery_count_limit: int = key(
        "group.share.delivery.count.limit",
        5,
        Kind.INT,
        minimum=2,
        maximum=10,
        doc="Deliveries of a record before it is archived.",
    )
    group_share_record_lock_duration_ms: int = key(
        "group.share.record.lock.duration.ms",
        30_000,
        Kind.INT,
        minimum=1000,
        maximum=3_600_000,
        doc="How long a consumer's lock on a record lasts.",
    )
    group_share_min_record_lock_duration_ms: int = key(
        "group.share.min.record.lock.duration.ms",
        15_000,
        Kind.INT,
        minimum=1000,
        maximum=30_000,
        doc="Lower bound of a group's own setting.",
    )
    group_share_max_record_lock_duration_ms: int = key(
        "group.share.max.record.lock.duration.ms",
        60_000,
        Kind.INT,
        minimum=30_000,
        maximum=3_600_000,
        doc="Upper bound of a group's own setting.",
    )
    group_share_partition_max_record_locks: int = key(
        "group.share.partition.max.record.locks",
        2000,
        Kind.INT,
        minimum=100,
        maximum=10_000,
        doc="Records locked per partition.",
    )
    group_share_session_timeout_ms: int = key(
        "group.share.session.timeout.ms",
        45_000,
        Kind.INT,
        minimum=1,
        doc="A member without a heartbeat for this long leaves the group.",
    )
    group_share_min_session_timeout_ms: int = key(
        "group.share.min.session.timeout.ms", 45_000, Kind.INT, minimum=1, doc="Lower bound of a group's own timeout."
    )
    group_share_max_session_timeout_ms: int = key(
        "group.share.max.session.timeout.ms", 60_000, Kind.INT, minimum=1, doc="Upper bound of a group's own timeout."
    )
    group_share_heartbeat_interval_ms: int = key(
        "group.share.heartbeat.interval.ms", 5000, Kind.INT, minimum=1, doc="Interval between a member's heartbeats."
    )
    group_share_min_heartbeat_interval_ms: int = key(
        "group.share.min.heartbeat.interval.ms", 5000, Kind.INT, minimum=1, doc="Lower bound of a group's own interval."
    )
    group_share_max_heartbeat_interval_ms: int = key(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        Kind.INT,
        minimum=1,
        doc="Upper bound of a group's own interval.",
    )
    group_share_max_size: int = key(
        "group.share.max.size", 200, Kind.INT, minimum=1, maximum=1000, doc="The most members of a share group."
    )
    group_share_max_share_sessions: int = key(
        "group.share.max.share.sessions", 2000, Kind.INT, minimum=1, doc="Share sessions kept at once."
    )
    group_share_min_delivery_count_limit: int = key(
        "group.share.min.delivery.count.limit",
        2,
        Kind.INT,
        minimum=2,
        maximum=5,
        doc="Lower bound of a group's own setting.",
    )
    group_share_max_delivery_count_limit: int = key(
        "group.share.max.delivery.count.limit",
        10,
        Kind.INT,
        minimum=5,
        maximum=25,
        doc="Upper bound of a group's own setting.",
    )
    group_share_min_partition_max_record_locks: int = key(
        "group.share.min.partition.max.record.locks",
        100,
        Kind.INT,
        minimum=100,
        maximum=2000,
        doc="Lower bound of a group's own setting.",
    )
    group_share_max_partition_max_record_locks: int = key(
        "group.share.max.partition.max.record.locks",
        4000,
        Kind.INT,
        minimum=2000,
        maximum=10_000,
        doc="Upper bound of a group's own setting.",
    )
    group_share_assignment_interval_ms: int = key(
        "group.share.assignment.interval.ms",
        1000,
        Kind.INT,
        minimum=0,
        mode=LIVE,
        doc="The shortest time between two assignments of a group.",
    )
    group_share_min_assignment_interval_ms: int = key(
        "group.share.min.assignment.interval.ms", 0, Kind.INT, minimum=0, doc="Lower bound of a group's own interval."
    )
    group_share_max_assignment_interval_ms: int = key(
        "group.share.max.assignment.interval.ms",
        15_000,
        Kind.INT,
        minimum=0,
        doc="Upper bound of a group's own interval.",
    )
    errors_deadletterqueue_topic_name_prefix: str = key(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        Kind.STRING,
        doc="How the names of the dead-letter topics of share groups begin.",
    )
    share_coordinator_state_topic_num_partitions: int = key(
        "share.coordinator.state.topic.num.partitions",
        50,
        Kind.INT,
        minimum=1,
        doc="Partitions of __share_group_state.",
    )
    share_coordinator_state_topic_replication_factor: int = key(
        "share.coordinator.state.topic.replication.factor",
        3,
        Kind.SHORT,
        minimum=1,
        doc="Replicas of __share_group_state; one where a broker is alone. Created once so many brokers are live.",
    )
    share_coordinator_state_topic_min_isr: int = key(
        "share.coordinator.state.topic.min.isr",
        2,
        Kind.SHORT,
        minimum=1,
        doc="min.insync.replicas of __share_group_state.",
    )
    share_coordinator_state_topic_segment_bytes: int = key(
        "share.coordinator.state.topic.segment.bytes",
        100 * 1024 * 1024,
        Kind.INT,
        minimum=1,
        doc="Segment size of __share_group_state.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        Kind.INT,
        minimum=0,
        maximum=500,
        doc="Changes of a share partition between two records of its whole state.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        Kind.INT,
        minimum=1,
        internal=True,
        doc="How often the whole state of idle share partitions is written again, so that older records can go.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = key(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        Kind.INT,
        minimum=1,
        internal=True,
        doc="How often records of share state that later ones replace are deleted.",
    )
    group_share_initialize_retry_interval_ms: int = key(
        "group.share.initialize.retry.interval.ms",
        30_000,
        Kind.INT,
        minimum=1,
        internal=True,
        doc="How long a group coordinator waits before it asks again to initialize the state of a share partition.",
    )
    share_coordinator_write_timeout_ms: int = key(
        "share.coordinator.write.timeout.ms", 5000, Kind.INT, minimum=1, doc="How long a write of share state may take."
    )

    group_streams_session_timeout_ms: int = key(
        "group.streams.session.timeout.ms",
        45_000,
        Kind.INT,
        minimum=1,
        doc="A member without a heartbeat for this long leaves the group.",
    )
    group_streams_min_session_timeout_ms: int = key(
        "group.streams.min.session.timeout.ms", 45_000, Kind.INT, minimum=1, doc="Lower bound of a group's own timeout."
    )
    group_streams_max_session_timeout_ms: int = key(
        "group.streams.max.session.timeout.ms", 60_000, Kind.INT, minimum=1, doc="Upper bound of a group's own timeout."
    )
    group_streams_heartbeat_interval_ms: int = key(
        "group.streams.heartbeat.interval.ms", 5000, Kind.INT, minimum=1, doc="Interval between a member's heartbeats."
    )
    group_streams_min_heartbeat_interval_ms: int = key(
        "group.streams.min.heartbeat.interval.ms",
        5000,
        Kind.INT,
        minimum=1,
        doc="Lower bound of a group's own interval.",
    )
    group_streams_max_heartbeat_interval_ms: int = key(
        "group.streams.max.heartbeat.interval.ms",
        15_000,
        Kind.INT,
        minimum=1,
        doc="Upper bound of a group's own interval.",
    )
    group_streams_num_standby_replicas: int = key(
        "group.streams.num.standby.replicas", 0, Kind.INT, minimum=0, doc="Standby copies of each task."
    )
    group_streams_max_standby_replicas: int = key(
        "group.streams.max.standby.replicas", 2, Kind.INT, minimum=0, doc="Upper bound of a group's own number."
    )
    group_streams_initial_rebalance_delay_ms: int = key(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        Kind.INT,
        minimum=0,
        doc="How long a new group waits for more members before its first rebalance.",
    )
    group_streams_assignment_interval_ms: int = key(
        "group.streams.assignment.interval.ms",
        1000,
        Kind.INT,
        minimum=0,
        mode=LIVE,
        doc="The shortest time between two assignments of a group.",
    )
    group_streams_min_assignment_interval_ms: int = key(
        "group.streams.min.assignment.interval.ms", 0, Kind.INT, minimum=0, doc="Lower bound of a group's own interval."
    )
    group_streams_max_assignment_interval_ms: int = key(
        "group.streams.max.assignment.interval.ms",
        15_000,
        Kind.INT,
        minimum=0,
        doc="Upper bound of a group's own interval.",
    )

    offset_metadata_max_bytes: int = key(
        "offset.metadata.max.bytes", 4096, Kind.INT, doc="The longest metadata of a committed offset."
    )
    offsets_commit_timeout_ms: int = key(
        "offsets.commit.timeout.ms",
        5000,
        Kind.INT,
        minimum=1,
        doc="How long a request to a group coordinator waits for its records to be committed.",
    )
    offsets_retention_minutes: int = key(
        "offsets.retention.minutes", 7 * 24 * 60, Kind.INT, minimum=1, doc="How long an empty group's offsets are kept."
    )
    offsets_retention_check_interval_ms: int = key(
        "offsets.retention.check.interval.ms",
        600_000,
        Kind.LONG,
        minimum=1,
        doc="How often expired offsets are removed.",
    )
    offsets_topic_num_partitions: int = key(
        "offsets.topic.num.partitions", 50, Kind.INT, minimum=1, doc="Partitions of __consumer_offsets."
    )
    offsets_topic_replication_factor: int = key(
        "offsets.topic.replication.factor",
        3,
        Kind.SHORT,
        minimum=1,
        doc="Replicas of __consumer_offsets; one where a broker is alone. Created once so many brokers are live.",
    )
    offsets_topic_segment_bytes: int = key(
        "offsets.topic.segment.bytes", 100 * 1024 * 1024, Kind.INT, minimum=1, doc="Segment size of __consumer_offsets."
    )
