"""Checks of the leader epoch that a request carries."""

from penstock.model.generated_errors import FencedLeaderEpoch, UnknownLeaderEpoch
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch


def check_epoch(epoch: LeaderEpoch, leader_epoch: LeaderEpoch) -> None:
    """Refuse a request whose leader epoch is older or newer than this replica's; `NO_LEADER_EPOCH` is not checked."""
    if epoch in (leader_epoch, NO_LEADER_EPOCH):
        return
    if epoch < leader_epoch:
        raise FencedLeaderEpoch(f"the request's leader epoch {epoch} is older than the current one, {leader_epoch}")
    raise UnknownLeaderEpoch(f"the request's leader epoch {epoch} is newer than the known one, {leader_epoch}")
