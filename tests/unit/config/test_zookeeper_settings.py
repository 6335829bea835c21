"""Settings of ZooKeeper: what names its servers, and what protects the nodes."""

from __future__ import annotations

import pytest

from penstock.broker.stores import store_source
from penstock.config.broker import BrokerConfig
from penstock.config.load import ConfigFault, load
from penstock.config.zookeeper import read_connect
from penstock.metadata.embedded import EmbeddedSource
from penstock.model.clock import SystemClock
from penstock.model.generated_errors import InvalidConfig
from penstock.observe.log import logger
from penstock.storage.directories import StartRefused


@pytest.mark.parametrize(
    ("text", "servers", "root"),
    [
        ("zk", "zk:2181", ""),
        ("a:1,b:2, c:3", "a:1,b:2,c:3", ""),
        ("a:1,b:2/penstock/test/", "a:1,b:2", "/penstock/test"),
        ("[::1]:2182/x", "[::1]:2182", "/x"),
        ("zk:2181/", "zk:2181", ""),
    ],
)
def test_servers_and_path_are_read(text: str, servers: str, root: str) -> None:
    assert read_connect(text) == (servers, root)


@pytest.mark.parametrize(
    "text",
    ["", "a,,b", "a:0", "a:x", "a:99999", "::1", "a/b//c", "a/../b", "a/zookeeper", "a b", "a/b\tc", "a/" + "x" * 201],
)
def test_other_text_names_no_servers(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"zookeeper\.connect"):
        read_connect(text)


def refused(**settings: str) -> str:
    with pytest.raises(InvalidConfig) as fault:
        BrokerConfig.from_settings({name.replace("_", "."): value for name, value in settings.items()})
    return str(fault.value)


def test_authentication_needs_a_user_and_a_password() -> None:
    assert "needs zookeeper.username" in refused(zookeeper_authentication="sasl", zookeeper_username="broker")


def test_nodes_for_the_creator_only_need_a_creator_who_is_known() -> None:
    assert "authenticates" in refused(zookeeper_set_acl="true")


def test_files_of_tls_without_tls_are_refused() -> None:
    assert "zookeeper.ssl.client.enable" in refused(zookeeper_ssl_truststore_location="/ca.pem")


def test_a_password_is_not_shown() -> None:
    config = BrokerConfig.from_settings(
        {"zookeeper.authentication": "digest", "zookeeper.username": "u", "zookeeper.password": "secret"}
    )
    assert "secret" not in repr(config)


def test_kafkas_session_timeout_is_the_brokers() -> None:
    config = load(file=None, env={}, flags={"zookeeper.session.timeout.ms": "7000"})
    assert config.broker_session_timeout_ms == 7000


def test_a_protection_that_is_not_there_keeps_the_broker_from_starting() -> None:
    with pytest.raises(ConfigFault, match="protects"):
        load(file=None, env={}, flags={"zookeeper.ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"})


def test_without_zookeeper_the_store_is_in_the_data_directory() -> None:
    config = BrokerConfig.from_settings({"log.dirs": "/data"})
    assert isinstance(store_source(config, clock=SystemClock(), log=logger("test")), EmbeddedSource)


def test_with_zookeeper_the_store_says_where_it_is() -> None:
    config = BrokerConfig.from_settings({"zookeeper.connect": "zk1,zk2:2182/penstock"})
    assert (
        str(store_source(config, clock=SystemClock(), log=logger("test"))) == "ZooKeeper at zk1:2181,zk2:2182/penstock"
    )


def test_a_missing_certificate_is_named() -> None:
    config = BrokerConfig.from_settings(
        {
            "zookeeper.connect": "zk",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/none/ca.pem",
        }
    )
    with pytest.raises(StartRefused, match=r"/none/ca\.pem"):
        store_source(config, clock=SystemClock(), log=logger("test"))
