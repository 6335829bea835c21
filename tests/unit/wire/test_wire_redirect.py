"""The codec of Redirect, which brokers of penstock send to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicId
from penstock.wire import redirect
from penstock.wire.primitives import Malformed

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
BATCHES = st.lists(st.tuples(INT32, INT32, INT64), max_size=5).map(tuple)


@given(
    st.builds(
        redirect.Request,
        topic_id=st.binary(min_size=16, max_size=16).map(TopicId),
        source=INT32,
        source_epoch=INT32,
        number=INT64,
        target=INT32,
        target_epoch=INT32,
        kind=st.sampled_from(redirect.Kind),
        acks=st.integers(-1, 1),
        produce_version=st.integers(0, 13),
        first_sequence=INT32,
        begins_at=INT32,
        payload=st.binary(max_size=100),
    )
)
def test_a_request_is_decoded_as_it_was_encoded(request_: redirect.Request) -> None:
    data = b"head" + redirect.encode_request(request_, 0)

    assert redirect.decode_request(memoryview(data), 4, 0) == request_


@given(
    st.builds(
        redirect.Response,
        error_code=st.integers(-1, 200),
        base_offset=INT64,
        log_append_time_ms=INT64,
        log_start=INT64,
        producers=st.lists(st.tuples(INT64, st.integers(-(2**15), 2**15 - 1), st.booleans(), BATCHES), max_size=4).map(
            tuple
        ),
    )
)
def test_a_response_is_decoded_as_it_was_encoded(response: redirect.Response) -> None:
    data = b"head" + redirect.encode_response(response, 0)

    assert redirect.decode_response(memoryview(data), 4, 0) == response


def test_a_marker_is_unpacked_as_it_was_packed() -> None:
    marker = redirect.Marker(
        producer_id=(3 << 40) | 7, epoch=2, commit=True, coordinator_epoch=9, transaction_version=2
    )

    assert redirect.unpack_marker(redirect.pack_marker(marker)) == marker


def test_what_is_no_request_is_malformed() -> None:
    with pytest.raises(Malformed):
        redirect.decode_request(b"short", 0, 0)
    with pytest.raises(Malformed):
        redirect.unpack_marker(b"short")
    request = redirect.Request(
        topic_id=TopicId(bytes(16)),
        source=2,
        source_epoch=1,
        number=1,
        target=0,
        target_epoch=0,
        kind=redirect.Kind.FENCE,
    )
    data = bytearray(redirect.encode_request(request, 0))
    data[48] = 99
    with pytest.raises(Malformed):
        redirect.decode_request(data, 0, 0)
