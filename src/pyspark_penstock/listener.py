"""Metrics of a session's streaming queries, from a StreamingQueryListener, served over HTTP where a port is given."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.model.clock import Clock, SystemClock
from pyspark_penstock.query_metrics import QueryMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

LOOPBACK = "127.0.0.1"
_log = logging.getLogger(__name__)


def listen(
    spark: SparkSession,
    *,
    port: int | None = None,
    address: str = LOOPBACK,
    registry: CollectorRegistry | None = None,
) -> QueryListener:
    """Collect metrics of every streaming query of this session from now on.

    With ``port`` they are served over HTTP as Prometheus text (0: any free port, see `QueryListener.url`), on the
    loopback address unless ``address`` says otherwise. With ``registry`` they are added to a registry of yours. Without
    either, `QueryListener.text` returns them. A fault in here is logged and never reaches a query.
    """
    listener = QueryListener(registry=registry)
    if port is not None:
        listener.serve(port, address)
    spark.streams.addListener(listener)
    listener.added_to = spark
    return listener


class QueryListener(StreamingQueryListener):
    """Passes Spark's events about queries to the metrics."""

    def __init__(self, *, registry: CollectorRegistry | None = None, clock: Clock | None = None) -> None:
        self.metrics = QueryMetrics(clock or SystemClock())
        self.registry = registry or CollectorRegistry()
        self.registry.register(self.metrics)
        self.added_to: SparkSession | None = None
        self._server: Any = None

    # Where the metrics are

    def serve(self, port: int, address: str = LOOPBACK) -> None:
        self._server, _ = start_http_server(port, addr=address, registry=self.registry)

    @property
    def url(self) -> str | None:
        """Where the metrics are served; None without a port."""
        if self._server is None:
            return None
        host, port = self._server.server_address[:2]
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    def text(self) -> str:
        """The metrics as Prometheus text."""
        return generate_latest(self.registry).decode()

    def stop(self) -> None:
        """Stop listening and serving."""
        spark, self.added_to = self.added_to, None
        if spark is not None:
            spark.streams.removeListener(self)
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        self.registry.unregister(self.metrics)

    # Events

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._guarded(lambda: self.metrics.started(str(event.id), str(event.runId), event.name))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._guarded(lambda: self.metrics.progressed(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._guarded(lambda: self.metrics.idle(str(event.id), str(event.runId)))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        failed = event.exception is not None
        self._guarded(lambda: self.metrics.terminated(str(event.id), str(event.runId), failed=failed))

    def _guarded(self, take: Callable[[], None]) -> None:
        try:
            take()
        except Exception:
            _log.warning("an event of a streaming query was not understood", exc_info=True)
