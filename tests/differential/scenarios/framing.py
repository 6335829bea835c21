"""Frames that are no request, or an unknown one."""

from __future__ import annotations

import struct

from differential import codec
from differential.connection import Disconnected
from differential.script import CLIENT_ID, Run, scenarios

KEY_OF_NO_API = 1_000


def header(key: int, version: int, correlation_id: int = 7) -> bytes:
    client = CLIENT_ID.encode()
    return struct.pack(">hhih", key, version, correlation_id, len(client)) + client


def tell_bytes(run: Run, label: str, data: bytes) -> None:
    """Send bytes that are no whole frame, and record whether the broker disconnects."""
    try:
        run.connection.send_bytes(data)
        run.connection.receive_frame()
    except Disconnected:
        run.record(label, {"disconnected": True})
    else:
        run.record(label, {"responded": True})
    finally:
        run.close()


def unknown_api(run: Run) -> None:
    run.tell_frame("unknown key", header(KEY_OF_NO_API, 0))
    run.tell_frame("negative key", header(-1, 0))
    run.tell_frame("removed key: LeaderAndIsr", header(4, 0))
    run.tell_frame("client telemetry", header(71, 0) + b"\x00" * 18)
    run.tell_frame("controller's key: Vote", header(52, 0) + b"\x00" * 16)


def unknown_version(run: Run) -> None:
    for api in (
        "produce",
        "fetch",
        "list_offsets",
        "metadata",
        "create_topics",
        "describe_configs",
        "find_coordinator",
    ):
        top = codec.versions_of(api)[-1]
        run.tell_frame(f"{api} above", header(codec.API_KEYS[api], top + 50) + b"\x00" * 8)
        run.tell_frame(f"{api} negative", header(codec.API_KEYS[api], -1) + b"\x00" * 8)


def version_too_old(run: Run) -> None:
    for api, version in (
        ("produce", 0),
        ("produce", 2),
        ("fetch", 0),
        ("fetch", 3),
        ("list_offsets", 0),
        ("create_topics", 1),
        ("delete_topics", 0),
        ("offset_for_leader_epoch", 1),
        ("describe_configs", 0),
    ):
        run.tell_frame(f"{api} v{version}", header(codec.API_KEYS[api], version) + b"\x00" * 8)


def truncated_bodies(run: Run) -> None:
    """Whole frames whose body ends too early."""
    for api, version in (("metadata", 9), ("metadata", 1), ("produce", 9), ("produce", 3), ("fetch", 12), ("fetch", 4)):
        whole = codec.encode_request(api, version, 7, CLIENT_ID, SAMPLES[api])
        run.tell_frame(f"{api} v{version} without its last byte", whole[:-1])
        run.tell_frame(f"{api} v{version} header only", codec.encode_header(api, version, 7, CLIENT_ID))


def bodies_with_bytes_left_over(run: Run) -> None:
    for api, version in (("metadata", 9), ("metadata", 1), ("list_offsets", 1), ("list_offsets", 7)):
        whole = codec.encode_request(api, version, run.connection.next_correlation_id(), CLIENT_ID, SAMPLES[api])
        run.ask_frame(f"{api} v{version} and three bytes more", whole + b"abc", api=api, version=version)


def wrong_lengths(run: Run) -> None:
    """Arrays and strings longer than the frame."""
    metadata = codec.API_KEYS["metadata"]
    run.tell_frame("an array of 2 billion names", header(metadata, 1) + struct.pack(">i", 2_000_000_000))
    run.tell_frame("an array of -2 names", header(metadata, 1) + struct.pack(">i", -2))
    run.tell_frame("a name of 30000 bytes", header(metadata, 1) + struct.pack(">ih", 1, 30_000) + b"x")
    run.tell_frame("a name of -5 bytes", header(metadata, 1) + struct.pack(">ih", 1, -5) + b"x")
    run.tell_frame("a compact array of 2 billion", header(metadata, 9) + b"\x00" + b"\xff\xff\xff\xff\x0f")
    run.tell_frame("a varint of six bytes", header(metadata, 9) + b"\x00" + b"\xff\xff\xff\xff\xff\xff")
    run.tell_frame("a client id of -9 bytes", struct.pack(">hhih", metadata, 1, 7, -9))
    run.tell_frame("no client id at all", struct.pack(">hhi", metadata, 1, 7))
    run.tell_frame("an empty frame", b"")
    run.tell_frame("one byte", b"\x00")


def wrong_frame_lengths(run: Run) -> None:
    tell_bytes(run, "a negative frame", struct.pack(">i", -1))
    tell_bytes(run, "a frame above the largest", struct.pack(">i", 2_000_000_000))
    tell_bytes(run, "an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    tell_bytes(run, "a TLS hello", bytes.fromhex("1603010200010001fc0303") + b"\x00" * 600)


def unknown_tags(run: Run) -> None:
    """Unknown tagged fields, in the header and in the body, are skipped."""
    body = b"\x01" + b"\x01\x00\x00" + b"\x01\x63\x03abc"
    frame = header(codec.API_KEYS["metadata"], 9) + b"\x01\x62\x02xy" + body
    run.ask_frame("tags 98 and 99", frame, api="metadata", version=9)
    cut = header(codec.API_KEYS["metadata"], 9) + b"\x01\x62\x20xy" + body
    run.tell_frame("a tag longer than the frame", cut)


def null_client_id(run: Run) -> None:
    frame = codec.encode_request("metadata", 9, 7, None, {"topics": []})
    run.ask_frame("response", frame, api="metadata", version=9)


def responses_in_the_order_of_requests(run: Run) -> None:
    """A fetch that waits, and a quick request after it on the same connection."""
    topic = run.topic()
    slow = {
        "replica_id": -1,
        "max_wait": 300,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [
            {"topic": topic.name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 99}]}
        ],
    }
    run.connection.send_frame(codec.encode_request("fetch", 4, 101, CLIENT_ID, slow))
    run.connection.send_frame(codec.encode_request("metadata", 1, 102, CLIENT_ID, {"topics": []}))
    first, _ = codec.decode_response("fetch", 4, run.connection.receive_frame())
    second, _ = codec.decode_response("metadata", 1, run.connection.receive_frame())
    run.record("correlation ids", {"first": first, "second": second})


SAMPLES = {
    "metadata": {"topics": []},
    "list_offsets": {"replica_id": -1, "topics": []},
    "produce": {"acks": 1, "timeout": 100, "topic_data": []},
    "fetch": {"replica_id": -1, "topics": []},
}

SCENARIOS = scenarios(
    "framing",
    "metadata",
    (
        unknown_api,
        unknown_version,
        version_too_old,
        truncated_bodies,
        bodies_with_bytes_left_over,
        wrong_lengths,
        wrong_frame_lengths,
        unknown_tags,
        null_client_id,
        responses_in_the_order_of_requests,
    ),
    versions=range(1, 2),
)
