"""Redirect (20552), version 0, which Kafka does not have: batches and markers of drained partitions, between brokers.

ApiVersions shows it to brokers only.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.model.deferred import Deferred, Eventual
from penstock.replication.redirects import Redirects as Drained
from penstock.wire import redirect as wire


class Redirects:
    """Passes requests of other brokers to the partitions on this one."""

    def __init__(self, redirects: Drained) -> None:
        self._redirects = redirects

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(
                key=wire.API_KEY,
                versions=range(1),
                handle=self.handle,
                decode=wire.decode_request,
                encode=wire.encode_response,
                borrows_frame=True,
                internal=True,
            ),
        )

    def handle(self, context: RequestContext, request: wire.Request) -> Eventual[wire.Response]:
        served = self._redirects.serve(request)
        if isinstance(served, wire.Response | Deferred):
            return served
        return self._later(context, served)

    @in_turns
    async def _later(
        self, context: RequestContext, work: Coroutine[Any, Any, Eventual[wire.Response]]
    ) -> Eventual[wire.Response]:
        """Validate a large batch off the loop, before the next request is read."""
        return await work
