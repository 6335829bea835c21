"""Serves a fetch request: which partitions to read, which results to send, and how to wait for more.

The wire format and quotas are elsewhere. A request runs through here as

    job = fetches.begin(...)        the reader's session, registered or not; raises the session's errors
    job.read()                      True: respond now; False: `job.wait(ms, callback)`, whose end reads again
    job.response(now_ms)            the id of the session and the results to send

A job that waits opens a watch on each of its partitions (`PartitionWatch`). The partition's `watchers` notify it of
changes, and the job counts growth until there is enough, a partition fails, or the time is up.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidTopic,
    NotLeaderOrFollower,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import NO_BROKER, NO_BROKER_EPOCH, NO_OFFSET, BrokerEpoch, BrokerId, Offset
from penstock.model.timers import Timer, Timers
from penstock.model.turns import Turns
from penstock.partition.fetch_session import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    NO_SESSION,
    CachedPartition,
    FetchSession,
    FetchSessions,
    PartitionKey,
    epoch_after,
)
from penstock.partition.follower import FollowerUnconfirmed
from penstock.partition.leader import Leader
from penstock.partition.replica import Replica
from penstock.partition.replica_selector import ReplicaSelector, ReplicaView
from penstock.partition.replicas import Replicas
from penstock.partition.results import Fetched
from penstock.partition.views import View
from penstock.quotas.replication import ReplicationThrottle, is_named
from penstock.wire.fetch import HIGH_WATERMARK_UNKNOWN

PARTITIONS_AT_ONCE_MAX = 200
"""Partitions that a request reads in one turn of the loop; a larger request takes several turns."""

RESTING_AT_ONCE_MAX = 1_000
"""A wait on at most so many partitions lets them rest from the start; on more, each from its first notification."""

PartitionResult = tuple[CachedPartition, Fetched | BrokerError]
"""A partition, and its records or its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The most a response may hold, and the least that ends a wait."""

    bytes_min: int
    bytes_max: int
    read_committed: bool = False
    replica_id: BrokerId = NO_BROKER
    """The broker that fetches as a follower; negative: a consumer."""
    replica_epoch: BrokerEpoch = NO_BROKER_EPOCH
    """The registration in which it fetches."""
    rack: str = ""
    """A consumer's rack: it may be sent to a follower, and read from one."""
    listener: str = ""
    """The listener of the consumer: it can reach only the brokers that have it."""

    @property
    def of_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def from_follower(self) -> bool:
        """Whether a consumer may read from a follower.

        Not without a rack, though Kafka allows it: a former leader then sends the consumer to its successor.
        """
        return bool(self.rack) and self.replica_id < 0


def never_gone() -> bool:
    """For a client that cannot disconnect."""
    return False


class PartitionWatch:
    """One reader's watch on the replica of one partition.

    A session keeps its watches from one poll to the next, so that waiting on a thousand quiet partitions costs the same
    as on one. A watch that is notified while no request waits closes itself: the session has marked the partition as
    active, and a reader that does not return costs nothing more.
    """

    __slots__ = (
        "_of_follower",
        "_watchers",
        "held_back",
        "partition",
        "replica",
        "resting",
        "seen",
        "served",
        "session",
        "stable",
        "view",
        "watching",
    )

    def __init__(
        self, replica: Replica, partition: CachedPartition, session: FetchSession, *, of_follower: bool = False
    ) -> None:
        self.replica = replica
        self._of_follower = of_follower
        self._watchers = replica.watchers_of(follower=of_follower)
        self.partition = partition
        self.session = session
        self.seen = self._watchers.readable_bytes
        """`readable_bytes` when last read."""
        self.stable = replica.offsets.last_stable
        """The last stable offset when committed data was last counted."""
        self.held_back = False
        """Whether open transactions kept readers of committed data from bytes that `seen` includes."""
        self.served = True
        """Whether the replica served the reader when last read."""
        self.view: View | None = None
        """The view that the reader reads; None if it reads the topic."""
        self.watching = False
        self.resting = False
        """Whether it is notified only from some growth on."""

    def open(self) -> None:
        """Be notified of every change from now on."""
        offsets = self.replica.offsets
        self.seen = self._watchers.readable_bytes
        self.stable = offsets.last_stable
        self.held_back = offsets.last_stable < offsets.high_watermark
        if not self.watching or self.resting:
            self.watching = True
            self.resting = False
            self.replica.watch(self, follower=self._of_follower)
        if self._of_follower:
            self._watch_high_watermark()

    def _watch_high_watermark(self) -> None:
        """Be notified when more is committed, as consumers are, if consumers of the follower wait for that."""
        if self.partition.follower_high_watermark != HIGH_WATERMARK_UNKNOWN:
            self.replica.watchers.add(self)
        else:
            self.replica.watchers.discard(self)

    @property
    def has_high_watermark_news(self) -> bool:
        """Whether the follower can raise its high watermark, has consumers that wait for it, and was not sent it."""
        partition, high_watermark = self.partition, self.replica.offsets.high_watermark
        if partition.follower_high_watermark >= high_watermark or partition.high_watermark == high_watermark:
            return False
        held_end = partition.fetch_offset if partition.held_end < 0 else partition.held_end
        return partition.follower_high_watermark < held_end

    def rest(self, grown_bytes: int) -> None:
        """Be notified of growth only from `grown_bytes` more than `seen` on."""
        if grown_bytes > 1 or self.resting:
            self.resting = grown_bytes > 1
            self.replica.watch(self, grown_bytes, follower=self._of_follower)

    @property
    def readable_bytes(self) -> int:
        """Bytes that have become visible to this reader since the replica was opened."""
        return self._watchers.readable_bytes

    def grow(self) -> int:
        """The growth since `seen`, which then includes it."""
        readable_bytes = self._watchers.readable_bytes
        grown = readable_bytes - self.seen
        self.seen = readable_bytes
        return grown

    def close(self) -> None:
        if self.watching:
            self.watching = self.resting = False
            self.replica.unwatch(self)

    def notify(self) -> None:
        """Mark the partition as active, and let the request that waits, if any, count the growth."""
        self.resting = False
        grown = self.grow()
        session = self.session
        if session.id != NO_SESSION:
            session.activate(self.partition)
        waiting = session.waiting
        if isinstance(waiting, FetchJob):
            waiting.moved(self, grown)
        else:
            self.close()

    def grown_committed(self, grown: int) -> int:
        """The growth of committed data, where all data grew by `grown`.

        A transaction's bytes become readable when it ends, long after they were written: then the log is measured.
        """
        offsets = self.replica.offsets
        counted, self.stable = self.stable, offsets.last_stable
        was_held_back, self.held_back = self.held_back, offsets.last_stable < offsets.high_watermark
        if not was_held_back and not self.held_back:
            return grown
        if counted == offsets.last_stable:
            return 0
        return self.replica.bytes_committed(max(counted, self.partition.fetch_offset), self.partition.bytes_max)


class FetchJob:
    """One fetch request: its reads, its wait, and its response."""

    __slots__ = (
        "_bytes_missing",
        "_completed",
        "_count",
        "_epoch",
        "_fetches",
        "_grown",
        "_limits",
        "_patience",
        "_resting",
        "_session",
        "_timer",
        "_urgent",
        "bytes_read",
        "results",
    )

    def __init__(self, fetches: "Fetches", limits: FetchLimits, session: FetchSession, epoch: int) -> None:
        self._fetches = fetches
        self._limits = limits
        self._session = session
        self._epoch = epoch
        self._urgent = False
        """Whether a partition failed, or too many partitions grew during the read."""
        self.results: list[PartitionResult] = []
        """The results of the last read, in the order of the request."""
        self.bytes_read = 0
        self._timer: Timer | None = None
        self._completed: Callable[[], None] | None = None
        """Called when the wait ends; None while the job does not wait."""

    @property
    def session_id(self) -> int:
        """The id of the request's registered session, or `NO_SESSION`."""
        return self._session.id

    @property
    def limits(self) -> FetchLimits:
        return self._limits

    @property
    def has_views(self) -> bool:
        """Whether views are among the partitions: a `ViewReader` looks through them."""
        return self._session.has_views

    @property
    def is_stale(self) -> bool:
        """Whether a later request of the session has arrived, so that this one is refused."""
        session = self._session
        return session.id != NO_SESSION and (session.closed or session.epoch != epoch_after(self._epoch))

    def views(self) -> Iterator[tuple[CachedPartition, PartitionWatch]]:
        """The partitions of views that the last read found readable here."""
        for partition, outcome in self.results:
            watch = self.view_watch(partition, outcome)
            if watch is not None:
                yield partition, watch

    @staticmethod
    def view_watch(partition: CachedPartition, outcome: Fetched | BrokerError) -> PartitionWatch | None:
        """The watch on a partition of a view whose result says that it is readable here."""
        watch = partition.watch
        if not isinstance(watch, PartitionWatch) or watch.view is None:
            return None
        return watch if isinstance(outcome, Fetched) and not outcome.is_urgent else None

    def fail(self, at: int, error: BrokerError) -> None:
        """Replace a result, by its place."""
        self._urgent = True
        self.results[at] = (self.results[at][0], error)

    def drop_records(self) -> None:
        """Send none of the records of topics, but what else there is at once."""
        self._urgent = True
        for _, outcome in self.results:
            if isinstance(outcome, Fetched):
                outcome.records = b""

    @property
    def of_follower(self) -> bool:
        """Whether a broker fetches, to replicate."""
        return self._limits.of_follower

    # Reading

    @property
    def _bytes_max(self) -> int:
        """What topics may fill of the response: half of it where there are views, which are looked at after them."""
        return self._limits.bytes_max // 2 if self._session.has_views else self._limits.bytes_max

    @property
    def is_large(self) -> bool:
        """Whether there are too many partitions for one turn of the loop: `read_in_turns` reads them."""
        return len(self._session.active) > PARTITIONS_AT_ONCE_MAX

    @property
    def is_enough(self) -> bool:
        """Whether the response should go out now."""
        return self._urgent or self.bytes_read >= self._limits.bytes_min or not len(self._session)

    def read(self) -> bool:
        """Read every active partition. True when the response should go out now."""
        limits = self._limits
        session = self._session
        results: list[PartitionResult] = []
        bytes_read = 0
        urgent = False
        for partition in list(session.active.values()):
            bytes_left = max(0, self._bytes_max - bytes_read)
            try:
                fetched = self._fetches.look(partition, session, limits, bytes_left, at_least_one=bytes_read == 0)
            except BrokerError as error:
                results.append((partition, error))
                urgent = urgent or not isinstance(error, FollowerUnconfirmed)
                continue
            if fetched is not None:
                results.append((partition, fetched))
                size = len(fetched.records)
                bytes_read += size
                if fetched.is_urgent:
                    urgent = True
        self.results = results
        self.bytes_read = bytes_read
        self._urgent = urgent
        return self.is_enough

    async def read_in_turns(self, turns: Turns, is_gone: Callable[[], bool] = never_gone) -> bool:
        """`read` for many partitions, over several turns of the loop.

        A partition that grew after its read is read again in the last turn, so that a wait that follows misses nothing.
        For a client that `is_gone` it stops, without results.
        """
        self._urgent = False
        self.bytes_read = 0
        found: dict[CachedPartition, Fetched | BrokerError] = {}
        readable: dict[CachedPartition, int] = {}
        for partition in list(self._session.active.values()):
            self._read_one(partition, found)
            readable[partition] = readable_in(partition)
            if turns.spent():
                await turns.pause()
                if is_gone():
                    self.results = []
                    return True
        grown = [partition for partition, before in readable.items() if readable_in(partition) != before]
        if len(grown) > PARTITIONS_AT_ONCE_MAX:
            self._urgent = True
        else:
            for partition in grown:
                self._read_one(partition, found)
        self.results = list(found.items())
        return self.is_enough

    def _read_one(self, partition: CachedPartition, found: dict[CachedPartition, Fetched | BrokerError]) -> None:
        before = found.pop(partition, None)
        if isinstance(before, Fetched):
            self.bytes_read -= len(before.records)
        try:
            fetched = self._fetches.look(
                partition,
                self._session,
                self._limits,
                max(0, self._bytes_max - self.bytes_read),
                at_least_one=self.bytes_read == 0,
            )
        except BrokerError as error:
            found[partition] = error
            self._urgent = self._urgent or not isinstance(error, FollowerUnconfirmed)
            return
        if fetched is not None:
            found[partition] = fetched
            self.bytes_read += len(fetched.records)
            if fetched.is_urgent:
                self._urgent = True

    # Waiting

    def wait(self, wait_ms: int, completed: Callable[[], None]) -> None:
        """Wait for enough, then read again and call back once. A large job calls back unread, to be read in turns.

        A later request of the same session ends the wait.
        """
        session = self._session
        if session.waiting is not None:
            session.waiting.complete()
        session.waiting = self
        self._fetches.waiting += 1
        self._completed = completed
        self._bytes_missing = self._limits.bytes_min - self.bytes_read
        self._grown: dict[PartitionWatch, int] = {}
        """The growth of each partition since its read."""
        self._resting: dict[PartitionWatch, None] = {}
        self._count = max(1, len(session))
        self._patience = self._bytes_missing // (2 * self._count)
        """Bytes by which a partition has to grow to be notified."""
        # Partitions without a result are settled: their watches are open.
        watches = [watch for partition, _ in self.results if isinstance(watch := partition.watch, PartitionWatch)]
        rests = self._patience > 1 and len(watches) <= RESTING_AT_ONCE_MAX
        for watch in watches:
            watch.open()
            if rests:
                self._rest(watch)
        self._timer = self._fetches.timers.after_ms(wait_ms, self.complete)
        if any(not watch.served and watch.replica.serves(from_follower=True) for watch in watches):
            # A leader confirmed its follower between two turns of a large read.
            self.complete()

    def complete(self) -> None:
        """Stop waiting, read again and call back."""
        completed = self._completed
        if completed is not None:
            self._end_wait()
            if not self.is_large:
                self.read()
            completed()

    def cancel(self) -> None:
        """Stop waiting without a response: the connection closed."""
        if self._completed is not None:
            self._end_wait()

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._completed = None
        self._fetches.waiting -= 1
        session = self._session
        session.waiting = None
        if session.id == NO_SESSION:
            for partition in session:
                if partition.watch is not None:
                    partition.watch.close()

    def moved(self, watch: PartitionWatch, grown: int) -> None:
        """A partition grew, or cannot be read as before."""
        if self._is_over(watch, grown):
            self.complete()
            return
        if self._bytes_missing < self._count * self._patience:
            # The resting partitions may have enough together: count them, and let them rest for less.
            resting, self._resting = self._resting, {}
            if any(self._is_over(each, each.grow()) for each in resting):
                self.complete()
                return
            self._patience = self._bytes_missing // (2 * self._count)
            for each in resting:
                self._rest(each)
        self._rest(watch)

    def _rest(self, watch: PartitionWatch) -> None:
        """Let a partition rest until it has grown by its share of half of the missing bytes.

        All resting partitions together then lack bytes for sure, so that they need not be counted. Bytes that open
        transactions hold back become readable without growth: with such bytes, a reader of committed data never rests.
        """
        patience = min(self._patience, watch.partition.bytes_max - self._grown.get(watch, 0))
        if patience > 1 and not (self._limits.read_committed and watch.held_back):
            self._resting[watch] = None
            watch.rest(patience)
        else:
            watch.rest(0)

    def _is_over(self, watch: PartitionWatch, grown: int) -> bool:
        """Count the growth of a partition; whether that ends the wait."""
        replica, offsets = watch.replica, watch.replica.offsets
        wanted = watch.partition
        if replica.serves(from_follower=self._limits.from_follower) != watch.served:
            return True
        if not watch.served:
            # A follower that its leader has not confirmed: the wait ends when it has, or with the time.
            return replica.is_offline
        if wanted.fetch_offset < offsets.log_start or wanted.fetch_offset > offsets.log_end:
            return True
        if self._limits.of_follower and watch.has_high_watermark_news:
            return True
        if self._limits.read_committed:
            if offsets.last_stable <= wanted.fetch_offset:
                watch.held_back = True
                return False
            try:
                grown = watch.grown_committed(grown)
            except BrokerError:
                # The log cannot be read: the read that follows returns the error to the client.
                return True
        self._bytes_missing -= grown
        total = self._grown[watch] = self._grown.get(watch, 0) + grown
        # One partition has reached its own limit: respond, even if the request lacks bytes.
        return self._bytes_missing <= 0 or total >= wanted.bytes_max

    # Responding

    def response(self, now_ms: int) -> tuple[int, list[PartitionResult]]:
        """Session id and results to send; raises `InvalidFetchSessionEpoch` when a later request has arrived.

        Call it only when the response goes out: it updates what the session has sent.
        """
        session = self._session
        if session.id == NO_SESSION:
            if self._epoch != EPOCH_INITIAL or not self._fetches.sessions.register(session, now_ms):
                # Break the reference cycle, so that the session is freed without the garbage collector.
                for partition, _ in self.results:
                    partition.watch = None
                return NO_SESSION, self.results
            for partition, outcome in self.results:
                news(partition, outcome)
            return session.id, self.results
        session.check_response(self._epoch)
        worth_sending: list[PartitionResult] = []
        for partition, outcome in self.results:
            if news(partition, outcome):
                worth_sending.append((partition, outcome))
                if isinstance(outcome, Fetched) and len(outcome.records):
                    session.served(partition)
        return session.id, worth_sending


def readable_in(partition: CachedPartition) -> int:
    """The `readable_bytes` of the partition's replica; 0 where there is none."""
    watch = partition.watch
    return watch.readable_bytes if isinstance(watch, PartitionWatch) else 0


def news(partition: CachedPartition, outcome: Fetched | BrokerError) -> bool:
    """Note what is sent for a partition; False when nothing in it is new."""
    if isinstance(outcome, BrokerError) or outcome.diverging is not None or outcome.preferred_replica >= 0:
        return partition.note_response(0, NO_OFFSET, NO_OFFSET, failed=True)
    return partition.note_response(len(outcome.records), outcome.high_watermark, outcome.log_start, failed=False)


class Fetches:
    """The read path over all partitions of this broker."""

    __slots__ = ("_now_ms", "_rack_of", "_select", "_throttle", "replicas", "sessions", "timers", "waiting")

    def __init__(
        self,
        *,
        replicas: Replicas,
        sessions: FetchSessions,
        timers: Timers,
        now_ms: Callable[[], int],
        throttle: ReplicationThrottle | None = None,
        select: ReplicaSelector | None = None,
        rack_of: Callable[[BrokerId, str], str | None] = lambda _, __: None,
    ) -> None:
        """`throttle` limits the bytes of followers that their topics name; without one they are not limited.

        `select` chooses the replica that consumers read from; without it they read from the leader. `rack_of` gives the
        rack of a broker; None where it has none, or not the listener named.
        """
        self._now_ms = now_ms
        self._select = select
        self._rack_of = rack_of
        self._throttle = throttle
        self.replicas = replicas
        self.sessions = sessions
        self.timers = timers
        self.waiting = 0
        """Number of requests that wait."""

    def begin(
        self,
        limits: FetchLimits,
        *,
        session_id: int,
        epoch: int,
        by_topic_id: bool,
        asked: Sequence[CachedPartition],
        forgotten: Iterable[PartitionKey] = (),
        now_ms: int,
        privileged: bool = False,
    ) -> FetchJob:
        """Start a request; raises the errors of its session."""
        if epoch not in (EPOCH_INITIAL, EPOCH_FINAL):
            session = self.sessions.resume(session_id, epoch, by_topic_id, asked, forgotten, now_ms)
            if session is not None:
                return FetchJob(self, limits, session, epoch)
            # The request forgot the last partition and closed the session.
            asked = ()
        else:
            self.sessions.close(session_id)
        return FetchJob(self, limits, FetchSession(asked, privileged=privileged, by_topic_id=by_topic_id), epoch)

    def look(
        self,
        partition: CachedPartition,
        session: FetchSession,
        limits: FetchLimits,
        bytes_left: int,
        *,
        at_least_one: bool,
    ) -> Fetched | None:
        """Read one partition; None when the reader has everything: the partition is then settled and watched."""
        watch = partition.watch
        from_follower = limits.from_follower
        if not isinstance(watch, PartitionWatch) or not (
            isinstance(watch.replica.role, Leader) or watch.replica.serves(from_follower=from_follower)
        ):
            partition.unwatch()
            found, view = self._find(partition, limits)
            partition.watch = watch = PartitionWatch(found, partition, session, of_follower=limits.of_follower)
            watch.view = view
        if limits.replica_id >= 0:
            return self._look_for_follower(watch, limits, min(partition.bytes_max, bytes_left), at_least_one)
        replica = watch.replica
        role, offsets = replica.role, replica.offsets
        offset = partition.fetch_offset
        watch.served = isinstance(role, Leader) or replica.serves(from_follower=from_follower)
        if from_follower:
            if not isinstance(role, Leader):
                replica.consumed_ms = self._now_ms()
            elif (preferred := self._preferred(role, offset, limits)) != role.broker_id:
                return replica.redirect(preferred, leader_epoch=partition.leader_epoch)
        if watch.view is not None:
            return self._look_at_view(watch, watch.view, limits)
        if (
            watch.served
            and offset == (offsets.last_stable if limits.read_committed else offsets.high_watermark)
            and partition.high_watermark == offsets.high_watermark
            and partition.log_start == offsets.log_start
            and (partition.leader_epoch < 0 or partition.leader_epoch == role.leader_epoch)
            and partition.fetched_epoch < 0
        ):
            watch.open()
            session.settle(partition)
            return None
        return replica.read(
            offset,
            min(partition.bytes_max, bytes_left),
            at_least_one=at_least_one,
            read_committed=limits.read_committed,
            leader_epoch=partition.leader_epoch,
            fetched_epoch=partition.fetched_epoch,
            from_follower=from_follower,
        )

    def _find(self, partition: CachedPartition, limits: FetchLimits) -> tuple[Replica, View | None]:
        """The replica of a partition, and the view that it is of, if it is one's."""
        try:
            return self.replicas.find(partition.topic, partition.partition), None
        except (UnknownTopicId, InvalidTopic):
            view = self.replicas.views.get(partition.topic)
            if view is None or limits.of_follower:
                raise
        return self.replicas.get(view.parent, partition.partition), view

    def _look_at_view(self, watch: PartitionWatch, view: View, limits: FetchLimits) -> Fetched:
        """Check the read of a view as that of its parent, without any records: they are looked at later.

        Views are never settled: a reader of one that is deleted has to hear of it.
        """
        partition = watch.partition
        if self.replicas.views.get(partition.topic) is not view:
            partition.unwatch()
            raise UnknownTopicId() if isinstance(partition.topic, bytes) else UnknownTopicOrPartition()
        watch.session.has_views = True
        return watch.replica.read(
            partition.fetch_offset,
            0,
            at_least_one=False,
            read_committed=limits.read_committed,
            leader_epoch=partition.leader_epoch,
            fetched_epoch=partition.fetched_epoch,
            from_follower=limits.from_follower,
        )

    def _preferred(self, role: Leader, offset: Offset, limits: FetchLimits) -> BrokerId:
        """The broker from which a consumer with a rack is to read a partition that is led here."""
        if self._select is None or not role.followers:
            return role.broker_id
        now_ms = self._now_ms()
        followers = (
            ReplicaView(
                broker_id=follower,
                rack=self._rack_of(follower, limits.listener),
                log_end=progress.log_end,
                behind_ms=now_ms - progress.caught_up_ms,
            )
            for follower, progress in role.readable_followers(offset, self.replicas.cluster.broker_epoch_of)
        )
        leader = ReplicaView(
            broker_id=role.broker_id,
            rack=self._rack_of(role.broker_id, limits.listener),
            log_end=role.offsets.log_end,
            behind_ms=0,
        )
        return self._select(limits.rack, leader, followers)

    def _throttle_of(self, replica: Replica, follower: BrokerId) -> ReplicationThrottle | None:
        """The throttle of a follower's fetch; None where the topic does not name the leader, or it is in sync."""
        named = replica.config.leader_replication_throttled_replicas
        role = replica.role
        if not named or not isinstance(role, Leader) or follower in role.isr:
            return None
        return self._throttle if is_named(named, replica.tp.partition, role.broker_id) else None

    def _look_for_follower(
        self, watch: PartitionWatch, limits: FetchLimits, bytes_max: int, at_least_one: bool
    ) -> Fetched | None:
        """Count a follower's fetch of one partition and read it; None when the follower has everything, as `look`.

        It counts only in the registration that the controller has admitted: else any client could commit records.
        """
        partition, replica = watch.partition, watch.replica
        role, offsets = replica.role, replica.offsets
        if isinstance(role, Leader):
            if limits.replica_id not in role.followers:
                raise NotLeaderOrFollower()
            if limits.replica_epoch != self.replicas.cluster.broker_epoch_of(limits.replica_id):
                raise StaleBrokerEpoch(f"broker {limits.replica_id} is not admitted with epoch {limits.replica_epoch}")
        throttle = self._throttle_of(replica, limits.replica_id)
        if throttle is not None and throttle.exceeded:
            # It gets nothing, and asks again after its longest wait.
            bytes_max, at_least_one = 0, False
        fetched = replica.read_for_follower(
            limits.replica_id,
            partition.fetch_offset,
            bytes_max,
            at_least_one=at_least_one,
            broker_epoch=limits.replica_epoch,
            leader_epoch=partition.leader_epoch,
            fetched_epoch=partition.fetched_epoch,
            held_end=partition.held_end,
            log_start=partition.follower_log_start,
            now_ms=self._now_ms(),
        )
        if throttle is not None:
            throttle.copied(len(fetched.records))
        if (
            fetched.diverging is None
            and isinstance(role, Leader)
            and limits.replica_id in role.isr
            and not role.is_proposing
            and partition.fetch_offset == offsets.log_end == offsets.high_watermark
            and partition.high_watermark == offsets.high_watermark
            and partition.log_start == offsets.log_start
        ):
            # Its progress is known; a later high watermark needs an append first, which activates it, as does another
            # ISR. A follower outside of the ISR is looked at with every fetch, until it joins.
            watch.open()
            watch.session.settle(partition)
            return None
        if watch.has_high_watermark_news:
            fetched.is_urgent = True
        return fetched
