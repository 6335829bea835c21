"""Committed offsets: validation, storage, retention and deletion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.shard_rig import START_MS
from tests.unit.groups.rig import DELAY_MS, Client, Rig, settled, subscription

from penstock.groups.commands import (
    ALL_COMMITTED,
    CommitEntry,
    CommitOffsets,
    CommitReply,
    CommittedOffset,
    DeleteOffsets,
    DeleteOffsetsReply,
)
from penstock.groups.commits import metadata_fits
from penstock.groups.events import ClassicGroupForgotten, ClassicGroupSaved, OffsetCommitted, OffsetForgotten
from penstock.groups.offset_store import OffsetStore
from penstock.groups.retention import OFFSETS_PER_SLICE_MAX, RetentionCheck
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from penstock.model.ids import TOPIC_ID_ZERO, TopicId
from penstock.wire.group_values import ClassicGroupValue

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
CHECK_MS = 600_000
ID_1, ID_2 = TopicId(b"1" * 16), TopicId(b"2" * 16)


def simple_commit(*entries: CommitEntry, group: str = "g", version: int = 9, retention_ms: int = -1) -> CommitOffsets:
    """A commit from outside the group."""
    return CommitOffsets(
        group=group,
        member_id="",
        group_instance_id=None,
        generation=-1,
        entries=entries,
        version=version,
        retention_ms=retention_ms,
    )


def offsets(rig: Rig, group: str = "g") -> dict[tuple[str, int], int]:
    return {(found.topic, found.partition): found.offset for found in rig.shard.fetch_offsets(group)}


def committed_count(rig: Rig) -> int:
    return sum(1 for _ in rig.shard.committed())


# Validation


def test_a_commit_without_a_generation_creates_a_group() -> None:
    rig = Rig()

    assert rig.ask(simple_commit(CommitEntry("t", 0, 42))) is ALL_COMMITTED

    assert offsets(rig) == {("t", 0): 42}
    assert rig.state() == "Empty"


@pytest.mark.parametrize(("version", "error"), [(8, IllegalGeneration), (9, GroupIdNotFound)])
def test_a_commit_with_a_generation_for_an_unknown_group_is_rejected(version: int, error: type[BrokerError]) -> None:
    rig = Rig()
    client = Client(rig)
    client.member_id, client.generation = "m", 3

    assert isinstance(client.commit(1, version=version), error)
    assert rig.log == []


def test_a_member_of_a_group_without_members_is_unknown() -> None:
    rig = Rig()
    rig.ask(simple_commit(CommitEntry("t", 0, 42)))
    client = Client(rig)
    client.member_id, client.generation = "m", 3

    assert isinstance(client.commit(1), UnknownMemberId)
    assert offsets(rig) == {("t", 0): 42}


def test_a_commit_from_an_old_generation_is_fenced() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)
    assert client.commit(5) is ALL_COMMITTED
    client.join()
    client.sync({client.joined.member_id: b""})
    old = Client(rig)
    old.member_id, old.generation = client.member_id, 1

    assert isinstance(old.commit(9), IllegalGeneration)
    assert offsets(rig) == {("t", 0): 5}


def test_a_commit_without_a_generation_to_a_group_with_members_is_rejected() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)

    assert isinstance(rig.ask(simple_commit(CommitEntry("t", 0, 42))), UnknownMemberId)
    client._join, client.generation = 0, -1
    assert isinstance(client.commit(1), IllegalGeneration)
    stranger = Client(rig)
    stranger.member_id, stranger.generation = "stranger", 1
    assert isinstance(stranger.commit(1), UnknownMemberId)


def test_members_may_commit_during_a_rebalance() -> None:
    rig = Rig()
    client = Client(rig, "a")
    settled(rig, client)
    Client(rig, "b").join()
    assert rig.state() == "PreparingRebalance"

    assert client.commit(5) is ALL_COMMITTED


def test_members_that_wait_for_their_assignment_may_not_commit() -> None:
    rig = Rig()
    client = Client(rig).join()
    rig.pass_ms(DELAY_MS)

    assert isinstance(client.commit(5), RebalanceInProgress)


def test_an_empty_group_accepts_commits_without_a_generation() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)
    client.leave()

    assert rig.ask(simple_commit(CommitEntry("t", 0, 42))) is ALL_COMMITTED


def test_the_empty_group_id_has_offsets() -> None:
    rig = Rig()

    assert rig.ask(simple_commit(CommitEntry("t", 0, 42), group="")) is ALL_COMMITTED
    assert offsets(rig, "") == {("t", 0): 42}


# Storage


@given(
    offset=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=30),
    partition=st.integers(0, 2**31 - 1),
    topic_id=st.binary(min_size=16, max_size=16),
)
def test_a_committed_offset_round_trips(
    offset: int, leader_epoch: int, metadata: str, partition: int, topic_id: bytes
) -> None:
    store = OffsetStore()
    store.committed(
        OffsetCommitted("g", "t", partition, offset, leader_epoch, metadata, START_MS, topic_id=TopicId(topic_id))
    )

    assert store.all_of("g") == [
        CommittedOffset("t", partition, offset, leader_epoch, metadata, START_MS, TopicId(topic_id))
    ]


def test_a_fetch_returns_only_requested_partitions_with_an_offset() -> None:
    rig = Rig()
    rig.ask(simple_commit(CommitEntry("t", 0, 1), CommitEntry("t", 5000, 2), CommitEntry("u", 0, 3)))

    found = rig.shard.fetch_offsets("g", [("t", 5000), ("t", 1), ("v", 0)])

    assert [(offset.topic, offset.partition, offset.offset) for offset in found] == [("t", 5000, 2)]
    assert rig.shard.fetch_offsets("nobody") == []
    assert sorted((group, offset.topic, offset.offset) for group, offset in rig.shard.committed()) == [
        ("g", "t", 1),
        ("g", "t", 2),
        ("g", "u", 3),
    ]


def test_metadata_that_is_too_long_fails_only_its_entry() -> None:
    rig = Rig({"offset.metadata.max.bytes": "4"})

    reply = rig.ask(simple_commit(CommitEntry("t", 0, 1, metadata="12345"), CommitEntry("t", 1, 2, metadata="1234")))

    assert reply == CommitReply({0: OffsetMetadataTooLarge})
    assert offsets(rig) == {("t", 1): 2}


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [("", True), ("aaaa", True), ("aaaaa", False), ("éééé", True), ("😀😀", True), ("😀😀😀", False)],
)
def test_metadata_is_measured_in_utf_16_units(metadata: str, fits: bool) -> None:
    assert metadata_fits(metadata, 4) is fits


def test_a_commit_whose_append_failed_is_not_stored() -> None:
    rig = Rig()
    rig.refusing = CoordinatorNotAvailable()

    assert isinstance(rig.ask(simple_commit(CommitEntry("t", 0, 42))), CoordinatorNotAvailable)
    assert offsets(rig) == {}


def test_offsets_survive_a_restart() -> None:
    rig = Rig()
    rig.ask(simple_commit(CommitEntry("t", 0, 1, 3, "note", ID_1), CommitEntry("t", 1, 2)))
    rig.ask(simple_commit(CommitEntry("t", 1, 5)))
    before = rig.shard.fetch_offsets("g")

    rig.restart()

    assert rig.shard.fetch_offsets("g") == before
    assert committed_count(rig) == 2


# Retention


def test_offsets_of_a_group_without_members_expire_after_their_commit() -> None:
    rig = Rig()
    rig.ask(simple_commit(CommitEntry("t", 0, 1)))
    rig.pass_ms(DAY_MS)
    rig.ask(simple_commit(CommitEntry("t", 1, 2)))

    rig.pass_ms(RETENTION_MS - DAY_MS + CHECK_MS)
    assert offsets(rig) == {("t", 1): 2}

    rig.pass_ms(DAY_MS)
    assert rig.shard.list_groups() == []
    assert rig.log[-2:] == [OffsetForgotten("g", "t", 1), ClassicGroupForgotten(group="g")]


def test_offsets_of_a_group_expire_after_its_last_member_left() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)
    client.commit(1)
    for _ in range(20):
        rig.pass_ms(DAY_MS // 2)
        client.join()
        if client.waits_to_join:
            rig.pass_ms(DELAY_MS)
        if client.joined.error is not None:
            client.member_id = ""
            client.join()
            rig.pass_ms(DELAY_MS)
        client.sync({client.joined.member_id: b""})
    assert offsets(rig) == {("t", 0): 1}
    client.leave()

    rig.pass_ms(RETENTION_MS - CHECK_MS)
    assert offsets(rig) == {("t", 0): 1}
    rig.pass_ms(2 * CHECK_MS)

    assert offsets(rig) == {}
    assert rig.shard.list_groups() == []


def test_offsets_of_subscribed_topics_do_not_expire_and_others_do() -> None:
    rig = Rig()
    client = Client(rig, protocols=(("range", subscription("t")),), session_ms=1_800_000)
    settled(rig, client)
    client.commit(1, topic="t")
    client.commit(2, topic="u")

    for _ in range(RETENTION_MS // 1_700_000 + 2):
        rig.pass_ms(1_700_000)
        client.heartbeat()

    assert offsets(rig) == {("t", 0): 1}


def test_no_offset_expires_during_a_rebalance() -> None:
    rig = Rig()
    client = Client(rig, session_ms=1_800_000, rebalance_ms=1_800_000)
    settled(rig, client)
    client.commit(2, topic="u")
    for _ in range(RETENTION_MS // 1_700_000):
        rig.pass_ms(1_700_000)
        client.heartbeat()
    Client(rig, "b").join()

    rig.pass_ms(1_700_000)

    assert rig.state() == "PreparingRebalance"
    assert offsets(rig) == {("u", 0): 2}


def test_no_offset_expires_while_subscriptions_are_unknown() -> None:
    rig = Rig()
    client = Client(rig, protocol_type="connect", protocols=(("p", b"opaque"),), session_ms=1_800_000)
    settled(rig, client)
    client.commit(1)

    for _ in range(RETENTION_MS // 1_700_000 + 2):
        rig.pass_ms(1_700_000)
        client.heartbeat()

    assert offsets(rig) == {("t", 0): 1}


def test_a_commit_may_have_its_own_retention() -> None:
    rig = Rig()
    rig.ask(simple_commit(CommitEntry("t", 0, 1), retention_ms=CHECK_MS, version=4))
    rig.ask(simple_commit(CommitEntry("t", 1, 1), retention_ms=2 * RETENTION_MS, version=4))

    rig.pass_ms(CHECK_MS)
    assert offsets(rig) == {("t", 1): 1}
    rig.pass_ms(RETENTION_MS)
    assert offsets(rig) == {("t", 1): 1}


def test_without_a_state_timestamp_offsets_expire_after_their_commit() -> None:
    rig = Rig()
    rig.log.append(
        ClassicGroupSaved(
            group="g",
            value=ClassicGroupValue(protocol_type="consumer", generation=3, protocol=None, leader=None, state_ms=-1),
        )
    )
    rig.log.append(OffsetCommitted("g", "t", 0, 1, -1, "", START_MS))
    rig.restart()

    rig.pass_ms(RETENTION_MS - CHECK_MS)
    assert offsets(rig) == {("t", 0): 1}
    rig.pass_ms(2 * CHECK_MS)
    assert offsets(rig) == {}


def test_the_retention_check_of_many_offsets_runs_in_slices() -> None:
    rig = Rig()
    for group in range(3):
        for topic in range(3):
            rig.ask(
                simple_commit(
                    *(CommitEntry(f"t{topic}", index, 1) for index in range(OFFSETS_PER_SLICE_MAX // 2)),
                    group=f"g{group}",
                )
            )
    assert committed_count(rig) == 9 * (OFFSETS_PER_SLICE_MAX // 2)
    steps: list[int] = []
    run = rig.run
    rig.run = lambda step: (steps.append(len(step.events)), run(step))[1]  # type: ignore[method-assign, func-returns-value]

    rig.now_ms += RETENTION_MS
    rig.pass_ms(CHECK_MS)

    assert committed_count(rig) == 0
    assert rig.shard.list_groups() == []
    assert max(steps) <= OFFSETS_PER_SLICE_MAX + 3


def test_an_offset_committed_between_two_slices_keeps_its_group() -> None:
    rig = Rig()
    for topic in ("a", "b"):
        rig.ask(simple_commit(*(CommitEntry(topic, index, 1) for index in range(OFFSETS_PER_SLICE_MAX))))
    rig.now_ms += RETENTION_MS
    rig.run(rig.shard.wake(RetentionCheck(), rig.now_ms))
    assert committed_count(rig) == OFFSETS_PER_SLICE_MAX
    rig.ask(simple_commit(CommitEntry("a", 0, 2)))
    rig.run(rig.shard.wake(RetentionCheck(), rig.now_ms))
    rig.run(rig.shard.wake(RetentionCheck(), rig.now_ms))

    assert offsets(rig) == {("a", 0): 2}


def test_a_pending_member_keeps_a_group_without_offsets() -> None:
    rig = Rig()
    client = Client(rig, session_ms=1_800_000)
    client._send_join()
    client.member_id = client.joined.member_id

    rig.pass_ms(2 * CHECK_MS)

    assert client.join().waits_to_join


# Deleting


def test_offsets_of_topics_without_subscribers_can_be_deleted() -> None:
    rig = Rig()
    client = Client(rig, protocols=(("range", subscription("t")),))
    settled(rig, client)
    client.commit(1, topic="t")
    client.commit(2, topic="u")

    reply = rig.ask(DeleteOffsets(group="g", partitions=(("t", 0), ("u", 0), ("u", 0), ("u", 7))))

    assert reply == DeleteOffsetsReply({0: GroupSubscribedToTopic})
    assert offsets(rig) == {("t", 0): 1}
    assert rig.log.count(OffsetForgotten("g", "u", 0)) == 1


def test_unreadable_subscriptions_count_as_subscribed_to_all_topics() -> None:
    rig = Rig()
    settled(rig, Client(rig, protocols=(("range", b"garbled"),)))

    assert rig.ask(DeleteOffsets(group="g", partitions=(("t", 0),))) == DeleteOffsetsReply({0: GroupSubscribedToTopic})


def test_offsets_of_a_group_with_another_protocol_type_cannot_be_deleted() -> None:
    rig = Rig()
    settled(rig, Client(rig, protocol_type="connect"))

    assert isinstance(rig.ask(DeleteOffsets(group="g", partitions=(("t", 0),))), NonEmptyGroup)


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    rig = Rig()
    client = Client(rig, protocol_type="connect")
    settled(rig, client)
    client.commit(1)
    client.leave()

    assert rig.ask(DeleteOffsets(group="g", partitions=(("t", 0),))) == DeleteOffsetsReply({})
    assert offsets(rig) == {}


def test_offsets_of_an_unknown_group_cannot_be_deleted() -> None:
    rig = Rig()

    assert isinstance(rig.ask(DeleteOffsets(group="nobody", partitions=(("t", 0),))), GroupIdNotFound)
    assert isinstance(rig.ask(DeleteOffsets(group="", partitions=())), InvalidGroupId)


def test_offsets_of_deleted_topics_are_deleted() -> None:
    rig = Rig()
    rig.topics.ids = {"t": ID_1, "u": ID_2}
    rig.ask(simple_commit(CommitEntry("t", 0, 1, topic_id=ID_1), CommitEntry("u", 0, 2, topic_id=ID_2)))
    rig.ask(simple_commit(CommitEntry("t", 3, 4), group="other"))
    del rig.topics.ids["t"]

    rig.run(rig.shard.on_topics(["t"], rig.now_ms))

    assert offsets(rig) == {("u", 0): 2}
    assert offsets(rig, "other") == {}


def test_offsets_of_a_recreated_topic_are_those_committed_since() -> None:
    rig = Rig()
    rig.ask(simple_commit(CommitEntry("t", 0, 1, topic_id=ID_1), CommitEntry("t", 1, 2, topic_id=ID_2)))
    rig.ask(simple_commit(CommitEntry("t", 2, 3, topic_id=TOPIC_ID_ZERO)))
    rig.topics.ids, rig.topics.count = {"t": ID_2}, 3

    rig.run(rig.shard.on_topics(["t"], rig.now_ms))

    assert offsets(rig) == {("t", 1): 2, ("t", 2): 3}


def test_offsets_of_partitions_that_were_taken_out_of_a_topic_are_deleted() -> None:
    rig = Rig()
    rig.topics.ids, rig.topics.count = {"t": ID_1}, 3
    rig.ask(simple_commit(CommitEntry("t", 0, 1, topic_id=ID_1), CommitEntry("t", 2, 2, topic_id=ID_1)))
    rig.topics.count = 2

    rig.run(rig.shard.on_topics(["t"], rig.now_ms))

    assert offsets(rig) == {("t", 0): 1}


# The store against a plain dictionary


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from("gh"),
            st.sampled_from("tu"),
            st.sampled_from([0, 1, 4095, 4096]),
            st.integers(0, 9),
        )
    )
)
def test_the_store_behaves_like_a_dictionary(
    changes: list[tuple[bool, str, str, int, int]],
) -> None:
    store, plain = OffsetStore(), dict[tuple[str, str, int], int]()
    for commits, group, topic, partition, offset in changes:
        if commits:
            store.committed(OffsetCommitted(group, topic, partition, offset, -1, "", 0))
            plain[group, topic, partition] = offset
        else:
            store.forgotten(OffsetForgotten(group, topic, partition))
            plain.pop((group, topic, partition), None)

    assert {(group, found.topic, found.partition): found.offset for group, found in store.everything()} == plain
    for group in "gh":
        assert store.count_of(group) == sum(key[0] == group for key in plain)
        assert len(store.tombstones_of(group)) == store.count_of(group)
