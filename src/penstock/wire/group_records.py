"""The codec of the records of `__consumer_offsets`: writes Kafka 4.3's bytes, and reads all earlier versions.

A key begins with its kind, a value with its version. Keys use the non-flexible encoding; most values are flexible, so
that fields can be added without a new version.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TypeVar

from penstock.model.ids import TopicId
from penstock.wire.group_values import (
    CONSUMER_CURRENT_MEMBER,
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    CONSUMER_REGEX,
    CONSUMER_TARGET,
    CONSUMER_TARGET_MEMBER,
    GROUP,
    NAMED_KINDS,
    NO_EPOCH,
    NO_TIME_MS,
    OFFSET,
    OFFSET_OLD,
    SHARE_CURRENT_MEMBER,
    SHARE_GROUP,
    SHARE_MEMBER,
    SHARE_PARTITIONS,
    SHARE_TARGET,
    SHARE_TARGET_MEMBER,
    AssignmentEpoch,
    ClassicGroupValue,
    ClassicMember,
    ClassicMetadata,
    CurrentAssignment,
    GroupEpoch,
    GroupValue,
    Key,
    MemberMetadata,
    MemberState,
    NamedPartitions,
    OffsetValue,
    PartitionEpochs,
    Partitions,
    ResolvedPattern,
    ShareAssignment,
    ShareMemberMetadata,
    SharePartitions,
)
from penstock.wire.primitives import (
    STRING_BYTES_MAX,
    ZERO_UUID,
    Buffer,
    FlexibleReader,
    FlexibleWriter,
    Malformed,
    Reader,
    Writer,
)

OFFSET_EXPIRING_VERSION = 1
OFFSET_VERSION = 4
GROUP_VERSION = 3
CONSUMER_VERSION = 0

T = TypeVar("T")

_KIND = Struct(">h")
_LENGTH = Struct(">h")
_PARTITION = Struct(">i")
_OFFSET_KEY = Struct(">hh")
_OFFSET_HEAD = Struct(">hqi")
_OFFSET_PLAIN = Struct(">hqiBq3s16s")
_TOPIC_ID_TAG = b"\1\0\x10"
_TIME = Struct(">q")


# Writing


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    name, raw = group.encode(), topic.encode()
    if len(name) > STRING_BYTES_MAX or len(raw) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {max(len(name), len(raw))} bytes, the most is {STRING_BYTES_MAX}")
    return _OFFSET_KEY.pack(OFFSET, len(name)) + name + _LENGTH.pack(len(raw)) + raw + _PARTITION.pack(partition)


def offset_value(
    offset: int, leader_epoch: int, metadata: str, commit_ms: int, expire_ms: int, topic_id: bytes
) -> bytes:
    """A committed offset. One with an expiry timestamp uses version 1, the only version with that field."""
    if expire_ms != NO_TIME_MS:
        out = Writer(_KIND.pack(OFFSET_EXPIRING_VERSION) + _TIME.pack(offset))
        out.string(metadata)
        out += _TIME.pack(commit_ms) + _TIME.pack(expire_ms)
        return bytes(out)
    if not metadata and topic_id != ZERO_UUID:
        return _OFFSET_PLAIN.pack(OFFSET_VERSION, offset, leader_epoch, 1, commit_ms, _TOPIC_ID_TAG, topic_id)
    flexible = FlexibleWriter(_OFFSET_HEAD.pack(OFFSET_VERSION, offset, leader_epoch))
    flexible.string(metadata)
    flexible.int64(commit_ms)
    return bytes(flexible) + (b"\0" if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id)


def group_key(kind: int, group: str, name: str | None = None) -> bytes:
    """The key of a record other than an offset; `name` if the kind has one."""
    assert (kind in NAMED_KINDS) == (name is not None), f"kind {kind} with the name {name!r}"
    out = Writer(_KIND.pack(kind))
    out.string(group)
    if name is not None:
        out.string(name)
    return bytes(out)


def group_value(value: ClassicGroupValue) -> bytes:
    """A classic group, in the version that every Kafka since 2.3 reads."""
    out = Writer(_KIND.pack(GROUP_VERSION))
    out.string(value.protocol_type)
    out.int32(value.generation)
    out.string_nullable(value.protocol)
    out.string_nullable(value.leader)
    out.int64(value.state_ms)
    out.length(len(value.members))
    for member in value.members:
        out.string(member.member_id)
        out.string_nullable(member.group_instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.int32(member.rebalance_timeout_ms)
        out.int32(member.session_timeout_ms)
        out.raw(member.subscription)
        out.raw(member.assignment)
    return bytes(out)


def consumer_group_value(value: GroupEpoch) -> bytes:
    out = consumer_writer()
    out.int32(value.epoch)
    return tagged(out, value.metadata_hash != 0, lambda body: body.int64(value.metadata_hash))


def consumer_member_value(value: MemberMetadata) -> bytes:
    out = consumer_writer()
    out.string_nullable(value.instance_id)
    out.string_nullable(value.rack_id)
    out.string(value.client_id)
    out.string(value.client_host)
    out.strings(list(value.topics))
    out.string_nullable(value.pattern)
    out.int32(value.rebalance_timeout_ms)
    out.string_nullable(value.assignor)
    classic = value.classic

    def write_classic(body: Writer) -> None:
        assert classic is not None
        body.present(classic)
        body.int32(classic.session_timeout_ms)
        body.length(len(classic.protocols))
        for name, metadata in classic.protocols:
            body.string(name)
            body.raw(metadata)
            body.tags()
        body.tags()

    return tagged(out, classic is not None, write_classic)


def consumer_target_value(value: AssignmentEpoch) -> bytes:
    out = consumer_writer()
    out.int32(value.epoch)
    return tagged(out, value.computed_ms != 0, lambda body: body.int64(value.computed_ms))


def consumer_target_member_value(value: Partitions) -> bytes:
    """An empty target also has a value: only a tombstone has none."""
    out = consumer_writer()
    out.length(len(value))
    for topic_id, partitions in value.items():
        out.uuid(topic_id)
        out.integers("i", sorted(partitions))
        out.tags()
    out.tags()
    return bytes(out)


def consumer_current_member_value(value: CurrentAssignment) -> bytes:
    out = consumer_writer()
    out.int32(value.member_epoch)
    out.int32(value.previous_epoch)
    out.int8(value.state)
    for owned in (value.assigned, value.revoking):
        out.length(len(owned))
        for topic_id, epochs in owned.items():
            out.uuid(topic_id)
            out.integers("i", list(epochs))
            body = out.fresh()
            body.integers("i", list(epochs.values()))
            out.tags([(0, body)])
    out.tags()
    return bytes(out)


def consumer_regex_value(value: ResolvedPattern) -> bytes:
    out = consumer_writer()
    out.strings(list(value.topics))
    out.int64(value.version)
    out.int64(value.resolved_ms)
    out.tags()
    return bytes(out)


def share_group_value(value: GroupEpoch) -> bytes:
    out = consumer_writer()
    out.int32(value.epoch)
    out.int64(value.metadata_hash)
    out.tags()
    return bytes(out)


def share_member_value(value: ShareMemberMetadata) -> bytes:
    out = consumer_writer()
    out.string_nullable(value.rack_id)
    out.string(value.client_id)
    out.string(value.client_host)
    out.strings(list(value.topics))
    out.tags()
    return bytes(out)


def share_current_member_value(value: ShareAssignment) -> bytes:
    out = consumer_writer()
    out.int32(value.member_epoch)
    out.int32(value.previous_epoch)
    out.int8(value.state)
    out.length(len(value.assigned))
    for topic_id, partitions in value.assigned.items():
        out.uuid(topic_id)
        out.integers("i", sorted(partitions))
        out.tags()
    out.tags()
    return bytes(out)


def share_partitions_value(value: SharePartitions) -> bytes:
    out = consumer_writer()
    for named in (value.initializing, value.initialized):
        out.length(len(named))
        for topic_id, (name, partitions) in named.items():
            out.uuid(topic_id)
            out.string(name)
            out.integers("i", sorted(partitions))
            out.tags()
    out.length(len(value.deleting))
    for topic_id, name in value.deleting.items():
        out.uuid(topic_id)
        out.string(name)
        out.tags()
    out.tags()
    return bytes(out)


def consumer_writer() -> FlexibleWriter:
    return FlexibleWriter(_KIND.pack(CONSUMER_VERSION))


def tagged(out: Writer, present: bool, write: Callable[[Writer], None]) -> bytes:
    """End a value with its only tagged field, if it is present."""
    if not present:
        out.tags()
    else:
        body = out.fresh()
        write(body)
        out.tags([(0, body)])
    return bytes(out)


# Reading


def read_key(data: Buffer) -> Key | None:
    """The key of a record; None for unknown kinds, which callers skip."""
    return guarded(_read_key, data)


def _read_key(data: Buffer) -> Key | None:
    reader = Reader(data, 0)
    kind = reader.int16()
    if kind in (OFFSET_OLD, OFFSET):
        return Key(OFFSET, reader.string(), topic=reader.string(), partition=reader.int32())
    if kind in NAMED_KINDS:
        return Key(kind, reader.string(), reader.string())
    if kind in READERS:
        return Key(kind, reader.string())
    return None


def read_offset(data: Buffer) -> OffsetValue:
    """A committed offset; Malformed if it cannot be decoded, or has a later version."""
    return guarded(_read_offset, data)


def read_group_value(kind: int, data: Buffer) -> GroupValue:
    """The value of a group's record; Malformed as for an offset."""
    return guarded(READERS[kind], data)


def guarded(read: Callable[[Buffer], T], data: Buffer) -> T:
    try:
        return read(data)
    except (UnicodeDecodeError, StructError, IndexError) as error:
        raise Malformed(f"a record of a coordinator: {error}") from error


def _read_offset(data: Buffer) -> OffsetValue:
    reader, version = versioned(data, OFFSET_VERSION, flexible_from=4)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == OFFSET_EXPIRING_VERSION else NO_TIME_MS
    topic_id = ZERO_UUID
    for tag, end in reader.tagged():
        if tag == 0:
            topic_id = reader.uuid()
        else:
            reader.pos = end
    return OffsetValue(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)


def _read_group(data: Buffer) -> ClassicGroupValue:
    reader, version = versioned(data, 4, flexible_from=4)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.string_nullable()
    leader = reader.string_nullable()
    state_ms = reader.int64() if version >= 2 else NO_TIME_MS
    members = tuple(_read_member(reader, version) for _ in range(reader.items(14, False)))
    reader.skip_tags()
    return ClassicGroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_ms=state_ms,
        members=members,
    )


def _read_member(reader: Reader, version: int) -> ClassicMember:
    member_id = reader.string()
    instance_id = reader.string_nullable() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_ms = reader.int32() if version >= 1 else -1
    session_ms = reader.int32()
    subscription, assignment = reader.raw(), reader.raw()
    reader.skip_tags()
    return ClassicMember(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 has no rebalance timeout: the session timeout is used.
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        session_timeout_ms=session_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _read_consumer_group(data: Buffer) -> GroupEpoch:
    reader, _ = versioned(data, CONSUMER_VERSION)
    epoch, metadata_hash = reader.int32(), 0
    for tag, end in reader.tagged():
        if tag == 0:
            metadata_hash = reader.int64()
        else:
            reader.pos = end
    return GroupEpoch(epoch, metadata_hash)


def _read_consumer_member(data: Buffer) -> MemberMetadata:
    reader, _ = versioned(data, CONSUMER_VERSION)
    instance_id, rack_id = reader.string_nullable(), reader.string_nullable()
    client_id, client_host = reader.string(), reader.string()
    topics = tuple(reader.strings())
    pattern = reader.string_nullable()
    rebalance_ms = reader.int32()
    assignor = reader.string_nullable()
    classic: ClassicMetadata | None = None
    for tag, end in reader.tagged():
        if tag == 0:
            classic = _read_classic(reader) if reader.present() else None
        else:
            reader.pos = end
    return MemberMetadata(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        pattern=pattern,
        rebalance_timeout_ms=rebalance_ms,
        assignor=assignor,
        classic=classic,
    )


def _read_classic(reader: Reader) -> ClassicMetadata:
    session_ms = reader.int32()
    protocols: list[tuple[str, bytes]] = []
    for _ in range(reader.items(3, False)):
        protocols.append((reader.string(), reader.raw()))
        reader.skip_tags()
    reader.skip_tags()
    return ClassicMetadata(session_ms, tuple(protocols))


def _read_consumer_target(data: Buffer) -> AssignmentEpoch:
    reader, _ = versioned(data, CONSUMER_VERSION)
    epoch, computed_ms = reader.int32(), 0
    for tag, end in reader.tagged():
        if tag == 0:
            computed_ms = reader.int64()
        else:
            reader.pos = end
    return AssignmentEpoch(epoch, computed_ms)


def _read_consumer_target_member(data: Buffer) -> Partitions:
    reader, _ = versioned(data, CONSUMER_VERSION)
    partitions: dict[TopicId, frozenset[int]] = {}
    for _ in range(reader.items(18, False)):
        topic_id = TopicId(reader.uuid())
        partitions[topic_id] = frozenset(reader.integers("i", 4))
        reader.skip_tags()
    reader.skip_tags()
    return partitions


def _read_consumer_current_member(data: Buffer) -> CurrentAssignment:
    reader, _ = versioned(data, CONSUMER_VERSION)
    member_epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    assigned = _read_owned(reader, member_epoch)
    revoking = _read_owned(reader, member_epoch)
    reader.skip_tags()
    return CurrentAssignment(
        member_epoch=member_epoch,
        previous_epoch=previous_epoch,
        state=MemberState.of_record(state),
        assigned=assigned,
        revoking=revoking,
    )


def _read_owned(reader: Reader, member_epoch: int) -> PartitionEpochs:
    """Brokers before 4.3 wrote no partition epochs: the member epoch is used."""
    owned: dict[TopicId, dict[int, int]] = {}
    for _ in range(reader.items(18, False)):
        topic_id, partitions = TopicId(reader.uuid()), tuple(reader.integers("i", 4))
        epochs: tuple[int, ...] | None = None
        for tag, end in reader.tagged():
            if tag == 0:
                found = reader.integers_nullable("i", 4)
                epochs = None if found is None else tuple(found)
            else:
                reader.pos = end
        if epochs is not None and len(epochs) != len(partitions):
            raise Malformed(f"{len(partitions)} partitions with {len(epochs)} epochs")
        owned[topic_id] = dict(zip(partitions, epochs or (member_epoch,) * len(partitions), strict=True))
    return owned


def _read_consumer_regex(data: Buffer) -> ResolvedPattern:
    reader, _ = versioned(data, CONSUMER_VERSION)
    topics, version, resolved_ms = tuple(reader.strings()), reader.int64(), reader.int64()
    reader.skip_tags()
    return ResolvedPattern(topics, version, resolved_ms)


def _read_share_group(data: Buffer) -> GroupEpoch:
    reader, _ = versioned(data, CONSUMER_VERSION)
    epoch, metadata_hash = reader.int32(), reader.int64()
    reader.skip_tags()
    return GroupEpoch(epoch, metadata_hash)


def _read_share_member(data: Buffer) -> ShareMemberMetadata:
    reader, _ = versioned(data, CONSUMER_VERSION)
    rack_id = reader.string_nullable()
    client_id, client_host = reader.string(), reader.string()
    topics = tuple(reader.strings())
    reader.skip_tags()
    return ShareMemberMetadata(rack_id=rack_id, client_id=client_id, client_host=client_host, topics=topics)


def _read_share_current_member(data: Buffer) -> ShareAssignment:
    reader, _ = versioned(data, CONSUMER_VERSION)
    member_epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    assigned: dict[TopicId, frozenset[int]] = {}
    for _ in range(reader.items(18, False)):
        topic_id = TopicId(reader.uuid())
        assigned[topic_id] = frozenset(reader.integers("i", 4))
        reader.skip_tags()
    reader.skip_tags()
    return ShareAssignment(
        member_epoch=member_epoch,
        previous_epoch=previous_epoch,
        state=MemberState.of_record(state),
        assigned=assigned,
    )


def _read_share_partitions(data: Buffer) -> SharePartitions:
    reader, _ = versioned(data, CONSUMER_VERSION)
    initializing, initialized = _read_named(reader), _read_named(reader)
    deleting: dict[TopicId, str] = {}
    for _ in range(reader.items(18, False)):
        topic_id = TopicId(reader.uuid())
        deleting[topic_id] = reader.string()
        reader.skip_tags()
    reader.skip_tags()
    return SharePartitions(initializing=initializing, initialized=initialized, deleting=deleting)


def _read_named(reader: Reader) -> dict[TopicId, NamedPartitions]:
    named: dict[TopicId, NamedPartitions] = {}
    for _ in range(reader.items(19, False)):
        topic_id = TopicId(reader.uuid())
        named[topic_id] = NamedPartitions(reader.string(), frozenset(reader.integers("i", 4)))
        reader.skip_tags()
    return named


def versioned(data: Buffer, newest: int, *, flexible_from: int = 0) -> tuple[Reader, int]:
    """A reader positioned after a value's version, in that version's encoding."""
    version: int = _KIND.unpack_from(data)[0]
    if not 0 <= version <= newest:
        raise Malformed(f"version {version} of a record whose newest version is {newest}")
    return (FlexibleReader(data, 2) if version >= flexible_from else Reader(data, 2)), version


READERS: dict[int, Callable[[Buffer], GroupValue]] = {
    GROUP: _read_group,
    CONSUMER_GROUP: _read_consumer_group,
    CONSUMER_MEMBER: _read_consumer_member,
    CONSUMER_TARGET: _read_consumer_target,
    CONSUMER_TARGET_MEMBER: _read_consumer_target_member,
    CONSUMER_CURRENT_MEMBER: _read_consumer_current_member,
    CONSUMER_REGEX: _read_consumer_regex,
    SHARE_GROUP: _read_share_group,
    SHARE_MEMBER: _read_share_member,
    SHARE_TARGET: _read_consumer_target,
    SHARE_TARGET_MEMBER: _read_consumer_target_member,
    SHARE_CURRENT_MEMBER: _read_share_current_member,
    SHARE_PARTITIONS: _read_share_partitions,
}
