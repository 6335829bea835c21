"""Removes records with a known message id from the batches that a leader appends (`dedupe.window.records`).

The window is kept while this broker leads. Its first use after that begins reads it from the end of the log, in a
thread; batches with ids wait meanwhile.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from penstock.model.batch import CODEC_MASK, HEADER, TRANSACTIONAL_FLAG, BatchHeader
from penstock.model.ids import OFFSET_ZERO, Offset
from penstock.partition.message_ids import ID_HEADER, IdWindow, MessageIds
from penstock.partition.validation import LIGHT_RECORDS_BYTES_MAX, RECORDS_BYTES_MAX, RECORDS_RATIO_USUAL
from penstock.storage.view import LogChanged, LogView
from penstock.wire.compression import NONE, UnsupportedCompression
from penstock.wire.decompression_budget import DecompressionBudget
from penstock.wire.primitives import Malformed
from penstock.wire.records import filter_batch, header_values

if TYPE_CHECKING:
    from penstock.storage.log import Log

LOADS_MAX = 10
"""How often a window is read again because files of the log changed meanwhile."""


class Deduplication:
    """The window of one partition, and the way to it."""

    __slots__ = ("_budget", "_loading", "_threads", "records", "removed", "window")

    def __init__(self, records: int, threads: Executor, budget: DecompressionBudget) -> None:
        self.records = records
        self.window: IdWindow | None = None
        """None until it is loaded, or while this broker does not lead."""
        self.removed = 0
        """Records removed since the replica was opened."""
        self._threads = threads
        self._budget = budget
        self._loading: asyncio.Future[IdWindow] | None = None

    def forget(self) -> None:
        """This broker leads no more: others append, and their ids are read when it leads again."""
        self.window = self._loading = None

    async def load(self, log: Log) -> None:
        """Read the window from the log; concurrent calls share one reading. It may be forgotten again meanwhile."""
        for attempt in range(LOADS_MAX):
            loading = self._loading
            if loading is None:
                work = partial(read_window, log.view(), self.records, self._budget)
                loading = self._loading = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                window = await asyncio.shield(loading)
            except LogChanged:
                if self._loading is loading:
                    self._loading = None
                if attempt == LOADS_MAX - 1:
                    raise
                continue
            except Exception as error:
                if self._loading is loading:
                    self._loading = None
                if isinstance(error, OSError):
                    raise log.failed(error, f"reading the message ids of {log.tp}") from error
                raise
            if self._loading is loading:
                self.window, self._loading = window, None
            return

    def repeated(self, ids: MessageIds, log: Log) -> frozenset[int]:
        """Which records of a batch, that would be appended now, have a known id. The window must be loaded."""
        assert self.window is not None, f"{log.tp}: the window of ids is not loaded"
        return self.window.repeated(ids, log.log_end, log_floor(log))

    def appended(self, ids: MessageIds, base: Offset, log: Log, without: frozenset[int]) -> None:
        """Add a batch that has just been appended."""
        assert self.window is not None, f"{log.tp}: the window of ids is not loaded"
        self.window.add(ids, base, log_floor(log), without)
        self.removed += len(without)

    def ids_within(self, batch: memoryview, header: BatchHeader) -> MessageIds:
        """The ids of a batch, read in a thread within the memory budget."""
        return ids_within(self._budget, batch, header)

    async def filtered(self, batch: memoryview, header: BatchHeader, repeated: frozenset[int]) -> memoryview:
        """The batch without repeated records, made in a thread: it may have to be compressed again."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: without_records(batch, header, repeated)
        )


def log_floor(log: Log) -> Offset:
    """The first offset in the log's files, which may be below the log start."""
    return log.segments[0].base if log.segments else OFFSET_ZERO


def ids_of(batch: memoryview) -> MessageIds:
    """The ids of a batch that is light enough to be decompressed on the loop."""
    return header_values(batch, ID_HEADER, RECORDS_BYTES_MAX)


def ids_within(budget: DecompressionBudget, batch: memoryview, header: BatchHeader) -> MessageIds:
    if header.attributes & CODEC_MASK == NONE:
        return header_values(batch, ID_HEADER)
    usual = min(max(LIGHT_RECORDS_BYTES_MAX, RECORDS_RATIO_USUAL * len(batch)), RECORDS_BYTES_MAX)
    with budget.hold(usual):
        try:
            return header_values(batch, ID_HEADER, usual)
        except Malformed:
            pass
    with budget.hold(RECORDS_BYTES_MAX):
        return header_values(batch, ID_HEADER, RECORDS_BYTES_MAX)


def without_records(batch: memoryview, header: BatchHeader, repeated: frozenset[int]) -> memoryview:
    """The batch without some records; offsets, producer and sequences stay, also of a batch that is left empty."""
    keep = [delta not in repeated for delta in range(header.record_count)]
    return memoryview(filter_batch(batch, keep, limit_bytes=RECORDS_BYTES_MAX))


def header_of(batch: memoryview) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(batch))


def read_window(view: LogView, records: int, budget: DecompressionBudget) -> IdWindow:
    """The window at the end of a log, as its leader has it. May read much, and runs in a thread."""
    window = IdWindow(records)
    floor = view.segments[0].base if view.segments else OFFSET_ZERO
    begin = Offset(max(view.log_end - records, floor))
    for batch in view.walk_from(begin, bodies=True):
        header = batch.header
        if header.is_control or header.attributes & TRANSACTIONAL_FLAG or not header.record_count:
            continue
        try:
            ids = ids_within(budget, batch.data, header)
        except (Malformed, UnsupportedCompression):
            # Written while the topic did not open its batches: no consumer can read it either.
            continue
        window.add(ids, header.base_offset, floor)
    return window
