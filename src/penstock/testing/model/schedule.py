"""Schedules that are drawn from seeds.

A seed draws a cluster, the faults of its run and how often each happens, things that are slow, an opening and some
hundred steps. An opening is an ordinary history that leads to a place where something can go wrong.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from penstock.model.ids import BrokerId
from penstock.testing.model.settings import Settings
from penstock.testing.model.steps import FAULTS, REASSIGN, WORK, Step

ONE_PARTITION = ((BrokerId(1), BrokerId(2), BrokerId(3)),)
TWO_PARTITIONS = ((BrokerId(1), BrokerId(2), BrokerId(3)), (BrokerId(3), BrokerId(1)))

SLOW = (
    "fetch",
    "fetch response",
    "control",
    "control response",
    "apply",
    "respond",
    "report",
    "configure",
    "acknowledge",
)
SLOW_CHANCE = 0.08
FAULT_CHANCE = 0.45
NUMBER_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What one run does: a cluster, and steps."""

    settings: Settings
    steps: tuple[Step, ...]


def draw_schedule(seed: int) -> Schedule:
    """The schedule of a seed; the same on every machine."""
    rng = random.Random(seed)
    weights = {kind: weight for kind, (_, weight) in WORK.items()}
    for kind, (_, weight) in FAULTS.items():
        if rng.random() < FAULT_CHANCE:
            weights[kind] = weight * rng.choice((0.2, 0.5, 1.0))
    for kind in ("data", "settle", "learn", "progress", "round", "flush"):
        weights[kind] *= rng.choice((0.3, 1, 1, 2))
    replicas = rng.choice((ONE_PARTITION, ONE_PARTITION, TWO_PARTITIONS))
    brokers = (BrokerId(1), BrokerId(2), BrokerId(3))
    settings = Settings(
        replicas=replicas,
        in_sync_min=rng.choice((1, 2, 2)),
        flush_group=rng.random() < 0.2,
        operations_max=rng.choice((100, 4)),
        slow=frozenset((what, broker) for what in SLOW for broker in brokers if rng.random() < SLOW_CHANCE),
    )
    kinds = rng.choices(list(weights), list(weights.values()), k=rng.choice((80, 160, 300)))
    steps = [Step(kind, rng.randrange(3), rng.randrange(1 << NUMBER_BITS)) for kind in kinds]
    return Schedule(settings=settings, steps=(*opening(rng), *steps))


SPARE = BrokerId(4)
REASSIGN_CHANCE = 0.08


def draw_reassigning_schedule(seed: int) -> Schedule:
    """The schedule of a seed with a fourth broker, and reassignments between the steps."""
    drawn = draw_schedule(seed)
    rng = random.Random(f"reassignments of {seed}")
    steps: list[Step] = []
    for step in drawn.steps:
        if rng.random() < REASSIGN_CHANCE:
            steps.append(Step(REASSIGN, 0, rng.randrange(1 << NUMBER_BITS)))
        elsewhere = rng.random() < 0.25
        steps.append(step._replace(broker=3) if elsewhere else step)
    return Schedule(settings=replace(drawn.settings, spares=(SPARE,)), steps=tuple(steps))


ALL_COPY = 64 * (1 | 0x3F << 1 | 1 << 8)
"""As the number of `data`: the leader appends, and both followers fetch twice."""

ALL_FETCH = 64 * (0x3F << 1 | 1 << 8)
"""As the number of `data`: nothing is appended."""

ONLY_APPEND = 64
ALL_BITS = (1 << NUMBER_BITS) - 1
SEEN = (Step("settle", 0, ALL_BITS), Step("settle", 0, ALL_BITS), *(Step("learn", place, 0) for place in range(3)))
JOINED = tuple(Step("join", place, 0) for place in range(3))


def removed(rng: random.Random) -> list[Step]:
    """A follower leaves the ISR, and data is written without it."""
    member = rng.randrange(2)
    return [Step("data", 0, ALL_COPY), Step("shrink", 0, 64 * (1 + 4 * member)), *SEEN, Step("data", 0, ALL_COPY)]


def caught_up(rng: random.Random) -> list[Step]:
    """The followers have caught up, and one that was removed is proposed."""
    return [Step("data", 0, ALL_COPY), Step("data", 0, ALL_FETCH), Step("expand", 0, 0)]


def expanded(rng: random.Random) -> list[Step]:
    return [*caught_up(rng), *SEEN]


def deposed(rng: random.Random) -> list[Step]:
    """The leader dies with a record that no other replica has."""
    return [Step("data", 0, ONLY_APPEND), Step("strike leader", 0, 8 * rng.randrange(4)), *SEEN, *SEEN]


def returned(rng: random.Random) -> list[Step]:
    """A broker that is down starts, and is admitted."""
    return [Step("start", 0, 0), *JOINED, *SEEN, *SEEN]


def copied_by_one(rng: random.Random) -> list[Step]:
    """Only one follower copies."""
    copy = 64 * (1 | 3 << (1 + 2 * rng.randrange(3)) | 1 << 8)
    return [Step("data", 0, copy), Step("data", 0, copy), Step("expand", 0, 0)]


def powerless(rng: random.Random) -> list[Step]:
    """A machine loses its power and returns at once, perhaps twice."""
    place = rng.randrange(3)
    back = [Step("start", 0, 0), Step("join", place, 0)]
    twice = [Step("start", 0, 0), Step("kill", place, 1)] if rng.random() < 0.3 else []
    return [Step("data", 0, ALL_COPY), Step("power", place, rng.choice((0, 4))), *twice, *back]


def zombie(rng: random.Random) -> list[Step]:
    """A controller loses its session with a transaction under way."""
    return [
        Step("shrink", 0, 64 * (1 + 4 * rng.randrange(2))),
        Step("settle", 0, 4 | 32 | 256),
        Step("strike writer", 0, 3),
        *JOINED,
        *JOINED,
    ]


def reconfigured(rng: random.Random) -> list[Step]:
    """The minimum ISR changes, and a follower leaves the ISR."""
    return [Step("min", 0, rng.randrange(2)), *SEEN, *removed(rng)]


def alone(rng: random.Random) -> list[Step]:
    """Both followers leave the ISR."""
    return [*removed(rng), *removed(rng), Step("data", 0, ONLY_APPEND)]


OPENINGS = (
    (),
    (removed,),
    (removed, caught_up),
    (removed, expanded),
    (alone,),
    (alone, caught_up),
    (deposed,),
    (deposed, returned),
    (deposed, returned, deposed),
    (removed, deposed),
    (removed, deposed, returned),
    (powerless,),
    (removed, powerless),
    (removed, caught_up, powerless),
    (removed, caught_up, zombie),
    (zombie,),
    (alone, copied_by_one),
    (copied_by_one, deposed),
    (removed, copied_by_one, deposed),
    (reconfigured,),
    (alone, reconfigured),
)


def opening(rng: random.Random) -> list[Step]:
    """One of the openings."""
    return [step for part in rng.choice(OPENINGS) for step in part(rng)]
