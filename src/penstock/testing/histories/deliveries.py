"""Checks what the members of a share group saw: deliveries with their locks and counts, and acknowledgements.

Everything is what clients know. A delivery began after its request was sent and before its response arrived, an
acknowledgement was carried out between its request and its response, if at all. An anomaly is reported only where no
order of those moments explains what was seen.

Times are seconds of one clock that all clients share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

Place = tuple[str, int]
"""A partition, as histories name it, and an offset of it."""


class Acknowledgement(StrEnum):
    """How a member acknowledges a record."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"


FINAL = frozenset({Acknowledgement.ACCEPT, Acknowledgement.REJECT})
"""After these a record is finished."""


class Fault(StrEnum):
    """A kind of anomaly of a share group."""

    FINISHED_DELIVERED = "finished record delivered"
    """A record was delivered after its accept or reject was confirmed."""
    TWO_HOLDERS = "two holders"
    """A record was delivered to a member while another one's lock on it lasted."""
    FOREIGN_ACKNOWLEDGEMENT = "foreign acknowledgement"
    """A member that did not hold a record changed its state."""
    COUNT_REPEATED = "delivery count repeated"
    """One leader delivered a record twice with one count, or with a lower one later."""
    COUNT_ABOVE_LIMIT = "delivery count above the limit"
    LOST = "lost record"
    """A record that nobody has finished is neither delivered any more nor a dead letter."""
    DEAD_TOO_EARLY = "dead letter too early"
    """A record became a dead letter although it was neither rejected nor at its limit."""
    DEAD_AND_ACCEPTED = "dead letter of an accepted record"
    NOT_IN_LOG = "delivered record not in the log"
    """A record was delivered that the log does not have at this offset: uncommitted, aborted or from elsewhere."""
    TOO_MANY_HELD = "too many records held"
    START_BACK = "start offset back"
    """The start offset of a group went back, and nobody altered it."""
    START_TOO_FAR = "start offset past an unfinished record"
    KEY_ORDER = "order of a key"
    """A record was delivered before an earlier one of its key was finished, and not to the member that holds that."""
    TOO_SOON = "delivered during its backoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A record that a response handed out to a member."""

    member: str
    key: str
    offset: int
    value: int
    count: int
    sent_at: float
    at: float
    epoch: int | None = None
    """The leader epoch in which the partition's leader responded, where that is known."""
    record_key: bytes | None = None

    @property
    def place(self) -> Place:
        return self.key, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A member's acknowledgement of a record; without `at` nobody knows whether it was carried out."""

    member: str
    key: str
    offset: int
    kind: Acknowledgement
    sent_at: float
    at: float | None = None
    epoch: int | None = None
    """The leader epoch in which it was confirmed, where that is known."""

    @property
    def place(self) -> Place:
        return self.key, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """From this moment on a member may hold nothing any more in a partition: it left, crashed or lost its session."""

    member: str
    key: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start offset of the group in a partition, as a broker described it."""

    key: str
    offset: int
    sent_at: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the group promises."""

    deliveries_max: int
    lock_s: float
    held_max: int = 2_000
    by_key: bool = False
    """Whether the group has share.order=key."""
    backoff_s: Callable[[int], float] | None = None
    """By the number of deliveries: how long a released record waits."""


@dataclass(slots=True, kw_only=True)
class Deliveries:
    """The history of one share group."""

    delivered: list[Delivery] = field(default_factory=list[Delivery])
    acknowledged: list[Acknowledged] = field(default_factory=list[Acknowledged])
    gone: list[Gone] = field(default_factory=list[Gone])
    starts: list[Start] = field(default_factory=list[Start])
    altered: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """By partition: when somebody began to alter the group's offsets."""
    unheard: dict[str, int] = field(default_factory=dict[str, int])
    """By partition: fetches without a response, each of which may have delivered any record once."""
    unheard_since: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """By member and partition: when the first of its fetches without a response was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What is left when all work has ended and the group was read to the end."""

    log: Mapping[Place, int]
    """The records of the topics, by place, with their values."""
    dead: Mapping[Place, int] | None = None
    """Dead letters by the place of the original, with their number; None where the group has no dead letter topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One anomaly, with enough of it to look it up."""

    fault: Fault
    key: str
    found: str

    def __str__(self) -> str:
        return f"{self.fault}: {self.key}: {self.found}"


def check_deliveries(history: Deliveries, rules: Rules, end: End) -> tuple[Finding, ...]:
    """All anomalies of a share group; none for a valid history."""
    log = Ledger(history, rules)
    return (
        *log.check_finished(),
        *log.check_holders(),
        *log.check_foreign(),
        *log.check_counts(),
        *log.check_held(),
        *log.check_starts(end),
        *log.check_end(end),
        *(log.check_keys(end) if rules.by_key else ()),
        *(log.check_backoff(rules.backoff_s) if rules.backoff_s is not None else ()),
    )


@dataclass(frozen=True, slots=True)
class Hold:
    """A time during which a member certainly holds a record: from the response until something may have ended it."""

    delivery: Delivery
    until: float


class Ledger:
    """Deliveries and acknowledgements by record, and by member."""

    def __init__(self, history: Deliveries, rules: Rules) -> None:
        self._history = history
        self._rules = rules
        self._delivered: defaultdict[Place, list[Delivery]] = defaultdict(list)
        for delivery in sorted(history.delivered, key=lambda each: (each.at, each.count)):
            self._delivered[delivery.place].append(delivery)
        self._acknowledged: defaultdict[Place, list[Acknowledged]] = defaultdict(list)
        for each in history.acknowledged:
            self._acknowledged[each.place].append(each)
        self._gone: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for gone in sorted(history.gone, key=lambda each: each.at):
            self._gone[gone.member, gone.key].append(gone.at)

    def _altered_after(self, key: str, at: float) -> bool:
        return any(moment >= at for moment in self._history.altered.get(key, ()))

    def _finishing(self, place: Place) -> list[Acknowledged]:
        """The accepts and rejects of a record, confirmed or not."""
        return [each for each in self._acknowledged[place] if each.kind in FINAL]

    def _hold(self, delivery: Delivery) -> Hold:
        """The time of a delivery's lock that is certain: it began no later than the response, and lasts as long as
        the group's locks since the request, unless the member acknowledged the record or went."""
        until = delivery.sent_at + self._rules.lock_s
        for each in self._acknowledged[delivery.place]:
            if each.member != delivery.member or each.sent_at < delivery.at:
                continue
            if each.kind is not Acknowledgement.RENEW:
                until = min(until, each.sent_at)
        gone = self._gone.get((delivery.member, delivery.key), [])
        at = bisect_left(gone, delivery.sent_at)
        if at < len(gone):
            until = min(until, gone[at])
        return Hold(delivery, until)

    # The rules

    def check_finished(self) -> Iterator[Finding]:
        """A record is not delivered when its accept or reject has been confirmed."""
        for place, deliveries in self._delivered.items():
            confirmed = [each for each in self._finishing(place) if each.at is not None]
            if not confirmed:
                continue
            first = min(confirmed, key=lambda each: each.at or 0.0)
            assert first.at is not None
            for delivery in deliveries:
                if delivery.sent_at >= first.at and not self._altered_after(place[0], first.sent_at):
                    found = (
                        f"{place[1]} was delivered to {delivery.member} (count {delivery.count}, {delivery.at:.3f}) "
                        f"after the {first.kind} of {first.member} at {first.at:.3f}"
                    )
                    yield Finding(fault=Fault.FINISHED_DELIVERED, key=place[0], found=found)

    def check_holders(self) -> Iterator[Finding]:
        """A record is not delivered to a member while another certainly holds it by the same leader."""
        for place, deliveries in self._delivered.items():
            for at, delivery in enumerate(deliveries):
                if delivery.epoch is None:
                    continue
                hold = self._hold(delivery)
                for other in deliveries[at + 1 :]:
                    if other.at >= hold.until or other.sent_at < delivery.sent_at:
                        continue
                    if other.epoch != delivery.epoch or self._altered_after(place[0], delivery.sent_at):
                        continue
                    found = (
                        f"{place[1]} was delivered to {other.member} at {other.at:.3f} (count {other.count}), while "
                        f"{delivery.member} held it from {delivery.at:.3f} to {hold.until:.3f} (count {delivery.count})"
                    )
                    yield Finding(fault=Fault.TWO_HOLDERS, key=place[0], found=found)

    def check_foreign(self) -> Iterator[Finding]:
        """An acknowledgement is not confirmed while another member certainly holds the record by the same leader."""
        for place, deliveries in self._delivered.items():
            for each in self._acknowledged[place]:
                if each.at is None or each.epoch is None:
                    continue
                for delivery in deliveries:
                    if delivery.member == each.member or delivery.epoch != each.epoch:
                        continue
                    hold = self._hold(delivery)
                    if delivery.at <= each.sent_at and each.at < hold.until:
                        found = (
                            f"{each.kind} of {place[1]} by {each.member} was confirmed at {each.at:.3f}, while "
                            f"{delivery.member} held it from {delivery.at:.3f} to {hold.until:.3f}"
                        )
                        yield Finding(fault=Fault.FOREIGN_ACKNOWLEDGEMENT, key=place[0], found=found)

    def check_counts(self) -> Iterator[Finding]:
        limit = self._rules.deliveries_max
        for (key, offset), deliveries in self._delivered.items():
            by_leader: defaultdict[int, list[Delivery]] = defaultdict(list)
            for delivery in deliveries:
                if not 1 <= delivery.count <= limit:
                    found = f"{offset} has count {delivery.count}, at {delivery.at:.3f} for {delivery.member}"
                    yield Finding(fault=Fault.COUNT_ABOVE_LIMIT, key=key, found=found)
                if delivery.epoch is not None:
                    by_leader[delivery.epoch].append(delivery)
            for led in by_leader.values():
                # In the order in which they were handed out, as far as that is known.
                for before, after in pairwise(sorted(led, key=lambda each: each.at)):
                    in_order = before.at <= after.sent_at
                    wrong = after.count <= before.count if in_order else after.count == before.count
                    if wrong and not self._altered_after(key, before.sent_at):
                        found = (
                            f"{offset} was delivered with count {after.count} at {after.at:.3f}, "
                            f"and with {before.count} at {before.at:.3f} before"
                        )
                        yield Finding(fault=Fault.COUNT_REPEATED, key=key, found=found)

    def check_held(self) -> Iterator[Finding]:
        """Not more records are certainly held in a partition than its limit, while one leader leads it."""
        by_leader: defaultdict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        for delivery in self._history.delivered:
            hold = self._hold(delivery)
            if delivery.epoch is not None and delivery.at < hold.until:
                moments = by_leader[delivery.key, delivery.epoch]
                moments += [(delivery.at, 1), (hold.until, -1)]
        for (key, epoch), moments in by_leader.items():
            held = most = 0
            for _, change in sorted(moments):
                held += change
                most = max(most, held)
            if most > self._rules.held_max:
                found = f"{most} records were held at once in epoch {epoch}"
                yield Finding(fault=Fault.TOO_MANY_HELD, key=key, found=found)

    def check_starts(self, end: End) -> Iterator[Finding]:
        """The start offset does not go back, and does not pass what nobody can have finished."""
        by_key: defaultdict[str, list[Start]] = defaultdict(list)
        for start in sorted(self._history.starts, key=lambda each: each.at):
            by_key[start.key].append(start)
        for key, starts in by_key.items():
            offsets = sorted(offset for where, offset in end.log if where == key)
            highest = starts[0]
            checked = 0
            for start in starts:
                if start.offset < highest.offset and highest.at <= start.sent_at:
                    if not self._altered_after(key, 0.0):
                        found = f"{start.offset} at {start.at:.3f} after {highest.offset} at {highest.at:.3f}"
                        yield Finding(fault=Fault.START_BACK, key=key, found=found)
                elif start.offset > highest.offset:
                    highest = start
                # Each record below the start is looked at once, with the first start above it.
                upto = bisect_left(offsets, start.offset)
                for offset in offsets[checked:upto]:
                    if not self._may_be_finished((key, offset), start.at, end):
                        found = f"{offset} is below {start.offset}, at {start.at:.3f}, and nobody has finished it"
                        yield Finding(fault=Fault.START_TOO_FAR, key=key, found=found)
                checked = max(checked, upto)

    def _may_be_finished(self, place: Place, at: float, end: End) -> bool:
        """Whether a record may have been finished by a time: acknowledged, or delivered up to the limit."""
        if any(each.sent_at <= at for each in self._finishing(place)):
            return True
        if end.dead is not None and place in end.dead:
            return True
        most = max((each.count for each in self._delivered[place] if each.sent_at <= at), default=0)
        return most + self._history.unheard.get(place[0], 0) >= self._rules.deliveries_max

    def check_end(self, end: End) -> Iterator[Finding]:
        """Every record was finished by somebody or is a dead letter, and nothing else was delivered."""
        for place, value in sorted(end.log.items()):
            key, offset = place
            finishing = self._finishing(place)
            if end.dead is None:
                if not self._may_be_finished(place, float("inf"), end):
                    yield Finding(fault=Fault.LOST, key=key, found=f"{value} at {offset}: {self._told(place)}")
                continue
            rejected = any(each.kind is Acknowledgement.REJECT and each.at is not None for each in finishing)
            if place not in end.dead and (rejected or not finishing):
                yield Finding(fault=Fault.LOST, key=key, found=f"{value} at {offset}: {self._told(place)}")
            if place in end.dead:
                accepts = [each for each in finishing if each.kind is Acknowledgement.ACCEPT]
                rejects = [each for each in finishing if each.kind is Acknowledgement.REJECT]
                if any(each.at is not None for each in accepts) and not rejects:
                    found = f"{value} at {offset} was accepted, and is a dead letter"
                    yield Finding(fault=Fault.DEAD_AND_ACCEPTED, key=key, found=found)
                most = max((each.count for each in self._delivered[place]), default=0)
                if not rejects and most + self._history.unheard.get(key, 0) < self._rules.deliveries_max:
                    yield Finding(
                        fault=Fault.DEAD_TOO_EARLY, key=key, found=f"{value} at {offset}: {self._told(place)}"
                    )
        for place, deliveries in self._delivered.items():
            for delivery in deliveries:
                if end.log.get(place) != delivery.value:
                    found = f"{delivery.value} was delivered at {place[1]}, where the log has {end.log.get(place)}"
                    yield Finding(fault=Fault.NOT_IN_LOG, key=place[0], found=found)

    def check_keys(self, end: End) -> Iterator[Finding]:
        """A record is delivered when every earlier one of its key is finished, or held by the same member."""
        keyed: defaultdict[tuple[str, bytes], set[int]] = defaultdict(set)
        for delivery in self._history.delivered:
            if delivery.record_key is not None:
                keyed[delivery.key, delivery.record_key].add(delivery.offset)
        for (key, _), found in keyed.items():
            offsets = sorted(found)
            for at, offset in enumerate(offsets):
                for delivery in self._delivered[key, offset]:
                    for earlier in offsets[:at]:
                        place = (key, earlier)
                        if self._may_be_finished(place, delivery.at, end):
                            continue
                        if self._may_be_held(place, delivery):
                            continue
                        text = (
                            f"{offset} was delivered to {delivery.member} at {delivery.at:.3f}, "
                            f"before {earlier} of its key: {self._told(place)}"
                        )
                        yield Finding(fault=Fault.KEY_ORDER, key=key, found=text)

    def _may_be_held(self, place: Place, later: Delivery) -> bool:
        """Whether the member of a delivery may hold another record at that time too, without having heard of it."""
        if self._history.unheard_since.get((later.member, later.key), later.at) < later.at:
            return True
        return any(each.member == later.member and each.sent_at <= later.at for each in self._delivered[place])

    def check_backoff(self, backoff_s: Callable[[int], float]) -> Iterator[Finding]:
        """A released record is not delivered before its backoff is over, by the same leader."""
        for place, deliveries in self._delivered.items():
            for released in self._acknowledged[place]:
                if released.kind is not Acknowledgement.RELEASE or released.at is None:
                    continue
                held = [each for each in deliveries if each.member == released.member and each.at <= released.sent_at]
                if not held:
                    continue
                last = held[-1]
                ready_at = released.sent_at + backoff_s(last.count)
                for other in deliveries:
                    same = other.epoch is not None and other.epoch == last.epoch and other.count == last.count + 1
                    if same and other.at < ready_at:
                        found = (
                            f"{place[1]} was released at {released.sent_at:.3f} after delivery {last.count}, "
                            f"and delivered at {other.at:.3f}, not from {ready_at:.3f} on"
                        )
                        yield Finding(fault=Fault.TOO_SOON, key=place[0], found=found)

    def _told(self, place: Place) -> str:
        """What became of a record, in short."""
        deliveries = self._delivered.get(place, [])
        parts = [f"to {each.member} at {each.at:.3f} (count {each.count}, epoch {each.epoch})" for each in deliveries]
        parts += [
            f"{each.kind} of {each.member} at {each.sent_at:.3f} ({'lost' if each.at is None else 'confirmed'})"
            for each in self._acknowledged.get(place, [])
        ]
        return "; ".join(parts) if parts else "never delivered"


def faults_of(findings: Iterable[Finding]) -> set[Fault]:
    return {finding.fault for finding in findings}
