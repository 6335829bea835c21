"""UnregisterBroker (64), version 0: the cluster forgets a broker that will not return."""

from __future__ import annotations

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest
from penstock.model.ids import BrokerId
from penstock.wire.api import unregister_broker


class Brokers:
    """Administration of brokers."""

    def __init__(self, *, controller: Controller) -> None:
        self._controller = controller

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=64, versions=range(1), handle=self.unregister_broker, forwarded=True),)

    @in_turns
    async def unregister_broker(
        self, context: RequestContext, request: unregister_broker.Request
    ) -> unregister_broker.Response:
        broker_id = BrokerId(request.broker_id)
        try:
            if broker_id in self._controller.image.brokers:
                raise InvalidRequest(f"Broker ID {broker_id} is up: stop it instead")
            await self._controller.unregister_broker(broker_id)
        except BrokerError as error:
            return unregister_broker.Response(error_code=error.code, error_message=error.wire_message)
        return unregister_broker.Response(error_message=None)
