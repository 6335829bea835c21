"""`penstock metadata`: brokers that go on with all their data after their metadata was moved to another store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from cluster import numbers
from cluster.several import PATIENCE_S, Several
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import ProcessFailed
from penstock.testing.zookeeper import ZooKeeper
from protocol.batches import batch
from protocol.raw import NONE, Wire
from protocol.topics import create_topic, wait_until

pytestmark = pytest.mark.penstock_only
QUIET = {"metrics.listener": ""}


def penstock(*arguments: object, status: int = 0) -> Any:
    """Run a command; its JSON, or its standard error if it is to fail."""
    command = [sys.executable, "-c", "from penstock.cli.main import run; run()", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout) if status == 0 else done.stderr


def write(broker: PenstockProcess, topic: str = "t") -> None:
    """A topic with a record, and a group that has read it."""
    create_topic(broker.bootstrap, topic, configs={"retention.ms": "123456789"})
    with Wire(broker.bootstrap) as wire:
        assert wire.produce(topic, batch(values=[b"x"])).error_code == NONE
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()


def check(broker: PenstockProcess, topic: str = "t", *, records: int = 1) -> None:
    """The records and the committed offset are there, and more can be written."""
    with Wire(broker.bootstrap) as wire:
        wait_until(lambda: wire.listed(topic).error_code == NONE, what=f"leader of {topic}")
        assert wire.listed(topic).offset == records
        assert wire.produce(topic, batch(values=[b"y"])).error_code == NONE
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    [committed] = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    consumer.close()
    assert committed.offset == 1
    assert "123456789" in broker_settings(broker, topic)


def broker_settings(broker: PenstockProcess, topic: str) -> str:
    return json.dumps(penstock("topic", "describe", topic, "-b", broker.bootstrap, "-o", "json"))


def test_a_broker_goes_on_after_its_metadata_was_exported_and_imported(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "metadata.export"
    with PenstockProcess(data=data, settings=QUIET) as broker:
        write(broker)
        assert "in use" in penstock("metadata", "export", file, "--data", data, status=1)
        assert not file.exists()
        broker.stop()

        exported = penstock("metadata", "export", file, "--data", data, "-o", "json")
        assert exported["topics"] == 2
        assert exported["running"] == []
        assert "--force" in penstock("metadata", "export", file, "--data", data, status=1)
        refused = penstock("metadata", "import", file, "--data", data, status=1)
        assert "this cluster already" in refused
        (data / "metadata.sqlite").rename(tmp_path / "old.sqlite")
        imported = penstock("metadata", "import", file, "--data", data, "-o", "json")
        assert imported["epochs_raised_by"] >= 1_000
        assert imported["cluster_id"] == exported["cluster_id"]
        broker.start()
        check(broker)
        broker.stop()

        # The former store lacks what was done since.
        (data / "metadata.sqlite").unlink()
        (tmp_path / "old.sqlite").rename(data / "metadata.sqlite")
        with pytest.raises(ProcessFailed, match="another metadata store"):
            broker.start()


def test_a_backup_is_made_of_running_brokers_and_its_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "metadata.export"
    with Several(2, tmp_path / "data") as brokers:
        penstock("topic", "create", "t", "-b", brokers.bootstrap, "-o", "json")
        exported = penstock("metadata", "export", file, "--data", brokers.data, "-o", "json")
        assert exported["running"] == [1, 2]
        assert exported["topics"] == 1
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_logs_of_another_cluster_and_missing_stores_are_refused_in_words(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "metadata.export"
    with PenstockProcess(data=data, settings=QUIET):
        pass
    penstock("metadata", "export", file, "--data", data, "-o", "json")
    with PenstockProcess(data=tmp_path / "other", settings=QUIET):
        pass
    (tmp_path / "other" / "metadata.sqlite").unlink()

    assert "logs of cluster" in penstock("metadata", "import", file, "--data", tmp_path / "other", status=1)
    assert "there is no" in penstock("metadata", "export", tmp_path / "x", "--data", tmp_path / "none", status=1)
    file.write_bytes(file.read_bytes()[:-100])
    assert "cut short" in penstock("metadata", "import", file, "--data", tmp_path / "new", status=1)
    assert not (tmp_path / "new").exists()


def test_one_broker_becomes_a_member_of_a_cluster_in_zookeeper_and_is_alone_again(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "metadata.export"
    with PenstockProcess(data=data, settings=QUIET) as broker:
        write(broker)
    penstock("metadata", "export", file, "--data", data, "-o", "json")
    with ZooKeeper() as zookeeper:
        where = f"{zookeeper.connect}/penstock"
        penstock("metadata", "import", file, "--zookeeper", where, "-o", "json")
        assert "already" in penstock("metadata", "import", file, "--zookeeper", where, status=1)
        settings = {**QUIET, "zookeeper.connect": where}
        with PenstockProcess(data=data, settings=settings) as broker:
            check(broker)
            second = PenstockProcess(data=tmp_path / "second", settings={**settings, "node.id": "2"})
            with second:
                wait_until(lambda: members(broker) == {1, 2}, what="second broker", seconds_max=PATIENCE_S)
            backup = tmp_path / "backup.export"
            assert penstock("metadata", "export", backup, "--zookeeper", where, "-o", "json")["running"] == [1]
        back = tmp_path / "back.export"
        assert penstock("metadata", "export", back, "--zookeeper", where, "-o", "json")["running"] == []
    with pytest.raises(ProcessFailed, match="another metadata store"):
        PenstockProcess(data=data, settings=QUIET).start()
    (data / "metadata.sqlite").unlink()
    penstock("metadata", "import", back, "--data", data, "-o", "json")
    with PenstockProcess(data=data, settings=QUIET) as broker:
        check(broker, records=2)


def test_replicas_on_one_host_move_to_zookeeper_without_leaving_the_isr(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "metadata.export"
    with Several(2, data) as brokers:
        brokers.wait_for_members({1, 2})
        numbers.create(brokers.bootstraps, "t", 2)
        numbers.write(numbers.producer_of(brokers.bootstraps), "t", range(400))
        brokers.wait_for_isr("t", {1, 2})
    penstock("metadata", "export", file, "--data", data, "-o", "json")
    with ZooKeeper() as zookeeper:
        where = f"{zookeeper.connect}/penstock"
        penstock("metadata", "import", file, "--zookeeper", where, "-o", "json")
        with Several(2, data, settings={"zookeeper.connect": where}) as brokers:
            brokers.wait_for_members({1, 2})
            brokers.wait_for_isr("t", {1, 2})
            numbers.write(numbers.producer_of(brokers.bootstraps), "t", range(400, 800))
            assert numbers.read(brokers.bootstraps, "t", 800) == list(range(800))
            assert not brokers.events("election_may_have_lost_records")


def test_an_older_backup_is_not_believed_and_what_was_acknowledged_since_is_kept(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "metadata.export"
    with Several(2, data) as brokers:
        brokers.wait_for_members({1, 2})
        numbers.create(brokers.bootstraps, "t", 2)
        producer = numbers.producer_of(brokers.bootstraps)
        numbers.write(producer, "t", range(200))
        penstock("metadata", "export", file, "--data", data, "-o", "json")
        # Elections and epochs that the backup does not have.
        brokers.restart()
        brokers.wait_for_members({1, 2})
        numbers.write(producer, "t", range(200, 400))
        brokers.stop()
        (data / "metadata.sqlite").unlink()
        penstock("metadata", "import", file, "--data", data, "-o", "json")
        brokers.start()
        brokers.wait_for_isr("t", {1, 2})
        numbers.write(numbers.producer_of(brokers.bootstraps), "t", range(400, 600))
        assert numbers.read(brokers.bootstraps, "t", 600) == list(range(600))
        # Who had everything was found out by asking, which is reported.
        assert brokers.events("election_may_have_lost_records")


def members(broker: PenstockProcess) -> set[int]:
    found = penstock("cluster", "info", "-b", broker.bootstrap, "-o", "json")
    return {each["broker"] for each in found["brokers"]}
