"""The time to live of records (`ttl.enable`): which records of a batch are too old to be handed out.

A record with the header `penstock-ttl-ms` lives for so many milliseconds from its timestamp on. The leader's wall clock
decides, when the record would be acquired; that it is over is written, so that it is over for the next leader too.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.shares.batches import ReadBatches
from penstock.shares.share_partition import ReadBatch
from penstock.wire.compression import UnsupportedCompression
from penstock.wire.primitives import Malformed
from penstock.wire.records import RECORDS_BYTES_MAX, header_values, parse_batch_header, records_of, row_slices

TTL_HEADER = b"penstock-ttl-ms"
DIGITS_MAX = 19
"""Of a time to live; a longer text is no number of milliseconds."""

TIMES, OFFSETS = 2, 3
"""Columns of `record_loops.Rows`."""


def divided(batches: ReadBatches, now_ms: int) -> Iterator[ReadBatch]:
    """The batches that are read, each divided where records that have expired stand beside others."""
    for batch in batches:
        expired = () if batch.is_aborted else expired_in(batches.newest(), now_ms)
        at = batch.base
        for first, last in expired:
            if first > at:
                yield batch._replace(base=at, last=first - 1)
            yield ReadBatch(first, last, is_expired=True)
            at = last + 1
        if at <= batch.last:
            yield batch._replace(base=at)


def expired_in(batch: bytes, now_ms: int) -> list[tuple[int, int]]:
    """The ranges of a batch's records that have expired; both ends belong to them."""
    header = parse_batch_header(batch)
    if header.is_control or not header.record_count:
        return []
    try:
        lives = header_values(batch, TTL_HEADER)
        if not lives:
            return []
        times = timestamps_of(batch)
    except (Malformed, UnsupportedCompression):
        # The member that gets it finds out.
        return []
    found: list[tuple[int, int]] = []
    for delta, text in lives:
        if not text.isdigit() or len(text) > DIGITS_MAX or times[delta] + int(text) > now_ms:
            continue
        offset = header.base_offset + delta
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found


def timestamps_of(batch: bytes) -> dict[int, int]:
    """The timestamp of each record, by offset delta."""
    header = parse_batch_header(batch)
    body = records_of(batch, header, RECORDS_BYTES_MAX)
    times: dict[int, int] = {}
    for rows, columns in row_slices(body, 0, header.record_count):
        for row in range(rows):
            delta = columns[OFFSETS][row]
            times[delta] = (
                header.max_timestamp if header.is_log_append_time else header.base_timestamp + columns[TIMES][row]
            )
    return times
