"""The driver's requests to brokers: partitions, their first and last offsets, and the offsets of groups."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from penstock.client.connection import Address
from penstock.model.errors import BrokerError
from penstock.wire.api import describe_log_dirs, list_offsets, offset_commit, offset_fetch
from pyspark_penstock.errors import PenstockRuntimeError, WrongOption
from pyspark_penstock.fetching import LIST_OFFSETS_VERSION_MAX
from pyspark_penstock.java_regex import translated
from pyspark_penstock.link import BrokerLink, LinkDown, raise_for
from pyspark_penstock.offset_options import AtOffsets, AtTime, Back, Everywhere, Limit, OfGroup
from pyspark_penstock.offsets import EARLIEST, LATEST, Offsets, Place, named
from pyspark_penstock.topic_options import Subscription

OFFSET_FETCH_VERSION_MAX = 7
"""Later versions are for several groups at once."""
OFFSET_COMMIT_VERSION_MAX = 8
NOTHING_COMMITTED = -1
LOOKUPS_MAX = 4
"""How often a topic that does not exist is looked up, each time at another broker."""
LOOKUP_SECONDS = 0.2
NO_SUCH_TIME = -1


class MissingTopic(PenstockRuntimeError):
    """A topic that a query names does not exist."""


class Cluster:
    """Requests about the topics of one subscription, retried while brokers are unavailable or leaders move."""

    def __init__(self, link: BrokerLink, subscription: Subscription, *, read_committed: bool) -> None:
        self._link = link
        self._subscription = subscription
        self._isolation = int(read_committed)

    def close(self) -> None:
        self._link.close()

    # Which partitions

    def places(self) -> frozenset[Place]:
        """The partitions of the subscription that exist now."""
        return self._link.retrying("looking up topics", self._places)

    def _places(self) -> frozenset[Place]:
        wanted = self._subscription
        if wanted.pattern:
            pattern = re.compile(translated(wanted.pattern))
            names = [name for name in self._link.topics(None) if pattern.fullmatch(name)]
            return self._of(self._link.topics(names)) if names else frozenset()
        if wanted.topics:
            return self._of(self._link.topics(wanted.topics))
        found = self._of(self._link.topics({topic for topic, _ in wanted.places}))
        return found & wanted.places

    @staticmethod
    def _of(topics: Mapping[str, Mapping[int, object]]) -> frozenset[Place]:
        return frozenset((topic, partition) for topic, partitions in topics.items() for partition in partitions)

    def require(self) -> frozenset[Place]:
        """The same; MissingTopic if a topic or partition that the subscription names does not exist."""
        wanted = self._subscription
        found = self.places()
        for _ in range(LOOKUPS_MAX - 1):
            if not (wanted.places - found or set(wanted.topics) - {topic for topic, _ in found}):
                break
            # Of several brokers, each learns of a new topic on its own.
            self._link.forget()
            time.sleep(LOOKUP_SECONDS)
            found = self.places()
        missing = sorted(set(wanted.topics) - {topic for topic, _ in found})
        if missing:
            raise MissingTopic(f"Topic {', '.join(missing)} does not exist")
        if wanted.places - found:
            raise MissingTopic(f"Partitions {named(wanted.places - found)} do not exist")
        return found

    def topic_id(self, topic: str) -> bytes:
        return self._link.topic_id(topic)

    def leader(self, topic: str, partition: int) -> Address | None:
        """The leader of a partition, so that tasks need not look it up; None if it is not known now."""
        try:
            return self._link.leader(topic, partition)
        except (LinkDown, BrokerError):
            return None

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch of that leader; -1 if it is not known now."""
        return self._link.leader_epoch(topic, partition)

    # Where they begin and end

    def earliest(self, places: Iterable[Place]) -> Offsets:
        return self.at(dict.fromkeys(places, EARLIEST))

    def latest(self, places: Iterable[Place]) -> Offsets:
        """The end offset for readers: the high watermark, or with read_committed the last stable offset."""
        return self.at(dict.fromkeys(places, LATEST))

    def at(self, times: Mapping[Place, int]) -> Offsets:
        """The first offset at or after a time, or at EARLIEST or LATEST; NO_SUCH_TIME if there is none."""
        return self._link.retrying("looking up offsets", lambda: self._at(times)) if times else {}

    def _at(self, times: Mapping[Place, int]) -> Offsets:
        by_leader: dict[Address, list[Place]] = {}
        for topic, partition in times:
            by_leader.setdefault(self._link.leader(topic, partition), []).append((topic, partition))
        found: Offsets = {}
        for address, places in by_leader.items():
            topics: dict[str, list[list_offsets.ListOffsetsPartition]] = {}
            for topic, partition in places:
                requested = list_offsets.ListOffsetsPartition(
                    partition_index=partition,
                    current_leader_epoch=self._link.leader_epoch(topic, partition),
                    timestamp=times[topic, partition],
                )
                topics.setdefault(topic, []).append(requested)
            request = list_offsets.Request(
                replica_id=-1,
                isolation_level=self._isolation,
                topics=[list_offsets.ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
            )
            response = self._link.call(address, list_offsets, request, LIST_OFFSETS_VERSION_MAX)
            for topic in response.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, f"{topic.name}-{part.partition_index}")
                    found[topic.name, part.partition_index] = part.offset
        return found

    def record_bytes(self, places: Iterable[Place]) -> dict[Place, float]:
        """The average bytes per offset of a partition, from its size on disk and its number of offsets."""
        wanted = list(places)
        sizes = self._link.retrying("looking up sizes", lambda: self._sizes(wanted))
        earliest, latest = self.earliest(wanted), self.latest(wanted)
        return {place: sizes.get(place, 0) / max(1, latest[place] - earliest[place]) for place in wanted}

    def _sizes(self, places: Iterable[Place]) -> dict[Place, int]:
        found: dict[Place, int] = {}
        leaders: dict[Address, set[Place]] = {}
        for topic, partition in places:
            leaders.setdefault(self._link.leader(topic, partition), set()).add((topic, partition))
        for address, led in leaders.items():
            topics: dict[str, list[int]] = {}
            for topic, partition in led:
                topics.setdefault(topic, []).append(partition)
            requested = [
                describe_log_dirs.DescribableLogDirTopic(topic=topic, partitions=parts)
                for topic, parts in topics.items()
            ]
            response = self._link.call(address, describe_log_dirs, describe_log_dirs.Request(topics=requested))
            for directory in response.results:
                raise_for(directory.error_code, f"log directory {directory.log_dir}")
                for topic in directory.topics:
                    for part in topic.partitions:
                        if not part.is_future_key:
                            found[topic.name, part.partition_index] = part.partition_size
        return found

    # From options to offsets

    def resolve(self, limit: Limit, *, starting: bool, now_ms: int) -> Offsets:
        """An offset for every partition of the subscription."""
        places = self.require()
        match limit:
            case Everywhere():
                return self.at(dict.fromkeys(places, limit.offset))
            case AtOffsets():
                return self._specific(limit, places)
            case AtTime():
                return self._timed(limit, places, starting=starting)
            case Back():
                return self._back(limit, places, now_ms)
            case OfGroup():
                committed = self.committed(limit.group, places)
                otherwise = self.resolve(limit.otherwise, starting=starting, now_ms=now_ms)
                return {place: committed.get(place, otherwise[place]) for place in places}

    def _specific(self, limit: AtOffsets, places: frozenset[Place]) -> Offsets:
        if frozenset(limit.offsets) != places:
            raise WrongOption(
                "Partitions specified for Kafka start offsets don't match what are assigned. Maybe topic partitions "
                "are created or deleted while the query is running. Use -1 for latest, -2 for earliest.\n"
                f"Specified: {named(limit.offsets)} Assigned: {named(places)}"
            )
        requested = {place: offset for place, offset in limit.offsets.items() if offset in (EARLIEST, LATEST)}
        return {**limit.offsets, **self.at(requested)}

    def _timed(self, limit: AtTime, places: frozenset[Place], *, starting: bool) -> Offsets:
        if limit.timestamps_ms is None:
            assert limit.timestamp_ms is not None, "one time or many"
            times: Mapping[Place, int] = dict.fromkeys(places, limit.timestamp_ms)
        else:
            times = limit.timestamps_ms
        if frozenset(times) != places:
            raise WrongOption(
                f"Partitions specified for Kafka timestamp based {'starting' if starting else 'ending'} offsets don't "
                "match what are assigned. Maybe topic partitions are created or deleted while the query is running, "
                f"or you didn't specify all the partitions.\nSpecified: {named(times)} Assigned: {named(places)}"
            )
        found = self.at(times)
        missing = [place for place, offset in found.items() if offset == NO_SUCH_TIME]
        if missing and not limit.or_latest:
            topic, partition = min(missing)
            raise WrongOption(
                f"No offset matched from request of topic-partition {topic}-{partition} and timestamp "
                f"{times[topic, partition]}."
            )
        return {**found, **self.latest(missing)}

    def _back(self, limit: Back, places: frozenset[Place], now_ms: int) -> Offsets:
        latest = self.latest(places)
        if limit.duration_ms:
            found = self.at(dict.fromkeys(places, now_ms - limit.duration_ms))
            return {place: latest[place] if found[place] == NO_SUCH_TIME else found[place] for place in places}
        earliest = self.earliest(places)
        return {place: max(earliest[place], latest[place] - limit.records) for place in places}

    # Groups

    def committed(self, group: str, places: Iterable[Place]) -> Offsets:
        """The committed offsets of a group; partitions without one are omitted."""
        wanted: dict[str, list[int]] = {}
        for topic, partition in places:
            wanted.setdefault(topic, []).append(partition)
        topics = [
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in wanted.items()
        ]
        request = offset_fetch.Request(group_id=group, topics=topics)

        def attempt() -> Offsets:
            response = self._call_coordinator(group, offset_fetch, request, OFFSET_FETCH_VERSION_MAX)
            raise_for(response.error_code, f"group {group}")
            found: Offsets = {}
            for topic in response.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, f"group {group}")
                    if part.committed_offset != NOTHING_COMMITTED:
                        found[topic.name, part.partition_index] = part.committed_offset
            return found

        return self._link.retrying(f"the coordinator of group {group}", attempt)

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit these offsets to a group, as one of its consumers would."""
        topics: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            part = offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(topic, []).append(part)
        request = offset_commit.Request(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[
                offset_commit.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()
            ],
        )

        def attempt() -> None:
            response = self._call_coordinator(group, offset_commit, request, OFFSET_COMMIT_VERSION_MAX)
            for topic in response.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, f"committing {topic.name}-{part.partition_index} to group {group}")

        self._link.retrying(f"the coordinator of group {group}", attempt)

    def _call_coordinator(self, group: str, api: ModuleType, request: Any, version_max: int) -> Any:
        return self._link.call(self._link.coordinator(group), api, request, version_max)
