"""AddPartitionsToTxn (API key 24), versions 0 to 5. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 24
NAME = "AddPartitionsToTxn"
VERSION_MIN = 0
VERSION_MAX = 5
FLEXIBLE_FROM: int | None = 3

_ih = Struct(">ih")
_qh = Struct(">qh")
_qht = Struct(">qh?")


class AddPartitionsToTxnTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.name = name
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class AddPartitionsToTxnTransaction(Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "verify_only", "topics")

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        verify_only: bool = False,
        topics: list[AddPartitionsToTxnTopic] | tuple[AddPartitionsToTxnTopic, ...] = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.verify_only = verify_only
        self.topics: list[AddPartitionsToTxnTopic] = list(topics) if isinstance(topics, tuple) else topics


class Request(Message):
    __slots__ = (
        "v3_and_below_transactional_id",
        "v3_and_below_producer_id",
        "v3_and_below_producer_epoch",
        "v3_and_below_topics",
        "transactions",
    )

    def __init__(
        self,
        *,
        v3_and_below_transactional_id: str = "",
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] | tuple[AddPartitionsToTxnTopic, ...] = (),
        transactions: list[AddPartitionsToTxnTransaction] | tuple[AddPartitionsToTxnTransaction, ...] = (),
    ) -> None:
        self.v3_and_below_transactional_id = v3_and_below_transactional_id
        self.v3_and_below_producer_id = v3_and_below_producer_id
        self.v3_and_below_producer_epoch = v3_and_below_producer_epoch
        self.v3_and_below_topics: list[AddPartitionsToTxnTopic] = (
            list(v3_and_below_topics) if isinstance(v3_and_below_topics, tuple) else v3_and_below_topics
        )
        self.transactions: list[AddPartitionsToTxnTransaction] = (
            list(transactions) if isinstance(transactions, tuple) else transactions
        )


def _read_add_partitions_to_txn_topic(r: Reader, v: int) -> AddPartitionsToTxnTopic:
    m = AddPartitionsToTxnTopic.__new__(AddPartitionsToTxnTopic)
    m.name = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_add_partitions_to_txn_topic(w: Writer, m: AddPartitionsToTxnTopic, v: int) -> None:
    w.string(m.name)
    w.integers("i", m.partitions)
    w.tags()


def _read_add_partitions_to_txn_transaction(r: Reader, v: int) -> AddPartitionsToTxnTransaction:
    m = AddPartitionsToTxnTransaction.__new__(AddPartitionsToTxnTransaction)
    m.transactional_id = r.string()
    m.producer_id, m.producer_epoch, m.verify_only = r.fixed(_qht)
    m.topics = r.array(_read_add_partitions_to_txn_topic, v, 3)
    r.skip_tags()
    return m


def _write_add_partitions_to_txn_transaction(w: Writer, m: AddPartitionsToTxnTransaction, v: int) -> None:
    w.string(m.transactional_id)
    w += _qht.pack(m.producer_id, m.producer_epoch, m.verify_only)
    w.array(_write_add_partitions_to_txn_topic, m.topics, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v <= 3:
        m.v3_and_below_transactional_id = r.string()
        m.v3_and_below_producer_id, m.v3_and_below_producer_epoch = r.fixed(_qh)
        m.v3_and_below_topics = r.array(_read_add_partitions_to_txn_topic, v, 3)
    else:
        m.v3_and_below_transactional_id = ""
        m.v3_and_below_producer_id = 0
        m.v3_and_below_producer_epoch = 0
        m.v3_and_below_topics = []
    if v >= 4:
        m.transactions = r.array(_read_add_partitions_to_txn_transaction, v, 14)
    else:
        m.transactions = []
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v <= 3:
        w.string(m.v3_and_below_transactional_id)
        w += _qh.pack(m.v3_and_below_producer_id, m.v3_and_below_producer_epoch)
        w.array(_write_add_partitions_to_txn_topic, m.v3_and_below_topics, v)
    else:
        if m.v3_and_below_transactional_id:
            absent(m, "v3_and_below_transactional_id", v)
        if m.v3_and_below_producer_id != 0:
            absent(m, "v3_and_below_producer_id", v)
        if m.v3_and_below_producer_epoch != 0:
            absent(m, "v3_and_below_producer_epoch", v)
        if m.v3_and_below_topics:
            absent(m, "v3_and_below_topics", v)
    if v >= 4:
        w.array(_write_add_partitions_to_txn_transaction, m.transactions, v)
    else:
        if m.transactions:
            absent(m, "transactions", v)
    w.tags()


class AddPartitionsToTxnPartitionResult(Message):
    __slots__ = ("partition_index", "partition_error_code")
    ERROR_FIELD = "partition_error_code"

    def __init__(self, *, partition_index: int = 0, partition_error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.partition_error_code = partition_error_code


class AddPartitionsToTxnTopicResult(Message):
    __slots__ = ("name", "results_by_partition")
    ERROR_LISTS = ("results_by_partition",)

    def __init__(
        self,
        *,
        name: str = "",
        results_by_partition: list[AddPartitionsToTxnPartitionResult]
        | tuple[AddPartitionsToTxnPartitionResult, ...] = (),
    ) -> None:
        self.name = name
        self.results_by_partition: list[AddPartitionsToTxnPartitionResult] = (
            list(results_by_partition) if isinstance(results_by_partition, tuple) else results_by_partition
        )


class AddPartitionsToTxnResult(Message):
    __slots__ = ("transactional_id", "topic_results")
    ERROR_LISTS = ("topic_results",)

    def __init__(
        self,
        *,
        transactional_id: str = "",
        topic_results: list[AddPartitionsToTxnTopicResult] | tuple[AddPartitionsToTxnTopicResult, ...] = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.topic_results: list[AddPartitionsToTxnTopicResult] = (
            list(topic_results) if isinstance(topic_results, tuple) else topic_results
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "results_by_topic_v3_and_below", "error_code", "results_by_transaction")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("results_by_topic_v3_and_below", "results_by_transaction")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult]
        | tuple[AddPartitionsToTxnTopicResult, ...] = (),
        error_code: int = 0,
        results_by_transaction: list[AddPartitionsToTxnResult] | tuple[AddPartitionsToTxnResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = (
            list(results_by_topic_v3_and_below)
            if isinstance(results_by_topic_v3_and_below, tuple)
            else results_by_topic_v3_and_below
        )
        self.error_code = error_code
        self.results_by_transaction: list[AddPartitionsToTxnResult] = (
            list(results_by_transaction) if isinstance(results_by_transaction, tuple) else results_by_transaction
        )


def _read_add_partitions_to_txn_partition_result(r: Reader, v: int) -> AddPartitionsToTxnPartitionResult:
    m = AddPartitionsToTxnPartitionResult.__new__(AddPartitionsToTxnPartitionResult)
    m.partition_index, m.partition_error_code = r.fixed(_ih)
    r.skip_tags()
    return m


def _write_add_partitions_to_txn_partition_result(w: Writer, m: AddPartitionsToTxnPartitionResult, v: int) -> None:
    w += _ih.pack(m.partition_index, m.partition_error_code)
    w.tags()


def _read_add_partitions_to_txn_topic_result(r: Reader, v: int) -> AddPartitionsToTxnTopicResult:
    m = AddPartitionsToTxnTopicResult.__new__(AddPartitionsToTxnTopicResult)
    m.name = r.string()
    m.results_by_partition = r.array(_read_add_partitions_to_txn_partition_result, v, 6)
    r.skip_tags()
    return m


def _write_add_partitions_to_txn_topic_result(w: Writer, m: AddPartitionsToTxnTopicResult, v: int) -> None:
    w.string(m.name)
    w.array(_write_add_partitions_to_txn_partition_result, m.results_by_partition, v)
    w.tags()


def _read_add_partitions_to_txn_result(r: Reader, v: int) -> AddPartitionsToTxnResult:
    m = AddPartitionsToTxnResult.__new__(AddPartitionsToTxnResult)
    m.transactional_id = r.string()
    m.topic_results = r.array(_read_add_partitions_to_txn_topic_result, v, 3)
    r.skip_tags()
    return m


def _write_add_partitions_to_txn_result(w: Writer, m: AddPartitionsToTxnResult, v: int) -> None:
    w.string(m.transactional_id)
    w.array(_write_add_partitions_to_txn_topic_result, m.topic_results, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    if v <= 3:
        m.results_by_topic_v3_and_below = r.array(_read_add_partitions_to_txn_topic_result, v, 3)
    else:
        m.results_by_topic_v3_and_below = []
    if v >= 4:
        m.error_code = r.int16()
        m.results_by_transaction = r.array(_read_add_partitions_to_txn_result, v, 3)
    else:
        m.error_code = 0
        m.results_by_transaction = []
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    if v <= 3:
        w.array(_write_add_partitions_to_txn_topic_result, m.results_by_topic_v3_and_below, v)
    else:
        if m.results_by_topic_v3_and_below:
            absent(m, "results_by_topic_v3_and_below", v)
    if v >= 4:
        w.int16(m.error_code)
        w.array(_write_add_partitions_to_txn_result, m.results_by_transaction, v)
    else:
        if m.results_by_transaction:
            absent(m, "results_by_transaction", v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 3)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 3)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 3)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 3)
