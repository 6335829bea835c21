"""`penstock queue` and `penstock consume --share`, as their users run them."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.share_members import QUICK_SHARES
from protocol.test_cli import Cli
from protocol.topics import fresh_name, wait_until

BROKER_SETTINGS = QUICK_SHARES
pytestmark = pytest.mark.xdist_group("queues")


@pytest.fixture(scope="module")
def cli(broker: Any) -> Cli:
    return Cli(broker.bootstrap)


def taken(cli: Cli, queue: str, group: str, *arguments: str) -> list[str]:
    return cli.out("consume", queue, "--share", group, *arguments).splitlines()


def test_a_queue_is_worked_on_its_dead_letters_are_shown_and_sent_back(cli: Cli) -> None:
    queue, group = fresh_name("jobs"), fresh_name("workers")
    made = cli.json("queue", "create", queue, "--group", group, "--partitions", "1", "--deliveries", "2")
    dead = made["dlq"]
    cli.out("config", "set", "topic", queue, "dedupe.window.records=1000")
    # Each in a batch of its own: of one batch all are handed out together, and use an attempt.
    for value in ("good", "bad"):
        cli.out("produce", queue, "-k", "c7", "-H", "source=shop", "-H", f"penstock-msg-id={value}", "-v", value)

    assert taken(cli, queue, group, "-n", "1", "--release") == ["good"]
    assert taken(cli, queue, group, "-n", "1") == ["good"]
    assert taken(cli, queue, group, "-n", "1", "--reject") == ["bad"]

    wait_until(lambda: cli.json("queue", "dlq", "list")[0]["letters"] == 1, what="the dead letter")
    assert {"group": group, "type": "share", "state": "empty"} in cli.json("group", "list")
    described = cli.json("group", "describe", group)
    [part] = described["partitions"]
    assert (described["type"], part["topic"], part["committed"], part["end"], part["lag"]) == ("share", queue, 2, 2, 0)
    assert "there is no group" in cli.error("group", "describe", fresh_name("nobody"))
    [letter] = cli.json("queue", "dlq", "show", dead)
    assert (letter["from"], letter["group"], letter["key"], letter["value"]) == (f"{queue}-0@1", group, "c7", "bad")
    assert letter["reason"].startswith("Offset rejected")
    [planned] = cli.json("queue", "dlq", "redrive", dead, "--dry-run")
    assert (planned["to"], planned["outcome"]) == (queue, "sent")
    assert cli.json("queue", "dlq", "redrive", dead, "--yes", "--rate", "100")["sent"] == 1
    assert cli.json("queue", "dlq", "redrive", dead, "--yes")["sent"] == 0, "each goes back once"
    again = cli.json_lines("consume", queue, "--share", group, "-n", "1", "--reject")
    assert [each["value"] for each in again] == ["bad"]
    headers = {each["name"]: each["value"] for each in again[0]["headers"]}
    # With the id that it had before, the topic would have taken it for a repetition.
    assert headers == {"source": "shop", "penstock-msg-id": "bad/redriven-1", "penstock-redriven": "1"}

    wait_until(lambda: cli.json("queue", "dlq", "list")[0]["letters"] == 2, what="the second dead letter")
    left = cli.json("queue", "dlq", "redrive", dead, "--yes", "--redrives-max", "1")
    assert (left["sent"], left["left"]) == (0, 1), "it has been back once"


def test_choices_that_exclude_each_other_are_refused(cli: Cli) -> None:
    for arguments in (
        ("--share", "g", "-g", "h"),
        ("--share", "g", "--release", "--reject"),
        ("--reject",),
        ("--share", "g", "-o", "end"),
    ):
        assert cli.run("consume", "t", *arguments).returncode == 2
