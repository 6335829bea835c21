"""The follower's codec of Fetch agrees with the leader's."""

from penstock.wire.fetch import HIGH_WATERMARK_UNKNOWN, FetchedPartition, decode_fetch, encode_fetch_response
from penstock.wire.replica_fetch import (
    VERSION,
    PartitionFetch,
    ReplicaFetchRequest,
    decode_replica_fetched,
    encode_replica_fetch,
)

ONE, TWO = bytes(15) + b"\x01", bytes(15) + b"\x02"


def asked(topic_id: bytes, partition: int, **kw: int) -> PartitionFetch:
    return PartitionFetch(
        topic_id=topic_id,
        partition=partition,
        offset=7,
        held_end=kw.get("held_end", 7),
        bytes_max=99,
        leader_epoch=3,
        last_fetched_epoch=2,
        log_start=1,
        high_watermark=kw.get("high_watermark"),
    )


def test_a_leader_reads_what_a_follower_wrote() -> None:
    request = ReplicaFetchRequest(
        replica_id=4,
        replica_epoch=1 << 40,
        max_wait_ms=500,
        bytes_min=1,
        bytes_max=1 << 20,
        session_id=11,
        session_epoch=5,
        partitions=[asked(ONE, 0), asked(ONE, 3, held_end=5), asked(TWO, 1, high_watermark=6)],
        forgotten=[(TWO, 8), (TWO, 9)],
    )

    found = decode_fetch(bytes(encode_replica_fetch(request)), 0, VERSION)

    assert (found.replica_id, found.replica_epoch, found.session_id, found.session_epoch) == (4, 1 << 40, 11, 5)
    assert (found.max_wait_ms, found.bytes_min, found.bytes_max) == (500, 1, 1 << 20)
    assert [(topic_id, [item.index for item in items]) for _, topic_id, items in found.topics] == [
        (ONE, [0, 3]),
        (TWO, [1]),
    ]
    first, second = found.topics[0][2]
    assert (first.fetch_offset, first.held_end, first.bytes_max) == (7, -1, 99)
    assert (first.current_leader_epoch, first.last_fetched_epoch, first.log_start_offset) == (3, 2, 1)
    assert second.held_end == 5
    [third] = found.topics[1][2]
    assert (third.held_end, third.high_watermark) == (-1, 6)
    assert first.high_watermark == second.high_watermark == HIGH_WATERMARK_UNKNOWN
    assert found.forgotten == [(None, TWO, [8, 9])]


def test_a_follower_reads_what_a_leader_wrote() -> None:
    topics = [
        (
            None,
            ONE,
            [
                FetchedPartition(0, high_watermark=5, last_stable_offset=4, log_start_offset=2, records=b"records"),
                FetchedPartition(1, error_code=6, current_leader=(9, 12)),
                FetchedPartition(2, high_watermark=5, log_start_offset=0, records=None, diverging_epoch=(3, 40)),
                FetchedPartition(3, high_watermark=9, log_start_offset=0, records=b"more", removals=(8, 2)),
            ],
        )
    ]
    parts, _ = encode_fetch_response(topics, VERSION, 8, 0, 77, node_endpoints=[(9, "host", 9092, None)])

    found = decode_replica_fetched(b"".join(bytes(part) for part in parts), 0)

    assert (found.throttle_time_ms, found.error_code, found.session_id) == (8, 0, 77)
    one, two, three, four = found.partitions
    assert (one.topic_id, one.partition, one.error_code, bytes(one.records)) == (ONE, 0, 0, b"records")
    assert (one.high_watermark, one.log_start, one.diverging) == (5, 2, None)
    assert (two.error_code, two.leader, two.leader_epoch) == (6, 9, 12)
    assert (three.diverging, bytes(three.records)) == ((3, 40), b"")
    assert (one.removals, four.removals, bytes(four.records)) == (None, (8, 2), b"more")
