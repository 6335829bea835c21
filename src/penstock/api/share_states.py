"""InitializeShareGroupState (83), ReadShareGroupState (84), WriteShareGroupState (85), DeleteShareGroupState (86) and
ReadShareGroupStateSummary (87), every version.

What brokers ask of share coordinators. As in Kafka, ApiVersions shows these APIs to clients too.
"""

from __future__ import annotations

from typing import Any

from penstock.api.coordinator_requests import submit
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.coordinator.step import Result
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.turns import Turns
from penstock.shares.state.commands import StateCommand
from penstock.shares.state.exchange import DELETE, INITIALIZE, READ, SUMMARY, WRITE, Exchange
from penstock.shares.state.service import ShareCoordinatorService, coordinator_key
from penstock.wire import share_states


class ShareStates:
    """Passes the commands in a request to the coordinators of their share partitions."""

    def __init__(self, *, coordinators: ShareCoordinatorService, turns: Turns) -> None:
        self._coordinators = coordinators
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=83, versions=range(1), handle=self.initialize),
            Api(key=84, versions=range(1), handle=self.read, encode=share_states.encode_read_response),
            Api(key=85, versions=range(2), handle=self.write, decode=share_states.decode_write_request),
            Api(key=86, versions=range(1), handle=self.delete),
            Api(key=87, versions=range(2), handle=self.summarize),
        )

    def initialize(self, context: RequestContext, request: Any) -> Eventual[Any]:
        return self._carry_out(context, INITIALIZE, request)

    def read(self, context: RequestContext, request: Any) -> Eventual[Any]:
        return self._carry_out(context, READ, request)

    def write(self, context: RequestContext, request: Any) -> Eventual[Any]:
        return self._carry_out(context, WRITE, request)

    def delete(self, context: RequestContext, request: Any) -> Eventual[Any]:
        return self._carry_out(context, DELETE, request)

    def summarize(self, context: RequestContext, request: Any) -> Eventual[Any]:
        return self._carry_out(context, SUMMARY, request)

    @in_turns
    async def _carry_out(self, context: RequestContext, exchange: Exchange, request: Any) -> Eventual[Any]:
        """Submit every command, and respond when all have results; a request without a group gets none."""
        if not request.group_id:
            return exchange.response(results=[])
        results: list[Eventual[Result]] = []
        for command in exchange.commands_of(request):
            results.append(self._submit(command))
            if self._turns.spent():
                await self._turns.pause()
        return after(Deferred.all(results), lambda found: exchange.response_of(request, found))

    def _submit(self, command: StateCommand) -> Eventual[Result]:
        return submit(self._coordinators, coordinator_key(command.key), command, lambda result: result)
