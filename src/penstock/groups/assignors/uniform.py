"""The uniform assignor: as even as the subscriptions allow, with as few moves as possible.

If all members subscribe to the same topics, sizes differ by at most one, and no assignment as even moves fewer
partitions. Otherwise partitions move from members with more to members with fewer until no single move improves the
balance, or for a limited number of rounds.

Kafka's assignor of this name ignores racks. This one, among members with room, prefers one in a rack of the partition's
replicas, at no cost to evenness or stickiness.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator

from penstock.groups.assignors.spec import Audience, GroupSpec, Readership
from penstock.model.ids import TopicId
from penstock.wire.group_values import Partitions

BALANCE_ROUNDS_MAX = 16
"""Overlapping subscriptions can take many rounds to even out; each about halves what is left."""

Slot = tuple[TopicId, int]
"""One partition of one topic."""


def assign_uniformly(spec: GroupSpec) -> dict[str, Partitions]:
    """Assign every partition to a subscriber of its topic, evenly, and keep most where they were."""
    readership = Readership.of(spec.members)
    if len(readership.kinds) == 1:
        held = fill(spec)
    else:
        held = Balance(spec, readership).settle()
    return {member.member_id: target_of(slots, member.target) for member, slots in zip(spec.members, held, strict=True)}


def target_of(slots: Iterable[Slot], before: Partitions) -> Partitions:
    """Slots by topic; the same object as before if nothing changed, so that comparing it is cheap."""
    topics: defaultdict[TopicId, list[int]] = defaultdict(list)
    for topic, partition in slots:
        topics[topic].append(partition)
    target = {topic: frozenset(partitions) for topic, partitions in topics.items()}
    return before if target == before else target


def slots_of(spec: GroupSpec, topics: Iterable[TopicId]) -> Iterator[Slot]:
    """Every partition of these topics."""
    for topic in topics:
        for partition in range(spec.partition_counts[topic]):
            yield topic, partition


def kept(spec: GroupSpec) -> list[list[Slot]]:
    """The partitions each member may keep: existing ones, of topics it subscribes to, not kept by an earlier member."""
    counts = spec.partition_counts
    taken: set[Slot] = set()
    held: list[list[Slot]] = []
    for member in spec.members:
        slots = [
            (topic, partition)
            for topic, partitions in member.target.items()
            if topic in member.topics
            for partition in sorted(partitions)
            if partition < counts[topic]
        ]
        if not taken.isdisjoint(slots):
            slots = [slot for slot in slots if slot not in taken]
        taken.update(slots)
        held.append(slots)
    return held


# All members have the same subscription


def fill(spec: GroupSpec) -> list[list[Slot]]:
    """Cut members down to their share, then fill those with room.

    The larger shares go to members that already have that many, so no partition moves without need.
    """
    held = kept(spec)
    least, larger = divmod(sum(spec.partition_counts.values()), len(spec.members))
    for slots in held:
        if len(slots) > least:
            allowed = least + (larger > 0)
            larger -= larger > 0
            del slots[allowed:]
    room: dict[int, int] = {}
    for place, slots in enumerate(held):
        share = least
        if len(slots) <= least and larger > 0:
            share, larger = least + 1, larger - 1
        if share > len(slots):
            room[place] = share - len(slots)
    taken = {slot for slots in held for slot in slots}
    left = [slot for slot in slots_of(spec, sorted(spec.partition_counts)) if slot not in taken]
    if spec.racks:
        left = fill_near(spec, left, room, held)
    assert len(left) == sum(room.values()), f"{len(left)} partitions for {sum(room.values())} places"
    at = 0
    for place, free in room.items():
        held[place].extend(left[at : at + free])
        at += free
    return held


def fill_near(spec: GroupSpec, left: list[Slot], room: dict[int, int], held: list[list[Slot]]) -> list[Slot]:
    """Assign partitions to members with room in one of their racks; returns the partitions left over."""
    near: defaultdict[str, list[int]] = defaultdict(list)
    for place in reversed(room):
        rack = spec.members[place].rack_id
        if rack is not None:
            near[rack].append(place)
    far: list[Slot] = []
    for slot in left:
        topic, partition = slot
        racks = spec.racks.get(topic, ())
        chosen = next((r for r in sorted(racks[partition]) if near.get(r)), None) if partition < len(racks) else None
        if chosen is None:
            far.append(slot)
            continue
        place = near[chosen][-1]
        held[place].append(slot)
        room[place] -= 1
        if room[place] == 0:
            near[chosen].pop()
    return far


# Members have different subscriptions


class Balance:
    """An assignment being balanced, for members with different subscriptions.

    Each kind of member has a heap by size, shared by all of its topics. A member whose size changes is pushed again;
    stale entries are dropped when they reach the top.
    """

    def __init__(self, spec: GroupSpec, readership: Readership) -> None:
        self._spec = spec
        self._readership = readership
        held = kept(spec)
        self._owners: dict[Slot, int] = {slot: place for place, slots in enumerate(held) for slot in slots}
        self._sizes = [len(slots) for slots in held]
        self._kind_of = [0] * len(held)
        for kind, places in enumerate(readership.kinds):
            for place in places:
                self._kind_of[place] = kind
        self._smallest = [[(self._sizes[place], place) for place in places] for places in readership.kinds]
        for heap in self._smallest:
            heapq.heapify(heap)

    def settle(self) -> list[list[Slot]]:
        """Assign unowned partitions to the members with fewest, then move from most to fewest while that helps."""
        size = self._readership.size
        # Topics with many partitions per subscriber leave the least choice, so they go first.
        audiences = sorted(
            self._readership.audiences,
            key=lambda a: (-sum(map(self._spec.partition_counts.__getitem__, a.topics)) / size(a), size(a), a.topics),
        )
        for audience in audiences:
            self._spread(audience)
        unsettled = [audience for audience in audiences if size(audience) > 1]
        for _ in range(BALANCE_ROUNDS_MAX):
            if not sum(self._level(audience) for audience in unsettled):
                break
        held: list[list[Slot]] = [[] for _ in self._spec.members]
        for slot, place in self._owners.items():
            held[place].append(slot)
        return held

    def _spread(self, audience: Audience) -> None:
        """Assign each unowned partition to the subscriber with the fewest."""
        slots = [slot for slot in slots_of(self._spec, audience.topics) if slot not in self._owners]
        if not slots:
            return
        least = self._least(audience)
        for slot in slots:
            _, place, kind = least[0]
            self._owners[slot] = place
            self._resize(place, 1)
            heapq.heapreplace(least, (*self._top(kind), kind))

    def _level(self, audience: Audience) -> int:
        """Move partitions of one audience from the members with most to those with fewest; returns how many moved."""
        sizes, owners = self._sizes, self._owners
        mine: defaultdict[int, list[Slot]] = defaultdict(list)
        for slot in slots_of(self._spec, audience.topics):
            mine[owners[slot]].append(slot)
        least = self._least(audience)
        if max(sizes[place] for place in mine) - least[0][0] <= 1:
            return 0
        most = [(-sizes[place], place) for place in mine]
        heapq.heapify(most)
        moved = 0
        while True:
            size, giver = most[0]
            if -size != sizes[giver] or not mine[giver]:
                heapq.heappop(most)
                continue
            small, receiver, kind = least[0]
            if small != sizes[receiver]:
                heapq.heapreplace(least, (*self._top(kind), kind))
                continue
            if -size - small <= 1:
                return moved
            slot = mine[giver].pop()
            mine[receiver].append(slot)
            owners[slot] = receiver
            for place, change in ((giver, -1), (receiver, 1)):
                self._resize(place, change)
                heapq.heappush(most, (-sizes[place], place))
                heapq.heappush(least, (sizes[place], place, self._kind_of[place]))
            moved += 1

    def _least(self, audience: Audience) -> list[tuple[int, int, int]]:
        """A heap of the audience's kinds: the smallest size, the member that has it, and the kind."""
        heap = [(*self._top(kind), kind) for kind in audience.kinds]
        heapq.heapify(heap)
        return heap

    def _top(self, kind: int) -> tuple[int, int]:
        heap = self._smallest[kind]
        while heap[0][0] != self._sizes[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0]

    def _resize(self, place: int, change: int) -> None:
        self._sizes[place] += change
        heapq.heappush(self._smallest[self._kind_of[place]], (self._sizes[place], place))
