"""Topics, configs and offsets of a cluster, as typed values."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep
from typing import Any

from penstock.client.calls import AdminCalls
from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError, failure, failure_of
from penstock.client.library import kafka, kafka_admin
from penstock.client.positions import Bounds

UNKNOWN_TOPIC_OR_PARTITION = 3
SETTLE_TRIES = 100
SETTLE_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """The leader and the replicas of a partition."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as the cluster's metadata has it."""

    name: str
    internal: bool
    partitions: tuple[PartitionInfo, ...]
    topic_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One setting and the source of its value, by Kafka's name."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource with settings: a topic or group by name, or a broker by id."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Admin:
    """One admin connection. Every call returns its result or raises `ClientError`."""

    def __init__(self, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        self._calls = AdminCalls(connection, seconds_max)
        self._client = self._calls.client

    def topics(self) -> tuple[TopicInfo, ...]:
        """Every topic, by name."""
        # A Metadata request for named topics may create them; one for all topics creates none.
        metadata = self._metadata()
        found: list[TopicInfo] = []
        for name, topic in sorted(metadata.topics.items()):
            if topic.error is not None:
                raise failure(topic.error, f"topic {name}")
            partitions = tuple(
                PartitionInfo(partition=index, leader=each.leader, replicas=tuple(each.replicas), isr=tuple(each.isrs))
                for index, each in sorted(topic.partitions.items())
            )
            found.append(TopicInfo(name=name, internal=name.startswith("__"), partitions=partitions))
        return tuple(found)

    def brokers(self) -> tuple[int, ...]:
        """The ids of the brokers, in order."""
        return tuple(sorted(self._metadata().brokers))

    def describe(self, name: str) -> TopicInfo:
        """One topic with its id; unknown names are an error and are not created."""
        with self._about_topic(name):
            return self._describe(name)

    def _describe(self, name: str) -> TopicInfo:
        found = self._calls.one(f"topic {name}", self._client.describe_topics, kafka().TopicCollection([name]))
        partitions = tuple(
            PartitionInfo(
                partition=each.id,
                leader=-1 if each.leader is None else each.leader.id,
                replicas=tuple(node.id for node in each.replicas),
                isr=tuple(node.id for node in each.isr),
            )
            for each in found.partitions
        )
        return TopicInfo(
            name=found.name, internal=found.is_internal, partitions=partitions, topic_id=str(found.topic_id)
        )

    def create(self, name: str, *, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        """-1 partitions or replicas are the broker's default."""
        topic = kafka_admin().NewTopic(
            name, num_partitions=partitions, replication_factor=replicas, config=dict(configs)
        )
        self._calls.one(f"cannot create topic {name}", self._client.create_topics, [topic])

    def described_when_led(self, name: str) -> TopicInfo:
        """A new topic, once its partitions have leaders: brokers learn of it a moment after the controller."""
        for _ in range(SETTLE_TRIES):
            try:
                found = self._describe(name)
            except ClientError as error:
                if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                    raise
            else:
                if all(each.leader >= 0 for each in found.partitions):
                    return found
            sleep(SETTLE_PAUSE_SECONDS)
        return self.describe(name)

    def delete(self, name: str) -> None:
        with self._about_topic(name):
            self._calls.one(f"cannot delete topic {name}", self._client.delete_topics, [name])

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions until the topic has this many."""
        wanted = kafka_admin().NewPartitions(name, partitions)
        doing = f"cannot grow topic {name} to {partitions} partitions"
        with self._about_topic(name):
            self._calls.one(doing, self._client.create_partitions, [wanted])

    def configs(self, resource: Resource) -> tuple[ConfigValue, ...]:
        """Every setting of a topic or broker, by name."""
        wanted = kafka_admin().ConfigResource(resource.kind, resource.name)
        with self._about_topic(resource.name):
            found = self._calls.one(f"cannot describe {resource}", self._client.describe_configs, [wanted])
        return tuple(
            ConfigValue(
                name=entry.name,
                value=entry.value,
                source=kafka_admin().ConfigSource(entry.source).name,
                read_only=entry.is_read_only,
                sensitive=entry.is_sensitive,
            )
            for _, entry in sorted(found.items())
        )

    def alter(self, resource: Resource, *, put: Mapping[str, str], remove: Iterable[str]) -> None:
        """Set some settings and put others back to their defaults; those not named stay as they are."""
        entry, change = kafka_admin().ConfigEntry, kafka_admin().AlterConfigOpType
        changes = [entry(name, value, incremental_operation=change.SET) for name, value in put.items()]
        changes += [entry(name, None, incremental_operation=change.DELETE) for name in remove]
        target = kafka_admin().ConfigResource(resource.kind, resource.name, incremental_configs=changes)
        with self._about_topic(resource.name):
            self._calls.one(f"cannot change {resource}", self._client.incremental_alter_configs, [target])

    def bounds(self, topic: str, partitions: Sequence[int], times: Iterable[int] = ()) -> dict[int, Bounds]:
        """The start and end of each partition, and the offsets of the given timestamps."""
        spec = kafka_admin().OffsetSpec
        starts = self._offsets(topic, partitions, spec.earliest())
        ends = self._offsets(topic, partitions, spec.latest())
        at = {time: self._offsets(topic, partitions, spec.for_timestamp(time)) for time in times}
        return {
            index: Bounds(
                start=starts[index], end=ends[index], by_time={time: found[index] for time, found in at.items()}
            )
            for index in partitions
        }

    def truncate(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records below an offset of each partition; returns the new log starts."""
        wanted = [kafka().TopicPartition(topic, index, offset) for index, offset in before.items()]
        found = self._calls.all(f"cannot truncate topic {topic}", self._client.delete_records, wanted)
        return {each.partition: result.low_watermark for each, result in found.items()}

    @contextmanager
    def _about_topic(self, name: str) -> Generator[None]:
        """Add the nearest existing name to the error about an unknown topic."""
        try:
            yield
        except ClientError as error:
            if error.code == UNKNOWN_TOPIC_OR_PARTITION:
                from difflib import get_close_matches  # needed for this error only

                close = get_close_matches(name, [each.name for each in self.topics()], n=1)
                meant = f"did you mean {close[0]}? " if close else ""
                error.hint = f"{meant}`penstock topic list` shows the topics, `penstock topic create` makes one"
            raise

    def _offsets(self, topic: str, partitions: Sequence[int], spec: Any) -> dict[int, int]:
        wanted = {kafka().TopicPartition(topic, index): spec for index in partitions}
        found = self._calls.all(f"cannot list offsets of topic {topic}", self._client.list_offsets, wanted)
        return {each.partition: result.offset for each, result in found.items()}

    def _metadata(self) -> Any:
        try:
            return self._client.list_topics(timeout=self._calls.seconds_max)
        except Exception as error:
            cause = failure_of(error, f"{self._calls.bootstrap} did not respond")
            cause.hint = "something listens there, but is it a Kafka broker, and does it want TLS or a login?"
            raise cause from error
