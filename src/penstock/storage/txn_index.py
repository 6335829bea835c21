"""The transaction index: the aborted transactions of a segment, which readers of committed data skip.

An entry is a version, the producer id, the first and the last offset of the transaction and the last stable offset at
the time it ended, as in Kafka's `.txnindex` files. A segment without aborted transactions has no file.
"""

import errno
import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import Offset, ProducerId
from penstock.model.producers import CompletedTxn
from penstock.storage.disk import Disk
from penstock.storage.names import TXN_INDEX, offset_name, parse_offset_name

VERSION = 0
ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = ENTRY.size


class AbortedTxn(NamedTuple):
    """One aborted transaction, from its first record to its marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable: Offset

    @classmethod
    def of(cls, completed: CompletedTxn) -> "AbortedTxn":
        return cls(completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable)


_last_offset = attrgetter("last_offset")
_last_stable = attrgetter("last_stable")


class TxnIndexDamaged(KafkaStorageError):
    """An index has impossible entries; it has to be rebuilt from the log (see `txn_rebuild`)."""


def path_of(directory: str, base: Offset) -> str:
    """The index of the segment that begins at `base`."""
    return f"{directory}/{offset_name(base, TXN_INDEX)}"


def bases(disk: Disk, directory: str) -> list[Offset]:
    """Segments that have an index, oldest first."""
    named = map(parse_offset_name, disk.list_directory(directory))
    return sorted(found[0] for found in named if found is not None and found[1] == TXN_INDEX)


def append(disk: Disk, path: str, aborted: AbortedTxn) -> None:
    """Append an aborted transaction to the index of the segment that holds its marker, whole or not at all."""
    file = disk.open(path, create=True)
    size = file.size()
    if file.append(ENTRY.pack(VERSION, *aborted)) < ENTRY_BYTES:
        file.truncate(size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def encode(entries: Iterable[AbortedTxn]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def read(disk: Disk, path: str) -> list[AbortedTxn]:
    """The entries in the order of their markers; none when there is no file. A torn last entry is damage."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return []
    if len(data) % ENTRY_BYTES:
        raise TxnIndexDamaged(f"{path}: {len(data)} bytes are not whole entries")
    entries: list[AbortedTxn] = []
    last = -1
    for version, producer_id, first_offset, last_offset, last_stable in ENTRY.iter_unpack(data):
        # The marker comes after the first record: an entry of zeros is a page that never reached the disk.
        if version != VERSION or first_offset >= last_offset or last_offset <= last:
            raise TxnIndexDamaged(f"{path}: entry {len(entries)} contradicts itself or its predecessor")
        entries.append(AbortedTxn(producer_id, first_offset, last_offset, last_stable))
        last = last_offset
    return entries


def truncate_to(disk: Disk, path: str, offset: Offset) -> None:
    """Forget transactions whose marker is at or beyond `offset`."""
    entries = read(disk, path)
    kept = [entry for entry in entries if entry.last_offset < offset]
    if len(kept) < len(entries):
        file = disk.open(path)
        file.truncate(len(kept) * ENTRY_BYTES)
        # After a power cut, later records must not count as aborted.
        file.sync()


def collect(entries: Sequence[AbortedTxn], start: Offset, end: Offset) -> list[AbortedTxn]:
    """The transactions that a reader of [start, end) has to skip, given entries in the order of their markers.

    The search stops at the first entry whose last stable offset is at or beyond `end`: later entries are of
    transactions that began there or later.
    """
    first = bisect_left(entries, start, key=_last_offset)
    last = bisect_left(entries, end, lo=first, key=_last_stable)
    return [entry for entry in entries[first : last + 1] if entry.first_offset < end]
