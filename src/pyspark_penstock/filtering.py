"""The option `filter`: records that do not meet a condition are dropped before they become columns.

The condition is that of a filtered view (docs/filtering.md), and what drops the records is what a broker does for one;
here it runs in the executor, so that it needs no view. A view saves the network as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.model.generated_errors import CorruptMessage
from penstock.model.ids import LeaderEpoch, Offset
from penstock.views.conditions import compiled
from penstock.views.form import packed
from penstock.views.language import FilterError, parse
from penstock.views.look import Look, unlimited
from penstock.wire.records import crc_ok, iter_batches
from pyspark_penstock.errors import CorruptBatch, WrongOption
from pyspark_penstock.fetching import Fetched
from pyspark_penstock.offsets import OffsetRange

EVERYTHING_BYTES = 1 << 62


def filter_of(text: str) -> Mapping[str, Any]:
    """The stored form of a condition, which is what executors get: they need no parser."""
    try:
        return packed(parse(text))
    except FilterError as error:
        raise WrongOption(f"Option 'filter': {error}") from None


class FilteredFetches:
    """Responses with the records that pass only. Their offsets are those of the topic."""

    def __init__(
        self, fetches: Iterable[Fetched], form: Mapping[str, Any], wanted: OffsetRange, *, check_crcs: bool
    ) -> None:
        self._fetches = fetches
        self._condition = compiled(form)
        self._wanted = wanted
        self._check_crcs = check_crcs

    def __iter__(self) -> Iterator[Fetched]:
        return map(self._filtered, self._fetches)

    def _filtered(self, fetched: Fetched) -> Fetched:
        """Markers stay and batches keep their producers, so aborted transactions are dropped as without a filter."""
        data = bytes(fetched.records)
        if self._check_crcs:
            # Of what is built anew, the checksum would be right in any case.
            self._check(data, fetched)
        look = Look(
            self._condition,
            self._wanted.partition,
            Offset(fetched.first_offset),
            LeaderEpoch(-1),
            check_crcs=False,
        )
        try:
            look.through(data, room_bytes=EVERYTHING_BYTES, hold=unlimited)
        except CorruptMessage as error:
            raise CorruptBatch(f"{self._wanted.topic}-{self._wanted.partition}: {error}") from None
        if look.at < fetched.next_offset:
            raise CorruptBatch(f"the batch at offset {look.at} of {self._wanted.topic}-{self._wanted.partition}")
        records = look.records()
        return Fetched(
            records=records,
            batches=list(iter_batches(records)),
            aborted=fetched.aborted,
            first_offset=fetched.first_offset,
            next_offset=fetched.next_offset,
        )

    def _check(self, data: bytes, fetched: Fetched) -> None:
        for pos, header in fetched.batches:
            if not crc_ok(data, pos, header):
                raise CorruptBatch(
                    f"the batch at offset {header.base_offset} of {self._wanted.topic}-{self._wanted.partition} "
                    "does not match its checksum"
                )
