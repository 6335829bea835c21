"""The range assignor: each member in turn gets the next contiguous range of a topic's partitions.

Topics with the same number of partitions and the same subscribers are co-partitioned: a member gets the same partitions
of each, so streams keyed alike can be joined. Static members come first, ordered by instance id, which a restart does
not change. It has no other stickiness.
"""

from heapq import merge
from itertools import islice

from penstock.groups.assignors.spec import GroupSpec, MemberSpec, Readership
from penstock.model.ids import TopicId
from penstock.wire.group_values import Partitions


def assign_ranges(spec: GroupSpec) -> dict[str, Partitions]:
    """Contiguous partitions for each subscriber of a topic; sizes differ by at most one, larger ones first."""
    members = sorted(spec.members, key=order)
    targets: list[dict[TopicId, frozenset[int]]] = [{} for _ in members]
    readership = Readership.of(members)
    for audience in readership.audiences:
        readers = readership.size(audience)
        longest = max(spec.partition_counts[topic] for topic in audience.topics)
        first = list(islice(merge(*(readership.kinds[kind] for kind in audience.kinds)), longest))
        for topic in audience.topics:
            count = spec.partition_counts[topic]
            least, larger = divmod(count, readers)
            start = 0
            for rank, place in enumerate(islice(first, min(count, readers))):
                end = start + least + (rank < larger)
                targets[place][topic] = frozenset(range(start, end))
                start = end
    return {member.member_id: target for member, target in zip(members, targets, strict=True)}


def order(member: MemberSpec) -> tuple[bool, str]:
    """Static members by their instance ids, then all others by their member ids."""
    return (member.instance_id is None, member.instance_id if member.instance_id is not None else member.member_id)
