"""Spark's side of the sink: a writer that Spark sends to its tasks, and asks to commit or abort on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.model.clock import SystemChance
from pyspark_penstock.finish import finish
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.rows import ArrowBatch, check_schema
from pyspark_penstock.sink import (
    Assignment,
    TaskDone,
    abort_batch,
    commit_batch,
    write_task,
    write_task_at_least_once,
)
from pyspark_penstock.write_options import AT_LEAST_ONCE, BATCH_SINK_PREFIX, STREAM_SINK_PREFIX, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[ArrowBatch]) -> WriterCommitMessage:
        """In a task."""
        context = task_context()
        query = local_property(context, QUERY_ID)
        given = Assignment(
            sink=self._options.sink_id or f"{STREAM_SINK_PREFIX}{query}",
            batch=int(local_property(context, BATCH_ID)),
            run=local_property(context, RUN_ID),
            query=query,
        )
        return written_by_task(self._options, given, context, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when every task has written."""
        with BrokerLink(self._options.link) as link:
            commit_batch(link, self._options, batchId, checked(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task or the commit has failed."""
        with BrokerLink(self._options.link) as link:
            abort_batch(link, self._options, batchId, checked(messages))


class BatchSink(DataSourceArrowWriter):
    """Writes one table, all of it or nothing.

    With the options ``sinkId`` and ``batchId`` it is written once, however often it is tried: for ``foreachBatch``.
    """

    def __init__(self, options: WriteOptions, run: str) -> None:
        self._options = options
        named = options.sink_id is not None and options.batch_id is not None
        prefix = BATCH_SINK_PREFIX if options.sink_id is None else f"{options.sink_id}-"
        sink = options.sink_id if named and options.sink_id is not None else f"{prefix}{run}"
        self._given = Assignment(sink=sink, batch=options.batch_id or 0, run=run, query=sink, is_fresh=not named)

    def write(self, iterator: Iterator[ArrowBatch]) -> WriterCommitMessage:
        """In a task."""
        return written_by_task(self._options, self._given, task_context(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when every task has written."""
        with BrokerLink(self._options.link) as link:
            commit_batch(link, self._options, self._given.batch, checked(messages))
            if self._given.is_fresh:
                # Whoever comes next completes what a dead driver has decided.
                finish(link, ledger_topic=self._options.ledger_topic)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or the commit has failed."""
        with BrokerLink(self._options.link) as link:
            abort_batch(link, self._options, self._given.batch, checked(messages))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """The writer of a streaming query; ``overwrite`` is the mode complete, whose rows are written like any others."""
    return StreamSink(checked_options(options, schema))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """The writer of one table."""
    if overwrite:
        raise ValueError(
            "Save mode Overwrite not allowed for penstock. The only allowed save mode is Append:"
            " topics are only added to"
        )
    return BatchSink(checked_options(options, schema), SystemChance().uuid_bytes().hex())


def checked_options(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    """Refuse wrong options and a wrong schema before the first row."""
    checked = WriteOptions.of(options)
    check_schema(schema, checked.topic)
    return checked


def written_by_task(
    options: WriteOptions, given: Assignment, context: TaskContext, rows: Iterator[ArrowBatch]
) -> TaskDone:
    task, attempt = context.partitionId(), context.attemptNumber()
    with BrokerLink(options.link) as link:
        if options.delivery == AT_LEAST_ONCE:
            return write_task_at_least_once(link, options, given, task, rows)
        return write_task(link, options, given, task, attempt, rows)


def task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer writes in tasks"
    return context


def local_property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    assert value, f"Spark has not told the task its {name}"
    return value


def checked(messages: Sequence[Any]) -> list[TaskDone | None]:
    assert all(each is None or isinstance(each, TaskDone) for each in messages), "messages of another writer"
    return list(messages)
