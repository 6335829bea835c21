"""StreamsGroupHeartbeat (API key 88), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 88
NAME = "StreamsGroupHeartbeat"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_ii = Struct(">ii")
_iiii = Struct(">iiii")
_iq = Struct(">iq")


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


class CopartitionGroup(Message):
    __slots__ = ("source_topics", "source_topic_regex", "repartition_source_topics")

    def __init__(
        self,
        *,
        source_topics: list[int] | tuple[int, ...] = (),
        source_topic_regex: list[int] | tuple[int, ...] = (),
        repartition_source_topics: list[int] | tuple[int, ...] = (),
    ) -> None:
        self.source_topics: list[int] = list(source_topics) if isinstance(source_topics, tuple) else source_topics
        self.source_topic_regex: list[int] = (
            list(source_topic_regex) if isinstance(source_topic_regex, tuple) else source_topic_regex
        )
        self.repartition_source_topics: list[int] = (
            list(repartition_source_topics)
            if isinstance(repartition_source_topics, tuple)
            else repartition_source_topics
        )


class Subtopology(Message):
    __slots__ = (
        "subtopology_id",
        "source_topics",
        "source_topic_regex",
        "state_changelog_topics",
        "repartition_sink_topics",
        "repartition_source_topics",
        "copartition_groups",
    )

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        source_topics: list[str] | tuple[str, ...] = (),
        source_topic_regex: list[str] | tuple[str, ...] = (),
        state_changelog_topics: list[TopicInfo] | tuple[TopicInfo, ...] = (),
        repartition_sink_topics: list[str] | tuple[str, ...] = (),
        repartition_source_topics: list[TopicInfo] | tuple[TopicInfo, ...] = (),
        copartition_groups: list[CopartitionGroup] | tuple[CopartitionGroup, ...] = (),
    ) -> None:
        self.subtopology_id = subtopology_id
        self.source_topics: list[str] = list(source_topics) if isinstance(source_topics, tuple) else source_topics
        self.source_topic_regex: list[str] = (
            list(source_topic_regex) if isinstance(source_topic_regex, tuple) else source_topic_regex
        )
        self.state_changelog_topics: list[TopicInfo] = (
            list(state_changelog_topics) if isinstance(state_changelog_topics, tuple) else state_changelog_topics
        )
        self.repartition_sink_topics: list[str] = (
            list(repartition_sink_topics) if isinstance(repartition_sink_topics, tuple) else repartition_sink_topics
        )
        self.repartition_source_topics: list[TopicInfo] = (
            list(repartition_source_topics)
            if isinstance(repartition_source_topics, tuple)
            else repartition_source_topics
        )
        self.copartition_groups: list[CopartitionGroup] = (
            list(copartition_groups) if isinstance(copartition_groups, tuple) else copartition_groups
        )


class Topology(Message):
    __slots__ = ("epoch", "subtopologies")

    def __init__(self, *, epoch: int = 0, subtopologies: list[Subtopology] | tuple[Subtopology, ...] = ()) -> None:
        self.epoch = epoch
        self.subtopologies: list[Subtopology] = (
            list(subtopologies) if isinstance(subtopologies, tuple) else subtopologies
        )


class TaskIds(Message):
    __slots__ = ("subtopology_id", "partitions")

    def __init__(self, *, subtopology_id: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.subtopology_id = subtopology_id
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


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


class Request(Message):
    __slots__ = (
        "group_id",
        "member_id",
        "member_epoch",
        "endpoint_information_epoch",
        "instance_id",
        "rack_id",
        "rebalance_timeout_ms",
        "topology",
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "process_id",
        "user_endpoint",
        "client_tags",
        "task_offsets",
        "task_end_offsets",
        "shutdown_application",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        endpoint_information_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        topology: Topology | None = None,
        active_tasks: list[TaskIds] | tuple[TaskIds, ...] | None = (),
        standby_tasks: list[TaskIds] | tuple[TaskIds, ...] | None = (),
        warmup_tasks: list[TaskIds] | tuple[TaskIds, ...] | None = (),
        process_id: str | None = None,
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] | tuple[KeyValue, ...] | None = (),
        task_offsets: list[TaskOffset] | tuple[TaskOffset, ...] | None = (),
        task_end_offsets: list[TaskOffset] | tuple[TaskOffset, ...] | None = (),
        shutdown_application: bool = False,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.endpoint_information_epoch = endpoint_information_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topology = topology
        self.active_tasks: list[TaskIds] | None = (
            list(active_tasks) if isinstance(active_tasks, tuple) else active_tasks
        )
        self.standby_tasks: list[TaskIds] | None = (
            list(standby_tasks) if isinstance(standby_tasks, tuple) else standby_tasks
        )
        self.warmup_tasks: list[TaskIds] | None = (
            list(warmup_tasks) if isinstance(warmup_tasks, tuple) else warmup_tasks
        )
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags: list[KeyValue] | None = list(client_tags) if isinstance(client_tags, tuple) else client_tags
        self.task_offsets: list[TaskOffset] | None = (
            list(task_offsets) if isinstance(task_offsets, tuple) else task_offsets
        )
        self.task_end_offsets: list[TaskOffset] | None = (
            list(task_end_offsets) if isinstance(task_end_offsets, tuple) else task_end_offsets
        )
        self.shutdown_application = shutdown_application


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


def _read_copartition_group(r: Reader, v: int) -> CopartitionGroup:
    m = CopartitionGroup.__new__(CopartitionGroup)
    m.source_topics = r.integers("h", 2)
    m.source_topic_regex = r.integers("h", 2)
    m.repartition_source_topics = r.integers("h", 2)
    r.skip_tags()
    return m


def _write_copartition_group(w: Writer, m: CopartitionGroup, v: int) -> None:
    w.integers("h", m.source_topics)
    w.integers("h", m.source_topic_regex)
    w.integers("h", m.repartition_source_topics)
    w.tags()


def _read_subtopology(r: Reader, v: int) -> Subtopology:
    m = Subtopology.__new__(Subtopology)
    m.subtopology_id = r.string()
    m.source_topics = r.strings()
    m.source_topic_regex = r.strings()
    m.state_changelog_topics = r.array(_read_topic_info, v, 9)
    m.repartition_sink_topics = r.strings()
    m.repartition_source_topics = r.array(_read_topic_info, v, 9)
    m.copartition_groups = r.array(_read_copartition_group, v, 4)
    r.skip_tags()
    return m


def _write_subtopology(w: Writer, m: Subtopology, v: int) -> None:
    w.string(m.subtopology_id)
    w.strings(m.source_topics)
    w.strings(m.source_topic_regex)
    w.array(_write_topic_info, m.state_changelog_topics, v)
    w.strings(m.repartition_sink_topics)
    w.array(_write_topic_info, m.repartition_source_topics, v)
    w.array(_write_copartition_group, m.copartition_groups, v)
    w.tags()


def _read_topology(r: Reader, v: int) -> Topology:
    m = Topology.__new__(Topology)
    m.epoch = r.int32()
    m.subtopologies = r.array(_read_subtopology, v, 8)
    r.skip_tags()
    return m


def _write_topology(w: Writer, m: Topology, v: int) -> None:
    w.int32(m.epoch)
    w.array(_write_subtopology, m.subtopologies, v)
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


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.member_id = r.string()
    m.member_epoch, m.endpoint_information_epoch = r.fixed(_ii)
    m.instance_id = r.string_nullable()
    m.rack_id = r.string_nullable()
    m.rebalance_timeout_ms = r.int32()
    m.topology = _read_topology(r, v) if r.present() else None
    m.active_tasks = r.array_nullable(_read_task_ids, v, 3)
    m.standby_tasks = r.array_nullable(_read_task_ids, v, 3)
    m.warmup_tasks = r.array_nullable(_read_task_ids, v, 3)
    m.process_id = r.string_nullable()
    m.user_endpoint = _read_endpoint(r, v) if r.present() else None
    m.client_tags = r.array_nullable(_read_key_value, v, 3)
    m.task_offsets = r.array_nullable(_read_task_offset, v, 14)
    m.task_end_offsets = r.array_nullable(_read_task_offset, v, 14)
    m.shutdown_application = r.boolean()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.string(m.member_id)
    w += _ii.pack(m.member_epoch, m.endpoint_information_epoch)
    w.string_nullable(m.instance_id)
    w.string_nullable(m.rack_id)
    w.int32(m.rebalance_timeout_ms)
    w.present(m.topology)
    if m.topology is not None:
        _write_topology(w, m.topology, v)
    w.array_nullable(_write_task_ids, m.active_tasks, v)
    w.array_nullable(_write_task_ids, m.standby_tasks, v)
    w.array_nullable(_write_task_ids, m.warmup_tasks, v)
    w.string_nullable(m.process_id)
    w.present(m.user_endpoint)
    if m.user_endpoint is not None:
        _write_endpoint(w, m.user_endpoint, v)
    w.array_nullable(_write_key_value, m.client_tags, v)
    w.array_nullable(_write_task_offset, m.task_offsets, v)
    w.array_nullable(_write_task_offset, m.task_end_offsets, v)
    w.boolean(m.shutdown_application)
    w.tags()


class Status(Message):
    __slots__ = ("status_code", "status_detail")

    def __init__(self, *, status_code: int = 0, status_detail: str = "") -> None:
        self.status_code = status_code
        self.status_detail = status_detail


class TopicPartition(Message):
    __slots__ = ("topic", "partitions")

    def __init__(self, *, topic: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.topic = topic
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class EndpointToPartitions(Message):
    __slots__ = ("user_endpoint", "active_partitions", "standby_partitions")

    def __init__(
        self,
        *,
        user_endpoint: Endpoint | None = None,
        active_partitions: list[TopicPartition] | tuple[TopicPartition, ...] = (),
        standby_partitions: list[TopicPartition] | tuple[TopicPartition, ...] = (),
    ) -> None:
        self.user_endpoint = Endpoint() if user_endpoint is None else user_endpoint
        self.active_partitions: list[TopicPartition] = (
            list(active_partitions) if isinstance(active_partitions, tuple) else active_partitions
        )
        self.standby_partitions: list[TopicPartition] = (
            list(standby_partitions) if isinstance(standby_partitions, tuple) else standby_partitions
        )


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "member_id",
        "member_epoch",
        "heartbeat_interval_ms",
        "acceptable_recovery_lag",
        "task_offset_interval_ms",
        "status",
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "endpoint_information_epoch",
        "partitions_by_user_endpoint",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str = "",
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        acceptable_recovery_lag: int = 0,
        task_offset_interval_ms: int = 0,
        status: list[Status] | tuple[Status, ...] | None = (),
        active_tasks: list[TaskIds] | tuple[TaskIds, ...] | None = (),
        standby_tasks: list[TaskIds] | tuple[TaskIds, ...] | None = (),
        warmup_tasks: list[TaskIds] | tuple[TaskIds, ...] | None = (),
        endpoint_information_epoch: int = 0,
        partitions_by_user_endpoint: list[EndpointToPartitions] | tuple[EndpointToPartitions, ...] | None = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.acceptable_recovery_lag = acceptable_recovery_lag
        self.task_offset_interval_ms = task_offset_interval_ms
        self.status: list[Status] | None = list(status) if isinstance(status, tuple) else status
        self.active_tasks: list[TaskIds] | None = (
            list(active_tasks) if isinstance(active_tasks, tuple) else active_tasks
        )
        self.standby_tasks: list[TaskIds] | None = (
            list(standby_tasks) if isinstance(standby_tasks, tuple) else standby_tasks
        )
        self.warmup_tasks: list[TaskIds] | None = (
            list(warmup_tasks) if isinstance(warmup_tasks, tuple) else warmup_tasks
        )
        self.endpoint_information_epoch = endpoint_information_epoch
        self.partitions_by_user_endpoint: list[EndpointToPartitions] | None = (
            list(partitions_by_user_endpoint)
            if isinstance(partitions_by_user_endpoint, tuple)
            else partitions_by_user_endpoint
        )


def _read_status(r: Reader, v: int) -> Status:
    m = Status.__new__(Status)
    m.status_code = r.int8()
    m.status_detail = r.string()
    r.skip_tags()
    return m


def _write_status(w: Writer, m: Status, v: int) -> None:
    w.int8(m.status_code)
    w.string(m.status_detail)
    w.tags()


def _read_topic_partition(r: Reader, v: int) -> TopicPartition:
    m = TopicPartition.__new__(TopicPartition)
    m.topic = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_topic_partition(w: Writer, m: TopicPartition, v: int) -> None:
    w.string(m.topic)
    w.integers("i", m.partitions)
    w.tags()


def _read_endpoint_to_partitions(r: Reader, v: int) -> EndpointToPartitions:
    m = EndpointToPartitions.__new__(EndpointToPartitions)
    m.user_endpoint = _read_endpoint(r, v)
    m.active_partitions = r.array(_read_topic_partition, v, 3)
    m.standby_partitions = r.array(_read_topic_partition, v, 3)
    r.skip_tags()
    return m


def _write_endpoint_to_partitions(w: Writer, m: EndpointToPartitions, v: int) -> None:
    _write_endpoint(w, m.user_endpoint, v)
    w.array(_write_topic_partition, m.active_partitions, v)
    w.array(_write_topic_partition, m.standby_partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.member_id = r.string()
    m.member_epoch, m.heartbeat_interval_ms, m.acceptable_recovery_lag, m.task_offset_interval_ms = r.fixed(_iiii)
    m.status = r.array_nullable(_read_status, v, 3)
    m.active_tasks = r.array_nullable(_read_task_ids, v, 3)
    m.standby_tasks = r.array_nullable(_read_task_ids, v, 3)
    m.warmup_tasks = r.array_nullable(_read_task_ids, v, 3)
    m.endpoint_information_epoch = r.int32()
    m.partitions_by_user_endpoint = r.array_nullable(_read_endpoint_to_partitions, v, 7)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.string(m.member_id)
    w += _iiii.pack(m.member_epoch, m.heartbeat_interval_ms, m.acceptable_recovery_lag, m.task_offset_interval_ms)
    w.array_nullable(_write_status, m.status, v)
    w.array_nullable(_write_task_ids, m.active_tasks, v)
    w.array_nullable(_write_task_ids, m.standby_tasks, v)
    w.array_nullable(_write_task_ids, m.warmup_tasks, v)
    w.int32(m.endpoint_information_epoch)
    w.array_nullable(_write_endpoint_to_partitions, m.partitions_by_user_endpoint, v)
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
