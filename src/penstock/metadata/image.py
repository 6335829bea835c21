"""The metadata image: the contents of the metadata store in memory, indexed by what requests look up."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from penstock.metadata import records
from penstock.metadata.nodes import Change, Node
from penstock.metadata.records import (
    NO_CONFIGS,
    Admission,
    BrokerState,
    ControllerState,
    Deletion,
    QuotaEntity,
    ViewRecord,
)
from penstock.model.cluster_versions import SUPPORTED, VersionRange
from penstock.model.ids import NO_BROKER_EPOCH, TOPIC_ID_ZERO, BrokerEpoch, BrokerId, TopicId, TopicPartition
from penstock.model.topic import VIEW_FILTER, VIEW_OF, PartitionState, TopicState, ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A topic before and after. Two topics of one name but of different ids are a deletion and a creation."""

    before: TopicState | None
    after: TopicState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """A filtered view before and after: it changes with the partitions of its parent too."""

    before: ViewState | None
    after: ViewState | None

    @property
    def as_topic(self) -> TopicChange:
        """The change as clients see it."""
        before, after = self.before, self.after
        return TopicChange(
            before=None if before is None else before.topic, after=None if after is None else after.topic
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """What one or several transactions changed, for the parts that act on it."""

    topics: tuple[TopicChange, ...] = ()
    views: tuple[ViewChange, ...] = ()
    brokers: bool = False
    broker_configs: frozenset[str] = frozenset()
    """Brokers whose settings changed, by id as text, or `<default>` for those of all."""
    quotas: tuple[tuple[QuotaEntity, Mapping[str, float]], ...] = ()
    """Entities with all their quotas as they now are; none left is an empty mapping."""
    group_configs: frozenset[str] = frozenset()
    deletions: bool = False
    """Whether a deletion of a topic began or ended."""


class Chunk(NamedTuple):
    """States of consecutive partitions, and the version of their node."""

    version: int
    partitions: tuple[PartitionState, ...]


ChunkKey = tuple[TopicId, int]
"""A topic, and the number of one of its chunks."""


@lru_cache(maxsize=1024)
def versions_shared(versions: tuple[int, ...]) -> tuple[int, ...]:
    """One object for all topics with the same versions, which most have."""
    return versions


class MetadataImage:
    """The cluster as of the last transaction seen. Read it freely; only its catalog applies changes.

    `version` goes up with every change, so a response built from the image can be kept until it does.
    """

    __slots__ = (
        "_chunks",
        "_format_max",
        "_view_records",
        "_views_of",
        "admissions",
        "broker_configs",
        "brokers",
        "changes_version",
        "cluster_id",
        "controller",
        "deletions",
        "features",
        "group_configs",
        "partition_count",
        "quotas",
        "store",
        "topics",
        "topics_by_collision",
        "topics_by_id",
        "version",
        "views",
        "views_by_id",
    )

    def __init__(self, supported: VersionRange = SUPPORTED) -> None:
        """`supported` are the cluster versions whose records this image reads."""
        self._format_max = records.format_max(supported)
        self.version = 0
        self.cluster_id = ""
        self.store = records.StoreIdentity(store_id="")
        """Of the store that the transactions are numbered in."""
        self.controller: ControllerState | None = None
        self.changes_version = 0
        """Of the node that every transaction of a controller sets."""
        self.features = records.Features()
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[TopicId, TopicState] = {}
        self.topics_by_collision: dict[str, set[str]] = {}
        """Names of topics with '.' or '_', by what metrics call them: both are '_' there."""
        self.brokers: dict[BrokerId, BrokerState] = {}
        """Registered brokers; those that are fenced as well, see `is_live`."""
        self.admissions: dict[BrokerId, Admission] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self.deletions: dict[TopicId, Deletion] = {}
        """Topics that were deleted and whose logs may still be on a disk."""
        self.partition_count = 0
        self.views: dict[str, ViewState] = {}
        """Filtered views. They are no topics: only what clients ask for by name or id is looked for here too."""
        self.views_by_id: dict[TopicId, ViewState] = {}
        self._view_records: dict[str, ViewRecord] = {}
        self._views_of: dict[TopicId, dict[str, None]] = {}
        """Names of the views of each topic that has any."""
        self._chunks: dict[ChunkKey, Chunk] = {}
        """Chunks that no topic uses, or that reach beyond its number of partitions."""

    @property
    def controller_id(self) -> int:
        """The broker that is controller, or -1."""
        return -1 if self.controller is None else self.controller.broker_id

    @property
    def level(self) -> int:
        """The finalized version of the cluster: records are written in its form."""
        return self.features.level

    def topic(self, name: str) -> TopicState | None:
        return self.topics.get(name)

    def shown(self, name: str) -> TopicState | None:
        """The topic or the view of a name, as clients see it."""
        topic = self.topics.get(name)
        if topic is None and self.views and (view := self.views.get(name)) is not None:
            return view.topic
        return topic

    def shown_by_id(self, topic_id: TopicId) -> TopicState | None:
        """As `shown`, by id."""
        topic = self.topics_by_id.get(topic_id)
        if topic is None and self.views and (view := self.views_by_id.get(topic_id)) is not None:
            return view.topic
        return topic

    def views_of(self, topic_id: TopicId) -> list[str]:
        """The names of a topic's views."""
        return list(self._views_of.get(topic_id, ()))

    def is_live(self, broker_id: BrokerId) -> bool:
        """Whether a broker is registered and the controller has admitted that registration."""
        broker, admission = self.brokers.get(broker_id), self.admissions.get(broker_id)
        return broker is not None and admission is not None and broker.epoch == admission.epoch

    def live_epoch(self, broker_id: BrokerId) -> BrokerEpoch:
        """The epoch in which a broker is live; `NO_BROKER_EPOCH` where it is not."""
        return self.brokers[broker_id].epoch if self.is_live(broker_id) else NO_BROKER_EPOCH

    def in_sync(self, tp: TopicPartition, broker_id: BrokerId) -> bool:
        """Whether a broker is in the ISR of a partition."""
        topic = self.topics.get(tp.topic)
        return (
            topic is not None
            and tp.partition < len(topic.partitions)
            and (broker_id in topic.partitions[tp.partition].isr)
        )

    def live_brokers(self) -> list[BrokerState]:
        """The brokers that lead, follow and are shown to clients."""
        return [broker for broker_id, broker in self.brokers.items() if self.is_live(broker_id)]

    def is_replicated(self, tp: TopicPartition, topic_id: TopicId) -> bool:
        """Whether the log of a partition has copies on other brokers.

        A log that has lost its topic id counts as the topic's of its name: a replica is rather cut than believed. That
        of a ghost counts, too: it is to be deleted, and damage in it is no loss.
        """
        topic = self.topics.get(tp.topic)
        if topic is None or topic_id not in (topic.topic_id, TOPIC_ID_ZERO) or tp.partition >= len(topic.partitions):
            return False
        return len(topic.partitions[tp.partition].replicas) != 1

    def broker_settings(self, broker: str) -> Mapping[str, str]:
        """The settings given to a running broker, or with `<default>` to all of them."""
        return self.broker_configs.get(broker, NO_CONFIGS)

    def paths(self) -> Iterator[str]:
        """Paths of the nodes that the image is built from."""
        yield from map(records.topic_path, self.topics)
        for topic in self.topics.values():
            for number in range(len(topic.chunk_versions)):
                yield records.chunk_path(topic.topic_id, number)
        for key in self._chunks:
            yield records.chunk_path(*key)
        for broker_id in self.brokers:
            yield records.broker_path(BrokerId(broker_id))
        for broker_id in self.admissions:
            yield records.admission_path(BrokerId(broker_id))
        yield from map(records.view_path, self._view_records)
        yield from map(records.broker_config_path, self.broker_configs)
        yield from map(records.group_config_path, self.group_configs)
        yield from map(records.quota_path, self.quotas)
        yield from map(records.deletion_path, self.deletions)
        if self.controller is not None:
            yield records.CONTROLLER
        if self.features.version is not None:
            yield records.FEATURES

    def replace_with(self, nodes: Mapping[str, Node]) -> ImageDelta:
        """Become what a tree of the store is, and return what differs from before."""
        gone = [Change(path=path, data=None) for path in self.paths() if path not in nodes]
        found = (
            Change(path=path, data=node.data, version=node.version, created=node.created)
            for path, node in nodes.items()
        )
        delta = self.apply(chain(gone, found))
        if not self._chunks:
            # A dictionary keeps the room that it once needed.
            self._chunks = {}
        return delta

    def apply(self, changes: Iterable[Change]) -> ImageDelta:
        """Apply one or several transactions; returns what they changed."""
        brokers = deletions = False
        broker_configs: set[str] = set()
        group_configs: set[str] = set()
        quotas: list[tuple[QuotaEntity, Mapping[str, float]]] = []
        named: dict[str, Change] = {}
        viewed: list[Change] = []
        removed: set[ChunkKey] = set()
        touched: list[ChunkKey] = []
        for change in changes:
            parent = change.path.rpartition("/")[0]
            if parent == records.TOPICS:
                named[records.last_name(change.path)] = change
            elif parent == records.PARTITIONS:
                key = records.chunk_of(change.path)
                if change.data is None:
                    removed.add(key)
                    self._chunks.pop(key, None)
                elif self._keep_chunk(key, change.data, change.version):
                    touched.append(key)
            elif parent == records.VIEWS:
                viewed.append(change)
            elif parent == records.BROKERS:
                brokers |= self._apply_broker(change)
            elif parent == records.ADMISSIONS:
                brokers |= self._apply_admission(change)
            elif parent == records.BROKER_CONFIGS:
                broker_configs.update(self._apply_settings(self.broker_configs, change))
            elif parent == records.GROUP_CONFIGS:
                group_configs.update(self._apply_settings(self.group_configs, change))
            elif parent == records.QUOTAS:
                quotas += self._apply_quota(change)
            elif parent == records.DELETIONS:
                deletions |= self._apply_deletion(change)
            else:
                brokers |= self._apply_cluster(change)
        # Several transactions may be here as one, so a topic may precede its partitions.
        topics = [found for name, change in named.items() if (found := self._apply_topic(name, change, removed))]
        topics += self._apply_partitions(touched)
        # A view may come with its parent, and changes with it.
        views = tuple(self._apply_views(viewed, topics)) if viewed or self._view_records else ()
        self.version += 1
        return ImageDelta(
            topics=tuple(topics),
            views=views,
            brokers=brokers,
            broker_configs=frozenset(broker_configs),
            quotas=tuple(quotas),
            group_configs=frozenset(group_configs),
            deletions=deletions,
        )

    def _apply_views(self, changes: Iterable[Change], topics: Iterable[TopicChange]) -> Iterator[ViewChange]:
        """What changes of views and of topics do to views."""
        names: dict[str, None] = {}
        for change in changes:
            name = records.last_name(change.path)
            if self._keep_view(name, change):
                names[name] = None
        for topic in topics:
            for state in (topic.before, topic.after):
                if state is not None:
                    names.update(self._views_of.get(state.topic_id, {}))
        for name in names:
            before, after = self.views.get(name), self._view(name)
            if before is not None:
                del self.views[name]
                del self.views_by_id[before.topic.topic_id]
                self._forget_collision(name)
            if after is not None:
                self.views[name] = self.views_by_id[after.topic.topic_id] = after
                self._add_collision(name)
            if before != after:
                yield ViewChange(before=before, after=after)

    def _keep_view(self, name: str, change: Change) -> bool:
        """Keep or forget a view's record; False where the image has it, or a later one, already."""
        before = self._view_records.get(name)
        record = None if change.data is None else records.unpack_view(change.data, change.version)
        if before is not None:
            if record is not None and record.topic_id == before.topic_id and record.version <= before.version:
                return False
            siblings = self._views_of[before.parent_id]
            del siblings[name], self._view_records[name]
            if not siblings:
                del self._views_of[before.parent_id]
        if record is not None:
            self._view_records[name] = record
            self._views_of.setdefault(record.parent_id, {})[name] = None
        return True

    def _view(self, name: str) -> ViewState | None:
        """A view as it is now; None where it or its parent does not exist."""
        record = self._view_records.get(name)
        parent = None if record is None else self.topics_by_id.get(record.parent_id)
        return None if record is None or parent is None else view_of(name, record, parent)

    def _apply_deletion(self, change: Change) -> bool:
        topic_id = TopicId(bytes.fromhex(records.last_name(change.path)))
        if change.data is None:
            return self.deletions.pop(topic_id, None) is not None
        found = records.unpack_deletion(change.path, change.data, change.version, change.created)
        if self.deletions.get(topic_id) == found:
            return False
        self.deletions[topic_id] = found
        return True

    def _keep_chunk(self, key: ChunkKey, data: bytes, version: int) -> bool:
        """Keep states of partitions for their topic; False where the image has a later version of them."""
        known = self.chunk_version(*key)
        if known is not None and known >= version:
            return False
        self._chunks[key] = Chunk(version, records.unpack_partitions(data, key[1], self._format_max))
        return True

    def chunk_version(self, topic_id: TopicId, number: int) -> int | None:
        """Of a node of partitions that is in the store, whether a topic uses it or not."""
        kept = self._chunks.get((topic_id, number))
        if kept is not None:
            return kept.version
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None or number >= len(topic.chunk_versions) else topic.chunk_versions[number]

    def chunks_of(self, topic_id: TopicId) -> list[int]:
        """The numbers of a topic's nodes of partitions, also of those that it does not use."""
        topic = self.topics_by_id.get(topic_id)
        used = range(0 if topic is None else len(topic.chunk_versions))
        return sorted({*used, *(number for owner, number in self._chunks if owner == topic_id)})

    def orphans(self) -> list[TopicId]:
        """Topics that do not exist and have nodes of partitions: a controller stopped between two transactions."""
        return list(dict.fromkeys(owner for owner, _ in self._chunks if owner not in self.topics_by_id))

    def _apply_topic(self, name: str, change: Change, removed: set[ChunkKey]) -> TopicChange | None:
        """What a change does to a topic: nothing, if it comes late and the image has a later version of the topic."""
        before = self.topics.get(name)
        record = None if change.data is None else records.unpack_topic(change.data)
        same = before is not None and record is not None and record.topic_id == before.topic_id
        if before is not None and same and change.version <= before.version:
            return None
        after = None
        if record is not None:
            after = self._assembled(name, record, change.version, before if same else None)
        if before is not None:
            self._forget(before)
            if not same:
                self._keep_chunks(before, removed)
        if after is not None:
            self._add(after)
        return None if before is after is None else TopicChange(before=before, after=after)

    def _apply_partitions(self, touched: Iterable[ChunkKey]) -> Iterator[TopicChange]:
        """New states of partitions whose topics' own nodes did not change."""
        for key in touched:
            before = self.topics_by_id.get(key[0])
            if before is None or key not in self._chunks:
                continue
            record = records.TopicRecord(
                topic_id=before.topic_id,
                configs=before.configs,
                partitions=len(before.partitions),
                partitions_at_creation=before.partitions_at_creation,
            )
            after = self._assembled(before.name, record, before.version, before)
            if after != before:
                self._forget(before)
                self._add(after)
                yield TopicChange(before=before, after=after)

    def _assembled(self, name: str, record: records.TopicRecord, version: int, before: TopicState | None) -> TopicState:
        """A topic of its own node and its chunks: new ones, and where there is none those it has."""
        partitions: list[PartitionState] = []
        versions: list[int] = []
        for number in range(records.chunks_needed(record.partitions)):
            key = (record.topic_id, number)
            chunk = self._chunks.get(key)
            if chunk is None:
                assert before is not None, f"{name} has no partitions"
                assert number < len(before.chunk_versions), f"{name} has no partitions of chunk {number}"
                chunk = Chunk(before.chunk_versions[number], before.partitions[records.chunk_slice(number)])
            partitions += chunk.partitions
            versions.append(chunk.version)
            if len(partitions) <= record.partitions:
                self._chunks.pop(key, None)
        grown = record.partitions_at_creation != record.partitions
        assert len(partitions) >= record.partitions, f"{name} has {len(partitions)} of {record.partitions} partitions"
        return TopicState(
            name=name,
            topic_id=record.topic_id,
            configs=record.configs,
            partitions=tuple(partitions[: record.partitions]),
            version=version,
            grown_from=record.partitions_at_creation if grown else None,
            chunk_versions=versions_shared(tuple(versions)),
        )

    def _keep_chunks(self, topic: TopicState, removed: set[ChunkKey]) -> None:
        """Remember what is left in the store of a topic that is gone."""
        for number, version in enumerate(topic.chunk_versions):
            key = (topic.topic_id, number)
            if key not in removed:
                self._chunks.setdefault(key, Chunk(version, topic.partitions[records.chunk_slice(number)]))

    def _add(self, topic: TopicState) -> None:
        name = topic.name
        self.topics[name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self.partition_count += len(topic.partitions)
        self._add_collision(name)

    def _add_collision(self, name: str) -> None:
        if "." in name or "_" in name:
            self.topics_by_collision.setdefault(collision_key(name), set()).add(name)

    def _forget(self, topic: TopicState) -> None:
        del self.topics[topic.name]
        del self.topics_by_id[topic.topic_id]
        self.partition_count -= len(topic.partitions)
        self._forget_collision(topic.name)

    def _forget_collision(self, name: str) -> None:
        names = self.topics_by_collision.get(collision_key(name))
        if names is not None:
            names.discard(name)
            if not names:
                del self.topics_by_collision[collision_key(name)]

    def _apply_broker(self, change: Change) -> bool:
        """Whether a change does anything: a registration from before the one in the image does not."""
        broker_id = BrokerId(int(records.last_name(change.path)))
        if change.data is None:
            return self.brokers.pop(broker_id, None) is not None
        known = self.brokers.get(broker_id)
        if known is not None and change.created < known.epoch:
            return False
        found = records.unpack_broker(broker_id, change.data, change.created)
        self.brokers[broker_id] = found
        return found != known

    def _apply_admission(self, change: Change) -> bool:
        broker_id = BrokerId(int(records.last_name(change.path)))
        known = self.admissions.get(broker_id)
        if change.data is None:
            return self.admissions.pop(broker_id, None) is not None
        if known is not None and change.version <= known.version:
            return False
        self.admissions[broker_id] = records.unpack_admission(broker_id, change.data, change.version)
        return True

    def _apply_settings(self, settings: dict[str, Mapping[str, str]], change: Change) -> tuple[str, ...]:
        """The name whose settings changed, if they did."""
        name = records.last_name(change.path)
        before = settings.get(name)
        after = None if change.data is None else records.unpack_settings(change.data)
        if after == before:
            return ()
        if after is None:
            del settings[name]
        else:
            settings[name] = after
        return (name,)

    def _apply_quota(self, change: Change) -> tuple[tuple[QuotaEntity, Mapping[str, float]], ...]:
        """The entity whose quotas changed, if they did, and all it has now."""
        entity = records.quota_entity(change.path)
        before = self.quotas.get(entity)
        after = None if change.data is None else records.unpack_quotas(change.data)
        if after == before:
            return ()
        if after is None:
            del self.quotas[entity]
            return ((entity, {}),)
        self.quotas[entity] = after
        return ((entity, after),)

    def _apply_cluster(self, change: Change) -> bool:
        """The cluster's id, its controller and the controller's transactions; True where responses change with it."""
        before = self.cluster_id, self.controller, self.features
        if change.path == records.CONTROLLER:
            self.controller = None if change.data is None else records.unpack_controller(change.data)
        elif change.path == records.CLUSTER and change.data is not None:
            self.cluster_id = change.data.decode()
        elif change.path == records.STORE and change.data is not None:
            self.store = records.unpack_store(change.data, self._format_max)
        elif change.path == records.CHANGES and change.data is not None:
            self.changes_version = change.version
        elif change.path == records.FEATURES:
            if change.data is None:
                self.features = records.Features()
            elif self.features.version is None or self.features.version < change.version:
                self.features = records.unpack_features(change.data, change.version)
        return before != (self.cluster_id, self.controller, self.features)


def view_of(name: str, record: ViewRecord, parent: TopicState) -> ViewState:
    """A view of a topic: it has the partitions and settings of that, and what it passes of its own."""
    topic = TopicState(
        name=name,
        topic_id=record.topic_id,
        configs={**parent.configs, VIEW_OF: parent.name, VIEW_FILTER: record.filter},
        partitions=parent.partitions,
        version=record.version,
        grown_from=parent.grown_from,
    )
    return ViewState(topic=topic, parent=parent.name, parent_id=parent.topic_id, filter=record.filter, form=record.form)


def collision_key(name: str) -> str:
    """Metrics write '.' as '_', so two topics with the same key would have the same name there."""
    return name.replace(".", "_")
