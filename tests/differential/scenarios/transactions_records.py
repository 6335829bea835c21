"""Produce, Fetch and ListOffsets with transactions: verification of writes, the log, and isolation of readers."""

from __future__ import annotations

from differential.batches import CONTROL, TRANSACTIONAL, batch
from differential.requests import fetch_body, fetch_partition, fetch_topic, list_offsets_body, produce_body
from differential.script import Run, Topic, scenarios
from differential.transactions import (
    END_VERSION_2,
    PRODUCE_VERSION_2,
    READ_COMMITTED,
    committed_log,
    ledger,
    state_of,
    transactor,
)

from .produce import look

FOREIGN_ID = 987_654_321
ISOLATION_VERSION = 4


def write_to_added_partitions(run: Run) -> None:
    who, topic = transactor(run), ledger(run, partitions=2)
    who.add(topic, 0, 1)
    run.ask("first", who.produce_body(topic, b"a", b"b"))
    run.ask("second", who.produce_body(topic, b"c"))
    run.ask("both partitions", who.produce_body(topic, b"d", partitions=(0, 1)))
    look(run, topic)
    committed_log(run, "committed while open", topic)
    who.end(commit=True)
    committed_log(run, "committed", topic)


def write_to_partitions_not_added(run: Run) -> None:
    """Versions whose clients add partitions themselves are refused; later ones add them by writing."""
    who, topic = transactor(run), ledger(run, partitions=2)
    run.ask("response", who.produce_body(topic, b"a"))
    run.record("state", {"state": state_of(run, who.name)})
    who.sequences.clear()
    who.add(topic, 1)
    run.ask("one of two", who.produce_body(topic, b"a", partitions=(0, 1)))
    look(run, topic)


def write_by_others(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.init()
    who.add(topic)
    run.tokens.producer_id(FOREIGN_ID)
    run.ask("another id", who.produce_body(topic, b"a", producer_id=FOREIGN_ID, base_sequence=0))
    run.ask("epoch before", who.produce_body(topic, b"a", producer_epoch=who.epoch - 1, base_sequence=0))
    run.ask("epoch ahead", who.produce_body(topic, b"a", producer_epoch=who.epoch + 1, base_sequence=0))
    unknown = {"transactional_id": run.name("nobody")}
    run.ask("unknown name", who.produce_body(topic, b"a", base_sequence=0) | unknown)
    run.ask("right", who.produce_body(topic, b"a", base_sequence=0))
    look(run, topic)


def write_after_the_end(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    who.end(commit=True)
    run.ask("after a commit", who.produce_body(topic, b"late"))
    committed_log(run, "log", topic)


def write_after_the_end_with_the_raised_epoch(run: Run) -> None:
    """The epoch of the previous transaction is refused; the bumped one begins the next."""
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    before = who.epoch
    who.end(commit=True, version=END_VERSION_2)
    run.ask("with the epoch before", who.produce_body(topic, b"late", producer_epoch=before, base_sequence=1))
    run.ask("with the raised epoch", who.produce_body(topic, b"next", base_sequence=0))
    run.record("state", {"state": state_of(run, who.name)})
    committed_log(run, "log", topic)


def write_batches_that_do_not_fit(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.add(topic)
    run.ask("not transactional", who.produce_body(topic, b"a", attributes=0, base_sequence=0))
    run.ask("control", who.produce_body(topic, b"a", attributes=TRANSACTIONAL | CONTROL, base_sequence=0))
    run.ask("no sequence", who.produce_body(topic, b"a", base_sequence=-1))
    without_name = produce_body(topic, who.records(topic, b"a", base_sequence=0))
    run.ask("no transactional id", without_name)
    run.ask("empty transactional id", without_name | {"transactional_id": ""})
    plain = produce_body(topic, batch(b"a")) | {"transactional_id": who.name}
    run.ask("no producer", plain)
    look(run, topic)


def write_a_transactional_batch_without_a_producer(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.add(topic)
    plain = batch(b"a", attributes=TRANSACTIONAL)
    run.ask("response", produce_body(topic, plain) | {"transactional_id": who.name})
    look(run, topic)


def write_outside_while_open(run: Run) -> None:
    """Records outside of the open transaction are not stable before it ends; nor are those of other transactions."""
    who, other, topic = transactor(run, "x"), transactor(run, "y"), ledger(run)
    who.wrote(topic, b"x")
    run.ask("plain", produce_body(topic, batch(b"plain")))
    other.wrote(topic, b"y")
    other.end(commit=True)
    committed_log(run, "while x is open", topic)
    who.end(commit=False)
    committed_log(run, "after x was aborted", topic)


def plain_batch_of_a_producer_in_a_transaction(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    run.ask("response", produce_body(topic, who.records(topic, b"plain", attributes=0)))
    look(run, topic)


def sequences_of_transactions(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    who.add(topic)
    run.ask("not from zero", who.produce_body(topic, b"a", base_sequence=5))
    run.ask("from zero", who.produce_body(topic, b"a", base_sequence=0))
    run.ask("again", who.produce_body(topic, b"a", base_sequence=0))
    run.ask("gap", who.produce_body(topic, b"a", base_sequence=3))
    look(run, topic)


# Fetch and ListOffsets


def three_transactions(run: Run) -> Topic:
    """Offsets: x aborted at 0-1, y committed at 2, plain at 3, markers at 4 and 5, x open from 6."""
    who, other, topic = transactor(run, "x"), transactor(run, "y"), ledger(run)
    who.wrote(topic, b"x1", b"x2")
    other.wrote(topic, b"y1")
    run.do("produce", 9, produce_body(topic, batch(b"plain")))
    other.end(commit=True)
    who.end(commit=False)
    who.wrote(topic, b"x3")
    return topic


def fetch_with_isolation(run: Run) -> None:
    topic = three_transactions(run)
    for isolation in (0, READ_COMMITTED):
        for offset in (0, 1, 2, 5, 6, 7):
            body = fetch_body(fetch_topic(topic, fetch_partition(offset)), isolation_level=isolation)
            run.ask(f"isolation {isolation} from {offset}", body)


def list_offsets_with_isolation(run: Run) -> None:
    topic = three_transactions(run)
    for isolation in (0, READ_COMMITTED):
        for timestamp in (-1, -2):
            run.ask(
                f"isolation {isolation} at {timestamp}",
                list_offsets_body(topic, (0, timestamp), isolation=isolation),
            )


def many_aborted(run: Run) -> None:
    """The list of aborted transactions is that of the batches in the response."""
    topic = ledger(run)
    names = [transactor(run, f"x{index}") for index in range(4)]
    for who in names:
        who.wrote(topic, who.name[-2:].encode())
    for index, who in enumerate(names):
        who.end(commit=index == 2)
    for offset in (0, 2, 3, 4, 6):
        partition = fetch_partition(offset)
        run.ask(f"from {offset}", fetch_body(fetch_topic(topic, partition), isolation_level=READ_COMMITTED))


PRODUCE = (
    write_to_added_partitions,
    write_to_partitions_not_added,
    write_by_others,
    write_after_the_end,
    write_batches_that_do_not_fit,
    write_a_transactional_batch_without_a_producer,
    write_outside_while_open,
    plain_batch_of_a_producer_in_a_transaction,
    sequences_of_transactions,
)

SCENARIOS = (
    *scenarios("transactions_records", "produce", PRODUCE, versions=range(3, 14)),
    *scenarios(
        "transactions_records",
        "produce",
        (write_after_the_end_with_the_raised_epoch,),
        versions=range(PRODUCE_VERSION_2 - 1, 14),
    ),
    *scenarios(
        "transactions_records", "fetch", (fetch_with_isolation, many_aborted), versions=range(ISOLATION_VERSION, 18)
    ),
    *scenarios("transactions_records", "list_offsets", (list_offsets_with_isolation,), versions=range(2, 12)),
)
