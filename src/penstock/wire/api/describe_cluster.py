"""DescribeCluster (API key 60), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 60
NAME = "DescribeCluster"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class Request(Message):
    __slots__ = ("include_cluster_authorized_operations", "endpoint_type", "include_fenced_brokers")

    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.endpoint_type = endpoint_type
        self.include_fenced_brokers = include_fenced_brokers


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.include_cluster_authorized_operations = r.boolean()
    if v >= 1:
        m.endpoint_type = r.int8()
    else:
        m.endpoint_type = 1
    if v >= 2:
        m.include_fenced_brokers = r.boolean()
    else:
        m.include_fenced_brokers = False
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.boolean(m.include_cluster_authorized_operations)
    if v >= 1:
        w.int8(m.endpoint_type)
    else:
        if m.endpoint_type != 1:
            absent(m, "endpoint_type", v)
    if v >= 2:
        w.boolean(m.include_fenced_brokers)
    else:
        if m.include_fenced_brokers:
            absent(m, "include_fenced_brokers", v)
    w.tags()


class DescribeClusterBroker(Message):
    __slots__ = ("broker_id", "host", "port", "rack", "is_fenced")

    def __init__(
        self, *, broker_id: int = 0, host: str = "", port: int = 0, rack: str | None = None, is_fenced: bool = False
    ) -> None:
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self.rack = rack
        self.is_fenced = is_fenced


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "endpoint_type",
        "cluster_id",
        "controller_id",
        "brokers",
        "cluster_authorized_operations",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: list[DescribeClusterBroker] | tuple[DescribeClusterBroker, ...] = (),
        cluster_authorized_operations: int = -2147483648,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.endpoint_type = endpoint_type
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers: list[DescribeClusterBroker] = list(brokers) if isinstance(brokers, tuple) else brokers
        self.cluster_authorized_operations = cluster_authorized_operations


def _read_describe_cluster_broker(r: Reader, v: int) -> DescribeClusterBroker:
    m = DescribeClusterBroker.__new__(DescribeClusterBroker)
    m.broker_id = r.int32()
    m.host = r.string()
    m.port = r.int32()
    m.rack = r.string_nullable()
    if v >= 2:
        m.is_fenced = r.boolean()
    else:
        m.is_fenced = False
    r.skip_tags()
    return m


def _write_describe_cluster_broker(w: Writer, m: DescribeClusterBroker, v: int) -> None:
    w.int32(m.broker_id)
    w.string(m.host)
    w.int32(m.port)
    w.string_nullable(m.rack)
    if v >= 2:
        w.boolean(m.is_fenced)
    else:
        if m.is_fenced:
            absent(m, "is_fenced", v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    if v >= 1:
        m.endpoint_type = r.int8()
    else:
        m.endpoint_type = 1
    m.cluster_id = r.string()
    m.controller_id = r.int32()
    m.brokers = r.array(_read_describe_cluster_broker, v, 11)
    m.cluster_authorized_operations = r.int32()
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    if v >= 1:
        w.int8(m.endpoint_type)
    else:
        if m.endpoint_type != 1:
            absent(m, "endpoint_type", v)
    w.string(m.cluster_id)
    w.int32(m.controller_id)
    w.array(_write_describe_cluster_broker, m.brokers, v)
    w.int32(m.cluster_authorized_operations)
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
