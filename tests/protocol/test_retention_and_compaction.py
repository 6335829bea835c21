"""What a topic's settings take away, as its clients see it: by age, by size, by offset, by key."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from protocol.batches import batch, now_ms, records_of, split
from protocol.raw import EARLIEST, NONE, OFFSET_OUT_OF_RANGE, Wire
from protocol.topics import create_topic, fresh_name, wait_until
from protocol.under_test import external_bootstrap, new_broker

MEGABYTE = 1 << 20
DAY_MS = 86_400_000
TIMEOUT = 60.0
OFTEN = {
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "50",
    "log.segment.delete.delay.ms": "100",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    """One that looks after its logs many times a second."""
    if external_bootstrap() is not None:
        pytest.skip("needs a broker of its own")
    own = new_broker(OFTEN)
    try:
        own.start()
        yield own
    finally:
        own.close()


def fill(wire: Wire, topic: str, megabytes: int, *, timestamp_ms: int | None = None) -> int:
    """Write whole megabytes in batches of a hundred kilobytes; the offset behind the last."""
    for _ in range(megabytes * 10):
        written = wire.produce(topic, batch(values=[random.randbytes(104_000)], timestamp_ms=timestamp_ms))
        assert written.error_code == NONE
    return int(written.base_offset) + 1


def alter(broker: Any, topic: str, **configs: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    [(_, done)] = admin.incremental_alter_configs([resource]).items()
    done.result(TIMEOUT)


def test_old_segments_go_and_the_rest_stays(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(segment_bytes=str(MEGABYTE), retention_ms=str(DAY_MS))
    old_end = fill(wire, topic, 3, timestamp_ms=now_ms() - 2 * DAY_MS)
    end = fill(wire, topic, 2)

    wait_until(lambda: wire.offset(topic, EARLIEST) > 0, what="retention by age")

    wait_until(lambda: old_end - 11 <= wire.offset(topic, EARLIEST) <= old_end, what="all old segments to go")
    assert wire.offset(topic) == end
    gone = wire.fetch(topic, 0)
    assert gone.error_code == OFFSET_OUT_OF_RANGE


def test_a_topic_whose_messages_are_all_old_becomes_empty_and_goes_on(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(retention_ms=str(DAY_MS))
    end = fill(wire, topic, 1, timestamp_ms=now_ms() - 2 * DAY_MS)

    wait_until(lambda: wire.offset(topic, EARLIEST) == end, what="an empty log")

    assert wire.produce(topic, batch(values=[b"next"])).base_offset == end
    assert records_of(wire.fetch(topic, end).records) == [(end, None, b"next")]


def test_a_topic_keeps_about_its_size(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(segment_bytes=str(MEGABYTE), retention_bytes=str(3 * MEGABYTE))

    end = fill(wire, topic, 8)

    wait_until(lambda: wire.offset(topic, EARLIEST) > 0, what="retention by size")
    # Whole segments go, and only those without which the size is still reached.
    wait_until(lambda: 28 <= end - wire.offset(topic, EARLIEST) <= 41, what="about three megabytes left")
    assert wire.offset(topic) == end


def test_retention_changes_while_the_broker_runs(wire: Wire, broker: Any, make_topic: Any) -> None:
    topic = make_topic(segment_bytes=str(MEGABYTE))
    end = fill(wire, topic, 4, timestamp_ms=now_ms() - 5 * DAY_MS)
    assert wire.offset(topic, EARLIEST) == 0

    alter(broker, topic, retention_ms=str(DAY_MS))

    wait_until(lambda: wire.offset(topic, EARLIEST) == end, what="retention by the new setting")


def test_the_limit_of_a_message_changes_while_the_broker_runs(wire: Wire, broker: Any, make_topic: Any) -> None:
    topic = make_topic(max_message_bytes="1000")
    big = batch(values=[b"x" * 2000])
    message_too_large = 10
    assert wire.produce(topic, big).error_code == message_too_large

    alter(broker, topic, max_message_bytes="5000")

    wait_until(lambda: wire.produce(topic, big).error_code == NONE, what="the new limit")


def test_the_kind_of_timestamp_changes_while_the_broker_runs(wire: Wire, broker: Any, topic: str) -> None:
    stamp = 1_700_000_000_000
    assert wire.produce(topic, batch(values=[b"x"], timestamp_ms=stamp)).log_append_time_ms == -1

    alter(broker, topic, message_timestamp_type="LogAppendTime")

    wait_until(
        lambda: wire.produce(topic, batch(values=[b"x"], timestamp_ms=stamp)).log_append_time_ms > stamp,
        what="times by the broker",
    )


def read_all(wire: Wire, topic: str, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record from an offset on, as a consumer collects them."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    end = wire.offset(topic)
    while offset < end:
        response = wire.fetch(topic, offset, partition_bytes_max=4 << 20)
        if response.error_code == OFFSET_OUT_OF_RANGE and (start := wire.offset(topic, EARLIEST)) > offset:
            offset = start  # retention was quicker
            continue
        assert response.error_code == NONE
        batches = split(bytes(response.records or b""))
        assert batches, f"nothing at {offset}, the end is {end}"
        found += [record for record in records_of(response.records) if record[0] >= offset]
        # The last batch of a producer stays even where none of its records do.
        offset = batches[-1].last_offset + 1
    return found


COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": str(MEGABYTE),
    "min_cleanable_dirty_ratio": "0.01",
    "min_compaction_lag_ms": "0",
}


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_compaction_keeps_the_newest_of_each_key_at_its_offset(
    broker: Any, wire: Wire, make_topic: Any, codec: str
) -> None:
    topic = make_topic(**COMPACT)
    newest: dict[bytes, tuple[int, bytes]] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        newest[message.key()] = (message.offset(), message.value())

    randomness = random.Random(7)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5})
    for number in range(6000):
        key = b"key-%d" % randomness.randrange(50)
        producer.produce(
            topic, b"%d " % number + randomness.randbytes(1000), key=key, partition=0, on_delivery=delivered
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT) == 0

    # The last segment is never compacted: it holds about a thousand records.
    wait_until(lambda: len(read_all(wire, topic)) < 1500, what="compaction")

    records = read_all(wire, topic)
    last = {key: (offset, value) for offset, key, value in records}
    assert last == newest
    assert [offset for offset, _, _ in records] == sorted({offset for offset, _, _ in records})
    assert wire.offset(topic) == 6000


def test_a_tombstone_removes_its_key_and_is_then_removed(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(**COMPACT, delete_retention_ms="100")
    wire.produce(topic, batch([(b"gone", b"value"), (b"stays", b"value")]))
    wire.produce(topic, batch([(b"gone", None)]))

    def keys() -> set[bytes | None]:
        # Two megabytes of one other key push what stands before them out of the last segment.
        for _ in range(20):
            wire.produce(topic, batch([(b"filler", random.randbytes(104_000))]))
        return {key for _, key, _ in read_all(wire, topic)}

    wait_until(lambda: keys() == {b"stays", b"filler"}, what="the end of the tombstone")
    assert [value for _, key, value in read_all(wire, topic) if key == b"stays"] == [b"value"]


def test_min_compaction_lag_protects_the_new(wire: Wire, make_topic: Any) -> None:
    late = make_topic(**{**COMPACT, "min_compaction_lag_ms": str(DAY_MS)})
    soon = make_topic(**COMPACT)
    for topic in (late, soon):
        for _ in range(30):
            wire.produce(topic, batch([(b"k", random.randbytes(104_000))]))

    wait_until(lambda: len(read_all(wire, soon)) < 15, what="compaction without a lag")

    assert len(read_all(wire, late)) == 30


def test_compacted_topics_can_also_lose_the_old(wire: Wire, make_topic: Any) -> None:
    topic = make_topic(**{**COMPACT, "cleanup_policy": "compact,delete", "retention_ms": str(DAY_MS)})
    for number in range(30):
        stamp = now_ms() - 2 * DAY_MS
        wire.produce(topic, batch([(b"old-%d" % number, random.randbytes(104_000))], timestamp_ms=stamp))
    for number in range(15):
        wire.produce(topic, batch([(b"new-%d" % number, random.randbytes(104_000))]))

    def kinds() -> set[bytes]:
        return {(key or b"").split(b"-")[0] for _, key, _ in read_all(wire, topic, wire.offset(topic, EARLIEST))}

    wait_until(lambda: wire.offset(topic, EARLIEST) >= 20, what="retention by age")
    assert b"new" in kinds()


def test_segments_roll_by_age(broker: Any, wire: Wire, make_topic: Any) -> None:
    topic = make_topic(segment_ms="100")
    wire.produce(topic, batch(values=[b"x"]))
    [folder] = Path(broker.data).rglob(f"{topic}-0")

    def segments() -> int:
        wire.produce(topic, batch(values=[b"x"]))
        return len(list(folder.glob("*.log")))

    wait_until(lambda: segments() >= 3, what="three segments")
    assert [offset for offset, _, _ in read_all(wire, topic)] == list(range(wire.offset(topic)))


def test_deleted_records_stay_deleted_after_a_restart(broker: Any) -> None:
    from confluent_kafka import TopicPartition

    topic = fresh_name("deleted")
    create_topic(broker.bootstrap, topic, configs={"segment.bytes": str(MEGABYTE)})
    with Wire(broker.bootstrap) as wire:
        fill(wire, topic, 3)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [(_, done)] = admin.delete_records([TopicPartition(topic, 0, 17)]).items()
    assert done.result(TIMEOUT).low_watermark == 17
    broker.restart()

    with Wire(broker.bootstrap) as wire:
        assert wire.offset(topic, EARLIEST) == 17
        assert wire.fetch(topic, 16).error_code == OFFSET_OUT_OF_RANGE
        assert records_of(wire.fetch(topic, 17).records)[0][0] == 17
