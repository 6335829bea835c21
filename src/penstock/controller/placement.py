"""Placement of new partitions: leaders spread evenly over brokers, replicas in different racks where possible."""

from collections.abc import Iterable, Sequence

from penstock.metadata.records import BrokerState
from penstock.model.generated_errors import InvalidReplicationFactor
from penstock.model.ids import BrokerId


def place(brokers: Iterable[BrokerState], *, first: int, count: int, factor: int) -> list[tuple[BrokerId, ...]]:
    """Replicas for `count` partitions, the preferred leader first in each.

    Leaders rotate over the brokers, starting at `first`, so that topics created one by one do not all begin at the same
    broker. A partition's replicas avoid racks that already have one, as long as there are others.
    """
    order = alternate_racks(brokers)
    if factor > len(order):
        raise InvalidReplicationFactor(
            f"The target replication factor of {factor} cannot be reached because only {len(order)} broker(s) are "
            "registered or some brokers have all their log directories cordoned."
        )
    return [replicas_from(order, first + index, factor) for index in range(count)]


def alternate_racks(brokers: Iterable[BrokerState]) -> list[BrokerState]:
    """All brokers, with neighbours in different racks as far as possible."""
    racks: dict[str, list[BrokerState]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        racks.setdefault(broker.rack or "", []).append(broker)
    rows = [racks[rack] for rack in sorted(racks)]
    deepest = max((len(row) for row in rows), default=0)
    return [row[depth] for depth in range(deepest) for row in rows if depth < len(row)]


def replicas_from(order: Sequence[BrokerState], start: int, factor: int) -> tuple[BrokerId, ...]:
    """`factor` brokers from `start` on, new racks first."""
    size = len(order)
    # Each full round shifts the followers by one more, so that no two brokers share all their partitions.
    leader, shift = start % size, start // size
    rest = [order[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)] if size > 1 else []
    chosen = [order[leader]]
    used = {order[leader].rack}
    for broker in rest:
        if len(chosen) == factor:
            break
        if broker.rack is not None and broker.rack not in used:
            chosen.append(broker)
            used.add(broker.rack)
    for broker in rest:
        if len(chosen) == factor:
            break
        if broker not in chosen:
            chosen.append(broker)
    return tuple(broker.broker_id for broker in chosen)
