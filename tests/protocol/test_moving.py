"""A partition is moved to another log directory while clients use it, with kafka-python's admin client."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient

from penstock.testing.broker_process import PenstockProcess
from protocol.clients.confluent import Confluent
from protocol.topics import wait_until

MESSAGES = 3_000
PATIENCE_S = 90.0


def holders(bootstrap: str, topic: str) -> list[str]:
    """Directories that hold the topic's partition for good."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        return [
            directory["log_dir"]
            for response in admin.describe_log_dirs()
            for directory in response["log_dirs"]
            for held in directory["topics"]
            if held["name"] == topic and not any(part["is_future_key"] for part in held["partitions"])
        ]


def read_all(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in Confluent(bootstrap).consume(topic, MESSAGES)]


def test_a_partition_moves_between_directories_while_it_is_written_and_survives_a_crash(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    settings = {"log.dirs": f"{first},{second}"}
    with PenstockProcess(settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        values = [b"%d" % number + b"x" * 1_000 for number in range(MESSAGES)]
        for value in values[:1_000]:
            producer.produce("moved", value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        (home,) = holders(broker.bootstrap, "moved")
        target = str(second if home == str(first) else first)

        with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
            admin.alter_replica_log_dirs({("moved", 0, 1): target})
        for value in values[1_000:]:
            producer.produce("moved", value, partition=0)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        wait_until(lambda: holders(broker.bootstrap, "moved") == [target], what="the move", seconds_max=PATIENCE_S)

        assert read_all(broker.bootstrap, "moved") == values
        broker.kill()
        broker.start()
        assert read_all(broker.bootstrap, "moved") == values
        assert holders(broker.bootstrap, "moved") == [target]
