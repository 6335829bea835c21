"""The handwritten codec of Produce against the generated one."""

from types import ModuleType
from typing import Any

import pytest
from either_way import both
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.api import produce as generated
from penstock.wire.primitives import ZERO_UUID, Malformed, varint_bytes

PRODUCES = both("produce")
VERSIONS = range(generated.VERSION_MIN, generated.VERSION_MAX + 1)
TOPIC_IDS_FROM = 13

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20) | st.just("n" * 200)
partitions = st.builds(
    generated.PartitionProduceData, index=int32, records=st.none() | st.binary(max_size=50) | st.just(b"r" * 20_000)
)
topics = st.builds(
    generated.TopicProduceData,
    name=names,
    topic_id=st.binary(min_size=16, max_size=16),
    partition_data=st.lists(partitions, max_size=4),
)
requests = st.builds(
    generated.Request,
    transactional_id=st.none() | names,
    acks=int16,
    timeout_ms=int32,
    topic_data=st.lists(topics, max_size=4)
    | st.lists(st.just(generated.TopicProduceData()), min_size=200, max_size=200),
)


@pytest.mark.parametrize("produce", PRODUCES)
@given(request_=requests, version=st.sampled_from(VERSIONS))
def test_it_reads_what_the_generated_codec_reads(produce: ModuleType, request_: Any, version: int) -> None:
    data = bytearray(b"head" + generated.encode_request(request_, version))

    found = produce.decode_produce(data, 4, version)

    by_id = version >= TOPIC_IDS_FROM
    assert (found.transactional_id, found.acks, found.timeout_ms) == (
        request_.transactional_id,
        request_.acks,
        request_.timeout_ms,
    )
    assert found.topics == [
        (
            None if by_id else topic.name,
            topic.topic_id if by_id else None,
            [(partition.index, partition.records) for partition in topic.partition_data],
        )
        for topic in request_.topic_data
    ]


def a_request(records: bytes = b"records", name: str = "topic") -> Any:
    partition = generated.PartitionProduceData(index=3, records=records)
    topic = generated.TopicProduceData(name=name, topic_id=b"i" * 16, partition_data=[partition])
    return generated.Request(transactional_id="tx", acks=-1, timeout_ms=5, topic_data=[topic])


@pytest.mark.parametrize("produce", PRODUCES)
@pytest.mark.parametrize("wrap", [bytearray, lambda data: memoryview(bytearray(data))])
def test_records_are_writable_views_of_the_request(produce: ModuleType, wrap: Any) -> None:
    data = wrap(generated.encode_request(a_request(), 9))

    ((_, _, ((_, records),)),) = produce.decode_produce(data, 0, 9).topics
    records[0:1] = b"R"

    assert b"Records" in bytes(data)


@pytest.mark.parametrize("produce", PRODUCES)
def test_trailing_bytes_are_ignored(produce: ModuleType) -> None:
    whole = generated.encode_request(a_request(), 9)

    found = produce.decode_produce(whole + b"\0\xff\0", 0, 9)

    assert found.topics == [("topic", None, [(3, b"records")])]


@pytest.mark.parametrize("produce", PRODUCES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed(produce: ModuleType, version: int) -> None:
    whole = generated.encode_request(a_request(), version)

    for cut in range(len(whole)):
        with pytest.raises(Malformed):
            produce.decode_produce(whole[:cut], 0, version)


@pytest.mark.parametrize("produce", PRODUCES)
@given(data=st.binary(max_size=60), version=st.sampled_from(VERSIONS), place=st.integers(0, 60))
def test_garbage_is_read_as_the_generated_codec_reads_it(
    produce: ModuleType, data: bytes, version: int, place: int
) -> None:
    whole = generated.encode_request(a_request(), version)
    broken = whole[:place] + data[:4] + whole[place + len(data[:4]) :]

    assert outcome(lambda: generated.decode_request(broken, 0, version)) == outcome(
        lambda: produce.decode_produce(broken, 0, version)
    )
    assert outcome(lambda: generated.decode_request(data, 0, version)) == outcome(
        lambda: produce.decode_produce(data, 0, version)
    )


def outcome(decode: Any) -> tuple[Any, ...]:
    try:
        found = decode()
    except Malformed:
        return ("malformed",)
    return (found.transactional_id, found.acks, found.timeout_ms)


@pytest.mark.parametrize("produce", PRODUCES)
def test_unknown_tags_are_skipped_at_every_level(produce: ModuleType) -> None:
    tags = b"\x01" + varint_bytes(77) + b"\x02ab"
    partition = b"\0\0\0\3" + varint_bytes(8) + b"records" + tags
    topic = varint_bytes(6) + b"topic" + varint_bytes(2) + partition + tags
    data = b"\0" + b"\xff\xff" + b"\0\0\0\5" + varint_bytes(2) + topic + tags

    found = produce.decode_produce(data, 0, 9)

    assert found.topics == [("topic", None, [(3, b"records")])]


@pytest.mark.parametrize("produce", PRODUCES)
@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"\xff\xff" + b"\0\1" + b"\0\0\0\5" + b"\x7f\xff\xff\xff", 3),
        (b"\xff\xff" + b"\0\1" + b"\0\0\0\5" + b"\0\0\0\1" + b"\0\1t" + b"\x7f\xff\xff\xff", 3),
        (b"\0" + b"\0\1" + b"\0\0\0\5" + b"\xff\xff\xff\xff\x0f", 9),
        (b"\0" + b"\0\1" + b"\0\0\0\5" + b"\x02\x02t" + b"\xff\xff\xff\xff\x0f", 9),
        (b"\0" + b"\0\1" + b"\0\0\0\5" + b"\x02\x02t\x02" + b"\0\0\0\0" + b"\xff\xff\xff\xff\x0f", 9),
        (b"\xff\xff\xff\xff\xff\xff", 9),
    ],
)
def test_a_huge_length_is_malformed(produce: ModuleType, data: bytes, version: int) -> None:
    with pytest.raises(Malformed):
        produce.decode_produce(data, 0, version)


results = st.builds(
    generated.PartitionProduceResponse,
    index=int32,
    error_code=int16,
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
    record_errors=st.lists(
        st.builds(generated.BatchIndexAndErrorMessage, batch_index=int32, batch_index_error_message=st.none() | names),
        max_size=2,
    ),
    error_message=st.none() | names,
    current_leader=st.builds(generated.LeaderIdAndEpoch, leader_id=int32, leader_epoch=int32) | st.none(),
)
endpoints = st.tuples(int32, names, int32, st.none() | names)


def as_result(produce: ModuleType, result: Any, version: int) -> Any:
    leader = (result.current_leader.leader_id, result.current_leader.leader_epoch)
    if version < 10:
        result.current_leader = generated.LeaderIdAndEpoch()
    return produce.ProducedPartition(
        result.index,
        result.error_code,
        result.base_offset,
        result.log_append_time_ms,
        result.log_start_offset,
        [(error.batch_index, error.batch_index_error_message) for error in result.record_errors],
        result.error_message,
        None if leader == (-1, -1) else leader,
    )


@pytest.mark.parametrize("produce", PRODUCES)
@given(
    responses=st.lists(st.tuples(names, st.lists(results, max_size=3)), max_size=3),
    version=st.sampled_from(VERSIONS),
    throttle_ms=int32,
    nodes=st.lists(endpoints, max_size=2),
)
def test_its_response_is_the_bytes_of_the_generated_codec(
    produce: ModuleType, responses: Any, version: int, throttle_ms: int, nodes: Any
) -> None:
    by_hand = [
        (name, b"i" * 16, [as_result(produce, result, version) for result in found]) for name, found in responses
    ]
    response = generated.Response(
        responses=[
            generated.TopicProduceResponse(
                name="" if version >= TOPIC_IDS_FROM else name,
                topic_id=b"i" * 16 if version >= TOPIC_IDS_FROM else ZERO_UUID,
                partition_responses=found,
            )
            for name, found in responses
        ],
        throttle_time_ms=throttle_ms,
        node_endpoints=[
            generated.NodeEndpoint(node_id=node, host=host, port=port, rack=rack) for node, host, port, rack in nodes
        ]
        if version >= 10
        else [],
    )

    assert produce.encode_produce_response(by_hand, version, throttle_ms, nodes) == generated.encode_response(
        response, version
    )
