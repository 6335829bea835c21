"""Where each fact of a cluster is in the metadata store, and in which format.

A topic is a node with its id, settings and number of partitions, and nodes `/partitions/<id>.<chunk>` with the states
of up to 128 partitions each. A topic exists while its own node does: creation writes that one last, deletion removes it
first, and growth raises its number of partitions last. So nodes of partitions may be left without a topic, or reach
beyond its number, after a controller stopped in between; they mean nothing until the next controller removes them.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState, TopicState

CLUSTER = "/cluster"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"
CHANGES = "/changes"
"""Set by every transaction of a controller, at the version it expects: of two that expect the same one, one is done."""
BROKERS = "/brokers"
TOPICS = "/topics"
PARTITIONS = "/partitions"
CONFIGS = "/configs"
BROKER_CONFIGS = "/configs/brokers"
GROUP_CONFIGS = "/configs/groups"
QUOTAS = "/quotas"
PRODUCER_IDS = "/producer-ids"
DELETIONS = "/deletions"
"""Topics whose deletion was requested and whose logs some broker may still have, by topic id."""
PARTITIONS_PER_CHUNK = 128
"""Partition states in one node: a change of one writes them all, and ten thousand partitions are eighty nodes."""

FORMAT = 1
"""Of the records with a version; a record with a greater one was written by a later version of penstock."""

PARTITIONS_MIGRATED = b"1"
"""Data of `/partitions` where no topic is in the format that had its partitions in the topic's own node."""

DIRECTORIES = (BROKERS, TOPICS, CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, QUOTAS, DELETIONS)
"""Nodes that only hold others, parents first; a start creates those that its store lacks."""

ALL_BROKERS = "<default>"
"""In the place of a broker's id: the settings of every broker."""

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def chunk_path(topic_id: TopicId, chunk: int) -> str:
    return f"{PARTITIONS}/{topic_id.hex()}.{chunk}"


def chunk_of(path: str) -> tuple[TopicId, int]:
    """The topic and the number of a node of partitions."""
    topic_id, _, chunk = path.rpartition("/")[2].partition(".")
    return TopicId(bytes.fromhex(topic_id)), int(chunk)


def chunks_needed(partitions: int) -> int:
    return -(-partitions // PARTITIONS_PER_CHUNK)


def chunk_slice(chunk: int) -> slice:
    """The partitions of a chunk, in order of index."""
    return slice(chunk * PARTITIONS_PER_CHUNK, (chunk + 1) * PARTITIONS_PER_CHUNK)


def deletion_path(topic_id: TopicId) -> str:
    return f"{DELETIONS}/{topic_id.hex()}"


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKERS}/{broker_id}"


def broker_config_path(broker: str) -> str:
    return f"{BROKER_CONFIGS}/{broker}"


def group_config_path(group: str) -> str:
    return f"{GROUP_CONFIGS}/{quote(group, safe='')}"


def last_name(path: str) -> str:
    """The last part of a path, without its quoting."""
    return unquote(path.rpartition("/")[2])


DECODE = json.JSONDecoder().decode
"""`json.loads` for text: it guesses the encoding of bytes, which is a third of the time of a small record."""


def pack(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


@lru_cache(maxsize=4096)
def brokers_shared(brokers: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """One object for all partitions with the same replicas: ten thousand of them need a handful."""
    return brokers


class RecordTooNew(Exception):
    """A record was written by a later version of penstock."""


def unpack(data: bytes) -> dict[str, Any]:
    """A record with a version."""
    record: dict[str, Any] = DECODE(data.decode())
    if record["v"] > FORMAT:
        raise RecordTooNew(f"the metadata has a record of format {record['v']}, and this version knows {FORMAT}")
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic's own node: all of it but its partitions."""

    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: int
    partitions_at_creation: int


def pack_topic(topic: TopicState) -> bytes:
    """A topic without its name, which is the node's, and without the states of its partitions."""
    record: dict[str, Any] = {
        "v": FORMAT,
        "id": b64encode(topic.topic_id).decode(),
        "partitions": len(topic.partitions),
        "at_creation": topic.partitions_at_creation,
    }
    if topic.configs:
        record["configs"] = dict(topic.configs)
    return pack(record)


def unpack_topic(data: bytes) -> TopicRecord:
    record = unpack(data)
    return TopicRecord(
        topic_id=TopicId(b64decode(record["id"])),
        configs=record.get("configs", NO_CONFIGS),
        partitions=record["partitions"],
        partitions_at_creation=record["at_creation"],
    )


def pack_partitions(partitions: Sequence[PartitionState]) -> bytes:
    """The states of one chunk; what most partitions do not have is left out."""
    return pack({"v": FORMAT, "partitions": [_packed(partition) for partition in partitions]})


def _packed(state: PartitionState) -> list[Any]:
    usual = [state.leader, state.leader_epoch, state.replicas, state.isr, state.partition_epoch]
    rare: dict[str, Any] = {}
    if state.adding_replicas:
        rare["adding"] = state.adding_replicas
    if state.removing_replicas:
        rare["removing"] = state.removing_replicas
    if state.eligible_leader_replicas:
        rare["eligible"] = state.eligible_leader_replicas
    if state.last_known_leader != NO_LEADER:
        rare["last_leader"] = state.last_known_leader
    if state.leader_recovery_state is not LeaderRecoveryState.RECOVERED:
        rare["recovery"] = state.leader_recovery_state.value
    if state.in_sync_min:
        rare["in_sync_min"] = state.in_sync_min
    return [*usual, rare] if rare else usual


def unpack_partitions(data: bytes, chunk: int) -> tuple[PartitionState, ...]:
    first = chunk * PARTITIONS_PER_CHUNK
    return tuple(_unpacked(index, packed) for index, packed in enumerate(unpack(data)["partitions"], first))


def _unpacked(index: int, packed: list[Any]) -> PartitionState:
    leader, leader_epoch, replicas, isr, partition_epoch, *rest = packed
    usual = PartitionState(
        index=index,
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=brokers_shared(tuple(replicas)),
        isr=brokers_shared(tuple(isr)),
        partition_epoch=partition_epoch,
    )
    if not rest:
        return usual
    rare = rest[0]
    return replace(
        usual,
        adding_replicas=brokers_shared(tuple(rare.get("adding", ()))),
        removing_replicas=brokers_shared(tuple(rare.get("removing", ()))),
        eligible_leader_replicas=brokers_shared(tuple(rare.get("eligible", ()))),
        last_known_leader=rare.get("last_leader", NO_LEADER),
        leader_recovery_state=LeaderRecoveryState(rare.get("recovery", LeaderRecoveryState.RECOVERED)),
        in_sync_min=rare.get("in_sync_min", 0),
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
class ControllerState:
    """The broker that is controller, and the epoch it was elected with. The node goes with the broker's session."""

    broker_id: int
    epoch: int


def pack_controller(controller: ControllerState) -> bytes:
    return pack({"v": FORMAT, "broker": controller.broker_id, "epoch": controller.epoch})


def unpack_controller(data: bytes) -> ControllerState:
    record = unpack(data)
    return ControllerState(broker_id=record["broker"], epoch=record["epoch"])


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """Where clients of one listener find a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A registered broker; it goes with its session. `epoch` is the number of the registration's transaction."""

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
