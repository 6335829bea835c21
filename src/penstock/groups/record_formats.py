"""Encodes events as records of `__consumer_offsets`, and decodes them.

Most records are offsets, so these have a fast path: a few struct packs write one; on load, repeated names are decoded
once and shared.
"""

from collections.abc import Mapping
from struct import Struct
from typing import assert_never

from penstock.groups.consumer.events import (
    ConsumerCurrentMemberAssignment,
    ConsumerEvent,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerRegularExpression,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
)
from penstock.groups.events import (
    NO_EXPIRY_MS,
    ClassicEvent,
    ClassicGroupForgotten,
    ClassicGroupSaved,
    OffsetCommitted,
    OffsetForgotten,
    TxnOffsetPending,
    TxnOffsetsDecided,
)
from penstock.groups.share.events import (
    ShareEvent,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from penstock.model.batch import BatchHeader
from penstock.model.ids import TopicId
from penstock.wire import group_records as wire
from penstock.wire import group_values as values
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import Columns, decode_columns
from penstock.wire.records import COMMIT_MARKER, decode_records, parse_marker

GroupEvent = ClassicEvent | ConsumerEvent | ShareEvent
"""Every event of the group coordinator."""

NAMES_MAX = 1 << 20
"""Pairs of group and topic whose names are kept for sharing while a shard is loaded."""

_PARTITION = Struct(">i")
_PLAIN = Struct(">hqiBq3s16s")
"""The value of an offset of the newest version without metadata, with a topic id: almost every record."""
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
            raise AssertionError("the end of a transaction is written by its marker")
        case ClassicGroupSaved():
            return wire.group_key(values.GROUP, event.group), wire.group_value(event.value)
        case ClassicGroupForgotten(group=group):
            return wire.group_key(values.GROUP, group), None
        case _:
            assert not isinstance(event, OffsetCommitted)
            return encode_share_event(event) if isinstance(event, ShareEvent) else encode_consumer_event(event)


def encode_consumer_event(event: ConsumerEvent) -> tuple[bytes, bytes | None]:
    """The key and the value of an event's record. None is a tombstone; a target without partitions is not."""
    value: bytes | None = None
    match event:
        case ConsumerGroupMetadata(group, epoch):
            key = wire.group_key(values.CONSUMER_GROUP, group)
            value = None if epoch is None else wire.consumer_group_value(epoch)
        case ConsumerMemberMetadata(group, member_id, metadata):
            key = wire.group_key(values.CONSUMER_MEMBER, group, member_id)
            value = None if metadata is None else wire.consumer_member_value(metadata)
        case ConsumerTargetAssignmentMetadata(group, assignment):
            key = wire.group_key(values.CONSUMER_TARGET, group)
            value = None if assignment is None else wire.consumer_target_value(assignment)
        case ConsumerTargetAssignmentMember(group, member_id, target):
            key = wire.group_key(values.CONSUMER_TARGET_MEMBER, group, member_id)
            value = None if target is None else wire.consumer_target_member_value(target)
        case ConsumerCurrentMemberAssignment(group, member_id, current):
            key = wire.group_key(values.CONSUMER_CURRENT_MEMBER, group, member_id)
            value = None if current is None else wire.consumer_current_member_value(current)
        case ConsumerRegularExpression(group, pattern, resolved):
            key = wire.group_key(values.CONSUMER_REGEX, group, pattern)
            value = None if resolved is None else wire.consumer_regex_value(resolved)
        case _:
            assert_never(event)
    return key, value


def encode_share_event(event: ShareEvent) -> tuple[bytes, bytes | None]:
    """The key and the value of an event's record. None is a tombstone; a target without partitions is not."""
    value: bytes | None = None
    match event:
        case ShareGroupMetadata(group, epoch):
            key = wire.group_key(values.SHARE_GROUP, group)
            value = None if epoch is None else wire.share_group_value(epoch)
        case ShareGroupMemberMetadata(group, member_id, metadata):
            key = wire.group_key(values.SHARE_MEMBER, group, member_id)
            value = None if metadata is None else wire.share_member_value(metadata)
        case ShareGroupTargetAssignmentMetadata(group, assignment):
            key = wire.group_key(values.SHARE_TARGET, group)
            value = None if assignment is None else wire.consumer_target_value(assignment)
        case ShareGroupTargetAssignmentMember(group, member_id, target):
            key = wire.group_key(values.SHARE_TARGET_MEMBER, group, member_id)
            value = None if target is None else wire.consumer_target_member_value(target)
        case ShareGroupCurrentMemberAssignment(group, member_id, current):
            key = wire.group_key(values.SHARE_CURRENT_MEMBER, group, member_id)
            value = None if current is None else wire.share_current_member_value(current)
        case ShareGroupStatePartitionMetadata(group, partitions):
            key = wire.group_key(values.SHARE_PARTITIONS, group)
            value = None if partitions is None else wire.share_partitions_value(partitions)
        case _:
            assert_never(event)
    return key, value


# Reading


class EventReader:
    """Decodes records into events. One reader serves a whole load, as it shares names between calls."""

    __slots__ = ("_ids", "_names", "topics", "unreadable")

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}
        """Group and topic by the key of an offset without its partition."""
        self._ids: dict[bytes, TopicId] = {}
        self.topics: dict[TopicId, str] = {}
        """The topics that offsets were committed for."""
        self.unreadable = 0
        """Records that were skipped: of unknown kinds, or malformed."""

    def read(self, columns: Columns) -> list[GroupEvent]:
        """The events of these records, in order. A record that cannot be decoded is counted and skipped."""
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
        """The events of a transactional batch: pending offsets, or the marker that ends their transaction."""
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
                # Streams groups, and kinds of later versions.
                self.unreadable += key_is_unknown(raw)
                return None
            if key.kind != values.OFFSET:
                return read_group_event(key, value)
            group, topic = self._shared_names(raw[:-_PARTITION_BYTES], key)
            if value is None:
                return OffsetForgotten(group, topic, key.partition)
            found = wire.read_offset(value)
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

    def _shared_names(self, front: bytes, key: values.Key) -> tuple[str, str]:
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
    """Whether a key of an unknown kind counts as unreadable in the log message for operators."""
    return int.from_bytes(raw[:2], "big") != values.CONSUMER_PARTITIONS


def read_group_event(key: values.Key, raw: bytes | None) -> GroupEvent:
    """A record about a group, as opposed to an offset."""
    group, value = key.group, None if raw is None else wire.read_group_value(key.kind, raw)
    match key.kind, value:
        case values.GROUP, None:
            return ClassicGroupForgotten(group=group)
        case values.GROUP, values.ClassicGroupValue():
            return ClassicGroupSaved(group=group, value=value)
        case values.CONSUMER_GROUP, values.GroupEpoch() | None:
            return ConsumerGroupMetadata(group, value)
        case values.CONSUMER_MEMBER, values.MemberMetadata() | None:
            return ConsumerMemberMetadata(group, key.name, value)
        case values.CONSUMER_TARGET, values.AssignmentEpoch() | None:
            return ConsumerTargetAssignmentMetadata(group, value)
        case values.CONSUMER_TARGET_MEMBER, Mapping() | None:
            return ConsumerTargetAssignmentMember(group, key.name, value)
        case values.CONSUMER_CURRENT_MEMBER, values.CurrentAssignment() | None:
            return ConsumerCurrentMemberAssignment(group, key.name, value)
        case values.CONSUMER_REGEX, values.ResolvedPattern() | None:
            return ConsumerRegularExpression(group, key.name, value)
        case _:
            return read_share_event(key, value)


def read_share_event(key: values.Key, value: values.GroupValue | None) -> ShareEvent:
    """A record about a share group."""
    group = key.group
    match value:
        case values.GroupEpoch() if key.kind == values.SHARE_GROUP:
            return ShareGroupMetadata(group, value)
        case values.ShareMemberMetadata():
            return ShareGroupMemberMetadata(group, key.name, value)
        case values.AssignmentEpoch() if key.kind == values.SHARE_TARGET:
            return ShareGroupTargetAssignmentMetadata(group, value)
        case Mapping() if key.kind == values.SHARE_TARGET_MEMBER:
            return ShareGroupTargetAssignmentMember(group, key.name, value)
        case values.ShareAssignment():
            return ShareGroupCurrentMemberAssignment(group, key.name, value)
        case values.SharePartitions():
            return ShareGroupStatePartitionMetadata(group, value)
        case None:
            return share_tombstone(key)
        case _:
            raise AssertionError(f"a key of kind {key.kind} with {value}")


def share_tombstone(key: values.Key) -> ShareEvent:
    match key.kind:
        case values.SHARE_GROUP:
            return ShareGroupMetadata(key.group, None)
        case values.SHARE_MEMBER:
            return ShareGroupMemberMetadata(key.group, key.name, None)
        case values.SHARE_TARGET:
            return ShareGroupTargetAssignmentMetadata(key.group, None)
        case values.SHARE_TARGET_MEMBER:
            return ShareGroupTargetAssignmentMember(key.group, key.name, None)
        case values.SHARE_CURRENT_MEMBER:
            return ShareGroupCurrentMemberAssignment(key.group, key.name, None)
        case values.SHARE_PARTITIONS:
            return ShareGroupStatePartitionMetadata(key.group, None)
        case _:
            raise AssertionError(f"a key of kind {key.kind}")
