"""What the replicas of this broker ask of the rest of the cluster, and what they report to it.

The parts that know the other brokers set these callables when they are made; without them a broker is on its own.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, TopicPartition
from penstock.partition.leader import IsrProposal

if TYPE_CHECKING:
    from penstock.partition.replica import Replica


def unknown_epoch(_: BrokerId) -> BrokerEpoch:
    return NO_BROKER_EPOCH


def discard_proposal(_: "Replica", __: IsrProposal) -> None:
    """Nobody hears of it: the proposal stays in flight, which is safe."""


def may_propose_never() -> bool:
    return False


def deposed_never() -> bool:
    return False


def ignore_roles(_: Collection[TopicPartition]) -> None:
    pass


def ignore_resignation(_: TopicPartition) -> None:
    pass


class ClusterPort:
    """Callables between the replicas and the cluster, each of which may be replaced."""

    __slots__ = ("broker_epoch_of", "may_be_deposed", "may_propose", "on_resigned", "on_roles_changed", "propose")

    def __init__(self) -> None:
        self.broker_epoch_of: Callable[[BrokerId], BrokerEpoch] = unknown_epoch
        """The registered and admitted epoch of a broker; `NO_BROKER_EPOCH` where it is not live."""
        self.may_propose: Callable[[], bool] = may_propose_never
        """Whether ISR changes may be proposed: not while the session with the metadata store is suspended."""
        self.may_be_deposed: Callable[[], bool] = deposed_never
        """Whether others may lead what this broker leads, because the metadata store is out of its reach."""
        self.propose: Callable[[Replica, IsrProposal], None] = discard_proposal
        """Send a proposal to the controller until it ends, see `Leader.propose`."""
        self.on_roles_changed: Callable[[Collection[TopicPartition]], None] = ignore_roles
        """Partitions that have another leader, leader epoch or role here, or are gone."""
        self.on_resigned: Callable[[TopicPartition], None] = ignore_resignation
        """A replica of several cannot serve: its log or log directory failed, or has no room."""
