"""Messages written in slices are the same bytes, and no slice is long."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.api import describe_configs, metadata, offset_fetch
from penstock.wire.primitives import BYTES_AT_ONCE_MAX, ITEMS_AT_ONCE_MAX, SlicingFlexibleWriter, SlicingWriter
from penstock.wire.slices import SlicedMessage, each


def sliced(module: ModuleType, message: object, version: int, *, flexible: bool) -> tuple[list[bytes], list[object]]:
    visited: list[object] = []
    writer = SlicingFlexibleWriter() if flexible else SlicingWriter()
    vars(module)["_write_response"](writer, message, version)
    body = SlicedMessage(writer, visited.append)
    for _ in body.steps():
        pass
    assert body.size == sum(map(len, body.parts))
    return body.parts, visited


@given(st.lists(st.lists(st.integers(0, 600), max_size=3), max_size=4), st.booleans())
def test_joined_slices_equal_a_message_written_at_once(groups: list[list[int]], flexible: bool) -> None:
    def partition(index: int) -> offset_fetch.OffsetFetchResponsePartitions:
        return offset_fetch.OffsetFetchResponsePartitions(partition_index=index, metadata="m" * (index % 7))

    response = offset_fetch.Response(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(
                group_id=f"g{at}",
                topics=[
                    offset_fetch.OffsetFetchResponseTopics(name="t", partitions=each(range(count), partition))
                    for count in topics
                ],
            )
            for at, topics in enumerate(groups)
        ]
    )
    parts, _ = sliced(offset_fetch, response, 9, flexible=True)
    assert b"".join(parts) == offset_fetch.encode_response(response, 9)


@given(st.integers(0, 3 * ITEMS_AT_ONCE_MAX))
def test_the_old_encoding_is_sliced_as_well(count: int) -> None:
    response = metadata.Response(topics=each(range(count), lambda at: metadata.MetadataResponseTopic(name=f"t{at}")))
    parts, visited = sliced(metadata, response, 5, flexible=False)
    assert b"".join(parts) == metadata.encode_response(response, 5)
    assert len(visited) == (count if count > ITEMS_AT_ONCE_MAX else 0)


def test_lazy_elements_are_made_one_at_a_time() -> None:
    made: list[int] = []

    def result(at: int) -> describe_configs.DescribeConfigsResult:
        made.append(at)
        return describe_configs.DescribeConfigsResult(resource_name=str(at))

    writer = SlicingFlexibleWriter()
    write: Any = vars(describe_configs)["_write_response"]
    write(writer, describe_configs.Response(results=each(range(10), result, at_once_max=4)), 4)
    assert made == []
    steps = SlicedMessage(writer, lambda element: None).steps()
    for at in range(10):
        next(steps)
        assert made == list(range(at + 1))


def test_short_lists_late_in_a_long_message_are_deferred() -> None:
    """Many short lists of short lists are as much work as one long list."""
    response = offset_fetch.Response(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(
                group_id=f"g{group}",
                topics=[
                    offset_fetch.OffsetFetchResponseTopics(
                        name=f"t{topic}",
                        partitions=[offset_fetch.OffsetFetchResponsePartitions(partition_index=p) for p in range(40)],
                    )
                    for topic in range(100)
                ],
            )
            for group in range(20)
        ]
    )
    parts, visited = sliced(offset_fetch, response, 9, flexible=True)
    assert b"".join(parts) == offset_fetch.encode_response(response, 9)
    assert visited == [], "none of the lists is long by itself"
    assert max(map(len, parts)) < 2 * BYTES_AT_ONCE_MAX
