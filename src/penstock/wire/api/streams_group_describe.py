"""StreamsGroupDescribe (API key 89), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 89
NAME = "StreamsGroupDescribe"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_ii = Struct(">ii")
_iq = Struct(">iq")


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


class KeyValue(Message):
    __slots__ = ("key", "value")

    def __init__(self, *, key: str = "", value: str = "") -> None:
        self.key = key
        self.value = value


class TopicInfo(Message):
    __slots__ = ("name", "partitions", "replication_factor", "topic_configs")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: int = 0,
        replication_factor: int = 0,
        topic_configs: list[KeyValue] | tuple[KeyValue, ...] = (),
    ) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.topic_configs: list[KeyValue] = list(topic_configs) if isinstance(topic_configs, tuple) else topic_configs


class Subtopology(Message):
    __slots__ = (
        "subtopology_id",
        "source_topics",
        "repartition_sink_topics",
        "state_changelog_topics",
        "repartition_source_topics",
    )

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        source_topics: list[str] | tuple[str, ...] = (),
        repartition_sink_topics: list[str] | tuple[str, ...] = (),
        state_changelog_topics: list[TopicInfo] | tuple[TopicInfo, ...] = (),
        repartition_source_topics: list[TopicInfo] | tuple[TopicInfo, ...] = (),
    ) -> None:
        self.subtopology_id = subtopology_id
        self.source_topics: list[str] = list(source_topics) if isinstance(source_topics, tuple) else source_topics
        self.repartition_sink_topics: list[str] = (
            list(repartition_sink_topics) if isinstance(repartition_sink_topics, tuple) else repartition_sink_topics
        )
        self.state_changelog_topics: list[TopicInfo] = (
            list(state_changelog_topics) if isinstance(state_changelog_topics, tuple) else state_changelog_topics
        )
        self.repartition_source_topics: list[TopicInfo] = (
            list(repartition_source_topics)
            if isinstance(repartition_source_topics, tuple)
            else repartition_source_topics
        )


class Topology(Message):
    __slots__ = ("epoch", "subtopologies")

    def __init__(
        self, *, epoch: int = 0, subtopologies: list[Subtopology] | tuple[Subtopology, ...] | None = ()
    ) -> None:
        self.epoch = epoch
        self.subtopologies: list[Subtopology] | None = (
            list(subtopologies) if isinstance(subtopologies, tuple) else subtopologies
        )


class Endpoint(Message):
    __slots__ = ("host", "port")

    def __init__(self, *, host: str = "", port: int = 0) -> None:
        self.host = host
        self.port = port


class TaskOffset(Message):
    __slots__ = ("subtopology_id", "partition", "offset")

    def __init__(self, *, subtopology_id: str = "", partition: int = 0, offset: int = 0) -> None:
        self.subtopology_id = subtopology_id
        self.partition = partition
        self.offset = offset


class TaskIds(Message):
    __slots__ = ("subtopology_id", "partitions")

    def __init__(self, *, subtopology_id: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.subtopology_id = subtopology_id
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class Assignment(Message):
    __slots__ = ("active_tasks", "standby_tasks", "warmup_tasks")

    def __init__(
        self,
        *,
        active_tasks: list[TaskIds] | tuple[TaskIds, ...] = (),
        standby_tasks: list[TaskIds] | tuple[TaskIds, ...] = (),
        warmup_tasks: list[TaskIds] | tuple[TaskIds, ...] = (),
    ) -> None:
        self.active_tasks: list[TaskIds] = list(active_tasks) if isinstance(active_tasks, tuple) else active_tasks
        self.standby_tasks: list[TaskIds] = list(standby_tasks) if isinstance(standby_tasks, tuple) else standby_tasks
        self.warmup_tasks: list[TaskIds] = list(warmup_tasks) if isinstance(warmup_tasks, tuple) else warmup_tasks


class Member(Message):
    __slots__ = (
        "member_id",
        "member_epoch",
        "instance_id",
        "rack_id",
        "client_id",
        "client_host",
        "topology_epoch",
        "process_id",
        "user_endpoint",
        "client_tags",
        "task_offsets",
        "task_end_offsets",
        "assignment",
        "target_assignment",
        "is_classic",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        topology_epoch: int = 0,
        process_id: str = "",
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] | tuple[KeyValue, ...] = (),
        task_offsets: list[TaskOffset] | tuple[TaskOffset, ...] = (),
        task_end_offsets: list[TaskOffset] | tuple[TaskOffset, ...] = (),
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        is_classic: bool = False,
    ) -> None:
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.topology_epoch = topology_epoch
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags: list[KeyValue] = list(client_tags) if isinstance(client_tags, tuple) else client_tags
        self.task_offsets: list[TaskOffset] = list(task_offsets) if isinstance(task_offsets, tuple) else task_offsets
        self.task_end_offsets: list[TaskOffset] = (
            list(task_end_offsets) if isinstance(task_end_offsets, tuple) else task_end_offsets
        )
        self.assignment = Assignment() if assignment is None else assignment
        self.target_assignment = Assignment() if target_assignment is None else target_assignment
        self.is_classic = is_classic


class DescribedGroup(Message):
    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "group_epoch",
        "assignment_epoch",
        "topology",
        "members",
        "authorized_operations",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        topology: Topology | None = None,
        members: list[Member] | tuple[Member, ...] = (),
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.topology = topology
        self.members: list[Member] = list(members) if isinstance(members, tuple) else members
        self.authorized_operations = authorized_operations


class Response(Message):
    __slots__ = ("throttle_time_ms", "groups")

    def __init__(
        self, *, throttle_time_ms: int = 0, groups: list[DescribedGroup] | tuple[DescribedGroup, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = list(groups) if isinstance(groups, tuple) else groups


def _read_key_value(r: Reader, v: int) -> KeyValue:
    m = KeyValue.__new__(KeyValue)
    m.key = r.string()
    m.value = r.string()
    r.skip_tags()
    return m


def _write_key_value(w: Writer, m: KeyValue, v: int) -> None:
    w.string(m.key)
    w.string(m.value)
    w.tags()


def _read_topic_info(r: Reader, v: int) -> TopicInfo:
    m = TopicInfo.__new__(TopicInfo)
    m.name = r.string()
    m.partitions, m.replication_factor = r.fixed(_ih)
    m.topic_configs = r.array(_read_key_value, v, 3)
    r.skip_tags()
    return m


def _write_topic_info(w: Writer, m: TopicInfo, v: int) -> None:
    w.string(m.name)
    w += _ih.pack(m.partitions, m.replication_factor)
    w.array(_write_key_value, m.topic_configs, v)
    w.tags()


def _read_subtopology(r: Reader, v: int) -> Subtopology:
    m = Subtopology.__new__(Subtopology)
    m.subtopology_id = r.string()
    m.source_topics = r.strings()
    m.repartition_sink_topics = r.strings()
    m.state_changelog_topics = r.array(_read_topic_info, v, 9)
    m.repartition_source_topics = r.array(_read_topic_info, v, 9)
    r.skip_tags()
    return m


def _write_subtopology(w: Writer, m: Subtopology, v: int) -> None:
    w.string(m.subtopology_id)
    w.strings(m.source_topics)
    w.strings(m.repartition_sink_topics)
    w.array(_write_topic_info, m.state_changelog_topics, v)
    w.array(_write_topic_info, m.repartition_source_topics, v)
    w.tags()


def _read_topology(r: Reader, v: int) -> Topology:
    m = Topology.__new__(Topology)
    m.epoch = r.int32()
    m.subtopologies = r.array_nullable(_read_subtopology, v, 6)
    r.skip_tags()
    return m


def _write_topology(w: Writer, m: Topology, v: int) -> None:
    w.int32(m.epoch)
    w.array_nullable(_write_subtopology, m.subtopologies, v)
    w.tags()


def _read_endpoint(r: Reader, v: int) -> Endpoint:
    m = Endpoint.__new__(Endpoint)
    m.host = r.string()
    m.port = r.uint16()
    r.skip_tags()
    return m


def _write_endpoint(w: Writer, m: Endpoint, v: int) -> None:
    w.string(m.host)
    w.uint16(m.port)
    w.tags()


def _read_task_offset(r: Reader, v: int) -> TaskOffset:
    m = TaskOffset.__new__(TaskOffset)
    m.subtopology_id = r.string()
    m.partition, m.offset = r.fixed(_iq)
    r.skip_tags()
    return m


def _write_task_offset(w: Writer, m: TaskOffset, v: int) -> None:
    w.string(m.subtopology_id)
    w += _iq.pack(m.partition, m.offset)
    w.tags()


def _read_task_ids(r: Reader, v: int) -> TaskIds:
    m = TaskIds.__new__(TaskIds)
    m.subtopology_id = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_task_ids(w: Writer, m: TaskIds, v: int) -> None:
    w.string(m.subtopology_id)
    w.integers("i", m.partitions)
    w.tags()


def _read_assignment(r: Reader, v: int) -> Assignment:
    m = Assignment.__new__(Assignment)
    m.active_tasks = r.array(_read_task_ids, v, 3)
    m.standby_tasks = r.array(_read_task_ids, v, 3)
    m.warmup_tasks = r.array(_read_task_ids, v, 3)
    r.skip_tags()
    return m


def _write_assignment(w: Writer, m: Assignment, v: int) -> None:
    w.array(_write_task_ids, m.active_tasks, v)
    w.array(_write_task_ids, m.standby_tasks, v)
    w.array(_write_task_ids, m.warmup_tasks, v)
    w.tags()


def _read_member(r: Reader, v: int) -> Member:
    m = Member.__new__(Member)
    m.member_id = r.string()
    m.member_epoch = r.int32()
    m.instance_id = r.string_nullable()
    m.rack_id = r.string_nullable()
    m.client_id = r.string()
    m.client_host = r.string()
    m.topology_epoch = r.int32()
    m.process_id = r.string()
    m.user_endpoint = _read_endpoint(r, v) if r.present() else None
    m.client_tags = r.array(_read_key_value, v, 3)
    m.task_offsets = r.array(_read_task_offset, v, 14)
    m.task_end_offsets = r.array(_read_task_offset, v, 14)
    m.assignment = _read_assignment(r, v)
    m.target_assignment = _read_assignment(r, v)
    m.is_classic = r.boolean()
    r.skip_tags()
    return m


def _write_member(w: Writer, m: Member, v: int) -> None:
    w.string(m.member_id)
    w.int32(m.member_epoch)
    w.string_nullable(m.instance_id)
    w.string_nullable(m.rack_id)
    w.string(m.client_id)
    w.string(m.client_host)
    w.int32(m.topology_epoch)
    w.string(m.process_id)
    w.present(m.user_endpoint)
    if m.user_endpoint is not None:
        _write_endpoint(w, m.user_endpoint, v)
    w.array(_write_key_value, m.client_tags, v)
    w.array(_write_task_offset, m.task_offsets, v)
    w.array(_write_task_offset, m.task_end_offsets, v)
    _write_assignment(w, m.assignment, v)
    _write_assignment(w, m.target_assignment, v)
    w.boolean(m.is_classic)
    w.tags()


def _read_described_group(r: Reader, v: int) -> DescribedGroup:
    m = DescribedGroup.__new__(DescribedGroup)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.group_id = r.string()
    m.group_state = r.string()
    m.group_epoch, m.assignment_epoch = r.fixed(_ii)
    m.topology = _read_topology(r, v) if r.present() else None
    m.members = r.array(_read_member, v, 28)
    m.authorized_operations = r.int32()
    r.skip_tags()
    return m


def _write_described_group(w: Writer, m: DescribedGroup, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.string(m.group_id)
    w.string(m.group_state)
    w += _ii.pack(m.group_epoch, m.assignment_epoch)
    w.present(m.topology)
    if m.topology is not None:
        _write_topology(w, m.topology, v)
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
