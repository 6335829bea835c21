"""`penstock group` as its users run it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from protocol.group_members import await_assignment
from protocol.test_cli import PENSTOCK, Cli
from protocol.topics import fresh_name

RECORDS = 20
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def cli(broker: Any) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def topic(broker: Any, make_topic: Any) -> str:
    """Two partitions with twenty records each, a second apart and so old that only this retention keeps them."""
    name: str = make_topic(partitions=2, retention_ms="-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(2):
        for number in range(RECORDS):
            producer.produce(name, b"%d" % number, partition=partition, timestamp=1_000_000 + number * 1_000)
    assert producer.flush(SECONDS_MAX) == 0
    return name


@pytest.fixture
def group(broker: Any, topic: str, request: pytest.FixtureRequest) -> str:
    """A group without members that has committed 10 and 5."""
    name = fresh_name(request.node.name)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 10), TopicPartition(topic, 1, 5)], asynchronous=False)
    consumer.close()
    return name


@contextmanager
def member(broker: Any, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "billing", **settings})
    consumer.subscribe([topic])
    try:
        await_assignment(consumer)
        yield consumer
    finally:
        consumer.close()


def offsets(cli: Cli, group: str) -> list[int | None]:
    return [each["committed"] for each in cli.json("group", "describe", group)["partitions"]]


def test_a_group_is_listed_and_described_with_its_lag(cli: Cli, group: str, topic: str) -> None:
    assert {"group": group, "type": "classic", "state": "empty"} in cli.json("group", "list")

    described = cli.json("group", "describe", group)

    assert (described["state"], described["members"], described["lag"]) == ("empty", [], 25)
    shown = cli.out("group", "describe", group)
    assert f"{group}  classic  empty  0 members  lag 25" in shown
    assert [line.split()[:6] for line in shown.splitlines() if line.startswith(topic)] == [
        [topic, "0", "10", "0", "20", "10"],
        [topic, "1", "5", "0", "20", "15"],
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_live_members_are_shown_and_named_when_a_move_is_refused(
    cli: Cli, broker: Any, group: str, topic: str, protocol: str
) -> None:
    with member(broker, group, topic, **{"group.protocol": protocol}):
        [live] = cli.json("group", "describe", group)["members"]
        assert (live["client"], live["host"]) == ("billing", "127.0.0.1")
        assert [each["partition"] for each in live["partitions"]] == [0, 1]

        for refused in (("seek", group, "--to", "earliest", "--yes"), ("delete", group, "--yes")):
            said = cli.error("group", *refused)
            assert f"1 live member: {live['member']} (client billing, host 127.0.0.1)" in said
            assert "hint: stop them first" in said


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [20, 20]),
        (["--to", "7"], [7, 7]),
        (["--to", "-3"], [17, 17]),
        (["--to", "@1004500"], [5, 5]),
        (["--to", "@1970-01-01T00:16:50Z"], [10, 10]),
        (["--by", "3"], [13, 8]),
        (["--by", "-7"], [3, 0]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_a_group_is_moved_after_it_was_shown_where_to(
    cli: Cli, group: str, where: list[str], expected: list[int]
) -> None:
    not_done = cli.run("group", "seek", group, *where)
    assert not_done.returncode == 1
    assert "say --yes" in not_done.stderr
    assert offsets(cli, group) == [10, 5]

    done = cli.json("group", "seek", group, *where, "--yes")

    assert done["applied"]
    assert [(each["committed"], each["new"]) for each in done["partitions"]] == list(
        zip([10, 5], expected, strict=True)
    )
    assert [each["change"] for each in done["partitions"]] == [expected[0] - 10, expected[1] - 5]
    assert offsets(cli, group) == expected


def test_only_some_partitions_are_moved(cli: Cli, group: str, topic: str) -> None:
    shown = cli.out("group", "seek", group, "--to", "latest", "--topic", f"{topic}:1", "--yes")

    assert f"moved 1 partition of group {group}" in shown
    assert offsets(cli, group) == [10, 20]
    assert "nothing to move" in cli.out("group", "seek", group, "--to", "latest", "-t", f"{topic}:1")


def test_a_group_is_moved_by_a_csv(cli: Cli, group: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(f"{topic},0,4\n{topic},1,999\n")

    done = cli.run("group", "seek", group, "--csv", str(path), "--yes")

    assert done.returncode == 0, done.stderr
    assert f"{topic} partition 1 does not hold offset 999: 20 is nearest" in done.stderr
    assert offsets(cli, group) == [4, 20]
    path.write_text(f"{topic},9,4\n")
    assert "has no partition 9" in cli.error("group", "seek", group, "--csv", str(path), "--yes")


def test_a_group_gets_offsets_before_its_first_member_comes(
    cli: Cli, topic: str, request: pytest.FixtureRequest
) -> None:
    name = fresh_name(request.node.name)
    assert "there is no group" in cli.error("group", "describe", name)
    assert "has committed nothing" in cli.error("group", "seek", name, "--to", "latest")
    assert "no committed offset to shift" in cli.error("group", "seek", name, "--by", "1", "-t", topic)

    cli.out("group", "seek", name, "--to", "3", "--topic", topic, "--yes")

    assert offsets(cli, name) == [3, 3]


def test_a_deleted_group_is_gone(cli: Cli, group: str) -> None:
    assert "say --yes" in cli.error("group", "delete", group)

    assert cli.json("group", "delete", group, "--yes") == {"deleted": [group]}

    assert group not in [each["group"] for each in cli.json("group", "list")]
    assert "there is no group" in cli.error("group", "delete", group, "--yes")


def test_watching_shows_the_group_again_and_how_fast_it_reads(cli: Cli, group: str, topic: str) -> None:
    command = [*PENSTOCK, "group", "describe", group, "--watch", "-i", "0.2", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment, text=True) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        cli.out("group", "seek", group, "--to", "latest", "--yes")
        speeds = [None]
        while not any(speeds):
            speeds = [each["per_second"] for each in json.loads(watching.stdout.readline())["partitions"]]
        watching.terminate()
    assert [each["per_second"] for each in first["partitions"]] == [None, None]
    assert all(speed > 0 for speed in speeds)
