"""Types of ids, offsets and epochs, so that they cannot be confused.

Most of them are numbers. A NewType is checked by the type checkers and costs nothing where a value is passed on; where
one is made of a plain number, at the edge of the broker or after arithmetic, it costs a call.
"""

from typing import NamedTuple, NewType

TopicId = NewType("TopicId", bytes)
"""Sixteen bytes, never reused: a topic recreated under an old name has another id."""

BrokerId = NewType("BrokerId", int)

BrokerEpoch = NewType("BrokerEpoch", int)
"""Identifies one registration of a broker: the number of its transaction in the metadata store."""

Offset = NewType("Offset", int)
"""The place of a record in its partition's log. Relative offsets, and differences of offsets, are plain numbers."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition; every batch has its leader's."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Counts the changes of a partition's state, among them those of its ISR, within and across leader epochs."""

ProducerId = NewType("ProducerId", int)

ProducerEpoch = NewType("ProducerEpoch", int)
"""Counts the instances of a producer with one id; a higher one fences those below."""

CoordinatorEpoch = NewType("CoordinatorEpoch", int)
"""The leader epoch of the coordinator's partition, as the markers of its transactions carry it."""

TOPIC_ID_ZERO = TopicId(bytes(16))
"""The protocol's value for "no id"."""

NO_BROKER = BrokerId(-1)
"""No leader, or a client where a follower could be."""

NO_BROKER_EPOCH = BrokerEpoch(-1)
"""The epoch of a broker that is not registered."""

OFFSET_ZERO = Offset(0)
"""Where a new log begins."""

NO_OFFSET = Offset(-1)
"""The protocol's value for an offset that is unknown or does not exist."""

NO_LEADER_EPOCH = LeaderEpoch(-1)
"""The epoch of a client that does not know it, and of a replica that has had no leader yet."""

PARTITION_EPOCH_ZERO = PartitionEpoch(0)

NO_COORDINATOR_EPOCH = CoordinatorEpoch(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic, by name; a tuple, because it is the key of the hottest dictionaries."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
