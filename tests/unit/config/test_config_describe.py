"""The sources of described values."""

from penstock.config.broker import BrokerConfig
from penstock.config.describe import Source, describe_broker, describe_dynamic_defaults, describe_topic
from penstock.config.log import TOPIC_KEYS


def test_a_default_is_described_with_its_broker_synonym() -> None:
    (entry,) = describe_topic({}, BrokerConfig(), ["segment.bytes"])
    assert (entry.value, entry.source) == ("1073741824", Source.DEFAULT_CONFIG)
    assert [(origin.name, origin.source) for origin in entry.origins] == [("log.segment.bytes", Source.DEFAULT_CONFIG)]


def test_an_override_comes_before_its_synonyms() -> None:
    broker = BrokerConfig.from_settings(
        {"log.segment.bytes": "2000000"},
        given_cluster={"log.segment.bytes": "3000000"},
        given_broker={"log.segment.bytes": "4000000"},
    )
    (entry,) = describe_topic({"segment.bytes": "5000000"}, broker, ["segment.bytes"])
    assert entry.value == "5000000"
    assert [(origin.name, origin.value, origin.source) for origin in entry.origins] == [
        ("segment.bytes", "5000000", Source.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "4000000", Source.DYNAMIC_BROKER_CONFIG),
        ("log.segment.bytes", "3000000", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.segment.bytes", "2000000", Source.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG),
    ]


def test_a_dynamic_broker_setting_applies_to_topics() -> None:
    broker = BrokerConfig().with_dynamic(cluster={"log.retention.ms": "5"}, broker={})
    (entry,) = describe_topic({}, broker, ["retention.ms"])
    assert (entry.value, entry.source) == ("5", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert broker.topic_defaults.retention_ms == 5


def test_a_value_from_a_synonym_in_hours_is_in_milliseconds() -> None:
    broker = BrokerConfig.from_settings({"log.retention.hours": "2"})
    (entry,) = describe_topic({}, broker, ["retention.ms"])
    assert (entry.value, entry.source) == ("7200000", Source.STATIC_BROKER_CONFIG)
    assert entry.origins[0].name == "log.retention.hours"
    assert entry.origins[0].value == "2"


def test_every_described_value_is_the_one_in_force() -> None:
    broker = BrokerConfig.from_settings(
        {"log.retention.minutes": "9", "log.roll.hours": "3", "log.cleanup.policy": "compact"}
    )
    for entry in describe_topic({}, broker):
        declared = TOPIC_KEYS[entry.name]
        in_force = getattr(broker.topic_defaults, declared.attribute)
        assert entry.value is not None
        assert declared.read(entry.value) == in_force, entry.name


def test_unknown_names_are_left_out() -> None:
    assert describe_topic({}, BrokerConfig(), ["nope"]) == []


def test_an_internal_key_is_described_only_if_it_is_set() -> None:
    names = {entry.name for entry in describe_topic({}, BrokerConfig())}
    assert "internal.segment.bytes" not in names
    assert "internal.segment.bytes" in {
        entry.name for entry in describe_topic({"internal.segment.bytes": "9"}, BrokerConfig())
    }


def test_a_list_is_described_in_its_configured_order() -> None:
    (entry,) = describe_topic({"cleanup.policy": "delete, compact"}, BrokerConfig(), ["cleanup.policy"])
    assert entry.value == "delete,compact"


def test_a_broker_key_is_read_only_unless_it_is_dynamic() -> None:
    entries = {entry.name: entry for entry in describe_broker(BrokerConfig())}
    assert entries["num.partitions"].read_only
    assert not entries["log.retention.ms"].read_only
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.ms"].origins == ()


def test_cluster_wide_settings_have_their_own_source() -> None:
    broker = BrokerConfig().with_dynamic(cluster={"log.retention.ms": "5"}, broker={"log.retention.ms": "6"})
    (entry,) = describe_dynamic_defaults(broker)
    assert (entry.name, entry.value, entry.source) == ("log.retention.ms", "5", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert broker.log_retention_ms == 6
