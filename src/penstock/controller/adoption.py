"""Adoption: makes a topic of logs that the metadata does not have, because they were set aside or metadata was lost.

Works on the files of a stopped broker. It writes metadata and notes, by which the next start restores the logs.
"""

import contextlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.config.broker import BrokerConfig
from penstock.config.log import check_topic_configs
from penstock.controller.plan import PlanStep
from penstock.controller.topics import PARTITIONS_PER_REQUEST_MAX, check_new_name, creation_steps, removal_steps
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Delete, Operation
from penstock.metadata.records import chunks_needed, deletion_path, topic_path
from penstock.metadata.store import MetadataStore
from penstock.model.clock import Randomness
from penstock.model.ids import TOPIC_ID_ZERO, BrokerId, LeaderEpoch, TopicId, TopicPartition
from penstock.model.topic import (
    GROUP_OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    PartitionState,
    TopicState,
)
from penstock.storage import marks, partition_metadata, set_aside
from penstock.storage.checkpoint import CheckpointDamaged
from penstock.storage.directories import CLUSTER_ID, LOCK, NODE_ID, LogDirectory
from penstock.storage.disk import Disk, replace_file
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.files import OpenFiles
from penstock.storage.names import EPOCHS, PARTITION_METADATA, STRAY_DIRECTORY, parse_partition_name
from penstock.storage.set_aside import Reason, StrayLog

UNLIMITED_RETENTION: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of an adopted topic: its own are lost, and the default retention could delete the records at once."""

COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
COMPACTED_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
"""The coordinators' topics of which the last record of each key counts."""

INTERNAL_COUNTS: Mapping[str, str] = {
    GROUP_OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic.num.partitions",
}
"""The coordinators' topics, and the settings that their partition counts come from."""


class AdoptionRefused(Exception):
    """The logs cannot be made a topic; the message says why, and `hint` what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanTopic:
    """Logs of one topic id that the metadata does not use."""

    name: str
    topic_id: TopicId
    logs: Mapping[int, StrayLog]
    """By partition."""


class DataDirectories:
    """The log directories of a stopped broker, locked."""

    def __init__(self, paths: Sequence[str], disk: Disk) -> None:
        self._disk = disk
        self._directories = [LogDirectory(path, disk, OpenFiles(1)) for path in paths]

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Lock the directories; `AdoptionRefused` while a broker runs on them."""
        with contextlib.ExitStack() as held:
            for directory in self._directories:
                lock = self._disk.lock(directory.file(LOCK))
                if lock is None:
                    raise AdoptionRefused(f"a broker uses {directory.path}", "stop it first")
                held.callback(lock.release)
            yield

    def cluster_id(self) -> str | None:
        return self._owned(CLUSTER_ID)

    def broker_id(self) -> BrokerId | None:
        found = self._owned(NODE_ID)
        return None if found is None else BrokerId(int(found))

    def _owned(self, name: str) -> str | None:
        found = {value for directory in self._directories if (value := directory.owner().get(name)) is not None}
        if len(found) > 1:
            raise AdoptionRefused(
                f"the directories are of different owners: {name} is {' and '.join(sorted(found))}",
                "name the directories of one broker",
            )
        return next(iter(found), None)

    def orphans(self, image: MetadataImage) -> list[OrphanTopic]:
        """The topics whose logs are set aside, or in use without metadata; sorted by name."""
        topics: dict[tuple[str, TopicId], dict[int, StrayLog]] = {}
        for directory in self._directories:
            found = [*set_aside.find(self._disk, directory.path), *self._unknown(directory, image)]
            for log in found:
                logs = topics.setdefault((log.tp.topic, log.topic_id), {})
                known = logs.get(log.tp.partition)
                if known is None or known.recovery_point < log.recovery_point:
                    logs[log.tp.partition] = log
        return [OrphanTopic(name=name, topic_id=of, logs=logs) for (name, of), logs in sorted(topics.items())]

    def _unknown(self, directory: LogDirectory, image: MetadataImage) -> Iterator[StrayLog]:
        """Logs under their own names that the next start would set aside."""
        checkpointed = marks.read(self._disk, directory.path)
        for name in self._disk.list_directory(directory.path):
            tp = parse_partition_name(name)
            topic_id = None if tp is None else set_aside.read_topic_id(self._disk, directory.file(name))
            if tp is None or topic_id is None or topic_id in image.deletions:
                continue
            topic = image.topics.get(tp.topic)
            own = topic is not None and tp.partition < len(topic.partitions)
            if topic is None or not own or topic_id not in (topic.topic_id, TOPIC_ID_ZERO):
                last = checkpointed.of(tp)
                yield StrayLog(
                    path=directory.file(name),
                    tp=tp,
                    topic_id=topic_id,
                    reason=Reason.UNKNOWN_TOPIC,
                    stop=directory.last_stop(),
                    log_start=last.log_start,
                    recovery_point=last.recovery_point,
                    high_watermark=last.high_watermark,
                    cleaned_to=last.cleaned_to,
                )

    def give(self, logs: Collection[StrayLog], name: str, topic_id: TopicId, randomness: Randomness) -> None:
        """Mark logs as those of a topic; the next start restores them."""
        for log in logs:
            if log.topic_id != topic_id:
                replace_file(
                    self._disk, f"{log.path}/{PARTITION_METADATA}", partition_metadata.encode(topic_id), sync=True
                )
            tp = TopicPartition(name, log.tp.partition)
            given = replace(log, tp=tp, topic_id=topic_id, reason=Reason.ADOPTED)
            if log.path.endswith(STRAY_DIRECTORY):
                set_aside.write_note(self._disk, given)
            elif log.tp != tp or log.topic_id != topic_id:
                set_aside.set_aside(self._disk, given, randomness.uuid_bytes().hex())

    def epoch_of(self, log: StrayLog | None) -> LeaderEpoch:
        """The next leader epoch of a log: greater than that of every batch in it."""
        if log is None:
            return LeaderEpoch(0)
        try:
            return LeaderEpoch(LeaderEpochs.load(self._disk, f"{log.path}/{EPOCHS}").latest + 1)
        except CheckpointDamaged:
            return LeaderEpoch(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """An operator's request to adopt logs."""

    orphan: OrphanTopic
    name: str
    partitions: int | None = None
    configs: Mapping[str, str] | None = None
    replace: bool = False
    """Whether to replace an existing topic of that name, whose logs are then set aside."""


async def read_image(store: MetadataStore) -> MetadataImage:
    image = MetadataImage()
    image.replace_with((await store.tree("/")).nodes)
    return image


async def adopt(
    store: MetadataStore,
    directories: DataDirectories,
    adoption: Adoption,
    *,
    broker_id: BrokerId,
    randomness: Randomness,
) -> TopicState:
    """Make a topic of orphaned logs; returns its new metadata."""
    image = await read_image(store)
    orphan, name = adoption.orphan, adoption.name
    operations: list[Operation] = []
    existing = image.topics.get(name)
    owner = image.topics_by_id.get(orphan.topic_id)
    if owner is not None and all(log.is_restorable for log in orphan.logs.values()):
        raise AdoptionRefused(
            f"the logs are of topic {owner.name}, which has {len(owner.partitions)} partitions",
            f"start the broker and run `penstock topic grow {owner.name} --to {max(orphan.logs) + 1}`",
        )
    if existing is None:
        check_new_name(image, name)
    elif adoption.replace:
        operations.append(Delete(topic_path(name), existing.version))
        operations += flat(removal_steps(image, existing.topic_id))
    else:
        raise AdoptionRefused(
            f"the metadata has a topic {name} already",
            "give the logs another name with --as NAME, or set that topic's own logs aside with --replace",
        )
    topic_id = orphan.topic_id
    if topic_id == TOPIC_ID_ZERO or topic_id in image.topics_by_id:
        topic_id = TopicId(randomness.uuid_bytes())
    elif topic_id in image.deletions:
        operations.append(Delete(deletion_path(topic_id)))
    if topic_id in image.orphans():
        operations += flat(removal_steps(image, topic_id))
    topic = TopicState(
        name=name,
        topic_id=topic_id,
        configs=settings_of(adoption),
        partitions=tuple(
            PartitionState(
                index=index,
                leader=broker_id,
                leader_epoch=directories.epoch_of(orphan.logs.get(index)),
                replicas=(broker_id,),
                isr=(broker_id,),
            )
            for index in range(count_of(adoption))
        ),
        chunk_versions=(0,) * chunks_needed(count_of(adoption)),
    )
    directories.give(orphan.logs.values(), name, topic_id, randomness)
    await store.multi([*operations, *flat(creation_steps(topic, image.level))])
    return topic


def flat(steps: Iterable[PlanStep]) -> list[Operation]:
    return [operation for step in steps for operation in step]


def settings_of(adoption: Adoption) -> dict[str, str]:
    usual = COMPACTED if adoption.name in COMPACTED_TOPICS else UNLIMITED_RETENTION
    configs = {**usual, **(adoption.configs or {})}
    check_topic_configs(configs, BrokerConfig())
    return configs


def count_of(adoption: Adoption) -> int:
    """The number of partitions: enough for every log, and more if the operator says so.

    That of a coordinator's topic has to be given. Its logs do not tell how many partitions it had, and with another
    count groups and transactional ids would be looked up in other partitions than those that have their records.
    """
    needed = max(adoption.orphan.logs) + 1
    setting = INTERNAL_COUNTS.get(adoption.name)
    if adoption.partitions is None and setting is not None:
        raise AdoptionRefused(
            f"how many partitions {adoption.name} had is not known, and every key in it is found by that number",
            f"give it with --partitions: the broker's {setting} when the topic was created, 50 unless it was set",
        )
    count = adoption.partitions or needed
    if count < needed:
        raise AdoptionRefused(
            f"partition {needed - 1} has a log, so {count} partitions are too few", "see --partitions"
        )
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise AdoptionRefused(f"{count} partitions are more than {PARTITIONS_PER_REQUEST_MAX}", "see --partitions")
    return count
