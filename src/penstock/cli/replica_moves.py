"""Carries out moves of replicas for the commands that plan them: throttled, with progress, and not too many at once."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.failure import Failure
from penstock.cli.output import BYTES, bytes_text, counted, note, progress
from penstock.client.admin import Admin, Resource
from penstock.client.broker_requests import elect_preferred
from penstock.client.cluster_state import broker_settings, state_of
from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError
from penstock.client.reassignment_plan import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Move,
    throttled_brokers,
    throttled_replicas,
)
from penstock.client.reassignments import Ongoing, Place, alter_reassignments, list_reassignments, replica_sizes
from penstock.client.wire_calls import WireCalls
from penstock.config.key import LONG_MAX
from penstock.model.clock import SystemClock

POLL_S = 0.25
SIZES_EVERY_S = 2.0
"""How often brokers are asked for the sizes of their logs while replicas are copied."""
NOTE_EVERY_S = 10.0
"""How often progress is noted where there is no terminal for a bar."""
ATTEMPTS_S = 120.0
"""How long refusals that end by themselves are retried: a controller is being elected, or catches up."""

UNKNOWN_TOPIC_OR_PARTITION = 3
REQUEST_TIMED_OUT = 7
NOT_CONTROLLER = 41
NO_REASSIGNMENT_IN_PROGRESS = 85
UNTHROTTLED = str(LONG_MAX)
RETRIED = frozenset({REQUEST_TIMED_OUT, NOT_CONTROLLER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a reassignment in progress has still to do."""

    ongoing: Ongoing
    in_sync: int
    """Added replicas in the ISR."""
    bytes_total: int
    bytes_left: int


class ReplicaMoves:
    """Moves of one command."""

    def __init__(self, *, where: Connection, calls: WireCalls, show: bool) -> None:
        """`show` says whether progress may be shown."""
        self._where = where
        self._calls = calls
        self._show = show
        self._now_s = SystemClock().monotonic

    def carry_out(
        self,
        moves: Sequence[Move],
        sizes: Mapping[Place, int],
        *,
        at_once_max: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin the moves in their order, so many partitions at once, and return when all are complete.

        A topic that is deleted meanwhile needs no move. A refusal that is final ends the rest: the plan is out of date.
        `check` is called before some are begun, and raises where they are no longer wanted.
        """
        copied = sum(sizes.get(move.place, 0) * len(move.adding) for move in moves)
        rolling = Rolling(moves, copied)
        with progress("moving", copied or None, unit=BYTES, show=self._show) as bar:
            while not rolling.is_done:
                try:
                    rolling.completed(list_reassignments(self._calls, rolling.under_way) if rolling.under_way else {})
                    self._begin(rolling, at_once_max, check)
                    if rolling.sizes_due(self._now_s()):
                        rolling.measured(self.left(list_reassignments(self._calls, rolling.under_way)))
                except ClientError as error:
                    # A broker that stops, or a controller that is being elected.
                    rolling.check_patience(self._now_s(), error)
                    note(f"waiting: {error}")
                else:
                    rolling.responded(self._now_s())
                moved = max(copied - rolling.bytes_left(sizes), 0)
                text = rolling.text(self._now_s(), moved)
                bar.advance(moved, text)
                if self._show and not sys.stderr.isatty() and rolling.note_due(self._now_s()):
                    note(text)
                if not rolling.is_done:
                    time.sleep(POLL_S)

    def _begin(self, rolling: Rolling, at_once_max: int, check: Callable[[], None]) -> None:
        batch = rolling.next(at_once_max)
        if not batch:
            return
        try:
            check()
            refused = alter_reassignments(
                self._calls, {move.place: move.after for move in batch}, allow_factor_change=False
            )
        except ClientError:
            # Whether it was done is not known; to begin it again does no harm.
            rolling.put_back(batch)
            raise
        final = [error for error in refused.values() if error.code not in {*RETRIED, UNKNOWN_TOPIC_OR_PARTITION}]
        if final:
            first, *more = (str(error) for error in final)
            raise Failure(first, "run the command again: the cluster has changed since it was planned", more=more)
        again = [move for move in batch if move.place in refused and refused[move.place].code in RETRIED]
        rolling.put_back(again)
        rolling.began(move for move in batch if move.place not in refused)
        if again:
            raise refused[again[0].place]

    def follow(self, places: Collection[Place], total: int = 0, what: str = "moving") -> None:
        """Wait for reassignments that are in progress, and show how much of `total` bytes they have left."""
        with progress(what, total or None, unit=BYTES, show=self._show) as bar:
            while True:
                try:
                    left = self.left(list_reassignments(self._calls, places))
                except ClientError as error:
                    note(f"waiting: {error}")
                    time.sleep(POLL_S)
                    continue
                if not left:
                    return
                behind = sum(len(each.ongoing.adding) - each.in_sync for each in left)
                text = f"{counted(len(left), 'partition')} left, {counted(behind, 'replica')} not in sync"
                bar.advance(max(total - sum(each.bytes_left for each in left), 0), text)
                time.sleep(2 * POLL_S)

    def left(self, found: Mapping[Place, Ongoing]) -> list[Left]:
        """What reassignments in progress have still to do."""
        if not found:
            return []
        brokers = {broker for each in found.values() for broker in each.replicas}
        sizes = replica_sizes(self._calls, brokers, {topic for topic, _ in found})
        states = {
            (topic.name, part.partition_index): part
            for topic in self._calls.metadata(sorted({topic for topic, _ in found})).topics
            for part in topic.partitions
        }
        left: list[Left] = []
        for place, each in found.items():
            state = states.get(place)
            isr: set[int] = set() if state is None else set(state.isr_nodes)
            full = max((sizes.get((place, broker), 0) for broker in each.original), default=0)
            missing = sum(max(full - sizes.get((place, broker), 0), 0) for broker in each.adding if broker not in isr)
            in_sync = len(isr.intersection(each.adding))
            left.append(Left(ongoing=each, in_sync=in_sync, bytes_total=full * len(each.adding), bytes_left=missing))
        return left

    def cancel(self, found: Mapping[Place, Ongoing]) -> None:
        """Return to the replicas before, and remove throttles."""
        refused = alter_reassignments(self._calls, dict.fromkeys(found))
        # One that was complete before is not there to be cancelled.
        failed = [str(error) for error in refused.values() if error.code != NO_REASSIGNMENT_IN_PROGRESS]
        if failed:
            raise Failure(failed[0], more=failed[1:])
        self.clear_throttles({topic for topic, _ in found})

    def lead_preferred(self, moves: Iterable[Move]) -> None:
        """Let preferred leaders lead that a move has changed; the controller does it later where it fails now."""
        try:
            elect_preferred(self._calls, [move.place for move in moves if move.after[0] != move.before[0]])
        except ClientError as error:
            note(f"leaders follow later: {error}")

    def throttle(self, moves: Sequence[Move], rate: int) -> None:
        """Throttle the replicas that are copied, as Kafka's tool does: rates of brokers, and replicas of topics."""
        admin = Admin(self._where)
        rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        live = state_of(self._where).live
        for broker in sorted(throttled_brokers(moves) & live):
            admin.alter(Resource(kind="broker", name=str(broker)), put=rates, remove=())
        for topic, (leaders, followers) in throttled_replicas(moves).items():
            put = {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}
            admin.alter(Resource(kind="topic", name=topic), put=put, remove=())

    def clear_throttles(self, topics: Collection[str]) -> None:
        """Remove the throttles of topics; those of brokers as well, once no topic has a reassignment in progress."""
        admin = Admin(self._where)
        there = {topic.name for topic in state_of(self._where).topics}
        for topic in sorted(there.intersection(topics)):
            admin.alter(Resource(kind="topic", name=topic), put={}, remove=(LEADER_REPLICAS, FOLLOWER_REPLICAS))
        if not list_reassignments(self._calls):
            for broker in sorted(state_of(self._where).live):
                admin.alter(Resource(kind="broker", name=str(broker)), put={}, remove=(LEADER_RATE, FOLLOWER_RATE))

    def clear_leftovers(self) -> None:
        """Remove the throttles that a call of the command has left, also one that was interrupted.

        Topics that another command is moving keep theirs, and so do brokers until that is complete.
        """
        state = state_of(self._where)
        moving = {topic for topic, _ in list_reassignments(self._calls)}
        for broker in state.brokers:
            rate = broker_settings(broker, (LEADER_RATE,), self._where, REQUEST_SECONDS_MAX).get(LEADER_RATE)
            if rate not in (None, UNTHROTTLED):
                self.clear_throttles({topic.name for topic in state.topics} - moving)
                return


class Rolling:
    """Moves that wait, are under way and are complete, and how long the rest takes."""

    def __init__(self, moves: Sequence[Move], copied: int) -> None:
        self._waiting = deque(moves)
        self._total = len(moves)
        self._copied = copied
        self.under_way: dict[Place, Move] = {}
        self._measured: dict[Place, int] = {}
        """Bytes that moves under way have left, as far as brokers were asked."""
        self._began_at: float | None = None
        self._sizes_at = 0.0
        self._noted_at: float | None = None
        self._failing_since: float | None = None

    @property
    def is_done(self) -> bool:
        return not self._waiting and not self.under_way

    def next(self, at_once_max: int) -> list[Move]:
        """The moves to begin now."""
        count = min(max(at_once_max - len(self.under_way), 0), len(self._waiting))
        return [self._waiting.popleft() for _ in range(count)]

    def put_back(self, moves: Sequence[Move]) -> None:
        self._waiting.extendleft(reversed(moves))

    def began(self, moves: Iterable[Move]) -> None:
        self.under_way |= {move.place: move for move in moves}

    def completed(self, found: Mapping[Place, Ongoing]) -> None:
        """Forget what is no longer in progress."""
        self.under_way = {place: move for place, move in self.under_way.items() if place in found}

    def measured(self, left: Iterable[Left]) -> None:
        self._measured = {(each.ongoing.topic, each.ongoing.partition): each.bytes_left for each in left}

    def sizes_due(self, now: float) -> bool:
        if not self.under_way or now - self._sizes_at < SIZES_EVERY_S:
            return False
        self._sizes_at = now
        return True

    def note_due(self, now: float) -> bool:
        if self._noted_at is None:
            self._noted_at = now
        if now - self._noted_at < NOTE_EVERY_S:
            return False
        self._noted_at = now
        return True

    def check_patience(self, now: float, error: ClientError) -> None:
        """Give up where the cluster has refused for too long."""
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > ATTEMPTS_S:
            raise error

    def responded(self, now: float) -> None:
        self._failing_since = None
        if self._began_at is None:
            self._began_at = now

    def bytes_left(self, sizes: Mapping[Place, int]) -> int:
        unknown = [*self._waiting, *(move for place, move in self.under_way.items() if place not in self._measured)]
        known = sum(self._measured[place] for place in self.under_way if place in self._measured)
        return known + sum(sizes.get(move.place, 0) * len(move.adding) for move in unknown)

    def text(self, now: float, moved: int) -> str:
        """How far it is, and about how long the rest takes."""
        left = len(self._waiting) + len(self.under_way)
        parts = [f"{self._total - left} of {counted(self._total, 'partition')}"]
        if self._copied:
            parts.append(f"{bytes_text(max(self._copied - moved, 0))} left")
        passed = 0.0 if self._began_at is None else now - self._began_at
        share = moved / self._copied if self._copied else (self._total - left) / self._total if self._total else 1.0
        if 0 < share < 1 and passed > 0:
            parts.append(f"about {duration_text(passed * (1 - share) / share)}")
        return ", ".join(parts)


def duration_text(seconds: float) -> str:
    """90 as 1 min 30 s."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def move_json(move: Move) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "before": list(move.before),
        "after": list(move.after),
        "adding": list(move.adding),
        "removing": list(move.removing),
    }
