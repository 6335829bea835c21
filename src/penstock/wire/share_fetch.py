"""A handwritten encoding of the response to ShareFetch: records stay what they are, bytes or a slice of a file.

The messages are the generated module's; joined, the buffers are byte for byte what it writes.
"""

from __future__ import annotations

from collections.abc import Sized
from struct import Struct
from typing import cast

from penstock.wire.api.share_fetch import PartitionData, Response
from penstock.wire.primitives import FlexibleWriter

_HEAD = Struct(">ih")
_LEADER = Struct(">ii")
_ACQUIRED = Struct(">qqh")


def encode_share_fetch_response(response: Response) -> list[Sized]:
    """The response's body as buffers in order."""
    parts: list[Sized] = []
    out = FlexibleWriter()
    out += _HEAD.pack(response.throttle_time_ms, response.error_code)
    out.string_nullable(response.error_message)
    out.int32(response.acquisition_lock_timeout_ms)
    out.length(len(response.responses))
    for topic in response.responses:
        out.uuid(topic.topic_id)
        out.length(len(topic.partitions))
        for partition in topic.partitions:
            _write_partition(out, parts, partition)
        out.tags()
    out.length(len(response.node_endpoints))
    for node in response.node_endpoints:
        out.int32(node.node_id)
        out.string(node.host)
        out.int32(node.port)
        out.string_nullable(node.rack)
        out.tags()
    out.tags()
    parts.append(bytes(out))
    return parts


def _write_partition(out: FlexibleWriter, parts: list[Sized], partition: PartitionData) -> None:
    out += _HEAD.pack(partition.partition_index, partition.error_code)
    out.string_nullable(partition.error_message)
    out.int16(partition.acknowledge_error_code)
    out.string_nullable(partition.acknowledge_error_message)
    leader = partition.current_leader
    out += _LEADER.pack(leader.leader_id, leader.leader_epoch)
    out.tags()
    records = cast("Sized", partition.records or b"")
    size = len(records)
    out.length(size)
    if size:
        parts.append(bytes(out))
        parts.append(records)
        out.clear()
    out.length(len(partition.acquired_records))
    for acquired in partition.acquired_records:
        out += _ACQUIRED.pack(acquired.first_offset, acquired.last_offset, acquired.delivery_count)
        out.tags()
    out.tags()
