"""Where each fact of a cluster is in the metadata store, and in which format.

A topic is a node with its id, settings and number of partitions, and nodes `/partitions/<id>.<chunk>` with the states
of up to 128 partitions each. A topic exists while its own node does: creation writes that one last, deletion removes it
first, and growth raises its number of partitions last. So nodes of partitions may be left without a topic, or reach
beyond its number, after a controller stopped in between; they mean nothing until the next controller removes them.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

from penstock.model.cluster_versions import (
    BEFORE_VERSIONS,
    COMPACT_PARTITIONS,
    DRAINED_PARTITIONS,
    FIRST,
    GHOST_PARTITIONS,
    SUPPORTED,
    VersionRange,
)
from penstock.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    OFFSET_ZERO,
    BrokerEpoch,
    BrokerId,
    TopicId,
)
from penstock.model.topic import NO_LEADER, NO_PARTITION, LeaderRecoveryState, PartitionState, TopicState

CLUSTER = "/cluster"
STORE = "/store"
"""The identity of this metadata store, see `StoreIdentity`."""
IMPORTED_SUFFIX = ".imported"
"""Ended the id of a store that was made of an export, before that had a field of its own."""
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"
CHANGES = "/changes"
"""Set by every transaction of a controller, at the version it expects: of two that expect the same one, one is done."""
IMPORT = "/import"
"""In a store that was filled by an import: whether that is complete. No broker starts before."""
IMPORT_INCOMPLETE = b"incomplete"
IMPORT_COMPLETE = b"complete"
BROKERS = "/brokers"
ADMISSIONS = "/admissions"
"""The registration that the controller admitted last, by broker id. It outlives the broker's session."""
TOPICS = "/topics"
VIEWS = "/views"
"""Filtered views of topics, by name: from the cluster version `FILTERED_VIEWS` on."""
PARTITIONS = "/partitions"
CONFIGS = "/configs"
BROKER_CONFIGS = "/configs/brokers"
GROUP_CONFIGS = "/configs/groups"
QUOTAS = "/quotas"
FEATURES = "/features"
"""The finalized version of the cluster, see `Features`; a cluster without this node is of the first one."""
PRODUCER_IDS = "/producer-ids"
DELETIONS = "/deletions"
"""Topics whose deletion was requested and whose logs some broker may still have, by topic id."""
PARTITIONS_PER_CHUNK = 128
"""Partition states in one node: a change of one writes them all, and ten thousand partitions are eighty nodes."""

FORMAT = 1
"""Of most records. A record with a greater one than a broker knows was written by a later version of penstock."""
FORMAT_COMPACT = 2
"""Of partition states from the cluster version `COMPACT_PARTITIONS` on, and then also of the store's identity: brokers
of before refuse that, so none of them starts."""
FORMAT_DRAINING = 3
"""Of partition states of which some are drained or resume: otherwise as the compact one."""
FORMAT_GHOSTS = 4
"""Of partition states of which some are or were ghosts, or may become ones: otherwise as the one before."""


def format_max(supported: VersionRange) -> int:
    """The latest format that a broker reads which supports these cluster versions."""
    if supported.highest >= GHOST_PARTITIONS:
        return FORMAT_GHOSTS
    return FORMAT_DRAINING if supported.highest >= DRAINED_PARTITIONS else partitions_format(supported.highest)


def partitions_format(level: int) -> int:
    """The format of most partition states in a cluster of a version."""
    return FORMAT_COMPACT if level >= COMPACT_PARTITIONS else FORMAT


FORMAT_MAX = format_max(SUPPORTED)

PARTITIONS_MIGRATED = b"1"
"""Data of `/partitions` where no topic is in the format that had its partitions in the topic's own node."""

DIRECTORIES = (BROKERS, ADMISSIONS, TOPICS, VIEWS, CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, QUOTAS, DELETIONS)
"""Nodes that only hold others, parents first; a start creates those that its store lacks."""

ALL_BROKERS = "<default>"
"""In the place of a broker's id: the settings of every broker."""

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})

NOTHING_KEPT: Mapping[TopicId, frozenset[int]] = MappingProxyType({})


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def view_path(name: str) -> str:
    return f"{VIEWS}/{name}"


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


def admission_path(broker_id: BrokerId) -> str:
    return f"{ADMISSIONS}/{broker_id}"


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


@lru_cache(maxsize=65536)
def brokers_shared(brokers: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """One object for all partitions with the same replicas: a cluster of three needs a handful, one of a hundred some
    ten thousand."""
    return brokers


class RecordTooNew(Exception):
    """A record was written by a later version of penstock."""


def unpack(data: bytes, known: int = FORMAT_MAX) -> dict[str, Any]:
    """A record with a version of its format."""
    record: dict[str, Any] = DECODE(data.decode())
    if record["v"] > known:
        raise RecordTooNew(f"the metadata has a record of format {record['v']}, and this version knows {known}")
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The finalized version of the cluster."""

    level: int = FIRST
    epoch: int = 1
    """Goes up with every change: clients use what they heard with the greatest one."""
    version: int | None = None
    """Of the node; None where there is none."""


def pack_features(features: Features) -> bytes:
    return pack({"v": FORMAT, "level": features.level, "epoch": features.epoch})


def unpack_features(data: bytes, version: int) -> Features:
    record = unpack(data)
    return Features(level=record["level"], epoch=record["epoch"], version=version)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """Which metadata store this is. A copy of the metadata in another store has another id: numbers of transactions are
    comparable only within one store."""

    store_id: str
    """Random."""
    imported: bool = False
    """Whether the store was made of an export."""


def pack_store(store: StoreIdentity, level: int = FIRST) -> bytes:
    """As brokers of a cluster version read it."""
    return pack({"v": partitions_format(level), "id": store.store_id, "imported": store.imported})


def unpack_store(data: bytes, known: int = FORMAT_MAX) -> StoreIdentity:
    if not data.startswith(b"{"):
        # Of the first format, which had nothing but an id.
        text = data.decode()
        return StoreIdentity(store_id=text.removesuffix(IMPORTED_SUFFIX), imported=text.endswith(IMPORTED_SUFFIX))
    record = unpack(data, known)
    return StoreIdentity(store_id=record["id"], imported=record["imported"])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRecord:
    """A view's node; its partitions are its parent's."""

    topic_id: TopicId
    parent_id: TopicId
    filter: str
    form: Mapping[str, object]
    version: int = 0
    """Of the node."""


def pack_view(view: ViewRecord) -> bytes:
    return pack(
        {
            "v": FORMAT,
            "id": b64encode(view.topic_id).decode(),
            "of": b64encode(view.parent_id).decode(),
            "filter": view.filter,
            "form": view.form,
        }
    )


def unpack_view(data: bytes, version: int) -> ViewRecord:
    record = unpack(data)
    return ViewRecord(
        topic_id=TopicId(b64decode(record["id"])),
        parent_id=TopicId(b64decode(record["of"])),
        filter=record["filter"],
        form=record["form"],
        version=version,
    )


ALL_IN_SYNC = 0
"""In the place of an ISR that has all replicas in their order."""


def pack_partitions(partitions: Sequence[PartitionState], level: int = FIRST) -> bytes:
    """The states of one chunk, as brokers of a cluster version read them; what most do not have is left out."""
    drains = any(state.drained_into >= 0 or state.resumes_from >= 0 for state in partitions)
    assert level >= DRAINED_PARTITIONS or not drains, "brokers of before cannot read it"
    ghosts = any(is_of_ghosts(state) for state in partitions)
    assert level >= GHOST_PARTITIONS or not ghosts, "brokers of before cannot read it"
    version = FORMAT_GHOSTS if ghosts else FORMAT_DRAINING if drains else partitions_format(level)
    compact = version >= FORMAT_COMPACT
    in_sync_min = partitions[0].in_sync_min if compact and partitions else 0
    packed = [_packed(partition, compact=compact, in_sync_min=in_sync_min) for partition in partitions]
    record = {"v": version, "partitions": packed}
    return pack({**record, "in_sync_min": in_sync_min} if in_sync_min else record)


def is_of_ghosts(state: PartitionState) -> bool:
    """Whether only brokers that know of ghosts can read a state."""
    return state.is_ghost or state.log_base > OFFSET_ZERO or state.drained_since >= 0


def _packed(state: PartitionState, *, compact: bool, in_sync_min: int) -> list[Any]:
    """One state; `in_sync_min` is what the partitions of its chunk have in common."""
    isr = ALL_IN_SYNC if compact and state.isr == state.replicas else state.isr
    usual = [state.leader, state.leader_epoch, state.replicas, isr, state.partition_epoch]
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
    if state.in_sync_min != in_sync_min:
        rare["in_sync_min"] = state.in_sync_min
    if state.replaced_replicas:
        rare["replaced"] = state.replaced_replicas
    if state.failed_replicas:
        rare["failed"] = state.failed_replicas
    if state.drained_into != NO_PARTITION:
        rare["drained_into"] = state.drained_into
    if state.resumes_from != NO_PARTITION:
        rare["resumes_from"] = state.resumes_from
    if state.drained_since != NO_LEADER_EPOCH:
        rare["drained_since"] = state.drained_since
    if state.log_base != OFFSET_ZERO:
        rare["log_base"] = state.log_base
    return [*usual, rare] if rare else usual


def unpack_partitions(data: bytes, chunk: int, known: int = FORMAT_MAX) -> tuple[PartitionState, ...]:
    record = unpack(data, known)
    in_sync_min = record.get("in_sync_min", 0)
    first = chunk * PARTITIONS_PER_CHUNK
    return tuple(_unpacked(index, packed, in_sync_min) for index, packed in enumerate(record["partitions"], first))


def _unpacked(index: int, packed: list[Any], in_sync_min: int) -> PartitionState:
    leader, leader_epoch, replicas, isr, partition_epoch, *rest = packed
    brokers = brokers_shared(tuple(replicas))
    in_sync = brokers if isr == ALL_IN_SYNC else brokers_shared(tuple(isr))
    if not rest:
        return PartitionState(
            index=index,
            leader=leader,
            leader_epoch=leader_epoch,
            replicas=brokers,
            isr=in_sync,
            partition_epoch=partition_epoch,
            in_sync_min=in_sync_min,
        )
    rare = rest[0]
    return PartitionState(
        index=index,
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=brokers,
        isr=in_sync,
        partition_epoch=partition_epoch,
        adding_replicas=brokers_shared(tuple(rare.get("adding", ()))),
        removing_replicas=brokers_shared(tuple(rare.get("removing", ()))),
        eligible_leader_replicas=brokers_shared(tuple(rare.get("eligible", ()))),
        last_known_leader=rare.get("last_leader", NO_LEADER),
        leader_recovery_state=LeaderRecoveryState(rare.get("recovery", LeaderRecoveryState.RECOVERED)),
        in_sync_min=rare.get("in_sync_min", in_sync_min),
        replaced_replicas=brokers_shared(tuple(rare.get("replaced", ()))),
        failed_replicas=brokers_shared(tuple(rare.get("failed", ()))),
        drained_into=rare.get("drained_into", NO_PARTITION),
        resumes_from=rare.get("resumes_from", NO_PARTITION),
        drained_since=rare.get("drained_since", NO_LEADER_EPOCH),
        log_base=rare.get("log_base", OFFSET_ZERO),
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

    broker_id: BrokerId
    epoch: int


def pack_controller(controller: ControllerState) -> bytes:
    return pack({"v": FORMAT, "broker": controller.broker_id, "epoch": controller.epoch})


def unpack_controller(data: bytes) -> ControllerState:
    record = unpack(data)
    return ControllerState(broker_id=BrokerId(record["broker"]), epoch=record["epoch"])


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """Where clients of one listener find a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A registered broker; it goes with its session. `epoch` is the number of the registration's transaction.

    It is fenced until the controller has admitted that epoch, see `Admission`.
    """

    broker_id: BrokerId
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    epoch: BrokerEpoch = NO_BROKER_EPOCH
    host: str = ""
    """The machine it runs on: replicas spread over racks first and over hosts second."""
    directories: tuple[str, ...] = ()
    """The ids of its log directories."""
    admitted_before: BrokerEpoch = NO_BROKER_EPOCH
    """The last epoch that it saw admitted, in this or an earlier life."""
    may_have_lost: bool = False
    """Whether records that it acknowledged may be missing from its logs."""
    clean: bool = True
    """Whether the same process, or one that stopped clean, was registered before."""
    kept: Mapping[TopicId, frozenset[int]] = field(default_factory=lambda: NOTHING_KEPT, hash=False)
    """Partitions that have lost nothing, of a broker that otherwise may have: their logs are in other directories."""
    versions: VersionRange = SUPPORTED
    """The cluster versions that it supports."""

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Where to send a client that came in through that listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


def pack_broker(broker: BrokerState) -> bytes:
    endpoints = [[endpoint.listener, endpoint.host, endpoint.port] for endpoint in broker.endpoints]
    record: dict[str, Any] = {
        "v": FORMAT,
        "endpoints": endpoints,
        "rack": broker.rack,
        "host": broker.host,
        "directories": broker.directories,
        "admitted_before": broker.admitted_before,
        "may_have_lost": broker.may_have_lost,
        "clean": broker.clean,
        "versions": pack_versions(broker.versions),
    }
    if broker.kept:
        record["kept"] = {topic_id.hex(): runs(indexes) for topic_id, indexes in broker.kept.items()}
    return pack(record)


def pack_versions(versions: VersionRange) -> list[int]:
    return [versions.lowest, versions.highest]


def unpack_versions(record: Mapping[str, Any]) -> VersionRange:
    """The range that a record has; one of an earlier version of penstock has none."""
    found = record.get("versions")
    return BEFORE_VERSIONS if found is None else VersionRange(lowest=found[0], highest=found[1])


def runs(indexes: Collection[int]) -> list[list[int]]:
    """Numbers as pairs of first and count: a thousand partitions in a row are one pair."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and index == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([index, 1])
    return found


def unpack_broker(broker_id: BrokerId, data: bytes, epoch: int) -> BrokerState:
    record = unpack(data)
    endpoints = tuple(
        BrokerEndpoint(listener=listener, host=host, port=port) for listener, host, port in record["endpoints"]
    )
    return BrokerState(
        broker_id=broker_id,
        endpoints=endpoints,
        rack=record["rack"],
        epoch=BrokerEpoch(epoch),
        host=record["host"],
        directories=tuple(record["directories"]),
        admitted_before=record["admitted_before"],
        may_have_lost=record["may_have_lost"],
        clean=record["clean"],
        kept={
            TopicId(bytes.fromhex(topic_id)): frozenset(
                each for first, size in pairs for each in range(first, first + size)
            )
            for topic_id, pairs in record.get("kept", NO_CONFIGS).items()
        },
        versions=unpack_versions(record),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The registration of a broker that the controller admitted last: only this epoch leads, follows and is elected."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    directories: tuple[str, ...]
    version: int = 0
    """Of its node: an ISR change that adds the broker checks it in the same transaction."""
    stopping: bool = False
    """Whether it asked to hand over its leaderships. That is for good: to return it registers again."""
    imported_epoch: BrokerEpoch = NO_BROKER_EPOCH
    """What `epoch` was in the store that this metadata was imported from. Numbers of two stores cannot be compared, so
    this admits no registration, but it still tells whether the broker's disk is that of its last life."""
    versions: VersionRange = SUPPORTED
    """The cluster versions that it supported: they are known while it is down."""

    @property
    def last_epoch(self) -> BrokerEpoch:
        """The epoch that the broker's disk knows if nothing was lost since."""
        return self.imported_epoch if self.epoch == NO_BROKER_EPOCH else self.epoch


def pack_admission(admission: Admission) -> bytes:
    record: dict[str, Any] = {
        "v": FORMAT,
        "epoch": admission.epoch,
        "directories": admission.directories,
        "versions": pack_versions(admission.versions),
    }
    if admission.stopping:
        record["stopping"] = True
    if admission.imported_epoch != NO_BROKER_EPOCH:
        record["imported_epoch"] = admission.imported_epoch
    return pack(record)


def unpack_admission(broker_id: BrokerId, data: bytes, version: int) -> Admission:
    record = unpack(data)
    return Admission(
        broker_id=broker_id,
        epoch=record["epoch"],
        directories=tuple(record["directories"]),
        version=version,
        stopping=record.get("stopping", False),
        imported_epoch=record.get("imported_epoch", NO_BROKER_EPOCH),
        versions=unpack_versions(record),
    )


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
