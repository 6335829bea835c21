"""InitProducerId (22), v0 to v5: an identity for a producer that must not write anything twice.

A producer without a transactional id gets a new one every time it asks. Transactional ids have no coordinator yet.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from penstock.api.registry import Api, RequestContext
from penstock.cluster.producer_ids import ProducerIds
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, InvalidRequest
from penstock.wire.api import init_producer_id as gen

UNSAID = -1


class ProducerIdentities:
    """Hands out producer ids."""

    def __init__(self, *, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=22, versions=range(6), handle=self.init_producer_id),)

    def init_producer_id(
        self, context: RequestContext, request: gen.Request
    ) -> gen.Response | Coroutine[Any, Any, gen.Response]:
        if request.transactional_id == "" or (request.producer_id == UNSAID) != (request.producer_epoch == UNSAID):
            return failed(InvalidRequest())
        if request.transactional_id is not None:
            return failed(CoordinatorNotAvailable())
        producer_id = self._producer_ids.next_at_hand()
        return self._await_id() if producer_id is None else gen.Response(producer_id=producer_id)

    async def _await_id(self) -> gen.Response:
        try:
            return gen.Response(producer_id=await self._producer_ids.next())
        except BrokerError as error:
            return failed(error)


def failed(error: BrokerError) -> gen.Response:
    return gen.Response(error_code=error.code, producer_id=UNSAID, producer_epoch=UNSAID)
