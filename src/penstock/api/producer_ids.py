"""InitProducerId (22), v0 to v5: a producer id and epoch for an idempotent or transactional producer.

A producer without a transactional id gets a new producer id with every request. A transactional one gets the id that
its coordinator has, with an epoch that fences earlier producers.
"""

from __future__ import annotations

from penstock.api.coordinator_requests import submit
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.producer_ids import ProducerIds
from penstock.coordinator.step import Result
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest
from penstock.model.ids import ProducerEpoch, ProducerId
from penstock.transactions.commands import InitProducer, ProducerInitialized
from penstock.transactions.old_clients import FENCED_FROM_INIT, error_for_version
from penstock.transactions.service import TxnCoordinatorService
from penstock.wire.api import init_producer_id as gen

NO_ID = -1


class ProducerIdentities:
    """Assigns producer ids."""

    def __init__(self, *, producer_ids: ProducerIds, coordinators: TxnCoordinatorService) -> None:
        self._producer_ids = producer_ids
        self._coordinators = coordinators

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=22, versions=range(6), handle=self.init_producer_id),)

    def init_producer_id(self, context: RequestContext, request: gen.Request) -> Eventual[gen.Response]:
        if request.transactional_id == "" or (request.producer_id == NO_ID) != (request.producer_epoch == NO_ID):
            return failed(InvalidRequest())
        if request.transactional_id is not None:
            return (
                self._init(context, request) if self._producer_ids.stocked else self._stock_and_init(context, request)
            )
        producer_id = self._producer_ids.next_at_hand()
        return self._await_id(context) if producer_id is None else gen.Response(producer_id=producer_id)

    @in_turns
    async def _await_id(self, context: RequestContext) -> gen.Response:
        try:
            return gen.Response(producer_id=await self._producer_ids.next())
        except BrokerError as error:
            return failed(error)

    @in_turns
    async def _stock_and_init(self, context: RequestContext, request: gen.Request) -> Eventual[gen.Response]:
        try:
            await self._producer_ids.stock()
        except BrokerError as error:
            return failed(error)
        return self._init(context, request)

    def _init(self, context: RequestContext, request: gen.Request) -> Eventual[gen.Response]:
        """Initialize a transactional producer; the caller has made sure that a new id is available."""

        def response(reply: Result) -> gen.Response:
            if isinstance(reply, BrokerError):
                return failed(error_for_version(reply, context.api_version, FENCED_FROM_INIT))
            assert isinstance(reply, ProducerInitialized), f"a response to a producer: {reply!r}"
            return gen.Response(producer_id=reply.producer_id, producer_epoch=reply.epoch)

        assert request.transactional_id is not None, "a producer without transactions"
        command = InitProducer(
            transactional_id=request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            producer_id=ProducerId(request.producer_id),
            epoch=ProducerEpoch(request.producer_epoch),
        )
        return submit(self._coordinators, command.transactional_id, command, response)


def failed(error: BrokerError) -> gen.Response:
    return gen.Response(error_code=error.code, producer_id=NO_ID, producer_epoch=NO_ID)
