"""FindCoordinator (10), every version: who looks after a group, a transaction or a share partition.

One broker coordinates everything in its cluster.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error

from penstock.api.registry import Api, RequestContext
from penstock.cluster.controller import Controller
from penstock.cluster.live_config import LiveConfig
from penstock.core.controller.records import BrokerEndpoint
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, InvalidRequest
from penstock.wire.api import find_coordinator as gen

GROUP = 0
TRANSACTION = 1
SHARE = 2
BATCHED_FROM = 4
SHARE_KEY_PARTS = 3
TOPIC_ID_CHARACTERS = 22
NOBODY = -1


class Coordinators:
    """Names this broker, where clients of the asking listener find it."""

    def __init__(self, *, controller: Controller, config: LiveConfig) -> None:
        self._image = controller.image
        self._config = config

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=10, versions=range(7), handle=self.find_coordinator),)

    def find_coordinator(self, context: RequestContext, request: gen.Request) -> gen.Response:
        if context.api_version >= BATCHED_FROM:
            return gen.Response(
                coordinators=[self._find(context, key, request.key_type) for key in request.coordinator_keys]
            )
        found = self._find(context, request.key, request.key_type)
        if found.error_code:
            message = InvalidRequest().wire_message if found.error_code == InvalidRequest.code else found.error_message
        else:
            message = "NONE"
        return gen.Response(
            error_code=found.error_code,
            error_message=message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find(self, context: RequestContext, key: str, key_type: int) -> gen.Coordinator:
        try:
            at = self._place(context, key, key_type)
        except BrokerError as error:
            # The message of a bad share key is left empty, as Kafka leaves it.
            message = "" if key_type == SHARE else error.wire_message
            return gen.Coordinator(
                key=key, node_id=NOBODY, host="", port=NOBODY, error_code=error.code, error_message=message
            )
        return gen.Coordinator(key=key, node_id=self._config.current.broker_id, host=at.host, port=at.port)

    def _place(self, context: RequestContext, key: str, key_type: int) -> BrokerEndpoint:
        if key_type not in (GROUP, TRANSACTION, SHARE):
            raise InvalidRequest()
        if key_type == SHARE:
            check_share_key(key)
        broker = self._image.brokers.get(self._config.current.broker_id)
        at = broker.endpoint(context.connection.listener) if broker is not None else None
        if at is None:
            raise CoordinatorNotAvailable()
        return at


def check_share_key(key: str) -> None:
    """A share partition's key is group:topic id:partition."""
    parts = key.split(":")
    if len(parts) < SHARE_KEY_PARTS or not parts[0] or not parts[-1].isdigit():
        raise InvalidRequest()
    topic_id = parts[-2]
    try:
        whole = len(topic_id) == TOPIC_ID_CHARACTERS and len(urlsafe_b64decode(topic_id + "==")) == 16
    except (Base64Error, ValueError):
        whole = False
    if not whole:
        raise InvalidRequest()
