"""The settings that a group can override, and the broker's bounds on them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.config.key import Kind, Synonym, attribute_of, key, keys_of
from penstock.model.generated_errors import InvalidConfig

ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
BACKOFF_MS_MAX = 15 * 60 * 1000
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
OFFSET_RESETS = ("latest", "earliest")
NO_STREAMS = "Without effect: there are no streams groups."
DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.IGNORECASE)


def of(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"group.{name}"),)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class GroupConfig:
    """The settings of one group: its overrides, or the broker's values."""

    consumer_assignment_interval_ms: int = key(
        "consumer.assignment.interval.ms",
        1000,
        Kind.INT,
        minimum=0,
        synonyms=of("consumer.assignment.interval.ms"),
        doc="The shortest time between two assignments.",
    )
    consumer_heartbeat_interval_ms: int = key(
        "consumer.heartbeat.interval.ms",
        5000,
        Kind.INT,
        minimum=1,
        synonyms=of("consumer.heartbeat.interval.ms"),
        doc="Interval between a member's heartbeats.",
    )
    consumer_session_timeout_ms: int = key(
        "consumer.session.timeout.ms",
        45_000,
        Kind.INT,
        minimum=1,
        synonyms=of("consumer.session.timeout.ms"),
        doc="A member without a heartbeat for this long leaves the group.",
    )
    share_assignment_interval_ms: int = key(
        "share.assignment.interval.ms",
        1000,
        Kind.INT,
        minimum=0,
        synonyms=of("share.assignment.interval.ms"),
        doc="The shortest time between two assignments.",
    )
    share_auto_offset_reset: str = key(
        "share.auto.offset.reset",
        "latest",
        Kind.STRING,
        doc="Where a new share group starts: latest, earliest, or by_duration:PnDTnHnMn.nS ago.",
    )
    share_delivery_count_limit: int = key(
        "share.delivery.count.limit",
        5,
        Kind.INT,
        minimum=2,
        synonyms=of("share.delivery.count.limit"),
        doc="Deliveries of a record before it is archived.",
    )
    share_heartbeat_interval_ms: int = key(
        "share.heartbeat.interval.ms",
        5000,
        Kind.INT,
        minimum=1,
        synonyms=of("share.heartbeat.interval.ms"),
        doc="Interval between a member's heartbeats.",
    )
    errors_deadletterqueue_topic_name: str = key(
        DEAD_LETTER_TOPIC,
        "",
        Kind.STRING,
        doc="The topic to which a share group copies records that are rejected, or delivered too often; empty: none.",
    )
    errors_deadletterqueue_copy_record_enable: bool = key(
        "errors.deadletterqueue.copy.record.enable",
        True,
        Kind.BOOLEAN,
        doc="Whether a dead letter has the key, value and headers of its record; else only where that is.",
    )
    share_isolation_level: str = key(
        "share.isolation.level",
        "read_uncommitted",
        Kind.STRING,
        choices=ISOLATION_LEVELS,
        doc="Whether records of open and aborted transactions are delivered.",
    )
    share_order: str = key(
        "share.order",
        "none",
        Kind.STRING,
        choices=("none", "key"),
        doc="Order of delivery: none, or records of one key to one member at a time, in the order of the log (key).",
    )
    share_order_in_flight: int = key(
        "share.order.in.flight",
        0,
        Kind.INT,
        minimum=0,
        doc="With share.order=key, records of one key that a member has at a time; 1 is strict order also over "
        "retries, 0 is any number.",
    )
    share_partition_max_record_locks: int = key(
        "share.partition.max.record.locks",
        2000,
        Kind.INT,
        minimum=100,
        synonyms=of("share.partition.max.record.locks"),
        doc="Records locked per partition.",
    )
    share_record_lock_duration_ms: int = key(
        "share.record.lock.duration.ms",
        30_000,
        Kind.INT,
        minimum=1000,
        synonyms=of("share.record.lock.duration.ms"),
        doc="How long a consumer's lock on a record lasts.",
    )
    share_renew_acknowledge_enable: bool = key(
        "share.renew.acknowledge.enable", True, Kind.BOOLEAN, doc="Whether a consumer may renew its lock."
    )
    share_retry_backoff_ms: int = key(
        "share.retry.backoff.ms",
        0,
        Kind.INT,
        minimum=0,
        maximum=BACKOFF_MS_MAX,
        doc="How long a record that was released, or whose lock expired, waits until it is delivered again; 0: not.",
    )
    share_retry_backoff_max_ms: int = key(
        "share.retry.backoff.max.ms",
        0,
        Kind.INT,
        minimum=0,
        maximum=BACKOFF_MS_MAX,
        doc="The wait doubles with every delivery up to this; it stays the same if this is less than "
        "share.retry.backoff.ms.",
    )
    share_session_timeout_ms: int = key(
        "share.session.timeout.ms",
        45_000,
        Kind.INT,
        minimum=1,
        synonyms=of("share.session.timeout.ms"),
        doc="A member without a heartbeat for this long leaves the group.",
    )
    streams_assignment_interval_ms: int = key(
        "streams.assignment.interval.ms",
        1000,
        Kind.INT,
        minimum=0,
        synonyms=of("streams.assignment.interval.ms"),
        doc=f"The shortest time between two assignments. {NO_STREAMS}",
    )
    streams_heartbeat_interval_ms: int = key(
        "streams.heartbeat.interval.ms",
        5000,
        Kind.INT,
        minimum=1,
        synonyms=of("streams.heartbeat.interval.ms"),
        doc=f"Interval between a member's heartbeats. {NO_STREAMS}",
    )
    streams_initial_rebalance_delay_ms: int = key(
        "streams.initial.rebalance.delay.ms",
        3000,
        Kind.INT,
        minimum=0,
        synonyms=of("streams.initial.rebalance.delay.ms"),
        doc=f"How long a new group waits for more members before its first rebalance. {NO_STREAMS}",
    )
    streams_num_standby_replicas: int = key(
        "streams.num.standby.replicas",
        0,
        Kind.INT,
        minimum=0,
        synonyms=of("streams.num.standby.replicas"),
        doc=f"Standby copies of each task. {NO_STREAMS}",
    )
    streams_session_timeout_ms: int = key(
        "streams.session.timeout.ms",
        45_000,
        Kind.INT,
        minimum=1,
        synonyms=of("streams.session.timeout.ms"),
        doc=f"A member without a heartbeat for this long leaves the group. {NO_STREAMS}",
    )

    @classmethod
    def of(cls, settings: Mapping[str, str], broker: BrokerConfig) -> "GroupConfig":
        """The config of a group with these valid overrides."""
        values: dict[str, Any] = {attribute: getattr(broker, default) for attribute, default in BROKER_DEFAULTS}
        for name, text in settings.items():
            declared = GROUP_KEYS[name]
            values[declared.attribute] = declared.read(text)
        return cls(**values)


GROUP_KEYS = keys_of(GroupConfig)

BROKER_DEFAULTS = tuple(
    (declared.attribute, attribute_of(declared.synonyms[0].name))
    for declared in GROUP_KEYS.values()
    if declared.synonyms
)
"""A group's keys with the broker's keys for their defaults."""

BOUNDS: tuple[tuple[str, str | None, str | None], ...] = (
    *(
        (
            f"{kind}.{what}",
            f"group.{kind}.min.{what}",
            f"group.{kind}.max.{what}",
        )
        for kind in ("consumer", "share", "streams")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    ),
    *(
        (f"share.{what}", f"group.share.min.{what}", f"group.share.max.{what}")
        for what in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")
    ),
    ("streams.num.standby.replicas", None, "group.streams.max.standby.replicas"),
)
"""A group's key with the broker's keys for its minimum and maximum."""


def check_group_configs(settings: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise `InvalidConfig` for an unknown key, an invalid value, or one beyond the broker's bounds."""
    for name in settings:
        if name not in GROUP_KEYS:
            raise InvalidConfig(f"Unknown group config name: {name}")
    values = {name: GROUP_KEYS[name].read(text) for name, text in settings.items()}
    prefix = broker.errors_deadletterqueue_topic_name_prefix
    if values.get(DEAD_LETTER_TOPIC) and not str(values[DEAD_LETTER_TOPIC]).startswith(prefix):
        raise GROUP_KEYS[DEAD_LETTER_TOPIC].refuse(
            values[DEAD_LETTER_TOPIC], f"its name must begin with errors.deadletterqueue.topic.name.prefix, '{prefix}'"
        )
    reset = values.get("share.auto.offset.reset", OFFSET_RESETS[0])
    if reset not in OFFSET_RESETS and not DURATION.fullmatch(str(reset)):
        raise GROUP_KEYS["share.auto.offset.reset"].refuse(
            reset, "it must be 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'"
        )
    for name, low, high in BOUNDS:
        value = values.get(name)
        if not isinstance(value, int):
            continue
        if low is not None and value < getattr(broker, attribute_of(low)):
            raise InvalidConfig(f"{name} must be greater than or equal to {low}")
        if high is not None and value > getattr(broker, attribute_of(high)):
            raise InvalidConfig(f"{name} must be less than or equal to {high}")
    for kind in ("consumer", "share", "streams"):
        check_beats(kind, values, broker)


def check_beats(kind: str, values: Mapping[str, object], broker: BrokerConfig) -> None:
    """Raise unless the session timeout is longer than the heartbeat interval."""
    names = (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
    session, heartbeat = (values.get(name, getattr(broker, attribute_of(f"group.{name}"))) for name in names)
    assert isinstance(session, int)
    assert isinstance(heartbeat, int)
    if session <= heartbeat:
        raise InvalidConfig(f"{names[0]} must be greater than {names[1]}")
