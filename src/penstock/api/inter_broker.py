"""AlterPartition (56) v3, BrokerHeartbeat (63), AllocateProducerIds (67) and AssignReplicasToDirs (73), every version.

What brokers ask of the controller; ApiVersions shows these APIs to brokers only. BrokerHeartbeat is for controlled
shutdown, as sessions of the metadata store tell which brokers live. AssignReplicasToDirs reports replicas whose logs
failed.
"""

from __future__ import annotations

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.replication.controller_requests import ControllerRequests
from penstock.wire.api import allocate_producer_ids as ids
from penstock.wire.api import alter_partition as isr
from penstock.wire.api import assign_replicas_to_dirs as failed
from penstock.wire.api import broker_heartbeat as beat


class InterBroker:
    """Passes requests of other brokers to the controller on this one."""

    def __init__(self, requests: ControllerRequests) -> None:
        self._requests = requests

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=56, versions=range(3, 4), handle=self.alter_partition, internal=True),
            Api(key=63, versions=range(3), handle=self.heartbeat, internal=True),
            Api(key=67, versions=range(1), handle=self.allocate_producer_ids, internal=True),
            Api(key=73, versions=range(1), handle=self.assign_replicas, internal=True),
        )

    @in_turns
    async def alter_partition(self, context: RequestContext, request: isr.Request) -> isr.Response:
        return await self._requests.alter_partition(request)

    @in_turns
    async def heartbeat(self, context: RequestContext, request: beat.Request) -> beat.Response:
        return await self._requests.heartbeat(request)

    @in_turns
    async def allocate_producer_ids(self, context: RequestContext, request: ids.Request) -> ids.Response:
        return await self._requests.allocate_producer_ids(request)

    @in_turns
    async def assign_replicas(self, context: RequestContext, request: failed.Request) -> failed.Response:
        return await self._requests.assign_replicas(request)
