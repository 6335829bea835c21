"""Producer state as of an offset, in Kafka's `.snapshot` files: a start replays the log from there.

`partition.producers.ProducerTable` has the state in memory.
"""

import struct
from collections.abc import Iterable

from fastcrc.crc32 import iscsi as crc32c

from penstock.model.ids import OFFSET_ZERO, Offset
from penstock.model.producers import ProducerSnapshot
from penstock.storage.disk import Disk, replace_file
from penstock.storage.names import SNAPSHOT, offset_name, parse_offset_name

VERSION = 1
PREFIX = struct.Struct(">hI")
COUNT = struct.Struct(">i")
ENTRY = struct.Struct(">qhiqiqiq")

SNAPSHOTS_KEPT = 2
"""The newest, and one more in case the newest turns out damaged."""


SNAPSHOT_AT_ONCE_MAX = 1_000
"""Producers that are encoded on the loop, which takes a millisecond; a thread encodes more."""


class SnapshotDamaged(Exception):
    """A snapshot is damaged: an older one is used, with a longer replay."""


def encode(entries: Iterable[ProducerSnapshot]) -> bytes:
    packed = [ENTRY.pack(*entry) for entry in entries]
    body = COUNT.pack(len(packed)) + b"".join(packed)
    return PREFIX.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[ProducerSnapshot]:
    if len(data) < PREFIX.size + COUNT.size:
        raise SnapshotDamaged(f"{len(data)} bytes are too few")
    version, crc = PREFIX.unpack_from(data)
    if version != VERSION:
        raise SnapshotDamaged(f"version {version}")
    body = memoryview(data)[PREFIX.size :]
    if crc32c(body) != crc:
        raise SnapshotDamaged("wrong checksum")
    (count,) = COUNT.unpack_from(body)
    if count < 0 or len(body) != COUNT.size + count * ENTRY.size:
        raise SnapshotDamaged(f"{count} entries in {len(body)} bytes")
    return [ProducerSnapshot._make(found) for found in ENTRY.iter_unpack(body[COUNT.size :])]


def write(disk: Disk, directory: str, encoded: bytes, offset: Offset, *, sync: bool) -> None:
    """Write the producers' state after every batch below `offset`."""
    replace_file(disk, f"{directory}/{offset_name(offset, SNAPSHOT)}", encoded, sync=sync)


def offsets(disk: Disk, directory: str) -> list[Offset]:
    """Offsets of the snapshots, oldest first."""
    named = map(parse_offset_name, disk.list_directory(directory))
    return sorted(found[0] for found in named if found is not None and found[1] == SNAPSHOT)


def load_latest(
    disk: Disk, directory: str, log_start: Offset, log_end: Offset
) -> tuple[Offset, list[ProducerSnapshot]] | None:
    """The newest snapshot that is sound and lies within the log, with its offset."""
    for offset in reversed(offsets(disk, directory)):
        if log_start <= offset <= log_end:
            try:
                return offset, decode(disk.read_file(f"{directory}/{offset_name(offset, SNAPSHOT)}"))
            except (SnapshotDamaged, FileNotFoundError):
                continue
    return None


def prune(disk: Disk, directory: str, *, log_end: Offset, settled: Offset = OFFSET_ZERO) -> None:
    """Remove snapshots that no replay will start from: beyond the log end, and older than the newest few.

    After a power cut only snapshots up to the recovery point, `settled`, count: the newest of them stays too.
    """
    found = offsets(disk, directory)
    within = [offset for offset in found if offset <= log_end]
    kept = {*within[-SNAPSHOTS_KEPT:], *[offset for offset in within if offset <= settled][-1:]}
    for offset in found:
        if offset not in kept:
            disk.unlink(f"{directory}/{offset_name(offset, SNAPSHOT)}")
