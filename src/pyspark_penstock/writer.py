"""Spark's side of the sink: a writer that Spark sends to its tasks, and asks to commit or abort on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.model.clock import SystemRandomness
from pyspark_penstock.batch_identity import offsets_of_batch
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.finish import finish_after_write
from pyspark_penstock.rows import ArrowBatch, check_schema, encoded_batches
from pyspark_penstock.shared_link import shared_link
from pyspark_penstock.sink import (
    SinkBatch,
    TaskDone,
    abort_batch,
    commit_batch,
    write_task,
    write_task_at_least_once,
)
from pyspark_penstock.spark_internals import (
    BATCH_ID,
    QUERY_ID,
    RUN_ID,
    DataSourceStreamArrowWriter,
    checkpoint_from_settings,
    exempt_imports_from_collection,
    local_property,
    task_context,
)
from pyspark_penstock.write_options import AT_LEAST_ONCE, BATCH_SINK_PREFIX, STREAM_SINK_PREFIX, WriteOptions

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql.types import StructType

FIRST_SLOTS = 16
"""The number of slots at which attempts of one task begin their search, so that simultaneous ones rarely collide."""


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[ArrowBatch]) -> WriterCommitMessage:
        """In a task."""
        context = task_context()
        query, run = local_property(context, QUERY_ID), local_property(context, RUN_ID)
        given = SinkBatch(
            sink=self._options.sink_id or f"{STREAM_SINK_PREFIX}{query}",
            batch=int(local_property(context, BATCH_ID)),
            run=run,
            query=query,
            query_run=run,
            checkpoint=self._options.checkpoint or checkpoint_from_settings(context, self._options.query_name),
        )
        return written_by_task(self._options, given, context, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when every task has written."""
        done = checked(messages)
        checkpoint = next((each.sink_batch.checkpoint for each in done if each is not None), "")
        offsets = offsets_of_batch(checkpoint, batchId) if checkpoint else None
        with shared_link(self._options.link) as link:
            commit_batch(link, self._options, batchId, done, offsets)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task or the commit has failed."""
        with shared_link(self._options.link) as link:
            abort_batch(link, self._options, batchId, checked(messages))


class BatchSink(DataSourceArrowWriter):
    """Writes one table, all of it or nothing.

    With the options ``sinkId`` and ``batchId`` it is written once, however often it is retried: for ``foreachBatch``.
    """

    def __init__(self, options: WriteOptions, run: str) -> None:
        self._options = options
        self._prefix = BATCH_SINK_PREFIX if options.sink_id is None else f"{options.sink_id}-"
        if options.sink_id is not None and options.batch_id is not None:
            self._given = SinkBatch(
                sink=options.sink_id,
                batch=options.batch_id,
                run=run,
                query=options.query_id or options.sink_id,
                query_run=options.query_run,
            )
        else:
            sink = f"{self._prefix}{run}"
            self._given = SinkBatch(sink=sink, batch=0, run=run, query=sink, is_fresh=True)

    def write(self, iterator: Iterator[ArrowBatch]) -> WriterCommitMessage:
        """In a task."""
        return written_by_task(self._options, self._given, task_context(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when every task has written."""
        with shared_link(self._options.link) as link:
            commit_batch(link, self._options, self._given.batch, checked(messages), self._options.offsets)
            if self._given.is_fresh:
                finish_after_write(link, self._prefix, self._options.ledger_topic)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or the commit has failed."""
        with shared_link(self._options.link) as link:
            abort_batch(link, self._options, self._given.batch, checked(messages))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """The writer of a streaming query; ``overwrite`` is the mode complete, whose rows are written like any others."""
    return StreamSink(checked_options(options, schema))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """The writer of one table."""
    if overwrite:
        raise WrongOption(
            "Save mode Overwrite not allowed for penstock. The only allowed save mode is Append:"
            " topics are only added to"
        )
    return BatchSink(checked_options(options, schema), SystemRandomness().uuid_bytes().hex())


def checked_options(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    """Refuse wrong options and a wrong schema before the first row."""
    checked = WriteOptions.of(options)
    check_schema(schema, checked.topic, checked.timestamp_column, checked.formats)
    return replace(checked, schema=schema) if checked.formats else checked


def written_by_task(
    options: WriteOptions, given: SinkBatch, context: TaskContext, rows: Iterator[ArrowBatch]
) -> TaskDone:
    task, attempt = context.partitionId(), context.taskAttemptId() % FIRST_SLOTS
    if options.schema is not None:
        rows = encoded_batches(rows, options.schema, options.formats)
    with shared_link(options.link) as link:
        if options.delivery == AT_LEAST_ONCE:
            done = write_task_at_least_once(link, options, given, task, rows)
        else:
            done = write_task(link, options, given, task, attempt, rows)
    exempt_imports_from_collection()
    return done


def checked(messages: Sequence[Any]) -> list[TaskDone | None]:
    assert all(each is None or isinstance(each, TaskDone) for each in messages), "messages of another writer"
    return list(messages)
