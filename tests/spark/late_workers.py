"""Spark gives the Python process of a streaming source ten seconds to connect, and has no setting for it.

A machine that does more than these tests may need longer. The query then fails before its first batch, with a message
of its own, and can be started again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark_penstock.pipelines.running import WORKER_STARTS_MAX, is_late_worker, stop_all

QUERY_SECONDS_MAX = 500


def run_queries(start: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Start queries that end by themselves, wait for it, and start them again where a worker was late."""
    for starts_left in reversed(range(WORKER_STARTS_MAX)):
        queries = start()
        try:
            for query in queries:
                assert query.awaitTermination(QUERY_SECONDS_MAX), f"{query.name} does not end"
            return queries
        except Exception as error:
            stop_all(queries)
            if not (starts_left and is_late_worker(error)):
                raise
    raise AssertionError("never started")


def run_query(start: Callable[[], Any]) -> Any:
    """The same for one query."""
    (query,) = run_queries(lambda: [start()])
    return query


def running_query(start: Callable[[], Any]) -> Any:
    """A query that goes on until it is stopped, once it has processed what there is."""
    for starts_left in reversed(range(WORKER_STARTS_MAX)):
        query = start()
        try:
            query.processAllAvailable()
            return query
        except Exception as error:
            query.stop()
            if not (starts_left and is_late_worker(error)):
                raise
    raise AssertionError("never started")
