"""Logs whose metadata is lost are never removed: they are set aside, and an operator can adopt them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.model.generated_errors import KafkaStorageError
from penstock.storage.directories import read_properties
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK, free_port
from protocol.batches import batch
from protocol.raw import Wire
from protocol.topics import create_topic, wait_until

pytestmark = pytest.mark.penstock_only
TIMEOUT = 120.0
SOON = {"file.delete.delay.ms": "0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PenstockProcess]:
    with PenstockProcess(data=tmp_path / "data") as started:
        yield started


def penstock(*arguments: str, status: int = 0) -> str:
    """Run a command of the CLI; returns its output."""
    command = [sys.executable, "-c", "from penstock.cli.main import run; run()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout if status == 0 else done.stderr


def start_refused(data: Path) -> str:
    command = [sys.executable, "-m", "penstock.broker", "--listen", f"{LOOPBACK}:{free_port()}", "--data", str(data)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


def produce(broker: PenstockProcess, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT) == 0


def consumed(broker: PenstockProcess, topic: str, count: int, partitions: int = 1) -> list[bytes]:
    """The values of a topic, read by a new consumer."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[bytes] = []

    def all_read() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        return len(found) >= count

    try:
        wait_until(all_read, what=f"{count} records of {topic}", seconds_max=TIMEOUT)
    finally:
        consumer.close()
    return found


def remove_metadata(data: Path) -> None:
    for file in data.glob("metadata.sqlite*"):
        file.unlink()


def files_of(data: Path) -> set[str]:
    return {str(path.relative_to(data)) for path in data.rglob("*")}


def cluster_id_of(data: Path) -> str:
    return read_properties((data / "meta.properties").read_bytes())["cluster.id"]


def strays(data: Path) -> list[str]:
    return sorted(path.name for path in data.glob("*-stray"))


def removed_records(broker: PenstockProcess) -> None:
    """Wait until the broker has emptied its trash: delete a topic and wait until its files are removed."""
    create_topic(broker.bootstrap, "bin", configs=SOON)
    produce(broker, "bin", [b"x"])
    penstock("topic", "delete", "bin", "--yes", "-b", broker.bootstrap)
    wait_until(lambda: not list(broker.data.glob("bin-0*")), what="emptied trash", seconds_max=TIMEOUT)


VALUES = [b"%d" % number for number in range(500)]


def test_a_start_without_its_metadata_is_refused_and_stores_nothing(broker: PenstockProcess) -> None:
    create_topic(broker.bootstrap, "orders")
    produce(broker, "orders", VALUES)
    broker.stop()
    remove_metadata(broker.data)
    before = files_of(broker.data)

    message = start_refused(broker.data)

    assert cluster_id_of(broker.data) in message
    assert "metadata.sqlite" in message
    assert files_of(broker.data) == before


def test_records_survive_the_loss_of_the_metadata_and_a_topic_of_their_name(
    broker: PenstockProcess, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, "orders", partitions=2, configs=SOON)
    produce(broker, "orders", VALUES)
    produce(broker, "orders", VALUES, partition=1)
    broker.stop()
    remove_metadata(broker.data)
    with PenstockProcess(data=broker.data, settings={"cluster.id": cluster_id_of(broker.data)}) as again:
        produce(again, "orders", [b"new"])
        removed_records(again)
        assert len(strays(again.data)) == 2
        again.stop()

    listed = json.loads(penstock("log", "adopt", "--data", str(broker.data), "-o", "json"))
    assert [(row["topic"], row["partition"]) for row in listed] == [("orders", 0), ("orders", 1)]
    refused = penstock("log", "adopt", "orders", "--data", str(broker.data), status=1)
    assert "--as" in refused
    penstock("log", "adopt", "orders", "--as", "orders-before", "--data", str(broker.data))

    broker.start()
    assert sorted(consumed(broker, "orders-before", 1000, 2)) == sorted(VALUES * 2)
    assert consumed(broker, "orders", 1) == [b"new"]
    assert strays(broker.data) == []
    produce(broker, "orders-before", [b"goes on"])
    broker.kill()
    broker.start()
    assert sorted(consumed(broker, "orders-before", 1001, 2)) == sorted([*VALUES * 2, b"goes on"])


def test_logs_are_adopted_before_a_broker_starts_without_its_metadata(broker: PenstockProcess) -> None:
    create_topic(broker.bootstrap, "orders")
    produce(broker, "orders", VALUES)
    assert consumed(broker, "orders", 500) == VALUES
    commit(broker, "orders", 300)
    broker.kill()
    remove_metadata(broker.data)

    penstock("log", "adopt", "orders", "--data", str(broker.data))
    refused = penstock("log", "adopt", "__consumer_offsets", "--data", str(broker.data), status=1)
    assert "offsets.topic.num.partitions" in refused
    penstock("log", "adopt", "__consumer_offsets", "--partitions", "50", "--data", str(broker.data))

    broker.start()
    assert consumed(broker, "orders", 500) == VALUES
    assert committed(broker, "orders") == 300
    assert describe(broker, "orders")["retention.ms"] == "-1"


def test_a_restored_copy_of_the_metadata_restores_its_logs(broker: PenstockProcess, tmp_path: Path) -> None:
    create_topic(broker.bootstrap, "orders")
    produce(broker, "orders", VALUES)
    broker.stop()
    shutil.copy(broker.data / "metadata.sqlite", tmp_path / "copy.sqlite")
    remove_metadata(broker.data)
    with PenstockProcess(data=broker.data, settings={"cluster.id": cluster_id_of(broker.data)}) as again:
        produce(again, "orders", [b"new"])
        again.stop()
    remove_metadata(broker.data)
    shutil.copy(tmp_path / "copy.sqlite", broker.data / "metadata.sqlite")

    broker.start()

    assert consumed(broker, "orders", 500) == VALUES
    assert len(strays(broker.data)) == 1


def test_a_broker_that_is_alone_goes_on_with_an_older_copy_of_its_metadata(
    broker: PenstockProcess, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, "orders")
    broker.stop()
    shutil.copy(broker.data / "metadata.sqlite", tmp_path / "copy.sqlite")
    for _ in range(2):
        broker.start()
        broker.kill()
    broker.start()
    produce(broker, "orders", VALUES)
    broker.stop()
    remove_metadata(broker.data)
    shutil.copy(tmp_path / "copy.sqlite", broker.data / "metadata.sqlite")

    broker.start()
    produce(broker, "orders", [b"later"])

    assert consumed(broker, "orders", 501) == [*VALUES, b"later"]


def test_a_deleted_topic_is_removed_from_the_disk_even_if_the_broker_is_killed(broker: PenstockProcess) -> None:
    create_topic(broker.bootstrap, "orders", partitions=3, configs=SOON)
    for partition in range(3):
        produce(broker, "orders", VALUES, partition)

    penstock("topic", "delete", "orders", "--yes", "-b", broker.bootstrap)
    broker.kill()
    broker.start()

    wait_until(lambda: not list(broker.data.glob("orders-*")), what="deleted files", seconds_max=TIMEOUT)


def test_a_segment_missing_after_a_clean_stop_affects_only_its_partition_and_no_offset_is_reused(
    broker: PenstockProcess,
) -> None:
    create_topic(broker.bootstrap, "orders", configs={"segment.bytes": str(1 << 20)})
    create_topic(broker.bootstrap, "other")
    for number in range(4):
        produce(broker, "orders", [b"%d" % number * 400_000])
    produce(broker, "other", VALUES)
    broker.stop()
    partition = broker.data / "orders-0"
    newest = max(partition.glob("*.log"))
    assert int(newest.stem) == 2
    newest.unlink()
    assert newest.name in penstock("log", "verify", str(broker.data), status=1)

    broker.start()
    assert consumed(broker, "other", 500) == VALUES
    with Wire(broker.bootstrap) as wire:
        assert wire.produce("orders", batch(values=[b"x"])).error_code == KafkaStorageError.code
    broker.kill()
    broker.start()
    assert consumed(broker, "other", 500) == VALUES
    broker.stop()

    penstock("log", "accept-loss", str(partition), "--yes")
    broker.start()
    produce(broker, "orders", [b"next"])
    assert [value[:4] for value in consumed(broker, "orders", 3)] == [b"0000", b"1111", b"next"]
    broker.stop()
    assert penstock("log", "dump", str(max(partition.glob("*.log"))), "-o", "json").count('"base_offset": 4') == 1


def commit(broker: PenstockProcess, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: PenstockProcess, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT)
    consumer.close()
    return found.offset


def describe(broker: PenstockProcess, topic: str) -> dict[str, Any]:
    rows = json.loads(penstock("config", "describe", "topic", topic, "-b", broker.bootstrap, "-o", "json"))
    return {row["key"]: row["value"] for row in rows}
