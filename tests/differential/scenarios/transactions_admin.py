"""DescribeTransactions, ListTransactions, DescribeProducers and WriteTxnMarkers."""

from __future__ import annotations

from typing import Any

from differential.batches import TRANSACTIONAL, batch
from differential.requests import missing, produce_body
from differential.script import Body, Run, Topic, scenarios
from differential.transactions import Transactor, committed_log, ledger, transactor

from .idempotence import producer
from .produce import look

FOREIGN_ID = 987_654_321


def describe_each_state(run: Run) -> None:
    topic, other = ledger(run, partitions=3), ledger(run, "b")
    who = transactor(run)
    who.wrote(topic, partitions=(0, 2))
    who.wrote(other)
    run.ask("open", {"transactional_ids": [who.name]})
    who.end(commit=True)
    run.ask("committed", {"transactional_ids": [who.name]})
    who.wrote(topic)
    who.end(commit=False)
    run.ask("aborted", {"transactional_ids": [who.name]})


def describe_before_the_first_transaction(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    run.ask("empty", {"transactional_ids": [who.name]})
    who.wrote(topic)
    who.end(commit=True)
    who.init()
    run.ask("opened again", {"transactional_ids": [who.name]})


def describe_unknown_ones(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    run.ask("unknown and known", {"transactional_ids": [run.name("nobody"), who.name]})
    run.ask("empty", {"transactional_ids": [""]})
    run.ask("twice", {"transactional_ids": [who.name, who.name]})


def listed(run: Run, label: str, **fields: Any) -> None:
    run.ask(label, {"duration_filter": -1} | fields, own_only=True)


def list_by_states(run: Run) -> None:
    topic = ledger(run)
    first, second = transactor(run, "empty"), transactor(run, "open")
    third, fourth = transactor(run, "committed"), transactor(run, "aborted")
    second.wrote(topic)
    for who, commit in ((third, True), (fourth, False)):
        who.wrote(topic)
        who.end(commit=commit)
    listed(run, "all")
    listed(run, "open", state_filters=["Ongoing"])
    listed(run, "two states", state_filters=["CompleteCommit", "Empty"])
    listed(run, "unknown states", state_filters=["Ongoing", "Sleeping", "ongoing"])
    listed(run, "only unknown states", state_filters=["Sleeping"])
    listed(run, "by producer", producer_id_filters=[first.producer_id, third.producer_id])
    listed(run, "by producer and state", producer_id_filters=[first.producer_id], state_filters=["Ongoing"])
    listed(run, "by an unknown producer", producer_id_filters=[FOREIGN_ID])


def list_by_duration(run: Run) -> None:
    topic = ledger(run)
    transactor(run, "empty")
    transactor(run, "open").wrote(topic)
    listed(run, "running for any time", duration_filter=0)
    listed(run, "running for an hour", duration_filter=3_600_000)
    listed(run, "duration -5", duration_filter=-5)


def list_by_pattern(run: Run) -> None:
    first, second = transactor(run, "first"), transactor(run, "second")
    listed(run, "one", transactional_id_pattern=".*" + first.name[-12:])
    listed(run, "both", transactional_id_pattern=f".*{run.scenario.name}.*")
    listed(run, "whole names only", transactional_id_pattern=second.name[:-1])
    listed(run, "none", transactional_id_pattern="")
    listed(run, "bad", transactional_id_pattern="(a")


def describe_body(topic: Topic, *indexes: int) -> Body:
    return {"topics": [{"name": topic.name, "partition_indexes": list(indexes)}]}


def describe_producers(run: Run) -> None:
    topic, who, pid = ledger(run, partitions=2), transactor(run), producer(run)
    run.ask("no producers", describe_body(topic, 0))
    run.do("produce", 9, produce_body(topic, batch(b"a", b"b", producer_id=pid, producer_epoch=0, base_sequence=0)))
    who.wrote(topic, b"c", partitions=(0, 1))
    run.ask("one of them in a transaction", describe_body(topic, 0, 1))
    who.end(commit=True)
    run.ask("after the commit", describe_body(topic, 0))
    who.wrote(topic, b"c")
    who.end(commit=False, version=5)
    run.ask("after an abort of version 2", describe_body(topic, 0))


def describe_producers_of_unknown_partitions(run: Run) -> None:
    run.ask("unknown topic", describe_body(missing(run), 0))
    run.ask("unknown partition", describe_body(ledger(run), 0, 7))
    run.ask("no topics", {"topics": []})
    run.ask("bad name", {"topics": [{"name": "a/b", "partition_indexes": [0]}]})


# WriteTxnMarkers


def marker(who: Transactor, topic: Topic, *indexes: int, commit: bool = False, **fields: Any) -> dict[str, Any]:
    return {
        "producer_id": who.producer_id,
        "producer_epoch": who.epoch,
        "transaction_result": commit,
        "topics": [{"name": topic.name, "partition_indexes": list(indexes or (0,))}],
        "coordinator_epoch": 0,
    } | fields


def markers_of_an_open_transaction(run: Run) -> None:
    topic, who = ledger(run, partitions=2), transactor(run)
    who.wrote(topic, b"a", partitions=(0, 1))
    run.ask("abort", {"markers": [marker(who, topic)]})
    committed_log(run, "aborted", topic)
    run.ask("abort again", {"markers": [marker(who, topic)]})
    look(run, topic, "log")
    run.ask("commit the other", {"markers": [marker(who, topic, 1, commit=True)]})
    committed_log(run, "committed", topic, partition=1)


def markers_with_other_epochs(run: Run) -> None:
    topic, who = ledger(run), transactor(run)
    who.init()
    who.wrote(topic)
    run.ask("epoch before", {"markers": [marker(who, topic, producer_epoch=who.epoch - 1)]})
    run.ask("epoch ahead", {"markers": [marker(who, topic, producer_epoch=who.epoch + 1, coordinator_epoch=3)]})
    committed_log(run, "log", topic)
    run.ask("coordinator before", {"markers": [marker(who, topic, producer_epoch=who.epoch + 1, coordinator_epoch=2)]})
    run.ask("producers", describe_body(topic, 0), api="describe_producers", version=0)


def markers_of_version_2(run: Run) -> None:
    """In transaction version 2 a marker has the bumped epoch; one with the transaction's own epoch is late."""
    topic, who = ledger(run), transactor(run)
    who.wrote(topic)
    run.ask("own epoch", {"markers": [marker(who, topic, transaction_version=2)]})
    committed_log(run, "log after own epoch", topic)
    run.ask("raised epoch", {"markers": [marker(who, topic, transaction_version=2, producer_epoch=who.epoch + 1)]})
    committed_log(run, "log", topic)


def markers_for_unknown_partitions(run: Run) -> None:
    topic, who = ledger(run), transactor(run)
    run.tokens.producer_id(FOREIGN_ID)
    run.ask("unknown topic", {"markers": [marker(who, missing(run))]})
    run.ask("unknown partition", {"markers": [marker(who, topic, 0, 7)]})
    run.ask("unknown producer", {"markers": [marker(who, topic, producer_id=FOREIGN_ID)]})
    look(run, topic)


def a_hanging_transaction(run: Run) -> None:
    """A marker ends a transaction that is unknown to its coordinator."""
    topic, who = ledger(run), transactor(run)
    who.add(topic)
    who.write(topic)
    who.end(commit=True)
    late = batch(
        b"late",
        attributes=TRANSACTIONAL,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=1,
    )
    run.ask("late", produce_body(topic, late) | {"transactional_id": who.name}, api="produce", version=11)
    run.ask("producers", describe_body(topic, 0), api="describe_producers", version=0)


DESCRIBE = (describe_each_state, describe_before_the_first_transaction, describe_unknown_ones)

SCENARIOS = (
    *scenarios("transactions_admin", "describe_transactions", DESCRIBE),
    *scenarios("transactions_admin", "list_transactions", (list_by_states,)),
    *scenarios("transactions_admin", "list_transactions", (list_by_duration,), versions=range(1, 3)),
    *scenarios("transactions_admin", "list_transactions", (list_by_pattern,), versions=range(2, 3)),
    *scenarios(
        "transactions_admin", "describe_producers", (describe_producers, describe_producers_of_unknown_partitions)
    ),
    *scenarios(
        "transactions_admin",
        "write_txn_markers",
        (
            markers_of_an_open_transaction,
            markers_with_other_epochs,
            markers_for_unknown_partitions,
            a_hanging_transaction,
        ),
    ),
    *scenarios("transactions_admin", "write_txn_markers", (markers_of_version_2,), versions=range(2, 3)),
)
