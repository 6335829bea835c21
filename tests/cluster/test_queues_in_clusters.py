"""A share group on a real cluster whose brokers and members, with Java's client and librdkafka's, are killed (-9).

Each record is accepted once or is in the dead-letter topic, and what was accepted is never delivered again. Thirty
kills take a few minutes:

    PENSTOCK_TEST_KILLS=30 pytest -m soak -s tests/cluster/test_queues_in_clusters.py
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from cluster.killed_members import CONFLUENT, Client, Members, accepted_or_dead, history_of
from cluster.replicated import admin, cluster_on, create, end_of, in_sync, leader_of, until
from penstock.testing.apache_kafka import find_java, find_libs
from penstock.testing.cluster import ClusterBroker, PenstockCluster
from penstock.testing.histories.deliveries import (
    Acknowledgement,
    Deliveries,
    End,
    Place,
    Rules,
    check_deliveries,
)
from penstock.testing.zookeeper import ZooKeeper
from protocol.share_members import QUICK_SHARES, share_group
from protocol.test_cli import Cli
from protocol.topics import attempts, wait_until
from soak_time import kills

PROGRAM = Path(__file__).parent / "ShareMemberProgram.java"
KILLS = kills(few=6)
RECORDS_PER_KILL = 60
TOPIC, DEAD, GROUP = "jobs", "dlq.jobs", "workers"
PARTITIONS, STATES = 3, 3
INTERNAL = ("__share_group_state", "__consumer_offsets")
LOCK_S = 4.0
DELIVERIES_MAX = 4
RELEASED, REJECTED = "0.3", "0.1"
MOMENT_S = 2.0
"""How long a killed broker is away at most."""

WAIT_S = 180.0
SETTINGS = QUICK_SHARES | {
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "5000",
    "share.coordinator.state.topic.num.partitions": str(STATES),
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
JAVA_MEMBER, CONFLUENT_MEMBER = "Java member", "confluent-kafka member"
MEMBERS = {JAVA_MEMBER: (0, 1), CONFLUENT_MEMBER: (2, 3)}
ALL = "all brokers"
VICTIMS = (*MEMBERS, "leader of the jobs", "leader of the state", "any broker", ALL)
HEADER = "__dlq.errors."


def java_client(folder: Path) -> Client:
    """The program in Java, which is compiled into a folder."""
    jars = f"{find_libs()}/*"
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(PROGRAM)], check=True)
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
    return Client("java", (str(find_java()), *quick, "-cp", f"{folder}:{jars}", PROGRAM.stem))


class Jobs:
    """Writes numbered records."""

    def __init__(self, bootstrap: str) -> None:
        self.written = 0
        self._failed: list[str] = []
        # Small batches: a broker hands out whole ones.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 5,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def write(self, count: int) -> None:
        for number in range(self.written, self.written + count):
            self._producer.produce(
                TOPIC,
                str(number),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: self._failed.append(str(error)) if error else None,
            )
            self._producer.poll(0)
        self.written += count

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0
        assert not self._failed


def victims(cluster: PenstockCluster, kind: str, randomness: Random) -> Sequence[ClusterBroker]:
    if kind == "leader of the jobs":
        return [cluster.broker(leader_of(cluster, TOPIC, randomness.randrange(PARTITIONS)))]
    if kind == "leader of the state":
        return [cluster.broker(leader_of(cluster, INTERNAL[0], randomness.randrange(STATES)))]
    return cluster.brokers if kind == ALL else [randomness.choice(cluster.brokers)]


def records_of(bootstrap: str, topic: str) -> Iterator[Message]:
    """Every record of a topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "audit", "enable.auto.commit": False, "log_level": 0}
    reader = Consumer(settings)
    try:
        for number in range(PARTITIONS):
            place = TopicPartition(topic, number, 0)
            end = end_of(reader, place)
            reader.assign([place])
            at = 0
            while at < end:
                for message in reader.consume(1_000, 1.0):
                    assert message.error() is None, message.error()
                    at = (message.offset() or 0) + 1
                    yield message
    finally:
        reader.close()


def log_of(bootstrap: str) -> dict[Place, int]:
    return {
        (str(each.partition()), each.offset() or 0): int(each.value() or b"") for each in records_of(bootstrap, TOPIC)
    }


class DeadLetter:
    """What a record of the dead-letter topic says of its original."""

    def __init__(self, message: Message) -> None:
        headers = {name: (value or b"").decode() for name, value in message.headers() or []}
        assert (headers[f"{HEADER}topic"], headers[f"{HEADER}group"]) == (TOPIC, GROUP)
        self.place: Place = headers[f"{HEADER}partition"], int(headers[f"{HEADER}offset"])
        self.value = int(message.value() or b"")
        self.count = int(headers[f"{HEADER}delivery.count"])


def lags(cli: Cli) -> list[int | None]:
    """By partition, the records that the group has not finished."""
    return [part["lag"] for part in cli.json("group", "describe", GROUP)["partitions"]]


def work_until_finished(cluster: PenstockCluster, folder: Path) -> Members:
    """Let a member accept what is left."""
    # The killed ones hold partitions until their sessions end, and records until their locks do.
    folder = folder / "last"
    folder.mkdir()
    last = Members(cluster.bootstrap, GROUP, TOPIC, folder=folder, clients=[CONFLUENT], arguments=("0", "0"))
    cli = Cli(cluster.bootstrap)
    try:
        wait_until(lambda: lags(cli) == [0] * PARTITIONS, what="every record finished", seconds_max=WAIT_S)
    finally:
        last.kill_all()
    return last


@pytest.mark.soak
@pytest.mark.needs("kafka-jars")
@pytest.mark.needs("javac")
@pytest.mark.timeout(1200 + 90 * KILLS)
def test_members_and_brokers_are_killed_and_each_record_is_accepted_once_or_dead(
    tmp_path: Path, randomness: Random
) -> None:
    java = java_client(tmp_path)
    clients = [java, java, CONFLUENT, CONFLUENT]
    killed: Counter[str] = Counter()
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with (
        ZooKeeper() as zookeeper,
        cluster_on(zookeeper, tmp_path, **settings) as cluster,
        contextlib.ExitStack() as ends,
    ):
        create(cluster, TOPIC, partitions=PARTITIONS)
        create(cluster, DEAD, partitions=PARTITIONS, errors_deadletterqueue_group_enable="true")
        share_group(
            cluster,
            GROUP,
            share_record_lock_duration_ms=str(int(LOCK_S * 1000)),
            share_delivery_count_limit=str(DELIVERIES_MAX),
            errors_deadletterqueue_topic_name=DEAD,
        )
        jobs = Jobs(cluster.bootstrap)
        members = Members(
            cluster.bootstrap,
            GROUP,
            TOPIC,
            folder=tmp_path,
            clients=clients,
            arguments=(RELEASED, REJECTED),
        )
        ends.callback(members.kill_all)

        def kill_member(kind: str) -> None:
            killed[kind] += 1
            members.kill(randomness.choice(MEMBERS[kind]))

        def some_work() -> None:
            """Write records until members with each client have acknowledged some."""
            jobs.write(RECORDS_PER_KILL)
            before = {client: members.count("acknowledged", client) for client in clients}
            for _ in attempts(what="work", seconds_max=WAIT_S, pause_seconds=0.2):
                jobs.write(5)
                if all(members.count("acknowledged", client) > count + 1 for client, count in before.items()):
                    return

        some_work()
        until(cluster, lambda found: in_sync(found, INTERNAL[1], 3))
        while killed.total() < KILLS:
            some_work()
            kind = next((each for each in VICTIMS if not killed[each]), "") or randomness.choice(VICTIMS)
            if kind in MEMBERS:
                kill_member(kind)
                continue
            killed[kind] += 1
            for broker in victims(cluster, kind, randomness):
                broker.kill()
            time.sleep(randomness.random() * MOMENT_S)
            if killed.total() < KILLS and randomness.random() < 0.5:
                # A member dies while brokers are away.
                kill_member(randomness.choice(list(MEMBERS)))
            cluster.start()
            # Another must not die before they are back in every ISR.
            until(cluster, lambda found: all(in_sync(found, each, 3) for each in (TOPIC, DEAD, *INTERNAL)))
        some_work()
        jobs.flush()
        members.kill_all()
        last = work_until_finished(cluster, tmp_path)

        assert len(admin(cluster).list_topics().brokers) == 3
        log = log_of(cluster.bootstrap)
        letters = [DeadLetter(each) for each in records_of(cluster.bootstrap, DEAD)]

    assert members.ended == last.ended == []
    history = history_of([*members.logs, *last.logs])
    # Each kill of a member or a broker may have lost a response of each member, and with it a delivery of any record.
    lost = killed.total() * len(members.logs)
    history.unheard = {str(number): lost for number in range(PARTITIONS)}
    dead = Counter(letter.place for letter in letters)
    print(f"{killed.total()} kills: {dict(killed)}")
    print(counted(history, log, dead, letters))
    assert sorted(log.values()) == list(range(jobs.written))
    end = End(log=log, dead=dead)
    assert check_deliveries(history, Rules(deliveries_max=DELIVERIES_MAX, lock_s=LOCK_S), end) == ()
    assert accepted_or_dead(history, end) == []
    assert [letter.place for letter in letters if log.get(letter.place) != letter.value] == []
    assert unfounded(history, letters) == []
    assert dead


def unfounded(history: Deliveries, letters: list[DeadLetter]) -> list[Place]:
    """Dead letters of records that no member rejected and that had deliveries left."""
    rejected = {each.place for each in history.acknowledged if each.kind is Acknowledgement.REJECT}
    return [each.place for each in letters if each.place not in rejected and each.count < DELIVERIES_MAX]


def counted(history: Deliveries, log: dict[Place, int], dead: Counter[Place], letters: list[DeadLetter]) -> str:
    clients = Counter(each.member.partition("-")[0] for each in history.delivered)
    kinds = Counter(each.kind.value for each in history.acknowledged if each.at)
    unknown = sum(each.at is None for each in history.acknowledged)
    exhausted = len({each.place for each in letters if each.count >= DELIVERIES_MAX})
    return (
        f"{len(log)} records, {len(history.delivered)} deliveries {dict(clients)}, confirmed {dict(kinds)}, "
        f"{unknown} acknowledgements without a response; "
        f"{len(dead)} dead ({exhausted} exhausted) in {dead.total()} letters"
    )
