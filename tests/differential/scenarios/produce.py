"""Produce: valid and invalid batches, and the log after them."""

from __future__ import annotations

import time

from differential.batches import (
    CONTROL,
    DELETE_HORIZON,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    T0,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Record,
    batch,
    message_set,
    record_bytes,
    xerial,
)
from differential.requests import fetch_body, fetch_partition, fetch_topic, missing, produce_body, produce_many
from differential.script import Run, Topic, scenarios

HOUR_MS = 3_600_000
THREE = (Record(value=b"one"), Record(value=b"two", timestamp_delta=5), Record(value=b"three", timestamp_delta=9))


def look(run: Run, topic: Topic, label: str = "log", partition: int = 0) -> None:
    """Record what a reader gets."""
    run.ask(
        label,
        fetch_body(fetch_topic(topic, fetch_partition(0, partition=partition))),
        api="fetch",
        version=11,
    )


def refused(run: Run, records: bytes, **configs: str) -> None:
    """Record the response to an invalid batch, and the log, which stays empty."""
    topic = run.topic(**configs)
    run.ask("response", produce_body(topic, records))
    look(run, topic)


def acks_all(run: Run) -> None:
    topic = run.topic()
    run.ask("first", produce_body(topic, Batch(records=THREE).to_bytes()))
    run.ask("second", produce_body(topic, batch(b"four")))
    look(run, topic)


def acks_one(run: Run) -> None:
    run.ask("response", produce_body(run.topic(), batch(b"a", b"b"), acks=1))


def acks_none(run: Run) -> None:
    """There is no response, the connection stays open, and the record is written."""
    topic = run.topic()
    run.tell("good", produce_body(topic, batch(b"a"), acks=0))
    look(run, topic)


def acks_none_with_an_error(run: Run) -> None:
    """An error without a response closes the connection."""
    run.tell("unknown partition", produce_body(run.topic(), batch(b"a"), acks=0, partition=9))


def invalid_acks(run: Run) -> None:
    topic = run.topic()
    run.ask("two", produce_body(topic, batch(b"a"), acks=2))
    run.ask("minus two", produce_body(topic, batch(b"a"), acks=-2))
    look(run, topic)


def keys_values_and_headers(run: Run) -> None:
    topic = run.topic()
    records = (
        Record(key=b"k", value=b"v"),
        Record(key=None, value=None),
        Record(key=b"", value=b""),
        Record(key=b"k", value=None, headers=(("h", b"1"), ("h", None), ("", b""))),
    )
    run.ask("response", produce_body(topic, Batch(records=records).to_bytes()))
    look(run, topic)


def every_codec(run: Run) -> None:
    for name, codec in (("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD)):
        topic = run.topic(name)
        run.ask(name, produce_body(topic, Batch(records=THREE, codec=codec).to_bytes()))
        look(run, topic, f"{name} log")


def snappy_in_java_blocks(run: Run) -> None:
    topic = run.topic()
    plain = b"".join(record_bytes(record, index) for index, record in enumerate(THREE))
    run.ask("response", produce_body(topic, Batch(records=THREE, codec=SNAPPY, payload=xerial(plain)).to_bytes()))
    look(run, topic)


def unknown_codecs(run: Run) -> None:
    for codec in (5, 6, 7):
        run.ask(f"codec {codec}", produce_body(run.topic(f"t{codec}"), Batch(codec=codec).to_bytes()))


def compressed_garbage(run: Run) -> None:
    for name, codec in (("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD)):
        topic = run.topic(name)
        run.ask(name, produce_body(topic, Batch(codec=codec, payload=b"this is not compressed").to_bytes()))
        look(run, topic, f"{name} log")


def wrong_crc(run: Run) -> None:
    refused(run, batch(b"a", crc_xor=1))


def count_too_high(run: Run) -> None:
    refused(run, batch(b"a", b"b", count=3, last_offset_delta=2))


def count_too_low(run: Run) -> None:
    refused(run, batch(b"a", b"b", count=1, last_offset_delta=0))


def count_and_last_offset_differ(run: Run) -> None:
    refused(run, batch(b"a", b"b", last_offset_delta=5))


def count_negative(run: Run) -> None:
    refused(run, batch(b"a", count=-1))


def count_zero(run: Run) -> None:
    refused(run, Batch(records=(), count=0).to_bytes())


def count_zero_with_a_last_offset(run: Run) -> None:
    refused(run, Batch(records=(), count=0, last_offset_delta=0).to_bytes())


def count_wrong_and_compressed(run: Run) -> None:
    refused(run, Batch(records=THREE, codec=GZIP, count=2, last_offset_delta=1).to_bytes())


def offsets_with_a_gap(run: Run) -> None:
    refused(run, Batch(records=(Record(), Record(offset_delta=2)), last_offset_delta=2).to_bytes())


def offsets_out_of_order(run: Run) -> None:
    refused(run, Batch(records=(Record(offset_delta=1), Record(offset_delta=0))).to_bytes())


def base_offset_not_zero(run: Run) -> None:
    """Clients send zero; the broker assigns the offsets."""
    refused(run, batch(b"a", base_offset=77))


def length_too_long(run: Run) -> None:
    refused(run, batch(b"a", length_off_by=4))


def length_too_short(run: Run) -> None:
    refused(run, batch(b"a", length_off_by=-4))


def length_below_a_header(run: Run) -> None:
    refused(run, batch(b"a", length_off_by=-60))


def length_negative(run: Run) -> None:
    refused(run, batch(b"a", length_off_by=-1_000))


def cut_in_the_header(run: Run) -> None:
    refused(run, batch(b"a")[:30])


def cut_in_the_length(run: Run) -> None:
    refused(run, batch(b"a")[:10])


def cut_in_the_records(run: Run) -> None:
    refused(run, batch(b"a")[:-2])


def bytes_after_the_batch(run: Run) -> None:
    refused(run, batch(b"a") + b"xyz")


def two_batches(run: Run) -> None:
    refused(run, batch(b"a", b"b") + batch(b"c"))


def two_compressed_batches(run: Run) -> None:
    refused(run, batch(b"a", codec=GZIP) + batch(b"c", codec=ZSTD))


def second_batch_wrong(run: Run) -> None:
    refused(run, batch(b"a") + batch(b"b", crc_xor=5))


def empty_records(run: Run) -> None:
    topic = run.topic()
    run.ask("empty", produce_body(topic, b""))
    look(run, topic)


def null_records(run: Run) -> None:
    """Kafka never responds to this request, so it is sent once."""
    topic = run.topic()
    run.ask("null", produce_body(topic, None))
    look(run, topic)


def no_topics(run: Run) -> None:
    run.ask("response", produce_many([]))


def no_partitions(run: Run) -> None:
    topic = run.topic()
    body = produce_many([]) | {"topic_data": [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": []}]}
    run.ask("response", body)


def magic_zero(run: Run) -> None:
    refused(run, message_set(0))


def magic_one(run: Run) -> None:
    refused(run, message_set(1))


def magic_three(run: Run) -> None:
    refused(run, batch(b"a", magic=3))


def magic_negative(run: Run) -> None:
    refused(run, batch(b"a", magic=-1))


def control_batch_from_a_client(run: Run) -> None:
    records = (Record(key=b"\x00\x00\x00\x01", value=b"\x00\x00\x00\x00\x00\x00"),)
    refused(run, Batch(records=records, attributes=CONTROL | TRANSACTIONAL, producer_id=5, producer_epoch=0).to_bytes())


def transactional_batch_without_transaction(run: Run) -> None:
    refused(run, batch(b"a", attributes=TRANSACTIONAL))


def unused_attribute_bits(run: Run) -> None:
    refused(run, batch(b"a", attributes=0x0100))


def attributes_reserved_for_brokers(run: Run) -> None:
    for name, attributes in (("delete horizon", DELETE_HORIZON), ("bit 7", 0x80), ("bit 15", -0x8000)):
        topic = run.topic(name.replace(" ", "-"))
        run.ask(name, produce_body(topic, batch(b"a", attributes=attributes)))
        look(run, topic, f"{name} log")


def log_append_time_claimed_by_the_client(run: Run) -> None:
    refused(run, batch(b"a", attributes=LOG_APPEND_TIME))


def record_attributes_not_zero(run: Run) -> None:
    good = bytearray(record_bytes(Record(value=b"a"), 0))
    good[1] = 0x55
    refused(run, Batch(payload=bytes(good)).to_bytes())


def record_longer_than_its_batch(run: Run) -> None:
    good = bytearray(record_bytes(Record(value=b"a"), 0))
    good[0] = 0x7E
    refused(run, Batch(payload=bytes(good)).to_bytes())


def record_value_longer_than_its_record(run: Run) -> None:
    good = bytearray(record_bytes(Record(value=b"a"), 0))
    good[5] = 0x7E
    refused(run, Batch(payload=bytes(good)).to_bytes())


def bytes_after_the_records(run: Run) -> None:
    refused(run, Batch(payload=record_bytes(Record(value=b"a"), 0) + b"junk").to_bytes())


def too_large_for_the_topic(run: Run) -> None:
    refused(run, batch(b"x" * 2_000), max_message_bytes="1000")


def as_large_as_the_topic_allows(run: Run) -> None:
    whole = batch(b"x" * 900)
    topic = run.topic(max_message_bytes=str(len(whole)))
    run.ask("equal", produce_body(topic, whole))
    run.ask("one more", produce_body(topic, batch(b"x" * 901)))


def too_large_for_the_default(run: Run) -> None:
    topic = run.topic()
    run.ask("response", produce_body(topic, batch(b"x" * 1_048_600)))


def timestamp_in_the_future(run: Run) -> None:
    soon = int(time.time() * 1_000) + 30 * 60_000
    topic = run.topic()
    run.ask("half an hour", produce_body(topic, batch(b"a", base_timestamp=soon)))
    run.ask("two hours", produce_body(topic, batch(b"a", base_timestamp=soon + 2 * HOUR_MS)))


def timestamp_in_the_future_of_one_record(run: Run) -> None:
    soon = int(time.time() * 1_000)
    records = (Record(value=b"a"), Record(value=b"b", timestamp_delta=3 * HOUR_MS), Record(value=b"c"))
    topic = run.topic()
    run.ask("response", produce_body(topic, Batch(records=records, base_timestamp=soon).to_bytes()))
    look(run, topic)


def timestamp_in_the_past(run: Run) -> None:
    topic = run.topic(message_timestamp_before_max_ms="60000")
    run.ask("too old", produce_body(topic, batch(b"a", base_timestamp=T0)))
    run.ask("new", produce_body(topic, batch(b"a", base_timestamp=int(time.time() * 1_000))))


def timestamp_missing(run: Run) -> None:
    topic = run.topic()
    run.ask("minus one", produce_body(topic, batch(b"a", base_timestamp=-1)))
    run.ask("minus five", produce_body(topic, batch(b"a", base_timestamp=-5)))
    look(run, topic)


def max_timestamp_of_the_header_wrong(run: Run) -> None:
    topic = run.topic()
    run.ask("response", produce_body(topic, Batch(records=THREE, max_timestamp=T0 + 1_000).to_bytes()))
    look(run, topic)


def topic_with_log_append_time(run: Run) -> None:
    topic = run.topic(message_timestamp_type="LogAppendTime")
    run.ask("plain", produce_body(topic, Batch(records=THREE).to_bytes()))
    run.ask("compressed", produce_body(topic, Batch(records=THREE, codec=LZ4).to_bytes()))
    look(run, topic)


def topic_with_its_own_codec(run: Run) -> None:
    """The topic's codec takes precedence over the producer's; only the records are compared."""
    topic = run.topic(compression_type="gzip")
    run.ask("plain", produce_body(topic, Batch(records=THREE).to_bytes()))
    run.ask("lz4", produce_body(topic, Batch(records=THREE, codec=LZ4).to_bytes()))
    run.ask("gzip", produce_body(topic, Batch(records=THREE, codec=GZIP).to_bytes()))
    look(run, topic)
    for found in run.responses["log"]["responses"][0]["partitions"][0]["records"]:
        found |= {"length": "<of the codec>", "crc": "<of the codec>"}


def topic_uncompressed(run: Run) -> None:
    topic = run.topic(compression_type="uncompressed")
    run.ask("lz4", produce_body(topic, Batch(records=THREE, codec=LZ4).to_bytes()))
    look(run, topic)


def compacted_topic_without_key(run: Run) -> None:
    topic = run.topic(cleanup_policy="compact")
    run.ask("no key", produce_body(topic, batch(b"a")))
    mixed = (Record(key=b"k"), Record(), Record(key=b""), Record())
    run.ask("some keys", produce_body(topic, Batch(records=mixed).to_bytes()))
    run.ask("some keys, compressed", produce_body(topic, Batch(records=mixed, codec=ZSTD).to_bytes()))
    run.ask("all keys", produce_body(topic, Batch(records=(Record(key=b"k"),)).to_bytes()))
    look(run, topic)


def partition_unknown(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("above", produce_body(topic, batch(b"a"), partition=2))
    run.ask("negative", produce_body(topic, batch(b"a"), partition=-1))


def topic_unknown(run: Run) -> None:
    run.ask("response", produce_body(missing(run), batch(b"a")))


def topic_by_null_id(run: Run) -> None:
    run.ask("response", produce_body(Topic(name="", topic_id="00000000-0000-0000-0000-000000000000"), batch(b"a")))


def topic_deleted_and_created_again(run: Run) -> None:
    old = run.topic()
    run.do("delete_topics", 5, {"topic_names": [old.name], "timeout": 10_000})
    run.await_gone(old.name)
    run.tokens.add_topic_id(old.topic_id, "<id of the old>")
    new = run.topic()
    run.tokens.add_topic_id(new.topic_id, "<id of the new>")
    run.ask("old", produce_body(old, batch(b"a")))
    run.ask("new", produce_body(new, batch(b"a")))


def several_topics_and_partitions(run: Run) -> None:
    a, b = run.topic("a", partitions=2), run.topic("b")
    run.ask(
        "one bad among good",
        produce_many([(a, 0, batch(b"0")), (a, 1, batch(b"1", crc_xor=1)), (a, 7, batch(b"7")), (b, 0, batch(b"b"))]),
    )
    look(run, a, "a 0")
    look(run, a, "a 1", partition=1)
    look(run, b, "b")


def the_same_partition_twice(run: Run) -> None:
    topic = run.topic()
    run.ask("response", produce_many([(topic, 0, batch(b"first")), (topic, 0, batch(b"second"))]))
    look(run, topic)


def fewer_in_sync_than_required(run: Run) -> None:
    topic = run.topic(min_insync_replicas="2")
    run.ask("acks all", produce_body(topic, batch(b"a")))
    run.ask("acks one", produce_body(topic, batch(b"a"), acks=1))
    look(run, topic)


def bad_transactional_id(run: Run) -> None:
    topic = run.topic()
    run.ask("not known", produce_body(topic, batch(b"a")) | {"transactional_id": "nobody"})


SCENARIOS = (
    *scenarios(
        "produce",
        "produce",
        (
            acks_all,
            acks_one,
            acks_none,
            acks_none_with_an_error,
            invalid_acks,
            keys_values_and_headers,
            every_codec,
            snappy_in_java_blocks,
            unknown_codecs,
            compressed_garbage,
            wrong_crc,
            count_too_high,
            count_too_low,
            count_and_last_offset_differ,
            count_negative,
            count_zero,
            count_zero_with_a_last_offset,
            count_wrong_and_compressed,
            offsets_with_a_gap,
            offsets_out_of_order,
            base_offset_not_zero,
            length_too_long,
            length_too_short,
            length_below_a_header,
            length_negative,
            cut_in_the_header,
            cut_in_the_length,
            cut_in_the_records,
            bytes_after_the_batch,
            two_batches,
            two_compressed_batches,
            second_batch_wrong,
            empty_records,
            no_topics,
            no_partitions,
            magic_zero,
            magic_one,
            magic_three,
            magic_negative,
            control_batch_from_a_client,
            transactional_batch_without_transaction,
            unused_attribute_bits,
            attributes_reserved_for_brokers,
            log_append_time_claimed_by_the_client,
            record_attributes_not_zero,
            record_longer_than_its_batch,
            record_value_longer_than_its_record,
            bytes_after_the_records,
            too_large_for_the_topic,
            as_large_as_the_topic_allows,
            too_large_for_the_default,
            timestamp_in_the_future,
            timestamp_in_the_future_of_one_record,
            timestamp_in_the_past,
            timestamp_missing,
            max_timestamp_of_the_header_wrong,
            topic_with_log_append_time,
            topic_with_its_own_codec,
            topic_uncompressed,
            compacted_topic_without_key,
            partition_unknown,
            topic_unknown,
            topic_by_null_id,
            topic_deleted_and_created_again,
            several_topics_and_partitions,
            the_same_partition_twice,
            fewer_in_sync_than_required,
            bad_transactional_id,
        ),
    ),
    *scenarios("produce", "produce", (null_records,), versions=range(9, 10)),
)
