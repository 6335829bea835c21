"""One connection's requests and responses without a socket: framing, correlation, versions, hostile peers."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.api import api_versions, find_coordinator, metadata
from penstock.wire.channel import Channel, ProtocolViolation, ResponseTooLarge, Sent, VersionUnsupported
from penstock.wire.frame import decode_request_header, encode_response_header, response_is_flexible


def request(key: str = "g") -> find_coordinator.Request:
    return find_coordinator.Request(key=key)


def respond(frame: bytes, port: int, *, correlation_id: int | None = None) -> bytes:
    """What a broker sends for a FindCoordinator request: its length and a response that names a port."""
    header = decode_request_header(memoryview(frame)[4:])
    body = find_coordinator.encode_response(find_coordinator.Response(port=port), header.api_version)
    chosen = header.correlation_id if correlation_id is None else correlation_id
    head = encode_response_header(chosen, response_is_flexible(header.api_key, header.api_version))
    return pack(">i", len(head) + len(body)) + head + body


def versions(frame: bytes, keys: dict[int, tuple[int, int]], *, version: int = 3, error_code: int = 0) -> bytes:
    header = decode_request_header(memoryview(frame)[4:])
    rows = [
        api_versions.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in keys.items()
    ]
    found = api_versions.Response(error_code=error_code, api_keys=rows)
    body = api_versions.encode_response(found, version)
    return pack(">ii", 4 + len(body), header.correlation_id) + body


def test_a_request_has_its_length_its_header_and_a_correlation_id_of_its_own() -> None:
    channel = Channel("me")
    first, second = (channel.request(find_coordinator, 3, request()) for _ in range(2))

    assert len(first) == 4 + int.from_bytes(first[:4], "big")
    headers = [decode_request_header(memoryview(each)[4:]) for each in (first, second)]
    assert [(each.client_id, each.api_key, each.api_version) for each in headers] == [("me", 10, 3)] * 2
    assert headers[0].correlation_id != headers[1].correlation_id
    assert [each.correlation_id for each in channel.pending] == [each.correlation_id for each in headers]


@given(version=st.integers(0, 3), cuts=st.lists(st.integers(1, 9), max_size=40), count=st.integers(1, 5))
def test_responses_are_matched_in_order_however_their_bytes_arrive(version: int, cuts: list[int], count: int) -> None:
    channel = Channel("me")
    stream = b"".join(respond(channel.request(find_coordinator, version, request()), port) for port in range(count))
    found: list[Any] = []
    for cut in cuts:
        found += channel.feed(stream[:cut])
        stream = stream[cut:]
    found += channel.feed(stream)

    assert [each.decode(find_coordinator).port for each in found] == list(range(count))
    assert not channel.pending


def test_a_response_to_another_request_is_refused() -> None:
    channel = Channel("me")
    frame = channel.request(find_coordinator, 3, request())

    with pytest.raises(ProtocolViolation, match="a response to request 77; the next is that to 1"):
        channel.feed(respond(frame, 1, correlation_id=77))


def test_a_response_without_a_request_is_refused() -> None:
    channel = Channel("me")
    response = respond(channel.request(find_coordinator, 3, request()), 1)
    channel.feed(response)

    with pytest.raises(ProtocolViolation, match="without a request"):
        channel.feed(response)


@pytest.mark.parametrize("size", [-1, 0, 3])
def test_a_response_without_room_for_its_header_is_refused(size: int) -> None:
    with pytest.raises(ProtocolViolation):
        Channel("me").feed(pack(">i", size))


def test_a_response_beyond_the_bound_is_refused_before_its_bytes_are_kept() -> None:
    channel = Channel("me", response_bytes_max=100)
    channel.request(find_coordinator, 3, request())

    with pytest.raises(ResponseTooLarge, match="a response of 101 bytes; the most are 100"):
        channel.feed(pack(">i", 101))


def test_the_pipeline_is_bounded() -> None:
    channel = Channel("me", pipeline_max=2)
    channel.request(find_coordinator, 3, request())
    assert not channel.full()
    channel.request(find_coordinator, 3, request())

    assert channel.full()
    with pytest.raises(AssertionError):
        channel.request(find_coordinator, 3, request())


def test_a_request_that_gets_no_response_is_not_waited_for() -> None:
    channel = Channel("me")
    channel.frame(0, 9, b"")
    channel.expects_no_response()
    frame = channel.request(find_coordinator, 3, request())

    [response] = channel.feed(respond(frame, 8))
    assert response.decode(find_coordinator).port == 8


def test_correlation_ids_begin_again_before_they_overflow() -> None:
    channel = Channel("me")
    channel._sent_last = (1 << 31) - 1
    frame = channel.request(find_coordinator, 3, request())

    assert channel.pending[0] == Sent(1, 10, 3)
    assert len(channel.feed(respond(frame, 1))) == 1


def test_the_newest_version_that_both_sides_know_is_chosen() -> None:
    channel = Channel("me")
    frame = channel.versions_request(software_name="x", software_version="1")
    [response] = channel.feed(versions(frame, {10: (1, 99), 3: (0, 5), 0: (50, 60)}))

    assert channel.learn_versions(response) == 0
    assert channel.version(find_coordinator) == find_coordinator.VERSION_MAX
    assert channel.version(find_coordinator, 3) == 3
    assert channel.version(metadata) == 5


def test_an_api_that_the_peer_does_not_have_is_named() -> None:
    channel = Channel("me")
    frame = channel.versions_request(software_name="x", software_version="1")
    [response] = channel.feed(versions(frame, {10: (50, 60)}))
    channel.learn_versions(response)

    for api in (find_coordinator, metadata):
        with pytest.raises(VersionUnsupported, match=api.NAME):
            channel.version(api)


def test_a_broker_that_knows_an_older_api_versions_only_is_understood() -> None:
    """KIP-511: UNSUPPORTED_VERSION comes in version 0, with the versions of ApiVersions that the broker has."""
    channel = Channel("me")
    frame = channel.versions_request(software_name="x", software_version="1")
    [response] = channel.feed(versions(frame, {18: (0, 2), 10: (0, 1)}, version=0, error_code=35))

    assert channel.learn_versions(response) == 0
    assert channel.version(find_coordinator) == 1


def test_a_broker_that_refuses_api_versions_leaves_its_error_code() -> None:
    channel = Channel("me")
    frame = channel.versions_request(software_name="x", software_version="1")
    [response] = channel.feed(versions(frame, {}, error_code=58))

    assert channel.learn_versions(response) == 58


@given(st.binary(max_size=60))
def test_whatever_a_peer_sends_is_a_response_or_a_violation(data: bytes) -> None:
    channel = Channel("me")
    channel.versions_request(software_name="x", software_version="1")
    try:
        for response in channel.feed(data):
            channel.learn_versions(response)
    except ProtocolViolation:
        pass
