"""The codec of the records of `__transaction_state`: writes Kafka 4.3's bytes, and reads all earlier versions.

A key and a value begin with their version. Values are written in version 1, the first with tagged fields: the
transaction version, and the previous and next producer ids.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.wire.primitives import STRING_BYTES_MAX, Buffer, FlexibleReader, FlexibleWriter, Malformed, Reader, Writer

KEY_VERSION = 0
VALUE_VERSION = 1
FLEXIBLE_FROM = 1

NO_PRODUCER_ID = -1
PREVIOUS_PRODUCER_ID_TAG = 0
NEXT_PRODUCER_ID_TAG = 1
CLIENT_VERSION_TAG = 2

_VERSION = Struct(">h")
_LENGTH = Struct(">h")

TopicPartitions = tuple[str, tuple[int, ...]]
"""A topic's name and some of its partitions."""


class TxnValue(NamedTuple):
    """The value of a transactional id's record. `partitions` is None in the state Empty."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: tuple[TopicPartitions, ...] | None
    update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0


# Writing


def txn_key(transactional_id: str) -> bytes:
    raw = transactional_id.encode()
    assert len(raw) <= STRING_BYTES_MAX, f"a transactional id of {len(raw)} bytes"
    return _VERSION.pack(KEY_VERSION) + _LENGTH.pack(len(raw)) + raw


def txn_value(value: TxnValue, version: int = VALUE_VERSION) -> bytes:
    """Encode a value. Version 0, of brokers before transaction version 1, has no tagged fields."""
    writer: Writer = FlexibleWriter() if version >= FLEXIBLE_FROM else Writer()
    writer.int16(version)
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(value.timeout_ms)
    writer.int8(value.status)
    writer.array_nullable(_write_topic, None if value.partitions is None else list(value.partitions), version)
    writer.int64(value.update_ms)
    writer.int64(value.start_ms)
    if version >= FLEXIBLE_FROM:
        writer.tags(_tags(writer, value))
    return bytes(writer)


def _write_topic(writer: Writer, topic: TopicPartitions, version: int) -> None:
    name, partitions = topic
    writer.string(name)
    writer.integers("i", list(partitions))
    if version >= FLEXIBLE_FROM:
        writer.tags()


def _tags(writer: Writer, value: TxnValue) -> list[tuple[int, Writer]]:
    """Only fields that differ from their defaults are written, as in Kafka."""
    tags: list[tuple[int, Writer]] = []
    for tag, id_ in (
        (PREVIOUS_PRODUCER_ID_TAG, value.previous_producer_id),
        (NEXT_PRODUCER_ID_TAG, value.next_producer_id),
    ):
        if id_ != NO_PRODUCER_ID:
            field = writer.fresh()
            field.int64(id_)
            tags.append((tag, field))
    if value.client_version:
        field = writer.fresh()
        field.int16(value.client_version)
        tags.append((CLIENT_VERSION_TAG, field))
    return tags


# Reading


def read_txn_key(raw: Buffer) -> str | None:
    """The transactional id; None for a key of an unknown kind. Raises `Malformed`."""
    try:
        (version,) = _VERSION.unpack_from(raw, 0)
    except StructError as error:
        raise Malformed(f"a key of {len(raw)} bytes") from error
    if version != KEY_VERSION:
        return None
    try:
        return Reader(raw, _VERSION.size).string()
    except UnicodeDecodeError as error:
        raise Malformed(str(error)) from error


def read_txn_value(raw: Buffer) -> TxnValue:
    """The value of a transactional id's record. Raises `Malformed`, also for a later version."""
    try:
        (version,) = _VERSION.unpack_from(raw, 0)
        if not 0 <= version <= VALUE_VERSION:
            raise Malformed(f"a transaction's record of version {version}")
        reader: Reader = FlexibleReader(raw, 2) if version >= FLEXIBLE_FROM else Reader(raw, 2)
        producer_id = reader.int64()
        epoch = reader.int16()
        timeout_ms = reader.int32()
        status = reader.int8()
        topics = reader.array_nullable(_read_topic, version, 3)
        update_ms = reader.int64()
        start_ms = reader.int64()
        previous, following, client_version = _read_tags(reader)
    except (StructError, UnicodeDecodeError) as error:
        raise Malformed(f"a transaction's record: {error}") from error
    return TxnValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        status=status,
        partitions=None if topics is None else tuple(topics),
        update_ms=update_ms,
        start_ms=start_ms,
        previous_producer_id=previous,
        next_producer_id=following,
        client_version=client_version,
    )


def _read_topic(reader: Reader, version: int) -> TopicPartitions:
    topic = (reader.string(), tuple(reader.integers("i", 4)))
    if version >= FLEXIBLE_FROM:
        reader.skip_tags()
    return topic


def _read_tags(reader: Reader) -> tuple[int, int, int]:
    previous = following = NO_PRODUCER_ID
    client_version = 0
    for tag, end in reader.tagged():
        if tag == PREVIOUS_PRODUCER_ID_TAG:
            previous = reader.int64()
        elif tag == NEXT_PRODUCER_ID_TAG:
            following = reader.int64()
        elif tag == CLIENT_VERSION_TAG:
            client_version = reader.int16()
        else:
            reader.pos = end
    return previous, following, client_version
