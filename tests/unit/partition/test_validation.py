"""Validation of produced batches: errors, messages, and changes to accepted batches."""

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.partition.rig import NOW_MS, Rig, batch, topic, values

from penstock.model.batch import CONTROL_FLAG, HEADER, LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    MessageTooLarge,
    RecordListTooLarge,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnsupportedCompressionType,
)
from penstock.model.ids import TopicPartition
from penstock.partition.results import Appended
from penstock.wire import compression
from penstock.wire.records import Record, build_batch, crc_of, parse_batch_header

CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]
HOUR_MS = 3_600_000


def changed(data: bytearray, **fields: int) -> bytearray:
    """A batch with other header fields and the CRC for them."""
    out = bytearray(data)
    header = parse_batch_header(data)._replace(**fields)
    HEADER.pack_into(out, 0, *header)
    struct.pack_into(">I", out, 17, crc_of(out, 0, len(out)))
    return out


OPENED = {"compressed.check": "records"}
"""Every record of a compressed batch is checked."""


def refused(
    data: bytes | bytearray, error: type[BrokerError], configs: dict[str, str] | None = None, **kw: Any
) -> BrokerError:
    """Append to a new topic, and check that the batch is refused and nothing is written."""
    rig = Rig(topic(configs=configs))
    replica = rig.replica()
    with pytest.raises(error) as caught:
        rig.append(replica, data, **kw)
    assert type(caught.value) is error
    assert replica.offsets.log_end == 0
    assert replica.log.size_bytes == 0
    return caught.value


def stored(data: bytearray, configs: dict[str, str] | None = None) -> tuple[Appended, BatchHeader, list[bytes | None]]:
    """Append to a new topic; returns the result, and the header and values that a reader finds."""
    rig = Rig(topic(configs=configs))
    replica = rig.replica()
    appended = rig.append(replica, data)
    records = replica.read(0, 1 << 30, at_least_one=True).records
    assert not isinstance(records, bytes)
    read = records.contents()
    assert crc_of(read, 0, len(read)) == parse_batch_header(read).crc
    return appended, parse_batch_header(read), values(replica)


def test_a_wrong_checksum_is_corrupt() -> None:
    data = batch(b"a")
    data[-1] ^= 1
    error = refused(data, CorruptMessage)
    assert error.record_errors is None
    assert error.log_start == -1


def test_nothing_and_less_than_a_batch_are_invalid() -> None:
    whole = batch(b"a" * 100)
    for cut in (0, 5, 11, 16, 17, 40, 61, len(whole) - 1):
        refused(whole[:cut], InvalidRecord)
    rig = Rig(topic())
    with pytest.raises(InvalidRecord):
        rig.replica().append(None, NOW_MS)


def test_a_length_below_any_message_is_corrupt() -> None:
    data = batch(b"a")
    struct.pack_into(">i", data, 8, 13)
    error = refused(data, CorruptMessage)
    assert str(error) == "Record size 13 is less than the minimum record overhead (14)"
    assert error.record_errors == []


def test_a_length_shorter_than_its_header_is_corrupt() -> None:
    data = batch(b"a")
    struct.pack_into(">i", data, 8, 30)
    error = refused(data[:42], CorruptMessage)
    assert str(error) == "Record is corrupt (a batch of 42 bytes) in topic partition orders-0."


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_invalid(magic: int) -> None:
    data = batch(b"a")
    data[16] = magic
    error = refused(data, InvalidRecord)
    assert (
        str(error) == "Produce requests with version 13 are only allowed to contain record batches with magic version 2"
    )


@pytest.mark.parametrize(("magic", "shown"), [(3, "3"), (255, "-1"), (128, "-128")])
def test_an_unknown_magic_is_corrupt(magic: int, shown: str) -> None:
    data = batch(b"a")
    data[16] = magic
    assert str(refused(data, CorruptMessage)) == f"Invalid magic found in record: {shown}"


def test_two_batches_are_invalid_and_a_torn_second_one_is_cut_off() -> None:
    refused(batch(b"a") + batch(b"b"), InvalidRecord)

    for tail in (b"x", bytes(11), (batch(b"b") + batch(b"c"))[:40]):
        _, header, found = stored(batch(b"a") + tail)
        assert found == [b"a"]
        assert header.record_count == 1


def test_a_base_offset_other_than_zero_is_invalid() -> None:
    data = batch(b"a")
    struct.pack_into(">q", data, 0, 77)
    error = refused(data, InvalidRecord)
    assert error.log_start == 0, "the log refused it"


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 3, "last_offset_delta": 2},
        {"record_count": 1, "last_offset_delta": 0},
        {"last_offset_delta": 5},
        {"record_count": -1},
        {"record_count": 0, "last_offset_delta": 0},
        {"last_offset_delta": -1},
        {"attributes": CONTROL_FLAG},
        {"producer_id": 4, "base_sequence": -1},
        {"producer_id": 4, "base_sequence": -5},
    ],
)
@pytest.mark.parametrize("codec", [compression.NONE, compression.LZ4])
def test_headers_that_contradict_their_records_or_that_only_brokers_write_are_invalid(
    codec: int, fields: dict[str, int]
) -> None:
    data = batch(b"a", b"b", codec=codec)
    if "attributes" in fields:
        fields = {"attributes": fields["attributes"] | codec}
    error = refused(changed(data, **fields), InvalidRecord, OPENED)
    assert error.record_errors is None


def test_malformed_records_are_invalid() -> None:
    data = batch(b"value")
    data[61] += 2
    struct.pack_into(">I", data, 17, crc_of(data, 0, len(data)))
    error = refused(data, InvalidRecord)
    assert "a record of 13 bytes at 62, 12 remain" in str(error)


def test_offsets_inside_a_batch_are_consecutive() -> None:
    data = build_batch([Record(0, NOW_MS, b"k", b"a"), Record(2, NOW_MS, b"k", b"b")])
    error = refused(changed(data, last_offset_delta=1), InvalidRecord)
    assert str(error) == "Record offsets in the batch are not consecutive in topic partition orders-0"


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_as_it_was_sent(codec: int) -> None:
    data = batch(b"a" * 50, b"b" * 50, codec=codec)
    sent = bytes(data[21:])
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, data)

    records = replica.read(0, 1 << 20, at_least_one=True).records
    assert not isinstance(records, bytes)
    assert records.contents()[21:] == sent
    assert values(replica) == [b"a" * 50, b"b" * 50]


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_cannot_be_decompressed_are_refused(codec: int) -> None:
    async def run() -> None:
        data = batch(b"a", codec=codec)
        header = parse_batch_header(data)
        garbage = bytearray(data[:61]) + b"this is not compressed"
        rig = Rig(topic(configs=OPENED))
        replica = rig.replica()
        work = replica.append(memoryview(changed(garbage, length=len(garbage) - 12)), NOW_MS)
        assert not isinstance(work, Appended), "validated off the loop"
        with pytest.raises(UnknownServerError):
            await work
        assert replica.offsets.log_end == 0
        assert header.codec == codec

    asyncio.run(run())


def test_the_records_of_a_compressed_batch_are_not_checked_by_default() -> None:
    data = batch(b"a", codec=compression.LZ4)
    garbage = bytearray(data[:61]) + b"this is not compressed"
    rig = Rig(topic())
    replica = rig.replica()

    appended = rig.append(replica, changed(garbage, length=len(garbage) - 12))

    assert (appended.base_offset, replica.offsets.log_end) == (0, 1)
    refused(changed(data, record_count=7), InvalidRecord)


def test_a_codec_that_does_not_exist_is_refused_as_kafka_does() -> None:
    assert refused(changed(batch(b"a"), attributes=5), UnknownServerError).code == -1


def test_zstd_is_refused_from_producers_older_than_it() -> None:
    assert refused(batch(b"a", codec=compression.ZSTD), UnsupportedCompressionType, version=6).code == 76


def test_a_decompression_bomb_is_opened_off_the_loop_and_within_bounds() -> None:
    async def run() -> None:
        data = batch(bytes(3_000_000), codec=compression.ZSTD)
        assert len(data) < 10_000
        rig = Rig(topic(configs=OPENED))
        replica = rig.replica()
        work = replica.append(memoryview(data), NOW_MS)
        assert not isinstance(work, Appended)
        appended = await work
        assert appended.base_offset == 0
        assert [len(value or b"") for value in values(replica)] == [3_000_000]

    asyncio.run(run())


def test_too_large_for_the_topic_or_its_segments() -> None:
    data = batch(b"a" * 2000)
    assert refused(data, MessageTooLarge, {"max.message.bytes": str(len(data) - 1)}).code == 10
    assert stored(data, {"max.message.bytes": str(len(data))})[2] == [b"a" * 2000]
    assert refused(batch(b"a" * 2000), RecordListTooLarge, {"internal.segment.bytes": "1500"}).code == 18


def test_timestamps_out_of_range_are_refused_record_by_record() -> None:
    records = [Record(at, NOW_MS + (2 * HOUR_MS if at == 1 else 0), b"k", b"v") for at in range(3)]
    error = refused(build_batch(records), InvalidTimestamp)
    low, high = NOW_MS - (2**63 - 1), NOW_MS + HOUR_MS
    assert error.record_errors == [
        (
            1,
            f"Timestamp {NOW_MS + 2 * HOUR_MS} of message with offset 1 is out of range. "
            f"The timestamp should be within [{low}, {high}]",
        )
    ]
    assert str(error) == "One or more records have been rejected due to invalid timestamp"
    refused(batch(b"a", at_ms=NOW_MS - 5000), InvalidTimestamp, {"message.timestamp.before.max.ms": "4000"})
    refused(
        batch(b"a", at_ms=NOW_MS - 5000, codec=compression.LZ4),
        InvalidTimestamp,
        {"message.timestamp.before.max.ms": "4000"},
    )


def test_a_record_without_a_timestamp_is_in_any_range() -> None:
    _, header, found = stored(batch(b"a", at_ms=-1), {"message.timestamp.before.max.ms": "4000"})
    assert found == [b"a"]
    assert header.max_timestamp == -1


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_a_wrong_max_timestamp_is_corrected(codec: int) -> None:
    data = changed(batch(b"a", codec=codec), max_timestamp=NOW_MS - 99)
    _, header, found = stored(data)
    assert header.max_timestamp == NOW_MS
    assert found == [b"a"]


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_a_topic_with_log_append_time_sets_the_timestamps(codec: int) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    appended, header, found = stored(batch(b"a", at_ms=5, codec=codec), configs)
    assert appended.log_append_time_ms == NOW_MS
    assert header.is_log_append_time
    assert header.max_timestamp == NOW_MS
    assert found == [b"a"]


def test_a_client_cannot_set_log_append_time() -> None:
    claimed = changed(batch(b"a"), attributes=LOG_APPEND_TIME_FLAG)
    appended, header, _ = stored(bytearray(claimed))
    assert not header.is_log_append_time
    assert appended.log_append_time_ms == -1
    error = refused(claimed, InvalidTimestamp, {"message.timestamp.type": "LogAppendTime"})
    assert error.record_errors is not None
    assert "Producer should not set timestamp type to LogAppendTime" in error.record_errors[0][1]


@pytest.mark.parametrize("codec", [compression.NONE, compression.SNAPPY])
def test_a_compacted_topic_refuses_records_without_keys_and_lists_them(codec: int) -> None:
    configs = {"cleanup.policy": "compact"}
    records = [Record(at, NOW_MS, None if at in (1, 3) else b"k", b"v") for at in range(5)]
    error = refused(build_batch(records, compression=codec), InvalidRecord, configs)
    message = "Compacted topic cannot accept message without key in topic partition orders-0"
    assert error.record_errors == [(1, message), (3, message)]
    assert str(error) == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{message}'), "
        f"RecordError(batchIndex=3, message='{message}')]"
    )
    _, _, found = stored(batch(b"a", b"b", codec=codec), configs)
    assert found == [b"a", b"b"]


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", [compression.NONE, *CODECS])
def test_a_topic_with_a_codec_of_its_own_stores_that(source: int, target: str) -> None:
    data = batch(b"a" * 500, b"b" * 500, codec=source, producer_id=9, producer_epoch=2, base_sequence=7)
    _, header, found = stored(data, {"compression.type": target})
    assert compression.CODEC_NAMES[header.codec] == target.replace("uncompressed", "none")
    assert found == [b"a" * 500, b"b" * 500]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 7)


def test_a_large_batch_is_compressed_off_the_loop_and_its_buffer_is_released() -> None:
    async def run() -> None:
        rig = Rig(topic(configs={"compression.type": "lz4"}))
        replica = rig.replica()
        data = batch(*(b"%d" % at * 200 for at in range(500)))
        work = replica.append(memoryview(data), NOW_MS)
        assert not isinstance(work, Appended)
        data[61:] = bytes(len(data) - 61)
        appended = await work
        assert (appended.base_offset, appended.end) == (0, 500)
        assert values(replica) == [b"%d" % at * 200 for at in range(500)]

    asyncio.run(run())


def test_a_topic_deleted_while_a_batch_is_compressed_refuses_it() -> None:
    async def run() -> None:
        was = topic(configs={"compression.type": "lz4"})
        rig = Rig(was)
        rig.threads.eager = False
        replica = rig.replica()
        work = replica.append(memoryview(batch(b"a" * 100_000)), NOW_MS)
        assert not isinstance(work, Appended)
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        rig.change(was, None)
        rig.threads.work()
        with pytest.raises(BrokerError) as caught:
            await task
        assert caught.value.name == "UNKNOWN_TOPIC_OR_PARTITION"

    asyncio.run(run())


def test_a_batch_in_a_read_only_buffer_is_copied() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, bytes(batch(b"a")))
    rig.append(replica, bytes(batch(b"b", codec=compression.LZ4)))
    assert values(replica) == [b"a", b"b"]


def test_transactional_batches_need_a_transaction() -> None:
    data = changed(batch(b"a", producer_id=3), attributes=TRANSACTIONAL_FLAG)
    assert refused(data, TransactionalIdAuthorizationFailed).code == 53

    def refuse(tp: TopicPartition, producer_id: int, epoch: int) -> bool:
        raise InvalidTxnState

    assert refused(data, InvalidTxnState, verify_txn=refuse).code == 48


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damaged_batch_is_stored(data: st.DataObject) -> None:
    """A batch with one changed byte is refused, unless the byte is in the leader epoch, which the broker sets."""
    good = batch(b"some value", b"another", producer_id=5)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    rig = Rig(topic())
    replica = rig.replica()
    try:
        rig.append(replica, bad)
    except BrokerError:
        assert replica.offsets.log_end == 0
    else:
        assert 12 <= at < 16, "the leader epoch, which the broker overwrites"
        assert values(replica) == [b"some value", b"another"]
