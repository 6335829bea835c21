"""The broker's settings of replication."""

from dataclasses import dataclass

from penstock.config.key import LONG_MAX, Kind, Mode, key
from penstock.model.generated_errors import InvalidConfig

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL_LOG_DIRS = "*"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
NO_EFFECT = "Accepted for compatibility, without effect"


def check_cordoned(key_name: str, items: tuple[str, ...]) -> None:
    """Refuse single directories: a broker is cordoned as a whole."""
    if any(item != ALL_LOG_DIRS for item in items):
        raise InvalidConfig(
            f"Invalid value {','.join(items)} for configuration {key_name}: only {ALL_LOG_DIRS} is supported, which "
            "cordons every log directory of the broker"
        )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicaKeys:
    """Settings of replication."""

    __slots__ = ()

    default_replication_factor: int = key(
        "default.replication.factor", 1, Kind.INT, doc="Replicas of a topic that is created without a number of them."
    )
    num_replica_fetchers: int = key(
        "num.replica.fetchers",
        1,
        Kind.INT,
        minimum=1,
        mode=Mode.CLUSTER_WIDE,
        doc=f"{NO_EFFECT}: one fetch at a time for all partitions that a broker leads.",
    )
    replica_fetch_backoff_ms: int = key(
        "replica.fetch.backoff.ms", 1000, Kind.INT, minimum=0, doc="Pause after a fetch from a leader failed."
    )
    replica_fetch_max_bytes: int = key(
        "replica.fetch.max.bytes",
        8 * 1024 * 1024,
        Kind.INT,
        minimum=0,
        doc="The most bytes of a partition in a follower's fetch.",
    )
    replica_fetch_min_bytes: int = key(
        "replica.fetch.min.bytes", 1, Kind.INT, doc="Bytes that a leader waits for before it responds to a follower."
    )
    replica_fetch_response_max_bytes: int = key(
        "replica.fetch.response.max.bytes",
        10 * 1024 * 1024,
        Kind.INT,
        minimum=0,
        doc="The most bytes in the response to a follower's fetch.",
    )
    replica_fetch_wait_max_ms: int = key(
        "replica.fetch.wait.max.ms", 500, Kind.INT, doc="The longest that a leader waits for those bytes."
    )
    replica_lag_time_max_ms: int = key(
        "replica.lag.time.max.ms", 30_000, Kind.LONG, doc="A follower not caught up for this long leaves the ISR."
    )
    replica_selector_class: str | None = key(
        "replica.selector.class",
        None,
        Kind.STRING,
        choices=(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
        doc="How a leader chooses the replica that a consumer with client.rack reads from: RackAwareReplicaSelector, a "
        "replica in the consumer's rack; LeaderSelector or unset, always the leader.",
    )
    replica_socket_receive_buffer_bytes: int = key(
        "replica.socket.receive.buffer.bytes",
        64 * 1024,
        Kind.INT,
        doc=f"{NO_EFFECT}: the kernel grows the buffer as needed.",
    )
    replica_socket_timeout_ms: int = key(
        "replica.socket.timeout.ms", 30_000, Kind.INT, doc="How long a follower waits for its leader's response."
    )
    replication_quota_window_num: int = key(
        "replication.quota.window.num",
        11,
        Kind.INT,
        minimum=1,
        doc=f"{NO_EFFECT}: a replication throttle allows the bytes of one second at once.",
    )
    replication_quota_window_size_seconds: int = key(
        "replication.quota.window.size.seconds",
        1,
        Kind.INT,
        minimum=1,
        doc=f"{NO_EFFECT}, as replication.quota.window.num.",
    )
    leader_replication_throttled_rate: int = key(
        "leader.replication.throttled.rate",
        LONG_MAX,
        Kind.LONG,
        minimum=0,
        mode=Mode.CLUSTER_WIDE,
        doc="Bytes per second served to throttled followers.",
    )
    follower_replication_throttled_rate: int = key(
        "follower.replication.throttled.rate",
        LONG_MAX,
        Kind.LONG,
        minimum=0,
        mode=Mode.CLUSTER_WIDE,
        doc="Bytes per second fetched for throttled replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        Kind.LONG,
        minimum=0,
        mode=Mode.CLUSTER_WIDE,
        doc="Bytes per second when partitions move between log directories; 0 counts as 1.",
    )
    auto_leader_rebalance_enable: bool = key(
        "auto.leader.rebalance.enable", True, Kind.BOOLEAN, doc="Whether leadership returns to the preferred replica."
    )
    leader_imbalance_check_interval_seconds: int = key(
        "leader.imbalance.check.interval.seconds",
        300,
        Kind.LONG,
        minimum=1,
        doc="How often leaders are checked for being preferred.",
    )
    auto_balance: bool = key(
        "auto.balance",
        False,
        Kind.BOOLEAN,
        mode=Mode.CLUSTER_WIDE,
        doc="Whether the controller moves replicas by itself so that brokers have equal numbers of them, a few at a "
        "time and never while something is under-replicated: a new broker gets its share.",
    )
    auto_balance_check_interval_seconds: int = key(
        "auto.balance.check.interval.seconds",
        60,
        Kind.INT,
        minimum=1,
        mode=Mode.CLUSTER_WIDE,
        doc="How often the controller looks for replicas to move by itself; a step follows the one before sooner.",
    )
    cordoned_log_dirs: tuple[str, ...] = key(
        CORDONED_LOG_DIRS,
        (),
        Kind.LIST,
        mode=Mode.PER_BROKER,
        check=check_cordoned,
        doc="`*` cordons a broker: no new replica is placed there, and those that it has stay until they are moved "
        "(penstock cluster drain). Only dynamic; single directories cannot be cordoned.",
    )
    controlled_shutdown_enable: bool = key(
        "controlled.shutdown.enable",
        True,
        Kind.BOOLEAN,
        doc="Whether a stopping broker moves its leaderships to other brokers first.",
    )
    broker_session_timeout_ms: int = key(
        "broker.session.timeout.ms",
        9000,
        Kind.INT,
        minimum=100,
        doc="A broker without a heartbeat for this long loses its leaderships: the time of its session in the "
        "metadata store; also zookeeper.session.timeout.ms.",
    )
    broker_heartbeat_interval_ms: int = key(
        "broker.heartbeat.interval.ms",
        2000,
        Kind.INT,
        doc=f"{NO_EFFECT}: the interval follows from broker.session.timeout.ms.",
    )
