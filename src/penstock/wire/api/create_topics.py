"""CreateTopics (API key 19), versions 2 to 7. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 19
NAME = "CreateTopics"
VERSION_MIN = 2
VERSION_MAX = 7
FLEXIBLE_FROM: int | None = 5

_tbt = Struct(">?b?")
_it = Struct(">i?")
_ih = Struct(">ih")


class CreatableReplicaAssignment(Message):
    __slots__ = ("partition_index", "broker_ids")

    def __init__(self, *, partition_index: int = 0, broker_ids: list[int] | tuple[int, ...] = ()) -> None:
        self.partition_index = partition_index
        self.broker_ids: list[int] = list(broker_ids) if isinstance(broker_ids, tuple) else broker_ids


class CreatableTopicConfig(Message):
    __slots__ = ("name", "value")

    def __init__(self, *, name: str = "", value: str | None = "") -> None:
        self.name = name
        self.value = value


class CreatableTopic(Message):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")

    def __init__(
        self,
        *,
        name: str = "",
        num_partitions: int = 0,
        replication_factor: int = 0,
        assignments: list[CreatableReplicaAssignment] | tuple[CreatableReplicaAssignment, ...] = (),
        configs: list[CreatableTopicConfig] | tuple[CreatableTopicConfig, ...] = (),
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments: list[CreatableReplicaAssignment] = (
            list(assignments) if isinstance(assignments, tuple) else assignments
        )
        self.configs: list[CreatableTopicConfig] = list(configs) if isinstance(configs, tuple) else configs


class Request(Message):
    __slots__ = ("topics", "timeout_ms", "validate_only")

    def __init__(
        self,
        *,
        topics: list[CreatableTopic] | tuple[CreatableTopic, ...] = (),
        timeout_ms: int = 60000,
        validate_only: bool = False,
    ) -> None:
        self.topics: list[CreatableTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


def _read_creatable_replica_assignment(r: Reader, v: int) -> CreatableReplicaAssignment:
    m = CreatableReplicaAssignment.__new__(CreatableReplicaAssignment)
    m.partition_index = r.int32()
    m.broker_ids = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_creatable_replica_assignment(w: Writer, m: CreatableReplicaAssignment, v: int) -> None:
    w.int32(m.partition_index)
    w.integers("i", m.broker_ids)
    w.tags()


def _read_creatable_topic_config(r: Reader, v: int) -> CreatableTopicConfig:
    m = CreatableTopicConfig.__new__(CreatableTopicConfig)
    m.name = r.string()
    m.value = r.string_nullable()
    r.skip_tags()
    return m


def _write_creatable_topic_config(w: Writer, m: CreatableTopicConfig, v: int) -> None:
    w.string(m.name)
    w.string_nullable(m.value)
    w.tags()


def _read_creatable_topic(r: Reader, v: int) -> CreatableTopic:
    m = CreatableTopic.__new__(CreatableTopic)
    m.name = r.string()
    m.num_partitions, m.replication_factor = r.fixed(_ih)
    m.assignments = r.array(_read_creatable_replica_assignment, v, 6)
    m.configs = r.array(_read_creatable_topic_config, v, 3)
    r.skip_tags()
    return m


def _write_creatable_topic(w: Writer, m: CreatableTopic, v: int) -> None:
    w.string(m.name)
    w += _ih.pack(m.num_partitions, m.replication_factor)
    w.array(_write_creatable_replica_assignment, m.assignments, v)
    w.array(_write_creatable_topic_config, m.configs, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = r.array(_read_creatable_topic, v, 10)
    m.timeout_ms, m.validate_only = r.fixed(_it)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_creatable_topic, m.topics, v)
    w += _it.pack(m.timeout_ms, m.validate_only)
    w.tags()


class CreatableTopicResult(Message):
    __slots__ = (
        "name",
        "topic_id",
        "error_code",
        "error_message",
        "topic_config_error_code",
        "num_partitions",
        "replication_factor",
        "configs",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = "",
        topic_config_error_code: int = 0,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: list[CreatableTopicConfigs] | tuple[CreatableTopicConfigs, ...] | None = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message
        self.topic_config_error_code = topic_config_error_code
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.configs: list[CreatableTopicConfigs] | None = list(configs) if isinstance(configs, tuple) else configs


class CreatableTopicConfigs(Message):
    __slots__ = ("name", "value", "read_only", "config_source", "is_sensitive")

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self, *, throttle_time_ms: int = 0, topics: list[CreatableTopicResult] | tuple[CreatableTopicResult, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[CreatableTopicResult] = list(topics) if isinstance(topics, tuple) else topics


def _read_creatable_topic_result(r: Reader, v: int) -> CreatableTopicResult:
    m = CreatableTopicResult.__new__(CreatableTopicResult)
    m.name = r.string()
    if v >= 7:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    if v >= 5:
        m.num_partitions, m.replication_factor = r.fixed(_ih)
        m.configs = r.array_nullable(_read_creatable_topic_configs, v, 6)
    else:
        m.num_partitions = -1
        m.replication_factor = -1
        m.configs = []
    m.topic_config_error_code = 0
    for tag, end in r.tagged():
        if tag == 0:
            m.topic_config_error_code = r.int16()
        else:
            r.pos = end
    return m


def _write_creatable_topic_result(w: Writer, m: CreatableTopicResult, v: int) -> None:
    w.string(m.name)
    if v >= 7:
        w.uuid(m.topic_id)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    if v >= 5:
        w += _ih.pack(m.num_partitions, m.replication_factor)
        w.array_nullable(_write_creatable_topic_configs, m.configs, v)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 5) and m.topic_config_error_code != 0:
        t = w.fresh()
        t.int16(m.topic_config_error_code)
        tagged.append((0, t))
    w.tags(tagged)


def _read_creatable_topic_configs(r: Reader, v: int) -> CreatableTopicConfigs:
    m = CreatableTopicConfigs.__new__(CreatableTopicConfigs)
    m.name = r.string()
    m.value = r.string_nullable()
    m.read_only, m.config_source, m.is_sensitive = r.fixed(_tbt)
    r.skip_tags()
    return m


def _write_creatable_topic_configs(w: Writer, m: CreatableTopicConfigs, v: int) -> None:
    w.string(m.name)
    w.string_nullable(m.value)
    w += _tbt.pack(m.read_only, m.config_source, m.is_sensitive)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.topics = r.array(_read_creatable_topic_result, v, 6)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_creatable_topic_result, m.topics, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 5)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 5)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 5)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 5)
