"""Record batches built by hand, valid and invalid, and read back without penstock's codec."""

from __future__ import annotations

import dataclasses
import gzip
import struct
from typing import Any

import cramjam
import lz4.frame
import zstandard
from fastcrc import crc32

NOW_MS_MIN = 1_750_000_000_000
"""Timestamps after this one were set by the broker; the script's own timestamps are far below."""
T0 = 1_700_000_000_000
"""The script's own time, fixed so that batches are the same bytes in every run."""

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_OFFSET = 17
COVERED_OFFSET = 21
XERIAL_MAGIC = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    value: bytes | None = b"value"
    key: bytes | None = None
    timestamp_delta: int = 0
    offset_delta: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def record_bytes(record: Record, offset_delta: int) -> bytes:
    delta = offset_delta if record.offset_delta is None else record.offset_delta
    body = bytearray(b"\x00" + varint(record.timestamp_delta) + varint(delta))
    for part in (record.key, record.value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += varint(len(name)) + name.encode()
        body += varint(-1) if value is None else varint(len(value)) + value
    return varint(len(body)) + bytes(body)


def compress(codec: int, data: bytes) -> bytes:
    match codec:
        case 0:
            return data
        case 1:
            return gzip.compress(data, mtime=0)
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            return lz4.frame.compress(data)
        case 4:
            return zstandard.compress(data)
        case _:
            return data


def xerial(data: bytes) -> bytes:
    """Snappy in the blocks that Java's stream writes."""
    block = bytes(cramjam.snappy.compress_raw(data))
    return XERIAL_MAGIC + struct.pack(">i", len(block)) + block


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A v2 batch; every header field can be set to a wrong value."""

    records: tuple[Record, ...] = (Record(),)
    codec: int = NONE
    attributes: int = 0
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    base_timestamp: int = T0
    max_timestamp: int | None = None
    last_offset_delta: int | None = None
    count: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    length_off_by: int = 0
    crc_xor: int = 0
    payload: bytes | None = None

    def to_bytes(self) -> bytes:
        payload = self.payload
        if payload is None:
            plain = b"".join(record_bytes(record, index) for index, record in enumerate(self.records))
            payload = compress(self.codec, plain)
        newest = self.base_timestamp + max((record.timestamp_delta for record in self.records), default=0)
        last = len(self.records) - 1
        out = bytearray(
            HEADER.pack(
                self.base_offset,
                HEADER.size - 12 + len(payload) + self.length_off_by,
                self.leader_epoch,
                self.magic,
                0,
                self.codec | self.attributes,
                last if self.last_offset_delta is None else self.last_offset_delta,
                self.base_timestamp,
                newest if self.max_timestamp is None else self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                len(self.records) if self.count is None else self.count,
            )
        )
        out += payload
        crc = crc32.iscsi(bytes(out[COVERED_OFFSET:])) ^ self.crc_xor
        struct.pack_into(">I", out, CRC_OFFSET, crc)
        return bytes(out)


def batch(*values: bytes, **fields: Any) -> bytes:
    """The bytes of a batch with these values, without keys."""
    return Batch(records=tuple(Record(value=value) for value in values), **fields).to_bytes()


def message_set(magic: int, value: bytes = b"old") -> bytes:
    """One message of the formats before batches (magic 0 and 1)."""
    import zlib

    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", T0) if magic == 1 else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def read_batches(data: bytes) -> list[dict[str, Any]]:
    """Every whole batch as a dict, and the size of an incomplete last one."""
    out: list[dict[str, Any]] = []
    position = 0
    while position < len(data):
        rest = data[position:]
        if len(rest) < HEADER.size or len(rest) < struct.unpack_from(">i", rest, 8)[0] + 12:
            out.append({"cut_batch_bytes": len(rest)})
            break
        size = struct.unpack_from(">i", rest, 8)[0] + 12
        out.append(_read_batch(rest[:size]))
        position += size
    return out


def _read_batch(data: bytes) -> dict[str, Any]:
    offset, length, epoch, magic, crc, attributes, last, base_ts, max_ts, pid, pepoch, sequence, count = (
        HEADER.unpack_from(data)
    )
    crc_is_right = crc == crc32.iscsi(data[COVERED_OFFSET:])
    try:
        records: Any = _read_records(decompress(attributes & 7, data[HEADER.size :]), count)
    except Exception as error:
        # Each codec raises its own error.
        records = f"unreadable: {type(error).__name__}"
    return {
        "base_offset": offset,
        "length": length,
        "leader_epoch": epoch,
        "magic": magic,
        "crc": f"{crc:08x}" if crc_is_right else "wrong",
        "attributes": attributes,
        "last_offset_delta": last,
        "base_timestamp": base_ts,
        "max_timestamp": max_ts,
        "producer_id": pid,
        "producer_epoch": pepoch,
        "base_sequence": sequence,
        "count": count,
        "records": records,
    }


def decompress(codec: int, data: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.decompress(data)
        case 2 if data.startswith(XERIAL_MAGIC[:8]):
            out, position = b"", len(XERIAL_MAGIC)
            while position < len(data):
                (size,) = struct.unpack_from(">i", data, position)
                out += bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))
                position += 4 + size
            return out
        case 2:
            return bytes(cramjam.snappy.decompress_raw(data))
        case 3:
            return lz4.frame.decompress(data)
        case 4:
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        case _:
            return data


def _read_records(data: bytes, count: int) -> list[list[Any]]:
    """Each record as [offset delta, timestamp delta, key, value] and its headers where it has some."""
    position = 0

    def number() -> int:
        nonlocal position
        value, shift = 0, 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def text() -> str | None:
        nonlocal position
        size = number()
        if size < 0:
            return None
        position += size
        return data[position - size : position].decode("utf-8", "backslashreplace")

    out: list[list[Any]] = []
    for _ in range(count):
        number()
        position += 1
        timestamp_delta, offset_delta = number(), number()
        record: list[Any] = [offset_delta, timestamp_delta, text(), text()]
        headers = [[text(), text()] for _ in range(number())]
        out.append([*record, headers] if headers else record)
    return out
