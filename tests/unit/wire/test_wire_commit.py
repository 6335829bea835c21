"""The handwritten codec of OffsetCommit against the generated one."""

import contextlib
from types import ModuleType
from typing import Any

import pytest
from either_way import both
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.api import offset_commit as generated
from penstock.wire.primitives import Malformed

COMMITS = both("commit")
VERSIONS = range(generated.VERSION_MIN, generated.VERSION_MAX + 1)
TOPIC_IDS_FROM, INSTANCES_FROM, EPOCHS_FROM, RETENTION_TO = 10, 7, 6, 4

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20) | st.just("n" * 200)
ids = st.binary(min_size=16, max_size=16)
partitions = st.builds(
    generated.OffsetCommitRequestPartition,
    partition_index=int32,
    committed_offset=int64,
    committed_leader_epoch=int32,
    committed_metadata=st.none() | names,
)
topics = st.builds(
    generated.OffsetCommitRequestTopic, name=names, topic_id=ids, partitions=st.lists(partitions, max_size=4)
)
requests = st.builds(
    generated.Request,
    group_id=names,
    generation_id_or_member_epoch=int32,
    member_id=names,
    retention_time_ms=int64,
    group_instance_id=st.none(),
    topics=st.lists(topics, max_size=3),
)
responses = st.lists(st.tuples(names, ids, st.lists(st.tuples(int32, int16), max_size=4)), max_size=3)


@pytest.mark.parametrize("commit", COMMITS)
@given(request_=requests, version=st.sampled_from(VERSIONS), instance=st.none() | names)
def test_it_reads_what_the_generated_codec_reads(
    commit: ModuleType, request_: Any, version: int, instance: str | None
) -> None:
    if version >= INSTANCES_FROM:
        request_.group_instance_id = instance
    data = bytearray(b"head" + generated.encode_request(request_, version) + b"to spare")

    found = commit.decode_commit(data, 4, version)

    assert (found.group, found.generation, found.member_id, found.group_instance_id, found.retention_ms) == (
        request_.group_id,
        request_.generation_id_or_member_epoch,
        request_.member_id,
        request_.group_instance_id,
        request_.retention_time_ms if version <= RETENTION_TO else -1,
    )
    by_id = version >= TOPIC_IDS_FROM
    assert found.topics == [
        (
            "" if by_id else topic.name,
            topic.topic_id if by_id else None,
            [
                (
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch if version >= EPOCHS_FROM else -1,
                    partition.committed_metadata or "",
                )
                for partition in topic.partitions
            ],
        )
        for topic in request_.topics
    ]


@pytest.mark.parametrize("commit", COMMITS)
@given(topics=responses, version=st.sampled_from(VERSIONS), throttle_ms=st.integers(0, 2**31 - 1))
def test_it_writes_what_the_generated_codec_writes(
    commit: ModuleType, topics: list[Any], version: int, throttle_ms: int
) -> None:
    response = generated.Response(
        throttle_time_ms=throttle_ms,
        topics=[
            generated.OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    generated.OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in results
                ],
            )
            for name, topic_id, results in topics
        ],
    )

    assert commit.encode_commit_response(topics, version, throttle_ms) == generated.encode_response(response, version)


@pytest.mark.parametrize("commit", COMMITS)
@given(request_=requests, version=st.sampled_from(VERSIONS), data=st.data())
def test_a_request_cut_short_is_malformed(commit: ModuleType, request_: Any, version: int, data: Any) -> None:
    whole = generated.encode_request(request_, version)
    cut = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(Malformed):
        commit.decode_commit(whole[:cut], 0, version)


@pytest.mark.parametrize("commit", COMMITS)
@given(raw=st.binary(max_size=60), version=st.sampled_from(VERSIONS))
def test_random_bytes_decode_or_raise_malformed(commit: ModuleType, raw: bytes, version: int) -> None:
    with contextlib.suppress(Malformed):
        commit.decode_commit(raw, 0, version)
