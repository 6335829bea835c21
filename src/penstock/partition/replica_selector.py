"""Rules that choose the replica a consumer reads from (KIP-392), by the class names of `replica.selector.class`.

The leader applies them to each fetch that names the client's rack. The consumer then reads from the replica chosen, and
returns to the leader after an error, or when its metadata expires.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.config.replica import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from penstock.model.ids import BrokerId, Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """A replica that can serve the consumer's offset, as its leader knows it."""

    broker_id: BrokerId
    rack: str | None
    log_end: Offset
    behind_ms: int
    """How long ago it was last caught up; 0 for the leader."""


ReplicaSelector = Callable[[str, ReplicaView, Iterable[ReplicaView]], BrokerId]
"""From the consumer's rack, the leader and its followers, the broker to read from."""


def select_in_rack(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> BrokerId:
    """The leader if it is in the consumer's rack, else the replica of that rack with the most records, else the leader.

    Of several with the same log end, the one that was caught up last; then the greatest broker id.
    """
    if not rack or leader.rack == rack:
        return leader.broker_id
    near = (follower for follower in followers if follower.rack == rack)
    best = max(near, key=lambda each: (each.log_end, -each.behind_ms, each.broker_id), default=leader)
    return best.broker_id


SELECTORS: Mapping[str, ReplicaSelector | None] = {RACK_AWARE_SELECTOR: select_in_rack, LEADER_SELECTOR: None}
"""By class name; None where every consumer reads from the leader."""
