"""`penstock queue` and `penstock consume --share`, as their users run them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import AcknowledgeType

from protocol.share_members import QUICK_SHARES, share_member
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


def test_a_queue_is_listed_counted_peeked_at_restarted_and_purged(cli: Cli, broker: Any) -> None:
    queue, group = fresh_name("jobs"), fresh_name("workers")
    cli.out("queue", "create", queue, "--group", group, "-p", "1", "--backoff-ms", "600000", "--no-dlq")
    assert {"queue": queue, "group": group, "type": "share", "members": 0, "lag": 0} in cli.json("queue", "list")
    assert "finished all" in cli.run("queue", "peek", queue).stderr
    cli.out("produce", queue, stdin="one\ntwo\nthree\n")

    with share_member(broker, group, queue) as member:
        kinds: dict[bytes | None, AcknowledgeType] = {
            b"one": AcknowledgeType.RELEASE,
            b"two": AcknowledgeType.ACCEPT,
            b"three": AcknowledgeType.RELEASE,
        }
        wait_until(
            lambda: len(member.poll(lambda message: kinds[message.value()])) >= 0 and len(member.delivered) == 3,
            what="three deliveries",
        )
        [listed] = [each for each in cli.json("queue", "list") if each["queue"] == queue]
        assert (listed["members"], listed["lag"]) == (1, 2)
        [part] = cli.json("queue", "stats", queue)
        assert (part["group"], part["start"], part["end"], part["lag"]) == (group, 0, 3, 2)
        assert (part["finished"], part["waiting"], part["members"], part["dead_letters"]) == (1, 2, 1, 0)
        for refused in (("purge", queue, "--yes"), ("release", queue, "--restart", "--yes")):
            assert "has 1 member" in cli.error("queue", *refused)

    shown = cli.json("queue", "peek", queue)
    assert [(each["record"], each["value"], each["deliveries"]) for each in shown] == [
        ("0@0", "one", 1),
        ("0@2", "three", 1),
    ]
    assert all(each["state"].startswith("waits until 20") for each in shown)
    assert cli.json("queue", "peek", queue, "-n", "1") == shown[:1], "peeking takes nothing"
    assert "no partition 7" in cli.error("queue", "peek", queue, "-p", "7")

    assert "it gets 1 finished record again" in cli.error("queue", "release", queue, "--restart")
    restarted = cli.json("queue", "release", queue, "--restart", "--yes")
    assert restarted["partitions"] == [{"partition": 0, "start": 0, "new": 0, "unfinished": 2}]
    assert [each["state"] for each in cli.json("queue", "peek", queue)] == ["unfinished"] * 3
    assert taken(cli, queue, group, "-n", "1") == ["one"]

    assert "not done: give up 2 records" in cli.error("queue", "purge", queue)
    purged = cli.json("queue", "purge", queue, "--yes")
    assert purged["partitions"] == [{"partition": 0, "start": 1, "new": 3, "unfinished": 2}]
    [part] = cli.json("queue", "stats", queue, "-g", group)
    assert (part["start"], part["end"], part["lag"], part["finished"], part["members"]) == (3, 3, 0, 0, 0)
    cli.out("produce", queue, "-v", "four")
    assert taken(cli, queue, group, "-n", "1") == ["four"]


def test_what_a_silent_member_holds_is_released_by_its_name(cli: Cli, broker: Any) -> None:
    queue, group = fresh_name("jobs"), fresh_name("workers")
    cli.out("queue", "create", queue, "--group", group, "-p", "1")
    cli.out("produce", queue, "-v", "slow")
    with share_member(broker, group, queue) as member:
        wait_until(lambda: bool(list(member.consumer.poll(0.5))), what="the record")
        [silent] = [each["member"] for each in cli.json("group", "describe", group)["partitions"]]

        assert "no member nobody" in cli.error("queue", "release", queue, "--member", "nobody", "--yes")
        assert cli.json("queue", "release", queue, "--member", silent, "--yes")["released"] == [silent]

        # Its lock would have lasted for half a minute; others got nothing before.
        again = cli.json_lines("consume", queue, "--share", group, "-n", "1")
        assert [each["value"] for each in again] == ["slow"]


def test_a_condition_sends_some_letters_back_and_the_others_later(cli: Cli) -> None:
    queue, group = fresh_name("jobs"), fresh_name("workers")
    dead = cli.json("queue", "create", queue, "--group", group, "-p", "1")["dlq"]
    cli.out("produce", queue, stdin="".join(f'{{"n": {number}}}\n' for number in range(4)))
    assert len(taken(cli, queue, group, "-n", "4", "--reject")) == 4
    wait_until(lambda: len(cli.json("queue", "dlq", "show", dead)) == 4, what="the dead letters")
    [part] = cli.json("queue", "stats", queue)
    assert (part["dead_letters"], part["lag"]) == (4, 0)

    some = cli.json("queue", "dlq", "redrive", dead, "--where", "value.n in (1, 3)", "--yes")
    assert (some["sent"], some["filtered"]) == (2, 2)
    assert some["partitions"] == [{"partition": 0, "sent": 2, "left": 0, "filtered": 2}]
    planned = cli.json("queue", "dlq", "redrive", dead, "--dry-run", "--where", "value.n > 0")
    assert [(each["letter"], each["outcome"]) for each in planned] == [
        ("0@0", "does not meet the condition"),
        ("0@2", "sent"),
    ]
    assert cli.json("queue", "dlq", "redrive", dead, "--yes")["sent"] == 2, "each goes back once"
    assert [each["value"] for each in cli.json("queue", "peek", queue)] == [f'{{"n": {each}}}' for each in (1, 3, 0, 2)]
    assert cli.run("queue", "dlq", "redrive", dead, "--where", "value.n >", "--yes").returncode == 2


def test_commands_on_what_is_no_queue_say_so(cli: Cli) -> None:
    topic, group = fresh_name("mails"), fresh_name("mailers")
    assert "penstock topic list" in cli.error("queue", "stats", fresh_name("missing"))
    cli.out("topic", "create", topic, "-p", "1", "-c", "cleanup.policy=consume", "-c", f"consume.group={group}")
    assert {"queue": topic, "group": group, "type": "consumer", "members": 0, "lag": None} in cli.json("queue", "list")
    assert "is no share group" in cli.error("queue", "purge", topic, "--yes")
    plain = fresh_name("plain")
    cli.out("topic", "create", plain, "-p", "1")
    assert "no share group works on" in cli.error("queue", "peek", plain)
    assert cli.run("queue", "release", plain).returncode == 2


def test_choices_that_exclude_each_other_are_refused(cli: Cli) -> None:
    for arguments in (
        ("--share", "g", "-g", "h"),
        ("--share", "g", "--release", "--reject"),
        ("--reject",),
        ("--share", "g", "-o", "end"),
    ):
        assert cli.run("consume", "t", *arguments).returncode == 2
