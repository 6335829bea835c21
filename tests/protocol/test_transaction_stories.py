"""Transactions of every client that has them: what readers see and when, offsets inside of them, who is fenced."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.clients import abilities as can
from protocol.clients.abilities import FencedError, Record, RefusedError
from protocol.clients.library import with_every_client
from protocol.topics import fresh_name, wait_until

BROKER_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
pytestmark = pytest.mark.xdist_group("transaction-stories")

BOTH_LEVELS = ("read_committed", "read_uncommitted")


@pytest.fixture
def name() -> str:
    return fresh_name("txn")


def read(client: Any, topic: str, count: int, isolation: str = "read_committed", *, partition: int = 0) -> list[bytes]:
    """At least this many values: the response to a commit precedes its markers."""
    with client.reader(topic, partition=partition, isolation=isolation) as reader:
        return [record.value for record in reader.read(count)]


def ends(client: Any, topic: str) -> tuple[int, ...]:
    """The end of a topic as readers of each level see it."""
    found = []
    for level in BOTH_LEVELS:
        with client.reader(topic, isolation=level) as reader:
            found.append(reader.bounds()[1])
    return tuple(found)


@with_every_client(can.Transacts)
def test_committed_records_of_all_partitions_are_read_and_aborted_ones_are_not(
    client: Any, make_topic: Any, name: str
) -> None:
    topic = make_topic(partitions=2)
    with client.transactional(name) as producer:
        for number in range(9):
            producer.begin()
            for partition in (0, 1):
                producer.send(topic, b"%d" % number, partition=partition)
            (producer.abort if number % 2 else producer.commit)()

    for partition in (0, 1):
        assert read(client, topic, 5, partition=partition) == [b"0", b"2", b"4", b"6", b"8"]
        everything = read(client, topic, 9, "read_uncommitted", partition=partition)
        assert everything == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("end", ["commit", "abort"])
@with_every_client(can.Transacts)
def test_an_open_transaction_holds_back_readers_of_committed_records(
    client: Any, topic: str, name: str, end: str
) -> None:
    with client.transactional(name) as producer:
        producer.begin()
        producer.send(topic, b"inside")
        client.produce(topic, [Record(value=b"behind")])
        assert ends(client, topic) == (0, 2)
        assert read(client, topic, 0) == []
        assert read(client, topic, 2, "read_uncommitted") == [b"inside", b"behind"]

        getattr(producer, end)()

    wait_until(lambda: ends(client, topic) == (3, 3), what="the marker")
    assert read(client, topic, 1) == ([b"inside", b"behind"] if end == "commit" else [b"behind"])


@with_every_client(can.Transacts)
def test_a_groups_offset_moves_with_the_transaction_or_not_at_all(client: Any, make_topic: Any, name: str) -> None:
    source, target = make_topic(), make_topic()
    place = (source, 0)
    with client.transactional(name) as producer:
        for offset, end in ((5, producer.abort), (7, producer.commit)):
            producer.begin()
            producer.send(target, b"%d" % offset)
            producer.send_offset(name, place, offset)
            end()
            assert offset == 7 or client.committed(name, place) is None

    wait_until(lambda: client.committed(name, place) is not None, what="the offset")
    assert client.committed(name, place)[0] == 7
    assert read(client, target, 1) == [b"7"]


@with_every_client(can.Transacts)
def test_a_second_producer_of_the_same_name_fences_the_first(client: Any, topic: str, name: str) -> None:
    with client.transactional(name) as zombie:
        zombie.begin()
        zombie.send(topic, b"zombie")
        with client.transactional(name) as heir:
            heir.begin()
            heir.send(topic, b"heir")
            heir.commit()

        with pytest.raises(FencedError):
            zombie.commit()

    assert read(client, topic, 1) == [b"heir"]


@with_every_client(can.Transacts)
def test_a_transaction_that_takes_too_long_is_aborted(client: Any, topic: str, name: str) -> None:
    with client.transactional(name, timeout_ms=1500) as slow:
        slow.begin()
        slow.send(topic, b"slow")
        client.produce(topic, [Record(value=b"plain")])

        assert read(client, topic, 1) == [b"plain"]
        with pytest.raises(RefusedError):
            slow.commit()


@with_every_client(can.Transacts)
def test_a_transaction_that_wrote_nothing_ends_either_way(client: Any, topic: str, name: str) -> None:
    with client.transactional(name) as producer:
        for end in (producer.commit, producer.abort, producer.commit, producer.abort):
            producer.begin()
            end()
        producer.begin()
        producer.send(topic, b"something")
        producer.commit()

    assert read(client, topic, 1) == [b"something"]
