"""Every bit of a batch's header, flipped, through every path that a produced batch can take."""

import asyncio
import struct
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from tests.unit.partition.rig import NOW_MS, Rig, batch, everything, topic

from penstock.model.batch import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    CLIENT_ATTRIBUTES,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    TRANSACTIONAL_FLAG,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidProducerEpoch, InvalidRecord, InvalidTimestamp
from penstock.model.ids import TopicPartition
from penstock.partition.replica import Replica
from penstock.partition.results import Appended
from penstock.partition.validation import HEAVY_BYTES
from penstock.wire import compression
from penstock.wire.records import Record, build_batch, crc_of, iter_batches, parse_batch_header

HEADER_BITS = HEADER_BYTES * 8
ATTRIBUTE_BITS = range(ATTRIBUTES_AT * 8, LAST_OFFSET_DELTA_AT * 8)
CODEC_BITS = ATTRIBUTE_BITS[-3:]
PRODUCER = 7


def noise(size: int) -> bytes:
    return Random(1).randbytes(size)


@dataclass(frozen=True)
class Path:
    """A kind of batch and of topic, which together choose the code that validates it."""

    name: str
    configs: dict[str, str] = field(default_factory=dict)
    codec: int = compression.NONE
    producer: bool = False
    transactional: bool = False
    value_bytes: int = 10
    trusting: bool = False
    """Whether a compressed batch is stored unchecked, so that only readers notice a wrong codec."""

    def values(self) -> list[bytes]:
        return [noise(self.value_bytes), b"two", b"three"]

    def batch(self) -> bytearray:
        producer = {"producer_id": PRODUCER} if self.producer else {}
        return batch(*self.values(), codec=self.codec, is_transactional=self.transactional, **producer)


RECORDS = {"compressed.check": "records"}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
PATHS = [
    Path("plain", trusting=True),
    Path("plain, any timestamp", ANY_TIME, trusting=True),
    Path("plain, records checked", RECORDS),
    Path("gzip, trusting", codec=compression.GZIP, trusting=True),
    Path("lz4, trusting", codec=compression.LZ4, trusting=True),
    Path("snappy, records checked", RECORDS, codec=compression.SNAPPY),
    Path("zstd, records checked", RECORDS, codec=compression.ZSTD),
    Path("log append time", APPEND_TIME),
    Path("log append time, gzip", APPEND_TIME, codec=compression.GZIP),
    Path("recompressed", {"compression.type": "lz4"}),
    Path("decompressed", {"compression.type": "uncompressed"}, codec=compression.GZIP),
    Path("compacted", {"cleanup.policy": "compact"}),
    Path("idempotent", producer=True, trusting=True),
    Path("idempotent, gzip", codec=compression.GZIP, producer=True, trusting=True),
    Path("transactional", producer=True, transactional=True),
    Path("transactional, gzip", codec=compression.GZIP, producer=True, transactional=True),
    Path("off the loop", RECORDS, codec=compression.GZIP, value_bytes=HEAVY_BYTES + 1),
    Path("off the loop, transactional", codec=compression.LZ4, value_bytes=HEAVY_BYTES + 1, producer=True,
         transactional=True),
]  # fmt: skip


def flipped(data: bytearray, bit: int) -> bytearray:
    """The batch with one bit of its header flipped, and a new CRC if it covers the bit."""
    out = bytearray(data)
    out[bit // 8] ^= 0x80 >> bit % 8
    if bit >= ATTRIBUTES_AT * 8:
        resealed(out)
    return out


def resealed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, CRC_AT, crc_of(data, 0, len(data)))
    return data


def with_attributes(data: bytearray, attributes: int) -> bytearray:
    out = bytearray(data)
    struct.pack_into(">H", out, ATTRIBUTES_AT, attributes)
    return resealed(out)


def of_this_producer(tp: TopicPartition, producer_id: int, epoch: int) -> bool:
    """The coordinator of a transaction that one producer has open, at epoch 0."""
    if (producer_id, epoch) != (PRODUCER, 0):
        raise InvalidProducerEpoch
    return False


class Attempts:
    """Batches appended by one path, each to a partition of its own."""

    def __init__(self, path: Path, count: int = 1) -> None:
        self._rig = Rig(topic(configs=path.configs, partitions=count))
        self._verify_txn = of_this_producer if path.transactional else None
        self._next = 0

    def append(self, data: bytearray) -> tuple[BrokerError | None, Replica]:
        """The error of a refused batch, or None, and the partition."""
        replica = self._rig.replica(partition=self._next)
        try:
            appended = replica.append(memoryview(data), self._rig.clock.ms, verify_txn=self._verify_txn)
            if not isinstance(appended, Appended):
                asyncio.run(finished(appended))
        except BrokerError as error:
            assert replica.offsets.log_end == 0
            assert replica.log.size_bytes == 0
            return error, replica
        self._next += 1
        return None, replica


async def finished(work: Coroutine[Any, Any, Appended]) -> Appended:
    return await work


def stored_attributes(replica: Replica) -> list[int]:
    records = replica.read(0, 1 << 30, at_least_one=True).records
    data = records if isinstance(records, bytes) else records.contents()
    return [header.attributes for _, header in iter_batches(data)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_batch_with_any_bit_of_its_header_flipped_is_refused_or_reads_back(path: Path) -> None:
    attempts = Attempts(path, HEADER_BITS)
    data, sent = path.batch(), path.values()
    for bit in range(HEADER_BITS):
        refusal, replica = attempts.append(flipped(data, bit))
        if refusal is not None:
            continue
        assert replica.offsets.log_end == len(sent), f"bit {bit}"
        assert not [found for found in stored_attributes(replica) if found & ~CLIENT_ATTRIBUTES], f"bit {bit}"
        if not (path.trusting and bit in CODEC_BITS):
            assert [record.value for record in everything(replica)] == sent, f"bit {bit}"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_attributes_that_only_brokers_set_or_that_are_unknown_are_refused(path: Path) -> None:
    attempts = Attempts(path)
    data = path.batch()
    sent = parse_batch_header(data).attributes
    for bit in range(5, 16):
        refusal, _ = attempts.append(with_attributes(data, sent | 1 << bit))
        assert type(refusal) is InvalidRecord, f"bit {bit}"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_no_value_of_the_unknown_attributes_is_stored(path: Path) -> None:
    attempts = Attempts(path)
    data = path.batch()
    codec = parse_batch_header(data).attributes & CODEC_MASK
    for high in range(1, 256) if path.value_bytes < HEAVY_BYTES else (0x01, 0x80, 0xFF):
        for low in {codec, TRANSACTIONAL_FLAG, CONTROL_FLAG, DELETE_HORIZON_FLAG, 0x80, 0xFF}:
            refusal, _ = attempts.append(with_attributes(data, high << 8 | low))
            assert refusal is not None, f"{high << 8 | low:#06x}"


@pytest.mark.parametrize("attributes", [0x8000, 0x8020, 0x8030, 0x8001, 0x0040, 0xFFFF])
def test_random_bytes_with_unknown_attributes_are_not_stored(attributes: int) -> None:
    path = Path("transactional", transactional=True)
    noisy = batch(b"x", producer_id=PRODUCER)
    noisy[HEADER_BYTES:] = b"\xff" * (len(noisy) - HEADER_BYTES)
    refusal, _ = Attempts(path).append(with_attributes(noisy, attributes))
    assert refusal is not None


def test_a_transactional_batch_without_a_producer_id_is_refused() -> None:
    path = Path("transactional", transactional=True)
    for producer_id in (-1, -(2**63) + PRODUCER):
        refusal, _ = Attempts(path).append(batch(b"x", is_transactional=True, producer_id=producer_id))
        assert type(refusal) is InvalidRecord


def test_a_negative_producer_epoch_is_refused() -> None:
    refusal, _ = Attempts(Path("idempotent")).append(batch(b"x", producer_id=PRODUCER, producer_epoch=-(2**15)))
    assert type(refusal) is InvalidProducerEpoch


def test_a_timestamp_that_overflows_is_refused() -> None:
    """The delta of a record may overflow a base timestamp that is in range."""
    spread = build_batch([Record(0, NOW_MS, b"k", b"x"), Record(1, NOW_MS + 10, b"k", b"y")])
    struct.pack_into(">qq", spread, BASE_TIMESTAMP_AT, 2**63 - 6, 2**63 - 1)
    refusal, _ = Attempts(Path("any timestamp", ANY_TIME)).append(resealed(spread))
    assert type(refusal) is InvalidTimestamp


@pytest.mark.parametrize("attributes", [0x8000, 0x0040, 0xFF80])
def test_a_follower_stores_and_serves_attributes_that_its_leader_accepted(attributes: int) -> None:
    """A follower does not validate again: a newer leader may know attributes that this broker does not."""
    rig = Rig(topic())
    data = with_attributes(batch(b"a", b"b"), attributes)
    rig.replica().log.append_stamped(memoryview(data), lambda *_: None)

    replica = Rig(topic(), disk=rig.stop(clean=False)).replica()

    assert [record.value for record in everything(replica)] == [b"a", b"b"]
    assert stored_attributes(replica) == [attributes]
    found = replica.log.view().offset_for_time(NOW_MS)
    assert found is not None
    assert found.offset == 0
