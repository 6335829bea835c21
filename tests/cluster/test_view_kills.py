"""Brokers of a cluster are killed (-9) at random while groups of four client libraries read a filtered view.

Every match is read by every group, in order, and again only from a committed position on. A hundred kills:

    PENSTOCK_TEST_KILLS=100 pytest -m soak -s tests/cluster/test_view_kills.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from cluster.replicated import POLL_S, admin, cluster_on, create, end_of, in_sync, until
from cluster.steady_clients import Steady, persist
from cluster.view_readers import (
    READERS,
    Assigned,
    Committed,
    Event,
    Group,
    Journal,
    Matches,
    Read,
    java_reader_of_positions,
    judge,
)
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline
from penstock.testing.zookeeper import ZooKeeper
from protocol.clients import abilities as can
from protocol.clients.aiokafka import AioKafka
from protocol.clients.confluent import Confluent
from protocol.clients.kafka_python import FORGETS_SOCKETS, KafkaPython
from soak_time import kills

KILLS = kills(few=5)
PARTITIONS = 3
TOPIC, VIEW = "orders", "orders-of-the-eu"
WHERE = "value.country = 'EU' AND value.n >= 0"
MATCHES_EVERY = 33
NO_JSON_EVERY = 50
PAD = "x" * 100
CODECS = ("none", *can.CODECS)
BURST_MAX = 60
PAUSE_S = 0.05
TRANSACTION_RECORDS = 40
DOWN_RECORDS_MAX = 600
"""How many records at most are acknowledged while a broker is down."""

LAST = b'{"n": 0, "country": "EU"}'
WAIT_S = 300.0
TRANSACTION_MS = 240_000


def to_value(number: int) -> bytes:
    """One of 33 passes; one of 50 is no JSON, which does not."""
    if number % NO_JSON_EVERY == 0:
        return b"no json %d" % number
    country = "EU" if number % MATCHES_EVERY == 7 else "US"
    return json.dumps({"n": number, "country": country, "pad": PAD}).encode()


def passes(value: bytes) -> bool:
    return value.startswith(b"{") and json.loads(value)["country"] == "EU"


class Writers(Steady):
    """Idempotent producers, one for each codec, and a transactional one; what they know to be committed."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._seed = seed
        self.acknowledged: set[bytes] = set()
        self.committed: set[bytes] = set()
        """Of transactions."""
        self.commits = 0
        self.aborts = 0
        super().__init__()

    @property
    def count(self) -> int:
        return len(self.acknowledged)

    def works(self) -> list[Callable[[], None]]:
        return [self._write, self._transact]

    def _producer(self, codec: str, **settings: object) -> Producer:
        given = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 10,
            "socket.timeout.ms": 10_000,
            "message.timeout.ms": TRANSACTION_MS,
            "log_level": 0,
        }
        return Producer({**given, **{name.replace("_", "."): value for name, value in settings.items()}})

    def _write(self) -> None:
        """Even numbers, in bursts to one partition."""
        draw, number = Random(self._seed), 0
        producers = [self._producer(codec) for codec in CODECS]
        while not self._stop.wait(PAUSE_S):
            producer, partition = draw.choice(producers), draw.randrange(PARTITIONS)
            for _ in range(draw.randrange(1, BURST_MAX)):
                producer.produce(TOPIC, to_value(number), partition=partition, on_delivery=self._delivered)
                number += 2
            for each in producers:
                each.poll(0)
        for each in producers:
            assert each.flush(WAIT_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(KafkaException(error))
        else:
            self.acknowledged.add(message.value() or b"")

    def _transact(self) -> None:
        """Odd numbers, over all partitions; one transaction of three is aborted."""
        draw, number = Random(self._seed + 1), 1
        producer = self._producer("zstd", transactional_id="writer", transaction_timeout_ms=TRANSACTION_MS)
        persist(lambda: producer.init_transactions(WAIT_S), WAIT_S)
        while not self._stop.wait(PAUSE_S):
            values = [to_value(number + 2 * place) for place in range(TRANSACTION_RECORDS)]
            number += 2 * TRANSACTION_RECORDS
            producer.begin_transaction()
            if self._is_written(producer, values) and draw.randrange(3):
                try:
                    persist(lambda: producer.commit_transaction(WAIT_S), WAIT_S)
                except KafkaException as refused:
                    if not refused.args[0].txn_requires_abort():
                        raise
                else:
                    self.committed.update(values)
                    self.commits += 1
                    continue
            persist(lambda: producer.abort_transaction(WAIT_S), WAIT_S)
            self.aborts += 1

    @staticmethod
    def _is_written(producer: Producer, values: Sequence[bytes]) -> bool:
        try:
            for place, value in enumerate(values):
                producer.produce(TOPIC, value, partition=place % PARTITIONS)
        except KafkaException:
            # The transaction has failed already, and can only be aborted.
            return False
        return True


def wait_for(fact: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = Deadline(WAIT_S)
    while not fact():
        assert not deadline.passed, f"not within {WAIT_S:g} s: {what()}"
        time.sleep(POLL_S)


class Kills:
    """Kills brokers one after the other, and lets all groups read between most of them."""

    def __init__(self, cluster: PenstockCluster, writers: Writers, groups: Sequence[Group], draw: Random) -> None:
        self._cluster = cluster
        self._writers = writers
        self._groups = groups
        self._draw = draw

    def kill(self) -> None:
        victim = self._draw.choice(self._cluster.brokers)
        victim.kill()
        if self._draw.randrange(2):
            self._draw.choice(self._groups).restart()
        # Every third starts at once; the others when the rest of the cluster has gone on for a while.
        self._wait_for_records(self._draw.choice((0, 1, 1)) * self._draw.randrange(DOWN_RECORDS_MAX))
        victim.start()
        if self._draw.randrange(4):
            self.let_all_go_on()

    def let_all_go_on(self) -> None:
        """Wait until every replica is in sync, a transaction is committed, and every group has read since then."""
        self._wait_for_records(1)
        wait_until_whole(self._cluster)
        self._wait_for_reads()

    def _wait_for_records(self, count: int) -> None:
        wanted, commits = self._writers.count + count, self._writers.commits + (count > 0)
        wait_for(
            lambda: (
                bool(self._writers.failures) or (self._writers.count >= wanted and self._writers.commits >= commits)
            ),
            lambda: f"{self._writers.count} of {wanted} records, {self._writers.commits} of {commits} transactions",
        )
        assert not self._writers.failures, self._writers.failures

    def _wait_for_reads(self) -> None:
        """Wait until every group has read a record since now."""
        counts = [len(group.events) for group in self._groups]
        for group, count in zip(self._groups, counts, strict=True):
            wait_for(lambda: has_gone_on(group, count), lambda: f"{group.name} goes on")  # noqa: B023


def has_gone_on(group: Group, count: int) -> bool:
    group.check()
    return any(isinstance(event, Read) for event in group.events[count:])


def wait_until_whole(cluster: PenstockCluster) -> None:
    """Wait until every replica is in sync; on a busy machine longer than for most tests."""
    client = admin(cluster)

    def is_whole() -> bool:
        try:
            found = client.list_topics(timeout=10)
        except KafkaException:
            return False
        return all(in_sync(found, topic, 3) for topic in (TOPIC, VIEW, "__consumer_offsets", "__transaction_state"))

    wait_for(is_whole, lambda: "every replica in sync")


def make_topics(cluster: PenstockCluster) -> None:
    create(cluster, TOPIC, partitions=PARTITIONS)
    wanted = NewTopic(VIEW, config={"view.of": TOPIC, "view.filter": WHERE})
    client = admin(cluster)
    client.create_topics([wanted])[VIEW].result(WAIT_S)
    until(cluster, lambda found: in_sync(found, VIEW, 3))


def committed_records(cluster: PenstockCluster) -> dict[int, list[tuple[int, bytes]]]:
    """Offset and value of every record of the topic that was not aborted, by partition."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "audit", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
    found: dict[int, list[tuple[int, bytes]]] = {}
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(TOPIC, partition, 0)
            end, records, deadline = end_of(consumer, place), list[tuple[int, bytes]](), Deadline(WAIT_S)
            consumer.assign([place])
            while consumer.position([place])[0].offset < end:
                assert not deadline.passed, f"{len(records)} read of {end}"
                for message in consumer.consume(1_000, POLL_S):
                    assert message.error() is None, message.error()
                    records.append((message.offset() or 0, message.value() or b""))
            found[partition] = records
    finally:
        consumer.close()
    return found


def lags(cluster: PenstockCluster, group: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        places = [TopicPartition(VIEW, partition) for partition in range(PARTITIONS)]
        ends = [end_of(consumer, place) for place in places]
        committed = consumer.committed(places, timeout=WAIT_S)
        return [end - max(place.offset, 0) for end, place in zip(ends, committed, strict=True)]
    finally:
        consumer.close()


def wait_for_lag_0(cluster: PenstockCluster, group: Group) -> None:
    def is_at_end() -> bool:
        group.check()
        return not any(lags(cluster, group.name))

    wait_for(is_at_end, lambda: f"lag 0 of {group.name}: {lags(cluster, group.name)}")


def write_last(cluster: PenstockCluster, value: bytes) -> None:
    """One record at the end of each partition."""
    records = [can.Record(value=value, partition=partition) for partition in range(PARTITIONS)]
    Confluent(cluster.bootstrap).produce(TOPIC, records, can.Delivery(idempotent=True))


def write_what_no_group_reads(cluster: PenstockCluster) -> None:
    """Records that do not pass, and an aborted transaction of records that would."""
    with Confluent(cluster.bootstrap).transactional("aborts") as transaction:
        transaction.begin()
        for partition in range(PARTITIONS):
            transaction.send(TOPIC, to_value(7), partition=partition)
        transaction.abort()
    write_last(cluster, to_value(8))


@pytest.mark.soak
@pytest.mark.needs("kafka-jars")
@pytest.mark.timeout(1_800 + 120 * KILLS)
@FORGETS_SOCKETS[0]
@FORGETS_SOCKETS[1]
def test_groups_read_every_match_of_a_view_while_brokers_are_killed(tmp_path: Path, randomness: Random) -> None:
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, tmp_path) as cluster:
        make_topics(cluster)
        with ExitStack() as stack:
            groups = [
                stack.enter_context(Group(open_reader, cluster.bootstrap, name, VIEW))
                for name, open_reader in READERS.items()
            ]
            with Writers(cluster.bootstrap, randomness.getrandbits(32)) as writers:
                killing = Kills(cluster, writers, groups, randomness)
                killing.let_all_go_on()
                for number in range(1, KILLS + 1):
                    killing.kill()
                    print(f"{time.strftime('%H:%M:%S')} kill {number}, {writers.count} records", flush=True)
            assert not writers.failures, writers.failures
            wait_until_whole(cluster)
            # Kafka's verifiable consumer commits no position behind its last record.
            write_last(cluster, LAST)
            for group in groups:
                wait_for_lag_0(cluster, group)

        everything = committed_records(cluster)
        matches: Matches = {
            partition: [(offset, value) for offset, value in records if passes(value)]
            for partition, records in everything.items()
        }
        values = [value for records in everything.values() for _, value in records if value != LAST]
        assert len(values) == len(set(values)), "a record is there twice"
        assert set(values) == writers.acknowledged | writers.committed
        print(f"{KILLS} kills, {writers.count} records, {writers.commits} transactions, {writers.aborts} aborted")
        faults = dict[str, list[str]]()
        for group in groups:
            verdict = judge(group.events, matches)
            faults |= {group.name: verdict.faults} if verdict.faults else {}
            print(
                f"  {group.name}: {verdict.reads} reads of {sum(map(len, matches.values()))} matches,"
                f" {verdict.rereads} again, {verdict.assignments} assignments, refused commits: {dict(group.refusals)}"
            )
        assert not faults, faults

        write_what_no_group_reads(cluster)
        for name, open_reader in {**READERS, "java": java_reader_of_positions}.items():
            with Group(open_reader, cluster.bootstrap, name, VIEW) as group:
                wait_for_lag_0(cluster, group)
            assert not [event for event in group.events if isinstance(event, Read)], name
        for adapter in (Confluent, KafkaPython, AioKafka):
            for partition, expected in matches.items():
                with adapter(cluster.bootstrap).reader(VIEW, partition=partition, isolation="read_committed") as fresh:
                    found = [(record.offset, record.value) for record in fresh.read(len(expected))]
                assert found == expected, (adapter.__name__, partition)


FIVE: Matches = {0: [(offset, b"%d" % offset) for offset in (3, 5, 8, 20, 21)]}
ALL = frozenset({0})


def reads(*offsets: int) -> list[Event]:
    return [Read(0, offset, b"%d" % offset) for offset in offsets]


@pytest.mark.parametrize(
    ("journal", "rereads"),
    [
        ([Assigned(ALL), *reads(3, 5, 8, 20, 21)], 0),
        ([Assigned(ALL), *reads(3, 5), Committed({0: 6}), *reads(8), Assigned(ALL), *reads(8, 20, 21)], 1),
        ([Assigned(ALL), *reads(3, 5), Assigned(ALL), *reads(3, 5, 8, 20, 21)], 2),
        ([Assigned(ALL), Assigned(ALL), *reads(3, 5, 8, 20, 21), Committed({0: 30})], 0),
    ],
)
def test_the_judge_accepts_what_a_group_may_do(journal: list[Event], rereads: int) -> None:
    verdict = judge(journal, FIVE)

    assert (verdict.faults, verdict.rereads, verdict.reads) == ([], rereads, 5 + rereads)


@pytest.mark.parametrize(
    ("journal", "fault"),
    [
        ([Assigned(ALL), *reads(3, 5, 8, 20)], "ends after 4 of 5 matches"),
        ([Assigned(ALL), *reads(3, 5, 20, 21)], "reads match 3 at 20 instead of match 2"),
        ([Assigned(ALL), *reads(3, 5, 5, 8, 20, 21)], "reads match 1 at 5 instead of match 2"),
        ([Assigned(ALL), *reads(3, 8, 5, 20, 21)], "reads match 2 at 8 instead of match 1"),
        ([Assigned(ALL), *reads(3, 4, 5, 8, 20, 21)], "reads 4, which is no match: b'4'"),
        ([Assigned(ALL), Read(0, 3, b"5"), *reads(3, 5, 8, 20, 21)], "reads 3, which is no match: b'5'"),
        ([Assigned(ALL), *reads(3), Assigned(ALL), *reads(8, 20, 21)], "skips matches 1 to 1"),
        (
            [Assigned(ALL), *reads(3, 5), Committed({0: 6}), Assigned(ALL), *reads(5, 8, 20, 21)],
            "goes on at 5 after it committed 6",
        ),
        ([Assigned(ALL), *reads(3, 5, 8, 20, 21), Committed({0: 22}), Committed({0: 6})], "commits 6 after 22"),
    ],
)
def test_the_judge_finds(journal: list[Event], fault: str) -> None:
    assert f"0: {fault}" in judge(journal, FIVE).faults


def test_a_commit_is_noted_with_the_positions_of_what_is_owned_when_it_succeeds() -> None:
    journal = Journal()
    journal.assigned([0, 1])
    journal.read(0, 3, b"3")
    journal.read(1, 5, b"5")
    journal.revoked([1])
    journal.read(1, 6, b"6")

    journal.commit(lambda: None, ())
    journal.commit(lambda: journal.assigned([1]), ())
    journal.commit(refuse, (ValueError,))

    assert [event for event in journal.events if isinstance(event, Committed)] == [Committed({0: 4})]
    assert journal.refusals == {"ValueError": 1}


def refuse() -> None:
    raise ValueError
