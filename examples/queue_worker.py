"""A queue of jobs with confluent-kafka's share consumer: each job goes to one worker, which says what became of it.

    python examples/queue_worker.py [HOST:PORT]

A job that is done is accepted and never comes again. One that failed for a passing reason is released and comes again,
to any worker. One that can never succeed is rejected.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from where import bootstrap_servers

TOPIC = "jobs"
GROUP = "workers"
JOBS = [{"id": number, "do": "resize" if number % 5 else "explode"} for number in range(10)]
ATTEMPTS = 2
"""A job whose first attempt fails succeeds with so many."""


class TryLater(Exception):
    """The job may succeed another time."""


class NeverSucceeds(Exception):
    """The job must not be tried again."""


def set_up(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(TOPIC, num_partitions=2)])[TOPIC].result()
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    # A new share group reads what is produced from now on, unless it is told to begin with the oldest record.
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=[earliest])
    admin.incremental_alter_configs([group])[group].result()


def send(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for job in JOBS:
        producer.produce(TOPIC, json.dumps(job))
    producer.flush()


def work(job: dict[str, Any], attempt: int) -> None:
    if job["do"] == "explode":
        raise NeverSucceeds
    if job["id"] % 2 and attempt < ATTEMPTS:
        raise TryLater


def outcome_of(message: Message) -> AcknowledgeType:
    try:
        work(json.loads(message.value()), attempt=message.delivery_count())
    except TryLater:
        return AcknowledgeType.RELEASE
    except NeverSucceeds:
        return AcknowledgeType.REJECT
    return AcknowledgeType.ACCEPT


@contextmanager
def worker(bootstrap: str) -> Iterator[ShareConsumer]:
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([TOPIC])
        yield consumer


def run(bootstrap: str) -> tuple[int, int]:
    """Work until every job is accepted or rejected; returns how many of each."""
    counts = dict.fromkeys(AcknowledgeType, 0)
    with worker(bootstrap) as consumer:
        while counts[AcknowledgeType.ACCEPT] + counts[AcknowledgeType.REJECT] < len(JOBS):
            for message in consumer.poll(60):
                if message.error() is not None:
                    raise KafkaException(message.error())
                outcome = outcome_of(message)
                consumer.acknowledge(message, outcome)
                counts[outcome] += 1
            # Without a commit the acknowledgements go with the next poll.
            failed = [error for error in consumer.commit_sync(60).values() if error is not None]
            if failed:
                raise failed[0]
    return counts[AcknowledgeType.ACCEPT], counts[AcknowledgeType.REJECT]


if __name__ == "__main__":
    address = bootstrap_servers(*sys.argv[1:2])
    set_up(address)
    send(address)
    done, rejected = run(address)
    print(f"{done} jobs done, {rejected} rejected")
