"""Online migration of a group between the protocols.

When a member with the consumer protocol joins a classic group of consumers, the group is upgraded to the consumer
protocol and goes on serving its classic members. When the last member with the consumer protocol leaves, the group is
downgraded to a classic one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.groups.consumer.embedded_protocol import (
    MalformedProtocolError,
    TopicIndexes,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from penstock.groups.consumer.events import (
    ConsumerCurrentMemberAssignment,
    ConsumerEvent,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
)
from penstock.groups.consumer.state import Member, TopicHashes
from penstock.groups.events import ClassicGroupSaved
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE
from penstock.groups.topics import TopicsView
from penstock.model.generated_errors import GroupIdNotFound
from penstock.model.ids import TopicId
from penstock.wire.group_values import (
    AssignmentEpoch,
    ClassicGroupValue,
    ClassicMember,
    ClassicMetadata,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Partitions,
)


class MigrationPolicy(Enum):
    """The directions in which groups may migrate; an unknown value of the setting is DISABLED."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @classmethod
    def named(cls, name: str) -> "MigrationPolicy":
        return next((policy for policy in cls if policy.value == name.lower()), cls.DISABLED)

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class ClassicAdopted(NamedTuple):
    """Timer: a group has just been downgraded: start its members' sessions; with a reason, rebalance."""

    group: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicPeer:
    """A member of a classic group that is being upgraded."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicImage:
    """A classic group that is being upgraded. `protocol` is None before its first generation."""

    group: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    peers: Sequence[ClassicPeer]


# Upgrade


def check_upgrade(image: ClassicImage, policy: MigrationPolicy, size_max: int) -> None:
    """Raises GroupIdNotFound, with Kafka's message, if the group cannot be upgraded."""
    if not policy.upgrades:
        reason = "online upgrade is disabled"
    elif image.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(image.peers) > size_max:
        reason = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise upgrade_refused(image.group, f"{reason}.")


def upgrade_refused(group: str, reason: str) -> GroupIdNotFound:
    return GroupIdNotFound(f"Cannot upgrade classic group {group} to consumer group because {reason}")


def upgraded(image: ClassicImage, topics: TopicsView) -> tuple[ConsumerEvent, ...]:
    """The records of the upgraded group: every member keeps what the last leader assigned to it.

    Members that are joining or syncing get REBALANCE_IN_PROGRESS, and then join the new group.
    """
    members: list[tuple[str, MemberMetadata, Partitions]] = []
    for peer in image.peers:
        try:
            members.append((peer.member_id, peer_metadata(peer, image.protocol), peer_partitions(peer, image, topics)))
        except MalformedProtocolError:
            raise upgrade_refused(image.group, "the embedded consumer protocol is malformed.") from None
    names = {topic for _, metadata, _ in members for topic in metadata.topics}
    group, epoch = image.group, image.generation
    return (
        *(ConsumerMemberMetadata(group, member_id, metadata) for member_id, metadata, _ in members),
        ConsumerGroupMetadata(group, GroupEpoch(epoch, TopicHashes(topics).of(names))),
        *(ConsumerTargetAssignmentMember(group, member_id, partitions) for member_id, _, partitions in members),
        ConsumerTargetAssignmentMetadata(group, AssignmentEpoch(epoch)),
        *(
            ConsumerCurrentMemberAssignment(
                group,
                member_id,
                CurrentAssignment(
                    member_epoch=epoch,
                    previous_epoch=epoch,
                    assigned={topic: dict.fromkeys(indexes, epoch) for topic, indexes in partitions.items()},
                ),
            )
            for member_id, _, partitions in members
        ),
    )


def peer_metadata(peer: ClassicPeer, protocol: str | None) -> MemberMetadata:
    """The metadata of a classic member. Raises MalformedProtocolError."""
    offered = dict(peer.protocols)
    chosen = offered.get(protocol) if protocol is not None else None
    subscription = read_subscription(chosen if chosen is not None else next(iter(offered.values()), b""))
    return MemberMetadata(
        instance_id=peer.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=peer.client_id,
        client_host=peer.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=peer.rebalance_timeout_ms,
        classic=ClassicMetadata(peer.session_timeout_ms, peer.protocols),
    )


def peer_partitions(peer: ClassicPeer, image: ClassicImage, topics: TopicsView) -> Partitions:
    """The last assignment of a classic member. Raises MalformedProtocolError."""
    if not peer.assignment:
        return {}
    assignment = read_assignment(peer.assignment)
    if assignment.user_data:
        raise upgrade_refused(
            image.group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    return by_id(assignment.partitions, topics)


def by_id(partitions: TopicIndexes, topics: TopicsView) -> dict[TopicId, frozenset[int]]:
    """Partitions of the topics that exist, by id."""
    found: dict[TopicId, frozenset[int]] = {}
    for name, indexes in partitions:
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found[topic_id] = found.get(topic_id, frozenset()).union(indexes)
    return found


# Downgrade


def downgraded(
    group: str, generation: int, members: Iterable[tuple[Member, Partitions]], topics: TopicsView, now_ms: int
) -> ClassicGroupSaved:
    """The record of the downgraded group: these members, each assigned its target."""
    kept = list(members)
    protocol = choose_protocol([classic_protocols(member) for member, _ in kept])
    value = ClassicGroupValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=generation,
        protocol=protocol,
        leader=kept[0][0].member_id,
        state_ms=now_ms,
        members=tuple(saved(member, target, protocol, topics) for member, target in kept),
    )
    return ClassicGroupSaved(group=group, value=value)


def classic_protocols(member: Member) -> tuple[tuple[str, bytes], ...]:
    assert member.metadata.classic is not None, f"{member.member_id} does not use the classic protocol"
    return member.metadata.classic.protocols


def choose_protocol(offers: Sequence[tuple[tuple[str, bytes], ...]]) -> str:
    """Of the protocols that all members support, the one that most of them prefer."""
    common = {name for name, _ in offers[0]}
    for offer in offers[1:]:
        common &= {name for name, _ in offer}
    assert common, "classic members join only with a protocol that all others support"
    votes = [next(name for name, _ in offer if name in common) for offer in offers]
    return max(sorted(common), key=votes.count)


def saved(member: Member, target: Partitions, protocol: str, topics: TopicsView) -> ClassicMember:
    metadata = member.metadata
    assert metadata.classic is not None
    subscription = dict(metadata.classic.protocols)[protocol]
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=metadata.classic.session_timeout_ms,
        subscription=subscription,
        assignment=write_assignment(by_name(target, topics), read_version(subscription)),
    )


def by_name(partitions: Partitions, topics: TopicsView) -> list[tuple[str, frozenset[int]]]:
    """Partitions of the topics that exist, by name, in order."""
    named = ((topics.topic_name(topic), indexes) for topic, indexes in partitions.items())
    return sorted(((name, indexes) for name, indexes in named if name is not None), key=lambda pair: pair[0])
