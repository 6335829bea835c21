"""WriteTxnMarkers (API key 27), versions 1 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 27
NAME = "WriteTxnMarkers"
VERSION_MIN = 1
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 1

_ih = Struct(">ih")
_qht = Struct(">qh?")


class WritableTxnMarkerTopic(Message):
    __slots__ = ("name", "partition_indexes")

    def __init__(self, *, name: str = "", partition_indexes: list[int] | tuple[int, ...] = ()) -> None:
        self.name = name
        self.partition_indexes: list[int] = (
            list(partition_indexes) if isinstance(partition_indexes, tuple) else partition_indexes
        )


class WritableTxnMarker(Message):
    __slots__ = (
        "producer_id",
        "producer_epoch",
        "transaction_result",
        "topics",
        "coordinator_epoch",
        "transaction_version",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        producer_epoch: int = 0,
        transaction_result: bool = False,
        topics: list[WritableTxnMarkerTopic] | tuple[WritableTxnMarkerTopic, ...] = (),
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transaction_result = transaction_result
        self.topics: list[WritableTxnMarkerTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version


class Request(Message):
    __slots__ = ("markers",)

    def __init__(self, *, markers: list[WritableTxnMarker] | tuple[WritableTxnMarker, ...] = ()) -> None:
        self.markers: list[WritableTxnMarker] = list(markers) if isinstance(markers, tuple) else markers


def _read_writable_txn_marker_topic(r: Reader, v: int) -> WritableTxnMarkerTopic:
    m = WritableTxnMarkerTopic.__new__(WritableTxnMarkerTopic)
    m.name = r.string()
    m.partition_indexes = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_writable_txn_marker_topic(w: Writer, m: WritableTxnMarkerTopic, v: int) -> None:
    w.string(m.name)
    w.integers("i", m.partition_indexes)
    w.tags()


def _read_writable_txn_marker(r: Reader, v: int) -> WritableTxnMarker:
    m = WritableTxnMarker.__new__(WritableTxnMarker)
    m.producer_id, m.producer_epoch, m.transaction_result = r.fixed(_qht)
    m.topics = r.array(_read_writable_txn_marker_topic, v, 3)
    m.coordinator_epoch = r.int32()
    if v >= 2:
        m.transaction_version = r.int8()
    else:
        m.transaction_version = 0
    r.skip_tags()
    return m


def _write_writable_txn_marker(w: Writer, m: WritableTxnMarker, v: int) -> None:
    w += _qht.pack(m.producer_id, m.producer_epoch, m.transaction_result)
    w.array(_write_writable_txn_marker_topic, m.topics, v)
    w.int32(m.coordinator_epoch)
    if v >= 2:
        w.int8(m.transaction_version)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.markers = r.array(_read_writable_txn_marker, v, 17)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_writable_txn_marker, m.markers, v)
    w.tags()


class WritableTxnMarkerPartitionResult(Message):
    __slots__ = ("partition_index", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class WritableTxnMarkerTopicResult(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[WritableTxnMarkerPartitionResult] | tuple[WritableTxnMarkerPartitionResult, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[WritableTxnMarkerPartitionResult] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class WritableTxnMarkerResult(Message):
    __slots__ = ("producer_id", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        producer_id: int = 0,
        topics: list[WritableTxnMarkerTopicResult] | tuple[WritableTxnMarkerTopicResult, ...] = (),
    ) -> None:
        self.producer_id = producer_id
        self.topics: list[WritableTxnMarkerTopicResult] = list(topics) if isinstance(topics, tuple) else topics


class Response(Message):
    __slots__ = ("markers",)
    ERROR_LISTS = ("markers",)

    def __init__(self, *, markers: list[WritableTxnMarkerResult] | tuple[WritableTxnMarkerResult, ...] = ()) -> None:
        self.markers: list[WritableTxnMarkerResult] = list(markers) if isinstance(markers, tuple) else markers


def _read_writable_txn_marker_partition_result(r: Reader, v: int) -> WritableTxnMarkerPartitionResult:
    m = WritableTxnMarkerPartitionResult.__new__(WritableTxnMarkerPartitionResult)
    m.partition_index, m.error_code = r.fixed(_ih)
    r.skip_tags()
    return m


def _write_writable_txn_marker_partition_result(w: Writer, m: WritableTxnMarkerPartitionResult, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.tags()


def _read_writable_txn_marker_topic_result(r: Reader, v: int) -> WritableTxnMarkerTopicResult:
    m = WritableTxnMarkerTopicResult.__new__(WritableTxnMarkerTopicResult)
    m.name = r.string()
    m.partitions = r.array(_read_writable_txn_marker_partition_result, v, 7)
    r.skip_tags()
    return m


def _write_writable_txn_marker_topic_result(w: Writer, m: WritableTxnMarkerTopicResult, v: int) -> None:
    w.string(m.name)
    w.array(_write_writable_txn_marker_partition_result, m.partitions, v)
    w.tags()


def _read_writable_txn_marker_result(r: Reader, v: int) -> WritableTxnMarkerResult:
    m = WritableTxnMarkerResult.__new__(WritableTxnMarkerResult)
    m.producer_id = r.int64()
    m.topics = r.array(_read_writable_txn_marker_topic_result, v, 3)
    r.skip_tags()
    return m


def _write_writable_txn_marker_result(w: Writer, m: WritableTxnMarkerResult, v: int) -> None:
    w.int64(m.producer_id)
    w.array(_write_writable_txn_marker_topic_result, m.topics, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.markers = r.array(_read_writable_txn_marker_result, v, 10)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.array(_write_writable_txn_marker_result, m.markers, v)
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
