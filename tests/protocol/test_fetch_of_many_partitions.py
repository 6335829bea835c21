"""A Fetch of so many partitions that its response is made in slices and sent in several system calls."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.batches import batch, records_of
from protocol.raw import NONE, Wire, fetch_request
from protocol.topics import create_topic, fresh_name

PARTITIONS = 520
COUNTS = (199, 200, 201, 249, 250, 251, 252, 255, 256, 257, 300, 511, 512, 513, PARTITIONS)
"""Around the sizes of a slice and of a system call, with two pieces for each partition and one for all."""


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    name = fresh_name("many")
    create_topic(broker.bootstrap, name, partitions=PARTITIONS)
    with Wire(broker.bootstrap) as wire:
        for partition in range(PARTITIONS):
            assert wire.produce(name, batch(values=[b"of %d" % partition]), partition=partition).error_code == NONE
    return name


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_of_any_number_of_partitions_returns_all(broker: Any, topic: str, version: int) -> None:
    with Wire(broker.bootstrap) as wire:
        for count in COUNTS:
            positions = [(topic, partition, 0) for partition in range(count)]

            topics = wire.ask(fetch_request(positions, version=version)).responses

            read = {
                partition.partition_index: records_of(partition.records)
                for response in topics
                for partition in response.partitions
            }
            assert read == {partition: [(0, None, b"of %d" % partition)] for partition in range(count)}
