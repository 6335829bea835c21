"""Clients that speak as they did years ago: older versions of every request, without asking what is served."""

from __future__ import annotations

import gc
import subprocess
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from protocol.topics import fresh_name

TIMEOUT = 60.0
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def sockets_that_are_forgotten_are_collected_here() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.mark.parametrize("version", [(2, 1), (2, 3), (2, 6), (3, 0), (3, 9)], ids=str)
def test_kafka_python_as_for_an_older_broker(broker: Any, topic: str, version: tuple[int, int]) -> None:
    values = [b"%d" % number for number in range(50)]
    asked = {"bootstrap_servers": broker.bootstrap, "api_version": version}

    with KafkaProducer(**asked, compression_type="gzip") as producer:
        sent = [producer.send(topic, value, partition=0, headers=[("h", b"v")]) for value in values]
        assert [future.get(TIMEOUT).offset for future in sent] == list(range(50))
    with KafkaConsumer(**asked, auto_offset_reset="earliest", consumer_timeout_ms=int(TIMEOUT * 1000)) as consumer:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        taken = [next(consumer) for _ in values]
    assert [(record.value, list(record.headers)) for record in taken] == [(value, [("h", b"v")]) for value in values]


@pytest.mark.parametrize("version", [(2, 1), (2, 4), (3, 0)], ids=str)
def test_kafka_pythons_admin_as_for_an_older_broker(broker: Any, request: Any, version: tuple[int, int]) -> None:
    name = fresh_name(request.node.name)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap, api_version=version) as admin:
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
        assert name in admin.list_topics()
        admin.delete_topics([name])


def test_librdkafka_that_does_not_ask_for_versions(broker: Any, topic: str) -> None:
    old = {"bootstrap.servers": broker.bootstrap, "api.version.request": False, "broker.version.fallback": "0.11.0.0"}
    producer = Producer({**old, "compression.type": "lz4"})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=0, headers={"h": b"v"})
    assert producer.flush(TIMEOUT) == 0

    consumer = Consumer({**old, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        messages = [consumer.poll(TIMEOUT) for _ in range(20)]
    finally:
        consumer.close()
    assert [message.value() for message in messages] == [b"%d" % number for number in range(20)]
    assert messages[0].headers() == [("h", b"v")]


@pytest.mark.needs("kcat")
def test_kcat_that_does_not_ask_for_versions(broker: Any, topic: str) -> None:
    old = ["kcat", "-b", broker.bootstrap, "-X", "api.version.request=false", "-X", "broker.version.fallback=0.11.0.0"]

    subprocess.run([*old, "-P", "-t", topic, "-p", "0"], input=b"a\nb\n", timeout=TIMEOUT, check=True)

    read = [*old, "-C", "-t", topic, "-p", "0", "-e", "-q"]
    assert subprocess.run(read, capture_output=True, timeout=TIMEOUT, check=True).stdout == b"a\nb\n"
