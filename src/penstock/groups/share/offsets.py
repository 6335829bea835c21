"""Describes, alters and deletes the offsets of share groups, which share coordinators keep.

A change has three steps: the group coordinator notes in its log which share partitions begin or end, their coordinators
are asked to do it, and the group coordinator notes what became of it. A group coordinator that is lost in the middle
leaves a note for the next one, which finishes the work.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from penstock.coordinator.step import Result
from penstock.groups.commands import (
    AlterShareOffsets,
    DeleteGroups,
    DeleteGroupsReply,
    DeleteShareOffsets,
    GroupCommand,
    SharesDeleted,
    SharesInitialized,
)
from penstock.groups.service import GroupCoordinatorService
from penstock.groups.share.asking import Responses, ask_each, divided
from penstock.groups.share.latest_offsets import Ends
from penstock.groups.share.responses import SharesChosen
from penstock.groups.topics import TopicsView
from penstock.model.deferred import Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import UnknownTopicOrPartition
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.shares.persister import SharePartitionSummary, SharePersister

NO_LAG = -1


Errors = Mapping[TopicPartition, BrokerError | None]


class OffsetEnds(Protocol):
    """Finds the ends of partitions, wherever their leaders are."""

    def of(self, partitions: Iterable[TopicPartition]) -> Eventual[Ends]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsAltered:
    """What became of a request to alter offsets."""

    error: BrokerError | None = None
    """Why the whole request failed."""
    topics: Mapping[str, TopicId] = field(default_factory=dict[str, TopicId])
    """The ids of the topics that exist."""
    errors: Errors = field(default_factory=dict[TopicPartition, BrokerError | None])
    """The error of each partition, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """What became of the offsets of a topic."""

    topic_id: TopicId | None
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted:
    """What became of a request to delete offsets."""

    error: BrokerError | None = None
    """Why the whole request failed."""
    topics: Mapping[str, TopicDeleted] = field(default_factory=dict[str, TopicDeleted])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOffset:
    """Where a share partition is; a start offset of -1 is none yet."""

    start_offset: int
    leader_epoch: LeaderEpoch
    lag: int
    error: BrokerError | None = None


NO_OFFSET_YET = ShareOffset(start_offset=-1, leader_epoch=LeaderEpoch(0), lag=NO_LAG)


NOT_THERE = UnknownTopicOrPartition()
"""In place of the summary of a partition that a topic does not have."""


class ShareOffsets:
    """Carries out the requests of administrators on this broker's group coordinators."""

    def __init__(
        self, *, coordinators: GroupCoordinatorService, shares: SharePersister, topics: TopicsView, ends: OffsetEnds
    ) -> None:
        self._coordinators = coordinators
        self._shares = shares
        self._topics = topics
        self._ends = ends

    # Changes

    def alter(self, group: str, wanted: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> Eventual[OffsetsAltered]:
        """Let share partitions begin at other offsets; fails as a whole for a group with members."""
        partitions = tuple((name, tuple(index for index, _ in offsets)) for name, offsets in wanted)

        def begin(result: Result) -> Eventual[OffsetsAltered]:
            if isinstance(result, BrokerError):
                return OffsetsAltered(error=result)
            assert isinstance(result, SharesChosen), f"a choice of share partitions: {result}"
            chosen = result
            offsets = {
                (chosen.topics[name], index): Offset(offset)
                for name, pairs in wanted
                if name in chosen.topics
                for index, offset in pairs
            }
            asked = ask_each(
                chosen.partitions,
                lambda topic_id, index: self._shares.initialize(
                    group, topic_id, index, chosen.state_epoch, offsets[topic_id, index]
                ),
            )
            return after(asked, lambda responses: note(chosen, responses))

        def note(chosen: SharesChosen, responses: Responses) -> Eventual[OffsetsAltered]:
            good, bad = divided(responses)
            noted = self._submit(group, SharesInitialized(group=group, partitions=good, failed=bad))

            def respond(result: Result) -> OffsetsAltered:
                if isinstance(result, BrokerError):
                    return OffsetsAltered(error=result)
                errors: dict[TopicPartition, BrokerError | None] = {}
                for name, indexes in partitions:
                    topic_id = chosen.topics.get(name)
                    for index in indexes:
                        missing = topic_id is None or (topic_id, index) not in responses
                        errors[TopicPartition(name, index)] = (
                            UnknownTopicOrPartition() if missing else responses[cast("TopicId", topic_id), index]
                        )
                return OffsetsAltered(topics=chosen.topics, errors=errors)

            return after(noted, respond)

        return after(self._submit(group, AlterShareOffsets(group=group, partitions=partitions)), begin)

    def delete(self, group: str, names: Sequence[str] | None) -> Eventual[OffsetsDeleted]:
        """End the share partitions of topics, or with None of all; fails as a whole for a group with members."""
        wanted = None if names is None else tuple(dict.fromkeys(names))

        def begin(result: Result) -> Eventual[OffsetsDeleted]:
            if isinstance(result, BrokerError):
                return OffsetsDeleted(error=result)
            assert isinstance(result, SharesChosen), f"a choice of share partitions: {result}"
            chosen = result
            asked = ask_each(chosen.partitions, lambda topic_id, index: self._shares.delete(group, topic_id, index))
            return after(asked, lambda responses: note(chosen, responses))

        def note(chosen: SharesChosen, responses: Responses) -> Eventual[OffsetsDeleted]:
            errors: dict[TopicId, BrokerError] = {
                topic_id: error
                for (topic_id, _), error in responses.items()
                if isinstance(error, BrokerError) and not isinstance(error, UnknownTopicOrPartition)
            }
            gone = frozenset(chosen.topics.values()) - errors.keys()
            noted = self._submit(group, SharesDeleted(group=group, topics=gone))

            def respond(result: Result) -> OffsetsDeleted:
                if isinstance(result, BrokerError):
                    return OffsetsDeleted(error=result)
                found = {
                    name: TopicDeleted(topic_id=topic_id, error=errors.get(topic_id))
                    for name, topic_id in chosen.topics.items()
                }
                for name, error in chosen.failures.items():
                    found[name] = TopicDeleted(topic_id=None, error=error)
                return OffsetsDeleted(topics=found)

            return after(noted, respond)

        return after(self._submit(group, DeleteShareOffsets(group=group, topics=wanted)), begin)

    def delete_group(self, group: str) -> Eventual[BrokerError | None]:
        """Delete a share group without members, and first the state of its share partitions."""

        def forget(deleted: OffsetsDeleted) -> Eventual[BrokerError | None]:
            if deleted.error is not None:
                return deleted.error
            for each in deleted.topics.values():
                if each.error is not None and each.topic_id is not None:
                    return each.error
            return after(self._submit(group, DeleteGroups(groups=(group,))), respond)

        def respond(result: Result) -> BrokerError | None:
            if isinstance(result, BrokerError):
                return result
            assert isinstance(result, DeleteGroupsReply), f"a response to a deletion: {result}"
            return result.failures.get(group)

        return after(self.delete(group, None), forget)

    # Queries

    def known(self, group: str) -> Eventual[Mapping[str, Sequence[int]]]:
        """The share partitions of a group, by topic; none of a group that is unknown or of another type.

        Raises where this broker does not coordinate it. The result is committed.
        """
        coordinator = self._coordinators.of(group)
        shard = coordinator.shard()
        found: dict[str, Sequence[int]] = {}
        if shard.is_share_group(group):
            for topic_id, indexes in shard.share_group(group).offset_partitions().items():
                name = self._topics.topic_name(topic_id)
                if name is not None:
                    found[name] = sorted(indexes)
        wait = coordinator.committed()
        return found if wait is None else wait.then(lambda _: found)

    def describe(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Eventual[Mapping[TopicPartition, ShareOffset]]:
        """Where these share partitions are, and their lag; unknown ones have no offset.

        Nobody is asked about partitions that do not exist, of which a request may name any number.
        """
        ids = {name: topic_id for name in wanted if (topic_id := self._topics.topic_id(name)) is not None}
        names = {topic_id: name for name, topic_id in ids.items()}
        counts = {name: self._topics.partition_count(name) or 0 for name in ids}
        asked = ask_each(
            {
                topic_id: frozenset(index for index in wanted[name] if 0 <= index < counts[name])
                for name, topic_id in ids.items()
            },
            lambda topic_id, index: self._shares.read_summary(group, topic_id, index, NO_LEADER_EPOCH),
        )

        def measure(responses: Responses) -> Eventual[Mapping[TopicPartition, ShareOffset]]:
            summaries = {
                TopicPartition(names[topic_id], index): response for (topic_id, index), response in responses.items()
            }
            measured = [tp for tp, found in summaries.items() if has_lag(found)]
            return after(
                self._ends.of(measured),
                lambda ends: {
                    tp: described(summaries.get(tp, NOT_THERE if name in ids else None), ends.get(tp))
                    for name, indexes in wanted.items()
                    for tp in (TopicPartition(name, index) for index in indexes)
                },
            )

        return after(asked, measure)

    def _submit(self, group: str, command: GroupCommand) -> Eventual[Result]:
        try:
            return self._coordinators.of(group).submit(command)
        except BrokerError as error:
            return error


def has_lag(summary: object) -> bool:
    return (
        isinstance(summary, SharePartitionSummary)
        and summary.start_offset >= 0
        and summary.delivery_complete_count >= 0
    )


def described(summary: object, end: Offset | None) -> ShareOffset:
    if isinstance(summary, BrokerError):
        return ShareOffset(start_offset=-1, leader_epoch=LeaderEpoch(0), lag=NO_LAG, error=summary)
    if not isinstance(summary, SharePartitionSummary):
        return NO_OFFSET_YET
    lag = NO_LAG
    if end is not None and has_lag(summary):
        lag = max(end - summary.start_offset - summary.delivery_complete_count, 0)
    return ShareOffset(start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag)
