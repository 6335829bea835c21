"""A disk with partitions of the coordinators' topics is missing: their ids wait for it, and all others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.group_wire import GroupWire
from bench.transactions import await_coordinator

from cluster.test_disk_trouble import folders_by_partition, running
from penstock.coordinator.runtime import partition_of
from penstock.testing.broker_process import PenstockProcess
from penstock.wire.api import (
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
)
from protocol.raw import NONE, Wire
from protocol.topics import create_topic, fresh_name, wait_until

pytestmark = pytest.mark.penstock_only
STATE = "__transaction_state"
PARTITIONS = 4
KEY_TRANSACTION = 1
FIND, INIT, ADD, END, LIST, DESCRIBE = 4, 4, 3, 3, 1, 0
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
TIMEOUT_MS = 900_000
"""The longest that a broker allows by default."""


def names_in(placed: dict[tuple[str, int], str], folder: Path) -> Iterator[str]:
    """Transactional ids whose partition is in a folder."""
    while True:
        name = fresh_name("t")
        if placed[STATE, partition_of(name, PARTITIONS)] == str(folder):
            yield name


async def send(bootstrap: str, api: Any, version: int, request: Any) -> Any:
    wire = await GroupWire.open(bootstrap)
    try:
        return await wire.call(api, version, request)
    finally:
        await wire.close()


def ask(broker: PenstockProcess, api: Any, version: int, request: Any) -> Any:
    return asyncio.run(send(broker.bootstrap, api, version, request))


def find_code(broker: PenstockProcess, name: str) -> int:
    request = find_coordinator.Request(key_type=KEY_TRANSACTION, coordinator_keys=[name])
    return int(ask(broker, find_coordinator, FIND, request).coordinators[0].error_code)


def init_request(name: str) -> init_producer_id.Request:
    return init_producer_id.Request(
        transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )


def init_code(broker: PenstockProcess, name: str) -> int:
    return int(ask(broker, init_producer_id, INIT, init_request(name)).error_code)


def described(broker: PenstockProcess, name: str) -> Any:
    request = describe_transactions.Request(transactional_ids=[name])
    return ask(broker, describe_transactions, DESCRIBE, request).transaction_states[0]


def listed(broker: PenstockProcess) -> set[str]:
    response = ask(broker, list_transactions, LIST, list_transactions.Request(duration_filter=-1))
    assert response.error_code in (NONE, COORDINATOR_LOAD_IN_PROGRESS)
    return {state.transactional_id for state in response.transaction_states}


def open_transaction(broker: PenstockProcess, topic: str, name: str) -> tuple[int, int]:
    """Begin a transaction that times out long after the test; returns the producer's id and epoch."""
    made = ask(broker, init_producer_id, INIT, init_request(name))
    partitions = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    request = add_partitions_to_txn.Request(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=partitions,
    )
    response = ask(broker, add_partitions_to_txn, ADD, request)
    (result,) = response.results_by_topic_v3_and_below[0].results_by_partition
    assert (made.error_code, result.partition_error_code) == (NONE, NONE)
    return made.producer_id, made.producer_epoch


def test_ids_on_a_missing_disk_wait_for_it_and_all_others_are_served(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    with running(good, bad, transaction_state_log_num_partitions=str(PARTITIONS)) as broker:
        create_topic(broker.bootstrap, "t")
        asyncio.run(await_coordinator(broker.bootstrap))
        with Wire(broker.bootstrap) as wire:
            placed = folders_by_partition(wire)
        missing, here = next(names_in(placed, bad)), next(names_in(placed, good))
        producer_id, epoch = open_transaction(broker, "t", missing)
        # A partition that was never written has no folder yet, and might get the one that will be missing.
        wait_until(lambda: init_code(broker, here) == NONE, what="an id on the good disk")
        broker.stop()

        # A file in its place: the broker can neither read nor create the folder.
        bad.rename(tmp_path / "aside")
        bad.write_bytes(b"")
        broker.start()

        assert find_code(broker, missing) == COORDINATOR_NOT_AVAILABLE
        assert init_code(broker, missing) == NOT_COORDINATOR
        assert described(broker, missing).error_code == NOT_COORDINATOR
        assert find_code(broker, here) == NONE
        wait_until(lambda: init_code(broker, here) == NONE, what="an id on the good disk")
        wait_until(lambda: listed(broker) >= {here}, what="a list of what is here")
        broker.stop()

        bad.unlink()
        (tmp_path / "aside").rename(bad)
        broker.start()
        wait_until(lambda: described(broker, missing).error_code == NONE, what="the id's coordinator")
        assert described(broker, missing).transaction_state == "Ongoing"
        request = end_txn.Request(
            transactional_id=missing, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        assert ask(broker, end_txn, END, request).error_code == NONE
        wait_until(lambda: described(broker, missing).transaction_state == "CompleteCommit", what="the commit")
