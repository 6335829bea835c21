"""The broker's settings of producer state and transactions."""

from dataclasses import dataclass

from penstock.config.key import Kind, Mode, key


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionKeys:
    """Settings of producer state and of the transaction coordinator."""

    __slots__ = ()

    producer_id_expiration_ms: int = key(
        "producer.id.expiration.ms",
        86_400_000,
        Kind.INT,
        minimum=1,
        mode=Mode.CLUSTER_WIDE,
        doc="The state of an idempotent producer expires after this long without a batch.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        "producer.id.expiration.check.interval.ms",
        600_000,
        Kind.INT,
        minimum=1,
        internal=True,
        doc="How often expired producers are removed.",
    )
    transactional_id_expiration_ms: int = key(
        "transactional.id.expiration.ms",
        604_800_000,
        Kind.INT,
        minimum=1,
        doc="A transactional id expires after this long without use.",
    )
    transaction_max_timeout_ms: int = key(
        "transaction.max.timeout.ms",
        900_000,
        Kind.INT,
        minimum=1,
        doc="The longest transaction timeout that a producer may have.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        Kind.INT,
        minimum=1,
        doc="How often transactions are checked for their timeout.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        Kind.INT,
        minimum=1,
        doc="How often expired transactional ids are removed.",
    )
    transaction_partition_verification_enable: bool = key(
        "transaction.partition.verification.enable",
        True,
        Kind.BOOLEAN,
        mode=Mode.CLUSTER_WIDE,
        doc="Whether a partition is verified to be part of a transaction before it takes its records (KIP-890).",
    )
    transaction_two_phase_commit_enable: bool = key(
        "transaction.two.phase.commit.enable",
        False,
        Kind.BOOLEAN,
        doc="Whether producers may use two-phase commit (KIP-939).",
    )
    transaction_state_log_min_isr: int = key(
        "transaction.state.log.min.isr", 2, Kind.INT, minimum=1, doc="min.insync.replicas of __transaction_state."
    )
    transaction_state_log_num_partitions: int = key(
        "transaction.state.log.num.partitions", 50, Kind.INT, minimum=1, doc="Partitions of __transaction_state."
    )
    transaction_state_log_replication_factor: int = key(
        "transaction.state.log.replication.factor",
        3,
        Kind.SHORT,
        minimum=1,
        doc="Replicas of __transaction_state; one where a broker is alone. Created once so many brokers are live.",
    )
    transaction_state_log_segment_bytes: int = key(
        "transaction.state.log.segment.bytes",
        100 * 1024 * 1024,
        Kind.INT,
        minimum=1,
        doc="Segment size of __transaction_state.",
    )
