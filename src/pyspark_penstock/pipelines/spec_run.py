"""A declared pipeline as Spark queries: a view for every source and step, a named query for every sink."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_penstock.column_options import VALUE_BYTES_COLUMN, VALUE_ERROR_COLUMN
from pyspark_penstock.foreach import each_batch
from pyspark_penstock.lake import LakeTable, open_table
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.pipelines.checkpoint import check_table, check_topics
from pyspark_penstock.pipelines.dead_letters import dead_records
from pyspark_penstock.pipelines.expiry import Expiry, NeededBy
from pyspark_penstock.pipelines.partitioning import PartitionColumn, sink_columns
from pyspark_penstock.pipelines.running import cause_of, started, stop_all
from pyspark_penstock.pipelines.spec import TABLE, PipelineSpec, SinkSpec, SourceSpec, SpecError, StepSpec
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.pipelines.table_sink import TableSink
from pyspark_penstock.spark_internals import query_id_of
from pyspark_penstock.values import value_parser

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DEAD_SUFFIX = "_dead_letters"
UPDATES = "penstock-updates-"
"""The prefix of sinks whose mode Spark does not offer to sinks written in Python."""
RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp")


def check_spec(spec: PipelineSpec, bootstrap: str) -> None:
    """Check schemas, options of sources and functions without Spark. SpecError names the key."""
    for source in spec.sources:
        try:
            options = ReadOptions.of(read_options(spec, source, bootstrap), streaming=source.read_as != TABLE)
            if options.value_format is not None:
                value_parser(options.value_format)
        except ValueError as error:
            raise SpecError(f"sources.{source.name}: {error}") from None
    for step in spec.steps:
        if step.python:
            find_function(step, spec.folder)


def read_options(spec: PipelineSpec, source: SourceSpec, bootstrap: str) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        **{f"kafka.{name}": value for name, value in spec.kafka.items()},
    }
    options |= {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
    columns = ["key", "value", *RECORD_COLUMNS]
    if source.format != "binary":
        options["value.format"] = source.format
        columns += [VALUE_ERROR_COLUMN]
    if source.schema:
        options["value.schema"] = source.schema
    if source.dead_letters:
        options["includeHeaders"] = "true"
        columns += [VALUE_BYTES_COLUMN, "headers"]
    if source.read_as != TABLE:
        options["startingOffsets"] = source.start
    return {**options, "columns": ",".join(columns), **source.options}


def find_function(step: StepSpec, folder: Path) -> Callable[..., Any]:
    """The function of a Python step; its module is searched beside the file first."""
    module, _, name = step.python.partition(":")
    path = f"steps.{step.name}.python"
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise SpecError(f"{path}: there is no module {error.name!r}, here or installed") from None
    except AttributeError:
        raise SpecError(f"{path}: the module {module} has no function {name!r}") from None
    if not callable(found):
        raise SpecError(f"{path}: {step.python} is not a function")
    return found


def start_pipeline(
    spark: SparkSession,
    spec: PipelineSpec,
    *,
    bootstrap: str,
    checkpoint: str,
    replays: Callable[[LakeTable], NeededBy] | None = None,
) -> list[StreamingQuery]:
    """Start every query or none: an error of Spark is reported with its key, and started queries are stopped.

    ``replays`` finds the replays that have yet to read some files of a table.
    """
    check_spec(spec, bootstrap)
    topics = {topic for each in spec.sources for topic in each.topics}
    if topics and not any(each.pattern for each in spec.sources):
        for sink in spec.sinks:
            check_topics(Store.at(f"{checkpoint}/{sink.name}"), topics)
    writers: dict[str, DataStreamWriter] = {}
    for source in spec.sources:
        frame = _source_view(spark, spec, source, bootstrap)
        if source.dead_letters:
            writers[source.name + DEAD_SUFFIX] = _dead_letters(spec, source, frame, bootstrap)
    for step in spec.steps:
        _step_view(spark, spec, step)
    for sink in spec.sinks:
        make = partial(_writer, spark, spec, sink, bootstrap=bootstrap, checkpoint=checkpoint, replays=replays)
        writers[sink.name] = with_key(f"sinks.{sink.name}", make)
    queries: list[StreamingQuery] = []
    for name, writer in writers.items():
        named = writer.queryName(f"{spec.name}.{name}").option("checkpointLocation", f"{checkpoint}/{name}")
        try:
            queries.append(with_key(f"sinks.{name}", partial(started, _triggered(spec, named).start)))
        except SpecError:
            stop_all(queries)
            raise
    return queries


def with_key(path: str, act: Callable[[], Any]) -> Any:
    """Report errors of Spark with the key that caused them."""
    from pyspark.errors import PySparkException

    try:
        return act()
    except PySparkException as error:
        raise SpecError(f"{path}: {cause_of(error)}") from error


def _triggered(spec: PipelineSpec, writer: DataStreamWriter) -> DataStreamWriter:
    if spec.once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{spec.interval_ms} milliseconds")


# Views


def _source_view(spark: SparkSession, spec: PipelineSpec, source: SourceSpec, bootstrap: str) -> DataFrame:
    """Create the view, with the columns of parsed values; returns the frame with all columns."""
    options = read_options(spec, source, bootstrap)
    path = f"sources.{source.name}"
    if source.read_as == TABLE:
        frame: DataFrame = with_key(path, lambda: spark.read.format("penstock").options(**options).load())
        view = with_key(path, lambda: _latest(frame, source))
    else:
        frame = with_key(path, lambda: spark.readStream.format("penstock").options(**options).load())
        view = with_key(path, lambda: _flat(frame, source))
    _note_view(view, source.name, source.event_time, source.watermark, path)
    return frame


def _flat(frame: DataFrame, source: SourceSpec) -> DataFrame:
    """The fields of values as columns, with ``_key``, ``_topic`` and the record's other columns."""
    parsed = frame if source.format == "binary" else frame.where(f"{VALUE_ERROR_COLUMN} IS NULL")
    value = "value.*" if source.schema else "value"
    return parsed.selectExpr(value, "CAST(key AS STRING) AS _key", *(f"{name} AS _{name}" for name in RECORD_COLUMNS))


def _latest(frame: DataFrame, source: SourceSpec) -> DataFrame:
    """The last value of every key, without keys whose last value is null.

    Within a partition offsets decide which is last; for a key that has moved to another partition, timestamps do.
    """
    good = frame if source.format == "binary" else frame.where(f"{VALUE_ERROR_COLUMN} IS NULL")
    there = good.groupBy("key", "topic", "partition").agg(_expression("max_by(struct(value, timestamp), offset) AS at"))
    last = there.groupBy("key").agg(_expression("max_by(struct(at.value AS value), at.timestamp) AS last"))
    value = "last.value.*" if source.schema else "last.value AS value"
    return last.where("last.value IS NOT NULL").selectExpr(value, "CAST(key AS STRING) AS _key")


def _expression(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def _step_view(spark: SparkSession, spec: PipelineSpec, step: StepSpec) -> None:
    path = f"steps.{step.name}"
    if step.sql:
        session: Any = spark
        view = with_key(f"{path}.sql", lambda: session.sql(step.sql))
    else:
        function = find_function(step, spec.folder)
        view = with_key(f"{path}.python", lambda: function(*(spark.table(name) for name in step.inputs)))
        if not hasattr(view, "createOrReplaceTempView"):
            raise SpecError(f"{path}.python: {step.python} has returned {type(view).__name__}, not a DataFrame")
    _note_view(view, step.name, step.event_time, step.watermark, path)


def _note_view(view: DataFrame, name: str, event_time: str, watermark: str, path: str) -> None:
    if watermark:
        kinds = dict(view.dtypes)
        if event_time in kinds and not kinds[event_time].startswith("timestamp"):
            raise SpecError(f"{path}.event_time: {event_time} is of type {kinds[event_time]}, not a timestamp")
        view = with_key(f"{path}.event_time", lambda: view.withWatermark(event_time, watermark))
    view.createOrReplaceTempView(name)


# Sinks


def _writer(
    spark: SparkSession,
    spec: PipelineSpec,
    sink: SinkSpec,
    *,
    bootstrap: str,
    checkpoint: str,
    replays: Callable[[LakeTable], NeededBy] | None,
) -> DataStreamWriter:
    frame = spark.table(sink.source)
    if not frame.isStreaming:
        raise SpecError(f"sinks.{sink.name}.from: {sink.source} is not a stream: it reads tables alone")
    if sink.topic:
        return _to_topic(spec, frame, sink, bootstrap)
    if sink.console:
        return frame.writeStream.outputMode(sink.mode).format("console").option("truncate", "false")
    columns = sink_columns(sink.partition_by)
    frame = _partitioned(frame, sink, columns)
    opened = open_table(sink.format, sink.table)
    check_table(f"{checkpoint}/{sink.name}", opened, is_archive=False)
    table = TableSink(table=opened, partition_by=[each.name for each in columns], compacts=sink.compacts)
    if sink.expire_after_ms:
        needed_by = None if replays is None else replays(opened)
        table.maintain = Expiry(table=opened, age_ms=sink.expire_after_ms, needed_by=needed_by)
    table.prepare(frame)
    return frame.writeStream.outputMode(sink.mode).foreachBatch(table)


def _partitioned(frame: DataFrame, sink: SinkSpec, columns: Sequence[PartitionColumn]) -> DataFrame:
    """A view with the partition columns of its table."""
    path = f"sinks.{sink.name}.partition_by"
    for each in columns:
        if each.sql and each.name in frame.columns:
            raise SpecError(f"{path}: {sink.source} has a column {each.name!r} already")
        if not each.sql and each.name not in frame.columns:
            raise SpecError(f"{path}: {sink.source} has no column {each.name!r}")
    made = [f"{each.sql} AS `{each.name}`" for each in columns if each.sql]
    found: DataFrame = with_key(path, lambda: frame.selectExpr("*", *made)) if made else frame
    return found


def _to_topic(spec: PipelineSpec, frame: DataFrame, sink: SinkSpec, bootstrap: str) -> DataStreamWriter:
    columns = frame.columns
    for key, names in (("key", (sink.key,) if sink.key else ()), ("value", sink.value)):
        for name in names:
            if name not in columns:
                raise SpecError(f"sinks.{sink.name}.{key}: {sink.source} has no column {name!r}")
    chosen = ", ".join(f"`{name}`" for name in sink.value or [name for name in columns if not name.startswith("_")])
    records = [f"to_json(struct({chosen})) AS value"]
    if sink.key:
        records.append(f"CAST(`{sink.key}` AS STRING) AS key")
    options = {**_write_options(spec, bootstrap), "topic": sink.topic, **sink.options}
    writer = frame.selectExpr(*records).writeStream.outputMode(sink.mode)
    if sink.mode != "update":
        return writer.format("penstock").options(**options)

    def write(batch: DataFrame, number: int) -> None:
        # The query's id and its batch numbers both belong to its checkpoint.
        each_batch(f"{UPDATES}{query_id_of(batch)}", options)(batch, number)

    return writer.foreachBatch(write)


def _dead_letters(spec: PipelineSpec, source: SourceSpec, frame: DataFrame, bootstrap: str) -> DataStreamWriter:
    options = {**_write_options(spec, bootstrap), "topic": source.dead_letters, "timestamp.column": "timestamp"}
    return dead_records(frame).writeStream.format("penstock").options(**options)


def _write_options(spec: PipelineSpec, bootstrap: str) -> Mapping[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, **{f"kafka.{name}": value for name, value in spec.kafka.items()}}
