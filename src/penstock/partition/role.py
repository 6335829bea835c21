"""The role of a replica, and every transition between roles.

    role      this broker is named leader   another is, or none   deleted, moved away, disk failed, stop
    --------  ----------------------------  --------------------  --------------------------------------
    Follower  Leader (`lead`)               Follower (`follow`)   Offline
    Leader    Leader (`lead`)               Follower (`follow`)   Offline
    Offline   stays                         stays                 stays, with its first reason

A replica begins as a follower without a leader. A role lasts for one decision of the controller; offsets outlive it.
"""

from typing import NamedTuple, assert_never

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotLeaderOrFollower
from penstock.model.ids import LeaderEpoch
from penstock.model.topic import PartitionState
from penstock.partition.follower import Follower
from penstock.partition.leader import Leader
from penstock.partition.leader_epoch import check_epoch


class Offline:
    """A replica that no longer serves requests, and why. The role is final: reopening makes another replica."""

    __slots__ = ("leader_epoch", "reason")

    def __init__(self, reason: BrokerError, leader_epoch: LeaderEpoch) -> None:
        self.reason = reason
        self.leader_epoch = leader_epoch

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        check_epoch(epoch, self.leader_epoch)


Role = Leader | Follower | Offline


class Assumed(NamedTuple):
    """The role that a decision of the controller leads to."""

    role: Role
    high_watermark_moved: bool


def assume(role: Role, decided: PartitionState, now_ms: int) -> Assumed:
    """Apply the controller's decision about leader and replicas.

    A decision may be delivered twice: one that is not newer than the current one changes nothing, in particular no ISR
    proposal in flight.
    """
    match role:
        case Offline():
            return Assumed(role, False)
        case Leader() | Follower():
            if (decided.leader_epoch, decided.partition_epoch) <= (role.leader_epoch, role.partition_epoch):
                return Assumed(role, False)
            before = role.offsets.high_watermark
            leads = decided.leader == role.broker_id
            assumed = lead(role, decided, now_ms) if leads else follow(role, decided)
            return Assumed(assumed, role.offsets.high_watermark != before)
        case _:
            assert_never(role)


def lead(role: Leader | Follower, decided: PartitionState, now_ms: int) -> Leader:
    """Become leader. The followers' progress is kept within a leader epoch and reset by a new one."""
    same_epoch = role if isinstance(role, Leader) and role.leader_epoch == decided.leader_epoch else None
    return Leader(
        decided,
        role.offsets,
        role.producers,
        broker_id=role.broker_id,
        in_sync_min=role.in_sync_min,
        flush_group=role.flush_group,
        now_ms=now_ms,
        epoch_start=None if same_epoch is None else same_epoch.epoch_start,
        progress=None if same_epoch is None else same_epoch.followers,
    )


def follow(role: Leader | Follower, decided: PartitionState) -> Follower:
    """Become a follower, of no leader yet where none is elected."""
    return Follower(
        role.offsets,
        role.producers,
        broker_id=role.broker_id,
        in_sync_min=role.in_sync_min,
        flush_group=role.flush_group,
        leader=decided.leader,
        leader_epoch=decided.leader_epoch,
        partition_epoch=decided.partition_epoch,
    )


def refusal(role: Follower | Offline) -> BrokerError:
    """Why a replica that does not lead refuses a request."""
    match role:
        case Follower():
            return NotLeaderOrFollower()
        case Offline():
            return role.reason
        case _:
            assert_never(role)
