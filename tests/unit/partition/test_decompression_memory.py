"""Small batches with very many records: the memory for reading one does not grow with them."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.partition.rig import NOW_MS, Rig, batch, topic

from penstock.coordinator.loading import RECORDS_AT_ONCE, SkippedBatches, event_slices
from penstock.model.batch import HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRecord, InvalidTimestamp
from penstock.partition.results import Appended
from penstock.partition.validation import RECORD_ERRORS_MAX
from penstock.wire import compression
from penstock.wire.decompression_budget import DecompressionBudget
from penstock.wire.record_columns import Columns
from penstock.wire.record_loops import Output
from penstock.wire.records import batch_keys, crc_of, filter_batch

RECORDS = 400_000
"""Each takes ten bytes in a batch, and hundreds as an object: together more than a hundred megabytes."""

MEMORY_BYTES_MAX = 24 << 20
"""Room for the decompressed batch and the test's own objects, but not for an object per record."""


def dense(*, base_timestamp: int = NOW_MS, key: bytes | None = b"k") -> bytearray:
    """A compressed batch of many tiny records, the last of them a second after the others."""
    output = Output()
    for index in range(RECORDS):
        output.add(1000 if index == RECORDS - 1 else 0, index, key, None, ())
    body = compression.compress(compression.ZSTD, output.body)
    header = BatchHeader(
        base_offset=0,
        length=HEADER_BYTES - PREFIX_BYTES + len(body),
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=compression.ZSTD,
        last_offset_delta=RECORDS - 1,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp + 1000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=RECORDS,
    )
    data = bytearray(HEADER.pack(*header)) + body
    HEADER.pack_into(data, 0, *header._replace(crc=crc_of(data, 0, len(data))))
    return data


@contextmanager
def little_memory() -> Generator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES_MAX, f"{peak >> 20} MB"


def test_a_search_by_time_keeps_no_records() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, dense())
    view = replica.log.view()

    with little_memory():
        found = view.offset_for_time(NOW_MS + 1)
        newest = view.max_timestamp()

    assert found == newest
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 1000, RECORDS - 1)


def test_a_search_by_time_holds_budget_and_releases_it() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, dense())
    held: list[int] = []

    class Watched(DecompressionBudget):
        @contextmanager
        def hold(self, size: int) -> Generator[None]:
            with super().hold(size):
                held.append(self.held_bytes)
                yield

    budget = Watched(1 << 30)
    replica.log.view().offset_for_time(NOW_MS, budget)

    assert len(held) == 1
    assert held[0] > 0
    assert budget.held_bytes == 0


def test_the_keys_of_a_batch_are_not_all_in_memory_at_once() -> None:
    data = dense()
    with little_memory():
        assert sum(1 for _ in batch_keys(data)) == RECORDS
        keep = [False] * RECORDS
        keep[7] = True
        assert len(filter_batch(data, keep)) < 200


@pytest.mark.parametrize(
    ("configs", "data", "error"),
    [
        ({"message.timestamp.before.max.ms": "1000"}, lambda: dense(base_timestamp=NOW_MS - 5000), InvalidTimestamp),
        ({"cleanup.policy": "compact"}, lambda: dense(key=None), InvalidRecord),
    ],
    ids=["timestamps", "keys"],
)
def test_a_refusal_lists_a_bounded_number_of_records(
    configs: dict[str, str], data: Callable[[], bytearray], error: type[BrokerError]
) -> None:
    rig = Rig(topic(configs=configs))
    replica = rig.replica()
    bad = data()
    with little_memory(), pytest.raises(error) as caught:
        finish(replica.append(memoryview(bad), rig.clock.ms))
    assert len(caught.value.record_errors or ()) == RECORD_ERRORS_MAX
    assert rig.replicas.decompression.held_bytes == 0


class CountingReader:
    """Makes an event of each record's offset, and records how many it gets at once."""

    unreadable = 0

    def __init__(self) -> None:
        self.at_once: list[int] = []

    def read(self, columns: Columns) -> list[Any]:
        self.at_once.append(len(columns))
        return list(columns.offsets)

    def read_transactional(self, header: BatchHeader, batch: bytes) -> list[Any]:
        return [("transactional", header.base_offset)]


def test_a_coordinator_loads_a_dense_batch_a_part_at_a_time() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    small = [batch(b"a", b"b"), dense(), batch(b"c"), batch(b"d", producer_id=7, is_transactional=True), batch(b"e")]
    for data in small:
        rig.append(replica, data, verify_txn=lambda *_: False)
    reader = CountingReader()

    slices = list(event_slices(replica.log.view(), reader, SkippedBatches()))

    after = 2 + RECORDS
    expected = [*range(after + 1), ("transactional", after + 1), after + 2]
    assert [event for events in slices for event in events] == expected
    assert max(reader.at_once) == max(map(len, slices)) == RECORDS_AT_ONCE


def test_validation_off_the_loop_waits_for_memory() -> None:
    rig = Rig(topic(configs={"compressed.check": "records"}))
    replica, budget = rig.replica(), rig.replicas.decompression
    data = dense()

    with budget.hold(budget.bytes_max):
        validating = threading.Thread(target=finish, args=(replica.append(memoryview(data), rig.clock.ms),))
        validating.start()
        while not budget.waiting:
            assert validating.is_alive()
        assert replica.offsets.log_end == 0
    validating.join(60)

    assert replica.offsets.log_end == RECORDS
    assert (budget.held_bytes, budget.waiting) == (0, 0)


def finish(work: Appended | Coroutine[Any, Any, Appended]) -> None:
    assert not isinstance(work, Appended), "too heavy for the loop"

    async def run() -> None:
        await work

    asyncio.run(run())
