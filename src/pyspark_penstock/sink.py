"""How a batch becomes part of its topics, all of it or nothing, once.

Tasks write, each in a transaction of its own, and leave it open. The driver asks whether all of them are still open,
notes in the ledger that the batch is in, and then commits them; a crash after the note is made good by whoever runs
next, a crash before it leaves nothing. docs/adr/0009-spark-sink.md has the whole of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from penstock.model.errors import BrokerError
from pyspark_penstock.ledger import (
    NO_BATCH,
    Ledger,
    LedgerState,
    SinkError,
    SinkNames,
    Superseded,
    Written,
    claim,
    decide,
    partly_in,
    void,
)
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.rows import ArrowBatch, fingerprint, record_columns
from pyspark_penstock.txn_calls import (
    Producer,
    abort_open,
    abort_quietly,
    add_partitions,
    commit_all,
    init_producer,
    open_transactions,
)
from pyspark_penstock.txn_writer import TxnWriter
from pyspark_penstock.write_options import AT_LEAST_ONCE, BEGIN, WriteOptions

CLAIM_PAUSE_SECONDS = 0.05
CLAIM_PAUSES = 6
"""How long tasks leave it to the first of them to take over from an earlier run; more than one would fence another."""
FRESH_GENERATION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which batch of which sink, and in which run of its query."""

    sink: str
    batch: int
    run: str
    query: str
    is_fresh: bool = False
    """Nobody has written to this sink before: there is no ledger to look at."""

    @property
    def names(self) -> SinkNames:
        return SinkNames(sink=self.sink)


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver: what it wrote, if anything, and one partition it wrote to."""

    assignment: Assignment
    generation: int
    written: Written | None
    place: tuple[str, int] | None


class _TooLate(Exception):
    """The batch was ended before this attempt of a task began to write."""


def write_task(
    link: BrokerLink, options: WriteOptions, given: Assignment, task: int, attempt: int, rows: Iterable[ArrowBatch]
) -> TaskDone:
    """Write a task's rows in a transaction that stays open; nothing if the batch is in already."""
    state = _taken_over(link, options, given, task)
    nothing = TaskDone(assignment=given, generation=state.generation, written=None, place=None)
    is_lost = state.batch == given.batch and task in state.lost
    if state.batch == given.batch and not is_lost:
        return _drained(rows, nothing)
    name = given.names.transactional_id(state.generation, task, attempt)
    try:
        writer, checksum = _write_rows(
            link, options, name, task, rows, lambda: _check_in_time(link, options, given, state)
        )
    except _TooLate:
        return _drained(rows, nothing)
    if is_lost:
        _check_same(link, state, task, writer, checksum)
    if writer is None:
        return nothing
    written = Written(
        task=task,
        attempt=attempt,
        producer_id=writer.producer.producer_id,
        epoch=writer.producer.epoch,
        rows=writer.rows,
        fingerprint=checksum,
    )
    return TaskDone(assignment=given, generation=state.generation, written=written, place=writer.place)


def _drained(rows: Iterable[ArrowBatch], done: TaskDone) -> TaskDone:
    for _ in rows:
        pass
    return done


def _check_in_time(link: BrokerLink, options: WriteOptions, given: Assignment, seen: LedgerState) -> None:
    """Raise if the batch was ended, or taken over, since the task looked at the ledger.

    Spark lets the Python of an attempt that has lost run on, and the end of its rows looks like any other end: it would
    open a transaction that nobody ends, and readers would wait for it. Whoever ends a batch comes to the ledger first,
    and then aborts what is open. So a transaction that was opened before a look at an unchanged ledger is among those.
    A look before it is opened as well spares it in almost every case: a process that has lost may be killed any moment.
    """
    ledger = Ledger(link, given.names, options.ledger_topic)
    has_ended = ledger.is_touched() if given.is_fresh else ledger.read_settled() != seen
    if has_ended:
        raise _TooLate


def _check_same(link: BrokerLink, state: LedgerState, task: int, writer: TxnWriter | None, checksum: int) -> None:
    """A batch that is partly in can be completed only with the rows that are missing."""
    expected = next((each.rows, each.fingerprint) for each in state.written if each.task == task)
    if (0 if writer is None else writer.rows, checksum) == expected:
        return
    if writer is not None:
        abort_quietly(link, [writer.producer])
    raise partly_in(state.batch, [task])


def _write_rows(
    link: BrokerLink,
    options: WriteOptions,
    name: str | None,
    task: int,
    rows: Iterable[ArrowBatch],
    check: Callable[[], None],
) -> tuple[TxnWriter | None, int]:
    """Write everything and wait until it is in; None where there was no row. What fails is aborted."""
    writer: TxnWriter | None = None
    checksum = 0
    try:
        for batch in rows:
            if not batch.num_rows:
                continue
            if writer is None:
                producer = init_producer(link, name, options.transaction_timeout_ms)
                writer = TxnWriter(link, producer, options, task, check)
            writer.write(record_columns(batch, options.topic, link.clock.now_ms()))
            checksum = fingerprint(batch, checksum)
        if writer is not None:
            writer.flush()
    except BaseException:
        if writer is not None and name is not None:
            _abort_on_the_way_out(options, writer.producer)
        raise
    return writer, checksum


def _abort_on_the_way_out(options: WriteOptions, producer: Producer) -> None:
    """Abort over a new connection: the old one may owe answers. If this fails too, the next run will do it."""
    # The failure that brought us here is the one to be told.
    with suppress(Exception), BrokerLink(options.link) as link:
        abort_quietly(link, [producer])


def write_task_at_least_once(
    link: BrokerLink, options: WriteOptions, given: Assignment, task: int, rows: Iterable[ArrowBatch]
) -> TaskDone:
    """Write a task's rows as soon as they come; a retried task writes them again."""
    _write_rows(link, options, None, task, rows, lambda: None)
    return TaskDone(assignment=given, generation=0, written=None, place=None)


# Taking over from an earlier run


def _taken_over(link: BrokerLink, options: WriteOptions, given: Assignment, task: int) -> LedgerState:
    """The state under which this run may write: the first task of a run takes over from the run before."""
    if given.is_fresh:
        return LedgerState(batch=NO_BATCH, generation=FRESH_GENERATION, run=given.run, query=given.query)
    ledger = Ledger(link, given.names, options.ledger_topic)
    state = ledger.read_settled()
    for _ in range(CLAIM_PAUSES):
        if task == 0 or _is_ours(state, given):
            break
        time.sleep(CLAIM_PAUSE_SECONDS)
        state = ledger.read_settled()
    while state is None or not _is_ours(state, given):
        lost = _finished(link, given, state)
        seen = state

        def change(
            now: LedgerState | None, seen: LedgerState | None = seen, lost: list[int] = lost
        ) -> LedgerState | None:
            if _is_ours(now, given) or now != seen:
                return None
            may_begin = options.ledger_missing == BEGIN
            return claim(now, batch=given.batch, run=given.run, query=given.query, may_begin=may_begin, lost=lost)

        state = ledger.amend(change)
        if _is_ours(state, given):
            assert state is not None, "a ledger of ours"
            _sweep(link, options, given.names, state.generation - 1)
    return state


def _is_ours(state: LedgerState | None, given: Assignment) -> bool:
    return state is not None and state.run == given.run


def _finished(link: BrokerLink, given: Assignment, state: LedgerState | None) -> list[int]:
    """Commit what was decided last; the tasks of this very batch whose transactions are lost.

    That a later batch runs says that the one before it was completed, unless somebody looked away when it failed:
    to commit it again costs little. Producers that have written since are fenced then, which is no loss.
    """
    if state is None or state.query != given.query:
        return []
    lost = list(state.lost)
    if not lost:
        tasks = {given.names.producer(state.written_in, each): each.task for each in state.written}
        lost = sorted(tasks[producer] for producer in commit_all(link, tasks))
    return lost if state.batch == given.batch else []


def _sweep(link: BrokerLink, options: WriteOptions, names: SinkNames, generation_max: int) -> None:
    """Abort what tasks of this and earlier generations have left open: readers wait for it."""
    left = [
        each
        for each in open_transactions(link, names.tasks)
        if (names.generation_of(each) or generation_max + 1) <= generation_max
    ]
    abort_open(link, left, options.transaction_timeout_ms)


# The driver's part


def commit_batch(link: BrokerLink, options: WriteOptions, batch: int, messages: Sequence[TaskDone | None]) -> None:
    """Make a batch part of its topics, or raise and leave nothing of it."""
    done = [each for each in messages if each is not None]
    if not done or options.delivery == AT_LEAST_ONCE:
        return
    given = done[0].assignment
    generation = done[0].generation
    assert given.batch == batch, f"tasks wrote batch {given.batch}, and {batch} is to be committed"
    if any(each.generation != generation for each in done):
        raise Superseded(f"another run of the query took over while batch {batch} was written")
    written = tuple(each.written for each in done if each.written is not None)
    producers = [given.names.producer(generation, each) for each in written]
    ledger = Ledger(link, given.names, options.ledger_topic)
    # One transaction is all or nothing by itself; a sink that has no ledger yet needs none for it.
    needs_ledger = not given.is_fresh or len(producers) > 1
    _check_open(link, options, given, done)
    if needs_ledger:
        ledger.amend(lambda state: _decided(state, given, generation, written))
    else:
        ledger.touch()
    _commit_or_raise(link, given, producers)
    _sweep(link, options, given.names, generation)
    if given.is_fresh and needs_ledger:
        ledger.forget()


def _decided(
    state: LedgerState | None, given: Assignment, generation: int, written: tuple[Written, ...]
) -> LedgerState:
    if state is None and given.is_fresh:
        state = LedgerState(batch=NO_BATCH, generation=generation, run=given.run, query=given.query)
    return decide(state, batch=given.batch, generation=generation, query=given.query, written=written)


def _check_open(link: BrokerLink, options: WriteOptions, given: Assignment, done: Sequence[TaskDone]) -> None:
    """Raise if a transaction that is about to be decided is open no more."""
    for each in done:
        if each.written is None or each.place is None:
            continue
        topic, partition = each.place
        try:
            add_partitions(link, given.names.producer(each.generation, each.written), {topic: [partition]})
        except BrokerError as error:
            raise SinkError(
                f"the transaction of task {each.written.task} in batch {given.batch} is gone ({error}): it was open for"
                f" longer than kafka.transaction.timeout.ms ({options.transaction_timeout_ms}), or another run of the"
                " query took over"
            ) from error


def _commit_or_raise(link: BrokerLink, given: Assignment, producers: Sequence[Producer]) -> None:
    lost = commit_all(link, producers)
    if lost:
        raise SinkError(
            f"batch {given.batch} is decided, and {len(lost)} of its {len(producers)} transactions were aborted by"
            " their coordinator before they could be committed: the query writes them again when it is started again"
        )


def abort_batch(link: BrokerLink, options: WriteOptions, batch: int, messages: Sequence[TaskDone | None]) -> None:
    """Leave nothing of a batch that failed, unless it is decided: then it is in, and the next run completes it."""
    done = [each for each in messages if each is not None]
    if not done or options.delivery == AT_LEAST_ONCE:
        return
    given = done[0].assignment
    ledger = Ledger(link, given.names, options.ledger_topic)
    generation = max(each.generation for each in done)
    state = ledger.amend(lambda state: void(state, batch=batch, generation=generation))
    if state is not None and state.batch >= batch and not state.lost:
        return
    # What tasks have told of, and what those have left that were killed before they could tell.
    abort_quietly(
        link, [given.names.producer(each.generation, each.written) for each in done if each.written is not None]
    )
    _sweep(link, options, given.names, generation)
