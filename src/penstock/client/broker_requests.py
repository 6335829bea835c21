"""Requests about brokers as a whole: cordon them, forget them, and give leaderships to preferred replicas."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.cluster_state import ClusterState, broker_settings
from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import failure
from penstock.client.library import kafka
from penstock.client.reassignments import Place
from penstock.client.wire_calls import WireCalls, refuse
from penstock.config.replica import ALL_LOG_DIRS, CORDONED_LOG_DIRS
from penstock.wire.api import elect_leaders, incremental_alter_configs, unregister_broker

ALTER_CONFIGS_VERSION = 1
ELECT_VERSION = 2
UNREGISTER_VERSION = 0
BROKER_RESOURCE = 4
SET, DELETE = 0, 1
PREFERRED = 0


def cordon(calls: WireCalls, broker: int, *, begins: bool) -> None:
    """Keep new replicas off a broker, or end that.

    Any broker takes the request to the controller: Kafka's clients send it to the broker itself, which may be down.
    """
    doing = f"cannot {'cordon' if begins else 'uncordon'} broker {broker}"
    setting = incremental_alter_configs.AlterableConfig(
        name=CORDONED_LOG_DIRS,
        config_operation=SET if begins else DELETE,
        value=ALL_LOG_DIRS if begins else None,
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker), configs=[setting]
    )
    request = incremental_alter_configs.Request(resources=[resource])
    response: incremental_alter_configs.Response = calls.of_anyone(
        doing, incremental_alter_configs, ALTER_CONFIGS_VERSION, request
    )
    [result] = response.responses
    if result.error_code:
        raise failure(kafka().KafkaError(result.error_code, result.error_message), doing)


def cordoned_brokers(
    state: ClusterState, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX
) -> frozenset[int]:
    """The live brokers that get no new replicas; each says so itself."""
    return frozenset(
        each.broker_id
        for each in state.brokers
        if broker_settings(each, (CORDONED_LOG_DIRS,), connection, seconds_max).get(CORDONED_LOG_DIRS)
    )


def unregister(calls: WireCalls, broker: int) -> None:
    """Have the cluster forget a broker that is down."""
    doing = f"cannot remove broker {broker}"
    response: unregister_broker.Response = calls.of_anyone(
        doing, unregister_broker, UNREGISTER_VERSION, unregister_broker.Request(broker_id=broker)
    )
    if response.error_code:
        raise failure(kafka().KafkaError(response.error_code, response.error_message), doing)


def elect_preferred(calls: WireCalls, places: Iterable[Place]) -> None:
    """Let the first replica of some partitions lead; those that cannot, or do already, stay as they are."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    if not by_topic:
        return
    doing = "cannot elect preferred leaders"
    wanted = [elect_leaders.TopicPartitions(topic=name, partitions=parts) for name, parts in by_topic.items()]
    request = elect_leaders.Request(election_type=PREFERRED, topic_partitions=wanted)
    response: elect_leaders.Response = calls.of_anyone(doing, elect_leaders, ELECT_VERSION, request)
    refuse(doing, response.error_code)
