"""`penstock txn` as its users run it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.wire.records import Record, build_batch
from protocol.batches import now_ms
from protocol.raw import Wire, produce_request
from protocol.test_cli import Cli
from protocol.topics import create_topic, fresh_name, wait_until

SECONDS_MAX = 60.0
OPEN_MS_MAX = 600_000
"""Longer than all commands of a test take: no transaction ends by itself meanwhile."""


@pytest.fixture(scope="module")
def cli(broker: Any) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def topic(make_topic: Any) -> str:
    name: str = make_topic(partitions=2)
    return name


class Open:
    """A producer with an open transaction in both partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.name = fresh_name("txn")
        settings = {"transactional.id": self.name, "transaction.timeout.ms": OPEN_MS_MAX}
        self.producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self.producer.init_transactions(SECONDS_MAX)
        self.producer.begin_transaction()
        for partition in range(2):
            self.producer.produce(topic, b"value", partition=partition)
        assert self.producer.flush(SECONDS_MAX) == 0


@pytest.fixture
def opened(broker: Any, topic: str) -> Open:
    return Open(broker.bootstrap, topic)


def test_an_open_transaction_is_listed_and_described(cli: Cli, opened: Open, topic: str) -> None:
    (listed,) = [each for each in cli.json("txn", "list") if each["transactional_id"] == opened.name]
    assert listed["state"] == "Ongoing"
    assert listed in cli.json("txn", "list", "--state", "Ongoing", "--producer-id", str(listed["producer_id"]))
    assert listed not in cli.json("txn", "list", "--state", "Empty")
    assert listed not in cli.json("txn", "list", "--longer-than", "3600")

    described = cli.json("txn", "describe", opened.name)

    assert (described["state"], described["producer_id"]) == ("Ongoing", listed["producer_id"])
    assert described["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert described["open_for_ms"] >= 0
    assert f"transactional id {opened.name}: Ongoing" in cli.out("txn", "describe", opened.name)


def test_a_transaction_that_has_ended_has_no_partitions(cli: Cli, opened: Open) -> None:
    opened.producer.commit_transaction(SECONDS_MAX)

    described = cli.json("txn", "describe", opened.name)

    assert described["state"] in ("PrepareCommit", "CompleteCommit")
    assert described["open_for_ms"] is None or described["state"] == "PrepareCommit"


def test_an_id_before_its_first_transaction_has_begun_nothing(cli: Cli, broker: Any) -> None:
    name = fresh_name("txn")
    Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name}).init_transactions(SECONDS_MAX)

    described = cli.json("txn", "describe", name)

    assert (described["state"], described["started_ms"], described["partitions"]) == ("Empty", None, [])
    assert (described["producer_epoch"], described["timeout_ms"]) == (0, 60_000)


def test_unknown_transactional_ids_and_states_are_rejected(cli: Cli) -> None:
    assert "there is no transactional id nobody" in cli.error("txn", "describe", "nobody")
    assert "there is no state Sleeping" in cli.error("txn", "list", "--state", "Sleeping")


def test_a_transaction_with_a_coordinator_does_not_hang_and_is_not_aborted(cli: Cli, opened: Open, topic: str) -> None:
    assert cli.json("txn", "hanging", "--topic", topic, "--older-than", "0") == []

    refused = cli.error("txn", "abort", f"{topic}:0", "--yes")

    assert "its coordinator will end it" in refused
    opened.producer.commit_transaction(SECONDS_MAX)


def test_nothing_is_aborted_where_nothing_is_open(cli: Cli, topic: str) -> None:
    assert "no transaction is open" in cli.error("txn", "abort", f"{topic}:0", "--yes")


def test_a_part_of_a_transaction_is_aborted_by_force(cli: Cli, opened: Open, topic: str) -> None:
    unasked = cli.error("txn", "abort", f"{topic}:1", "--force")
    assert "say --yes" in unasked

    done = cli.json("txn", "abort", f"{topic}:1", "--force", "--yes")

    assert (done["aborted"]["topic"], done["aborted"]["partition"]) == (topic, 1)
    assert "no transaction is open" in cli.error("txn", "abort", f"{topic}:1", "--yes")


def test_a_hanging_transaction_is_found_and_ended(start_broker: Any) -> None:
    broker = start_broker({"transaction.partition.verification.enable": "false"})
    cli, topic = Cli(broker.bootstrap), fresh_name("hung")
    create_topic(broker.bootstrap, topic, partitions=2)
    opened = Open(broker.bootstrap, topic)
    opened.producer.commit_transaction(SECONDS_MAX)
    # The response to a commit precedes its markers, and the next epoch is known after these.
    wait_until(
        lambda: cli.json("txn", "describe", opened.name)["state"] == "CompleteCommit",
        what="the end of the first transaction",
        seconds_max=SECONDS_MAX,
    )
    info = cli.json("txn", "describe", opened.name)
    late = build_batch(
        [Record(0, now_ms(), None, b"late", ())],
        producer_id=info["producer_id"],
        producer_epoch=info["producer_epoch"],
        base_sequence=1,
        is_transactional=True,
    )
    request = produce_request(topic, bytes(late), version=9)
    request.transactional_id = opened.name
    with Wire(broker.bootstrap) as wire:
        [[response]] = [response.partition_responses for response in wire.ask(request).responses]
    assert response.error_code == 0
    assert last_stable(broker, topic) == response.base_offset

    (found,) = cli.json("txn", "hanging", "--topic", topic, "--older-than", "0")
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, response.base_offset)
    assert found["producer_id"] == info["producer_id"]

    done = cli.json("txn", "abort", f"{topic}:0", "--yes")

    assert done["aborted"]["start_offset"] == response.base_offset
    assert cli.json("txn", "hanging", "--topic", topic, "--older-than", "0") == []
    # The late record and the marker that took it back.
    assert last_stable(broker, topic) == response.base_offset + 2
    assert cli.json("txn", "describe", opened.name)["state"] == "CompleteCommit"


def last_stable(broker: Any, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX)[1])
    finally:
        consumer.close()
