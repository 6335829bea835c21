"""Plans which replicas to move so that brokers have even shares of replicas, bytes, traffic and leaders.

The planner is a local search from the placement that there is. It first replaces what has to go: replicas on brokers
that are being emptied, and replicas that share a rack or a host although another one is free. Then it moves replicas,
or exchanges two, as long as a broker is outside of the band around its share and the move makes the cluster as a whole
more even. Last it chooses other preferred leaders among the replicas, which copies nothing.

No step makes a partition's replicas share more racks or hosts, and no step takes a broker further outside of the band
than some broker was before. The same input gives the same plan. The work is bounded by a number of comparisons, so a
plan for a large cluster may be less than perfect, and it is never late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from math import ceil, floor, inf

from penstock.model.ids import BrokerId, TopicPartition

BAND = 0.1
"""How far bytes and traffic of a broker may be from its share, as a part of it, before anything is moved for them."""

COMPARISONS_MAX = 3_000_000
"""Moves that one plan compares, and as many exchanges, and as many ways of leaderships; a second or two for each."""

CANDIDATES_MAX = 32
"""Replicas of a broker that are compared before all of them are."""

EXCHANGED_MAX = 24
"""Replicas of each of two brokers that are compared for an exchange: the largest, and those spread below it."""

GAIN_MIN = 0.5
"""A copy is worth it if it makes brokers more even by half of what the last needed move of an average replica does."""

REPLICAS, BYTES, TRAFFIC = range(3)
LEADERS = 3
MOVABLE = (REPLICAS, BYTES, TRAFFIC)
"""Loads that only a copy moves; leaders move by the order of replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """A live broker: where it is, and whether replicas may be placed there."""

    broker_id: BrokerId
    rack: str | None = None
    host: str = ""
    accepts: bool = True
    emptied: bool = False
    """All its replicas are to go elsewhere; it accepts none."""

    @property
    def is_open(self) -> bool:
        return self.accepts and not self.emptied


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """A partition: its replicas, the preferred leader first, and what each of them has to store and to write."""

    tp: TopicPartition
    replicas: tuple[BrokerId, ...]
    size_bytes: int = 0
    bytes_per_s: int = 0
    """What producers write; its leader also sends it to every follower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMove:
    """A partition's replicas before and after, the preferred leader first."""

    tp: TopicPartition
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    size_bytes: int = 0

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        return tuple(each for each in self.after if each not in self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a broker has, or all brokers of a host or a rack together."""

    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0
    bytes_per_s: int = 0

    def plus(self, other: Load) -> Load:
        return Load(
            replicas=self.replicas + other.replicas,
            leaders=self.leaders + other.leaders,
            size_bytes=self.size_bytes + other.size_bytes,
            bytes_per_s=self.bytes_per_s + other.bytes_per_s,
        )


def plan_balance(
    brokers: Iterable[BrokerPlace],
    partitions: Iterable[PartitionLoad],
    *,
    copies_max: int | None = None,
    even: bool = True,
) -> tuple[ReplicaMove, ...]:
    """The partitions whose replicas change, in the order of `partitions`.

    At most `copies_max` replicas are copied. Without `even` only what has to go is moved. A partition with a replica on
    a broker that is not among `brokers` stays as it is: that broker may return.
    """
    places, loads = sorted(brokers, key=lambda each: each.broker_id), list(partitions)
    search = Search(places, loads, copies_max)
    search.replace_what_has_to_go()
    if even:
        search.improve()
        if search.leads_worse():
            # Moves left some broker with leaderships that it cannot pass on.
            search = Search(places, loads, copies_max, leaders_bound=True)
            search.replace_what_has_to_go()
            search.improve()
    return search.moves()


def loads_of(partitions: Iterable[PartitionLoad], moves: Iterable[ReplicaMove] = ()) -> dict[BrokerId, Load]:
    """What each broker has once the moves are done; brokers without replicas are left out."""
    after = {each.tp: each.after for each in moves}
    loads: dict[BrokerId, Load] = {}
    for each in partitions:
        replicas = after.get(each.tp, each.replicas)
        for at, broker in enumerate(replicas):
            added = Load(
                replicas=1,
                leaders=int(at == 0),
                size_bytes=each.size_bytes,
                bytes_per_s=traffic_of(each, leads=at == 0),
            )
            loads[broker] = loads.get(broker, Load()).plus(added)
    return loads


def traffic_of(partition: PartitionLoad, *, leads: bool) -> int:
    """Bytes in a second through one replica: what it writes, and for a leader what it sends to its followers."""
    return partition.bytes_per_s * (len(partition.replicas) if leads else 1)


def load_of(partition: PartitionLoad, *, leads: bool) -> tuple[float, float, float, float]:
    """What a replica is to its broker, of each kind."""
    traffic = traffic_of(partition, leads=leads)
    return 1.0, float(partition.size_bytes), float(traffic), 1.0 if leads else 0.0


class Kept(Enum):
    """Why no replica is moved between two brokers."""

    EVEN = "even"
    APART = "apart"
    """Racks or hosts forbid what would make them more even."""


class Search:
    """The placement while it is being improved. Brokers and partitions are their positions in the input."""

    def __init__(
        self,
        brokers: Sequence[BrokerPlace],
        partitions: Sequence[PartitionLoad],
        copies_max: int | None,
        *,
        leaders_bound: bool = False,
    ) -> None:
        """With `leaders_bound` leaders are kept within bounds by every move, and not only in the end."""
        self._bound_kinds = range(4) if leaders_bound else MOVABLE
        self._brokers = brokers
        self._partitions = partitions
        index = {each.broker_id: at for at, each in enumerate(brokers)}
        self._open = [at for at, each in enumerate(brokers) if each.is_open]
        self._racks = numbered(each.rack for each in brokers)
        self._hosts = numbered(each.host or None for each in brokers)
        self._steps = 0
        self._copies_left = inf if copies_max is None else copies_max
        self._comparisons_left = 0
        self._racks_count = len({self._racks[each] for each in self._open} - {UNKNOWN})
        self._hosts_count = len({self._hosts[each] for each in self._open} - {UNKNOWN})
        self._as_leader = [load_of(each, leads=True) for each in partitions]
        self._as_follower = [load_of(each, leads=False) for each in partitions]
        self._fixed = [any(each not in index for each in partition.replicas) for partition in partitions]
        """Partitions that stay as they are."""
        self._replicas = [[index[each] for each in one.replicas if each in index] for one in partitions]
        self._before = [frozenset(each) for each in self._replicas]
        self._hosted: list[dict[int, None]] = [{} for _ in brokers]
        """The partitions with a replica on each broker, in the order in which they came."""
        self._load = [[0.0] * 4 for _ in brokers]
        for at, one in enumerate(partitions):
            for position, broker in enumerate(self._replicas[at]):
                self._hosted[broker][at] = None
                # A partition whose preferred leader is away is led by another one meanwhile: it is counted for none.
                leads = position == 0 and one.replicas[0] in index
                self._add(broker, (self._as_leader if leads else self._as_follower)[at], 1)
        # The load of brokers that are being emptied is the others' to share. One that is only closed keeps its own.
        count = max(len(self._open), 1)
        shared = [load for load, place in zip(self._load, brokers, strict=True) if place.is_open or place.emptied]
        totals = [sum(load[kind] for load in shared) for kind in range(4)]
        self._share = [total / count for total in totals]
        self._low = [floor(self._share[REPLICAS]), *(self._share[kind] * (1 - BAND) for kind in (BYTES, TRAFFIC))]
        self._low.append(floor(self._share[LEADERS]))
        self._high = [ceil(self._share[REPLICAS]), *(self._share[kind] * (1 + BAND) for kind in (BYTES, TRAFFIC))]
        self._high.append(ceil(self._share[LEADERS]))
        self._weight = [1 / share**2 if share else 0.0 for share in self._share]
        """Makes the square of a load comparable with those of other kinds."""
        self._gain_min = GAIN_MIN * self._weight[REPLICAS]
        self._alike = not self._share[BYTES] and not self._share[TRAFFIC]
        """Any replica is as good to move as any other."""
        self._least, self._most = list(self._low), list(self._high)
        self._led: list[dict[int, None]] = []
        """The partitions that each broker leads and may hand over, while leaderships are passed on."""

    def moves(self) -> tuple[ReplicaMove, ...]:
        found: list[ReplicaMove] = []
        for at, one in enumerate(self._partitions):
            if self._fixed[at]:
                continue
            after = tuple(self._brokers[each].broker_id for each in self._replicas[at])
            if after != one.replicas:
                found.append(ReplicaMove(tp=one.tp, before=one.replicas, after=after, size_bytes=one.size_bytes))
        return tuple(found)

    def improve(self) -> None:
        """Make brokers more even, with few copies."""
        self.spread_out()
        self.move()
        self.exchange()
        self.lead()

    def leads_worse(self) -> bool:
        """Whether a broker leads more, or fewer, than any did before, and is outside of the band."""
        leaders = [self._load[each][LEADERS] for each in self._open]
        return any(not self._least[LEADERS] <= each <= self._most[LEADERS] for each in leaders)

    # What has to be moved

    def replace_what_has_to_go(self) -> None:
        """Replace replicas on brokers that are being emptied, as long as another broker is free."""
        for source, place in enumerate(self._brokers):
            if place.emptied:
                for at in list(self._hosted[source]):
                    if not self._fixed[at] and self._may_copy(at, source):
                        target = self._best_target(at, source)
                        if target is not None:
                            self._transfer(at, source, target)
        self._bound()

    def spread_out(self) -> None:
        """Move replicas apart that share a rack or a host, where another rack or host has none."""
        for at in range(len(self._partitions)):
            racks, hosts = self._spread(at)
            count = len(self._replicas[at])
            better = racks < min(count, self._racks_count) or hosts < min(count, self._hosts_count)
            while better and not self._fixed[at]:
                better = False
                for source in reversed(self._replicas[at]):
                    if not self._may_copy(at, source):
                        continue
                    target = self._best_target(at, source)
                    if target is not None and self._spread(at, source, target) > self._spread(at):
                        self._transfer(at, source, target)
                        better = True
                        break
        self._bound()

    def _bound(self) -> None:
        """From here on, no broker gets further outside of the band than some broker is now."""
        loads = [self._load[each] for each in self._open]
        for kind in range(4):
            self._least[kind] = min([self._low[kind], *(load[kind] for load in loads)])
            self._most[kind] = max([self._high[kind], *(load[kind] for load in loads)])

    def _best_target(self, at: int, source: int) -> int | None:
        """The broker to replace a replica on: on a rack and host of its own if possible, and with the least load."""
        free = [each for each in self._open if each not in self._replicas[at]]
        if not free:
            return None
        moved = self._load_of(at, source)
        others = [each for each in self._replicas[at] if each != source]
        racks, hosts = {UNKNOWN}, {UNKNOWN}
        racks.update(self._racks[each] for each in others)
        hosts.update(self._hosts[each] for each in others)

        def rank(target: int) -> tuple[bool, bool, bool, float, int]:
            known = target in self._before[at]
            shares_rack, shares_host = self._racks[target] in racks, self._hosts[target] in hosts
            return shares_rack, shares_host, not known, self._cost_added(target, moved), target

        return min(free, key=rank)

    # Moves and exchanges

    def move(self) -> None:
        """Move replicas from brokers with much to brokers with little, the most useful one of each pair first."""
        self._comparisons_left = COMPARISONS_MAX
        futile: set[tuple[int, int]] = set()
        apart: set[tuple[int, int]] = set()
        """Pairs between which racks and hosts let nothing move, when that was last looked at."""
        moved = False
        while self._copies_left >= 1 and self._comparisons_left > 0:
            order = sorted(self._open, key=lambda each: (self._fullness(each), each))
            done = self._move_one(order, futile, apart)
            if done is not None:
                moved = True
                futile = {pair for pair in futile if pair[0] not in done and pair[1] not in done}
            elif moved and apart:
                moved = False
                apart.clear()
            else:
                return

    def _move_one(
        self, order: Sequence[int], futile: set[tuple[int, int]], apart: set[tuple[int, int]]
    ) -> tuple[int, int] | None:
        fullest = order[::-1]
        above = [each for each in fullest if self._is_outside(each, self._high, 1)]
        for target in order:
            # Between two brokers within the band nothing is moved.
            for source in fullest if self._is_outside(target, self._low, -1) else above:
                pair = source, target
                if pair in futile or pair in apart or not self._is_uneven(source, target):
                    continue
                found = self._best_move(source, target)
                if isinstance(found, int):
                    self._transfer(found, source, target)
                    return pair
                (apart if found is Kept.APART else futile).add(pair)
                if self._comparisons_left <= 0:
                    return None
        return None

    def _best_move(self, source: int, target: int) -> int | Kept:
        """The partition whose replica to move; of many replicas some are looked at first."""
        hosted = list(self._hosted[source])
        some = len(hosted) // CANDIDATES_MAX
        if some > 1:
            first = self._steps % some
            self._steps += 1
            found = self._best_of(hosted[first::some], source, target)
            if isinstance(found, int):
                return found
        return self._best_of(hosted, source, target)

    def _best_of(self, candidates: Sequence[int], source: int, target: int) -> int | Kept:
        best: int | Kept = Kept.EVEN
        best_gain = self._gain_min
        there, here = self._load[source], self._load[target]
        replicas_gap, bytes_gap, traffic_gap = (there[kind] - here[kind] for kind in MOVABLE)
        replicas_weight, bytes_weight, traffic_weight = self._weight[:LEADERS]
        replicas_gain = replicas_weight * (replicas_gap - 1)
        for seen, at in enumerate(candidates, 1):
            replicas = self._replicas[at]
            moved = self._as_leader[at] if replicas[0] == source else self._as_follower[at]
            size, traffic = moved[BYTES], moved[TRAFFIC]
            gain = (
                replicas_gain
                + bytes_weight * size * (bytes_gap - size)
                + traffic_weight * traffic * (traffic_gap - traffic)
            )
            if gain <= best_gain or target in replicas or self._fixed[at]:
                continue
            if not self._stays_apart(at, source, target):
                if best is Kept.EVEN:
                    best = Kept.APART
                continue
            if self._is_within(there, moved, -1) and self._is_within(here, moved, 1) and self._may_copy(at, source):
                best, best_gain = at, gain
                if self._alike:
                    self._comparisons_left -= seen
                    return best
        self._comparisons_left -= len(candidates)
        return best

    def _stays_apart(self, at: int, source: int, target: int) -> bool:
        """Whether a partition is on no fewer racks and hosts after a move."""
        for places in (self._racks, self._hosts):
            left, new = places[source], places[target]
            if left in (new, UNKNOWN):
                continue
            others = [places[each] for each in self._replicas[at] if each != source]
            if left not in others and (new == UNKNOWN or new in others):
                return False
        return True

    def exchange(self) -> None:
        """Exchange replicas of different sizes, where numbers are even and bytes or traffic are not."""
        self._comparisons_left = COMPARISONS_MAX
        futile: set[tuple[int, int]] = set()
        while self._copies_left >= 2 and self._comparisons_left > 0:
            order = sorted(self._open, key=lambda each: (self._fullness(each), each))
            done = self._exchange_one(order, futile)
            if done is None:
                return
            futile = {pair for pair in futile if pair[0] not in done and pair[1] not in done}

    def _exchange_one(self, order: Sequence[int], futile: set[tuple[int, int]]) -> tuple[int, int] | None:
        for source in reversed(order):
            for target in order:
                if (source, target) in futile or not self._is_uneven(source, target, kinds=(BYTES, TRAFFIC)):
                    continue
                found = self._best_exchange(source, target)
                if found is not None:
                    given, taken = found
                    self._transfer(given, source, target)
                    self._transfer(taken, target, source)
                    return source, target
                futile.add((source, target))
                if self._comparisons_left <= 0:
                    return None
        return None

    def _best_exchange(self, source: int, target: int) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        best_gain = self._gain_min
        there, here = self._load[source], self._load[target]
        takeable = self._exchangeable(target, source)
        for given in self._exchangeable(source, target):
            out = self._load_of(given, source)
            self._comparisons_left -= len(takeable)
            for taken in takeable:
                back = self._load_of(taken, target)
                moved = (0.0, out[1] - back[1], out[2] - back[2], out[3] - back[3])
                gain = self._gain(there, here, moved)
                if gain > best_gain and self._is_within(there, moved, -1) and self._is_within(here, moved, 1):
                    best, best_gain = (given, taken), gain
        return best

    def _exchangeable(self, source: int, target: int) -> list[int]:
        """Some of the replicas that may go from one broker to another, of all sizes."""
        self._comparisons_left -= len(self._hosted[source])
        found = [
            at
            for at in self._hosted[source]
            if not self._fixed[at]
            and target not in self._replicas[at]
            and self._stays_apart(at, source, target)
            and self._may_copy(at, source)
        ]
        found.sort(key=lambda at: (-self._partitions[at].size_bytes, -self._partitions[at].bytes_per_s, at))
        if len(found) <= EXCHANGED_MAX:
            return found
        return [found[each * (len(found) - 1) // (EXCHANGED_MAX - 1)] for each in range(EXCHANGED_MAX)]

    # Leaders

    def lead(self) -> None:
        """Pass leaderships on from brokers that lead too many, over as many brokers as it takes, to those with few."""
        self._comparisons_left = COMPARISONS_MAX
        follows = self._followers()
        self._led = [{} for _ in self._brokers]
        for each, replicas in enumerate(self._replicas):
            if not self._fixed[each]:
                self._led[replicas[0]][each] = None
        closed: set[tuple[int, int]] = set()
        while self._comparisons_left > 0:
            path = self._path(follows, closed)
            if path is None:
                return
            for source, target in pairwise(path):
                at = self._handed_over(source, target)
                if at is None:
                    closed.add((source, target))
                    break
                self._hand_over(at, source, target, follows)

    def _path(self, follows: Sequence[Mapping[int, int]], closed: Collection[tuple[int, int]]) -> list[int] | None:
        """The shortest way from a broker that leads more than its share to one that leads at least two fewer."""
        leaders = [load[LEADERS] for load in self._load]
        least = min((leaders[each] for each in self._open), default=0)
        for source in sorted(self._open, key=lambda each: (-leaders[each], each)):
            if leaders[source] - least <= 1 or (leaders[source] <= self._high[LEADERS] and least >= self._low[LEADERS]):
                return None
            came_from = {source: source}
            level = [source]
            while level:
                fit = [each for each in level if self._may_lead_for(leaders[source], leaders[each])]
                if fit:
                    # Of those equally near the one that leads least: else some get more than they keep.
                    path = [min(fit, key=lambda each: leaders[each])]
                    while path[-1] != source:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                further: list[int] = []
                for reached in level:
                    self._comparisons_left -= len(follows[reached])
                    for target, count in follows[reached].items():
                        if count and target not in came_from and (reached, target) not in closed:
                            came_from[target] = reached
                            further.append(target)
                level = further
        return None

    def _may_lead_for(self, much: float, little: float) -> bool:
        """Whether a leadership more and one less makes two brokers more even, one of which is outside of the band."""
        return much - little > 1 and (much > self._high[LEADERS] or little < self._low[LEADERS])

    def _followers(self) -> list[dict[int, int]]:
        """How many leaderships each broker could pass on to each other one."""
        found: list[dict[int, int]] = [{} for _ in self._brokers]
        for at, replicas in enumerate(self._replicas):
            if not self._fixed[at]:
                self._count_followers(found, replicas, 1)
        return found

    def _count_followers(self, follows: Sequence[dict[int, int]], replicas: Sequence[int], sign: int) -> None:
        for each in replicas[1:]:
            if self._brokers[each].is_open:
                follows[replicas[0]][each] = follows[replicas[0]].get(each, 0) + sign

    def _handed_over(self, source: int, target: int) -> int | None:
        """The partition whose leadership goes from one broker to the other: the one that evens their traffic most."""
        best, best_cost = None, inf
        there, here = self._load[source][TRAFFIC], self._load[target][TRAFFIC]
        for at in self._led[source]:
            self._comparisons_left -= 1
            if target not in self._replicas[at]:
                continue
            if self._alike:
                return at
            one = self._partitions[at]
            moved = traffic_of(one, leads=True) - traffic_of(one, leads=False)
            if moved and (here + moved > self._most[TRAFFIC] or there - moved < self._least[TRAFFIC]):
                continue
            cost = moved * (moved + here - there)
            if cost < best_cost:
                best, best_cost = at, cost
        return best

    def _hand_over(self, at: int, source: int, target: int, follows: Sequence[dict[int, int]]) -> None:
        replicas = self._replicas[at]
        self._count_followers(follows, replicas, -1)
        for broker in (source, target):
            self._add(broker, self._load_of(at, broker), -1)
        replicas.remove(target)
        replicas.insert(0, target)
        del self._led[source][at]
        self._led[target][at] = None
        for broker in (source, target):
            self._add(broker, self._load_of(at, broker), 1)
        self._count_followers(follows, replicas, 1)

    # Loads

    def _load_of(self, at: int, broker: int) -> tuple[float, float, float, float]:
        """What a partition is to one of its brokers."""
        return self._as_leader[at] if self._replicas[at][0] == broker else self._as_follower[at]

    def _add(self, broker: int, moved: Sequence[float], sign: int) -> None:
        load = self._load[broker]
        for kind in range(4):
            load[kind] += sign * moved[kind]

    def _transfer(self, at: int, source: int, target: int) -> None:
        """Put a replica on another broker, in the same place of the order."""
        replicas = self._replicas[at]
        moved = self._load_of(at, source)
        self._add(source, moved, -1)
        self._add(target, moved, 1)
        replicas[replicas.index(source)] = target
        del self._hosted[source][at]
        self._hosted[target][at] = None
        self._copies_left -= (target not in self._before[at]) - (source not in self._before[at])

    def _may_copy(self, at: int, source: int) -> bool:
        """Whether one more copy is allowed; a replica that is to be copied anyway may go elsewhere."""
        return self._copies_left >= 1 or source not in self._before[at]

    def _fullness(self, broker: int) -> float:
        load = self._load[broker]
        return sum(load[kind] / self._share[kind] for kind in MOVABLE if self._share[kind])

    def _is_outside(self, broker: int, bound: Sequence[float], sign: int) -> bool:
        """Whether a load that copies move is beyond a bound of the band: above it with sign 1, below it with -1."""
        load = self._load[broker]
        return any(sign * (load[kind] - bound[kind]) > 0 for kind in MOVABLE)

    def _is_uneven(self, source: int, target: int, kinds: Sequence[int] = MOVABLE) -> bool:
        """Whether one of two brokers is outside of the band, and the first has more of it than the other."""
        there, here = self._load[source], self._load[target]
        return any(
            there[kind] > here[kind] and (there[kind] > self._high[kind] or here[kind] < self._low[kind])
            for kind in kinds
        )

    def _gain(self, there: Sequence[float], here: Sequence[float], moved: Sequence[float]) -> float:
        """How much less uneven the cluster is after a move: the sum of the squares of all loads falls by this."""
        weight = self._weight
        gain = 0.0
        for kind in MOVABLE:
            step = moved[kind]
            if step:
                gain += weight[kind] * step * (there[kind] - here[kind] - step)
        return gain

    def _cost_added(self, broker: int, moved: Sequence[float]) -> float:
        replicas, size, traffic, _ = self._load[broker]
        replicas_weight, bytes_weight, traffic_weight, _ = self._weight
        return (
            replicas_weight * moved[REPLICAS] * (2 * replicas + moved[REPLICAS])
            + bytes_weight * moved[BYTES] * (2 * size + moved[BYTES])
            + traffic_weight * moved[TRAFFIC] * (2 * traffic + moved[TRAFFIC])
        )

    def _is_within(self, load: Sequence[float], moved: Sequence[float], sign: int) -> bool:
        """Whether a broker stays within what some broker had, or within the band, after a move."""
        for kind in self._bound_kinds:
            step = sign * moved[kind]
            if (step > 0 and load[kind] + step > self._most[kind]) or (
                step < 0 and load[kind] + step < self._least[kind]
            ):
                return False
        return True

    def _spread(self, at: int, without: int | None = None, instead: int | None = None) -> tuple[int, int]:
        """Over how many racks and hosts the replicas are, one of them possibly replaced."""
        racks, hosts = set[int](), set[int]()
        for each in self._replicas[at]:
            broker = instead if each == without and instead is not None else each
            racks.add(self._racks[broker])
            hosts.add(self._hosts[broker])
        racks.discard(UNKNOWN)
        hosts.discard(UNKNOWN)
        return len(racks), len(hosts)


UNKNOWN = -1


def numbered(names: Iterable[str | None]) -> list[int]:
    """A number for each different name, `UNKNOWN` for None."""
    known: dict[str, int] = {}
    return [UNKNOWN if name is None else known.setdefault(name, len(known)) for name in names]
