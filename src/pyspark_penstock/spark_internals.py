"""All uses of PySpark that are undocumented, or that differ between its versions, in one place.

Each part names the versions in which it was tested; tests/spark/test_versions.py runs a query over all of them. A part
that a newer PySpark changes fails here, with `SparkChanged` or at import, and nowhere else.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import pyspark
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamWriter

from pyspark_penstock.errors import PenstockRuntimeError

__all__ = [
    "BATCH_ID",
    "HAS_ADMISSION_CONTROL",
    "HAS_FILTER_PUSHDOWN",
    "QUERY_ID",
    "RUN_ID",
    "SPARK_VERSION",
    "DataSourceStreamArrowWriter",
    "FiltersPushed",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SparkChanged",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "arrow_type",
    "exempt_imports_from_collection",
    "local_property",
    "offer_filter_pushdown",
    "query_id_of",
    "release_gateway",
    "task_context",
]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


class SparkChanged(PenstockRuntimeError):
    """This version of Spark lacks something that the supported versions have."""


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


SPARK_VERSION = _version(pyspark.__version__)
"""Major and minor: ``(4, 2)``."""
HAS_ADMISSION_CONTROL = SPARK_VERSION >= (4, 2)
"""Whether Spark passes a Python stream the start of a batch and its limits.

Without it (4.0, 4.1) a batch ends at the latest offset, and Spark asks for its end before its start.
"""
HAS_FILTER_PUSHDOWN = SPARK_VERSION >= (4, 1)


# Streams with admission control: 4.2, 4.3

if TYPE_CHECKING or HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """As in 4.2; 4.0 and 4.1 never ask for one."""

        def __init__(self, *limits: int) -> None:
            self.limits = limits

    class ReadAllAvailable(ReadLimit):
        pass

    class ReadMaxBytes(ReadLimit):
        pass

    class ReadMaxRows(ReadLimit):
        pass

    class ReadMinRows(ReadLimit):
        pass

    class SupportsTriggerAvailableNow:
        """As in 4.2; 4.0 and 4.1 end such a query at the offset that was the latest at its start."""


# Sinks that take Arrow batches: for streams 4.1, 4.2, 4.3

if TYPE_CHECKING or SPARK_VERSION >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """4.0 passes Arrow batches to every DataSourceArrowWriter, in streams as well."""


# Arrow's types for Spark's: 4.0, 4.1, 4.2, 4.3


def arrow_schema(schema: StructType) -> Any:
    """The Arrow schema that Spark expects of a batch with these columns."""
    return import_module("pyspark.sql.pandas.types").to_arrow_schema(schema, **_in_utc())


def arrow_type(kind: DataType) -> Any:
    return import_module("pyspark.sql.pandas.types").to_arrow_type(kind, **_in_utc())


def _in_utc() -> dict[str, Any]:
    return {"timezone": "UTC"} if SPARK_VERSION >= (4, 2) else {"timestamp_utc": True}


# Properties of a streaming query's jobs: 4.0, 4.1, 4.2, 4.3

QUERY_ID = "sql.streaming.queryId"
"""Created with the query's checkpoint."""
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""New with each start of the query."""


def task_context() -> TaskContext:
    """The context of the running task."""
    context = TaskContext.get()
    if context is None:
        raise SparkChanged("a writer runs outside a Spark task")
    return context


def local_property(context: TaskContext, name: str) -> str:
    """A property that Spark sets for the tasks of a streaming query."""
    value = context.getLocalProperty(name)
    if not value:
        raise SparkChanged(
            f"PySpark {pyspark.__version__} does not set {name} for a task: this version is not supported"
        )
    return value


def checkpoint_from_settings(context: TaskContext, query_name: str) -> str:
    """A query's checkpoint by ``spark.sql.streaming.checkpointLocation``; empty if it is not set.

    A task sees the session's SQL settings as local properties. A query without a name gets a new folder at each start.
    """
    root = context.getLocalProperty("spark.sql.streaming.checkpointLocation")
    return f"{root.rstrip('/')}/{query_name}" if root and query_name else ""


def query_id_of(frame: DataFrame) -> str:
    """The id of the query whose batch this is, on the driver in ``foreachBatch``."""
    found: Any = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not found:
        raise SparkChanged("this DataFrame is not a batch of a streaming query: foreachBatch gives one")
    return str(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQuery:
    """The streaming query in whose ``foreachBatch`` a function runs."""

    query: str
    run: str
    checkpoint: str


def query_of_foreach_batch(session: SparkSession) -> RunningQuery | None:
    """Find the query that calls ``foreachBatch`` in this thread; None on Spark Connect or outside a query.

    The thread has the query's id as a local property, and the session's shared state has
    the queries that run.
    """
    java: Any = getattr(session, "_jsparkSession", None)
    if java is None:
        return None
    context: Any = session.sparkContext
    query = context.getLocalProperty(QUERY_ID)
    if not query:
        return None
    running = java.sharedState().activeStreamingQueries().get(context._jvm.java.util.UUID.fromString(query))
    if running is None:
        return None
    return RunningQuery(query=query, run=running.runId().toString(), checkpoint=str(running.resolvedCheckpointRoot()))


def read_by_java(session: SparkSession, address: str) -> str | None:
    """Read a small file with Spark's own file systems and credentials."""
    context: Any = session.sparkContext
    java = context._jvm
    path = java.org.apache.hadoop.fs.Path(address)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return str(java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


# Collections of cycles in workers: 4.0, 4.1, 4.2, 4.3


def exempt_imports_from_collection() -> None:
    """Exclude imported modules from garbage collection; called at the end of a task, when its imports are done.

    Spark's daemon collects after every task, and walking the objects of imported libraries takes longer than a task of
    a small micro-batch. Workers are shared with the user's functions: garbage is collected first, so that none becomes
    permanent, and later objects are collected as always. Does nothing unless modules were imported since.
    """
    if _exempted.modules != len(sys.modules):
        gc.collect()
        gc.freeze()
        _exempted.modules = len(sys.modules)


@dataclass(slots=True)
class _Exempted:
    modules: int = 0
    """How many modules this process had imported when it last exempted them."""


_exempted = _Exempted()


# Filters pushed to a batch reader: 4.1, 4.2, 4.3


class FiltersPushed(Protocol):
    """Takes the filters of a query; returns those that Spark still has to evaluate."""

    def __call__(self, filters: list[Any]) -> Iterable[Any]: ...


class _PushFilters:
    """A reader's ``pushFilters`` that Spark mistakes for the base class's when it checks whether one is defined.

    Spark refuses every query over a reader whose class defines the method while
    ``spark.sql.python.filterPushdown.enabled`` is false, which it is unless set.
    """

    def __init__(self, push: FiltersPushed) -> None:
        self._push = push
        self.__func__: Callable[..., Any] = DataSourceReader.pushFilters

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._push(filters)


def offer_filter_pushdown(reader: DataSourceReader, push: FiltersPushed) -> None:
    """Let Spark push filters to a reader if the user has enabled that."""
    if HAS_FILTER_PUSHDOWN:
        vars(reader)["pushFilters"] = _PushFilters(push)


# The session's Java process: 4.0, 4.1, 4.2, 4.3


def release_gateway() -> Any:
    """Shut down the gateway to Java and forget it; returns the Java process, or None where Spark did not start one."""
    context: Any = pyspark.SparkContext
    gateway: Any = context._gateway
    if gateway is None:
        return None
    gateway.shutdown()
    context._gateway = context._jvm = None
    return getattr(gateway, "proc", None)
