"""Rules of cordoned brokers, on which no new replica is placed (KIP-1066, `cordoned.log.dirs`).

A broker is cordoned by a setting of its own in the metadata, so every controller knows it, also while the broker is
away. The replicas that it has stay, and may be named again in a reassignment that keeps them.
"""

from collections.abc import Collection, Sequence

from penstock.config.replica import CORDONED_LOG_DIRS
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import BrokerState
from penstock.model.generated_errors import InvalidReplicaAssignment
from penstock.model.ids import BrokerId


def is_cordoned(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Whether all log directories of a broker are cordoned."""
    return bool(image.broker_settings(str(broker_id)).get(CORDONED_LOG_DIRS, "").strip())


def open_brokers(image: MetadataImage) -> list[BrokerState]:
    """The live brokers on which new replicas may be placed."""
    return [broker for broker in image.live_brokers() if not is_cordoned(image, broker.broker_id)]


def check_not_cordoned(image: MetadataImage, brokers: Sequence[BrokerId], held: Collection[BrokerId]) -> None:
    """Refuse replicas on cordoned brokers, except where the partition has them already."""
    for broker in brokers:
        if broker not in held and is_cordoned(image, broker):
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but all its log directories are cordoned."
            )
