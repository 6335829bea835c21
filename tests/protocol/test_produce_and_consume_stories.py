"""Producing and consuming: one story per behaviour, run with every client that supports it."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.clients import abilities as can
from protocol.clients.abilities import Delivery, Record, RefusedError
from protocol.clients.library import OLDER_CLIENTS, with_every_client

pytestmark = pytest.mark.xdist_group("produce-and-consume")

MESSAGE_TOO_LARGE = 10
FIRST_MS = 1_700_000_000_000


def numbered(count: int, *, times: int = 1) -> list[Record]:
    return [Record(value=b"value-%d " % number * times) for number in range(count)]


def offsets_shown(client: can.Produces, count: int) -> list[int | None]:
    """What the client shows of so many records in an empty partition."""
    return [offset if client.shows_offsets else None for offset in range(count)]


def contents(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


@with_every_client(can.Produces, can.Consumes)
def test_records_come_back_in_order_with_their_offsets(client: Any, topic: str) -> None:
    records = numbered(500)

    offsets = client.produce(topic, records)

    assert offsets == offsets_shown(client, 500)
    found = client.consume(topic, 500)
    assert [(record.offset, record.value) for record in found] == list(enumerate(contents(records)))


@with_every_client(can.Produces, can.Consumes, each="codec")
def test_every_codec_round_trips(client: Any, codec: str, topic: str) -> None:
    records = numbered(300, times=20)

    client.produce(topic, records, Delivery(codec=codec, linger_ms=50))

    assert contents(client.consume(topic, 300)) == contents(records)


@with_every_client(can.TunesDelivery, can.Consumes)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_delivers(client: Any, topic: str, acks: Any) -> None:
    offsets = client.produce(topic, numbered(300), Delivery(acks=acks, idempotent=False))

    assert offsets == ([None] * 300 if acks == "0" else offsets_shown(client, 300))
    # Without acknowledgement nothing says when the records arrive, nor in which order.
    received = contents(client.consume(topic, 300))
    assert sorted(received) == sorted(contents(numbered(300)))
    assert acks == "0" or received == contents(numbered(300))


@with_every_client(can.TunesDelivery, can.Consumes)
def test_an_idempotent_producer_delivers_in_order(client: Any, topic: str) -> None:
    records = numbered(1000)

    offsets = client.produce(topic, records, Delivery(idempotent=True, batch_bytes=200))

    assert offsets == offsets_shown(client, 1000)
    assert contents(client.consume(topic, 1000)) == contents(records)


@with_every_client(can.Produces, can.Consumes)
def test_keys_and_headers_come_back_and_the_client_sets_the_time(client: Any, topic: str) -> None:
    sent = Record(key=b"key", value=b"value", headers=(("trace", b"one"), ("kind", b"test")))

    client.produce(topic, [sent])

    [found] = client.consume(topic, 1)
    assert (found.key, found.value, found.headers, found.offset) == (sent.key, sent.value, sent.headers, 0)
    assert found.timestamp_ms > FIRST_MS


@with_every_client(can.Produces, can.Seeks)
def test_binary_and_empty_contents_and_old_times_come_back(client: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    headers = (("trace", b"\x00\xff"), ("empty", b""), ("trace", b"again"))
    sent = [
        Record(key=b"k", value=b"v", headers=headers, timestamp_ms=FIRST_MS + 123, offset=0),
        Record(key=b"", value=b"", timestamp_ms=FIRST_MS + 124, offset=1),
    ]

    client.produce(topic, sent)

    assert client.consume(topic, 2) == sent


@with_every_client(can.TunesDelivery, can.Consumes)
def test_a_tombstone_is_a_null(client: Any, topic: str) -> None:
    client.produce(topic, [Record(key=b"gone", value=None)])

    [found] = client.consume(topic, 1)
    assert (found.key, found.value) == (b"gone", None)


@with_every_client(can.Produces, can.Consumes, among=OLDER_CLIENTS)
def test_a_client_that_speaks_older_versions_is_served(client: Any, topic: str) -> None:
    sent = [Record(key=b"k", value=b"%d" % number, headers=(("h", b"v"),)) for number in range(50)]

    client.produce(topic, sent, Delivery(codec="gzip"))

    found = client.consume(topic, 50)
    assert [(each.offset, each.key, each.value, each.headers) for each in found] == [
        (offset, each.key, each.value, each.headers) for offset, each in enumerate(sent)
    ]


@with_every_client(can.Produces, can.Seeks)
def test_a_reader_seeks_and_gets_later_records(client: Any, topic: str) -> None:
    client.produce(topic, numbered(100))

    with client.reader(topic, start=97) as reader:
        assert [record.offset for record in reader.read(3)] == [97, 98, 99]
        reader.seek(10)
        assert [record.offset for record in reader.read(90)] == list(range(10, 100))
        reader.seek_to_beginning()
        assert [record.offset for record in reader.read(100)] == list(range(100))
        reader.seek_to_end()
        assert reader.read(0) == []
        client.produce(topic, [Record(value=b"late")])
        assert [(record.offset, record.value) for record in reader.read(1)] == [(100, b"late")]


@with_every_client(can.Produces, can.Seeks)
def test_offsets_are_found_by_time_and_at_both_ends(client: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    with client.reader(topic) as reader:
        assert reader.bounds() == (0, 0)
        for number in range(10):
            client.produce(topic, [Record(value=b"v", timestamp_ms=FIRST_MS + number * 1000)])

        assert reader.bounds() == (0, 10)
        found = [reader.find(FIRST_MS + after_ms) for after_ms in (0, 3001, 9000, 9001)]

    # librdkafka does not say which time a record has that it finds.
    assert found in (
        [(0, FIRST_MS), (4, FIRST_MS + 4000), (9, FIRST_MS + 9000), None],
        [(0, None), (4, None), (9, None), None],
    )


@with_every_client(can.TunesDelivery, can.Seeks)
def test_a_record_too_large_for_the_topic_is_refused_and_the_next_is_taken(client: Any, make_topic: Any) -> None:
    topic = make_topic(max_message_bytes="2000")

    with pytest.raises(RefusedError) as refused:
        client.produce(topic, [Record(value=b"x" * 5000)])

    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.produce(topic, [Record(value=b"fits")]) == [0]
    assert contents(client.consume(topic, 1)) == [b"fits"]
