"""Metadata (API key 3), versions 0 to 13. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 3
NAME = "Metadata"
VERSION_MIN = 0
VERSION_MAX = 13
FLEXIBLE_FROM: int | None = 9

_hii = Struct(">hii")


class MetadataRequestTopic(Message):
    __slots__ = ("topic_id", "name")

    def __init__(self, *, topic_id: bytes = ZERO_UUID, name: str | None = "") -> None:
        self.topic_id = topic_id
        self.name = name


class Request(Message):
    __slots__ = (
        "topics",
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    )

    def __init__(
        self,
        *,
        topics: list[MetadataRequestTopic] | tuple[MetadataRequestTopic, ...] | None = (),
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
    ) -> None:
        self.topics: list[MetadataRequestTopic] | None = list(topics) if isinstance(topics, tuple) else topics
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.include_topic_authorized_operations = include_topic_authorized_operations


def _read_metadata_request_topic(r: Reader, v: int) -> MetadataRequestTopic:
    m = MetadataRequestTopic.__new__(MetadataRequestTopic)
    if v >= 10:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.name = r.string_nullable() if v >= 10 else r.string()
    r.skip_tags()
    return m


def _write_metadata_request_topic(w: Writer, m: MetadataRequestTopic, v: int) -> None:
    if v >= 10:
        w.uuid(m.topic_id)
    if v >= 10:
        w.string_nullable(m.name)
    elif m.name is None:
        raise ValueError(f"name is null in version {v}")
    else:
        w.string(m.name)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = (
        r.array_nullable(_read_metadata_request_topic, v, 2) if v >= 1 else r.array(_read_metadata_request_topic, v, 2)
    )
    if v >= 4:
        m.allow_auto_topic_creation = r.boolean()
    else:
        m.allow_auto_topic_creation = True
    if 8 <= v <= 10:
        m.include_cluster_authorized_operations = r.boolean()
    else:
        m.include_cluster_authorized_operations = False
    if v >= 8:
        m.include_topic_authorized_operations = r.boolean()
    else:
        m.include_topic_authorized_operations = False
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v >= 1:
        w.array_nullable(_write_metadata_request_topic, m.topics, v)
    elif m.topics is None:
        raise ValueError(f"topics is null in version {v}")
    else:
        w.array(_write_metadata_request_topic, m.topics, v)
    if v >= 4:
        w.boolean(m.allow_auto_topic_creation)
    else:
        if not m.allow_auto_topic_creation:
            absent(m, "allow_auto_topic_creation", v)
    if 8 <= v <= 10:
        w.boolean(m.include_cluster_authorized_operations)
    else:
        if m.include_cluster_authorized_operations:
            absent(m, "include_cluster_authorized_operations", v)
    if v >= 8:
        w.boolean(m.include_topic_authorized_operations)
    else:
        if m.include_topic_authorized_operations:
            absent(m, "include_topic_authorized_operations", v)
    w.tags()


class MetadataResponseBroker(Message):
    __slots__ = ("node_id", "host", "port", "rack")

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class MetadataResponsePartition(Message):
    __slots__ = (
        "error_code",
        "partition_index",
        "leader_id",
        "leader_epoch",
        "replica_nodes",
        "isr_nodes",
        "offline_replicas",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] | tuple[int, ...] = (),
        isr_nodes: list[int] | tuple[int, ...] = (),
        offline_replicas: list[int] | tuple[int, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes: list[int] = list(replica_nodes) if isinstance(replica_nodes, tuple) else replica_nodes
        self.isr_nodes: list[int] = list(isr_nodes) if isinstance(isr_nodes, tuple) else isr_nodes
        self.offline_replicas: list[int] = (
            list(offline_replicas) if isinstance(offline_replicas, tuple) else offline_replicas
        )


class MetadataResponseTopic(Message):
    __slots__ = ("error_code", "name", "topic_id", "is_internal", "partitions", "topic_authorized_operations")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        is_internal: bool = False,
        partitions: list[MetadataResponsePartition] | tuple[MetadataResponsePartition, ...] = (),
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions: list[MetadataResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )
        self.topic_authorized_operations = topic_authorized_operations


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "brokers",
        "cluster_id",
        "controller_id",
        "topics",
        "cluster_authorized_operations",
        "error_code",
    )
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        brokers: list[MetadataResponseBroker] | tuple[MetadataResponseBroker, ...] = (),
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: list[MetadataResponseTopic] | tuple[MetadataResponseTopic, ...] = (),
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.brokers: list[MetadataResponseBroker] = list(brokers) if isinstance(brokers, tuple) else brokers
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.topics: list[MetadataResponseTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.cluster_authorized_operations = cluster_authorized_operations
        self.error_code = error_code


def _read_metadata_response_broker(r: Reader, v: int) -> MetadataResponseBroker:
    m = MetadataResponseBroker.__new__(MetadataResponseBroker)
    m.node_id = r.int32()
    m.host = r.string()
    m.port = r.int32()
    if v >= 1:
        m.rack = r.string_nullable()
    else:
        m.rack = None
    r.skip_tags()
    return m


def _write_metadata_response_broker(w: Writer, m: MetadataResponseBroker, v: int) -> None:
    w.int32(m.node_id)
    w.string(m.host)
    w.int32(m.port)
    if v >= 1:
        w.string_nullable(m.rack)
    w.tags()


def _read_metadata_response_partition(r: Reader, v: int) -> MetadataResponsePartition:
    m = MetadataResponsePartition.__new__(MetadataResponsePartition)
    m.error_code, m.partition_index, m.leader_id = r.fixed(_hii)
    if v >= 7:
        m.leader_epoch = r.int32()
    else:
        m.leader_epoch = -1
    m.replica_nodes = r.integers("i", 4)
    m.isr_nodes = r.integers("i", 4)
    if v >= 5:
        m.offline_replicas = r.integers("i", 4)
    else:
        m.offline_replicas = []
    r.skip_tags()
    return m


def _write_metadata_response_partition(w: Writer, m: MetadataResponsePartition, v: int) -> None:
    w += _hii.pack(m.error_code, m.partition_index, m.leader_id)
    if v >= 7:
        w.int32(m.leader_epoch)
    w.integers("i", m.replica_nodes)
    w.integers("i", m.isr_nodes)
    if v >= 5:
        w.integers("i", m.offline_replicas)
    w.tags()


def _read_metadata_response_topic(r: Reader, v: int) -> MetadataResponseTopic:
    m = MetadataResponseTopic.__new__(MetadataResponseTopic)
    m.error_code = r.int16()
    m.name = r.string_nullable() if v >= 12 else r.string()
    if v >= 10:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    if v >= 1:
        m.is_internal = r.boolean()
    else:
        m.is_internal = False
    m.partitions = r.array(_read_metadata_response_partition, v, 18)
    if v >= 8:
        m.topic_authorized_operations = r.int32()
    else:
        m.topic_authorized_operations = -2147483648
    r.skip_tags()
    return m


def _write_metadata_response_topic(w: Writer, m: MetadataResponseTopic, v: int) -> None:
    w.int16(m.error_code)
    if v >= 12:
        w.string_nullable(m.name)
    elif m.name is None:
        raise ValueError(f"name is null in version {v}")
    else:
        w.string(m.name)
    if v >= 10:
        w.uuid(m.topic_id)
    if v >= 1:
        w.boolean(m.is_internal)
    w.array(_write_metadata_response_partition, m.partitions, v)
    if v >= 8:
        w.int32(m.topic_authorized_operations)
    else:
        if m.topic_authorized_operations != -2147483648:
            absent(m, "topic_authorized_operations", v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 3:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.brokers = r.array(_read_metadata_response_broker, v, 10)
    if v >= 2:
        m.cluster_id = r.string_nullable()
    else:
        m.cluster_id = None
    if v >= 1:
        m.controller_id = r.int32()
    else:
        m.controller_id = -1
    m.topics = r.array(_read_metadata_response_topic, v, 8)
    if 8 <= v <= 10:
        m.cluster_authorized_operations = r.int32()
    else:
        m.cluster_authorized_operations = -2147483648
    if v >= 13:
        m.error_code = r.int16()
    else:
        m.error_code = 0
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 3:
        w.int32(m.throttle_time_ms)
    w.array(_write_metadata_response_broker, m.brokers, v)
    if v >= 2:
        w.string_nullable(m.cluster_id)
    if v >= 1:
        w.int32(m.controller_id)
    w.array(_write_metadata_response_topic, m.topics, v)
    if 8 <= v <= 10:
        w.int32(m.cluster_authorized_operations)
    else:
        if m.cluster_authorized_operations != -2147483648:
            absent(m, "cluster_authorized_operations", v)
    if v >= 13:
        w.int16(m.error_code)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 9)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 9)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 9)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 9)
