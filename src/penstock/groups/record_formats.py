"""From what a coordinator remembers to records of `__consumer_offsets`, and back.

Offsets are by far the most of both, so they have a path of their own: one is written with a few packs, and when a shard
is loaded they are read by the million, with names that repeat decoded once and shared.
"""

from collections.abc import Iterable
from struct import Struct
from typing import assert_never

from penstock.groups.consumer.events import (
    AssignmentEpoch,
    ClassicMetadata,
    ConsumerCurrentMemberAssignment,
    ConsumerEvent,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerRegularExpression,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    PartitionEpochs,
    Partitions,
    ResolvedPattern,
)
from penstock.groups.events import (
    NO_EXPIRY_MS,
    ClassicEvent,
    ClassicGroupForgotten,
    ClassicGroupSaved,
    ClassicMemberSaved,
    OffsetCommitted,
    OffsetForgotten,
    TxnOffsetPending,
    TxnOffsetsDecided,
)
from penstock.model.batch import BatchHeader
from penstock.model.ids import TopicId
from penstock.wire import group_records as wire
from penstock.wire import group_values as said
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import Columns, decode_columns
from penstock.wire.records import COMMIT_MARKER, decode_records, parse_marker

GroupEvent = ClassicEvent | ConsumerEvent
"""Everything that is remembered of groups."""

NAMES_MAX = 1 << 20
"""Pairs of group and topic whose names are kept for sharing while a shard is loaded."""

_PARTITION = Struct(">i")
_PLAIN = Struct(">hqiBq3s16s")
"""An offset of the newest version without metadata, with its topic's id: what is read at almost every record."""
_PLAIN_BYTES = _PLAIN.size
_PARTITION_BYTES = _PARTITION.size
_NEWEST = wire.OFFSET_VERSION
_NO_METADATA = 1
_TOPIC_ID_TAG = b"\1\0\x10"


# Writing


def encode_event(event: GroupEvent) -> tuple[bytes, bytes | None]:
    """The key and the value of an event's record; no value is a tombstone."""
    if type(event) is OffsetCommitted:
        # By far the most frequent, and a pattern would take longer than the rest.
        return wire.offset_key(*event[:3]), wire.offset_value(*event[3:])
    match event:
        case OffsetForgotten(group, topic, partition):
            return wire.offset_key(group, topic, partition), None
        case TxnOffsetPending(offset=offset):
            return encode_event(offset)
        case TxnOffsetsDecided():
            raise AssertionError("what a transaction came to is written by its marker")
        case ClassicGroupSaved():
            return wire.group_key(said.GROUP, event.group), wire.group_value(group_value(event))
        case ClassicGroupForgotten(group=group):
            return wire.group_key(said.GROUP, group), None
        case _:
            assert not isinstance(event, OffsetCommitted)
            return encode_consumer_event(event)


def group_value(saved: ClassicGroupSaved) -> said.GroupValue:
    return said.GroupValue(
        protocol_type=saved.protocol_type,
        generation=saved.generation,
        protocol=saved.protocol,
        leader=saved.leader,
        state_ms=saved.state_ms,
        members=tuple(
            said.MemberValue(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in saved.members
        ),
    )


def encode_consumer_event(event: ConsumerEvent) -> tuple[bytes, bytes | None]:
    match event:
        case ConsumerGroupMetadata(group, value):
            written = (
                None
                if value is None
                else wire.consumer_group_value(said.ConsumerGroupValue(value.epoch, value.metadata_hash))
            )
            return wire.group_key(said.CONSUMER_GROUP, group), written
        case ConsumerMemberMetadata(group, member_id, value):
            written = None if value is None else wire.consumer_member_value(member_value(value))
            return wire.group_key(said.CONSUMER_MEMBER, group, member_id), written
        case ConsumerTargetAssignmentMetadata(group, value):
            written = (
                None
                if value is None
                else wire.consumer_target_value(said.ConsumerTargetValue(value.epoch, value.computed_ms))
            )
            return wire.group_key(said.CONSUMER_TARGET, group), written
        case ConsumerTargetAssignmentMember(group, member_id, value):
            # A member that is to have nothing has a record all the same: only None forgets it.
            written = None if value is None else wire.consumer_target_member_value(target_value(value))
            return wire.group_key(said.CONSUMER_TARGET_MEMBER, group, member_id), written
        case ConsumerCurrentMemberAssignment(group, member_id, value):
            written = None if value is None else wire.consumer_current_member_value(current_value(value))
            return wire.group_key(said.CONSUMER_CURRENT_MEMBER, group, member_id), written
        case ConsumerRegularExpression(group, pattern, value):
            written = (
                None
                if value is None
                else wire.consumer_regex_value(said.ConsumerRegexValue(value.topics, value.version, value.resolved_ms))
            )
            return wire.group_key(said.CONSUMER_REGEX, group, pattern), written
    assert_never(event)


def member_value(member: MemberMetadata) -> said.ConsumerMemberValue:
    classic = member.classic
    return said.ConsumerMemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=member.topics,
        regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic=None if classic is None else said.ClassicProtocols(classic.session_timeout_ms, classic.protocols),
    )


def target_value(target: Partitions) -> said.ConsumerTargetMemberValue:
    return said.ConsumerTargetMemberValue(
        tuple((topic_id, tuple(sorted(partitions))) for topic_id, partitions in target.items())
    )


def current_value(current: CurrentAssignment) -> said.ConsumerCurrentMemberValue:
    return said.ConsumerCurrentMemberValue(
        member_epoch=current.member_epoch,
        previous_epoch=current.previous_epoch,
        state=current.state.value,
        assigned=owned_value(current.assigned),
        revoking=owned_value(current.revoking),
    )


def owned_value(owned: PartitionEpochs) -> tuple[said.OwnedPartitions, ...]:
    return tuple((topic_id, tuple(epochs), tuple(epochs.values())) for topic_id, epochs in owned.items())


# Reading


class EventReader:
    """Turns records into events. One is used for a whole load, as it shares names between its calls."""

    __slots__ = ("_ids", "_names", "topics", "unreadable")

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}
        """Group and topic by the front of an offset's key."""
        self._ids: dict[bytes, TopicId] = {}
        self.topics: dict[TopicId, str] = {}
        """The topics that offsets were committed for."""
        self.unreadable = 0
        """Records that were read over: of kinds that are not known here, or damaged."""

    def read(self, columns: Columns) -> list[GroupEvent]:
        """The events of these records, in their order. A record that cannot be read is counted and left out."""
        events: list[GroupEvent] = []
        add = events.append
        data = bytes(columns.data)
        find_names, ids = self._names.get, self._ids
        unpack, unpack_partition = _PLAIN.unpack_from, _PARTITION.unpack_from
        for key_at, key_size, value_at, value_size in zip(
            columns.key_at, columns.key_sizes, columns.value_at, columns.value_sizes, strict=True
        ):
            partition_at = key_at + key_size - _PARTITION_BYTES
            if value_size == _PLAIN_BYTES and (named := find_names(data[key_at:partition_at])) is not None:
                version, offset, leader_epoch, metadata, commit_ms, tag, topic_id = unpack(data, value_at)
                if version == _NEWEST and metadata == _NO_METADATA and tag == _TOPIC_ID_TAG:
                    group, topic = named
                    add(
                        OffsetCommitted(
                            group,
                            topic,
                            unpack_partition(data, partition_at)[0],
                            offset,
                            leader_epoch,
                            "",
                            commit_ms,
                            NO_EXPIRY_MS,
                            ids.get(topic_id) or self._shared_id(topic_id, topic),
                        )
                    )
                    continue
            key = data[key_at : key_at + key_size] if key_size >= 0 else b""
            event = self._read_one(key, data[value_at : value_at + value_size] if value_size >= 0 else None)
            if event is not None:
                add(event)
        return events

    def read_transactional(self, header: BatchHeader, batch: bytes) -> list[GroupEvent]:
        """Offsets of a transaction wait for its marker, which is such a batch too."""
        if header.is_control:
            if not header.record_count:
                return []
            kind, _ = parse_marker(decode_records(batch)[0])
            return [TxnOffsetsDecided(header.producer_id, kind == COMMIT_MARKER)]
        return [
            TxnOffsetPending(header.producer_id, header.producer_epoch, event)
            if isinstance(event, OffsetCommitted)
            else event
            for event in self.read(decode_columns(batch))
        ]

    def _read_one(self, raw: bytes, value: bytes | None) -> GroupEvent | None:
        try:
            key = wire.read_key(raw)
            if key is None:
                # Share and streams groups, and whatever a later version brings.
                self.unreadable += key_is_unknown(raw)
                return None
            if key.kind != said.OFFSET:
                return read_group_event(key, value)
            group, topic = self._shared_names(raw[:-_PARTITION_BYTES], key)
            if value is None:
                return OffsetForgotten(group, topic, key.partition)
            found = wire.read_value(said.OFFSET, value)
            assert isinstance(found, said.OffsetValue)
            return OffsetCommitted(
                group,
                topic,
                key.partition,
                found.offset,
                found.leader_epoch,
                found.metadata,
                found.commit_ms,
                found.expire_ms,
                self._shared_id(found.topic_id, topic),
            )
        except Malformed:
            self.unreadable += 1
            return None

    def _shared_names(self, front: bytes, key: said.Key) -> tuple[str, str]:
        named = self._names.get(front)
        if named is None:
            named = (key.group, key.topic)
            if len(self._names) < NAMES_MAX:
                self._names[front] = named
        return named

    def _shared_id(self, raw: bytes, topic: str) -> TopicId:
        found = self._ids.get(raw)
        if found is None:
            found = TopicId(raw)
            if len(self._ids) < NAMES_MAX:
                self._ids[raw] = found
                self.topics[found] = topic
        return found


def key_is_unknown(raw: bytes) -> bool:
    """Whether a key of a kind that nobody here reads is worth a word to the operator."""
    return int.from_bytes(raw[:2], "big") != said.CONSUMER_PARTITIONS


def read_group_event(key: said.Key, raw: bytes | None) -> GroupEvent:
    """A record about a group, as opposed to an offset."""
    value = None if raw is None else wire.read_value(key.kind, raw)
    match value:
        case None:
            return forgotten(key)
        case said.GroupValue():
            return saved_group(key.group, value)
        case said.ConsumerGroupValue(epoch, metadata_hash):
            return ConsumerGroupMetadata(key.group, GroupEpoch(epoch, metadata_hash))
        case said.ConsumerMemberValue():
            return ConsumerMemberMetadata(key.group, key.name, member_metadata(value))
        case said.ConsumerTargetValue(epoch, assigned_ms):
            return ConsumerTargetAssignmentMetadata(key.group, AssignmentEpoch(epoch, assigned_ms))
        case said.ConsumerTargetMemberValue(partitions):
            target = {TopicId(topic_id): frozenset(indexes) for topic_id, indexes in partitions}
            return ConsumerTargetAssignmentMember(key.group, key.name, target)
        case said.ConsumerCurrentMemberValue():
            return ConsumerCurrentMemberAssignment(key.group, key.name, current_assignment(value))
        case said.ConsumerRegexValue(topics, version, resolved_ms):
            return ConsumerRegularExpression(key.group, key.name, ResolvedPattern(topics, version, resolved_ms))
        case said.OffsetValue():
            raise AssertionError("an offset is read elsewhere")
    assert_never(value)


def forgotten(key: said.Key) -> GroupEvent:
    """What a tombstone says."""
    match key.kind:
        case said.GROUP:
            return ClassicGroupForgotten(group=key.group)
        case said.CONSUMER_GROUP:
            return ConsumerGroupMetadata(key.group, None)
        case said.CONSUMER_MEMBER:
            return ConsumerMemberMetadata(key.group, key.name, None)
        case said.CONSUMER_TARGET:
            return ConsumerTargetAssignmentMetadata(key.group, None)
        case said.CONSUMER_TARGET_MEMBER:
            return ConsumerTargetAssignmentMember(key.group, key.name, None)
        case said.CONSUMER_CURRENT_MEMBER:
            return ConsumerCurrentMemberAssignment(key.group, key.name, None)
        case _:
            assert key.kind == said.CONSUMER_REGEX, f"a key of kind {key.kind}"
            return ConsumerRegularExpression(key.group, key.name, None)


def saved_group(group: str, value: said.GroupValue) -> ClassicGroupSaved:
    return ClassicGroupSaved(
        group=group,
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_ms=value.state_ms,
        members=tuple(ClassicMemberSaved(**member._asdict()) for member in value.members),
    )


def member_metadata(value: said.ConsumerMemberValue) -> MemberMetadata:
    classic = value.classic
    return MemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=value.topics,
        pattern=value.regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None if classic is None else ClassicMetadata(classic.session_timeout_ms, classic.protocols),
    )


def current_assignment(value: said.ConsumerCurrentMemberValue) -> CurrentAssignment:
    return CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_epoch=value.previous_epoch,
        state=MemberState.of_record(value.state),
        assigned=partition_epochs(value.assigned, value.member_epoch),
        revoking=partition_epochs(value.revoking, value.member_epoch),
    )


def partition_epochs(owned: Iterable[said.OwnedPartitions], member_epoch: int) -> PartitionEpochs:
    """Brokers before 4.3 wrote no epochs: a partition then counts as got in the member's own."""
    return {
        TopicId(topic_id): dict(zip(partitions, epochs or (member_epoch,) * len(partitions), strict=True))
        for topic_id, partitions, epochs in owned
    }
