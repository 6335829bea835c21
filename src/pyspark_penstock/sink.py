"""Commits a batch to its topics exactly once, all of it or nothing.

Tasks write, each in a transaction of its own, and leave it open. The driver checks that all of them are still open,
records in the sink's state that the batch is decided, commits them, and records that the batch is complete. After a
crash that follows the decision the next run completes the batch; a crash before it leaves nothing.
docs/adr/0009-spark-sink.md explains it, `sink_state` has the rules.
"""

from __future__ import annotations

import time
import warnings
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from penstock.model.errors import BrokerError
from penstock.wire.column_batches import sum_of_hashes
from pyspark_penstock.batch_identity import BatchOffsets
from pyspark_penstock.link import BrokerLink, LinkDown
from pyspark_penstock.rows import ArrowBatch, RecordColumns, record_columns
from pyspark_penstock.sink_state import (
    HASH_END,
    Claim,
    Content,
    Decided,
    Outcome,
    SinkError,
    SinkNames,
    SinkState,
    Written,
    claim,
    decide,
    partly_in,
    superseded,
    void,
)
from pyspark_penstock.sink_store import TASK_HASH_END, TASKS_MAX, SinkStore, too_many_tasks
from pyspark_penstock.slots import open_in_free_slot
from pyspark_penstock.txn_calls import (
    REPLACED,
    Described,
    Producer,
    abort_open,
    abort_quietly,
    commit_all,
    described,
    init_producer,
    open_transactions,
)
from pyspark_penstock.txn_writer import OpenTransaction, TxnWriter
from pyspark_penstock.write_options import AT_LEAST_ONCE, BEGIN, WriteOptions

CLAIM_PAUSE_SECONDS = 0.01
CLAIM_PAUSES = 30
"""How long tasks wait for the first of them to take over from an earlier run; several would fence each other."""
FRESH_GENERATION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBatch:
    """The batch of a sink that a task writes, and the run of its query."""

    sink: str
    batch: int
    run: str
    """The writer: a run of a streaming query, or one write of a table."""
    query: str
    query_run: str = ""
    """The run of the query that writes the batch; empty if it is not known."""
    checkpoint: str = ""
    """The query's checkpoint; empty if it is not known."""
    is_fresh: bool = False
    """The sink is new and has no state."""

    @property
    def names(self) -> SinkNames:
        return SinkNames(sink=self.sink)


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """A task's message to the driver: its transaction, if any, and the content of its rows, written or not."""

    sink_batch: SinkBatch
    generation: int
    written: Written | None = None
    content: Content = field(default_factory=Content)
    is_late: bool = False
    """The batch ended while the task ran, so its content is incomplete."""


class _TooLate(Exception):
    """The batch ended before this attempt of a task began to write."""


def write_task(
    link: BrokerLink, options: WriteOptions, given: SinkBatch, task: int, attempt: int, rows: Iterable[ArrowBatch]
) -> TaskDone:
    """Write a task's rows in a transaction that stays open; write nothing if the sink has a batch of this number."""
    if task >= TASKS_MAX:
        raise too_many_tasks(task + 1)
    state = _claimed(link, options, given, task)
    if state.batch > given.batch:
        # A late attempt of an earlier batch: its transaction would stay open.
        for _ in rows:
            pass
        return TaskDone(given, state.generation, is_late=True)
    is_lost = state.batch == given.batch and task in state.lost
    if state.batch == given.batch and not is_lost:
        # The driver finds out whether it is this batch, from the content of all tasks.
        content = Content()
        for batch in rows:
            content = content.plus(_content_of(_columns(options, batch, link.clock.now_ms())))
        return TaskDone(given, state.generation, content=content)
    slot = attempt

    def open_transaction(partitions: Mapping[str, Sequence[int]]) -> Producer:
        nonlocal slot
        slot, producer = open_in_free_slot(
            link,
            lambda slot: given.names.transactional_id(state.generation, task, slot),
            attempt,
            partitions,
            options.transaction_timeout_ms,
            lambda looked: _check_in_time(link, options, given, state, looked),
            # A driver that ends a batch write uses this id first, so one request checks both.
            [given.names.ledger] if given.is_fresh else [],
        )
        try:
            _check_in_time(link, options, given, state)
        except BaseException:
            _abort_after_failure(options, producer)
            raise
        return producer

    try:
        producer, content = _write_rows(link, options, task, rows, open_transaction)
    except _TooLate:
        for _ in rows:
            pass
        return TaskDone(given, state.generation, is_late=True)
    except REPLACED as error:
        raise _fenced_error(options, given, state.generation, task, str(error)) from error
    if is_lost:
        _check_same(link, state, task, producer, content)
    if producer is None:
        return TaskDone(given, state.generation)
    written = Written(task=task, slot=slot, producer_id=producer.producer_id, epoch=producer.epoch, content=content)
    return TaskDone(given, state.generation, written=written, content=content)


def _check_in_time(
    link: BrokerLink,
    options: WriteOptions,
    given: SinkBatch,
    seen: SinkState,
    looked: Mapping[str, Described] | None = None,
) -> None:
    """Raise if the batch was ended, or taken over, since the task read the sink's state.

    Spark lets the Python process of an attempt that has lost run on, and the end of its rows looks like any other end:
    it would open a transaction that no driver ends, and readers would wait for it. A driver that ends a batch changes
    the state first, and then aborts the open transactions. So it also aborts a transaction that was opened before the
    task read an unchanged state. Reading the state before the transaction is opened as well avoids it in almost every
    case: a process that has lost may be killed at any moment.
    """
    store = SinkStore(link, given.names, options.ledger_topic)
    if given.is_fresh:
        has_ended = store.is_touched() if looked is None else given.names.ledger in looked
    else:
        now = store.read_settled()
        has_ended = now is None or now.stamp != seen.stamp
    if has_ended:
        raise _TooLate


def _fenced_error(options: WriteOptions, given: SinkBatch, generation: int, task: int, found: str) -> SinkError:
    """Why a producer was fenced: another run, a timeout, or another attempt of the same task."""
    state = None
    if not given.is_fresh:
        # Over a new connection: the old one may have pending responses.
        with BrokerLink(options.link) as link:
            state = SinkStore(link, given.names, options.ledger_topic).read()
    if state is not None and state.generation != generation:
        return superseded(given.batch)
    return SinkError(
        f"the transaction of task {task} in batch {given.batch} is gone ({found}): it was open for longer than"
        f" kafka.transaction.timeout.ms ({options.transaction_timeout_ms}), or a second attempt of the task took its"
        " transactional id while it was being opened. Nothing of this batch is committed; run it again"
    )


def _check_same(link: BrokerLink, state: SinkState, task: int, producer: Producer | None, content: Content) -> None:
    """Raise unless these are the missing rows of a partly committed batch."""
    assert state.decided is not None, "lost transactions without a batch"
    known = next((each.content for each in state.decided.written if each.task == task), None)
    if known is not None and (known.rows, known.hashes) == (content.rows, content.hashes % TASK_HASH_END):
        return
    if producer is not None:
        abort_quietly(link, [producer])
    raise partly_in(state.batch, [task])


def _columns(options: WriteOptions, batch: ArrowBatch, now_ms: int) -> RecordColumns:
    return record_columns(batch, options.topic, now_ms, options.timestamp_column)


def _content_of(columns: RecordColumns) -> Content:
    seeds = array("Q", [zlib.crc32(topic.encode()) for topic in columns.topics] or [0])
    return Content(columns.rows, sum_of_hashes(columns.keys, columns.values, columns.topic_of, seeds) % HASH_END)


def _write_rows(
    link: BrokerLink, options: WriteOptions, task: int, rows: Iterable[ArrowBatch], open_with: OpenTransaction
) -> tuple[Producer | None, Content]:
    """Write all rows and wait until they are acknowledged; no producer without rows. A failed transaction is
    aborted."""
    writer = TxnWriter(link, options, task, open_with)
    content = Content()
    try:
        for batch in rows:
            if not batch.num_rows:
                continue
            columns = _columns(options, batch, link.clock.now_ms())
            # Before the writer, which replaces the requested partitions by the chosen ones.
            content = content.plus(_content_of(columns))
            writer.write(columns)
        writer.flush()
    except BaseException:
        if writer.producer is not None and writer.producer.transactional_id is not None:
            _abort_after_failure(options, writer.producer)
        raise
    return writer.producer, content


def _abort_after_failure(options: WriteOptions, producer: Producer) -> None:
    """Abort over a new connection: the old one may have pending responses. If this fails, the next run aborts."""
    # The original failure is the one to report.
    with suppress(Exception), BrokerLink(options.link) as link:
        abort_quietly(link, [producer])


def write_task_at_least_once(
    link: BrokerLink, options: WriteOptions, given: SinkBatch, task: int, rows: Iterable[ArrowBatch]
) -> TaskDone:
    """Write a task's rows without a transaction; a retried task writes them again."""
    _write_rows(link, options, task, rows, lambda _: init_producer(link, None, options.transaction_timeout_ms))
    return TaskDone(given, 0)


# Taking over from an earlier run


def _claimed(link: BrokerLink, options: WriteOptions, given: SinkBatch, task: int) -> SinkState:
    """The state under which this run may write; the first task of a run claims the sink.

    A run that finds the state of another first completes the batch decided there, then claims, then aborts the open
    transactions of earlier generations. Of several tasks that claim at once one wins; the others find its claim, which
    is their own run's.
    """
    if given.is_fresh:
        return SinkState(generation=FRESH_GENERATION, run=given.run, query=given.query)
    store = SinkStore(link, given.names, options.ledger_topic)
    state = store.read_settled()
    for _ in range(CLAIM_PAUSES):
        if task == 0 or _is_ours(state, given) or _is_replay(state, given):
            break
        time.sleep(CLAIM_PAUSE_SECONDS)
        state = store.read_settled()
    by = Claim(
        batch=given.batch,
        run=given.run,
        query=given.query,
        sink=given.sink,
        may_begin=options.ledger_missing == BEGIN,
        resolution=options.resolution,
    )
    while state is None or not (_is_ours(state, given) or _is_replay(state, given)):
        state = store.update(_claiming(by, state, _outcome(link, given.names, by, state)))
        if state is not None and _is_ours(state, given):
            _sweep(link, options, given.names, state.generation - 1)
    return state


def _claiming(by: Claim, seen: SinkState | None, outcome: Outcome) -> Callable[[SinkState | None], SinkState | None]:
    """Claim the state that was read; no change if it has changed since, or this run has claimed it."""

    def change(now: SinkState | None) -> SinkState | None:
        if now is not None and now.run == by.run:
            return None
        return claim(now, by, outcome) if now == seen else None

    return change


def _is_ours(state: SinkState | None, given: SinkBatch) -> bool:
    return state is not None and state.run == given.run


def _is_replay(state: SinkState | None, given: SinkBatch) -> bool:
    """Whether this run of the query has completed the batch; then the sink is not claimed.

    A late attempt would take the sink from the next batch: in foreachBatch each write is a run.
    """
    decided = None if state is None else state.decided
    if decided is None or not (decided.is_complete and given.query_run):
        return False
    return (decided.batch, decided.run) == (given.batch, given.query_run)


def _outcome(link: BrokerLink, names: SinkNames, by: Claim, state: SinkState | None) -> Outcome:
    """Commit the last decided batch, unless it is known to be complete, and return the outcome."""
    if state is None or state.decided is None or state.decided.is_complete:
        return Outcome()
    if state.lost:
        return Outcome(lost=state.lost)
    decided = state.decided
    tasks = {names.producer(decided.generation, each): each.task for each in decided.written}
    commits = commit_all(link, list(tasks))
    if decided.is_complete is None and decided.batch < by.batch:
        # States of the first version have no such note. If Spark runs a later batch, this one was completed.
        return Outcome()
    return Outcome(
        lost=tuple(tasks[each] for each in commits.lost), unknown=tuple(tasks[each] for each in commits.unknown)
    )


def _sweep(link: BrokerLink, options: WriteOptions, names: SinkNames, generation_max: int) -> None:
    """Abort the open transactions of this and earlier generations: readers wait for them."""
    left = [
        each
        for each in open_transactions(link, names.tasks)
        if (names.generation_of(each) or generation_max + 1) <= generation_max
    ]
    abort_open(link, left, options.transaction_timeout_ms)


# The driver's part


def commit_batch(
    link: BrokerLink,
    options: WriteOptions,
    batch: int,
    messages: Sequence[TaskDone | None],
    offsets: BatchOffsets | None = None,
) -> None:
    """Commit a batch to its topics, or raise and leave nothing of it."""
    done = [each for each in messages if each is not None]
    if not done or options.delivery == AT_LEAST_ONCE:
        return
    given = done[0].sink_batch
    generation = done[0].generation
    assert given.batch == batch, f"tasks wrote batch {given.batch}, and {batch} is to be committed"
    if any(each.generation != generation or each.is_late for each in done):
        raise superseded(batch)
    new = _new_batch(options, done, offsets)
    producers = [given.names.producer(generation, each) for each in new.written]
    store = SinkStore(link, given.names, options.ledger_topic)
    # A single transaction is atomic by itself; a sink without a state needs none for it.
    needs_state = not given.is_fresh or len(producers) > 1
    _check_open(link, options, given, generation, new.written)
    try:
        if needs_state:
            store.update(lambda state: _decided(state, given, generation, new, options))
        else:
            store.touch()
        _commit_or_raise(link, given, producers)
    except (BrokerError, LinkDown) as error:
        if given.is_fresh and (isinstance(error, LinkDown) or error.retriable):
            raise _outcome_unclear(new, error) from error
        raise
    if not given.is_fresh and producers:
        store.note_complete(batch, generation)
    try:
        # The generation of a replay may be writing the next batch.
        _sweep(link, options, given.names, generation if producers else generation - 1)
        if given.is_fresh and needs_state:
            store.forget()
    except (BrokerError, LinkDown) as error:
        # The batch is committed: a failure here would cause the table to be written again.
        warnings.warn(
            f"batch {batch} is committed, and cleaning up after it failed: {error}", UserWarning, stacklevel=2
        )


def _new_batch(options: WriteOptions, done: Sequence[TaskDone], offsets: BatchOffsets | None) -> Decided:
    content = Content()
    for each in done:
        content = content.plus(each.content)
    given = done[0].sink_batch
    return Decided(
        batch=given.batch,
        generation=done[0].generation,
        written=tuple(each.written for each in done if each.written is not None),
        content=content,
        offsets=offsets,
        output=f"topic {options.topic}" if options.topic is not None else "the topics of the column",
        run=given.query_run,
        is_complete=not any(each.written for each in done),
    )


def _decided(
    state: SinkState | None, given: SinkBatch, generation: int, new: Decided, options: WriteOptions
) -> SinkState:
    if state is None and given.is_fresh:
        state = SinkState(generation=generation, run=given.run, query=given.query)
    return decide(state, generation, new, options.resolution)


def _check_open(
    link: BrokerLink, options: WriteOptions, given: SinkBatch, generation: int, written: Sequence[Written]
) -> None:
    """Raise if a transaction that is about to be decided is no longer open."""
    producers = {given.names.producer(generation, each): each for each in written}
    found = described(link, [each.transactional_id or "" for each in producers])
    for producer, each in producers.items():
        now = found.get(producer.transactional_id or "")
        if now is None or not now.is_open or (now.producer_id, now.epoch) != (producer.producer_id, producer.epoch):
            what = "the brokers do not know it" if now is None else f"it is {now.state} in epoch {now.epoch}"
            raise _fenced_error(options, given, generation, each.task, what)


def _outcome_unclear(new: Decided, error: Exception) -> SinkError:
    """The error for a batch write whose commit got no response: a retry may duplicate it."""
    return SinkError(
        f"the brokers did not respond when {new.described()} were to be committed ({error}): whether they are committed"
        " is unknown. Once the brokers respond, run python -m pyspark_penstock.finish, which completes the write if it"
        " was decided, and check the topics before you write the table again. With the options sinkId and batchId a"
        " table is written once, however often it is tried"
    )


def _commit_or_raise(link: BrokerLink, given: SinkBatch, producers: Sequence[Producer]) -> None:
    commits = commit_all(link, producers)
    lost = [*commits.lost, *commits.unknown]
    if lost and given.is_fresh and len(producers) == 1:
        raise SinkError(
            "the transaction of the table was aborted by its coordinator before it could be committed"
            " (kafka.transaction.timeout.ms): nothing of it is committed, write it again"
        )
    if lost:
        then = (
            "the table is partly committed, and python -m pyspark_penstock.finish lists it until --forget"
            if given.is_fresh
            else "the query writes them again when it is started again"
        )
        raise SinkError(
            f"batch {given.batch} is decided, and {len(lost)} of its {len(producers)} transactions were aborted by"
            f" their coordinator before they could be committed: {then}"
        )


def abort_batch(link: BrokerLink, options: WriteOptions, batch: int, messages: Sequence[TaskDone | None]) -> None:
    """Abort a failed batch, unless it is decided: then the next run completes it."""
    done = [each for each in messages if each is not None]
    if not done or options.delivery == AT_LEAST_ONCE:
        return
    given = done[0].sink_batch
    store = SinkStore(link, given.names, options.ledger_topic)
    generation = max(each.generation for each in done)
    state = store.update(lambda state: void(state, batch, generation))
    if state is not None and state.batch >= batch and not state.lost:
        return
    # Transactions that tasks have reported, and those of tasks that were killed before they could.
    abort_quietly(
        link, [given.names.producer(each.generation, each.written) for each in done if each.written is not None]
    )
    _sweep(link, options, given.names, generation)
