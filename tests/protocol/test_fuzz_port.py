"""Requests of every API and version, random and then broken: no crash, bounded memory, the next client served.

Every run draws the same ones, so that a run that fails says something about the change before it;
PENSTOCK_TEST_SEED=<seed> draws others.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio_messages import INTEGERS, RandomMessages, kio_bytes, kio_class

from penstock.testing.processes import usage
from penstock.wire.api.table import TABLE
from protocol.batches import batch, field, records_of
from protocol.raw import NONE, Wire, is_served
from protocol.topics import create_topic

SEED_VARIABLE = "PENSTOCK_TEST_SEED"
SEED = 20_261_115
BROKEN_PER_VERSION = 20
RESIDENT_BYTES_MAX = 400 << 20
KEPT_TOPIC = "kept"
OTHER_TOPIC = "other"
# What would do to the broker what it says: these stay out, they are tested by name.
LEFT_OUT = {"DeleteTopics"}
# What may take records away, by an offset or by a retention of a millisecond, names another topic.
TAKING_AWAY = {"DeleteRecords", "AlterConfigs", "IncrementalAlterConfigs"}
KEPT = [b"this", b"must", b"stay"]

Mutation = Callable[[random.Random, bytearray], None]


class PlausibleMessages(RandomMessages):
    """Random requests whose names and numbers often mean something to the broker."""

    topic = KEPT_TOPIC

    def single(self, annotation: Any, kind: str | None) -> Any:
        if kind == "string" and self.randomness.random() < 0.5:
            return self.randomness.choice(
                (self.topic, OTHER_TOPIC, "1", "retention.ms", "lz4", "", "__consumer_offsets")
            )
        if kind in INTEGERS and self.randomness.random() < 0.7:
            extreme = 1 << INTEGERS[kind]
            return self.randomness.choice((-2, -1, 0, 1, 2, 5, 100, -extreme, extreme - 1))
        if kind == "records" and self.randomness.random() < 0.5:
            return batch(values=[b"fuzz"] * self.randomness.randrange(1, 4), compression=self.randomness.randrange(2))
        return super().single(annotation, kind)


def flip_bit(randomness: random.Random, data: bytearray) -> None:
    data[randomness.randrange(len(data))] ^= 1 << randomness.randrange(8)


def set_byte(randomness: random.Random, data: bytearray) -> None:
    data[randomness.randrange(len(data))] = randomness.choice((0x00, 0x01, 0x7F, 0x80, 0xFF))


def set_length(randomness: random.Random, data: bytearray) -> None:
    """Four bytes somewhere become a number that a length or a count would be bad with."""
    if len(data) >= 4:
        value = randomness.choice((-1, -2, 2**31 - 1, -(2**31), 1 << 20, len(data), len(data) + 1))
        struct.pack_into(">i", data, randomness.randrange(len(data) - 3), value)


def set_varint(randomness: random.Random, data: bytearray) -> None:
    position = randomness.randrange(len(data))
    data[position : position + 1] = randomness.choice((b"\xff\xff\xff\xff\x0f", b"\xff" * 12, b"\x80\x80\x80\x80\x00"))


def cut(randomness: random.Random, data: bytearray) -> None:
    del data[randomness.randrange(len(data)) :]


def remove(randomness: random.Random, data: bytearray) -> None:
    start = randomness.randrange(len(data))
    del data[start : start + randomness.randrange(1, 9)]


def insert(randomness: random.Random, data: bytearray) -> None:
    position = randomness.randrange(len(data) + 1)
    data[position:position] = randomness.randbytes(randomness.randrange(1, 9))


def repeat(randomness: random.Random, data: bytearray) -> None:
    start = randomness.randrange(len(data))
    data[start:start] = data[start : start + randomness.randrange(1, 200)]


MUTATIONS: tuple[Mutation, ...] = (flip_bit, set_byte, set_length, set_varint, cut, remove, insert, repeat)


def requests(randomness: random.Random, served: dict[int, range]) -> Iterator[tuple[str, bytes]]:
    """Frames of every served API and version: two good ones, then broken ones; with a word on what they are."""
    messages = PlausibleMessages(randomness.getrandbits(64))
    for key, versions in sorted(served.items()):
        if key not in TABLE or TABLE[key].name in LEFT_OUT:
            continue
        messages.topic = OTHER_TOPIC if TABLE[key].name in TAKING_AWAY else KEPT_TOPIC
        for version in range(max(versions.start, TABLE[key].version_min), versions.stop):
            flexible = version >= (TABLE[key].flexible_from if TABLE[key].flexible_from is not None else 1 << 15)
            header = struct.pack(">hhih", key, version, randomness.getrandbits(31), 4) + b"fuzz" + bytes(flexible)
            good = [kio_bytes(messages.message(kio_class(key, version, "request"), fill)) for fill in (0.5, 1.0)]
            for body in good:
                yield f"{TABLE[key].name} v{version}", framed(header + body)
            for _ in range(BROKEN_PER_VERSION):
                data = bytearray(header + randomness.choice(good))
                for _ in range(randomness.choice((1, 1, 2, 5))):
                    if data:
                        randomness.choice(MUTATIONS)(randomness, data)
                yield f"{TABLE[key].name} v{version} broken", framed(bytes(data))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def send_and_leave(bootstrap: str, frame: bytes) -> None:
    """Send, say that no more will come, and take what comes back."""
    with Wire(bootstrap) as wire:
        try:
            wire.send_bytes(frame)
            wire.socket.shutdown(1)
            while wire.socket.recv(65536):
                pass
        except ConnectionError:
            pass


@pytest.mark.penstock_only
@pytest.mark.slow
def test_random_and_broken_requests_of_every_api_leave_the_broker_as_it_was(start_broker: Any) -> None:
    seed = int(os.environ.get(SEED_VARIABLE, SEED))
    print(f"{SEED_VARIABLE}={seed}")
    own = start_broker()
    create_topic(own.bootstrap, KEPT_TOPIC)
    create_topic(own.bootstrap, OTHER_TOPIC)
    with Wire(own.bootstrap) as wire:
        assert wire.produce(OTHER_TOPIC, batch(values=KEPT)).error_code == NONE
        assert wire.produce(KEPT_TOPIC, batch(values=KEPT)).error_code == NONE
        served = wire.versions()

    for number, (what, frame) in enumerate(requests(random.Random(seed), served)):
        send_and_leave(own.bootstrap, frame)
        assert own.alive, f"{what} ended the broker: {frame.hex()}\n{own.tail()}"
        if number % 50 == 0:
            assert is_served(own.bootstrap), f"not served after {what}: {frame.hex()}"

    assert is_served(own.bootstrap)
    assert usage(own.pid).resident_bytes < RESIDENT_BYTES_MAX
    bugs = [line for line in own.log.read_text().splitlines() if '"level": "error"' in line or "Traceback" in line]
    assert not bugs, "\n".join(bugs[:5])
    own.restart()
    with Wire(own.bootstrap) as wire:
        found = wire.fetch(KEPT_TOPIC)
        assert [value for _, _, value in records_of(found.records)][: len(KEPT)] == KEPT


@pytest.mark.penstock_only
def test_broken_record_batches_are_never_stored_unless_their_checksum_is_right(start_broker: Any) -> None:
    seed = int(os.environ.get(SEED_VARIABLE, SEED))
    print(f"{SEED_VARIABLE}={seed}")
    randomness = random.Random(seed)
    own = start_broker()
    create_topic(own.bootstrap, KEPT_TOPIC)

    with Wire(own.bootstrap) as wire:
        for _ in range(1000):
            data = bytearray(batch(values=[b"fuzz"] * randomness.randrange(1, 5), compression=randomness.randrange(5)))
            randomness.choice(MUTATIONS)(randomness, data)
            before = wire.offset(KEPT_TOPIC)
            response = wire.produce(KEPT_TOPIC, bytes(data))
            grown = wire.offset(KEPT_TOPIC) - before
            if response.error_code == NONE:
                # Only bytes outside the checksum can have changed: the offset, the epoch, what lies behind the batch.
                assert grown == field(bytes(data), "count"), data.hex()
            else:
                assert grown == 0, data.hex()
        found = records_of(wire.fetch(KEPT_TOPIC, partition_bytes_max=50 << 20).records)

    assert {value for _, _, value in found} <= {b"fuzz"}
    assert [offset for offset, _, _ in found] == list(range(len(found)))
