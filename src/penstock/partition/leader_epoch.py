"""Checks of the leader epoch that a request carries."""

from penstock.model.generated_errors import FencedLeaderEpoch, UnknownLeaderEpoch

NO_EPOCH = -1
"""The epoch of a client that does not know it, and of a replica that has had no leader yet."""


def check_epoch(epoch: int, leader_epoch: int) -> None:
    """Refuse a request whose leader epoch is older or newer than this replica's; `NO_EPOCH` is not checked."""
    if epoch in (leader_epoch, NO_EPOCH):
        return
    if epoch < leader_epoch:
        raise FencedLeaderEpoch(f"the request's leader epoch {epoch} is older than the current one, {leader_epoch}")
    raise UnknownLeaderEpoch(f"the request's leader epoch {epoch} is newer than the known one, {leader_epoch}")
