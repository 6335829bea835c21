"""Batches with any bit of their header flipped: refused, or read back by librdkafka, kafka-python and aiokafka."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest

from protocol.batches import CHECKED_FROM, FIELDS, GZIP, HEADER_BYTES, NO_COMPRESSION, batch, broken, reseal
from protocol.batches import field as header_field
from protocol.clients.aiokafka import AioKafka
from protocol.clients.confluent import Confluent
from protocol.clients.kafka_python import KafkaPython
from protocol.raw import INVALID_RECORD, NONE, Wire, produce_request
from protocol.topics import fresh_name, wait_until
from protocol.under_test import about_penstock

SECONDS_MAX = 60.0
READERS = (Confluent, KafkaPython, AioKafka)
END = b"end"
"""The value of a good record after all others."""

TRANSACTIONAL = 0x10
ATTRIBUTES_FROM = FIELDS["attributes"][0] * 8
CODEC_BITS = range(ATTRIBUTES_FROM + 13, ATTRIBUTES_FROM + 16)
BROKERS_BITS = range(ATTRIBUTES_FROM, ATTRIBUTES_FROM + 11)
"""Attributes 15 to 5: unknown ones, the delete horizon and control."""

HEAVY_BYTES = 70_000
"""A value that makes a compressed batch so large that the broker validates it off its event loop."""

TRANSACTION_MS = 600_000
PRODUCE_ADDS = 12
"""The first version of Produce that adds partitions to transactions."""


@dataclass(frozen=True)
class Path:
    """A kind of batch and of topic, which together choose how the broker validates it."""

    name: str
    configs: dict[str, str] = field(default_factory=dict)
    compression: int = NO_COMPRESSION
    producer: bool = False
    padding_bytes: int = 0
    trusting: bool = False
    """Whether penstock stores a compressed batch unopened (docs/differences.md): readers find a wrong codec."""

    def configs_here(self) -> dict[str, str]:
        return self.configs if about_penstock() else {k: v for k, v in self.configs.items() if k != "compressed_check"}

    def values(self, bit: int) -> list[bytes]:
        padding = random.Random(bit).randbytes(self.padding_bytes)
        return [f"{bit}-one".encode() + padding, f"{bit}-two".encode(), f"{bit}-three".encode()]


PATHS = [
    Path("plain", trusting=True),
    Path("gzip, trusting", compression=GZIP, trusting=True),
    Path("gzip, records checked", {"compressed_check": "records"}, compression=GZIP),
    Path("log append time", {"message_timestamp_type": "LogAppendTime"}),
    Path("log append time, gzip", {"message_timestamp_type": "LogAppendTime"}, compression=GZIP),
    Path("recompressed", {"compression_type": "zstd"}),
    Path("idempotent", producer=True, trusting=True),
    Path("off the loop", {"compressed_check": "records"}, compression=GZIP, padding_bytes=HEAVY_BYTES),
]


def flipped(data: bytes, bit: int) -> bytes:
    """The batch with one bit of its header flipped, and the checksum that goes with it where it is covered."""
    out = bytearray(data)
    out[bit // 8] ^= 0x80 >> bit % 8
    if bit >= CHECKED_FROM * 8:
        reseal(out)
    return bytes(out)


def keyed(values: list[bytes], **kinds: Any) -> bytes:
    return batch([(b"k", value) for value in values], **kinds)


def assert_all_read(broker: Any, topic: str, sent: list[bytes]) -> None:
    for client in READERS:
        with client(broker.bootstrap).reader(topic, isolation="read_committed") as reader:
            assert [record.value for record in reader.read(len(sent) + 1)] == [*sent, END], client.__name__


def accepted_bits(path: Path, produce: Callable[[bytes], int], make: Callable[[int], bytes]) -> list[int]:
    """Send a batch for every flipped bit of the header; returns the accepted bits. Unchecked codecs are left out."""
    accepted: list[int] = []
    for bit in range(HEADER_BYTES * 8):
        if path.trusting and bit in CODEC_BITS:
            continue
        code = produce(flipped(make(bit), bit))
        if code == NONE:
            accepted.append(bit)
        if about_penstock() and bit in BROKERS_BITS:
            assert code == INVALID_RECORD, f"attribute {BROKERS_BITS.stop - bit + 4}"
    return accepted


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_stored_batches_with_flipped_header_bits_are_read_by_every_client(
    broker: Any, wire: Wire, make_topic: Any, path: Path
) -> None:
    topic = make_topic(**path.configs_here())

    def make(bit: int) -> bytes:
        # Ids far apart: no flipped bit makes one of another.
        producer = (random.Random(bit).getrandbits(62), 0, 0) if path.producer else (-1, -1, -1)
        return keyed(path.values(bit), compression=path.compression, producer=producer)

    accepted = accepted_bits(path, lambda data: wire.produce(topic, data).error_code, make)
    assert wire.produce(topic, keyed([END])).error_code == NONE

    assert_all_read(broker, topic, [value for bit in accepted for value in path.values(bit)])


def test_stored_transactional_batches_with_flipped_header_bits_are_read_by_every_client(
    broker: Any, wire: Wire, make_topic: Any
) -> None:
    topic, name, path = make_topic(), fresh_name("t"), Path("transactional")
    producer_id, epoch = initialised(wire, name)
    stored = 0

    def make(bit: int) -> bytes:
        good = keyed(path.values(bit), producer=(producer_id, epoch, 3 * stored))
        return broken(good, attributes=TRANSACTIONAL)

    def produce(data: bytes) -> int:
        nonlocal stored
        request = produce_request(topic, data, version=PRODUCE_ADDS)
        request.transactional_id = name
        [[found]] = [response.partition_responses for response in wire.ask(request).responses]
        # Without a producer of its transaction (an id that is negative), Kafka counts no sequence.
        of_producer = len(data) >= HEADER_BYTES and header_field(data, "producer_id") == producer_id
        stored += found.error_code == NONE and of_producer
        return int(found.error_code)

    accepted = accepted_bits(path, produce, make)
    ended = wire.ask(
        EndTxnRequest(version=4, transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
    )
    assert ended.error_code == NONE
    assert wire.produce(topic, keyed([END])).error_code == NONE

    assert_all_read(broker, topic, [value for bit in accepted for value in path.values(bit)])


def initialised(wire: Wire, name: str) -> tuple[int, int]:
    """Producer id and epoch of a transactional id; its coordinator may need a moment."""
    responses: list[Any] = []

    def given() -> bool:
        wire.ask(FindCoordinatorRequest(version=3, key=name, key_type=1))
        responses.append(
            wire.ask(
                InitProducerIdRequest(
                    version=4,
                    transactional_id=name,
                    transaction_timeout_ms=TRANSACTION_MS,
                    producer_id=-1,
                    producer_epoch=-1,
                )
            )
        )
        return responses[-1].error_code == NONE

    wait_until(given, what="a producer id", seconds_max=SECONDS_MAX)
    return responses[-1].producer_id, responses[-1].producer_epoch
