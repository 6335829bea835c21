"""Members and the broker killed with kill -9 while records are held, acknowledged and released.

What was accepted never comes again, and nothing is lost: the checker of deliveries judges all that real processes saw.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, AcknowledgeType, Consumer, Message, Producer, TopicPartition

from cluster.killed_members import CONFLUENT, Members, acknowledgement, history_of
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.histories.deliveries import Delivery, End, Rules, check_deliveries
from protocol.share_members import QUICK_SHARES, SECONDS_MAX, poll_until, share_group, share_member
from protocol.test_cli import Cli
from protocol.topics import create_topic, wait_until

TOPIC, GROUP, PARTITIONS = "jobs", "workers", 2
RECORDS = 400
LOCK_S = 2.0
DELIVERIES_MAX = 10
ROUNDS = 4
SETTINGS = QUICK_SHARES | {
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "5000",
}

pytestmark = pytest.mark.xdist_group("queues-killed")


def produce(bootstrap: str, values: range) -> None:
    failed: list[object] = []
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    for value in values:
        producer.produce(
            TOPIC,
            str(value),
            partition=value % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert not failed


def everything(bootstrap: str) -> dict[tuple[str, int], int]:
    """The log, by place."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    found: dict[tuple[str, int], int] = {}
    try:
        consumer.assign([TopicPartition(TOPIC, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        wait_until(lambda: collected(consumer, found) == RECORDS, what="the whole log", seconds_max=SECONDS_MAX)
    finally:
        consumer.close()
    return found


def collected(consumer: Consumer, found: dict[tuple[str, int], int]) -> int:
    for message in consumer.consume(RECORDS, 0.2):
        if message.error() is None:
            found[str(message.partition()), message.offset()] = int(message.value())
    return len(found)


def lags(cli: Cli) -> list[int | None]:
    """By partition, the records that the group has not finished."""
    return [part["lag"] for part in cli.json("group", "describe", GROUP)["partitions"]]


def test_members_and_the_broker_are_killed_and_nothing_accepted_comes_again(tmp_path: Path) -> None:
    broker = PenstockProcess(settings=SETTINGS)
    try:
        broker.start()
        create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
        share_group(
            broker,
            GROUP,
            share_record_lock_duration_ms=str(int(LOCK_S * 1000)),
            share_delivery_count_limit=str(DELIVERIES_MAX),
        )
        members = Members(broker.bootstrap, GROUP, TOPIC, folder=tmp_path, clients=[CONFLUENT] * 3)
        chunk = RECORDS // ROUNDS
        for number in range(ROUNDS):
            produce(broker.bootstrap, range(number * chunk, (number + 1) * chunk))
            before = members.count("acknowledged")
            wait_until(
                lambda: members.count("acknowledged") > before + 1,  # noqa: B023
                what="acknowledgements",
                seconds_max=SECONDS_MAX,
            )
            members.kill(number % 3)
            if number % 2:
                broker.kill()
                broker.start()
        members.kill_all()
        history = history_of(members.logs)

        cli = Cli(broker.bootstrap)
        with share_member(broker, GROUP, TOPIC) as last:

            def decide(message: Message) -> AcknowledgeType:
                now = time.monotonic()
                history.delivered.append(
                    Delivery(
                        member="last",
                        key=str(message.partition()),
                        offset=message.offset(),
                        value=int(message.value()),
                        count=message.delivery_count(),
                        sent_at=started_at,
                        at=now,
                    )
                )
                place = str(message.partition()), message.offset()
                history.acknowledged.append(acknowledgement("last", place, "accept", now, None))
                return AcknowledgeType.ACCEPT

            started_at = time.monotonic()
            # The killed members hold partitions until their sessions end, and records until their locks do.
            poll_until(lambda: lags(cli) == [0] * PARTITIONS, last, what="every record finished", decide=decide)
        log = everything(broker.bootstrap)
    finally:
        broker.close()

    assert sorted(log.values()) == list(range(RECORDS))
    assert len(history.acknowledged) > RECORDS / 2
    assert check_deliveries(history, Rules(deliveries_max=DELIVERIES_MAX, lock_s=LOCK_S), End(log=log)) == ()
