"""The handwritten codec of Fetch against the generated one."""

from types import ModuleType
from typing import Any

import pytest
from either_way import both
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.api import fetch as generated
from penstock.wire.primitives import Malformed

FETCHES = both("fetch")
VERSIONS = range(generated.VERSION_MIN, generated.VERSION_MAX + 1)
TOPIC_IDS_FROM = 13

int8 = st.integers(-128, 127)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20) | st.just("n" * 200)
ids = st.binary(min_size=16, max_size=16)
partitions = st.builds(
    generated.FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=int64,
    log_start_offset=int64,
    partition_max_bytes=int32,
    last_fetched_epoch=int32,
    replica_directory_id=ids,
    high_watermark=int64,
)
topics = st.builds(generated.FetchTopic, topic=names, topic_id=ids, partitions=st.lists(partitions, max_size=3))
forgotten = st.builds(generated.ForgottenTopic, topic=names, topic_id=ids, partitions=st.lists(int32, max_size=3))
requests = st.builds(
    generated.Request,
    cluster_id=st.none() | names,
    replica_state=st.builds(generated.ReplicaState, replica_id=int32, replica_epoch=int64),
    replica_id=int32,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=int8,
    session_id=int32,
    session_epoch=int32,
    topics=st.lists(topics, max_size=3),
    forgotten_topics_data=st.lists(forgotten, max_size=2),
    rack_id=names,
)


def fitted(request: Any, version: int) -> bytes:
    """The request's bytes, without fields that this version cannot encode."""
    if version < 15:
        request.replica_state = generated.ReplicaState()
    else:
        request.replica_id = -1
    if version < 7:
        request.forgotten_topics_data = []
    if version < 12:
        for topic in request.topics:
            for partition in topic.partitions:
                partition.last_fetched_epoch = -1
    return generated.encode_request(request, version)


def assert_same_request(found: Any, expected: Any, version: int) -> None:
    replica_id = expected.replica_id if version < 15 else expected.replica_state.replica_id
    assert (
        found.replica_id,
        found.replica_epoch,
        found.max_wait_ms,
        found.bytes_min,
        found.bytes_max,
        found.isolation_level,
        found.session_id,
        found.session_epoch,
        found.rack_id,
        found.cluster_id,
    ) == (
        replica_id,
        expected.replica_state.replica_epoch,
        expected.max_wait_ms,
        expected.min_bytes,
        expected.max_bytes,
        expected.isolation_level,
        expected.session_id,
        expected.session_epoch,
        expected.rack_id,
        expected.cluster_id,
    )
    by_id = version >= TOPIC_IDS_FROM
    assert found.forgotten == [
        (None if by_id else topic.topic, topic.topic_id if by_id else None, topic.partitions)
        for topic in expected.forgotten_topics_data
    ]
    assert [
        (name, topic_id, [as_generated(partition) for partition in found_partitions])
        for name, topic_id, found_partitions in found.topics
    ] == [
        (None if by_id else topic.topic, topic.topic_id if by_id else None, topic.partitions)
        for topic in expected.topics
    ]


def as_generated(partition: Any) -> generated.FetchPartition:
    return generated.FetchPartition(
        partition=partition.index,
        current_leader_epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        log_start_offset=partition.log_start_offset,
        partition_max_bytes=partition.bytes_max,
        replica_directory_id=partition.replica_directory_id,
        high_watermark=partition.high_watermark,
    )


@pytest.mark.parametrize("fetch", FETCHES)
@given(request_=requests, version=st.sampled_from(VERSIONS))
def test_it_reads_what_the_generated_codec_reads(fetch: ModuleType, request_: Any, version: int) -> None:
    data = bytearray(b"head" + fitted(request_, version))

    found = fetch.decode_fetch(data, 4, version)

    assert_same_request(found, generated.decode_request(data, 4, version), version)


def a_request() -> Any:
    partition = generated.FetchPartition(partition=3, fetch_offset=9, partition_max_bytes=1 << 20)
    topic = generated.FetchTopic(topic="topic", topic_id=b"i" * 16, partitions=[partition])
    gone = generated.ForgottenTopic(topic="old", topic_id=b"o" * 16, partitions=[1, 2])
    return generated.Request(topics=[topic], forgotten_topics_data=[gone], rack_id="r", cluster_id="c")


@pytest.mark.parametrize("fetch", FETCHES)
def test_trailing_bytes_are_ignored(fetch: ModuleType) -> None:
    whole = fitted(a_request(), 12)

    found = fetch.decode_fetch(whole + b"\0\xff\0", 0, 12)

    assert_same_request(found, generated.decode_request(whole, 0, 12), 12)


@pytest.mark.parametrize("fetch", FETCHES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed(fetch: ModuleType, version: int) -> None:
    whole = fitted(a_request(), version)

    for cut in range(len(whole)):
        with pytest.raises(Malformed):
            fetch.decode_fetch(whole[:cut], 0, version)


@pytest.mark.parametrize("fetch", FETCHES)
@given(data=st.binary(max_size=4), version=st.sampled_from(VERSIONS), place=st.integers(0, 90))
def test_garbage_is_read_as_the_generated_codec_reads_it(
    fetch: ModuleType, data: bytes, version: int, place: int
) -> None:
    whole = fitted(a_request(), version)
    broken = whole[:place] + data + whole[place + len(data) :]

    try:
        expected = generated.decode_request(broken, 0, version)
    except Malformed:
        with pytest.raises(Malformed):
            fetch.decode_fetch(broken, 0, version)
        return
    assert_same_request(fetch.decode_fetch(broken, 0, version), expected, version)


pairs = st.tuples(int32, int32)
results = st.tuples(
    int32,
    int16,
    int64,
    int64,
    int64,
    st.none() | st.binary(max_size=40),
    st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    int32,
    st.none() | st.tuples(int32, int64),
    st.none() | pairs,
)
endpoints = st.tuples(int32, names, int32, st.none() | names)


def as_generated_result(result: Any, version: int) -> generated.PartitionData:
    index, error, high, stable, start, records, aborted, preferred, diverging, leader = result
    tagged = version >= 12
    return generated.PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high,
        last_stable_offset=stable,
        log_start_offset=start,
        records=records,
        aborted_transactions=None
        if aborted is None
        else [generated.AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted],
        preferred_read_replica=preferred if version >= 11 else -1,
        diverging_epoch=generated.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        if diverging and tagged
        else None,
        current_leader=generated.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        if leader and tagged
        else None,
    )


@pytest.mark.parametrize("fetch", FETCHES)
@given(
    responses=st.lists(st.tuples(names, st.lists(results, max_size=3)), max_size=3),
    version=st.sampled_from(VERSIONS),
    throttle_ms=int32,
    error=int16,
    session_id=int32,
    nodes=st.lists(endpoints, max_size=2),
)
def test_its_response_is_the_bytes_of_the_generated_codec(
    fetch: ModuleType, responses: Any, version: int, throttle_ms: int, error: int, session_id: int, nodes: Any
) -> None:
    by_id = version >= TOPIC_IDS_FROM
    response = generated.Response(
        throttle_time_ms=throttle_ms,
        error_code=error if version >= 7 else 0,
        session_id=session_id if version >= 7 else 0,
        responses=[
            generated.FetchableTopicResponse(
                topic="" if by_id else name,
                topic_id=b"i" * 16 if by_id else bytes(16),
                partitions=[as_generated_result(result, version) for result in found],
            )
            for name, found in responses
        ],
        node_endpoints=[
            generated.NodeEndpoint(node_id=node, host=host, port=port, rack=rack) for node, host, port, rack in nodes
        ]
        if version >= 16
        else [],
    )
    by_hand = [(name, b"i" * 16, [fetch.FetchedPartition(*result) for result in found]) for name, found in responses]

    parts, total = fetch.encode_fetch_response(by_hand, version, throttle_ms, error, session_id, nodes)

    assert b"".join(parts) == generated.encode_response(response, version)
    assert total == sum(len(part) for part in parts)


class Slice:
    """Records that stay in their file."""

    def __len__(self) -> int:
        return 300


@pytest.mark.parametrize("fetch", FETCHES)
def test_records_are_in_the_response_as_the_same_object(fetch: ModuleType) -> None:
    first, second = Slice(), Slice()
    partitions = [
        fetch.FetchedPartition(0, records=first),
        fetch.FetchedPartition(1),
        fetch.FetchedPartition(2, records=second),
    ]

    parts, total = fetch.encode_fetch_response([("topic", None, partitions)], 11, 0)

    assert [part for part in parts if not isinstance(part, bytes)] == [first, second]
    assert total == sum(len(part) for part in parts)
