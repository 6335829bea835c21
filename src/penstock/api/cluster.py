"""Metadata (3) and DescribeCluster (60), every version: the brokers, the topics and their leaders.

A topic that Metadata creates automatically is in the response to the same request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from penstock.api.admin_log import AdminLog
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.internal_topics import TopicCreator
from penstock.controller.topics import NewTopic
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import BrokerEndpoint, BrokerState
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidRequest,
    LeaderNotAvailable,
    ListenerNotFound,
    MismatchedEndpointType,
    ReplicaNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
)
from penstock.model.ids import NO_BROKER, TOPIC_ID_ZERO, TopicId
from penstock.model.topic import PartitionState, TopicState, check_topic_name
from penstock.wire.api import describe_cluster as described
from penstock.wire.api import metadata as gen
from penstock.wire.slices import each

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Read, write, create, delete, alter, describe, and both of configs: without ACLs every operation is authorized."""

CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_REQUESTED = -(2**31)
VERSION_LATEST = 13
ENDPOINT_OF_BROKERS = 1
ENDPOINT_OF_CONTROLLERS = 2
TOPICS_AT_ONCE_MAX = 16
"""Topics described in one turn of the loop: each may have many partitions."""

Found = TopicState | str | bytes
"""A topic, or the name or the id of one that does not exist."""


class Cluster:
    """Responds from the metadata image; creates missing topics where client and broker allow it."""

    def __init__(self, *, controller: TopicCreator, config: LiveConfig, changes: AdminLog) -> None:
        self._controller = controller
        self._changes = changes
        self._image = controller.image
        self._config = config

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=3, versions=range(14), handle=self.metadata),
            Api(key=60, versions=range(3), handle=self.describe_cluster),
        )

    def metadata(self, context: RequestContext, request: gen.Request) -> Eventual[gen.Response]:
        version = context.api_version
        topics = request.topics
        if topics is None or (version == 0 and not topics):
            return self._respond(
                context, request, [*self._image.topics.values(), *(view.topic for view in self._image.views.values())]
            )
        if any(topic.name is None or topic.topic_id != TOPIC_ID_ZERO for topic in topics):
            if version < 12 or any(topic.name is None and topic.topic_id == TOPIC_ID_ZERO for topic in topics):
                return refused(topics)
            return self._by_id(context, request, topics)
        names = dict.fromkeys(topic.name for topic in topics if topic.name is not None)
        missing = [name for name in names if name not in self._image.topics and name not in self._image.views]
        if missing and request.allow_auto_topic_creation and self._config.current.auto_create_topics_enable:
            return self._create_and_respond(context, request, names, missing)
        return self._by_name(context, request, names)

    @in_turns
    async def _create_and_respond(
        self, context: RequestContext, request: gen.Request, names: Iterable[str], missing: list[str]
    ) -> gen.Response:
        wanted = [NewTopic(name=name) for name in missing if name_fault(name) is None]
        if wanted:
            # Where the creation fails, the response says that the topic is unknown, and the client retries.
            with suppress(BrokerError):
                made = [each for each in await self._controller.create_topics(wanted) if isinstance(each, TopicState)]
                lines = [
                    ("topic_auto_created", {"topic": each.name, "partitions": len(each.partitions)}) for each in made
                ]
                self._changes.write(context, lines)
        return self._by_name(context, request, names)

    def _by_name(self, context: RequestContext, request: gen.Request, names: Iterable[str]) -> gen.Response:
        """Unknown topics follow known ones."""
        found: list[Found] = []
        absent: list[Found] = []
        topics, views = self._image.topics, self._image.views
        for name in names:
            if name in topics:
                found.append(topics[name])
            elif name in views:
                found.append(views[name].topic)
            else:
                absent.append(name)
        return self._respond(context, request, found + absent)

    def _by_id(
        self, context: RequestContext, request: gen.Request, topics: list[gen.MetadataRequestTopic]
    ) -> gen.Response:
        """An id takes precedence over a name beside it; topics requested by name alone are left out, as in Kafka."""
        found: list[Found] = []
        absent: list[Found] = []
        for topic_id in dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != TOPIC_ID_ZERO):
            topic = self._image.shown_by_id(TopicId(topic_id))
            if topic is not None:
                found.append(topic)
            else:
                absent.append(topic_id)
        return self._respond(context, request, found + absent)

    def _respond(self, context: RequestContext, request: gen.Request, found: Sequence[Found]) -> gen.Response:
        reach = Reach(self._image.live_brokers(), context.connection.listener, context.api_version)
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_NOT_REQUESTED

        def result(topic: Found) -> gen.MetadataResponseTopic:
            if isinstance(topic, str):
                error = name_fault(topic) or UnknownTopicOrPartition()
                return gen.MetadataResponseTopic(error_code=error.code, name=topic)
            if isinstance(topic, bytes):
                return gen.MetadataResponseTopic(error_code=UnknownTopicId.code, name=None, topic_id=topic)
            return gen.MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.internal,
                partitions=each(topic.shown_partitions, reach.partition),
                topic_authorized_operations=operations,
            )

        brokers = [
            gen.MetadataResponseBroker(node_id=broker.broker_id, host=at.host, port=at.port, rack=broker.rack)
            for broker, at in reach.endpoints
        ]
        return gen.Response(
            brokers=brokers,
            cluster_id=self._image.cluster_id,
            controller_id=self._image.controller_id,
            topics=each(found, result, at_once_max=TOPICS_AT_ONCE_MAX),
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_REQUESTED
            ),
        )

    def describe_cluster(self, context: RequestContext, request: described.Request) -> described.Response:
        if request.endpoint_type != ENDPOINT_OF_BROKERS:
            return wrong_endpoint(request.endpoint_type)
        shown = self._image.brokers.values() if request.include_fenced_brokers else self._image.live_brokers()
        reach = Reach(shown, context.connection.listener)
        return described.Response(
            cluster_id=self._image.cluster_id,
            controller_id=self._image.controller_id,
            brokers=[
                described.DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=at.host,
                    port=at.port,
                    rack=broker.rack,
                    is_fenced=not self._image.is_live(broker.broker_id),
                )
                for broker, at in reach.endpoints
            ],
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_REQUESTED
            ),
        )


class Reach:
    """The brokers that a client of one listener can reach, and their endpoints."""

    def __init__(self, brokers: Iterable[BrokerState], listener: str, version: int = VERSION_LATEST) -> None:
        self.endpoints: list[tuple[BrokerState, BrokerEndpoint]] = []
        self._up: set[int] = set()
        self._reachable: set[int] = set()
        self._version = version
        for broker in brokers:
            self._up.add(broker.broker_id)
            endpoint = broker.endpoint(listener)
            if endpoint is not None:
                self.endpoints.append((broker, endpoint))
                self._reachable.add(broker.broker_id)

    def partition(self, state: PartitionState) -> gen.MetadataResponsePartition:
        up = self._up
        leader, error = state.leader, 0
        replicas: list[int] = [*state.replicas]
        isr: list[int] = [*state.isr]
        offline = [] if up.issuperset(state.replicas) else [broker for broker in replicas if broker not in up]
        if leader not in self._reachable:
            elsewhere = leader in up and self._version >= 6
            error = ListenerNotFound.code if elsewhere else LeaderNotAvailable.code
            leader = NO_BROKER
        elif offline and self._version == 0:
            # Clients of version 0 expect every broker in the list to be up.
            error = ReplicaNotAvailable.code
        if offline and self._version == 0:
            replicas = [broker for broker in replicas if broker in up]
            isr = [broker for broker in isr if broker in up]
        return gen.MetadataResponsePartition(
            error_code=error,
            partition_index=state.index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )


def name_fault(name: str) -> BrokerError | None:
    try:
        check_topic_name(name)
    except BrokerError as error:
        return error
    return None


def refused(topics: list[gen.MetadataRequestTopic]) -> gen.Response:
    """Fail every topic of an invalid request; the response has nothing else."""

    def refusal(topic: gen.MetadataRequestTopic) -> gen.MetadataResponseTopic:
        return gen.MetadataResponseTopic(error_code=InvalidRequest.code, name=topic.name or "", topic_id=topic.topic_id)

    return gen.Response(
        topics=each(topics, refusal),
        error_code=InvalidRequest.code,
    )


def wrong_endpoint(endpoint_type: int) -> described.Response:
    if endpoint_type == ENDPOINT_OF_CONTROLLERS:
        error: BrokerError = MismatchedEndpointType(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    else:
        error = UnsupportedEndpointType(f"Unsupported endpoint type {endpoint_type}")
    return described.Response(error_code=error.code, error_message=error.wire_message)
