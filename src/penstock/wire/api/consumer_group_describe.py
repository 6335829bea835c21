"""ConsumerGroupDescribe (API key 69), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 69
NAME = "ConsumerGroupDescribe"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 0

_ii = Struct(">ii")


class Request(Message):
    __slots__ = ("group_ids", "include_authorized_operations")

    def __init__(
        self, *, group_ids: list[str] | tuple[str, ...] = (), include_authorized_operations: bool = False
    ) -> None:
        self.group_ids: list[str] = list(group_ids) if isinstance(group_ids, tuple) else group_ids
        self.include_authorized_operations = include_authorized_operations


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_ids = r.strings()
    m.include_authorized_operations = r.boolean()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.strings(m.group_ids)
    w.boolean(m.include_authorized_operations)
    w.tags()


class TopicPartitions(Message):
    __slots__ = ("topic_id", "topic_name", "partitions")

    def __init__(
        self, *, topic_id: bytes = ZERO_UUID, topic_name: str = "", partitions: list[int] | tuple[int, ...] = ()
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class Assignment(Message):
    __slots__ = ("topic_partitions",)

    def __init__(self, *, topic_partitions: list[TopicPartitions] | tuple[TopicPartitions, ...] = ()) -> None:
        self.topic_partitions: list[TopicPartitions] = (
            list(topic_partitions) if isinstance(topic_partitions, tuple) else topic_partitions
        )


class Member(Message):
    __slots__ = (
        "member_id",
        "instance_id",
        "rack_id",
        "member_epoch",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "assignment",
        "target_assignment",
        "member_type",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        instance_id: str | None = None,
        rack_id: str | None = None,
        member_epoch: int = 0,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] | tuple[str, ...] = (),
        subscribed_topic_regex: str | None = None,
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        member_type: int = -1,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.member_epoch = member_epoch
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names: list[str] = (
            list(subscribed_topic_names) if isinstance(subscribed_topic_names, tuple) else subscribed_topic_names
        )
        self.subscribed_topic_regex = subscribed_topic_regex
        self.assignment = Assignment() if assignment is None else assignment
        self.target_assignment = Assignment() if target_assignment is None else target_assignment
        self.member_type = member_type


class DescribedGroup(Message):
    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "group_epoch",
        "assignment_epoch",
        "assignor_name",
        "members",
        "authorized_operations",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        assignor_name: str = "",
        members: list[Member] | tuple[Member, ...] = (),
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.assignor_name = assignor_name
        self.members: list[Member] = list(members) if isinstance(members, tuple) else members
        self.authorized_operations = authorized_operations


class Response(Message):
    __slots__ = ("throttle_time_ms", "groups")
    ERROR_LISTS = ("groups",)

    def __init__(
        self, *, throttle_time_ms: int = 0, groups: list[DescribedGroup] | tuple[DescribedGroup, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = list(groups) if isinstance(groups, tuple) else groups


def _read_topic_partitions(r: Reader, v: int) -> TopicPartitions:
    m = TopicPartitions.__new__(TopicPartitions)
    m.topic_id = r.uuid()
    m.topic_name = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_topic_partitions(w: Writer, m: TopicPartitions, v: int) -> None:
    w.uuid(m.topic_id)
    w.string(m.topic_name)
    w.integers("i", m.partitions)
    w.tags()


def _read_assignment(r: Reader, v: int) -> Assignment:
    m = Assignment.__new__(Assignment)
    m.topic_partitions = r.array(_read_topic_partitions, v, 19)
    r.skip_tags()
    return m


def _write_assignment(w: Writer, m: Assignment, v: int) -> None:
    w.array(_write_topic_partitions, m.topic_partitions, v)
    w.tags()


def _read_member(r: Reader, v: int) -> Member:
    m = Member.__new__(Member)
    m.member_id = r.string()
    m.instance_id = r.string_nullable()
    m.rack_id = r.string_nullable()
    m.member_epoch = r.int32()
    m.client_id = r.string()
    m.client_host = r.string()
    m.subscribed_topic_names = r.strings()
    m.subscribed_topic_regex = r.string_nullable()
    m.assignment = _read_assignment(r, v)
    m.target_assignment = _read_assignment(r, v)
    if v >= 1:
        m.member_type = r.int8()
    else:
        m.member_type = -1
    r.skip_tags()
    return m


def _write_member(w: Writer, m: Member, v: int) -> None:
    w.string(m.member_id)
    w.string_nullable(m.instance_id)
    w.string_nullable(m.rack_id)
    w.int32(m.member_epoch)
    w.string(m.client_id)
    w.string(m.client_host)
    w.strings(m.subscribed_topic_names)
    w.string_nullable(m.subscribed_topic_regex)
    _write_assignment(w, m.assignment, v)
    _write_assignment(w, m.target_assignment, v)
    if v >= 1:
        w.int8(m.member_type)
    w.tags()


def _read_described_group(r: Reader, v: int) -> DescribedGroup:
    m = DescribedGroup.__new__(DescribedGroup)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.group_id = r.string()
    m.group_state = r.string()
    m.group_epoch, m.assignment_epoch = r.fixed(_ii)
    m.assignor_name = r.string()
    m.members = r.array(_read_member, v, 16)
    m.authorized_operations = r.int32()
    r.skip_tags()
    return m


def _write_described_group(w: Writer, m: DescribedGroup, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.string(m.group_id)
    w.string(m.group_state)
    w += _ii.pack(m.group_epoch, m.assignment_epoch)
    w.string(m.assignor_name)
    w.array(_write_member, m.members, v)
    w.int32(m.authorized_operations)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.groups = r.array(_read_described_group, v, 20)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_described_group, m.groups, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, True)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, True)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, True)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, True)
