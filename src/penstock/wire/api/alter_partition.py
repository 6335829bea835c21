"""AlterPartition (API key 56), versions 2 to 3. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 56
NAME = "AlterPartition"
VERSION_MIN = 2
VERSION_MAX = 3
FLEXIBLE_FROM: int | None = 2

_bi = Struct(">bi")
_ih = Struct(">ih")
_ihii = Struct(">ihii")
_ii = Struct(">ii")
_iq = Struct(">iq")


class RequestPartitionData(Message):
    __slots__ = (
        "partition_index",
        "leader_epoch",
        "new_isr",
        "new_isr_with_epochs",
        "leader_recovery_state",
        "partition_epoch",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_epoch: int = 0,
        new_isr: list[int] | tuple[int, ...] = (),
        new_isr_with_epochs: list[BrokerState] | tuple[BrokerState, ...] = (),
        leader_recovery_state: int = 0,
        partition_epoch: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.leader_epoch = leader_epoch
        self.new_isr: list[int] = list(new_isr) if isinstance(new_isr, tuple) else new_isr
        self.new_isr_with_epochs: list[BrokerState] = (
            list(new_isr_with_epochs) if isinstance(new_isr_with_epochs, tuple) else new_isr_with_epochs
        )
        self.leader_recovery_state = leader_recovery_state
        self.partition_epoch = partition_epoch


class RequestTopicData(Message):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: list[RequestPartitionData] | tuple[RequestPartitionData, ...] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[RequestPartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class BrokerState(Message):
    __slots__ = ("broker_id", "broker_epoch")

    def __init__(self, *, broker_id: int = 0, broker_epoch: int = -1) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class Request(Message):
    __slots__ = ("broker_id", "broker_epoch", "topics")

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        topics: list[RequestTopicData] | tuple[RequestTopicData, ...] = (),
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.topics: list[RequestTopicData] = list(topics) if isinstance(topics, tuple) else topics


def _read_request_partition_data(r: Reader, v: int) -> RequestPartitionData:
    m = RequestPartitionData.__new__(RequestPartitionData)
    m.partition_index, m.leader_epoch = r.fixed(_ii)
    if v <= 2:
        m.new_isr = r.integers("i", 4)
    else:
        m.new_isr = []
    if v >= 3:
        m.new_isr_with_epochs = r.array(_read_broker_state, v, 13)
    else:
        m.new_isr_with_epochs = []
    m.leader_recovery_state, m.partition_epoch = r.fixed(_bi)
    r.skip_tags()
    return m


def _write_request_partition_data(w: Writer, m: RequestPartitionData, v: int) -> None:
    w += _ii.pack(m.partition_index, m.leader_epoch)
    if v <= 2:
        w.integers("i", m.new_isr)
    else:
        if m.new_isr:
            absent(m, "new_isr", v)
    if v >= 3:
        w.array(_write_broker_state, m.new_isr_with_epochs, v)
    else:
        if m.new_isr_with_epochs:
            absent(m, "new_isr_with_epochs", v)
    w += _bi.pack(m.leader_recovery_state, m.partition_epoch)
    w.tags()


def _read_request_topic_data(r: Reader, v: int) -> RequestTopicData:
    m = RequestTopicData.__new__(RequestTopicData)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_request_partition_data, v, 15)
    r.skip_tags()
    return m


def _write_request_topic_data(w: Writer, m: RequestTopicData, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_request_partition_data, m.partitions, v)
    w.tags()


def _read_broker_state(r: Reader, v: int) -> BrokerState:
    m = BrokerState.__new__(BrokerState)
    m.broker_id, m.broker_epoch = r.fixed(_iq)
    r.skip_tags()
    return m


def _write_broker_state(w: Writer, m: BrokerState, v: int) -> None:
    w += _iq.pack(m.broker_id, m.broker_epoch)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.broker_id, m.broker_epoch = r.fixed(_iq)
    m.topics = r.array(_read_request_topic_data, v, 18)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w += _iq.pack(m.broker_id, m.broker_epoch)
    w.array(_write_request_topic_data, m.topics, v)
    w.tags()


class ResponsePartitionData(Message):
    __slots__ = (
        "partition_index",
        "error_code",
        "leader_id",
        "leader_epoch",
        "isr",
        "leader_recovery_state",
        "partition_epoch",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        leader_id: int = 0,
        leader_epoch: int = 0,
        isr: list[int] | tuple[int, ...] = (),
        leader_recovery_state: int = 0,
        partition_epoch: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.isr: list[int] = list(isr) if isinstance(isr, tuple) else isr
        self.leader_recovery_state = leader_recovery_state
        self.partition_epoch = partition_epoch


class ResponseTopicData(Message):
    __slots__ = ("topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: list[ResponsePartitionData] | tuple[ResponsePartitionData, ...] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[ResponsePartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "topics")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        topics: list[ResponseTopicData] | tuple[ResponseTopicData, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.topics: list[ResponseTopicData] = list(topics) if isinstance(topics, tuple) else topics


def _read_response_partition_data(r: Reader, v: int) -> ResponsePartitionData:
    m = ResponsePartitionData.__new__(ResponsePartitionData)
    m.partition_index, m.error_code, m.leader_id, m.leader_epoch = r.fixed(_ihii)
    m.isr = r.integers("i", 4)
    m.leader_recovery_state, m.partition_epoch = r.fixed(_bi)
    r.skip_tags()
    return m


def _write_response_partition_data(w: Writer, m: ResponsePartitionData, v: int) -> None:
    w += _ihii.pack(m.partition_index, m.error_code, m.leader_id, m.leader_epoch)
    w.integers("i", m.isr)
    w += _bi.pack(m.leader_recovery_state, m.partition_epoch)
    w.tags()


def _read_response_topic_data(r: Reader, v: int) -> ResponseTopicData:
    m = ResponseTopicData.__new__(ResponseTopicData)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_response_partition_data, v, 21)
    r.skip_tags()
    return m


def _write_response_topic_data(w: Writer, m: ResponseTopicData, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_response_partition_data, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.topics = r.array(_read_response_topic_data, v, 18)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.array(_write_response_topic_data, m.topics, v)
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
