"""Placement of new partitions: leaders spread evenly over brokers, replicas over racks first and over hosts second."""

from collections.abc import Callable, Iterable, Sequence

from penstock.metadata.records import BrokerState
from penstock.model.generated_errors import InvalidReplicationFactor
from penstock.model.ids import BrokerId


def place(brokers: Iterable[BrokerState], *, first: int, count: int, factor: int) -> list[tuple[BrokerId, ...]]:
    """Replicas for `count` partitions, the preferred leader first in each.

    Leaders rotate over the brokers, starting at `first`, so that topics created one by one do not all begin at the same
    broker. A partition's replicas avoid racks that already have one, as long as there are others, and then hosts.
    """
    order = alternate_racks(brokers)
    if factor > len(order):
        raise InvalidReplicationFactor(
            f"The target replication factor of {factor} cannot be reached because only {len(order)} broker(s) are "
            "registered or some brokers have all their log directories cordoned."
        )
    return [replicas_from(order, first + index, factor) for index in range(count)]


def alternate_racks(brokers: Iterable[BrokerState]) -> list[BrokerState]:
    """All brokers, with neighbours in different racks, and those of one rack on different hosts, as far as possible."""
    ordered = sorted(brokers, key=lambda broker: broker.broker_id)
    return alternate(alternate(ordered, lambda broker: broker.host), lambda broker: broker.rack or "")


def alternate(brokers: Iterable[BrokerState], place_of: Callable[[BrokerState], str]) -> list[BrokerState]:
    """The brokers in rounds, with one of each place in a round; those of one place keep their order."""
    places: dict[str, list[BrokerState]] = {}
    for broker in brokers:
        places.setdefault(place_of(broker), []).append(broker)
    rows = [places[place] for place in sorted(places)]
    deepest = max((len(row) for row in rows), default=0)
    return [row[depth] for depth in range(deepest) for row in rows if depth < len(row)]


def replicas_from(order: Sequence[BrokerState], start: int, factor: int) -> tuple[BrokerId, ...]:
    """`factor` brokers from `start` on: new racks first, then new hosts, then any."""
    size = len(order)
    # Each full round shifts the followers by one more, so that no two brokers share all their partitions.
    leader, shift = start % size, start // size
    rest = [order[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)] if size > 1 else []
    chosen = [order[leader]]
    ids, racks, hosts = {order[leader].broker_id}, {order[leader].rack}, {order[leader].host}
    rules: tuple[Callable[[BrokerState], bool], ...] = (
        lambda broker: broker.rack is not None and broker.rack not in racks,
        lambda broker: bool(broker.host) and broker.host not in hosts,
        lambda broker: True,
    )
    for allowed in rules:
        for broker in rest:
            if len(chosen) == factor:
                # Most partitions have all their replicas after a few brokers of a hundred.
                return tuple(each.broker_id for each in chosen)
            if broker.broker_id not in ids and allowed(broker):
                chosen.append(broker)
                ids.add(broker.broker_id)
                racks.add(broker.rack)
                hosts.add(broker.host)
    return tuple(broker.broker_id for broker in chosen)
