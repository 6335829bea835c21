"""The settings of a group are its own, or else the broker's."""

from penstock.config.broker import BrokerConfig
from penstock.config.group_settings import GroupConfig


def test_a_group_without_settings_has_the_brokers() -> None:
    broker = BrokerConfig(group_consumer_session_timeout_ms=50_000)

    config = GroupConfig.of({}, broker)

    assert config.consumer_session_timeout_ms == 50_000
    assert config.share_isolation_level == "read_uncommitted"


def test_a_groups_own_setting_comes_first() -> None:
    broker = BrokerConfig(group_consumer_session_timeout_ms=50_000)

    config = GroupConfig.of({"consumer.session.timeout.ms": "46000"}, broker)

    assert config.consumer_session_timeout_ms == 46_000
