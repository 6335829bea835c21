"""AddOffsetsToTxn and TxnOffsetCommit: offsets that are committed with a transaction."""

from __future__ import annotations

from typing import Any

from differential.members import (
    alone,
    commit_partition,
    commit_topic,
    committed,
    consumer_joined,
    coordinated_topic,
    group,
    offsets_body,
)
from differential.requests import missing
from differential.script import Body, Run, Topic, scenarios
from differential.transactions import ADD_OFFSETS, Transactor, transactor

FOREIGN_ID = 987_654_321
IMPLICIT_VERSION = 5
"""The first version of TxnOffsetCommit that adds its group to the transaction."""
METADATA_BYTES_MAX = 4096


def body_of(who: Transactor, name: str, *topics: dict[str, Any], **fields: Any) -> Body:
    named = [{field: value for field, value in topic.items() if field != "topic_id"} for topic in topics]
    return who.who(group_id=name, topics=named) | fields


def offsets(run: Run, label: str, name: str, topic: Topic, *, stable: bool = False) -> None:
    body = offsets_body(name, (topic, [0, 1])) | {"require_stable": stable}
    run.ask(label, body, api="offset_fetch", version=9)


def added(run: Run, who: Transactor, name: str) -> None:
    response = run.do(*ADD_OFFSETS, who.who(group_id=name))
    assert response["error_code"] == "none", response


# AddOffsetsToTxn


def add_offsets(run: Run) -> None:
    who, name = transactor(run), group(run)
    run.ask("first", who.who(group_id=name))
    run.ask("again", who.who(group_id=name))
    run.ask("another group", who.who(group_id=group(run, "h")))
    run.ask("empty group", who.who(group_id=""))
    run.record("ended", {"error_code": run.do("end_txn", 4, who.who(committed=True))["error_code"]})


def add_offsets_by_others(run: Run) -> None:
    who, name = transactor(run), group(run)
    who.init()
    for label, fields in (
        ("another id", {"producer_id": FOREIGN_ID}),
        ("epoch before", {"producer_epoch": who.epoch - 1}),
        ("epoch ahead", {"producer_epoch": who.epoch + 1}),
        ("unknown name", {"transactional_id": run.name("nobody")}),
        ("empty name", {"transactional_id": ""}),
        ("right", {}),
    ):
        run.ask(label, who.who(group_id=name) | fields)


# TxnOffsetCommit


def commit_in_a_transaction(run: Run) -> None:
    for commit in (True, False):
        token = "kept" if commit else "dropped"
        who, name, topic = transactor(run, f"x-{token}"), group(run, f"g-{token}"), run.topic(token, partitions=2)
        committed(run, name, topic, 3)
        added(run, who, name)
        part = commit_topic(topic, commit_partition(0, 7, committed_metadata="note"), (1, 8))
        run.ask(f"{token}: response", body_of(who, name, part))
        offsets(run, f"{token}: while open", name, topic)
        offsets(run, f"{token}: while open, stable ones", name, topic, stable=True)
        who.end(commit=commit)
        offsets(run, f"{token}: after the end", name, topic, stable=True)


def commit_without_adding(run: Run) -> None:
    """Clients of version 2 need not add the group."""
    who, name, topic = transactor(run), group(run), run.topic(partitions=2)
    run.ask("response", body_of(who, name, commit_topic(topic, (0, 7))))
    offsets(run, "while open", name, topic)
    response = run.do("end_txn", 4, who.who(committed=True))
    run.record("ended", {"error_code": response["error_code"]})
    if response["error_code"] == "none":
        who.settle()
    offsets(run, "after the end", name, topic)


def commit_by_others(run: Run) -> None:
    who, name, topic = transactor(run), group(run), run.topic(partitions=2)
    who.init()
    added(run, who, name)
    part = commit_topic(topic, (0, 7))
    run.ask("another id", body_of(who, name, part, producer_id=FOREIGN_ID))
    run.ask("epoch before", body_of(who, name, part, producer_epoch=who.epoch - 1))
    run.ask("epoch ahead", body_of(who, name, part, producer_epoch=who.epoch + 1))
    run.ask("unknown name", body_of(who, name, part, transactional_id=run.name("nobody")))
    run.ask("another group", body_of(who, group(run, "h"), part))
    offsets(run, "while open", name, topic, stable=True)


def commit_unusual_values(run: Run) -> None:
    who, name, topic = transactor(run), group(run), run.topic(partitions=2)
    added(run, who, name)
    long = commit_partition(1, 7, committed_metadata="m" * (METADATA_BYTES_MAX + 1))
    run.ask("long metadata", body_of(who, name, commit_topic(topic, (0, 7), long)))
    run.ask("unknown topic", body_of(who, name, commit_topic(missing(run), (0, 1)), commit_topic(topic, (1, 1))))
    run.ask("unknown partition", body_of(who, name, commit_topic(topic, (9, 1), (-1, 1), (0, 2))))
    run.ask("nothing", body_of(who, name))
    run.ask("negative offset", body_of(who, name, commit_topic(topic, (0, -1))))
    run.ask("twice", body_of(who, name, commit_topic(topic, (0, 4), (0, 5))))
    who.end(commit=True)
    offsets(run, "after the end", name, topic)


def commit_of_members(run: Run) -> None:
    """A member that has lost its partitions must not commit for them, although its producer is valid."""
    who, name, topic = transactor(run), group(run), run.topic(partitions=2)
    member = alone(run, name)
    added(run, who, name)
    part = commit_topic(topic, (0, 7))
    right = {"member_id": member.member_id, "generation_id": member.generation}
    run.ask("generation before", body_of(who, name, part, **right | {"generation_id": member.generation - 1}))
    run.ask("generation ahead", body_of(who, name, part, **right | {"generation_id": member.generation + 1}))
    run.ask("unknown member", body_of(who, name, part, **right | {"member_id": "stranger"}))
    run.ask("no member", body_of(who, name, part, **right | {"member_id": ""}))
    run.ask("no generation", body_of(who, name, part, **right | {"generation_id": -1}))
    run.ask("unknown instance", body_of(who, name, part, **right, group_instance_id="i"))
    run.ask("without a member", body_of(who, name, part))
    run.ask("right", body_of(who, name, part, **right))
    who.end(commit=True)
    offsets(run, "after the end", name, topic)


def commit_of_unknown_members(run: Run) -> None:
    who, name, topic = transactor(run), group(run), run.topic(partitions=2)
    added(run, who, name)
    part = commit_topic(topic, (0, 7))
    run.ask("unknown group with a generation", body_of(who, name, part, member_id="m", generation_id=3))
    run.ask("unknown group with a member", body_of(who, name, part, member_id="m"))


def commit_of_a_member_of_a_consumer_group(run: Run) -> None:
    topic = coordinated_topic(run, partitions=2)
    who, name = transactor(run), group(run)
    epoch = consumer_joined(run, name, "m", topic.name)
    added(run, who, name)
    part = commit_topic(topic, (0, 7))
    run.ask("epoch before", body_of(who, name, part, member_id="m", generation_id=epoch - 1))
    run.ask("epoch ahead", body_of(who, name, part, member_id="m", generation_id=epoch + 1))
    run.ask("unknown member", body_of(who, name, part, member_id="stranger", generation_id=epoch))
    run.ask("without a member", body_of(who, name, part))
    run.ask("right", body_of(who, name, part, member_id="m", generation_id=epoch))
    who.end(commit=True)
    offsets(run, "after the end", name, topic)


def commits_beside_a_transaction(run: Run) -> None:
    """The transaction's offset is later than an offset committed outside of it meanwhile, and replaces it."""
    who, name, topic = transactor(run), group(run), run.topic(partitions=2)
    added(run, who, name)
    run.ask("in the transaction", body_of(who, name, commit_topic(topic, (0, 7))))
    committed(run, name, topic, 20)
    offsets(run, "while open", name, topic)
    who.end(commit=True)
    offsets(run, "after the end", name, topic)


SCENARIOS = (
    *scenarios("transactions_offsets", "add_offsets_to_txn", (add_offsets, add_offsets_by_others)),
    *scenarios(
        "transactions_offsets",
        "txn_offset_commit",
        (
            commit_in_a_transaction,
            commit_without_adding,
            commit_by_others,
            commit_unusual_values,
            commits_beside_a_transaction,
        ),
    ),
    *scenarios(
        "transactions_offsets",
        "txn_offset_commit",
        (commit_of_members, commit_of_unknown_members, commit_of_a_member_of_a_consumer_group),
        versions=range(3, IMPLICIT_VERSION + 1),
    ),
)
