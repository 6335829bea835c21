"""What the broker's log says of a day's work: topics, groups, settings, transactions, and who did it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from penstock.testing.broker_process import PenstockProcess
from protocol.group_members import await_assignment
from protocol.test_cli import Cli

SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
TOPIC, GROUP = "orders", "billing"


@pytest.fixture(scope="module")
def own_broker() -> Iterator[PenstockProcess]:
    with PenstockProcess(settings={"group.initial.rebalance.delay.ms": "0"}) as process:
        yield process


def logged(broker: PenstockProcess) -> list[dict[str, Any]]:
    whole, _, _ = broker.log.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


def await_line(broker: PenstockProcess, event: str, topic: str) -> None:
    """A thread of the broker writes its log, so a line may be behind the response to its request."""
    deadline = time.monotonic() + SECONDS_MAX
    while not any(line["event"] == event and line.get("topic") == topic for line in logged(broker)):
        assert time.monotonic() < deadline, f"no {event} of {topic} in the log"
        time.sleep(POLL_SECONDS)


def events(broker: PenstockProcess, part: str) -> list[str]:
    return [line["event"] for line in logged(broker) if line["part"] == part]


def consume_one(broker: PenstockProcess, protocol: str, group: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    await_assignment(consumer)
    consumer.close()


def test_administrative_changes_are_logged_with_user_and_client(own_broker: PenstockProcess) -> None:
    cli = Cli(own_broker.bootstrap)
    cli.out("topic", "create", TOPIC, "-p", "2")
    producer = Producer({"bootstrap.servers": own_broker.bootstrap})
    producer.produce(TOPIC, "9.5")
    assert producer.flush(SECONDS_MAX) == 0
    consume_one(own_broker, "classic", GROUP)
    consume_one(own_broker, "consumer", f"{GROUP}-2")
    cli.out("group", "seek", GROUP, "--to", "latest", "--topic", TOPIC, "--yes")
    cli.out("config", "set", "topic", TOPIC, "retention.ms=1000")
    cli.out("topic", "grow", TOPIC, "--to", "3")
    cli.out("topic", "truncate", TOPIC, "--before", "end", "--yes")
    cli.out("group", "delete", GROUP, "--yes")
    cli.out("topic", "delete", TOPIC, "--yes")
    await_line(own_broker, "topic_deleted", TOPIC)

    admin = events(own_broker, "admin")
    groups = [line for line in logged(own_broker) if line["part"] == "groups"]

    assert admin == [
        "topic_created",
        "group_offsets_set",
        "configs_changed",
        "topic_grown",
        "records_deleted",
        "group_deleted",
        "topic_deleted",
    ]
    assert [line["event"] for line in groups if line.get("group") == GROUP] == ["group_rebalanced", "group_empty"]
    assert "group_rebalanced" in [line["event"] for line in groups if line.get("group") == f"{GROUP}-2"]
    made = next(line for line in logged(own_broker) if line["event"] == "topic_created")
    assert (made["user"], made["level"], made["topic"], made["partitions"]) == ("ANONYMOUS", "info", TOPIC, 2)
    assert made["client_id"]
    assert made["peer"].startswith("127.0.0.1")


def test_commits_of_a_member_are_not_logged(own_broker: PenstockProcess) -> None:
    before = events(own_broker, "admin").count("group_offsets_set")
    producer = Producer({"bootstrap.servers": own_broker.bootstrap})
    producer.produce("paid", "9.5")
    assert producer.flush(SECONDS_MAX) == 0
    settings = {"bootstrap.servers": own_broker.bootstrap, "group.id": "paying", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["paid"])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    consumer.close()
    Cli(own_broker.bootstrap).out("topic", "create", "last")
    await_line(own_broker, "topic_created", "last")

    assert events(own_broker, "admin").count("group_offsets_set") == before
    assert "topic_auto_created" in events(own_broker, "admin")


def test_format_and_level_come_from_the_environment_and_a_flag_wins() -> None:
    chosen = {"PENSTOCK_LOG_FORMAT": "text", "PENSTOCK_LOG_LEVEL": "error"}
    with PenstockProcess(environment=chosen, arguments=("--log-level", "info")) as flagged:
        flagged.stop()
        words = flagged.log.read_text()
    with PenstockProcess(environment=chosen) as silent:
        silent.stop()
        nothing = silent.log.read_text()

    assert "ready" in words
    assert not words.startswith("{")
    assert nothing == ""
