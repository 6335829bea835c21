"""Record batches for raw requests: good ones by kafka-python, then broken in one chosen place."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable

from fastcrc import crc32
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

HEADER_BYTES = 61
CRC_POSITION = 17
CHECKED_FROM = 21

FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (CRC_POSITION, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
NO_COMPRESSION = 0
GZIP = 1
ZSTD = 4

Record = tuple[bytes | None, bytes | None]


def now_ms() -> int:
    return int(time.time() * 1000)


def batch(
    records: Iterable[Record] | None = None,
    *,
    values: Iterable[bytes] = (),
    timestamp_ms: int | None = None,
    compression: int = NO_COMPRESSION,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """One v2 batch of records, or of values without keys. `producer` is id, epoch and first sequence."""
    stamp = now_ms() if timestamp_ms is None else timestamp_ms
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=64 << 20,
    )
    pairs = list(records) if records is not None else [(None, value) for value in values]
    for offset, (key, value) in enumerate(pairs):
        builder.append(offset, timestamp=stamp, key=key, value=value, headers=[])
    return bytes(builder.build())


def field(data: bytes, name: str) -> int:
    position, code = FIELDS[name]
    return int(struct.unpack_from(code, data, position)[0])


def broken(data: bytes, *, crc_kept: bool = False, **fields: int) -> bytes:
    """The batch with some header fields set to other values, and its checksum right again unless it is to be kept."""
    changed = bytearray(data)
    for name, value in fields.items():
        position, code = FIELDS[name]
        struct.pack_into(code, changed, position, value)
    if not crc_kept and "crc" not in fields:
        reseal(changed)
    return bytes(changed)


def with_body(data: bytes, body: bytes) -> bytes:
    """The batch's header over other records, with the length and checksum to fit."""
    changed = bytearray(data[:HEADER_BYTES] + body)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    reseal(changed)
    return bytes(changed)


def reseal(data: bytearray) -> None:
    struct.pack_into(">I", data, CRC_POSITION, crc32.iscsi(bytes(data[CHECKED_FROM:])))


def split(data: bytes) -> list[DefaultRecordBatch]:
    """The whole batches in a fetch response; a partial one at the end is skipped, as by clients."""
    found = []
    position = 0
    while position + HEADER_BYTES <= len(data):
        whole = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if position + whole > len(data):
            break
        found.append(DefaultRecordBatch(data[position : position + whole]))
        position += whole
    return found


def records_of(data: bytes | None) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record in a fetch response."""
    return [(record.offset, record.key, record.value) for found in split(bytes(data or b"")) for record in found]


def message_set(value: bytes, *, magic: int) -> bytes:
    """One message of the formats before v2, which modern brokers refuse."""
    from zlib import crc32 as crc32_ieee

    stamp = struct.pack(">q", now_ms()) if magic else b""
    body = struct.pack(">bb", magic, 0) + stamp + struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", crc32_ieee(body)) + body
    return struct.pack(">qi", 0, len(message)) + message
