"""A topic's settings: validation messages, defaults, and the broker's settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.broker import BrokerConfig
from penstock.config.key import Key, Kind, text_of
from penstock.config.log import TOPIC_KEYS, TopicConfig, check_topic_configs
from penstock.model.generated_errors import InvalidConfig

BROKER = BrokerConfig()

REFUSALS = [
    ("retention.ms", "abc", "Not a number of type LONG"),
    ("retention.ms", "-2", "Value must be at least -1"),
    ("retention.ms", "", "Not a number of type LONG"),
    ("retention.ms", "1e3", "Not a number of type LONG"),
    ("retention.ms", "1_000", "Not a number of type LONG"),
    ("retention.ms", "99999999999999999999", "Not a number of type LONG"),
    ("segment.bytes", "99999999999", "Not a number of type INT"),
    ("segment.bytes", "100", "Value must be at least 1048576"),
    ("cleanup.policy", "x", "String must be one of: compact, delete, consume"),
    ("cleanup.policy", "Delete", "String must be one of: compact, delete, consume"),
    ("compression.type", "GZIP", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
    ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
    ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
    ("compression.lz4.level", "0", "Value must be at least 1"),
    ("compression.lz4.level", "18", "Value must be no more than 17"),
    ("preallocate", "yes", "Expected value to be either true or false"),
    ("min.cleanable.dirty.ratio", "-0.1", "Value must be at least 0"),
    ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
    ("message.timestamp.type", "now", "String must be one of: CreateTime, LogAppendTime"),
    ("max.message.bytes", "-1", "Value must be at least 0"),
    ("min.insync.replicas", "0", "Value must be at least 1"),
    ("segment.index.bytes", "2", "Value must be at least 4"),
    ("flush", "never", "String must be one of: os, group"),
]


@pytest.mark.parametrize(("name", "value", "why"), REFUSALS)
def test_an_invalid_value_is_rejected_with_its_key_value_and_rule(name: str, value: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        check_topic_configs({name: value}, BROKER)
    assert str(refusal.value) == f"Invalid value {value} for configuration {name}: {why}"


def test_a_number_out_of_range_is_shown_as_parsed() -> None:
    with pytest.raises(InvalidConfig, match=r"Invalid value 2\.0 for configuration min\.cleanable\.dirty\.ratio"):
        check_topic_configs({"min.cleanable.dirty.ratio": "2"}, BROKER)


def test_an_invalid_list_item_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"Invalid value foo for configuration cleanup\.policy"):
        check_topic_configs({"cleanup.policy": "compact,foo"}, BROKER)


@pytest.mark.parametrize("value", ["abc", "none", "1:2,*", "a:b"])
def test_throttled_replicas_are_pairs_or_a_star(value: str) -> None:
    with pytest.raises(InvalidConfig, match="must be the literal '\\*' or a list of replicas"):
        check_topic_configs({"leader.replication.throttled.replicas": value}, BROKER)


@pytest.mark.parametrize("value", ["*", "0:1,1:2", ""])
def test_valid_throttled_replicas_are_accepted(value: str) -> None:
    check_topic_configs({"leader.replication.throttled.replicas": value}, BROKER)


def test_an_unknown_name_is_rejected_before_any_value_is_checked() -> None:
    with pytest.raises(InvalidConfig) as refusal:
        check_topic_configs({"retention.ms": "x", "nope": "10"}, BROKER)
    assert str(refusal.value) == "Unknown topic config name: nope"


def test_the_minimum_compaction_lag_must_not_exceed_the_maximum() -> None:
    with pytest.raises(InvalidConfig) as refusal:
        check_topic_configs({"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "10"}, BROKER)
    assert str(refusal.value) == "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"


def test_remote_storage_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="Tiered Storage functionality is disabled"):
        check_topic_configs({"remote.storage.enable": "true"}, BROKER)


def test_the_default_retention_is_two_weeks() -> None:
    assert TopicConfig.resolve({}, BROKER).retention_ms == 14 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.minutes": "1", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(settings: dict[str, str], expected: int) -> None:
    assert BrokerConfig.from_settings(settings).topic_defaults.retention_ms == expected


def test_an_override_wins_over_the_broker() -> None:
    broker = BrokerConfig(log_segment_bytes=2_000_000, log_retention_ms=5)
    config = TopicConfig.resolve({"segment.bytes": "3000000", "cleanup.policy": "compact, delete"}, broker)
    assert config.segment_bytes == 3_000_000
    assert config.retention_ms == 5
    assert config.cleanup_policy == {"compact", "delete"}


def test_topics_without_overrides_share_one_object() -> None:
    assert TopicConfig.resolve({}, BROKER) is TopicConfig.resolve({}, BROKER)


def test_an_unknown_override_is_ignored() -> None:
    assert TopicConfig.resolve({"key.of.a.later.version": "1"}, BROKER) == BROKER.topic_defaults


@pytest.mark.parametrize("name", sorted(TOPIC_KEYS))
def test_the_default_of_every_key_round_trips(name: str) -> None:
    declared = TOPIC_KEYS[name]
    text = text_of(declared.default)
    if text is not None:
        value = declared.read(text)
        expected = (
            frozenset(declared.default) if isinstance(declared.default, tuple) and declared.as_set else declared.default
        )
        assert value == expected


WHOLE_KEYS = [key for key in TOPIC_KEYS.values() if key.kind in (Kind.INT, Kind.LONG)]


@given(st.sampled_from(WHOLE_KEYS), st.integers(min_value=-(2**70), max_value=2**70))
def test_an_integer_is_accepted_exactly_if_it_is_within_bounds(declared: Key, number: int) -> None:
    bound = 2**31 if declared.kind is Kind.INT else 2**63
    low = -bound if declared.minimum is None else declared.minimum
    high = bound - 1 if declared.maximum is None else declared.maximum
    if number == declared.also or low <= number <= high:
        assert declared.read(str(number)) == number
    else:
        with pytest.raises(InvalidConfig, match=str(number)):
            declared.read(str(number))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_round_trips_through_text(number: float) -> None:
    text = text_of(number)
    assert text is not None
    assert float(text) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, "0.5"), (1.7976931348623157e308, "1.7976931348623157E308"), (1e-5, "1.0E-5"), (1e7, "1.0E7"), (2.0, "2.0")],
)
def test_doubles_are_written_as_the_jvm_writes_them(number: float, text: str) -> None:
    assert text_of(number) == text
