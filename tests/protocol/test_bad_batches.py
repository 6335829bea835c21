"""Batches no client of good will sends: the right refusal, nothing written, and the connection goes on."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from penstock.testing.processes import usage
from protocol.batches import GZIP, ZSTD, batch, broken, message_set, now_ms, records_of, with_body
from protocol.raw import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_TOPIC_OR_PARTITION,
    Wire,
)
from protocol.under_test import about_penstock

UNKNOWN_SERVER_ERROR = -1
INVALID_REQUIRED_ACKS = 21
HOUR_MS = 3_600_000
GZIPPED_NOISE = gzip.compress(b"\xff" * 50)
# Where Kafka responds with UNKNOWN_SERVER_ERROR, a broker may be more precise.
UNREADABLE = (UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, INVALID_RECORD)

Refused = tuple[str, Callable[[bytes], bytes], int | tuple[int, ...]]

BAD: list[Refused] = [
    ("a wrong checksum", lambda good: broken(good, crc=1), CORRUPT_MESSAGE),
    ("a flipped last byte", lambda good: good[:-1] + bytes([good[-1] ^ 1]), CORRUPT_MESSAGE),
    ("a flipped timestamp", lambda good: broken(good, base_timestamp=77, crc_kept=True), CORRUPT_MESSAGE),
    ("too high a count", lambda good: broken(good, count=4), INVALID_RECORD),
    ("too low a count", lambda good: broken(good, count=2), INVALID_RECORD),
    ("no records by its count", lambda good: broken(good, count=0), INVALID_RECORD),
    ("a negative count", lambda good: broken(good, count=-1), INVALID_RECORD),
    ("a huge count", lambda good: broken(good, count=2**31 - 1), INVALID_RECORD),
    ("too high a last offset", lambda good: broken(good, last_offset_delta=5), INVALID_RECORD),
    ("too low a last offset", lambda good: broken(good, last_offset_delta=1), INVALID_RECORD),
    ("a negative last offset", lambda good: broken(good, last_offset_delta=-1), INVALID_RECORD),
    ("count and last offset of five", lambda good: broken(good, last_offset_delta=4, count=5), INVALID_RECORD),
    ("a length one too short", lambda good: broken(good, length=len(good) - 13), CORRUPT_MESSAGE),
    ("a length ten too long", lambda good: broken(good, length=len(good) - 2), INVALID_RECORD),
    ("a negative length", lambda good: broken(good, length=-5), CORRUPT_MESSAGE),
    ("a length below a header's", lambda good: broken(good, length=3), CORRUPT_MESSAGE),
    ("a length of zero", lambda good: broken(good, length=0), CORRUPT_MESSAGE),
    ("a length of two gigabytes", lambda good: broken(good, length=2**31 - 1), UNREADABLE),
    ("magic 0 on a new batch", lambda good: broken(good, magic=0, crc_kept=True), INVALID_RECORD),
    ("magic 1 on a new batch", lambda good: broken(good, magic=1, crc_kept=True), INVALID_RECORD),
    ("magic 3", lambda good: broken(good, magic=3, crc_kept=True), CORRUPT_MESSAGE),
    ("magic -1", lambda good: broken(good, magic=-1, crc_kept=True), CORRUPT_MESSAGE),
    ("a message set of format 0", lambda good: message_set(b"old", magic=0), INVALID_RECORD),
    ("a message set of format 1", lambda good: message_set(b"old", magic=1), INVALID_RECORD),
    ("two batches", lambda good: good + good, INVALID_RECORD),
    ("no batch", lambda good: b"", INVALID_RECORD),
    ("half a header", lambda good: good[:40], INVALID_RECORD),
    ("a body cut short", lambda good: good[:-4], INVALID_RECORD),
    ("zeros behind it", lambda good: good + bytes(20), CORRUPT_MESSAGE),
    ("a control record", lambda good: broken(good, attributes=0x20), INVALID_RECORD),
    ("an unknown codec", lambda good: broken(good, attributes=7), UNREADABLE),
    ("noise for records", lambda good: with_body(good, b"\xff" * 30), UNREADABLE),
    ("no records in its body", lambda good: with_body(good, b""), INVALID_RECORD),
    ("bytes behind its records", lambda good: with_body(good, good[61:] + bytes(2)), INVALID_RECORD),
    ("an offset of its own", lambda good: broken(good, base_offset=5), INVALID_RECORD),
    ("a producer without a sequence", lambda good: broken(good, producer_id=5), INVALID_RECORD),
    ("a timestamp in two hours", lambda good: in_two_hours(), INVALID_TIMESTAMP),
]  # fmt: skip

BAD_INSIDE: list[Refused] = [
    ("compressed noise", lambda good: with_body(broken(good, attributes=GZIP), b"not gzip"), UNREADABLE),
    ("noise, compressed", lambda good: with_body(broken(good, attributes=GZIP), GZIPPED_NOISE), UNREADABLE),
    ("fewer records inside than outside", lambda good: fewer_inside(), INVALID_RECORD),
]


def in_two_hours() -> bytes:
    return batch(values=[b"x"], timestamp_ms=now_ms() + 2 * HOUR_MS)


def fewer_inside() -> bytes:
    return broken(batch(values=[b"x"] * 10, compression=GZIP), count=20, last_offset_delta=19)


@pytest.mark.parametrize(("change", "codes"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_batch_is_refused_and_nothing_is_written(
    wire: Wire, topic: str, change: Callable[[bytes], bytes], codes: int | tuple[int, ...]
) -> None:
    assert_refused(wire, topic, change, codes)


@pytest.mark.parametrize(("change", "codes"), [case[1:] for case in BAD_INSIDE], ids=[case[0] for case in BAD_INSIDE])
def test_invalid_compressed_records_are_rejected_if_records_are_checked(
    wire: Wire, make_topic: Any, change: Callable[[bytes], bytes], codes: int | tuple[int, ...]
) -> None:
    """Apache Kafka looks at them in every topic; here a topic asks for it."""
    assert_refused(wire, make_topic(**({"compressed_check": "records"} if about_penstock() else {})), change, codes)


def assert_refused(wire: Wire, topic: str, change: Callable[[bytes], bytes], codes: int | tuple[int, ...]) -> None:
    wire.produce(topic, batch(values=[b"before"]))
    good = batch(values=[b"one", b"two", b"three"])

    refused = wire.produce(topic, change(good))

    assert refused.error_code in (codes if isinstance(codes, tuple) else (codes,))
    assert refused.base_offset == -1
    assert wire.offset(topic) == 1
    assert wire.produce(topic, good).base_offset == 1
    assert [value for _, _, value in records_of(wire.fetch(topic).records)] == [b"before", b"one", b"two", b"three"]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_refuses_a_bad_checksum(wire: Wire, topic: str, version: int) -> None:
    assert wire.produce(topic, broken(batch(values=[b"x"]), crc=1), version=version).error_code == CORRUPT_MESSAGE
    assert wire.offset(topic) == 0


def test_a_batch_over_the_topics_limit_is_refused(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(max_message_bytes="500")

    assert wire.produce(topic, batch(values=[b"x" * 600])).error_code == MESSAGE_TOO_LARGE
    assert wire.offset(topic) == 0
    assert wire.produce(topic, batch(values=[b"x" * 300])).error_code == NONE


def test_max_message_bytes_limits_the_compressed_size(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(max_message_bytes="500")

    assert wire.produce(topic, batch(values=[b"x" * 20_000], compression=GZIP)).error_code == NONE


@pytest.mark.parametrize("compression", [0, GZIP])
def test_a_compacted_topic_refuses_a_batch_with_one_record_without_key(
    wire: Wire, make_topic: Any, compression: int
) -> None:
    topic = make_topic(cleanup_policy="compact")
    records = [(b"k", b"v"), (None, b"v"), (b"k", b"w")]

    refused = wire.produce(topic, batch(records, compression=compression))

    assert refused.error_code == INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert topic in refused.record_errors[0].batch_index_error_message
    assert wire.offset(topic) == 0
    assert wire.produce(topic, batch([(b"k", None)], compression=compression)).error_code == NONE


def test_a_timestamp_out_of_range_names_the_record_and_the_range(wire: Wire, topic: str) -> None:
    stamp = now_ms() + 2 * HOUR_MS

    refused = wire.produce(topic, batch(values=[b"x"], timestamp_ms=stamp))

    assert refused.error_code == INVALID_TIMESTAMP
    assert str(stamp) in refused.record_errors[0].batch_index_error_message


def test_a_topic_can_refuse_old_timestamps(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(message_timestamp_before_max_ms=str(HOUR_MS))

    old = wire.produce(topic, batch(values=[b"x"], timestamp_ms=now_ms() - 2 * HOUR_MS))

    assert old.error_code == INVALID_TIMESTAMP
    assert wire.produce(topic, batch(values=[b"x"])).error_code == NONE


def test_an_unknown_topic_or_partition_is_rejected(wire: Wire, topic: str) -> None:
    good = batch(values=[b"x"])

    assert wire.produce("no-such-topic", good).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, good, partition=7).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, good, partition=-1).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_strange_acks_are_refused(wire: Wire, topic: str, acks: int) -> None:
    assert wire.produce(topic, batch(values=[b"x"]), acks=acks).error_code == INVALID_REQUIRED_ACKS
    assert wire.offset(topic) == 0


def test_a_batch_sent_twice_is_acknowledged_twice_and_written_once(wire: Wire, topic: str) -> None:
    sent = batch(values=[b"a", b"b"], producer=(4242, 0, 0))

    first, second = wire.produce(topic, sent), wire.produce(topic, sent)

    assert (first.error_code, second.error_code) == (NONE, NONE)
    assert first.base_offset == second.base_offset == 0
    assert wire.offset(topic) == 2


def test_a_gap_in_the_sequence_is_refused(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch(values=[b"a"], producer=(4243, 0, 0)))

    refused = wire.produce(topic, batch(values=[b"c"], producer=(4243, 0, 2)))

    assert refused.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.produce(topic, batch(values=[b"b"], producer=(4243, 0, 1))).error_code == NONE
    assert wire.offset(topic) == 2


def test_an_older_epoch_of_a_producer_is_fenced(wire: Wire, topic: str) -> None:
    invalid_producer_epoch = 47
    wire.produce(topic, batch(values=[b"new"], producer=(4244, 3, 0)))

    assert wire.produce(topic, batch(values=[b"old"], producer=(4244, 2, 0))).error_code == invalid_producer_epoch
    assert wire.produce(topic, batch(values=[b"newer"], producer=(4244, 4, 0))).error_code == NONE
    assert wire.offset(topic) == 2


@pytest.mark.penstock_only
@pytest.mark.parametrize("config", [{"cleanup_policy": "compact"}, {"compression_type": "lz4"}], ids=str)
def test_a_batch_that_unpacks_to_nearly_a_gigabyte_is_refused_at_little_cost(
    broker: Any, wire: Wire, make_topic: Any, config: dict[str, str]
) -> None:
    topic = make_topic(**config)
    # A record's length, its fixed fields, a null key, and the length of a value of 900 MB.
    start = bytes.fromhex("9480808407") + bytes.fromhex("00000001") + bytes.fromhex("8080808407")
    body = zstandard.compress(start + bytes((900 << 20) + 1))
    assert len(body) < 100_000

    refused = wire.produce(topic, with_body(broken(batch(values=[b"x"]), attributes=ZSTD), body))

    assert refused.error_code in UNREADABLE
    assert wire.offset(topic) == 0
    assert usage(broker.pid).resident_bytes_peak < 500 << 20


def test_an_error_without_acknowledgement_closes_the_connection(wire: Wire, topic: str) -> None:
    wire.produce(topic, broken(batch(values=[b"x"]), crc=1), acks=0)

    assert wire.closed()


def test_one_bad_partition_leaves_the_others_of_a_request_alone(wire: Wire, make_topic: Any) -> None:
    from kafka.protocol.producer import ProduceRequest

    topic = make_topic(partitions=3)
    good = batch(values=[b"x"])
    topic_class = ProduceRequest.TopicProduceData
    parts = [
        topic_class.PartitionProduceData(index=index, records=data)
        for index, data in enumerate((good, broken(good, crc=1), good))
    ]

    response = wire.ask(
        ProduceRequest(
            version=9,
            transactional_id=None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[topic_class(name=topic, partition_data=parts)],
        )
    )

    codes = {part.index: part.error_code for part in response.responses[0].partition_responses}
    assert codes == {0: NONE, 1: CORRUPT_MESSAGE, 2: NONE}
    assert [wire.offset(topic, partition=index) for index in range(3)] == [1, 0, 1]
