"""What this broker knows of its cluster: the metadata store's contents, in memory, indexed for questions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.metadata import records
from penstock.metadata.records import NO_CONFIGS, BrokerState, Deletion, QuotaEntity
from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A node after a transaction; `data` is None when it is gone. `created` numbers the transaction that made it."""

    path: str
    data: bytes | None
    version: int = 0
    created: int = 0


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
        "cluster_id",
        "controller_id",
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
        self.controller_id = -1
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

    def topic(self, name: str) -> TopicState | None:
        return self.topics.get(name)

    def broker_settings(self, broker: str) -> Mapping[str, str]:
        """The settings given to a running broker, or with `<default>` to all of them."""
        return self.broker_configs.get(broker, NO_CONFIGS)

    def apply(self, changes: Iterable[Change]) -> ImageDelta:
        """Take one transaction in, and say what it changed."""
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
                broker_configs.add(self._apply_settings(self.broker_configs, change))
            elif parent == records.GROUP_CONFIGS:
                group_configs.add(self._apply_settings(self.group_configs, change))
            elif parent == records.QUOTAS:
                quotas.append(self._apply_quota(change))
            elif parent == records.DELETIONS:
                self._apply_deletion(change)
                deletions = True
            else:
                brokers |= self._apply_office(change)
        self.version += 1
        return ImageDelta(
            topics=tuple(topics),
            brokers=brokers,
            broker_configs=frozenset(broker_configs),
            quotas=tuple(quotas),
            group_configs=frozenset(group_configs),
            deletions=deletions,
        )

    def _apply_deletion(self, change: Change) -> None:
        topic_id = TopicId(bytes.fromhex(records.last_name(change.path)))
        if change.data is None:
            self.deletions.pop(topic_id, None)
        else:
            found = records.unpack_deletion(change.path, change.data, change.version, change.created)
            self.deletions[topic_id] = found

    def _apply_topic(self, change: Change) -> tuple[TopicChange, ...]:
        """What a change does to a topic: nothing, if it comes late and the image has a later version of the topic."""
        name = records.last_name(change.path)
        before = self.topics.get(name)
        after = None if change.data is None else records.unpack_topic(name, change.data, change.version)
        if before is not None:
            if after is not None and after.topic_id == before.topic_id and after.version < before.version:
                return ()
            del self.topics[name]
            del self.topics_by_id[before.topic_id]
            self.partition_count -= len(before.partitions)
            self._forget_collision(name)
        if after is None:
            return (TopicChange(before=before, after=None),)
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
        broker_id = BrokerId(int(records.last_name(change.path)))
        if change.data is None:
            self.brokers.pop(broker_id, None)
            return True
        known = self.brokers.get(broker_id)
        if known is not None and change.created < known.epoch:
            return False
        self.brokers[broker_id] = records.unpack_broker(broker_id, change.data, change.created)
        return True

    def _apply_settings(self, settings: dict[str, Mapping[str, str]], change: Change) -> str:
        name = records.last_name(change.path)
        if change.data is None:
            settings.pop(name, None)
        else:
            settings[name] = records.unpack_settings(change.data)
        return name

    def _apply_quota(self, change: Change) -> tuple[QuotaEntity, Mapping[str, float]]:
        entity = records.quota_entity(change.path)
        if change.data is None:
            self.quotas.pop(entity, None)
            return entity, {}
        limits = self.quotas[entity] = records.unpack_quotas(change.data)
        return entity, limits

    def _apply_office(self, change: Change) -> bool:
        """Who is controller, and of which cluster; True where brokers' responses change with it."""
        if change.path == records.CONTROLLER:
            self.controller_id = -1 if change.data is None else int(change.data)
            return True
        if change.path == records.CLUSTER and change.data is not None:
            self.cluster_id = change.data.decode()
            return True
        return False


def collision_key(name: str) -> str:
    """Metrics write '.' as '_', so two names with the same key could not be told apart there."""
    return name.replace(".", "_")
