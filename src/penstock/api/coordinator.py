"""FindCoordinator (10), every version: the coordinator of a group, a transactional id or a share partition.

The coordinator of a group is the leader of its partition of `__consumer_offsets`. The first request creates that topic
and waits for it, since an error would only make every client retry; likewise `__transaction_state` for a transactional
id. Every broker responds alike, from the metadata: COORDINATOR_NOT_AVAILABLE while the partition has no live leader, or
while too few brokers are live to create the topic.

There is no topic for share partitions yet: their coordinators are the live brokers in turn, by the hash of the key.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from contextlib import suppress

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.controller.internal_topics import InternalTopics
from penstock.coordinator.runtime import partition_of
from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import BrokerEndpoint
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, InvalidRequest
from penstock.model.ids import BrokerId
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
        # Where the topic cannot be created, the response is CoordinatorNotAvailable.
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
        if key_type not in (GROUP, TRANSACTION, SHARE):
            raise InvalidRequest()
        if key_type == SHARE:
            check_share_key(key)
            return self._share_coordinator_id(key)
        coordinators = self._groups if key_type == GROUP else self._transactions
        topic = self._image.topics.get(GROUP_OFFSETS_TOPIC if key_type == GROUP else TRANSACTION_STATE_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable()
        partition = coordinators.partition_of(key)
        leader = topic.partitions[partition].leader
        if leader == self._config.current.broker_id and not coordinators.is_online(partition):
            raise CoordinatorNotAvailable()
        return leader

    def _share_coordinator_id(self, key: str) -> BrokerId:
        live = sorted(broker.broker_id for broker in self._image.live_brokers())
        if not live:
            raise CoordinatorNotAvailable()
        return live[partition_of(key, len(live))]

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
