"""What strangers, broken clients and slow networks do to a port: an error or the end, and the next client is served."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from penstock.testing.processes import usage
from protocol.batches import batch, records_of
from protocol.raw import EARLIEST, NONE, UNSUPPORTED_VERSION, Wire, fetch_request, is_served, produce_request
from protocol.topics import create_topic, fresh_name, wait_until
from protocol.under_test import about_penstock

API_VERSIONS = 18
RESIDENT_GROWTH_MAX = 64 << 20
IDLE_MS = 2_000
"""Long enough for a client that has just connected to send its request."""
BROKER_SETTINGS = {"connections.frame.timeout.ms": "600000"} if about_penstock() else {}
"""Frames that are left unfinished stay so for as long as a test takes."""


@pytest.fixture(autouse=True)
def the_next_client_is_served(broker: Any) -> Iterator[None]:
    """After every test, a valid client gets its response."""
    yield
    assert is_served(broker.bootstrap)


def header(api_key: int, version: int, correlation_id: int = 1, client_id: bytes = b"raw") -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
        b"\xff" * 4096,
        framed(b""),
        framed(b"\x00"),
        framed(b"\x00\x12\x00"),
        framed(bytes(7)),
        framed(b"\xff" * 500),
        framed(header(API_VERSIONS, 3) + b"\x00" + b"\xff" * 40),
        framed(struct.pack(">hhih", API_VERSIONS, 0, 1, 20_000) + b"short"),
    ],
    ids=[
        "http", "tls", "all ones", "an empty frame", "one byte", "half a header", "a header of zeros",
        "a frame of ones", "a tag section of ones", "a client id longer than its frame",
    ],
)  # fmt: skip
def test_noise_ends_in_a_closed_connection(broker: Any, noise: bytes) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.send_bytes(noise)

        # A header of zeros asks for Produce version 0, which modern brokers do not serve.
        assert wire.closed()


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 105 << 20])
def test_an_invalid_frame_length_closes_the_connection(broker: Any, length: int) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.send_bytes(struct.pack(">i", length) + b"x" * 100)

        assert wire.closed()


def test_an_array_longer_than_its_frame_is_refused(broker: Any) -> None:
    with Wire(broker.bootstrap) as wire:
        for api_key, version in ((3, 0), (19, 0), (2, 1), (1, 4)):
            with Wire(broker.bootstrap) as each:
                each.send_bytes(framed(header(api_key, version) + struct.pack(">i", 2**31 - 1) * 8))
                assert each.closed()
        assert wire.versions()


def test_frames_cut_off_by_a_leaving_client_do_no_harm(broker: Any, wire: Wire) -> None:
    whole = framed(header(API_VERSIONS, 0))

    for cut in range(1, len(whole)):
        with Wire(broker.bootstrap) as leaving:
            leaving.send_bytes(whole[:cut])

        assert wire.versions()


def test_a_request_that_trickles_in_byte_by_byte_is_served(wire: Wire) -> None:
    for byte in wire.encode(ApiVersionsRequest(version=0), 7):
        wire.send_bytes(bytes([byte]))

    assert struct.unpack_from(">i", wire.read_frame())[0] == 7


@pytest.mark.parametrize("api_key", [-1, 4, 999, 32_767])
def test_an_unknown_api_closes_the_connection(wire: Wire, api_key: int) -> None:
    wire.send_bytes(framed(header(api_key, 0) + bytes(10)))

    assert wire.closed()


@pytest.mark.parametrize(("api_key", "version"), [(0, 2), (1, 3), (1, 99), (3, 999), (19, -1)])
def test_a_version_that_is_not_served_closes_the_connection(wire: Wire, api_key: int, version: int) -> None:
    wire.send_bytes(framed(header(api_key, version) + bytes(10)))

    assert wire.closed()


def test_a_newer_client_gets_the_supported_versions_and_continues(wire: Wire) -> None:
    wire.send_bytes(framed(header(API_VERSIONS, 99, correlation_id=5) + b"\x00\x07penguin\x041.0\x00"))

    frame = wire.read_frame()

    correlation, error, count, key, lowest, highest = struct.unpack_from(">ihihhh", frame)
    assert (correlation, error) == (5, UNSUPPORTED_VERSION)
    assert (count, key) == (1, API_VERSIONS)
    assert lowest == 0 < highest
    assert wire.versions()[API_VERSIONS] == range(lowest, highest + 1)


def test_unknown_tags_are_skipped(wire: Wire) -> None:
    tags = b"\x02" + b"\x63\x03abc" + b"\x64\x00"
    body = b"\x02a" + b"\x021" + tags

    wire.send_bytes(framed(header(API_VERSIONS, 3, correlation_id=9) + tags + body))

    assert struct.unpack_from(">ih", wire.read_frame()) == (9, NONE)


def test_a_hundred_pipelined_requests_get_their_responses_in_order(wire: Wire, topic: str) -> None:
    """`Wire.receive` refuses a response out of turn. The fetches wait longer than what comes behind them takes."""
    wire.send(fetch_request([(topic, 0, 0)], wait_ms=300, bytes_min=1 << 20))
    for number in range(33):
        wire.send(produce_request(topic, batch(values=[b"%d" % number]), acks=(1, -1)[number % 2]))
        wire.send(ApiVersionsRequest(version=number % 3))
        wire.send(fetch_request([(topic, 0, 0)], wait_ms=number % 3, bytes_min=1 << 20))

    responses = [wire.receive() for _ in range(100)]

    offsets = [response.responses[0].partition_responses[0].base_offset for response in responses[1::3]]
    assert offsets == list(range(33))
    assert len(records_of(responses[-1].responses[0].partitions[0].records)) == 33


def test_requests_sent_in_one_packet_and_split_anywhere_all_get_a_response(broker: Any) -> None:
    with Wire(broker.bootstrap) as wire:
        stream = b"".join(wire.encode(ApiVersionsRequest(version=0), number) for number in range(20))
        for cut in (1, 3, 4, 5, 17, 200, len(stream) - 1):
            wire.send_bytes(stream[:cut])
            wire.send_bytes(stream[cut:])
            assert [struct.unpack_from(">i", wire.read_frame())[0] for _ in range(20)] == list(range(20))


def test_five_hundred_clients_at_once_are_all_served(broker: Any) -> None:
    with ExitStack() as open_until_the_end:
        wires = [open_until_the_end.enter_context(Wire(broker.bootstrap)) for _ in range(500)]
        for wire in wires:
            wire.send(ApiVersionsRequest(version=0))
        assert all(wire.receive().api_keys for wire in wires)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_clients_that_vanish_during_a_long_poll_leave_nothing_behind(broker: Any, topic: str) -> None:
    if not hasattr(broker, "pid"):
        pytest.skip("needs the broker's process")
    before = descriptors(broker.pid)

    for number in range(200):
        with Wire(broker.bootstrap) as wire:
            wire.send(fetch_request([(topic, 0, 0)], wait_ms=600_000))
            if number % 2:
                # A reset instead of a goodbye.
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    wait_until(lambda: descriptors(broker.pid) <= before + 10, what="closed descriptors")
    with Wire(broker.bootstrap) as wire:
        assert wire.versions()


def resident(broker: Any) -> int:
    return usage(broker.pid).resident_bytes if hasattr(broker, "pid") else 0


def test_a_client_that_never_reads_holds_up_only_itself(broker: Any, topic: str) -> None:
    with Wire(broker.bootstrap) as wire:
        for _ in range(20):
            assert wire.produce(topic, batch(values=[os.urandom(500_000)])).error_code == NONE
    before = resident(broker)

    with Wire(broker.bootstrap) as greedy:
        # Ten gigabytes of responses asked for, none taken: by fetches, and by what is made in memory.
        flood(greedy, greedy.encode(fetch_request([(topic, 0, 0)], partition_bytes_max=50 << 20)), count=1000)
        with Wire(broker.bootstrap) as other:
            flood(other, other.encode(MetadataRequest(version=12, topics=None)), count=100_000)
            assert is_served(broker.bootstrap)
            assert resident(broker) - before < RESIDENT_GROWTH_MAX


def flood(wire: Wire, request: bytes, *, count: int) -> None:
    """Send until the broker stops reading, and no further."""
    wire.socket.settimeout(1.0)
    try:
        for _ in range(count):
            wire.socket.sendall(request)
    except TimeoutError:
        pass


def test_a_slow_reader_gets_every_byte_in_the_end(broker: Any, topic: str) -> None:
    values = [os.urandom(200_000) for _ in range(10)]
    with Wire(broker.bootstrap) as wire:
        for value in values:
            wire.produce(topic, batch(values=[value]))
        for _ in range(10):
            wire.send(fetch_request([(topic, 0, 0)], partition_bytes_max=50 << 20))
        for _ in range(10):
            [[found]] = [response.partitions for response in wire.receive().responses]
            assert [value for _, _, value in records_of(found.records)] == values
            time.sleep(0.02)


def test_a_frame_as_large_as_a_message_may_be_arrives_in_pieces(broker: Any, topic: str) -> None:
    value = os.urandom(1_000_000)
    with Wire(broker.bootstrap) as wire:
        request = wire.encode(produce_request(topic, batch(values=[value])), 3)
        for position in range(0, len(request), 70_001):
            wire.send_bytes(request[position : position + 70_001])
        assert struct.unpack_from(">i", wire.read_frame())[0] == 3
        assert wire.offset(topic) == 1
        assert [found for _, _, found in records_of(wire.fetch(topic, 0).records)] == [value]


@pytest.mark.penstock_only
def test_many_large_frames_that_never_end_stay_within_bounds(broker: Any) -> None:
    """Each promises a hundred megabytes and sends a little of it: a promise must not cost memory."""
    before = resident(broker)
    wires: list[Wire] = []
    with ExitStack() as open_until_the_end:
        for _ in range(100):
            wire = open_until_the_end.enter_context(Wire(broker.bootstrap))
            wire.send_bytes(struct.pack(">i", 100 << 20) + header(0, 9) + bytes(1000))
            wires.append(wire)
        for wire in wires:
            assert is_served(broker.bootstrap)
            wire.send_bytes(bytes(1000))
        assert is_served(broker.bootstrap)
        assert resident(broker) - before < RESIDENT_GROWTH_MAX


def test_noise_from_many_threads_and_good_clients_mix(broker: Any, topic: str) -> None:
    done = threading.Event()

    def shout() -> None:
        while not done.is_set():
            try:
                with Wire(broker.bootstrap) as wire:
                    wire.send_bytes(os.urandom(300))
            except OSError:
                pass

    shouters = [threading.Thread(target=shout) for _ in range(3)]
    for shouter in shouters:
        shouter.start()
    try:
        with Wire(broker.bootstrap) as wire:
            for number in range(200):
                assert wire.produce(topic, batch(values=[b"%d" % number])).base_offset == number
    finally:
        done.set()
        for shouter in shouters:
            shouter.join()


# Limits that need a broker of their own.


@pytest.mark.penstock_only
def test_a_frame_must_arrive_within_its_deadline(start_broker: Any) -> None:
    own = start_broker({"connections.frame.timeout.ms": "300"})
    with Wire(own.bootstrap) as slow, Wire(own.bootstrap) as patient:
        assert patient.versions()
        slow.send_bytes(framed(header(API_VERSIONS, 0))[:-1])

        assert slow.closed()
        assert patient.versions(), "a connection between two frames is not late"


def test_an_idle_connection_is_closed(start_broker: Any) -> None:
    own = start_broker({"connections.max.idle.ms": str(IDLE_MS)})
    with Wire(own.bootstrap) as wire:
        assert wire.versions()

        assert wire.closed()
    assert is_served(own.bootstrap)


def test_a_long_poll_is_not_idle(start_broker: Any) -> None:
    own = start_broker({"connections.max.idle.ms": str(IDLE_MS)})
    name = fresh_name("idle")
    create_topic(own.bootstrap, name)

    with Wire(own.bootstrap) as wire:
        assert wire.fetch(name, wait_ms=2 * IDLE_MS).error_code == NONE


def test_connections_of_one_address_are_limited(start_broker: Any) -> None:
    own = start_broker({"max.connections.per.ip": "10"})
    with ExitStack() as open_until_the_end:
        wires: list[Wire] = []

        def has_come() -> bool:
            # The connection that asked whether the broker is up may still count.
            wires.append(open_until_the_end.enter_context(Wire(own.bootstrap)))
            try:
                return bool(wires[-1].versions())
            except (EOFError, ConnectionError):
                wires.pop()
                return False

        for _ in range(10):
            wait_until(has_come, what="ten connections")
        with Wire(own.bootstrap) as one_too_many:
            assert one_too_many.closed()
        wires[0].close()
        wait_until(lambda: is_served(own.bootstrap), what="place for the next client")
        assert wires[1].versions()


def test_a_larger_frame_than_the_broker_takes_is_refused(start_broker: Any) -> None:
    own = start_broker({"socket.request.max.bytes": "20000", "message.max.bytes": "10000"})
    with Wire(own.bootstrap) as wire:
        wire.send_bytes(framed(header(0, 9) + bytes(30_000)))
        assert wire.closed()
    assert is_served(own.bootstrap)


def test_an_empty_log_starts_and_ends_at_offset_0(wire: Wire, topic: str) -> None:
    assert (wire.offset(topic, EARLIEST), wire.offset(topic)) == (0, 0)


def test_rejected_requests_do_not_change_data_files(broker: Any, topic: str) -> None:
    if not hasattr(broker, "data"):
        pytest.skip("needs the broker's files")
    with Wire(broker.bootstrap) as wire:
        wire.produce(topic, batch(values=[b"kept"]))
        [log] = Path(broker.data).rglob(f"{topic}-0/*.log")
        before = log.read_bytes()
        wire.produce(topic, batch(values=[b"x"])[:-3])
        wire.send_bytes(framed(header(0, 9) + b"\x00" + os.urandom(100)))

        assert wire.closed()
        assert log.read_bytes() == before
