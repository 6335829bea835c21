"""FindCoordinator (10), every version: who looks after a group, a transaction or a share partition.

A group is looked after by the leader of its partition of `__consumer_offsets`, which is made when the first group is
looked for: the question then waits for it, as an error would only make every client ask again. Likewise a transactional
id, in `__transaction_state`. Share partitions are this broker's own, as long as it is alone.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from contextlib import suppress

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.controller.internal_topics import InternalTopics
from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import BrokerEndpoint
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, InvalidRequest
from penstock.model.topic import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.transactions.service import TxnCoordinatorService
from penstock.wire.api import find_coordinator as gen
from penstock.wire.slices import each

GROUP = 0
TRANSACTION = 1
SHARE = 2
BATCHED_FROM = 4
SHARE_KEY_PARTS = 3
TOPIC_ID_CHARACTERS = 22
NOBODY = -1


class Coordinators:
    """Names the broker to ask, where clients of the asking listener find it."""

    def __init__(
        self,
        *,
        controller: Controller,
        config: LiveConfig,
        groups: GroupCoordinatorService,
        transactions: TxnCoordinatorService,
        internal: InternalTopics,
    ) -> None:
        self._image = controller.image
        self._config = config
        self._groups = groups
        self._transactions = transactions
        self._internal = internal

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=10, versions=range(7), handle=self.find_coordinator),)

    def find_coordinator(self, context: RequestContext, request: gen.Request) -> Eventual[gen.Response]:
        if (request.key_type == GROUP and not self._internal.has_offsets()) or (
            request.key_type == TRANSACTION and not self._internal.has_transactions()
        ):
            return self._make_and_respond(context, request)
        return self._respond(context, request)

    @in_turns
    async def _make_and_respond(self, context: RequestContext, request: gen.Request) -> gen.Response:
        # Where it cannot be made, the response says that there is no coordinator yet.
        with suppress(BrokerError):
            if request.key_type == GROUP:
                await self._internal.ensure_offsets()
            else:
                await self._internal.ensure_transactions()
        return self._respond(context, request)

    def _respond(self, context: RequestContext, request: gen.Request) -> gen.Response:
        if context.api_version >= BATCHED_FROM:
            return gen.Response(
                coordinators=each(request.coordinator_keys, lambda key: self._find(context, key, request.key_type))
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
            node_id = self._keeper(key, key_type)
            at = self._place(context, node_id)
        except BrokerError as error:
            # The message of a bad share key is left empty, as Kafka leaves it.
            message = "" if key_type == SHARE else error.wire_message
            return gen.Coordinator(
                key=key, node_id=NOBODY, host="", port=NOBODY, error_code=error.code, error_message=message
            )
        return gen.Coordinator(key=key, node_id=node_id, host=at.host, port=at.port)

    def _keeper(self, key: str, key_type: int) -> int:
        """The broker that looks after something; -1 where nobody does."""
        if key_type not in (GROUP, TRANSACTION, SHARE):
            raise InvalidRequest()
        if key_type == SHARE:
            check_share_key(key)
            return self._config.current.broker_id
        coordinators = self._groups if key_type == GROUP else self._transactions
        topic = self._image.topics.get(GROUP_OFFSETS_TOPIC if key_type == GROUP else TRANSACTION_STATE_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable()
        partition = coordinators.partition_of(key)
        leader = topic.partitions[partition].leader
        if leader == self._config.current.broker_id and not coordinators.is_online(partition):
            raise CoordinatorNotAvailable()
        return leader

    def _place(self, context: RequestContext, broker_id: int) -> BrokerEndpoint:
        broker = self._image.brokers.get(broker_id)
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
