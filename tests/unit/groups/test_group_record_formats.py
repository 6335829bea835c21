"""The group coordinator's events round-trip through their records."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from penstock.groups.consumer.events import (
    ConsumerCurrentMemberAssignment,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerRegularExpression,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
)
from penstock.groups.events import (
    NO_EXPIRY_MS,
    ClassicGroupForgotten,
    ClassicGroupSaved,
    OffsetCommitted,
    OffsetForgotten,
)
from penstock.groups.record_formats import EventReader, GroupEvent, encode_event
from penstock.model.ids import TOPIC_ID_ZERO, TopicId
from penstock.wire import compression
from penstock.wire.group_values import (
    AssignmentEpoch,
    ClassicGroupValue,
    ClassicMember,
    ClassicMetadata,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    ResolvedPattern,
)
from penstock.wire.record_columns import decode_columns
from penstock.wire.records import RecordBatchBuilder

NAMES = st.text(max_size=12)
NULLABLE = st.none() | NAMES
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**50)
IDS = st.binary(min_size=16, max_size=16).map(TopicId)
BYTES = st.binary(max_size=20)
INDEXES = st.integers(0, 2**31 - 1)

MEMBERS = st.builds(
    ClassicMember,
    member_id=NAMES,
    group_instance_id=NULLABLE,
    client_id=NAMES,
    client_host=NAMES,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=INT32,
    subscription=BYTES,
    assignment=BYTES,
)
EPOCHS = st.dictionaries(IDS, st.dictionaries(INDEXES, INT32, min_size=1, max_size=4), max_size=3)


def or_none(values: SearchStrategy[object]) -> SearchStrategy[object]:
    return st.none() | values


EVENTS: SearchStrategy[GroupEvent] = st.one_of(
    st.builds(
        OffsetCommitted,
        group=st.sampled_from(["g", "h", "grüppe", ""]),
        topic=st.sampled_from(["t", "u"]),
        partition=INT32,
        offset=INT64,
        leader_epoch=INT32,
        metadata=st.just("") | NAMES,
        commit_ms=TIMES,
        expire_ms=st.just(NO_EXPIRY_MS),
        topic_id=st.sampled_from([TOPIC_ID_ZERO, TopicId(bytes(range(16)))]) | IDS,
    ),
    st.builds(
        OffsetCommitted,
        group=NAMES,
        topic=NAMES,
        partition=INT32,
        offset=INT64,
        # The version with an expiry timestamp has neither the leader epoch nor the topic id.
        leader_epoch=st.just(-1),
        metadata=NAMES,
        commit_ms=TIMES,
        expire_ms=TIMES,
        topic_id=st.just(TOPIC_ID_ZERO),
    ),
    st.builds(OffsetForgotten, group=NAMES, topic=NAMES, partition=INT32),
    st.builds(
        ClassicGroupSaved,
        group=NAMES,
        value=st.builds(
            ClassicGroupValue,
            protocol_type=NAMES,
            generation=INT32,
            protocol=NULLABLE,
            leader=NULLABLE,
            state_ms=INT64,
            members=st.lists(MEMBERS, max_size=3).map(tuple),
        ),
    ),
    st.builds(ClassicGroupForgotten, group=NAMES),
    st.builds(ConsumerGroupMetadata, NAMES, or_none(st.builds(GroupEpoch, INT32, INT64))),
    st.builds(
        ConsumerMemberMetadata,
        NAMES,
        NAMES,
        or_none(
            st.builds(
                MemberMetadata,
                instance_id=NULLABLE,
                rack_id=NULLABLE,
                client_id=NAMES,
                client_host=NAMES,
                topics=st.lists(NAMES, max_size=3).map(tuple),
                pattern=NULLABLE,
                rebalance_timeout_ms=INT32,
                assignor=NULLABLE,
                classic=or_none(
                    st.builds(ClassicMetadata, INT32, st.lists(st.tuples(NAMES, BYTES), max_size=3).map(tuple))
                ),
            )
        ),
    ),
    st.builds(ConsumerTargetAssignmentMetadata, NAMES, or_none(st.builds(AssignmentEpoch, INT32, TIMES))),
    st.builds(
        ConsumerTargetAssignmentMember,
        NAMES,
        NAMES,
        or_none(st.dictionaries(IDS, st.frozensets(INDEXES, min_size=1, max_size=4), max_size=3)),
    ),
    st.builds(
        ConsumerCurrentMemberAssignment,
        NAMES,
        NAMES,
        or_none(
            st.builds(
                CurrentAssignment,
                member_epoch=INT32,
                previous_epoch=INT32,
                state=st.sampled_from(MemberState),
                assigned=EPOCHS,
                revoking=EPOCHS,
            )
        ),
    ),
    st.builds(
        ConsumerRegularExpression,
        NAMES,
        NAMES,
        or_none(st.builds(ResolvedPattern, st.lists(NAMES, max_size=3).map(tuple), INT64, TIMES)),
    ),
)


def written(events: list[GroupEvent], codec: int = compression.NONE) -> bytearray:
    builder = RecordBatchBuilder()
    for event in events:
        builder.add(1_700_000_000_000, *encode_event(event))
    return builder.build(compression=codec)


@given(batches=st.lists(st.lists(EVENTS, min_size=1, max_size=6), max_size=4))
def test_events_round_trip_through_records(batches: list[list[GroupEvent]]) -> None:
    reader = EventReader()

    read = reader.read(decode_columns(b"".join(written(batch) for batch in batches)))

    assert read == [event for batch in batches for event in batch]
    assert reader.unreadable == 0


@given(events=st.lists(EVENTS, min_size=1, max_size=5))
def test_a_compressed_batch_decodes_the_same(events: list[GroupEvent]) -> None:
    assert EventReader().read(decode_columns(written(events, compression.LZ4))) == events


def test_names_that_repeat_are_shared() -> None:
    events: list[GroupEvent] = [
        OffsetCommitted("group", "topic", at, at, 0, "", 5, topic_id=TopicId(bytes(range(16)))) for at in range(3)
    ]
    reader = EventReader()

    first, second, third = reader.read(decode_columns(written(events)))

    assert isinstance(first, OffsetCommitted)
    assert isinstance(second, OffsetCommitted)
    assert isinstance(third, OffsetCommitted)
    assert second.group is third.group
    assert second.topic is third.topic
    assert first.topic_id is third.topic_id
    assert reader.topics == {TopicId(bytes(range(16))): "topic"}
