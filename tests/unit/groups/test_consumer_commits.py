"""Validation of offset commits and fetches in a group with the consumer protocol."""

import pytest
from tests.unit.groups.consumer_rig import Rig, assigned, classic_join, topic_id

from penstock.groups.commands import CommitOffsets
from penstock.groups.group import PartitionCheck
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)

A = topic_id("a")


def validate(
    rig: Rig, member_id: str, epoch: int, *, transactional: bool = False, version: int = 9
) -> PartitionCheck | None:
    command = CommitOffsets(
        group="g", member_id=member_id, group_instance_id=None, generation=epoch, entries=(), version=version
    )
    group = rig.group()
    validation = group.validate_txn_commit(command) if transactional else group.validate_commit(command, rig.now_ms)
    return validation.check


def test_a_member_may_commit_any_partition_in_its_current_epoch() -> None:
    rig = Rig()
    rig.join("m1", "a")

    assert validate(rig, "m1", 2) is None


def test_an_empty_group_accepts_commits_without_an_epoch() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.leave("m1")

    assert validate(rig, "", -1) is None


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error", "text"),
    [
        ("nobody", 2, 9, UnknownMemberId, "Member nobody is not a member of group g."),
        ("", -1, 9, UnknownMemberId, "Member  is not a member of group g."),
        ("m1", 3, 9, StaleMemberEpoch, "Received member epoch 3 is newer than current member epoch 2."),
        (
            "m1",
            2,
            8,
            UnsupportedVersion,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        ),
    ],
)
def test_an_invalid_commit_is_rejected_with_kafkas_message(
    member_id: str, epoch: int, version: int, error: type[BrokerError], text: str
) -> None:
    rig = Rig()
    rig.join("m1", "a")

    with pytest.raises(error) as raised:
        validate(rig, member_id, epoch, version=version)

    assert str(raised.value) == text


def test_a_transactional_commit_need_not_name_a_member() -> None:
    rig = Rig()
    rig.join("m1", "a")

    assert validate(rig, "", -1, transactional=True) is None
    assert validate(rig, "m1", 2, transactional=True, version=3) is None


def test_an_older_epoch_may_commit_partitions_owned_since_then() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")
    kept = assigned(rig.beat("m1", 2))
    assert kept is not None
    rig.beat("m1", 2, owned={"a": kept})
    rig.leave("m2")
    rig.beat("m1", 3)

    check = validate(rig, "m1", 2)

    assert check is not None
    gained = min(set(range(6)) - kept)
    assert check("a", A, min(kept)) is None
    refused = check("a", A, gained)
    assert isinstance(refused, StaleMemberEpoch)
    assert str(refused) == f"Received member epoch 2 is older than assignment epoch 4 for partition a-{gained}."
    elsewhere = check("b", topic_id("b"), 0)
    assert str(elsewhere) == "Partition b-0 is not assigned or pending revocation for member."


def test_partitions_being_revoked_can_be_committed_only_in_the_current_epoch() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")
    rig.beat("m1", 2)
    rig.topics.counts["b"] = 1

    check = validate(rig, "m1", 1)

    assert check is not None
    assert all(isinstance(check("a", A, partition), StaleMemberEpoch) for partition in range(6))
    assert validate(rig, "m1", 2) is None


def test_a_classic_member_commits_with_a_generation() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))

    assert validate(rig, "c1", joined.generation, version=2) is None
    with pytest.raises(IllegalGeneration, match=r"Received generation id 9 is newer than current member epoch 3\."):
        validate(rig, "c1", 9, version=2)


def test_a_fetch_is_validated_only_if_it_names_a_member() -> None:
    rig = Rig()
    rig.join("m1", "a")
    group = rig.group()

    group.validate_fetch(None, -1)
    group.validate_fetch("m1", 2)
    with pytest.raises(UnknownMemberId):
        group.validate_fetch("m9", 2)
    with pytest.raises(StaleMemberEpoch, match=r"epoch 1 does not match the expected member epoch 2\."):
        group.validate_fetch("m1", 1)


def test_only_an_empty_group_can_be_deleted() -> None:
    rig = Rig()
    rig.join("m1", "a")
    with pytest.raises(NonEmptyGroup):
        rig.group().validate_delete()

    rig.leave("m1")

    rig.group().validate_delete()


def test_a_group_is_subscribed_by_name_and_by_pattern() -> None:
    rig = Rig()
    rig.topics.counts["bc"] = 1
    rig.join("m1", "a", regex="b.*")

    assert [name for name in ("a", "bc", "c") if rig.group().subscribed_to(name)] == ["a", "bc"]
