"""For any input a codec returns a message or raises Malformed, and allocates in proportion to the input."""

import importlib
import random
import tracemalloc
from typing import Any

import pytest
from kio_messages import as_ours, kio_bytes, our_module, random_entities, versions_and_sides

from penstock.wire.api import create_topics, fetch, metadata, offset_fetch
from penstock.wire.api.table import TABLE
from penstock.wire.primitives import ITEMS_MAX, Malformed, Message, varint_bytes

APIS = [pytest.param(key, id=entry.name) for key, entry in sorted(TABLE.items())]
UNKNOWN_TAG = varint_bytes(12345) + varint_bytes(3) + b"abc"
GARBAGE_PER_VERSION = 30


def samples(key: int) -> list[tuple[Any, int, bytes]]:
    """A decoder, a version and the bytes of a full message, for each version and side."""
    module = our_module(key)
    return [
        (getattr(module, f"decode_{side}"), version, kio_bytes(random_entities(key, version, side)[1]))
        for version, side in versions_and_sides(key)
    ]


@pytest.mark.parametrize("key", APIS)
def test_a_message_cut_at_any_byte_is_malformed(key: int) -> None:
    for decode, version, encoded in samples(key):
        cuts = range(len(encoded)) if len(encoded) <= 200 else sorted(random.Random(7).sample(range(len(encoded)), 200))
        for cut in cuts:
            with pytest.raises(Malformed):
                decode(encoded[:cut], 0, version)


@pytest.mark.parametrize("key", APIS)
def test_trailing_bytes_are_ignored(key: int) -> None:
    for decode, version, encoded in samples(key):
        assert decode(encoded + b"\0\xff\0", 0, version) == decode(encoded, 0, version)


@pytest.mark.parametrize("key", APIS)
def test_garbage_is_read_or_malformed_and_nothing_else(key: int) -> None:
    randomness = random.Random(key)
    for decode, version, encoded in samples(key):
        for _ in range(GARBAGE_PER_VERSION):
            broken = bytearray(encoded or b"\0")
            for _ in range(randomness.choice((1, 1, 2, 8))):
                broken[randomness.randrange(len(broken))] = randomness.choice(
                    (0, 1, 0x7F, 0x80, 0xFF, randomness.randrange(256))
                )
            try:
                assert isinstance(decode(bytes(broken), 0, version), Message)
            except Malformed:
                continue


@pytest.mark.parametrize("key", APIS)
def test_an_unknown_tagged_field_is_skipped(key: int) -> None:
    module = our_module(key)
    flexible_from = TABLE[key].flexible_from
    for version, side in versions_and_sides(key):
        if flexible_from is None or version < flexible_from:
            continue
        entity = random_entities(key, version, side)[0]
        encoded = kio_bytes(entity)
        assert encoded[-1] == 0, "the smallest message ends with its empty tags"

        decoded = getattr(module, f"decode_{side}")(encoded[:-1] + b"\x01" + UNKNOWN_TAG, 0, version)

        assert decoded == as_ours(module, side, entity)


@pytest.mark.parametrize("key", APIS)
def test_a_version_that_does_not_exist_is_refused(key: int) -> None:
    module = our_module(key)
    for version in (TABLE[key].version_min - 1, TABLE[key].version_max + 1):
        with pytest.raises(ValueError, match="has versions"):
            module.decode_request(b"", 0, version)
        with pytest.raises(ValueError, match="has versions"):
            module.encode_response(module.Response(), version)


def test_the_table_equals_the_modules() -> None:
    for key, entry in TABLE.items():
        module = importlib.import_module(f"penstock.wire.api.{entry.module}")

        found = (module.NAME, module.VERSION_MIN, module.VERSION_MAX, module.FLEXIBLE_FROM)

        assert (module.API_KEY, *found) == (key, *entry[1:])


@pytest.mark.parametrize(
    ("decode", "data", "version"),
    [
        pytest.param(metadata.decode_request, b"\x7f\xff\xff\xff", 0, id="array"),
        pytest.param(metadata.decode_request, b"\xfe\xff\xff\xff\x07\x00\x00\x00", 9, id="compact array"),
        pytest.param(metadata.decode_request, b"\x00\x00\x00\x01\x7f\xff", 0, id="string"),
        pytest.param(metadata.decode_request, b"\x02" + bytes(16) + b"\xff\xff\xff\xff\x0f", 12, id="compact string"),
        pytest.param(offset_fetch.decode_request, b"\0\0\0\0\0\1\0\0\x7f\xff\xff\xff", 1, id="integers"),
        pytest.param(fetch.decode_response, b"\0\0\0\0\x7f\xff\xff\xff", 4, id="array of a response"),
        pytest.param(metadata.decode_request, b"\x01\x01\x00\xff\xff\xff\xff\x0f", 12, id="tag count"),
        pytest.param(metadata.decode_request, b"\x01\x01\x00\x01\x05\xff\xff\xff\xff\x0f", 12, id="tag size"),
    ],
)
def test_a_huge_length_is_refused_before_anything_is_allocated(decode: Any, data: bytes, version: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(data, 0, version)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 64_000


def test_structs_of_one_message_are_bounded_however_small_they_are() -> None:
    count = ITEMS_MAX + 1
    # An empty name and empty tags: two bytes each.
    data = varint_bytes(count + 1) + b"\x01\x00" * count + b"\x00\x00\x00\x00"

    with pytest.raises(Malformed, match="structs in one message"):
        metadata.decode_request(data, 0, 9)


def test_a_varint_of_six_bytes_is_malformed() -> None:
    with pytest.raises(Malformed, match="longer than 5 bytes"):
        metadata.decode_request(b"\x80\x80\x80\x80\x80\x01", 0, 12)


def test_a_negative_length_other_than_null_is_malformed() -> None:
    with pytest.raises(Malformed, match="length -2"):
        metadata.decode_request(b"\xff\xff\xff\xfe", 0, 1)


def test_null_where_none_may_be_is_malformed() -> None:
    with pytest.raises(Malformed, match="null"):
        metadata.decode_request(b"\xff\xff\xff\xff", 0, 0)
    with pytest.raises(Malformed, match="null"):
        metadata.decode_request(b"\x00\x00\x00\x01\xff\xff", 0, 1)


def test_text_that_is_not_utf_8_is_malformed() -> None:
    with pytest.raises(Malformed):
        metadata.decode_request(b"\x00\x00\x00\x01\x00\x02\xc3\x28", 0, 0)


def test_a_tagged_field_that_ends_elsewhere_than_announced_is_malformed() -> None:
    request = fetch.encode_request(fetch.Request(cluster_id="abc"), 12)
    # The tag's size is one less than the string in it.
    place = request.index(b"\x00\x04\x04abc")
    broken = request[:place] + b"\x00\x03\x04abc" + request[place + 6 :]

    with pytest.raises(Malformed):
        fetch.decode_request(broken, 0, 12)


def test_records_are_views_of_the_input() -> None:
    data = bytearray(fetch.encode_response(a_response_with_records(), 12))

    decoded = fetch.decode_response(data, 0, 12)
    data[data.index(b"stored")] = ord("S")

    records = decoded.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"Stored"


def a_response_with_records() -> fetch.Response:
    partition = fetch.PartitionData(records=b"stored")
    return fetch.Response(responses=[fetch.FetchableTopicResponse(topic="t", partitions=[partition])])


def test_a_value_that_the_version_cannot_carry_is_refused() -> None:
    request = create_topics.Request(topics=[create_topics.CreatableTopic(name="t")], validate_only=True)
    metadata_request = metadata.Request(allow_auto_topic_creation=False)

    assert create_topics.encode_request(request, 2)
    with pytest.raises(ValueError, match="version 3 has no allow_auto_topic_creation: False"):
        metadata.encode_request(metadata_request, 3)


def test_a_value_that_may_be_lost_is_lost_in_silence() -> None:
    response = metadata.Response(throttle_time_ms=77, cluster_id="abc")

    decoded = metadata.decode_response(metadata.encode_response(response, 1), 0, 1)

    assert (decoded.throttle_time_ms, decoded.cluster_id) == (0, None)


def test_a_number_that_does_not_fit_its_field_is_refused() -> None:
    with pytest.raises(ValueError, match="metadata"):
        metadata.encode_response(metadata.Response(controller_id=1 << 31), 12)


def test_a_string_longer_than_the_protocol_allows_is_refused_both_ways() -> None:
    topic = metadata.MetadataRequestTopic(name="x" * 40_000)

    with pytest.raises(ValueError, match="the most is 32767"):
        metadata.encode_request(metadata.Request(topics=[topic]), 12)
    with pytest.raises(Malformed, match="the most is 32767"):
        metadata.decode_request(b"\x02" + bytes(16) + varint_bytes(40_001) + b"x" * 40_000 + bytes(4), 0, 12)


def test_messages_compare_by_value_and_print_their_fields() -> None:
    one = metadata.MetadataRequestTopic(name="a")

    assert one == metadata.MetadataRequestTopic(name="a")
    assert one != metadata.MetadataRequestTopic(name="b")
    assert one != "a"
    assert "name='a'" in repr(one)


def test_a_message_shares_no_list_with_another() -> None:
    one, other = metadata.Request(), metadata.Request()
    assert one.topics is not None

    one.topics.append(metadata.MetadataRequestTopic(name="a"))

    assert other.topics == []
