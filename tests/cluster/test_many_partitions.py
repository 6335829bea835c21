"""Ten thousand partitions in one broker: created, written, read, restarted, within bounded memory and descriptors."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.testing.processes import usage
from protocol.batches import batch, records_of
from protocol.raw import NONE, Wire, produce_request
from protocol.topics import create_topic

pytestmark = pytest.mark.penstock_only
TOPICS = 10
PARTITIONS = 1000
RESIDENT_BYTES_MAX = 400 << 20
STEP = 7
"""One of so many partitions is written: enough to exceed the number of files that are kept open."""


@pytest.mark.slow
def test_ten_thousand_partitions_are_served_and_survive_a_kill_and_a_stop(start_broker: Any) -> None:
    broker = start_broker({"log.files.open.max": "500"})
    names = [f"wide-{number}" for number in range(TOPICS)]
    for name in names:
        create_topic(broker.bootstrap, name, partitions=PARTITIONS)
    with Wire(broker.bootstrap) as wire:
        for name in names:
            for partition in range(0, PARTITIONS, STEP):
                written = wire.produce(name, batch(values=[b"%d" % partition]), partition=partition)
                assert written.error_code == NONE

    for comeback in (None, broker.kill, broker.stop):
        if comeback is not None:
            comeback()
            broker.start()
        check_all(broker, names)
        assert usage(broker.pid).resident_bytes < RESIDENT_BYTES_MAX
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) < 1000


def check_all(broker: Any, names: list[str]) -> None:
    with Wire(broker.bootstrap) as wire:
        for name in names:
            for partition in range(0, PARTITIONS, STEP):
                found = records_of(wire.fetch(name, partition=partition).records)
                assert found == [(0, None, b"%d" % partition)], f"{name}-{partition}"
            assert wire.offset(name, partition=PARTITIONS - 1) == 0


def test_a_paused_broker_is_waited_for(start_broker: Any) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap, "t")
    with Wire(broker.bootstrap) as wire:
        assert wire.produce("t", batch(values=[b"before"])).error_code == NONE
        broker.pause()
        with Wire(broker.bootstrap) as other:
            other.send(produce_request("t", batch(values=[b"during"])))
            broker.resume()
            other.receive()
        assert wire.offset("t") == 2
