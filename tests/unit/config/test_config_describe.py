"""Where a value came from."""

from penstock.config.broker import BrokerConfig
from penstock.config.describe import Source, describe_broker, describe_dynamic_defaults, describe_topic
from penstock.config.log import TOPIC_KEYS


def test_a_default_is_told_as_one_with_the_brokers_key_behind_it() -> None:
    (entry,) = describe_topic({}, BrokerConfig(), ["segment.bytes"])
    assert (entry.value, entry.source) == ("1073741824", Source.DEFAULT_CONFIG)
    assert [(origin.name, origin.source) for origin in entry.origins] == [("log.segment.bytes", Source.DEFAULT_CONFIG)]


def test_an_override_comes_first_and_what_it_hides_follows() -> None:
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


def test_a_setting_of_the_running_broker_is_in_force_for_topics() -> None:
    broker = BrokerConfig().with_dynamic(cluster={"log.retention.ms": "5"}, broker={})
    (entry,) = describe_topic({}, broker, ["retention.ms"])
    assert (entry.value, entry.source) == ("5", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert broker.topic_defaults.retention_ms == 5


def test_a_synonym_in_hours_is_told_in_milliseconds() -> None:
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


def test_a_test_only_key_shows_only_where_it_is_set() -> None:
    names = {entry.name for entry in describe_topic({}, BrokerConfig())}
    assert "internal.segment.bytes" not in names
    assert "internal.segment.bytes" in {
        entry.name for entry in describe_topic({"internal.segment.bytes": "9"}, BrokerConfig())
    }


def test_a_list_is_told_in_the_order_it_was_given() -> None:
    (entry,) = describe_topic({"cleanup.policy": "delete, compact"}, BrokerConfig(), ["cleanup.policy"])
    assert entry.value == "delete,compact"


def test_a_brokers_key_says_whether_it_can_change_while_it_runs() -> None:
    entries = {entry.name: entry for entry in describe_broker(BrokerConfig())}
    assert entries["num.partitions"].read_only
    assert not entries["log.retention.ms"].read_only
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.ms"].origins == ()


def test_settings_of_all_brokers_are_told_apart() -> None:
    broker = BrokerConfig().with_dynamic(cluster={"log.retention.ms": "5"}, broker={"log.retention.ms": "6"})
    (entry,) = describe_dynamic_defaults(broker)
    assert (entry.name, entry.value, entry.source) == ("log.retention.ms", "5", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert broker.log_retention_ms == 6
