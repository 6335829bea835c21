"""Plans changes of topics: creation, deletion and more partitions."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.config.broker import BrokerConfig
from penstock.config.log import ALL_PARTITIONS, TOPIC_KEYS, TopicConfig, check_topic_configs
from penstock.controller.cordons import check_not_cordoned, open_brokers
from penstock.controller.draining import is_draining, revived
from penstock.controller.placement import place
from penstock.controller.plan import Plan, PlanStep, storable
from penstock.controller.queue_settings import check_queue_settings
from penstock.controller.scheduling import check_growth, check_new, with_policy
from penstock.controller.views import check_no_views, design_view, is_view, view_removal
from penstock.metadata.image import MetadataImage, collision_key
from penstock.metadata.operations import Create, Delete, Operation, Set
from penstock.metadata.records import (
    ALL_BROKERS,
    PARTITIONS_PER_CHUNK,
    Deletion,
    brokers_shared,
    chunk_path,
    chunk_slice,
    chunks_needed,
    deletion_path,
    pack_deletion,
    pack_partitions,
    pack_topic,
    topic_path,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, LeaderEpoch, TopicId
from penstock.model.topic import (
    PARTITIONS_ACTIVE,
    PARTITIONS_FINALIZED,
    PartitionState,
    TopicState,
    ViewState,
    check_topic_name,
)

USE_DEFAULT = -1
"""In place of a number: use the broker's default."""

CLUSTER_METADATA = "__cluster_metadata"
"""Kafka's metadata log: tools would take a topic of this name for it."""

IN_SYNC_MIN = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

DELETIONS_MAX = 100_000
"""Deletions recorded for brokers that have not finished them; a request may exceed it by the topics it deletes."""

GROWTH_CHUNKS_MAX = 32
"""Nodes of partitions that are written together with a finalized topic that grows again."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Most partitions that one request creates; more would block other requests for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; `assignments` are (partition, brokers) pairs that replace both numbers."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """More partitions for a topic, up to `count`; `assignments` has one entry per new partition, or is None."""

    name: str
    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


def plan_creations(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    *,
    config: BrokerConfig,
    make_id: Callable[[], bytes],
    first: int,
) -> Plan[TopicState]:
    """Plan the creation of every valid topic."""
    check_total(partitions_asked(topic, config) for topic in topics)
    steps: list[PlanStep] = []
    outcomes: list[TopicState | BrokerError] = []
    created = 0
    # The next topic's leaders begin at the next broker, and each has other followers than in the topic before.
    step = len(image.live_brokers()) + 1
    for topic in topics:
        try:
            check_new_name(image, topic.name)
            topic_id = TopicId(make_id())
            if is_view(dict(topic.configs)):
                made, own = design_view(
                    image,
                    topic.name,
                    checked_configs(topic, config),
                    config=config,
                    topic_id=topic_id,
                    partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assigned=bool(topic.assignments),
                )
                steps.append(own)
                outcomes.append(made)
                continue
            made = design(image, topic, config=config, topic_id=topic_id, first=first + created * step)
            steps += creation_steps(made, image.level)
        except BrokerError as error:
            outcomes.append(error)
            continue
        created += 1
        outcomes.append(made)
    return Plan(steps=tuple(steps), outcomes=tuple(outcomes))


def creation_steps(topic: TopicState, level: int) -> list[PlanStep]:
    """Write a topic's partitions first and the topic last: until then there is no topic."""
    own = Create(topic_path(topic.name), storable(pack_topic(topic)))
    chunks = [
        Create(chunk_path(topic.topic_id, number), pack_partitions(topic.partitions[chunk_slice(number)], level))
        for number in range(chunks_needed(len(topic.partitions)))
    ]
    return [*((chunk,) for chunk in chunks), (own,)]


def removal_steps(image: MetadataImage, topic_id: TopicId) -> list[PlanStep]:
    """Remove a topic's nodes of partitions."""
    return [(Delete(chunk_path(topic_id, number)),) for number in image.chunks_of(topic_id)]


def orphan_steps(image: MetadataImage) -> tuple[PlanStep, ...]:
    """Remove partitions without a topic, which a controller left that stopped between two transactions."""
    return tuple(step for topic_id in image.orphans() for step in removal_steps(image, topic_id))


def partitions_asked(topic: NewTopic, config: BrokerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return config.num_partitions if topic.partitions == USE_DEFAULT else max(topic.partitions, 0)


def check_total(counts: Iterator[int]) -> None:
    if sum(counts) > PARTITIONS_PER_REQUEST_MAX:
        raise PolicyViolation("Excessively large number of partitions per request.")


def check_new_name(image: MetadataImage, name: str) -> None:
    """Reject a name that is invalid, in use, or indistinguishable from another one in metric names."""
    if name in image.topics or name in image.views:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    if name == CLUSTER_METADATA:
        raise InvalidRequest(f"Creation of internal topic {name} is prohibited.")
    check_topic_name(name)
    if "." in name or "_" in name:
        like = image.topics_by_collision.get(collision_key(name))
        if like:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {min(like)}")


def design(image: MetadataImage, topic: NewTopic, *, config: BrokerConfig, topic_id: TopicId, first: int) -> TopicState:
    """The new topic; raises why it is invalid."""
    configs = checked_configs(topic, config)
    check_new(image, topic.name, configs)
    check_queue_settings(configs, {}, image.level)
    if topic.assignments:
        replicas = assigned(image, topic)
    else:
        replicas = placed(image, topic, config, first)
    least = in_sync_min_of(image, configs)
    return TopicState(
        name=topic.name,
        topic_id=topic_id,
        configs=configs,
        partitions=tuple(new_partition(image, index, brokers, least) for index, brokers in enumerate(replicas)),
        chunk_versions=(0,) * chunks_needed(len(replicas)),
    )


def checked_configs(topic: NewTopic, config: BrokerConfig) -> dict[str, str]:
    nulls = [name for name, value in topic.configs if value is None]
    if nulls:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nulls)}")
    configs = with_policy({name: value for name, value in topic.configs if value is not None})
    check_topic_configs(configs, config)
    wanted = TopicConfig.resolve(configs, config)
    if wanted.partitions_active != ALL_PARTITIONS or wanted.partitions_finalized:
        raise InvalidConfig(f"{PARTITIONS_ACTIVE} is for topics that exist: create the topic with fewer partitions")
    return configs


def placed(image: MetadataImage, topic: NewTopic, config: BrokerConfig, first: int) -> list[tuple[BrokerId, ...]]:
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if topic.partitions < USE_DEFAULT or topic.partitions == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    count = config.num_partitions if topic.partitions == USE_DEFAULT else topic.partitions
    factor = config.default_replication_factor if topic.replication_factor == USE_DEFAULT else topic.replication_factor
    return place_or_refuse(image, first=first, count=count, factor=factor)


def place_or_refuse(image: MetadataImage, *, first: int, count: int, factor: int) -> list[tuple[BrokerId, ...]]:
    try:
        return place(open_brokers(image), first=first, count=count, factor=factor)
    except InvalidReplicationFactor as error:
        raise InvalidReplicationFactor(f"Unable to replicate the partition {factor} time(s): {error}") from None


def assigned(image: MetadataImage, topic: NewTopic) -> list[tuple[BrokerId, ...]]:
    """The manually assigned replicas, in the order of partitions, which must be consecutive."""
    if topic.replication_factor != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.partitions != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    by_index: dict[int, tuple[BrokerId, ...]] = {}
    factor: int | None = None
    for index, brokers in topic.assignments:
        if index in by_index:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {index}")
        check_replicas(image, brokers, factor)
        check_not_cordoned(image, brokers, ())
        factor = len(brokers)
        by_index[index] = brokers
    if sorted(by_index) != list(range(len(by_index))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [by_index[index] for index in range(len(by_index))]


def check_replicas(image: MetadataImage, brokers: Sequence[BrokerId], factor: int | None) -> None:
    """Reject manually assigned replicas unless they are known brokers, each once, as many as for other partitions."""
    if not brokers:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    before: int | None = None
    for broker in sorted(brokers):
        if broker not in image.brokers and broker not in image.admissions:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker == before:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        before = broker
    if factor is not None and len(brokers) != factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )


def in_sync_min_of(image: MetadataImage, configs: Mapping[str, str]) -> int:
    """The min.insync.replicas of a topic: its own, else the cluster's. A broker's own file has no say."""
    text = configs.get(IN_SYNC_MIN) or image.broker_settings(ALL_BROKERS).get(IN_SYNC_MIN)
    return int(text) if text is not None else int(str(TOPIC_KEYS[IN_SYNC_MIN].default))


def unclean_allowed(configs: Mapping[str, str], *, default: bool) -> bool:
    """Whether a topic prefers going on to keeping every committed record: its own setting, else the default."""
    text = configs.get(UNCLEAN_ELECTION)
    return default if text is None else text.strip().lower() == "true"


def new_partition(image: MetadataImage, index: int, brokers: tuple[BrokerId, ...], in_sync_min: int) -> PartitionState:
    """A new partition: it is empty, so all live replicas are in sync."""
    brokers = brokers_shared(brokers)
    isr = tuple(broker for broker in brokers if image.is_live(broker))
    if not isr:
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
    return PartitionState(
        index=index,
        leader=isr[0],
        leader_epoch=LeaderEpoch(0),
        replicas=brokers,
        isr=brokers_shared(isr),
        in_sync_min=in_sync_min if len(brokers) > 1 else 0,
    )


def plan_deletions(image: MetadataImage, topics: Sequence[str | TopicId], *, config: BrokerConfig) -> Plan[TopicState]:
    """Plan the deletion of topics by name or by id, with a record for the brokers that have to remove their logs.

    The topic's own node goes first: from then on it does not exist.
    """
    steps: list[PlanStep] = []
    outcomes: list[TopicState | BrokerError] = []
    removed = frozenset(view.topic.name for wanted in topics if (view := view_named(image, wanted)) is not None)
    for wanted in topics:
        topic = image.topics_by_id.get(wanted) if isinstance(wanted, bytes) else image.topics.get(wanted)
        view = view_named(image, wanted)
        if view is not None:
            # Before its parent, so that a controller that stops in between leaves no view without one.
            steps.insert(0, view_removal(view))
            outcomes.append(view.topic)
        elif topic is None:
            outcomes.append(UnknownTopicId() if isinstance(wanted, bytes) else UnknownTopicOrPartition())
        elif not config.delete_topic_enable:
            outcomes.append(TopicDeletionDisabled())
        else:
            try:
                check_no_views(image, topic, removed)
            except BrokerError as error:
                outcomes.append(error)
                continue
            brokers = {broker for partition in topic.partitions for broker in partition.replicas}
            deletion = Deletion(topic_id=topic.topic_id, name=topic.name, brokers=tuple(sorted(brokers)))
            steps.append(
                (
                    Delete(topic_path(topic.name), topic.version),
                    Create(deletion_path(topic.topic_id), pack_deletion(deletion)),
                )
            )
            steps += removal_steps(image, topic.topic_id)
            outcomes.append(topic)
    return Plan(steps=(*steps, *((each,) for each in forgotten_deletions(image))), outcomes=tuple(outcomes))


def view_named(image: MetadataImage, wanted: str | TopicId) -> ViewState | None:
    return image.views_by_id.get(wanted) if isinstance(wanted, bytes) else image.views.get(wanted)


def without_broker(deletion: Deletion, broker_id: BrokerId) -> Operation:
    """Remove a broker from a deletion, or the deletion with its last broker."""
    path = deletion_path(deletion.topic_id)
    others = tuple(broker for broker in deletion.brokers if broker != broker_id)
    if not others:
        return Delete(path, deletion.version)
    return Set(path, pack_deletion(replace(deletion, brokers=others)), deletion.version)


def forgotten_deletions(image: MetadataImage) -> list[Operation]:
    """Forget the oldest deletions above `DELETIONS_MAX`: a broker that returns sets their logs aside instead."""
    surplus = len(image.deletions) - DELETIONS_MAX
    if surplus <= 0:
        return []
    oldest = sorted(image.deletions.values(), key=lambda deletion: deletion.created)[:surplus]
    return [Delete(deletion_path(deletion.topic_id), deletion.version) for deletion in oldest]


def plan_growths(image: MetadataImage, growths: Sequence[Growth], *, first: int) -> Plan[TopicState]:
    """Plan more partitions for topics; the existing ones keep their state."""
    steps: list[PlanStep] = []
    outcomes: list[TopicState | BrokerError] = []
    for growth in growths:
        topic = image.topics.get(growth.name)
        try:
            if growth.name in image.views:
                raise InvalidPartitions(f"A view has the partitions of {image.views[growth.name].parent}: grow that.")
            if topic is None:
                raise UnknownTopicOrPartition()
            grown = grow(image, topic, growth, first)
        except BrokerError as error:
            outcomes.append(error)
            continue
        first_changed = topic.shown_count if topic.is_finalized else len(topic.partitions)
        writes = [
            write_chunk(image, grown, number)
            for number in range(first_changed // PARTITIONS_PER_CHUNK, len(grown.chunk_versions))
        ]
        # Last: until then the new partitions do not exist.
        own = Set(topic_path(topic.name), pack_topic(grown), topic.version)
        if topic.is_finalized:
            # At once: a partition that resumes while clients do not see it would hide its records.
            steps.append((*writes, own))
        else:
            steps += ((write,) for write in writes)
            steps.append((own,))
        outcomes.append(replace(grown, version=topic.version + 1))
    return Plan(steps=tuple(steps), outcomes=tuple(outcomes))


def write_chunk(image: MetadataImage, topic: TopicState, number: int) -> Operation:
    """Write the states of some partitions of a topic, as they will be."""
    path = chunk_path(topic.topic_id, number)
    data = pack_partitions(topic.partitions[chunk_slice(number)], image.level)
    version = image.chunk_version(topic.topic_id, number)
    return Create(path, data) if version is None else Set(path, data, version)


def write_partitions(
    image: MetadataImage, topic: TopicState, changed: Mapping[int, PartitionState]
) -> Iterator[tuple[int, Operation]]:
    """Write the changed states of a topic's partitions: one operation for each of its chunks, with its number."""
    after = with_partitions(image, topic, changed)
    for number in sorted({index // PARTITIONS_PER_CHUNK for index in changed}):
        yield number, write_chunk(image, after, number)


def with_partitions(image: MetadataImage, topic: TopicState, changed: Mapping[int, PartitionState]) -> TopicState:
    """The topic with some states changed, and the versions that its nodes will have."""
    chunks = {index // PARTITIONS_PER_CHUNK for index in changed}
    return replace(
        topic,
        partitions=tuple(changed.get(state.index, state) for state in topic.partitions),
        chunk_versions=versions_after(image, topic, len(topic.chunk_versions), chunks),
    )


def versions_after(image: MetadataImage, topic: TopicState, count: int, changed: Container[int]) -> tuple[int, ...]:
    """Versions of a topic's nodes of partitions once those in `changed` are written."""
    known = (image.chunk_version(topic.topic_id, number) for number in range(count))
    return tuple(0 if version is None else version + (at in changed) for at, version in enumerate(known))


def grow(image: MetadataImage, topic: TopicState, growth: Growth, first: int) -> TopicState:
    have, want = topic.shown_count, growth.count
    if want == have:
        raise InvalidPartitions(f"Topic already has {have} partition(s).")
    if want < have:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {have} partition(s); {want} would not be an increase."
        )
    if topic.is_finalized:
        check_growth_of_finalized(topic, growth)
    elif is_draining(topic):
        raise InvalidPartitions(
            f"The topic {topic.name} has partitions that are drained or have yet to resume: remove {PARTITIONS_ACTIVE} "
            "first."
        )
    check_growth(topic)
    have = len(topic.partitions)
    added = want - have
    if growth.assignments is not None and len(growth.assignments) != added:
        raise InvalidReplicaAssignment(
            f"Attempted to add {added} additional partition(s), but only {len(growth.assignments)} assignment(s) "
            "were specified."
        )
    if added > PARTITIONS_PER_REQUEST_MAX:
        raise PolicyViolation("Excessively large number of partitions per request.")
    factor = len(topic.partitions[0].target_replicas)
    if growth.assignments is None:
        replicas = place_or_refuse(image, first=first + have, count=added, factor=factor)
    else:
        for brokers in growth.assignments:
            check_replicas(image, brokers, factor)
            check_not_cordoned(image, brokers, ())
        replicas = list(growth.assignments)
    least = in_sync_min_of(image, topic.configs)
    new = (new_partition(image, have + offset, brokers, least) for offset, brokers in enumerate(replicas))
    chunks = chunks_needed(want)
    first_changed = have
    known = topic.partitions
    if topic.is_finalized:
        first_changed = topic.shown_count
        known = tuple(resumed(image, topic, state.index, least) if state.is_ghost else state for state in known)
        gone = (PARTITIONS_ACTIVE, PARTITIONS_FINALIZED)
        configs = {name: value for name, value in topic.configs.items() if name not in gone}
        topic = replace(topic, configs=configs)
    return replace(
        topic,
        partitions=(*known, *new),
        grown_from=topic.partitions_at_creation if added else topic.grown_from,
        chunk_versions=versions_after(image, topic, chunks, range(first_changed // PARTITIONS_PER_CHUNK, chunks)),
    )


def check_growth_of_finalized(topic: TopicState, growth: Growth) -> None:
    """A finalized topic gets back all the partitions that it had, which go on at their last offsets, and more."""
    had = len(topic.partitions)
    if growth.count < had:
        raise InvalidPartitions(
            f"The topic {topic.name} had {had} partition(s) before it was finalized, and gets them back together: ask "
            f"for {had} or more."
        )
    if chunks_needed(growth.count) > GROWTH_CHUNKS_MAX:
        raise InvalidPartitions(f"The topic {topic.name} is finalized: grow it to {had} partition(s) first.")


def resumed(image: MetadataImage, topic: TopicState, index: int, in_sync_min: int) -> PartitionState:
    """A ghost with replicas, which goes on at its last offset."""
    factor = len(topic.partitions[0].target_replicas)
    [placed] = place_or_refuse(image, first=index, count=1, factor=factor)
    return revived(topic, index, new_partition(image, index, placed, in_sync_min))
