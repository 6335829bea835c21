"""Codecs of WriteShareGroupState and ReadShareGroupState as brokers send them to share coordinators.

As the generated ``api.write_share_group_state`` and ``api.read_share_group_state``, with a tagged field of ours in a
state batch: the time before which a released record is not handed out. Kafka's brokers skip it, and send none.
"""

from __future__ import annotations

from penstock.wire.api import read_share_group_state as read_api
from penstock.wire.api import write_share_group_state as write_api
from penstock.wire.primitives import Buffer, Reader, Writer, decode, encode
from penstock.wire.share_records import NOT_BEFORE_TAG, write_not_before

BATCH_BYTES_MIN = 20
PARTITION_BYTES_MIN = 22
RESULT_BYTES_MIN = 21
TOPIC_BYTES_MIN = 18


class WriteBatch(write_api.StateBatch):
    """A range of offsets in one state."""

    __slots__ = ("not_before_ms",)

    def __init__(
        self, *, first_offset: int, last_offset: int, delivery_state: int, delivery_count: int, not_before_ms: int = 0
    ) -> None:
        super().__init__(
            first_offset=first_offset,
            last_offset=last_offset,
            delivery_state=delivery_state,
            delivery_count=delivery_count,
        )
        self.not_before_ms = not_before_ms


class ReadBatch(read_api.StateBatch):
    """A range of offsets in one state."""

    __slots__ = ("not_before_ms",)

    def __init__(
        self, *, first_offset: int, last_offset: int, delivery_state: int, delivery_count: int, not_before_ms: int = 0
    ) -> None:
        super().__init__(
            first_offset=first_offset,
            last_offset=last_offset,
            delivery_state=delivery_state,
            delivery_count=delivery_count,
        )
        self.not_before_ms = not_before_ms


def write_batch(out: Writer, batch: WriteBatch | ReadBatch) -> None:
    out.int64(batch.first_offset)
    out.int64(batch.last_offset)
    out.int8(batch.delivery_state)
    out.int16(batch.delivery_count)
    write_not_before(out, batch.not_before_ms)


def read_batch(reader: Reader) -> tuple[int, int, int, int, int]:
    first, last, state, deliveries = reader.int64(), reader.int64(), reader.int8(), reader.int16()
    not_before_ms = 0
    for tag, end in reader.tagged():
        if tag == NOT_BEFORE_TAG:
            not_before_ms = reader.int64()
        else:
            reader.pos = end
    return first, last, state, deliveries, not_before_ms


# WriteShareGroupState


def encode_write_request(request: write_api.Request, version: int) -> bytes:
    return encode(_write_request, request, version, True)


def decode_write_request(data: Buffer, offset: int, version: int) -> write_api.Request:
    return decode(_read_request, data, offset, version, True)


def _write_request(out: Writer, request: write_api.Request, version: int) -> None:
    out.string(request.group_id)
    out.length(len(request.topics))
    for topic in request.topics:
        out.uuid(topic.topic_id)
        out.length(len(topic.partitions))
        for partition in topic.partitions:
            out.int32(partition.partition)
            out.int32(partition.state_epoch)
            out.int32(partition.leader_epoch)
            out.int64(partition.start_offset)
            if version >= 1:
                out.int32(partition.delivery_complete_count)
            out.length(len(partition.state_batches))
            for batch in partition.state_batches:
                assert isinstance(batch, WriteBatch), f"a batch of a broker: {batch}"
                write_batch(out, batch)
            out.tags()
        out.tags()
    out.tags()


def _read_request(reader: Reader, version: int) -> write_api.Request:
    group = reader.string()
    topics = reader.array(_read_topic, version, TOPIC_BYTES_MIN)
    reader.skip_tags()
    return write_api.Request(group_id=group, topics=topics)


def _read_topic(reader: Reader, version: int) -> write_api.WriteStateData:
    topic_id = reader.uuid()
    partitions = reader.array(_read_partition, version, PARTITION_BYTES_MIN)
    reader.skip_tags()
    return write_api.WriteStateData(topic_id=topic_id, partitions=partitions)


def _read_partition(reader: Reader, version: int) -> write_api.PartitionData:
    partition, state_epoch, leader_epoch = reader.int32(), reader.int32(), reader.int32()
    start_offset = reader.int64()
    complete_count = reader.int32() if version >= 1 else -1
    batches: list[write_api.StateBatch] = [
        _made_write_batch(*read_batch(reader)) for _ in range(reader.items(BATCH_BYTES_MIN, False))
    ]
    reader.skip_tags()
    return write_api.PartitionData(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=complete_count,
        state_batches=batches,
    )


def _made_write_batch(first: int, last: int, state: int, deliveries: int, not_before_ms: int) -> WriteBatch:
    return WriteBatch(
        first_offset=first,
        last_offset=last,
        delivery_state=state,
        delivery_count=deliveries,
        not_before_ms=not_before_ms,
    )


# ReadShareGroupState


def encode_read_response(response: read_api.Response, version: int) -> bytes:
    return encode(_write_response, response, version, True)


def decode_read_response(data: Buffer, offset: int, version: int) -> read_api.Response:
    return decode(_read_response, data, offset, version, True)


def _write_response(out: Writer, response: read_api.Response, version: int) -> None:
    out.length(len(response.results))
    for topic in response.results:
        out.uuid(topic.topic_id)
        out.length(len(topic.partitions))
        for result in topic.partitions:
            out.int32(result.partition)
            out.int16(result.error_code)
            out.string_nullable(result.error_message)
            out.int32(result.state_epoch)
            out.int64(result.start_offset)
            out.length(len(result.state_batches))
            for batch in result.state_batches:
                assert isinstance(batch, ReadBatch), f"a batch of a broker: {batch}"
                write_batch(out, batch)
            out.tags()
        out.tags()
    out.tags()


def _read_response(reader: Reader, version: int) -> read_api.Response:
    results = reader.array(_read_result_topic, version, TOPIC_BYTES_MIN)
    reader.skip_tags()
    return read_api.Response(results=results)


def _read_result_topic(reader: Reader, version: int) -> read_api.ReadStateResult:
    topic_id = reader.uuid()
    partitions = reader.array(_read_result, version, RESULT_BYTES_MIN)
    reader.skip_tags()
    return read_api.ReadStateResult(topic_id=topic_id, partitions=partitions)


def _read_result(reader: Reader, version: int) -> read_api.PartitionResult:
    partition, error_code = reader.int32(), reader.int16()
    error_message = reader.string_nullable()
    state_epoch, start_offset = reader.int32(), reader.int64()
    batches: list[read_api.StateBatch] = []
    for _ in range(reader.items(BATCH_BYTES_MIN, False)):
        first, last, state, deliveries, not_before_ms = read_batch(reader)
        batches.append(
            ReadBatch(
                first_offset=first,
                last_offset=last,
                delivery_state=state,
                delivery_count=deliveries,
                not_before_ms=not_before_ms,
            )
        )
    reader.skip_tags()
    return read_api.PartitionResult(
        partition=partition,
        error_code=error_code,
        error_message=error_message,
        state_epoch=state_epoch,
        start_offset=start_offset,
        state_batches=batches,
    )


class WriteStates:
    """WriteShareGroupState as one broker sends it to another."""

    API_KEY = write_api.API_KEY
    NAME = write_api.NAME
    VERSION_MIN = write_api.VERSION_MIN
    VERSION_MAX = write_api.VERSION_MAX
    encode_request = staticmethod(encode_write_request)
    decode_response = staticmethod(write_api.decode_response)


class ReadStates:
    """ReadShareGroupState as one broker sends it to another."""

    API_KEY = read_api.API_KEY
    NAME = read_api.NAME
    VERSION_MIN = read_api.VERSION_MIN
    VERSION_MAX = read_api.VERSION_MAX
    encode_request = staticmethod(read_api.encode_request)
    decode_response = staticmethod(decode_read_response)


WRITE_STATES = WriteStates()
READ_STATES = ReadStates()
