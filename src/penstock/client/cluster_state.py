"""The partitions of a cluster as monitoring sees them: leaders, in-sync replicas, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.client.admin import Admin, PartitionInfo, Resource, TopicInfo
from penstock.client.calls import AdminCalls
from penstock.client.cluster import BrokerInfo
from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError
from penstock.client.wire_calls import WireCalls, speaks_plaintext
from penstock.model.topic import COORDINATOR_FACTORS, waits_for_brokers
from penstock.wire.api import describe_configs, describe_topic_partitions

NO_LEADER = -1
MIN_ISR = "min.insync.replicas"
MIN_ISR_DEFAULT = 1
PARTITIONS_GHOSTS = "partitions.ghosts"
"""Described beside a topic's settings: drained partitions without replicas."""
DESCRIBE_CONFIGS_VERSION = 4
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
ZOOKEEPER = "zookeeper.connect"
DESCRIBE_PARTITIONS_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHealth:
    """How many partitions of a topic lack something."""

    topic: str
    internal: bool
    partitions: int
    replicas: int
    offline: int
    """Without a leader: nothing can be written to them or read from them."""
    under_replicated: int
    """With fewer in-sync replicas than replicas."""
    under_min_isr: int
    """With fewer in-sync replicas than acks=all needs: such writes are refused."""

    @property
    def is_healthy(self) -> bool:
        return not (self.offline or self.under_replicated or self.under_min_isr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Who may lead a partition whose ISR is too small (KIP-966)."""

    eligible: tuple[int, ...]
    last_known: tuple[int, ...]
    """The last leader, of a partition that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The live brokers, the controller, and every topic at one moment."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]

    def partitions(self) -> Iterator[PartitionInfo]:
        for topic in self.topics:
            yield from topic.partitions

    @property
    def live(self) -> frozenset[int]:
        return frozenset(each.broker_id for each in self.brokers)

    @property
    def offline(self) -> int:
        """Partitions without a leader: nothing can be written to them or read from them."""
        return sum(1 for each in self.partitions() if is_offline(each))

    @property
    def under_replicated(self) -> int:
        """Partitions with fewer in-sync replicas than replicas."""
        return sum(1 for each in self.partitions() if is_under_replicated(each))

    def leaders(self) -> Counter[int]:
        """How many partitions each broker leads."""
        return Counter(each.leader for each in self.partitions() if not is_offline(each))

    def replicas(self) -> Counter[int]:
        """How many replicas are assigned to each broker."""
        return Counter(broker for each in self.partitions() for broker in each.replicas)

    def in_sync(self) -> Counter[int]:
        """How many of its replicas are in their partition's ISR, for each broker."""
        return Counter(broker for each in self.partitions() for broker in each.isr)


def is_offline(partition: PartitionInfo) -> bool:
    return partition.leader <= NO_LEADER


def is_under_replicated(partition: PartitionInfo) -> bool:
    return len(partition.isr) < len(partition.replicas)


def state_of(connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> ClusterState:
    """The state of a cluster: over our own codec where it can, which no single broker that hangs delays for long."""
    if speaks_plaintext(connection):
        return state_over_wire(connection, seconds_max)
    calls = AdminCalls(connection, seconds_max)
    found = calls.whole("cannot describe the cluster", calls.client.describe_cluster)
    brokers = (
        BrokerInfo(broker_id=each.id, host=each.host, port=each.port, rack=each.rack)
        for each in sorted(found.nodes, key=lambda each: int(each.id))
    )
    return make_state(
        found.cluster_id,
        None if found.controller is None else found.controller.id,
        tuple(brokers),
        Admin(connection, seconds_max).topics(),
    )


def make_state(
    cluster_id: str | None, controller: int | None, brokers: tuple[BrokerInfo, ...], topics: tuple[TopicInfo, ...]
) -> ClusterState:
    """A controller that is not live cannot be reached, so there is none."""
    reachable = controller is not None and any(each.broker_id == controller for each in brokers)
    return ClusterState(
        cluster_id=cluster_id or "", controller=controller if reachable else None, brokers=brokers, topics=topics
    )


def topics_health(
    state: ClusterState, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX
) -> tuple[TopicHealth, ...]:
    """Every topic's health; only for those that lack replicas is min.insync.replicas requested."""
    behind = [topic.name for topic in state.topics if any(map(is_under_replicated, topic.partitions))]
    needed = min_isr_of(behind, live_first(state, connection), seconds_max) if behind else {}
    return tuple(topic_health(topic, needed.get(topic.name, MIN_ISR_DEFAULT)) for topic in state.topics)


def live_first(state: ClusterState, connection: Connection) -> Connection:
    """The connection with the live brokers first: one that hangs is waited for once and not with every request."""
    if not speaks_plaintext(connection):
        return connection
    live = (f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}" for each in state.brokers)
    return replace(connection, bootstrap=",".join((*live, connection.bootstrap)))


def topic_health(topic: TopicInfo, min_isr: int) -> TopicHealth:
    """A partition with fewer replicas than `min_isr` needs all of them."""
    return TopicHealth(
        topic=topic.name,
        internal=topic.internal,
        partitions=len(topic.partitions),
        replicas=max((len(each.replicas) for each in topic.partitions), default=0),
        offline=sum(map(is_offline, topic.partitions)),
        under_replicated=sum(map(is_under_replicated, topic.partitions)),
        under_min_isr=sum(len(each.isr) < min(min_isr, len(each.replicas)) for each in topic.partitions),
    )


def min_isr_of(topics: Iterable[str], connection: Connection, seconds_max: float) -> dict[str, int]:
    """min.insync.replicas of each topic; a topic that was deleted meanwhile is left out."""
    return {name: int(value) for name, value in setting_of(MIN_ISR, topics, connection, seconds_max).items()}


def replicated_state_of(connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> ClusterState:
    """The state of a cluster without ghosts: these are shown with the replicas of their targets, and have none."""
    state = state_of(connection, seconds_max)
    names = [topic.name for topic in state.topics if not topic.internal]
    found = setting_of(PARTITIONS_GHOSTS, names, live_first(state, connection), seconds_max) if names else {}
    if not found:
        return state
    ghosts = {(name, int(index)) for name, indexes in found.items() for index in indexes.split(",")}

    def replicated(topic: TopicInfo) -> TopicInfo:
        kept = (each for each in topic.partitions if (topic.name, each.partition) not in ghosts)
        return replace(topic, partitions=tuple(kept))

    return replace(state, topics=tuple(map(replicated, state.topics)))


def setting_of(setting: str, topics: Iterable[str], connection: Connection, seconds_max: float) -> dict[str, str]:
    """One setting of each topic that has it."""
    found: dict[str, str] = {}
    if not speaks_plaintext(connection):
        admin = Admin(connection, seconds_max)
        for name in topics:
            for each in admin.configs(Resource(kind="topic", name=name)):
                if each.name == setting and each.value is not None:
                    found[name] = each.value
        return found
    wanted = [
        describe_configs.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[setting]
        )
        for name in topics
    ]
    request = describe_configs.Request(resources=wanted)
    with WireCalls(connection, seconds_max) as calls:
        doing = "cannot describe settings of topics"
        response = calls.of_anyone(doing, describe_configs, DESCRIBE_CONFIGS_VERSION, request)
    for result in response.results:
        for each in result.configs:
            if each.name == setting and each.value is not None:
                found[result.resource_name] = each.value
    return found


def waiting_topics(
    state: ClusterState, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX
) -> tuple[str, ...]:
    """The coordinators' topics that wait for more brokers, in words; none where the brokers do not say.

    Only brokers on ZooKeeper wait: any other has all the brokers that it will ever have.
    """
    known = {topic.name for topic in state.topics}
    missing = {name: setting for name, setting in COORDINATOR_FACTORS.items() if name not in known}
    if not missing or not state.brokers:
        return ()
    settings = broker_settings(state.brokers[0], (ZOOKEEPER, *missing.values()), connection, seconds_max)
    if not settings.get(ZOOKEEPER):
        return ()
    return tuple(
        waits_for_brokers(name, int(settings[setting]), len(state.live))
        for name, setting in missing.items()
        if int(settings.get(setting, 0)) > len(state.live)
    )


def broker_settings(
    broker: BrokerInfo, names: Iterable[str], connection: Connection, seconds_max: float
) -> dict[str, str]:
    """Some settings of a broker, without those that it does not have; none where it does not respond."""
    wanted = list(names)
    name = str(broker.broker_id)
    try:
        if not speaks_plaintext(connection):
            found = Admin(connection, seconds_max).configs(Resource(kind="broker", name=name))
            return {each.name: each.value for each in found if each.name in wanted and each.value is not None}
        resource = describe_configs.DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=name, configuration_keys=wanted
        )
        with WireCalls(connection, seconds_max) as calls:
            response = calls.ask(
                f"cannot describe broker {name}",
                (broker.host, broker.port),
                describe_configs,
                DESCRIBE_CONFIGS_VERSION,
                describe_configs.Request(resources=[resource]),
            )
    except ClientError:
        return {}
    return {each.name: each.value for one in response.results for each in one.configs if each.value is not None}


def candidates_of(
    topic: str, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX
) -> Mapping[int, Candidates]:
    """The eligible replicas of each partition, by index; empty where brokers cannot say, as before Kafka 3.8."""
    if not speaks_plaintext(connection):
        return {}
    found: dict[int, Candidates] = {}
    cursor: Any = None
    try:
        with WireCalls(connection, seconds_max) as calls:
            while True:
                request = describe_topic_partitions.Request(
                    topics=[describe_topic_partitions.TopicRequest(name=topic)], cursor=cursor
                )
                doing = f"cannot describe topic {topic}"
                response = calls.of_anyone(doing, describe_topic_partitions, DESCRIBE_PARTITIONS_VERSION, request)
                for each in (part for one in response.topics for part in one.partitions):
                    found[each.partition_index] = Candidates(
                        eligible=tuple(each.eligible_leader_replicas or ()), last_known=tuple(each.last_known_elr or ())
                    )
                cursor = response.next_cursor
                if cursor is None:
                    return found
    except ClientError:
        return found


def state_over_wire(connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> ClusterState:
    """The state that the first broker of the bootstrap list to respond knows, with a single Metadata request."""
    with WireCalls(connection, seconds_max) as calls:
        found = calls.metadata(None)
    return make_state(
        found.cluster_id,
        found.controller_id,
        tuple(
            BrokerInfo(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in sorted(found.brokers, key=lambda each: each.node_id)
        ),
        tuple(
            TopicInfo(
                name=topic.name or "",
                internal=topic.is_internal,
                partitions=tuple(
                    PartitionInfo(
                        partition=each.partition_index,
                        leader=each.leader_id,
                        replicas=tuple(each.replica_nodes),
                        isr=tuple(each.isr_nodes),
                    )
                    for each in sorted(topic.partitions, key=lambda each: each.partition_index)
                ),
            )
            for topic in sorted(found.topics, key=lambda topic: topic.name or "")
        ),
    )
