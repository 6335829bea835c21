"""The role of a replica, and every transition between roles.

    role      this broker is named leader   another is, or none   fenced                deleted, disk failed, stop
    --------  ----------------------------  --------------------  --------------------  --------------------------
    Follower  Leader (`lead`)               Follower (`follow`)   Follower (`fence`)    Offline
    Leader    Leader (`lead`)               Follower (`follow`)   Follower (`fence`)    Offline
    Offline   stays                         stays                 stays                 stays, with its first reason

A replica begins as a follower without a leader, and is one again while its broker is fenced. It also stays one where it
is named leader in an epoch that its log has already (`is_too_old`): another leader wrote those records, or an earlier
life of this broker. A role lasts for one decision of the controller; offsets outlive it.
"""

from dataclasses import replace
from typing import NamedTuple, assert_never

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotLeaderOrFollower
from penstock.model.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch
from penstock.model.topic import NO_LEADER, PartitionState
from penstock.partition.follower import NO_PARTITION_EPOCH, Follower
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


def assume(role: Role, decided: PartitionState, now_ms: int, *, newest_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> Assumed:
    """Apply the controller's decision about leader and replicas. `newest_epoch` is that of the log's last batch.

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
            assumed: Leader | Follower
            if decided.leader != role.broker_id:
                assumed = follow(role, decided)
            elif is_too_old(role, decided, newest_epoch):
                assumed = follow(role, replace(decided, leader=NO_LEADER))
            else:
                assumed = lead(role, decided, now_ms)
            return Assumed(assumed, role.offsets.high_watermark != before)
        case _:
            assert_never(role)


def is_too_old(role: Role, decided: PartitionState, newest_epoch: LeaderEpoch) -> bool:
    """Whether this broker is named leader in an epoch that was served before, as metadata restored from a backup does.

    A leader goes on in its epoch. The only replica of a partition does so in its next life too, after a clean stop:
    there is no other replica with which its log could disagree.
    """
    if decided.leader_epoch > newest_epoch or len(decided.replicas) == 1:
        return False
    return not (isinstance(role, Leader) and role.leader_epoch == decided.leader_epoch)


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
    """Become a follower, of no leader yet where none is elected. The log stays confirmed within a leader epoch."""
    same_epoch = role if isinstance(role, Follower) and role.leader_epoch == decided.leader_epoch else None
    return Follower(
        role.offsets,
        role.producers,
        broker_id=role.broker_id,
        in_sync_min=role.in_sync_min,
        flush_group=role.flush_group,
        leader=decided.leader,
        leader_epoch=decided.leader_epoch,
        partition_epoch=decided.partition_epoch,
        in_sync=role.broker_id in decided.isr,
        confirmed=same_epoch is not None and same_epoch.leader == decided.leader and same_epoch.confirmed,
    )


def fence(role: Role) -> Role:
    """Become a follower without a leader, until a decision is applied that was read after the broker's admission.

    That may be the one that was in force, so every decision counts as newer.
    """
    if isinstance(role, Offline):
        return role
    return Follower(
        role.offsets,
        role.producers,
        broker_id=role.broker_id,
        in_sync_min=role.in_sync_min,
        flush_group=role.flush_group,
        leader_epoch=role.leader_epoch,
        partition_epoch=NO_PARTITION_EPOCH,
    )


def may_cut(decided: PartitionState, broker_id: BrokerId, last_epoch: LeaderEpoch) -> bool:
    """Whether a replica whose log is damaged may cut it: no record counts as committed because this replica has it.

    It is in neither ISR nor eligible set, and cannot return to them by what it had: `last_epoch` is the last leader
    epoch in which it led or fetched, and a proposal or a fetch of that epoch, still under way, no longer counts.
    """
    holders = {decided.leader, *decided.isr, *decided.eligible_leader_replicas}
    return decided.leader_epoch > last_epoch and broker_id not in holders


def refusal(role: Follower | Offline) -> BrokerError:
    """Why a replica that does not lead refuses a request."""
    match role:
        case Follower():
            return NotLeaderOrFollower()
        case Offline():
            return role.reason
        case _:
            assert_never(role)
