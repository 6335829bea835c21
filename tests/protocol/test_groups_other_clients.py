"""Groups of kafka-python, aiokafka, kcat and FastStream, each with its own idea of the classic protocol."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IllegalStateError
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker as AioBroker
from kafka import KafkaAdminClient, KafkaConsumer, OffsetSpec, TopicPartition
from kafka.errors import GroupIdNotFoundError, NonEmptyGroupError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata

from protocol.group_members import QUICK, SECONDS_MAX, SESSION_MS, Member, committed, fill, numbered, settle
from protocol.topics import fresh_name, wait_until

BROKER_SETTINGS = QUICK
POLL_MS = 3000
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def sockets_it_forgets_are_collected_here() -> Iterator[None]:
    """kafka-python leaves sockets to the garbage collector, whose warning must not meet some later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


@pytest.fixture
def admin(broker: Any) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as client:
        yield client


def subscribed(broker: Any, group: str, topic: str, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=SESSION_MS,
        metadata_max_age_ms=500,
        **settings,
    )


class Polled:
    """What consumers have read, and how far each has got in the partitions that it has."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.positions: dict[KafkaConsumer, dict[TopicPartition, int]] = {}

    def poll(self, consumer: KafkaConsumer) -> None:
        """In the consumer's own thread: a position is asked for where no rebalance comes in between."""
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            self.seen.extend(record.value for record in records)
        self.positions[consumer] = {place: consumer.position(place) for place in consumer.assignment()}

    def is_shared(self, *, partitions: int, end: int) -> bool:
        """Whether the consumers have the same number of partitions, different ones, and have read them to the end."""
        owned = [place for positions in self.positions.values() for place in positions]
        shares = {len(positions) for positions in self.positions.values()}
        read = sum(sum(positions.values()) for positions in self.positions.values())
        return len(owned) == len(set(owned)) == partitions and len(shares) == 1 and read == end


@contextmanager
def polled(*consumers: KafkaConsumer) -> Iterator[Polled]:
    """What the consumers read, each polled by a thread of its own until the block ends.

    The polls are long: kafka-python forgets the response to a SyncGroup when a poll ends before it comes, and then
    neither beats nor joins again.
    """
    found = Polled()
    done = threading.Event()

    def poll(consumer: KafkaConsumer) -> None:
        while not done.is_set():
            found.poll(consumer)

    with ThreadPoolExecutor(len(consumers)) as threads:
        polls = [threads.submit(poll, consumer) for consumer in consumers]
        try:
            yield found
        finally:
            done.set()
    for each in polls:
        each.result()


def test_kafka_pythons_members_share_a_topic(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=4)
    fill(broker, topic, numbered(40), partitions=4)
    with subscribed(broker, group, topic) as first, subscribed(broker, group, topic) as second:
        with polled(first, second) as found:
            # Whoever was there first reads everything, and what it has to give away is read again.
            wait_until(
                lambda: len(found.positions) == 2 and found.is_shared(partitions=4, end=40),
                what="two partitions each, read to their ends",
                seconds_max=SECONDS_MAX,
            )
        assert set(found.seen) == set(numbered(40))
        first.commit()
        second.commit()
    assert sum(committed(broker, group, topic, 4)) == 40


def test_kafka_python_goes_on_where_it_committed(broker: Any, topic: str, group: str) -> None:
    fill(broker, topic, numbered(10))
    place = TopicPartition(topic, 0)
    with subscribed(broker, group, topic) as first:
        with polled(first) as found:
            wait_until(lambda: len(found.seen) >= 10, what="ten", seconds_max=SECONDS_MAX)
        first.commit({place: OffsetAndMetadata(7, "seven", -1)})
        assert first.committed(place) == 7
        assert first.committed(place, metadata=True).metadata == "seven"

    with subscribed(broker, group, topic) as second, polled(second) as again:
        wait_until(lambda: len(again.seen) >= 3, what="three", seconds_max=SECONDS_MAX)
    assert again.seen == [b"7", b"8", b"9"]


def test_kafka_python_and_librdkafka_share_one_group(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=4)
    with Member(broker, group, [topic], **{"partition.assignment.strategy": "range"}) as other:
        settle(other, places=4)
        with subscribed(broker, group, topic) as ours, polled(ours):
            wait_until(
                lambda: len(ours.assignment()) == len(other.owned) == 2,
                what="two partitions each",
                seconds_max=SECONDS_MAX,
            )
        settle(other, places=4)
        assert len(other.owned) == 4


def test_kafka_pythons_admin_lists_describes_moves_and_deletes(
    broker: Any, topic: str, group: str, admin: KafkaAdminClient
) -> None:
    fill(broker, topic, numbered(10))
    place = TopicPartition(topic, 0)
    with Member(broker, group, [topic], name="reader") as member:
        wait_until(lambda: len(member.values) == 10, what="ten values", seconds_max=SECONDS_MAX)
        wait_until(lambda: committed(broker, group, topic, 1) == [10], what="commit")
        assert (group, "Stable") in [(each["group_id"], each["group_state"]) for each in admin.list_groups()]
        [described] = as_list(admin.describe_groups([group]))
        assert [each["client_id"] for each in described["members"]] == ["reader"]
        refused = admin.delete_groups([group])
        assert NonEmptyGroupError.__name__ in str(refused) or "NON_EMPTY" in str(refused), refused

    assert admin.list_group_offsets({group: [place]})[group][place].offset == 10
    admin.alter_group_offsets(group, {place: OffsetAndMetadata(4, "moved", -1)})
    assert committed(broker, group, topic, 1) == [4]
    admin.reset_group_offsets(group, {place: OffsetSpec.EARLIEST})
    assert committed(broker, group, topic, 1) == [0]
    admin.delete_group_offsets(group, [place])
    assert committed(broker, group, topic, 1) == [-1001]
    admin.delete_groups([group])
    assert group not in [each["group_id"] for each in admin.list_groups()]


def as_list(described: Any) -> list[Any]:
    return list(described.values()) if isinstance(described, dict) else list(described)


def test_aiokafkas_members_share_a_topic_and_one_takes_over(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=4)
    fill(broker, topic, numbered(40), partitions=4)

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=SESSION_MS,
        )

    async def read_to(consumer: AIOKafkaConsumer, end: int) -> bool:
        """Whether it has its two partitions, and has read so much of them."""
        places = consumer.assignment()
        try:
            return len(places) == 2 and sum([await consumer.position(place) for place in places]) == end
        except IllegalStateError:
            return False  # one of them was taken away in between

    async def work() -> None:
        first, second, seen = member(), member(), set()
        await first.start()
        await second.start()
        # Whoever was there first reads everything, and what it has to give away is read again.
        while not (await read_to(first, 20) and await read_to(second, 20)):
            for consumer in (first, second):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    seen.update(record.value for record in records)
        await first.commit()
        await second.commit()
        await second.stop()
        while len(first.assignment()) != 4:
            await first.getmany(timeout_ms=100)
        await first.stop()
        assert seen == set(numbered(40))

    asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))
    assert sum(committed(broker, group, topic, 4)) == 40


@pytest.mark.needs("kcat")
def test_kcat_reads_as_a_member_and_goes_on_where_it_stopped(broker: Any, topic: str, group: str) -> None:
    def read(count: int) -> list[bytes]:
        command = ["kcat", "-b", broker.bootstrap, "-q", "-c", str(count), "-X", "auto.offset.reset=earliest"]
        done = subprocess.run([*command, "-G", group, topic], capture_output=True, timeout=SECONDS_MAX, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    fill(broker, topic, numbered(10))

    assert read(6) == numbered(6)
    assert read(4) == numbered(4, start=6)


@pytest.mark.parametrize("broker_class", [AioBroker, ConfluentBroker], ids=["aiokafka", "confluent"])
def test_faststreams_subscribers_belong_to_a_group(broker: Any, topic: str, group: str, broker_class: Any) -> None:
    seen: list[int] = []

    async def work() -> None:
        stream, done = broker_class(broker.bootstrap), asyncio.Event()

        @stream.subscriber(topic, group_id=group, auto_offset_reset="earliest")
        async def handle(number: int) -> None:
            seen.append(number)
            if len(seen) == 5:
                done.set()

        async with stream:
            await stream.start()
            for number in range(5):
                await stream.publish(number, topic)
            await asyncio.wait_for(done.wait(), SECONDS_MAX)

    asyncio.run(work())
    assert seen == list(range(5))


def test_kafka_pythons_admin_cannot_move_a_group_with_members(
    broker: Any, topic: str, group: str, admin: KafkaAdminClient
) -> None:
    place = TopicPartition(topic, 0)
    with subscribed(broker, group, topic) as reader, polled(reader):
        wait_until(lambda: bool(reader.assignment()), what="assignment")
        refused = admin.alter_group_offsets(group, {place: OffsetAndMetadata(1, "", -1)})
        assert UnknownMemberIdError.__name__ in str(refused), refused
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("no-such-group", [place])
