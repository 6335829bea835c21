"""What this broker knows of its cluster: the metadata store's contents, in memory, indexed for questions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from penstock.metadata import records
from penstock.metadata.nodes import Change, Node
from penstock.metadata.records import NO_CONFIGS, BrokerState, ControllerState, Deletion, QuotaEntity
from penstock.model.ids import TopicId
from penstock.model.topic import TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A topic before and after. Two topics of one name but of different ids are a deletion and a creation."""

    before: TopicState | None
    after: TopicState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """What one transaction changed, for whoever acts on it."""

    topics: tuple[TopicChange, ...] = ()
    brokers: bool = False
    broker_configs: frozenset[str] = frozenset()
    """Brokers whose settings changed, by id as text, or `<default>` for those of all."""
    quotas: tuple[tuple[QuotaEntity, Mapping[str, float]], ...] = ()
    """Entities with all their quotas as they now are; none left is an empty mapping."""
    group_configs: frozenset[str] = frozenset()
    deletions: bool = False
    """Whether a deletion of a topic began or ended."""


class MetadataImage:
    """The cluster as of the last transaction seen. Read it freely; only its catalog applies changes.

    `version` goes up with every change, so a response built from the image can be kept until it does.
    """

    __slots__ = (
        "broker_configs",
        "brokers",
        "changes_version",
        "cluster_id",
        "controller",
        "deletions",
        "group_configs",
        "partition_count",
        "quotas",
        "topics",
        "topics_by_collision",
        "topics_by_id",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        self.cluster_id = ""
        self.controller: ControllerState | None = None
        self.changes_version = 0
        """Of the node that every transaction of a controller sets."""
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[TopicId, TopicState] = {}
        self.topics_by_collision: dict[str, set[str]] = {}
        """Names that differ only in '.' against '_', which metrics cannot tell apart; topics with either only."""
        self.brokers: dict[int, BrokerState] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self.deletions: dict[TopicId, Deletion] = {}
        """Topics that were deleted and whose logs may still be on a disk."""
        self.partition_count = 0

    @property
    def controller_id(self) -> int:
        """The broker that is controller, or -1."""
        return -1 if self.controller is None else self.controller.broker_id

    def topic(self, name: str) -> TopicState | None:
        return self.topics.get(name)

    def broker_settings(self, broker: str) -> Mapping[str, str]:
        """The settings given to a running broker, or with `<default>` to all of them."""
        return self.broker_configs.get(broker, NO_CONFIGS)

    def paths(self) -> Iterator[str]:
        """Every node that the image was made of and would miss."""
        yield from map(records.topic_path, self.topics)
        yield from map(records.broker_path, self.brokers)
        yield from map(records.broker_config_path, self.broker_configs)
        yield from map(records.group_config_path, self.group_configs)
        yield from map(records.quota_path, self.quotas)
        yield from map(records.deletion_path, self.deletions)
        if self.controller is not None:
            yield records.CONTROLLER

    def replace_with(self, nodes: Mapping[str, Node]) -> ImageDelta:
        """Become what a tree of the store is, and return what differs from before."""
        gone = [Change(path=path, data=None) for path in self.paths() if path not in nodes]
        found = (
            Change(path=path, data=node.data, version=node.version, created=node.created)
            for path, node in nodes.items()
        )
        return self.apply(chain(gone, found))

    def apply(self, changes: Iterable[Change]) -> ImageDelta:
        """Apply one or several transactions; returns what they changed."""
        topics: list[TopicChange] = []
        brokers = deletions = False
        broker_configs: set[str] = set()
        group_configs: set[str] = set()
        quotas: list[tuple[QuotaEntity, Mapping[str, float]]] = []
        for change in changes:
            parent = change.path.rpartition("/")[0]
            if parent == records.TOPICS:
                topics += self._apply_topic(change)
            elif parent == records.BROKERS:
                brokers |= self._apply_broker(change)
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
        self.version += 1
        return ImageDelta(
            topics=tuple(topics),
            brokers=brokers,
            broker_configs=frozenset(broker_configs),
            quotas=tuple(quotas),
            group_configs=frozenset(group_configs),
            deletions=deletions,
        )

    def _apply_deletion(self, change: Change) -> bool:
        topic_id = TopicId(bytes.fromhex(records.last_name(change.path)))
        if change.data is None:
            return self.deletions.pop(topic_id, None) is not None
        found = records.unpack_deletion(change.path, change.data, change.version, change.created)
        if self.deletions.get(topic_id) == found:
            return False
        self.deletions[topic_id] = found
        return True

    def _apply_topic(self, change: Change) -> tuple[TopicChange, ...]:
        """What a change does to a topic: nothing, if it comes late and the image has a later version of the topic."""
        name = records.last_name(change.path)
        before = self.topics.get(name)
        after = None if change.data is None else records.unpack_topic(name, change.data, change.version)
        if before is not None:
            if after is not None and after.topic_id == before.topic_id and after.version <= before.version:
                return ()
            del self.topics[name]
            del self.topics_by_id[before.topic_id]
            self.partition_count -= len(before.partitions)
            self._forget_collision(name)
        if after is None:
            return () if before is None else (TopicChange(before=before, after=None),)
        self.topics[name] = after
        self.topics_by_id[after.topic_id] = after
        self.partition_count += len(after.partitions)
        if "." in name or "_" in name:
            self.topics_by_collision.setdefault(collision_key(name), set()).add(name)
        return (TopicChange(before=before, after=after),)

    def _forget_collision(self, name: str) -> None:
        names = self.topics_by_collision.get(collision_key(name))
        if names is not None:
            names.discard(name)
            if not names:
                del self.topics_by_collision[collision_key(name)]

    def _apply_broker(self, change: Change) -> bool:
        """Whether a change does anything: a registration from before the one in the image does not."""
        broker_id = int(records.last_name(change.path))
        if change.data is None:
            return self.brokers.pop(broker_id, None) is not None
        known = self.brokers.get(broker_id)
        if known is not None and change.created < known.epoch:
            return False
        found = records.unpack_broker(broker_id, change.data, change.created)
        self.brokers[broker_id] = found
        return found != known

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
        before = self.cluster_id, self.controller
        if change.path == records.CONTROLLER:
            self.controller = None if change.data is None else records.unpack_controller(change.data)
        elif change.path == records.CLUSTER and change.data is not None:
            self.cluster_id = change.data.decode()
        elif change.path == records.CHANGES and change.data is not None:
            self.changes_version = change.version
        return before != (self.cluster_id, self.controller)


def collision_key(name: str) -> str:
    """Metrics write '.' as '_', so two names with the same key could not be told apart there."""
    return name.replace(".", "_")
