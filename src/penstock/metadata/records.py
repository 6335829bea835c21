"""Where each fact of a cluster stands in the metadata store, and in which words."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import PartitionState, TopicState

CLUSTER = "/cluster"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"
BROKERS = "/brokers"
TOPICS = "/topics"
CONFIGS = "/configs"
BROKER_CONFIGS = "/configs/brokers"
GROUP_CONFIGS = "/configs/groups"
QUOTAS = "/quotas"
PRODUCER_IDS = "/producer-ids"
DELETIONS = "/deletions"
"""Topics whose deletion was requested and whose logs some broker may still have, by topic id."""
DIRECTORIES = (BROKERS, TOPICS, CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, QUOTAS, DELETIONS)
"""Nodes that only hold others, parents first; a start creates those that its store lacks."""

ALL_BROKERS = "<default>"
"""In the place of a broker's id: the settings of every broker."""

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def deletion_path(topic_id: TopicId) -> str:
    return f"{DELETIONS}/{topic_id.hex()}"


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKERS}/{broker_id}"


def broker_config_path(broker: str) -> str:
    return f"{BROKER_CONFIGS}/{broker}"


def group_config_path(group: str) -> str:
    return f"{GROUP_CONFIGS}/{quote(group, safe='')}"


def last_name(path: str) -> str:
    """The last step of a path, as it was before it was made fit for one."""
    return unquote(path.rpartition("/")[2])


def pack(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


@lru_cache(maxsize=4096)
def brokers_shared(brokers: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """One object for all partitions with the same replicas: ten thousand of them need a handful."""
    return brokers


def pack_topic(topic: TopicState) -> bytes:
    """A topic without its name, which is the node's."""
    record: dict[str, Any] = {
        "id": b64encode(topic.topic_id).decode(),
        "partitions": [
            [p.leader, p.leader_epoch, list(p.replicas), list(p.isr), p.partition_epoch] for p in topic.partitions
        ],
    }
    if topic.configs:
        record["configs"] = dict(topic.configs)
    if topic.grown_from is not None:
        record["grown_from"] = topic.grown_from
    return pack(record)


def unpack_topic(name: str, data: bytes, version: int) -> TopicState:
    record = json.loads(data)
    partitions = tuple(
        PartitionState(
            index=index,
            leader=leader,
            leader_epoch=leader_epoch,
            replicas=brokers_shared(tuple(replicas)),
            isr=brokers_shared(tuple(isr)),
            partition_epoch=partition_epoch,
        )
        for index, (leader, leader_epoch, replicas, isr, partition_epoch) in enumerate(record["partitions"])
    )
    return TopicState(
        name=name,
        topic_id=TopicId(b64decode(record["id"])),
        configs=record.get("configs", NO_CONFIGS),
        partitions=partitions,
        version=version,
        grown_from=record.get("grown_from"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A topic that a client deleted. A broker removes itself once it has no log of it; the last one ends it."""

    topic_id: TopicId
    name: str
    brokers: tuple[int, ...]
    """Replicas that may still have a log."""
    version: int = 0
    created: int = 0
    """The number of the transaction that deleted the topic."""


def pack_deletion(deletion: Deletion) -> bytes:
    return pack({"topic": deletion.name, "brokers": list(deletion.brokers)})


def unpack_deletion(path: str, data: bytes, version: int, created: int) -> Deletion:
    record = json.loads(data)
    return Deletion(
        topic_id=TopicId(bytes.fromhex(last_name(path))),
        name=record["topic"],
        brokers=tuple(record["brokers"]),
        version=version,
        created=created,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """Where clients of one listener find a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker that is up: registered by itself, gone with its session. `epoch` tells one life from the next."""

    broker_id: BrokerId
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    epoch: int = 0

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Where to send a client that came in through that listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


def pack_broker(broker: BrokerState) -> bytes:
    endpoints = [[endpoint.listener, endpoint.host, endpoint.port] for endpoint in broker.endpoints]
    return pack({"endpoints": endpoints, "rack": broker.rack})


def unpack_broker(broker_id: BrokerId, data: bytes, epoch: int) -> BrokerState:
    record = json.loads(data)
    endpoints = tuple(
        BrokerEndpoint(listener=listener, host=host, port=port) for listener, host, port in record["endpoints"]
    )
    return BrokerState(broker_id=broker_id, endpoints=endpoints, rack=record["rack"], epoch=epoch)


def unpack_settings(data: bytes) -> dict[str, str]:
    record: dict[str, str] = json.loads(data)
    return record


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a client quota is for: (type, name) pairs sorted by type; no name is the default of that type."""


def quota_path(entity: QuotaEntity) -> str:
    """One node per entity. A name may hold any character, so each part is quoted."""
    parts = (f"{kind}={'*' if name is None else quote(name, safe='') or '%'}" for kind, name in entity)
    return f"{QUOTAS}/{'&'.join(parts)}"


def quota_entity(path: str) -> QuotaEntity:
    pairs = (part.split("=", 1) for part in path.rpartition("/")[2].split("&"))
    return tuple((kind, None if name == "*" else "" if name == "%" else unquote(name)) for kind, name in pairs)


def unpack_quotas(data: bytes) -> dict[str, float]:
    record: dict[str, float] = json.loads(data)
    return record
