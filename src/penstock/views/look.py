"""What a fetch of one partition of a view sends: the parent's batches, without the records that do not pass.

    some records pass      the batch with only those, at their offsets; it ends at the last of them
    none do                nothing; the run of such batches becomes one advance batch
    a control batch        itself: without its marker, a client takes the producer's next records for aborted
    an aborted batch       as one of which none pass, unopened, for readers of committed data

What follows the last record that passes counts as a batch of which none does. An advance batch is a control batch that
clients pass over. So the response has no hole in which a consumer's position
could rest: it goes on to the end of what was looked at, its lag becomes zero, and its commits say where it is.

A `Look` lives as long as one fetch request. What the request has looked at it does not look at again while it waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from penstock.model.batch import HEADER_BYTES, BatchHeader
from penstock.model.generated_errors import CorruptMessage
from penstock.model.ids import LeaderEpoch, Offset, ProducerId
from penstock.views.conditions import FAILURES, Condition
from penstock.views.needles import ESCAPE, Needles
from penstock.views.rows import Row
from penstock.wire.compression import NONE
from penstock.wire.primitives import Malformed
from penstock.wire.records import (
    RECORDS_BYTES_MAX,
    build_advance,
    crc_ok,
    iter_batches,
    records_of,
    row_slices,
    with_records,
)

HEAVY_BYTES = 64 * 1024
"""More than this is looked at in a thread."""

LIGHT_RECORDS_BYTES_MAX = 512 * 1024
"""Most bytes that are decompressed on the event loop, for all batches of a piece."""

RECORDS_RATIO_USUAL = 8
"""Most batches hold no more than this many times their compressed size."""

NO_NEEDLE, UNSEARCHED = -1, -2
"""In place of where the next needle is."""

Hold = Callable[[int], AbstractContextManager[None]]
"""Reserves memory for decompressed records."""


def never() -> bool:
    """Looks on, however long it takes."""
    return False


class AbortedSpan(Protocol):
    """A transaction that was aborted, from its first record to its marker."""

    @property
    def producer_id(self) -> ProducerId: ...

    @property
    def first_offset(self) -> Offset: ...

    @property
    def last_offset(self) -> Offset: ...


class TooHeavy(Exception):
    """A batch decompresses to more than the event loop has time for: look at it in a thread."""


@dataclass(slots=True)
class Tally:
    """What looking found, for metrics."""

    records: int = 0
    bytes: int = 0
    records_passed: int = 0
    bytes_passed: int = 0
    failed: int = 0
    """Records for which the filter has no value: an operation on values of types that it is not defined for."""
    undecodable: int = 0
    """Records of which a part that the filter reads is not JSON, or not UTF-8."""
    batches_opened: int = 0

    def add(self, other: Tally) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.records_passed += other.records_passed
        self.bytes_passed += other.bytes_passed
        self.failed += other.failed
        self.undecodable += other.undecodable
        self.batches_opened += other.batches_opened


class Look:
    """How far one fetch has looked at one partition of a view, and what it found.

    `through` may run in a thread, as nothing else touches a look meanwhile.
    """

    __slots__ = (
        "_check_crcs",
        "_condition",
        "_kept",
        "_kept_delta",
        "_needle_at",
        "_parts",
        "_row",
        "_run_epoch",
        "_run_first",
        "_run_last",
        "_run_time",
        "_tail",
        "aborted",
        "at",
        "begin",
        "is_full",
        "leader_epoch",
        "size",
        "stalled_at",
        "tally",
    )

    def __init__(
        self,
        condition: Condition,
        partition: int,
        begin: Offset,
        leader_epoch: LeaderEpoch,
        *,
        check_crcs: bool = True,
    ) -> None:
        self._condition = condition
        self._check_crcs = check_crcs
        self._row = Row(partition)
        self.leader_epoch = leader_epoch
        """Of the replica, when the look began: what was looked at may be gone from another's log."""
        self.begin = begin
        """The offset that the reader fetches from."""
        self.at = begin
        """The offset that is looked at next."""
        self.size = 0
        """Bytes of the records that passed."""
        self.stalled_at = Offset(-1)
        """The end of the log at which nothing was found between `at` and it."""
        self.is_full = False
        """Whether there is no room for the next batch that passes."""
        self.aborted: dict[tuple[ProducerId, Offset], AbortedSpan] = {}
        self.tally = Tally()
        self._kept = 0
        """Records that passed of the batch looked at last."""
        self._kept_delta = 0
        """The offset of the last of them, from that of the batch."""
        self._tail = False
        """Whether the run is only the end of a batch that was sent: the next one that is makes it unnecessary."""
        self._parts: list[bytes | bytearray] = []
        self._run_first = self._run_last = Offset(-1)
        self._run_epoch = LeaderEpoch(-1)
        self._run_time = -1
        self._needle_at = UNSEARCHED

    # Looking

    def through(
        self,
        data: bytes,
        *,
        aborted: Sequence[AbortedSpan] = (),
        room_bytes: int,
        at_least_one: bool = True,
        hold: Hold | None = None,
        is_over: Callable[[], bool] = never,
    ) -> None:
        """Look at whole batches of the partition, from the one that holds `at` on.

        It stops where it `is_full`: what passes does not fit into `room_bytes`, which the first batch need not if
        `at_least_one`. Without `hold` it raises `TooHeavy` rather than decompress much; call it again with one then.
        It also stops after a batch where `is_over` says so. Raises `CorruptMessage` for a batch that cannot be read, if
        it is the first one that is looked at.
        """
        try:
            self._through(data, aborted, room_bytes, at_least_one, hold, is_over)
        except Malformed as error:
            if self.at == self.begin:
                raise CorruptMessage(f"the batch at offset {self.at}: {error}") from None
            self.is_full = True

    def _through(
        self,
        data: bytes,
        aborted: Sequence[AbortedSpan],
        room_bytes: int,
        at_least_one: bool,
        hold: Hold | None,
        is_over: Callable[[], bool],
    ) -> None:
        self.aborted.update(((each.producer_id, each.first_offset), each) for each in aborted)
        light_bytes = LIGHT_RECORDS_BYTES_MAX // self._condition.heaviness
        self._needle_at = UNSEARCHED
        for start, header in iter_batches(data):
            if header.last_offset < self.at:
                continue
            if header.is_control:
                self._send(data[start : start + header.size])
            elif header.record_count == 0 or (aborted and is_aborted(header, aborted)):
                self._pass_over(header)
            else:
                passed = self._passed(data, start, header, light_bytes, hold)
                if passed is None:
                    self._pass_over(header)
                elif not self._fits(len(passed), room_bytes, at_least_one):
                    self.is_full = True
                    return
                else:
                    self._send(passed)
                    if self._kept_delta < header.last_offset_delta:
                        # librdkafka's position is that behind the last record, whatever the batch's last offset is.
                        self._pass_over(header, after=self._kept_delta)
                    self.size += len(passed)
                    self.tally.records_passed += self._kept
                    self.tally.bytes_passed += len(passed)
                if hold is None and header.codec != NONE:
                    light_bytes -= RECORDS_RATIO_USUAL * header.size
            self.tally.records += header.record_count
            self.tally.bytes += header.size
            self.at = header.next_offset
            if is_over():
                return

    def _fits(self, size: int, room_bytes: int, at_least_one: bool) -> bool:
        return self.size + size <= room_bytes or (at_least_one and self.size == 0)

    def _pass_over(self, header: BatchHeader, after: int = -1) -> None:
        """Make a batch, or what follows one of its records, part of the run of those that are not sent."""
        self._tail = after >= 0
        if self._run_first < 0:
            self._run_first = Offset(header.base_offset + after + 1)
        self._run_last = header.last_offset
        self._run_epoch = header.leader_epoch
        self._run_time = header.max_timestamp

    def _send(self, batch: bytes | bytearray) -> None:
        self._end_run()
        self._parts.append(batch)

    def _end_run(self) -> None:
        if self._run_first >= 0:
            if not self._tail:
                self._parts.append(self._advance())
            self._run_first = Offset(-1)

    def _advance(self) -> bytearray:
        return build_advance(
            first=self._run_first, last=self._run_last, leader_epoch=self._run_epoch, timestamp_ms=self._run_time
        )

    def records(self) -> bytes:
        """The response: batches from `begin` on, up to `at`."""
        return b"".join([*self._parts, self._advance()] if self._run_first >= 0 else self._parts)

    # Filtering one batch

    def _passed(
        self, data: bytes, start: int, header: BatchHeader, light_bytes: int, hold: Hold | None
    ) -> bytes | bytearray | None:
        """The batch with the records that pass: itself if all do, None if none does."""
        end = start + header.size
        if header.codec == NONE:
            if self._lacks_needle(data, start + HEADER_BYTES, end):
                return None
            self._check_crc(data, start, header)
            return self._filtered(data, start, end, header, data, start + HEADER_BYTES, end)
        self._check_crc(data, start, header)
        batch = memoryview(data)[start:end]
        if hold is None:
            if header.size * RECORDS_RATIO_USUAL > light_bytes:
                raise TooHeavy
            try:
                body = bytes(records_of(batch, header, light_bytes))
            except Malformed:
                # Corrupt, or larger than it looks: a thread finds out which.
                raise TooHeavy from None
            return self._filtered_body(data, start, end, header, body)
        usual = min(max(LIGHT_RECORDS_BYTES_MAX, RECORDS_RATIO_USUAL * header.size), RECORDS_BYTES_MAX)
        with hold(usual):
            try:
                body = bytes(records_of(batch, header, usual))
            except Malformed:
                body = b""
            if body:
                return self._filtered_body(data, start, end, header, body)
        with hold(RECORDS_BYTES_MAX):
            return self._filtered_body(data, start, end, header, bytes(records_of(batch, header, RECORDS_BYTES_MAX)))

    def _check_crc(self, data: bytes, start: int, header: BatchHeader) -> None:
        """Refuse a batch that has rotted: what is made of it would have a checksum that is right."""
        if self._check_crcs and not crc_ok(data, start, header):
            raise Malformed("the checksum is wrong")

    def _filtered_body(
        self, data: bytes, start: int, end: int, header: BatchHeader, body: bytes
    ) -> bytes | bytearray | None:
        needles = self._condition.needles
        if needles is not None and needles.next_in(body, 0, len(body)) < 0 and not hides(needles, body, 0, len(body)):
            return None
        return self._filtered(data, start, end, header, body, 0, len(body))

    def _lacks_needle(self, body: bytes, start: int, end: int) -> bool:
        """Whether no record between two places can match, because each that does has bytes that are not there.

        A search goes on to the end of the bytes, so that for many small batches there is one.
        """
        needles = self._condition.needles
        if needles is None:
            return False
        if self._needle_at < start and self._needle_at != NO_NEEDLE:
            self._needle_at = needles.next_in(body, start, len(body))
        return not 0 <= self._needle_at < end and not hides(needles, body, start, end)

    def _filtered(
        self, data: bytes, start: int, end: int, header: BatchHeader, body: bytes, body_start: int, body_end: int
    ) -> bytes | bytearray | None:
        """Look at every record that may match."""
        self.tally.batches_opened += 1
        row, needles = self._row, self._condition.needles
        append_time = header.max_timestamp if header.is_log_append_time else None
        row.begin(body, header.base_offset, header.base_timestamp, append_time)
        if needles is not None and hides(needles, body, body_start, body_end):
            needles = None
        kept: list[bytes] = []
        newest = last = 0
        # A reader that begins within a batch has had the records before.
        least = self.begin - header.base_offset
        for rows, columns in row_slices(memoryview(body)[:body_end], body_start, header.record_count):
            row.place(columns)
            starts, ends, times, offsets = columns[0], columns[1], columns[2], columns[3]
            among = range(rows) if needles is None else candidates(needles.next_in, body, starts[0], ends, rows)
            for at in self._matching(among):
                if offsets[at] < least:
                    continue
                last = offsets[at]
                newest = times[at] if not kept else max(newest, times[at])
                kept.append(body[starts[at] : ends[at]])
        if not kept:
            return None
        self._kept, self._kept_delta = len(kept), last
        if len(kept) == header.record_count and last == header.last_offset_delta:
            return data[start:end]
        return with_records(header, b"".join(kept), len(kept), newest, last_offset_delta=last)

    def _matching(self, among: Iterable[int]) -> Iterable[int]:
        row, matches, tally = self._row, self._condition.matches, self.tally
        for at in among:
            row.move(at)
            try:
                if matches(row) is True:
                    yield at
            except FAILURES:
                tally.failed += 1
            if row.undecodable:
                tally.undecodable += 1


def candidates(
    next_in: Callable[[bytes, int, int], int], body: bytes, start: int, ends: Sequence[int], rows: int
) -> Iterable[int]:
    """The records that have a needle."""
    end = ends[rows - 1]
    while start < end:
        found = next_in(body, start, end)
        if found < 0:
            return
        at = bisect_right(ends, found, 0, rows)
        yield at
        start = ends[at]


def hides(needles: Needles, body: bytes, start: int, end: int) -> bool:
    """Whether a needle may be there although its bytes are not: JSON has characters as escapes."""
    return needles.in_json and body.find(ESCAPE, start, end) >= 0


def is_aborted(header: BatchHeader, aborted: Iterable[AbortedSpan]) -> bool:
    """Whether a batch is part of an aborted transaction."""
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )


def unlimited(_: int) -> AbstractContextManager[None]:
    """Reserves nothing, where one reader has the memory for itself."""
    return nullcontext()
