"""Requests to the controller, from any broker: served here where this broker is the controller, else sent to it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from penstock.controller.controller import Controller
from penstock.model.clock import Clock
from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotController, RequestTimedOut
from penstock.model.ids import BrokerId
from penstock.replication.peers import NotSent, Peers, PeerUnavailable, Purpose
from penstock.wire.channel import Codec

T = TypeVar("T")

RETRY_S = 0.05
"""Pause before a request is repeated: the controller has changed, or is about to."""

LocalHandler = Callable[[Any], Awaitable[Any]]
"""Serves a request on the controller itself."""


async def awaited(deferred: Deferred[T]) -> T:
    """The value of a `Deferred`; a task that is cancelled abandons it."""
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def resolved(value: T) -> None:
        if not done.done():
            done.set_result(value)

    def failed(error: Exception) -> None:
        if not done.done():
            done.set_exception(error)

    deferred.deliver_to(resolved, failed)
    try:
        return await done
    except asyncio.CancelledError:
        deferred.abandon()
        raise


class ControllerChannel:
    """Finds the controller, and sends to its successor what a former one has refused.

    `local` has the handlers of this broker, by API key, for when it is the controller.
    """

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        controller: Controller,
        peers: Peers,
        clock: Clock,
        timeout_ms: Callable[[], int],
        local: Mapping[int, LocalHandler],
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._peers = peers
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._local = local

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        return self._controller.is_active

    async def send(
        self,
        api: Codec,
        request: Any,
        *,
        repeatable: bool,
        timeout_ms: float | None = None,
        purpose: Purpose = Purpose.CONTROLLER,
    ) -> Any:
        """The controller's response. A request that is `repeatable` is sent again when its outcome is unknown.

        Raises `NotController` while there is no controller, or where it is this broker and has no handler, and
        `RequestTimedOut` where one may have served the request.
        """
        ends_s = self._clock.monotonic() + (self._timeout_ms() if timeout_ms is None else timeout_ms) / 1000
        while True:
            refusal: BrokerError = NotController()
            left_ms = (ends_s - self._clock.monotonic()) * 1000
            try:
                response = await self._send_once(api, request, purpose, max(left_ms, 1))
                if response is not None and response.error_code != NotController.code:
                    return response
            except NotSent:
                pass
            except PeerUnavailable as error:
                refusal = RequestTimedOut(str(error))
                if not repeatable:
                    raise refusal from None
            if self._clock.monotonic() + RETRY_S >= ends_s:
                raise refusal
            await asyncio.sleep(RETRY_S)

    async def _send_once(self, api: Codec, request: Any, purpose: Purpose, timeout_ms: float) -> Any:
        """The response of the broker that is controller now; None where none is known."""
        if self._controller.is_active:
            serve = self._local.get(api.API_KEY)
            if serve is None:
                raise NotController("this broker has become the controller")
            return await serve(request)
        controller_id = self._controller.image.controller_id
        if controller_id in (-1, self._broker_id):
            return None
        return await awaited(self._peers.send(BrokerId(controller_id), purpose, api, request, timeout_ms=timeout_ms))
