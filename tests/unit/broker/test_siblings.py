from pathlib import Path

import pytest

from penstock.broker.siblings import (
    brokers_of,
    capped_factors,
    check_all_started,
    check_owners,
    check_ports,
    shared_settings,
    sibling_directories,
    sibling_settings,
)
from penstock.config.broker import BrokerConfig
from penstock.storage.directories import StartRefused


def config(**given: str) -> BrokerConfig:
    return BrokerConfig.from_settings({name.replace("_", "."): value for name, value in given.items()})


def test_the_first_broker_is_as_if_it_were_alone() -> None:
    given = {"broker.id": "4", "listeners": "PLAINTEXT://h:9092", "log.dirs": "/a,/b", "metrics.listener": "h:9308"}

    assert sibling_settings(BrokerConfig.from_settings(given), 0) == given


def test_later_brokers_have_the_ids_ports_and_directories_that_follow() -> None:
    given = config(
        node_id="4",
        listeners="PLAINTEXT://h:9092,OTHER://[::1]:0",
        advertised_listeners="PLAINTEXT://public:1000",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        log_dirs="/a,/b/",
        metrics_listener="[::1]:9308",
    )

    assert sibling_settings(given, 2) == {
        "broker.id": "6",
        "listeners": "PLAINTEXT://h:9094,OTHER://[::1]:0",
        "advertised.listeners": "PLAINTEXT://public:1002",
        "log.dirs": "/a/brokers/6,/b/brokers/6",
        "metrics.listener": "[::1]:9310",
    }


def test_internal_topics_have_no_more_replicas_than_there_can_be_brokers() -> None:
    factors = shared_settings(config(), 2)

    assert set(factors.values()) == {"2"}
    assert set(shared_settings(config(), 5).values()) == {"3"}
    assert shared_settings(config(offsets_topic_replication_factor="1"), 2)["offsets.topic.replication.factor"] == "1"
    assert shared_settings(config(zookeeper_connect="z:2181"), 2) == {}


def test_pages_that_are_off_stay_off() -> None:
    assert "metrics.listener" not in sibling_settings(config(metrics_listener=""), 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (config(listeners="PLAINTEXT://h:9092", metrics_listener="h:9093"), "port 9093"),
        (
            config(
                listeners="A://h:9092,B://h:9094",
                listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
                metrics_listener="",
            ),
            "port 9094",
        ),
        (config(listeners="PLAINTEXT://h:65534"), "none after 65535"),
    ],
)
def test_ports_that_do_not_suffice_are_refused(given: BrokerConfig, words: str) -> None:
    with pytest.raises(StartRefused, match=words):
        check_ports(given, 3)


def test_any_free_port_will_do_for_all() -> None:
    check_ports(config(listeners="PLAINTEXT://h:0", metrics_listener="h:0"), 3)


def test_brokers_are_found_in_every_directory(tmp_path: Path) -> None:
    for name in ("a/brokers/2", "b/brokers/3", "b/brokers/lost+found", "a/brokers-4"):
        (tmp_path / name).mkdir(parents=True)
    given = config(log_dirs=f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/absent")

    assert brokers_of(given) == [2, 3]
    check_all_started(given, 3)
    for few in (1, 2):
        with pytest.raises(StartRefused, match="--processes 3"):
            check_all_started(given, few)


def test_data_of_another_broker_and_logs_without_metadata_are_refused(tmp_path: Path) -> None:
    given = config(log_dirs=str(tmp_path))
    second = Path(sibling_directories(given, 1)[0])
    second.mkdir(parents=True)
    (second / "meta.properties").write_text("node.id=2\ncluster.id=c\n")

    check_owners(given, 2, has_metadata=True)
    with pytest.raises(StartRefused, match="cluster c"):
        check_owners(given, 2, has_metadata=False)
    check_owners(config(log_dirs=str(tmp_path), cluster_id="c"), 2, has_metadata=False)
    (second / "meta.properties").write_text("node.id=7\n")
    with pytest.raises(StartRefused, match=r"node.id=7.*node.id=2"):
        check_owners(given, 2, has_metadata=True)


@pytest.mark.parametrize(("processes", "factors"), [(2, ("2", "2")), (5, ("3", "2"))])
def test_internal_topics_do_not_wait_for_more_brokers_than_there_can_be(
    processes: int, factors: tuple[str, str]
) -> None:
    found = capped_factors(config(transaction_state_log_replication_factor="2"), processes)

    assert (found["offsets.topic.replication.factor"], found["transaction.state.log.replication.factor"]) == factors
