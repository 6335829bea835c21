"""Request and response headers."""

from types import ModuleType

import pytest
from either_way import both
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.api.table import TABLE
from penstock.wire.primitives import Malformed, varint_bytes

FRAMES = both("frame")
PRODUCE, API_VERSIONS, SASL_HANDSHAKE, UNKNOWN = 0, 18, 17, 999


@pytest.mark.parametrize("frame", FRAMES)
@given(
    api_key=st.sampled_from([*TABLE, UNKNOWN]),
    api_version=st.integers(-(2**15), 2**15 - 1),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=50),
)
def test_a_request_header_comes_back_and_points_at_the_body(
    frame: ModuleType, api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> None:
    data = frame.encode_request_header(api_key, api_version, correlation_id, client_id) + b"body"

    header = frame.decode_request_header(bytearray(data))

    found = (header.api_key, header.api_version, header.correlation_id, header.client_id)
    assert found == (api_key, api_version, correlation_id, client_id)
    assert data[header.body_offset :] == b"body"


@pytest.mark.parametrize("frame", FRAMES)
def test_tags_of_a_flexible_header_are_skipped(frame: ModuleType) -> None:
    plain = frame.encode_request_header(PRODUCE, 9, 1, "me")
    tag = varint_bytes(300) + varint_bytes(4) + b"what"

    header = frame.decode_request_header(plain[:-1] + b"\x01" + tag + b"body")

    assert header.body_offset == len(plain) + len(tag)
    assert header.client_id == "me"


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("api_key", "version", "flexible"),
    [(PRODUCE, 8, False), (PRODUCE, 9, True), (SASL_HANDSHAKE, 1, False), (API_VERSIONS, 3, True), (UNKNOWN, 5, False)],
)
def test_flexible_headers_depend_on_api_and_version(
    frame: ModuleType, api_key: int, version: int, flexible: bool
) -> None:
    assert frame.is_flexible(api_key, version) is flexible
    assert frame.encode_request_header(api_key, version, 1, "").endswith(b"\0\0\0" if flexible else b"\0\1\0\0")


@pytest.mark.parametrize("frame", FRAMES)
def test_the_response_to_api_versions_never_has_a_flexible_header(frame: ModuleType) -> None:
    assert frame.response_is_flexible(PRODUCE, 9)
    assert not frame.response_is_flexible(PRODUCE, 8)
    assert not frame.response_is_flexible(API_VERSIONS, 4)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("flexible", [False, True])
def test_a_response_header_comes_back(frame: ModuleType, flexible: bool) -> None:
    data = frame.encode_response_header(-5, flexible)

    assert frame.decode_response_header(data + b"body", flexible) == (-5, len(data))


@pytest.mark.parametrize("frame", FRAMES)
def test_a_request_header_cut_at_any_byte_is_malformed(frame: ModuleType) -> None:
    whole = frame.encode_request_header(PRODUCE, 9, 1, "client")

    for cut in range(len(whole)):
        with pytest.raises(Malformed):
            frame.decode_request_header(whole[:cut])


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("length", [b"\x7f\xff", b"\xff\xfe", b"\x80\x00"])
def test_a_client_id_of_an_impossible_length_is_malformed(frame: ModuleType, length: bytes) -> None:
    with pytest.raises(Malformed):
        frame.decode_request_header(b"\0\0\0\x09\0\0\0\1" + length + b"client")


@pytest.mark.parametrize("frame", FRAMES)
def test_a_client_id_that_is_not_utf_8_is_malformed(frame: ModuleType) -> None:
    with pytest.raises(Malformed):
        frame.decode_request_header(b"\0\0\0\x03\0\0\0\1\0\2\xc3\x28")


@pytest.mark.parametrize("frame", FRAMES)
@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_header_or_malformed(frame: ModuleType, data: bytes) -> None:
    try:
        header = frame.decode_request_header(data)
    except Malformed:
        return
    assert 10 <= header.body_offset <= len(data)
