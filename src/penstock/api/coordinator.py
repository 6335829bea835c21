"""FindCoordinator (10), every version: the coordinator of a group, a transactional id or a share partition.

The coordinator of a group is the leader of its partition of `__consumer_offsets`. The first request creates that topic
and waits for it, since an error would only make every client retry; likewise `__transaction_state` for a transactional
id and `__share_group_state` for a share partition. Every broker responds alike, from the metadata:
COORDINATOR_NOT_AVAILABLE while the partition has no live leader, or while too few brokers are live to create the topic.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from contextlib import suppress
from typing import Any

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.controller.internal_topics import InternalTopics
from penstock.coordinator.runtime import CoordinatorRuntime
from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import BrokerEndpoint
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, InvalidRequest
from penstock.model.ids import BrokerId
from penstock.model.topic import GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.shares.state.service import ShareCoordinatorService
from penstock.transactions.service import TxnCoordinatorService
from penstock.wire.api import find_coordinator as gen
from penstock.wire.slices import each

GROUP = 0
TRANSACTION = 1
SHARE = 2
BATCHED_FROM = 4
SHARE_FROM = 6
SHARE_KEY_PARTS = 3
TOPIC_ID_CHARACTERS = 22
NO_NODE = -1


class Coordinators:
    """Finds coordinators, with their endpoints on the listener of the request."""

    def __init__(
        self,
        *,
        controller: Controller,
        config: LiveConfig,
        groups: GroupCoordinatorService,
        transactions: TxnCoordinatorService,
        shares: ShareCoordinatorService,
        internal: InternalTopics,
    ) -> None:
        self._image = controller.image
        self._config = config
        self._internal = internal
        self._kinds: dict[int, tuple[str, CoordinatorRuntime[Any, Any]]] = {
            GROUP: (GROUP_OFFSETS_TOPIC, groups),
            TRANSACTION: (TRANSACTION_STATE_TOPIC, transactions),
            SHARE: (SHARE_STATE_TOPIC, shares),
        }
        """The topic and the coordinators of each kind of key."""

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=10, versions=range(7), handle=self.find_coordinator),)

    def find_coordinator(self, context: RequestContext, request: gen.Request) -> Eventual[gen.Response]:
        kind = self._kinds.get(request.key_type)
        if kind is not None and kind[0] not in self._image.topics:
            return self._make_and_respond(context, request)
        return self._respond(context, request)

    @in_turns
    async def _make_and_respond(self, context: RequestContext, request: gen.Request) -> gen.Response:
        # Where the topic cannot be created, the response is CoordinatorNotAvailable.
        with suppress(BrokerError):
            if request.key_type == GROUP:
                await self._internal.ensure_offsets()
            elif request.key_type == TRANSACTION:
                await self._internal.ensure_transactions()
            else:
                await self._internal.ensure_shares()
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
            if key_type == SHARE and context.api_version < SHARE_FROM:
                raise InvalidRequest()
            node_id = self._coordinator_id(key, key_type)
            at = self._endpoint(context, node_id)
        except BrokerError as error:
            # The message for an invalid share key is empty, as in Kafka.
            message = "" if key_type == SHARE else error.wire_message
            return gen.Coordinator(
                key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error.code, error_message=message
            )
        return gen.Coordinator(key=key, node_id=node_id, host=at.host, port=at.port)

    def _coordinator_id(self, key: str, key_type: int) -> BrokerId:
        """The broker id of a coordinator; -1 where the partition has no leader."""
        if key_type not in self._kinds:
            raise InvalidRequest()
        if key_type == SHARE:
            check_share_key(key)
        name, coordinators = self._kinds[key_type]
        topic = self._image.topics.get(name)
        if topic is None:
            raise CoordinatorNotAvailable()
        partition = coordinators.partition_of(key)
        leader = topic.partitions[partition].leader
        if leader == self._config.current.broker_id and not coordinators.is_online(partition):
            raise CoordinatorNotAvailable()
        return leader

    def _endpoint(self, context: RequestContext, broker_id: BrokerId) -> BrokerEndpoint:
        broker = self._image.brokers.get(broker_id) if self._image.is_live(broker_id) else None
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
