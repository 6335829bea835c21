"""Plans the steps by which the controller evens out brokers by itself (`auto.balance`).

The plan is made from the image, which has replicas and leaders and no sizes, and made again for each step. So there is
nothing to remember: another controller goes on where the one before stopped.
"""

from collections import Counter

from penstock.controller.balance import BrokerPlace, PartitionLoad, plan_balance
from penstock.controller.cordons import is_cordoned
from penstock.controller.reassignments import Reassignment
from penstock.metadata.image import MetadataImage
from penstock.model.ids import TopicPartition
from penstock.model.topic import NO_LEADER

COPIES_MAX = 16
"""Replicas that one step copies: they are all in sync before the next step begins."""

PARTITIONS_MAX = 64
"""Partitions that one step changes; some only get another preferred leader."""


def plan_balance_step(image: MetadataImage) -> tuple[Reassignment, ...]:
    """The next reassignments; none while a replica is missing or not in sync, or another reassignment is in progress.

    Then copies would compete with those that repair something.
    """
    if is_even(image):
        return ()
    loads: list[PartitionLoad] = []
    for name, topic in sorted(image.topics.items()):
        for state in topic.partitions:
            if state.is_ghost:
                continue
            if state.leader == NO_LEADER or state.is_reassigning or len(state.isr) < len(state.replicas):
                return ()
            loads.append(PartitionLoad(tp=TopicPartition(name, state.index), replicas=state.replicas))
    moves = plan_balance(places_of(image), loads, copies_max=COPIES_MAX)
    return tuple(Reassignment(tp=move.tp, replicas=move.after) for move in moves[:PARTITIONS_MAX])


def is_even(image: MetadataImage) -> bool:
    """Whether brokers have equal numbers of replicas and of preferred leaders: then there is no need for a plan."""
    places = places_of(image)
    replicas = Counter(each for topic in image.topics.values() for state in topic.partitions for each in state.replicas)
    leaders = Counter(
        state.replicas[0] for topic in image.topics.values() for state in topic.partitions if not state.is_ghost
    )
    for counts in (replicas, leaders):
        found = [counts[place.broker_id] for place in places if place.accepts]
        if found and max(found) - min(found) > 1:
            return False
    return True


def places_of(image: MetadataImage) -> list[BrokerPlace]:
    """The live brokers; those that are cordoned or about to stop get nothing."""
    return [
        BrokerPlace(
            broker_id=broker.broker_id,
            rack=broker.rack,
            host=broker.host,
            accepts=not is_cordoned(image, broker.broker_id) and not image.admissions[broker.broker_id].stopping,
        )
        for broker in image.live_brokers()
    ]
