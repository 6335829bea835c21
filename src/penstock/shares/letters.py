"""What is written to the dead letters of a share group: which records, with which headers, in which batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.batch import CODEC_MASK
from penstock.model.ids import Offset, TopicPartition
from penstock.shares.share_partition import DeadRange
from penstock.storage.view import LogView
from penstock.wire.compression import NONE, UnsupportedCompression
from penstock.wire.decompression_budget import DecompressionBudget
from penstock.wire.primitives import Malformed
from penstock.wire.records import RECORDS_BYTES_MAX, Record, RecordBatchBuilder, iter_records

PREFIX = "__dlq.errors."
"""Of the headers, whose names are those of Kafka 4.4."""

REJECTED = "Offset rejected by client."
EXCEEDED = "Delivery count limit reached."

COPY_BYTES_MAX = 512 * 1024
"""Bytes of records in one batch of dead letters; a larger record goes alone."""


class Letter(NamedTuple):
    """A record that will not be delivered again."""

    record: Record
    deliveries: int


class Cause(NamedTuple):
    """Who gave the records up."""

    tp: TopicPartition
    group: str
    deliveries_max: int


def read_letters(
    view: LogView, ranges: Sequence[DeadRange], budget: DecompressionBudget
) -> tuple[list[Letter], list[DeadRange]]:
    """The records of some ranges, and the ranges they are all of; the rest does not fit into one batch.

    Offsets without a record count as read: compaction or a moved log start removed it. Runs in a thread.
    """
    letters: list[Letter] = []
    covered: list[DeadRange] = []
    size = 0
    for first, last, deliveries in ranges:
        for record in records_between(view, Offset(first), Offset(last), budget):
            size += len(record.key or b"") + len(record.value or b"")
            if letters and size > COPY_BYTES_MAX:
                if record.offset > first:
                    covered.append(DeadRange(first, record.offset - 1, deliveries))
                return letters, covered
            letters.append(Letter(record, deliveries))
        covered.append(DeadRange(first, last, deliveries))
    return letters, covered


def records_between(view: LogView, first: Offset, last: Offset, budget: DecompressionBudget) -> list[Record]:
    found: list[Record] = []
    for batch in view.walk_from(first, bodies=True):
        header = batch.header
        if header.base_offset > last:
            break
        if header.is_control:
            continue
        with budget.hold(0 if header.attributes & CODEC_MASK == NONE else RECORDS_BYTES_MAX):
            try:
                found += (each for each in iter_records(batch.data) if first <= each.offset <= last)
            except (Malformed, UnsupportedCompression):
                # No consumer can read it, and it is removed from the queue all the same.
                continue
    return found


def batch_of(letters: Sequence[Letter], cause: Cause, *, copies: bool, now_ms: int) -> bytearray:
    """A batch for the dead letters; without `copies` its records say only where the originals are."""
    builder = RecordBatchBuilder()
    for record, deliveries in letters:
        headers = (
            *((name, value) for name, value in (record.headers if copies else ()) if not name.startswith(PREFIX)),
            (f"{PREFIX}topic", cause.tp.topic.encode()),
            (f"{PREFIX}partition", b"%d" % cause.tp.partition),
            (f"{PREFIX}offset", b"%d" % record.offset),
            (f"{PREFIX}group", cause.group.encode()),
            (f"{PREFIX}delivery.count", b"%d" % deliveries),
            (f"{PREFIX}message", (EXCEEDED if deliveries >= cause.deliveries_max else REJECTED).encode()),
        )
        builder.add(now_ms, record.key if copies else None, record.value if copies else None, headers)
    return builder.build()


def up_to(ranges: Sequence[DeadRange], offset: int) -> list[DeadRange]:
    """The ranges as far as an offset, which belongs to them."""
    return [DeadRange(first, min(last, offset), deliveries) for first, last, deliveries in ranges if first <= offset]
