"""InitProducerId with a transactional id, AddPartitionsToTxn, EndTxn: ids, epochs, and fencing."""

from __future__ import annotations

from typing import Any

from differential.requests import missing
from differential.script import Run, scenarios
from differential.transactions import (
    END_VERSION_2,
    INIT,
    Transactor,
    add_body,
    committed_log,
    init_body,
    ledger,
    state_of,
    transactor,
)

TIMEOUT_MS_MAX = 900_000
FOREIGN_ID = 987_654_321


def given(run: Run, label: str, who: Transactor, **fields: Any) -> dict[str, Any]:
    return who.took(run.ask(label, init_body(who.name, **fields)))


# InitProducerId


def init_new(run: Run) -> None:
    who = transactor(run, ready=False)
    given(run, "first", who)
    given(run, "second", who)
    given(run, "third", who)


def init_timeouts(run: Run) -> None:
    who = transactor(run, ready=False)
    for timeout in (0, -1, TIMEOUT_MS_MAX + 1, TIMEOUT_MS_MAX, 1):
        given(run, f"timeout {timeout}", who, transaction_timeout=timeout)


def init_without_a_name(run: Run) -> None:
    transactor(run)
    run.ask("empty", init_body(""))


def init_with_its_own_id(run: Run) -> None:
    """The producer sends its id and epoch, to continue after an unknown error."""
    who = transactor(run)
    given(run, "its own", who, producer_id=who.producer_id, producer_epoch=who.epoch)
    given(run, "its own before", who, producer_id=who.producer_id, producer_epoch=who.epoch - 1)
    given(run, "its own before, again", who, producer_id=who.producer_id, producer_epoch=who.epoch - 1)
    given(run, "much older", who, producer_id=who.producer_id, producer_epoch=0)
    given(run, "ahead", who, producer_id=who.producer_id, producer_epoch=who.epoch + 1)
    given(run, "another id", who, producer_id=FOREIGN_ID, producer_epoch=0)
    given(run, "id without epoch", who, producer_id=who.producer_id)
    given(run, "epoch without id", who, producer_epoch=who.epoch)
    given(run, "nothing", who)


def init_of_an_unknown_with_an_id(run: Run) -> None:
    who = transactor(run, ready=False)
    run.tokens.producer_id(FOREIGN_ID)
    run.ask("first", init_body(who.name, producer_id=FOREIGN_ID, producer_epoch=3))


def init_at_the_last_epoch(run: Run) -> None:
    """Epochs end at 32767; the last one is reserved for fencing, so a new id is assigned before."""
    who = transactor(run)
    run.tokens.producer_id(who.producer_id)
    for epoch in (32_766, 32_767):
        run.ask(f"{epoch}", init_body(who.name, producer_id=who.producer_id, producer_epoch=epoch))


def init_while_a_transaction_is_open(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    run.ask("response", init_body(who.name))
    run.until("an aborted transaction", lambda: state_of(run, who.name) == "CompleteAbort")
    given(run, "after it was aborted", who)
    committed_log(run, "log", topic)


def init_with_its_own_while_a_transaction_is_open(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    mine = {"producer_id": who.producer_id, "producer_epoch": who.epoch}
    run.ask("response", init_body(who.name, **mine))
    run.until("an aborted transaction", lambda: state_of(run, who.name) == "CompleteAbort")
    given(run, "after it was aborted", who, **mine)
    committed_log(run, "log", topic)


def init_after_transactions(run: Run) -> None:
    """The epoch after a commit and after an abort, by clients of the version before and of version 2."""
    who, topic = transactor(run), ledger(run)
    for commit in (True, False):
        who.wrote(topic)
        who.end(commit=commit)
        given(run, f"commit {commit}", who)
        who.wrote(topic)
        who.end(commit=commit, version=END_VERSION_2)
        given(run, f"commit {commit} of version 2", who)


# AddPartitionsToTxn


def add(run: Run, label: str, who: Transactor, *topics: tuple[str, list[int]], **fields: Any) -> None:
    run.ask(label, add_body(who, *topics, **fields))


def add_partitions(run: Run) -> None:
    who, first, second = transactor(run), ledger(run, "a", partitions=3), ledger(run, "b")
    add(run, "one", who, (first.name, [0]))
    add(run, "the same and others", who, (first.name, [0, 2]), (second.name, [0]))
    add(run, "twice in a request", who, (first.name, [1, 1]))
    add(run, "nothing new", who, (first.name, [0, 1, 2]))
    add(run, "no partitions", who, (first.name, []))
    add(run, "no topics", who)
    run.ask("described", {"transactional_ids": [who.name]}, api="describe_transactions", version=0)


def add_unknown_partitions(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    add(run, "unknown topic", who, (missing(run).name, [0]), (topic.name, [0]))
    add(run, "unknown partition", who, (topic.name, [0, 7]))
    add(run, "negative partition", who, (topic.name, [-1]))
    run.record("state", {"state": state_of(run, who.name)})


def add_by_others(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.init()
    part = (topic.name, [0])
    add(run, "another id", who, part, producer_id=FOREIGN_ID)
    add(run, "epoch before", who, part, producer_epoch=who.epoch - 1)
    add(run, "epoch ahead", who, part, producer_epoch=who.epoch + 1)
    add(run, "no epoch", who, part, producer_epoch=-1)
    add(run, "unknown name", who, part, transactional_id=run.name("nobody"))
    add(run, "empty name", who, part, transactional_id="")
    add(run, "right", who, part)
    add(run, "epoch before, while open", who, part, producer_epoch=who.epoch - 1)


def add_after_the_end(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    who.end(commit=True)
    add(run, "after a commit", who, (topic.name, [0]))
    who.end(commit=False)
    add(run, "after an abort", who, (topic.name, [0]))
    who.end(commit=False, version=END_VERSION_2)
    add(run, "with the raised epoch", who, (topic.name, [0]))
    add(run, "with the epoch before", who, (topic.name, [0]), producer_epoch=who.epoch - 1)


def verify(run: Run) -> None:
    """A broker verifies that a partition is in a transaction."""
    who, topic = transactor(run), ledger(run, partitions=2)
    add(run, "before", who, (topic.name, [0]), verify_only=True)
    who.add(topic, 0)
    add(run, "one of two", who, (topic.name, [0, 1]), verify_only=True)
    add(run, "it", who, (topic.name, [0]), verify_only=True)
    add(run, "the other", who, (topic.name, [1]), verify_only=True)
    add(run, "another id", who, (topic.name, [0]), verify_only=True, producer_id=FOREIGN_ID)
    add(run, "epoch ahead", who, (topic.name, [0]), verify_only=True, producer_epoch=who.epoch + 1)
    add(run, "unknown name", who, (topic.name, [0]), verify_only=True, transactional_id=run.name("nobody"))
    who.end(commit=True)
    add(run, "after the end", who, (topic.name, [0]), verify_only=True)


def add_for_many(run: Run) -> None:
    first, second, topic = transactor(run, "x"), transactor(run, "y"), ledger(run, partitions=2)
    both = [
        first.who(topics=[{"name": topic.name, "partitions": [0]}], verify_only=False),
        second.who(topics=[{"name": topic.name, "partitions": [1]}], verify_only=True),
    ]
    run.ask("one added, one verified", {"transactions": both})
    run.ask("one of them wrong", {"transactions": [both[0], both[1] | {"producer_id": FOREIGN_ID}]})


# EndTxn


def end(run: Run, label: str, who: Transactor, *, commit: bool = True, **fields: Any) -> dict[str, Any]:
    response = run.ask(label, who.who(committed=commit) | fields)
    if response.get("error_code") == "none":
        who.settle()
    return response


def end_a_transaction(run: Run) -> None:
    topic = ledger(run, partitions=2)
    for commit in (True, False):
        who = transactor(run, f"commit {commit}".replace(" ", "-"))
        who.wrote(topic, b"a", b"b", partitions=(0, 1))
        who.took(end(run, f"commit {commit}", who, commit=commit))
        committed_log(run, f"log after commit {commit}", topic)


def end_without_a_transaction(run: Run) -> None:
    for commit in (True, False):
        who = transactor(run, f"x-{commit}")
        end(run, f"commit {commit}", who, commit=commit)
        run.record(f"state after commit {commit}", {"state": state_of(run, who.name)})


def end_again(run: Run) -> None:
    topic = ledger(run)
    for commit in (True, False):
        who = transactor(run, f"x-{commit}")
        who.wrote(topic)
        end(run, f"commit {commit}", who, commit=commit)
        end(run, f"commit {commit}, the same again", who, commit=commit)
        end(run, f"commit {commit}, then the other", who, commit=not commit)


def end_again_with_the_raised_epoch(run: Run) -> None:
    topic = ledger(run)
    for commit in (True, False):
        who = transactor(run, f"x-{commit}")
        who.wrote(topic)
        before = who.epoch
        who.took(end(run, f"commit {commit}", who, commit=commit))
        end(run, f"commit {commit}, then commit", who, commit=True)
        end(run, f"commit {commit}, then abort", who, commit=False)
        end(run, f"commit {commit}, then with the first epoch", who, commit=commit, producer_epoch=before)


def end_by_others(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.init()
    who.wrote(topic)
    for commit in (True, False):
        end(run, f"another id, {commit}", who, commit=commit, producer_id=FOREIGN_ID)
        end(run, f"epoch before, {commit}", who, commit=commit, producer_epoch=who.epoch - 1)
        end(run, f"epoch ahead, {commit}", who, commit=commit, producer_epoch=who.epoch + 1)
        end(run, f"unknown name, {commit}", who, commit=commit, transactional_id=run.name("nobody"))
        end(run, f"empty name, {commit}", who, commit=commit, transactional_id="")
    end(run, "right", who)


def end_with_offsets_alone(run: Run) -> None:
    who = transactor(run)
    response = run.do("add_offsets_to_txn", 4, who.who(group_id=run.name("g")))
    assert response["error_code"] == "none", response
    end(run, "response", who)


def timeout_of_a_transaction(run: Run) -> None:
    """The coordinator aborts the transaction and fences its producer."""
    who, topic = transactor(run, ready=False), ledger(run)
    who.took(run.do(*INIT, init_body(who.name, transaction_timeout=200)))
    who.wrote(topic)
    run.until("the transaction aborted", lambda: state_of(run, who.name) == "CompleteAbort")
    end(run, "commit", who)
    end(run, "abort", who, commit=False)
    run.ask("more records", who.produce_body(topic, b"late"), api="produce", version=11)
    run.ask("more partitions", add_body(who, (topic.name, [0])), api="add_partitions_to_txn", version=3)
    committed_log(run, "log", topic)
    mine = {"producer_id": who.producer_id, "producer_epoch": who.epoch}
    run.ask("with its epoch", init_body(who.name, **mine), api="init_producer_id", version=5)
    run.ask("once again", init_body(who.name), api="init_producer_id", version=5)


SCENARIOS = (
    *scenarios(
        "transactions",
        "init_producer_id",
        (
            init_new,
            init_timeouts,
            init_without_a_name,
            init_while_a_transaction_is_open,
            init_after_transactions,
        ),
    ),
    *scenarios(
        "transactions",
        "init_producer_id",
        (
            init_with_its_own_id,
            init_of_an_unknown_with_an_id,
            init_at_the_last_epoch,
            init_with_its_own_while_a_transaction_is_open,
        ),
        versions=range(3, 6),
    ),
    *scenarios(
        "transactions",
        "add_partitions_to_txn",
        (add_partitions, add_unknown_partitions, add_by_others, add_after_the_end),
    ),
    *scenarios("transactions", "add_partitions_to_txn", (verify, add_for_many), versions=range(4, 6)),
    *scenarios(
        "transactions",
        "end_txn",
        (
            end_a_transaction,
            end_without_a_transaction,
            end_again,
            end_by_others,
            end_with_offsets_alone,
            timeout_of_a_transaction,
        ),
    ),
    *scenarios("transactions", "end_txn", (end_again_with_the_raised_epoch,), versions=range(5, 6)),
)
