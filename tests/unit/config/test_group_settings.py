"""The settings of a group, and the broker's bounds on them."""

import pytest

from penstock.config.broker import BROKER_KEYS, BrokerConfig
from penstock.config.describe import Source, describe_group
from penstock.config.group_settings import BOUNDS, GROUP_KEYS, GroupConfig, check_group_configs
from penstock.model.generated_errors import InvalidConfig


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("nope", "1", "Unknown group config name: nope"),
        ("consumer.session.timeout.ms", "x", "Not a number of type INT"),
        ("consumer.session.timeout.ms", "1", "greater than or equal to group.consumer.min.session.timeout.ms"),
        ("consumer.session.timeout.ms", "99999999", "less than or equal to group.consumer.max.session.timeout.ms"),
        ("share.record.lock.duration.ms", "1", "Value must be at least 1000"),
        ("share.record.lock.duration.ms", "99999999", "less than or equal to group.share.max.record.lock.duration.ms"),
        ("share.delivery.count.limit", "100", "less than or equal to group.share.max.delivery.count.limit"),
        ("share.isolation.level", "x", "String must be one of: read_committed, read_uncommitted"),
        ("share.auto.offset.reset", "yesterday", "'earliest', 'latest' or of the format 'by_duration:"),
        ("share.auto.offset.reset", "by_duration:P", "'earliest', 'latest' or of the format 'by_duration:"),
        ("streams.num.standby.replicas", "9", "less than or equal to group.streams.max.standby.replicas"),
    ],
)
def test_an_invalid_setting_is_rejected_with_its_rule(name: str, value: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        check_group_configs({name: value}, BrokerConfig())


@pytest.mark.parametrize("value", ["earliest", "latest", "by_duration:PT1H", "by_duration:P2DT3H4M5.5S"])
def test_a_share_group_may_start_anywhere_in_the_log(value: str) -> None:
    check_group_configs({"share.auto.offset.reset": value}, BrokerConfig())


def test_the_session_timeout_must_exceed_the_heartbeat_interval() -> None:
    broker = BrokerConfig(group_consumer_min_session_timeout_ms=1000)
    with pytest.raises(InvalidConfig, match=r"session\.timeout\.ms must be greater than consumer\.heartbeat"):
        check_group_configs({"consumer.session.timeout.ms": "5000"}, broker)


def test_every_default_is_the_brokers_and_within_bounds() -> None:
    broker = BrokerConfig()
    for declared in GROUP_KEYS.values():
        for synonym in declared.synonyms:
            assert BROKER_KEYS[synonym.name].default == declared.default
    for _, low, high in BOUNDS:
        assert low is None or low in BROKER_KEYS
        assert high is None or high in BROKER_KEYS
    check_group_configs({name: str(key.default).lower() for name, key in GROUP_KEYS.items()}, broker)


def test_a_group_override_is_described_before_the_brokers_value() -> None:
    (entry,) = describe_group({"share.heartbeat.interval.ms": "6000"}, BrokerConfig(), ["share.heartbeat.interval.ms"])
    assert (entry.value, entry.source) == ("6000", Source.GROUP_CONFIG)
    assert [(origin.name, origin.source) for origin in entry.origins] == [
        ("share.heartbeat.interval.ms", Source.GROUP_CONFIG),
        ("group.share.heartbeat.interval.ms", Source.DEFAULT_CONFIG),
    ]


def test_a_group_without_overrides_has_the_brokers_settings() -> None:
    broker = BrokerConfig(group_consumer_session_timeout_ms=50_000)

    config = GroupConfig.of({}, broker)

    assert config.consumer_session_timeout_ms == 50_000
    assert config.share_isolation_level == "read_uncommitted"


def test_a_group_override_wins_over_the_broker() -> None:
    broker = BrokerConfig(group_consumer_session_timeout_ms=50_000)

    config = GroupConfig.of({"consumer.session.timeout.ms": "46000"}, broker)

    assert config.consumer_session_timeout_ms == 46_000
