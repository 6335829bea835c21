"""The assignor of share groups: every partition has a member, and every member a partition, as evenly as possible.

Topics with the same subscribers are divided together. With more partitions than members a partition has one member;
with more members than partitions a member has one partition, which it shares. Members keep what they have as far as
that leaves the division even.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from penstock.groups.assignors.spec import MemberSpec, Readership
from penstock.model.ids import TopicId
from penstock.wire.group_values import Partitions

Place = tuple[TopicId, int]
F = TypeVar("F")
M = TypeVar("M")


def share_partitions(
    members: Sequence[MemberSpec], assignable: Mapping[TopicId, frozenset[int]]
) -> dict[str, Partitions]:
    """A target, possibly empty, for every member."""
    ordered = sorted(members, key=lambda member: member.member_id)
    found: dict[str, dict[TopicId, set[int]]] = {member.member_id: {} for member in ordered}
    readership = Readership.of(ordered)
    for audience in readership.audiences:
        places = [(topic, index) for topic in audience.topics for index in sorted(assignable.get(topic, ()))]
        readers = sorted(member for kind in audience.kinds for member in readership.kinds[kind])
        if not places:
            continue
        had = {
            reader: [
                (topic, index)
                for topic in audience.topics
                for index in sorted(ordered[reader].target.get(topic, frozenset()) & assignable.get(topic, frozenset()))
            ]
            for reader in readers
        }
        for reader, (topic, index) in divided(readers, places, had):
            found[ordered[reader].member_id].setdefault(topic, set()).add(index)
    return {
        member_id: {topic: frozenset(indexes) for topic, indexes in topics.items()}
        for member_id, topics in found.items()
    }


def divided(
    readers: Sequence[int], places: Sequence[Place], had: Mapping[int, Sequence[Place]]
) -> list[tuple[int, Place]]:
    """Pairs of a reader and a place: of the more numerous kind each is in one pair, the others are in equally many."""
    if len(readers) <= len(places):
        return spread(readers, places, had)
    readers_of: dict[Place, list[int]] = {}
    for reader, mine in had.items():
        for place in mine:
            readers_of.setdefault(place, []).append(reader)
    return [(reader, place) for place, reader in spread(places, readers, readers_of)]


def spread(few: Sequence[F], many: Sequence[M], had: Mapping[F, Sequence[M]]) -> list[tuple[F, M]]:
    """Give each of the many to one of the few, in equal numbers, keeping pairs that there were."""
    least, extra = divmod(len(many), len(few))
    kept: dict[F, list[M]] = {}
    taken: set[M] = set()
    more: list[tuple[F, M]] = []
    for one in few:
        mine = [each for each in had.get(one, ()) if each not in taken]
        kept[one] = mine[:least]
        taken.update(kept[one])
        more += [(one, each) for each in mine[least:]]
    for one, each in more:
        if extra and each not in taken and len(kept[one]) == least:
            kept[one].append(each)
            taken.add(each)
            extra -= 1
    left = [each for each in many if each not in taken]
    left.reverse()
    for one in few:
        while len(kept[one]) < least:
            kept[one].append(left.pop())
    for one in few:
        if left and len(kept[one]) == least:
            kept[one].append(left.pop())
    assert not left, f"{len(left)} are left over"
    return [(one, each) for one in few for each in kept[one]]
