"""The sources of a broker's settings, and the messages for invalid ones."""

from pathlib import Path

import pytest

from penstock.config.broker import BROKER_KEYS, BrokerConfig
from penstock.config.foreign import GUARDS, UNUSED
from penstock.config.load import ConfigFault, load
from penstock.config.network import is_loopback
from penstock.model.generated_errors import InvalidConfig

STOCK_SERVER_PROPERTIES = """\
# The role of this server. Setting this puts us in KRaft mode
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
"""


def written(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_stock_server_properties_is_understood(tmp_path: Path) -> None:
    config = load(file=written(tmp_path, "server.properties", STOCK_SERVER_PROPERTIES), env={}, flags={})
    assert config.broker_id == 7
    assert [str(endpoint) for endpoint in config.endpoints] == ["PLAINTEXT://:9092"]
    assert [str(endpoint) for endpoint in config.advertised_endpoints] == ["PLAINTEXT://localhost:9092"]
    assert config.data_directories == ("/tmp/kraft-combined-logs",)
    assert config.topic_defaults.retention_ms == 168 * 3_600_000
    assert any("num.io.threads has no effect" in warning for warning in config.warnings)


@pytest.mark.parametrize("name", ["RackAwareReplicaSelector", "LeaderSelector"])
def test_kafkas_replica_selectors_are_accepted(name: str) -> None:
    full = f"org.apache.kafka.common.replica.{name}"
    assert load(file=None, env={}, flags={"replica.selector.class": full}).replica_selector_class == full


def test_another_replica_selector_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigFault, match=r"replica\.selector\.class.*one of: .*RackAwareReplicaSelector"):
        load(file=None, env={}, flags={"replica.selector.class": "com.example.Nearest"})


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "penstock.toml", "num.partitions = 1\nlog.retention.ms = 1\nbroker.id = 1\n")
    env = {"PENSTOCK_LOG_RETENTION_MS": "2", "PENSTOCK_BROKER_ID": "2"}
    config = load(file=file, env=env, flags={"broker.id": "3"})
    assert (config.num_partitions, config.log_retention_ms, config.broker_id) == (1, 2, 3)


@pytest.mark.parametrize(
    "text",
    ["log.retention.ms = 5", '"log.retention.ms" = 5', "[log.retention]\nms = 5", "[log]\nretention = {ms = 5}"],
)
def test_a_dotted_name_may_be_nested_or_quoted_in_toml(tmp_path: Path, text: str) -> None:
    assert load(file=written(tmp_path, "p.toml", text), env={}, flags={}).log_retention_ms == 5


def test_toml_lists_and_booleans_become_settings(tmp_path: Path) -> None:
    text = 'log.dirs = ["/a", "/b", "/a"]\nauto.create.topics.enable = false\n'
    config = load(file=written(tmp_path, "p.toml", text), env={}, flags={})
    assert config.data_directories == ("/a", "/b")
    assert config.auto_create_topics_enable is False


def test_properties_support_comments_escapes_and_continued_lines(tmp_path: Path) -> None:
    text = "! a comment\n  log.dir : /a\\\n     /b\\u0041\\\\c\nbroker.rack\tr\\=1\nnum.partitions=\\\n3"
    config = load(file=written(tmp_path, "s.properties", text), env={}, flags={})
    assert config.log_dir == ("/a/bA\\c",)
    assert config.broker_rack == "r=1"
    assert config.num_partitions == 3


def test_an_unknown_key_is_rejected_with_the_nearest_name_and_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "p.toml", '"log.retention.msec" = 1')
    with pytest.raises(ConfigFault) as fault:
        load(file=file, env={}, flags={})
    assert str(fault.value) == f"{file}: unknown key log.retention.msec; did you mean log.retention.ms?"


def test_an_unknown_flag_is_rejected() -> None:
    with pytest.raises(ConfigFault, match=r"the command line: unknown key zzz$"):
        load(file=None, env={}, flags={"zzz": "1"})


def test_an_invalid_value_names_its_source_key_value_and_rule() -> None:
    with pytest.raises(ConfigFault) as fault:
        load(file=None, env={"PENSTOCK_NUM_PARTITIONS": "0"}, flags={})
    assert (
        str(fault.value)
        == "the environment: Invalid value 0 for configuration num.partitions: Value must be at least 1"
    )


def test_an_unknown_environment_variable_is_a_warning_with_the_nearest_one() -> None:
    config = load(file=None, env={"PENSTOCK_NUM_PARTITION": "3", "HOME": "/"}, flags={})
    assert config.warnings == (
        "the environment: PENSTOCK_NUM_PARTITION is no setting; did you mean PENSTOCK_NUM_PARTITIONS?",
    )


@pytest.mark.parametrize("name", ["authorizer.class.name", "ssl.keystore.location", "sasl.enabled.mechanisms"])
def test_a_security_key_without_support_is_rejected(name: str) -> None:
    with pytest.raises(ConfigFault, match="protects something"):
        load(file=None, env={}, flags={name: "x"})


@pytest.mark.parametrize(
    "listener", ["localhost:9092", "PLAINTEXT://localhost", "PLAINTEXT://localhost:99999", "PLAINTEXT://localhost:x"]
)
def test_a_listener_without_name_or_port_is_rejected(listener: str) -> None:
    with pytest.raises(ConfigFault, match="an endpoint is NAME://HOST:PORT"):
        load(file=None, env={}, flags={"listeners": listener})


def test_two_listeners_of_one_name_are_rejected() -> None:
    with pytest.raises(ConfigFault, match="PLAINTEXT appears twice"):
        load(file=None, env={}, flags={"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"})


def test_a_listener_with_a_security_protocol_is_rejected() -> None:
    with pytest.raises(ConfigFault, match="SSL is not supported yet"):
        load(file=None, env={}, flags={"listeners": "SSL://localhost:9093"})


def test_a_listener_with_an_unmapped_name_is_rejected() -> None:
    with pytest.raises(ConfigFault, match=r"listener\.security\.protocol\.map does not say how INSIDE"):
        load(file=None, env={}, flags={"listeners": "INSIDE://localhost:9093"})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "127.255.255.254", "::1", "::ffff:127.0.0.1"])
def test_loopback_addresses_are_recognized(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    ["", "0.0.0.0", "10.0.0.1", "::", "::ffff:10.0.0.1", "127.evil.example", "127.0.0.1.evil.example", "127."],
)
def test_neither_other_addresses_nor_names_are_loopback(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize("text", ["9308", "localhost", "localhost:", "localhost:port", "localhost:70000", "::1"])
def test_an_invalid_metrics_listener_is_rejected(text: str) -> None:
    with pytest.raises(ConfigFault, match=r"metrics\.listener: an address is HOST:PORT"):
        load(file=None, env={}, flags={"metrics.listener": text})


def test_the_metrics_listener_is_parsed() -> None:
    def address(text: str) -> tuple[str, int] | None:
        return load(file=None, env={}, flags={"metrics.listener": text}).metrics_address

    assert [address(text) for text in ("[::1]:1", ":2", "h:3", "")] == [("::1", 1), ("", 2), ("h", 3), None]


@pytest.mark.parametrize(
    ("written_as", "why"),
    [
        ("\\uZZZZ", r"\\uZZZZ is not"),
        ("\\u+123", r"\\u\+123 is not"),
        ("\\u12", r"\\u12 is not"),
        ("\\u", r"\\u is not"),
        ("\\ud83d", "half of a character"),
    ],
)
def test_invalid_escapes_are_rejected_with_the_file(tmp_path: Path, written_as: str, why: str) -> None:
    file = written(tmp_path, "p.properties", f"cluster.id={written_as}\n")

    with pytest.raises(ConfigFault, match=rf"p\.properties: .*{why}"):
        load(file=file, env={}, flags={})


def test_a_surrogate_pair_is_one_character(tmp_path: Path) -> None:
    file = written(tmp_path, "p.properties", "broker.rack=\\ud83d\\ude00\\u00e9\n")

    assert load(file=file, env={}, flags={}).broker_rack == "😀é"


@pytest.mark.parametrize(
    "text",
    [
        "broker.rack = " + "[" * 5_000 + "]" * 5_000,
        ".".join(["a"] * 5_000) + " = 1",
        "[" + ".".join(["a"] * 5_000) + "]\nb = 1",
        "num.partitions = " + "9" * 5_000,
        "log.dirs = [{a = 1}]",
        "log.dirs = [['a']]",
        'broker.rack = "a\\u0000b"',
        "broker.rack = 2026-11-01",
    ],
    ids=lambda text: text[:20],
)
def test_hostile_toml_is_rejected_with_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigFault, match=r"p\.toml: "):
        load(file=written(tmp_path, "p.toml", text), env={}, flags={})


def test_a_file_that_is_not_toml_is_rejected_with_its_name(tmp_path: Path) -> None:
    file = written(tmp_path, "p.toml", "= nonsense")
    with pytest.raises(ConfigFault, match=r"p\.toml: not TOML"):
        load(file=file, env={}, flags={})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=r"absent\.toml: cannot be read"):
        load(file=tmp_path / "absent.toml", env={}, flags={})


def test_a_minimum_compaction_lag_above_the_maximum_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match=r"log\.cleaner\.min\.compaction\.lag\.ms \(9\) is greater"):
        BrokerConfig.from_settings({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"})


def test_no_name_is_both_a_setting_and_a_foreign_key() -> None:
    assert not UNUSED & set(BROKER_KEYS)
    assert not GUARDS & set(BROKER_KEYS)
    assert not UNUSED & GUARDS


def test_every_key_has_a_doc_and_its_own_variable() -> None:
    assert all(declared.doc.endswith(".") or "," in declared.doc for declared in BROKER_KEYS.values())
    assert len({declared.environment for declared in BROKER_KEYS.values()}) == len(BROKER_KEYS)
