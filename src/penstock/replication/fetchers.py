"""Follower fetchers: copy the logs of the partitions that this broker follows from their leaders.

There is one fetcher per leader, with an incremental fetch session, and one request in flight. The next one is sent
after the last response was appended, because the offset that a follower fetches from is its acknowledgement. A response
to a request of another leader epoch is dropped.

Where a partition comes to a leader whose fetcher waits in a long poll, the poll is given up soon: until its first fetch
a new follower holds up every acknowledgement of its ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from penstock.config.broker import BrokerConfig
from penstock.model.clock import Clock, monotonic_ms
from penstock.model.deferred import Deferred
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaStorageError,
    OffsetOutOfRange,
    StaleBrokerEpoch,
)
from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, Offset, TopicId, TopicPartition
from penstock.model.removals import Removals
from penstock.model.timers import Timer, Timers
from penstock.model.turns import Turns
from penstock.observe.log import Logger
from penstock.partition.follower import FetchFrom
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.quotas.replication import ReplicationThrottle, is_named
from penstock.replication.log_bounds import ask_bounds
from penstock.replication.peers import Peers, PeerUnavailable, Purpose
from penstock.wire import replica_fetch
from penstock.wire.primitives import Buffer
from penstock.wire.replica_fetch import FetchedReplica, PartitionFetch, ReplicaFetchRequest, ReplicaFetchResponse

RETRY_MS_MIN = 50
"""First pause after a failure; it doubles up to `replica.fetch.backoff.ms`. A leader may not know its role yet."""
INTERRUPT_MS = 20
"""How long a new partition waits for a long poll to end by itself; several may come at once."""
INTERRUPT_PARTITIONS_MAX = 2_000
"""A fetcher with more partitions is not interrupted, as it sends all of them again."""
UNHELD_WAIT_MS = 5
"""Longest poll of a follower that has not fsynced what it fetched: its next request says how far it holds the log."""

SHARED_BYTES_MAX = 2 * 1024 * 1024
SHARED_S = 1.0
"""So long after a response with records of another partition, a partition gets no more than that: the acknowledgements
of the others wait until a follower that catches up has received and written its part."""

SESSION_ERRORS = frozenset(
    error.code for error in (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)
)


class StillInSync(Exception):
    """A follower has to empty its log, and is in the ISR, whose members hold every committed record."""


class ReplicaFetch:
    """The codec of a follower's Fetch, with the interface of a generated module."""

    API_KEY = 1
    NAME = "Fetch"
    VERSION_MIN = VERSION_MAX = replica_fetch.VERSION

    @staticmethod
    def encode_request(request: ReplicaFetchRequest, version: int) -> bytearray:
        return replica_fetch.encode_replica_fetch(request)

    @staticmethod
    def decode_response(data: Buffer, position: int, version: int) -> ReplicaFetchResponse:
        return replica_fetch.decode_replica_fetched(data, position)


REPLICA_FETCH = ReplicaFetch()


class Followed:
    """A partition of a fetcher, and what its fetch session has of it."""

    __slots__ = ("failures", "lag", "replica", "sent", "topic_id", "waits")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.topic_id: TopicId = replica.topic_id
        self.sent: FetchFrom | None = None
        """Its last fetch, while the leader's session has it."""
        self.failures = 0
        self.waits: Timer | None = None
        """Runs while the partition is not fetched after a failure."""
        self.lag = 0
        """Committed records that this replica lacks, as of its last fetch."""


class Fetchers:
    """Every fetcher of this broker, kept in step with the roles of its replicas."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        replicas: Replicas,
        peers: Peers,
        timers: Timers,
        turns: Turns,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        in_sync: Callable[[TopicPartition], bool],
        log: Logger,
    ) -> None:
        """`in_sync` says whether this broker is in the ISR of a partition: then it is not throttled."""
        self.in_sync = in_sync
        self.throttle = ReplicationThrottle(lambda: config().follower_replication_throttled_rate, clock.monotonic)
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.replicas = replicas
        self.peers = peers
        self.timers = timers
        self.turns = turns
        self.call_soon = call_soon
        self.clock = clock
        self.config = config
        self.log = log
        self.on_disowned: Callable[[BrokerEpoch], None] = lambda _: None
        """Called when a leader that knew this broker's registration says that it is over."""
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._closed = False
        self._stopping = False

    def stopping(self) -> None:
        """This broker stops: fetch no partition that it led until now.

        Its new leader would propose this broker for the ISR, and while the outcome of that is not known, records would
        count as committed only with the copy of a broker that is gone.
        """
        self._stopping = True

    def roles_changed(self, partitions: Collection[TopicPartition]) -> None:
        """Follow the roles that partitions have now."""
        if self._closed:
            return
        touched: set[BrokerId] = set()
        for tp in partitions:
            replica = self.replicas.used(tp)
            position = None if replica is None else replica.fetch_position()
            leader = None if position is None else position.leader
            before = self._leaders.get(tp)
            if self._stopping and before is None:
                continue
            if before is not None and before != leader:
                self._fetchers[before].drop(tp)
                del self._leaders[tp]
                touched.add(before)
            if leader is not None and replica is not None:
                self._leaders[tp] = leader
                self._fetcher(leader).follow(replica)
                touched.add(leader)
        for leader in sorted(touched):
            fetcher = self._fetchers[leader]
            if fetcher.is_idle:
                fetcher.close()
                del self._fetchers[leader]
            else:
                fetcher.changed()

    def _fetcher(self, leader: BrokerId) -> Fetcher:
        found = self._fetchers.get(leader)
        if found is None:
            found = self._fetchers[leader] = Fetcher(self, leader)
        return found

    def __len__(self) -> int:
        """Leaders that this broker fetches from."""
        return len(self._fetchers)

    def lags(self) -> Iterator[tuple[TopicPartition, BrokerId, int]]:
        """Each followed partition, its leader, and the committed records that this replica lacks."""
        for leader, fetcher in self._fetchers.items():
            for tp, followed in fetcher.partitions.items():
                yield tp, leader, followed.lag

    def failing(self) -> int:
        """Partitions whose last fetch failed, alone or with the whole request."""
        return sum(fetcher.failing() for fetcher in self._fetchers.values())

    def close(self) -> None:
        """Fetch nothing more."""
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leaders.clear()


class Fetcher:
    """Fetches from one leader: one request in flight, and then the append of its response, over several turns."""

    def __init__(self, fetchers: Fetchers, leader: BrokerId) -> None:
        self._all = fetchers
        self.leader = leader
        self.partitions: dict[TopicPartition, Followed] = {}
        self._by_id: dict[tuple[TopicId, int], Followed] = {}
        self._changed: dict[TopicPartition, None] = {}
        """Partitions whose position differs from what the session has, or may."""
        self._forgotten: dict[tuple[TopicId, int], None] = {}
        """Partitions that the session has and must not have any more."""
        self._session_id = 0
        self._session_epoch = 0
        self._epoch_sent = NO_BROKER_EPOCH
        """The epoch of this broker in the last request."""
        self._epoch_known = BrokerEpoch(NO_BROKER_EPOCH - 1)
        """The last one with which the leader has accepted a fetch; at first none that is sent."""
        self._request: Deferred[ReplicaFetchResponse] | None = None
        """In flight."""
        self._response: Iterator[FetchedReplica] | None = None
        """Being appended."""
        self._cuts: dict[TopicPartition, Offset] = {}
        self._copies: dict[TopicPartition, tuple[Offset, Removals]] = {}
        """Log starts and removals of leaders whose logs are to be copied again."""
        self._outside: list[tuple[Followed, FetchFrom]] = []
        """Partitions whose fetches were outside of the leader's logs."""
        self._questions = 0
        """Questions for the bounds of the leader's logs without a response."""
        self._filled_by: tuple[TopicId, int] | None = None
        """The last partition that had records in a response."""
        self._shared_s = -SHARED_S
        """When another partition had records than before."""
        self._failures = 0
        self._pause: Timer | None = None
        self._interrupt: Timer | None = None
        self._scheduled = False
        self._closed = False

    @property
    def is_idle(self) -> bool:
        return not self.partitions

    def failing(self) -> int:
        """Partitions whose last fetch failed: all of them while the leader cannot be asked."""
        if self._failures:
            return len(self.partitions)
        return sum(followed.waits is not None for followed in self.partitions.values())

    # Partitions

    def follow(self, replica: Replica) -> None:
        """Fetch a partition, from where its log ends now."""
        tp = replica.tp
        known = self.partitions.get(tp)
        if known is not None and known.replica is not replica:
            self.drop(tp)
            known = None
        if known is None:
            known = self.partitions[tp] = self._by_id[replica.topic_id, tp.partition] = Followed(replica)
        elif known.waits is not None:
            # A new leader epoch: the failure was of the last one.
            known.waits.cancel()
            known.waits = None
        known.failures = 0
        self._changed[tp] = None

    def drop(self, tp: TopicPartition) -> None:
        """Fetch a partition no more."""
        followed = self.partitions.pop(tp, None)
        if followed is None:
            return
        del self._by_id[followed.topic_id, tp.partition]
        self._changed.pop(tp, None)
        self._forget(followed)
        if followed.waits is not None:
            followed.waits.cancel()
            followed.waits = None

    def _forget(self, followed: Followed) -> None:
        if followed.sent is not None:
            followed.sent = None
            self._forgotten[followed.topic_id, followed.replica.tp.partition] = None

    def changed(self) -> None:
        """Partitions were added or dropped, or have another leader epoch: fetch soon."""
        if self._request is None:
            self._soon()
        elif self._changed and self._interrupt is None and len(self.partitions) <= INTERRUPT_PARTITIONS_MAX:
            self._interrupt = self._all.timers.after_ms(INTERRUPT_MS, self._interrupted)

    def _interrupted(self) -> None:
        """Give up a long poll, and its connection with it, for partitions that it does not have."""
        self._interrupt = None
        if self._request is not None and self._changed and not self._closed:
            request, self._request = self._request, None
            request.abandon()
            self._reset()
            self._soon()

    # Requests

    def _soon(self) -> None:
        """Send the next request at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self._all.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        if self._closed or self._request is not None or self._response is not None or self._pause is not None:
            return
        if not self.partitions or self._questions:
            return
        request = self._next_request()
        if request is None:
            return
        config = self._all.config()
        sent: Deferred[ReplicaFetchResponse] = self._all.peers.send(
            self.leader,
            Purpose.FETCH,
            REPLICA_FETCH,
            request,
            timeout_ms=float(max(config.replica_socket_timeout_ms, 2 * request.max_wait_ms)),
        )
        self._request = sent
        sent.deliver_to(partial(self._responded, sent), partial(self._failed, sent))

    def _next_request(self) -> ReplicaFetchRequest | None:
        """What the session does not have; all partitions in a new one. None where there is nothing to fetch."""
        config = self._all.config()
        fresh = self._session_epoch == 0
        if fresh:
            self._changed = {tp: None for tp, followed in self.partitions.items() if followed.waits is None}
            self._forgotten.clear()
        bytes_max = self._partition_bytes_max(config)
        now_ms = monotonic_ms(self._all.clock)
        unheld: dict[TopicPartition, None] = {}
        wanted: list[PartitionFetch] = []
        for tp in sorted(self._changed) if fresh else self._changed:
            followed = self.partitions[tp]
            if followed.waits is not None:
                continue
            position = followed.replica.fetch_position(now_ms)
            if position is None or position.leader != self.leader:
                # Its role has changed, and `Fetchers.roles_changed` is about to say so.
                self._forget(followed)
                continue
            if position.held_end < position.offset:
                unheld[tp] = None
            if position == followed.sent and not fresh:
                continue
            followed.sent = position
            self._forgotten.pop((followed.topic_id, tp.partition), None)
            wanted.append(
                PartitionFetch(
                    topic_id=followed.topic_id,
                    partition=tp.partition,
                    offset=position.offset,
                    held_end=position.held_end,
                    bytes_max=bytes_max,
                    leader_epoch=position.leader_epoch,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start=position.log_start,
                    high_watermark=position.high_watermark,
                )
            )
        self._changed = unheld
        if not wanted and (fresh or all(followed.waits is not None for followed in self.partitions.values())):
            return None
        forgotten, self._forgotten = self._forgotten, {}
        self._epoch_sent = self._all.broker_epoch()
        return ReplicaFetchRequest(
            replica_id=self._all.broker_id,
            replica_epoch=self._epoch_sent,
            max_wait_ms=UNHELD_WAIT_MS if unheld else config.replica_fetch_wait_max_ms,
            bytes_min=config.replica_fetch_min_bytes,
            bytes_max=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            partitions=wanted,
            forgotten=list(forgotten),
        )

    def _partition_bytes_max(self, config: BrokerConfig) -> int:
        shared = self._all.clock.monotonic() - self._shared_s < SHARED_S
        return min(config.replica_fetch_max_bytes, SHARED_BYTES_MAX) if shared else config.replica_fetch_max_bytes

    # Responses

    def _responded(self, request: Deferred[ReplicaFetchResponse], response: ReplicaFetchResponse) -> None:
        if self._request is not request:
            return
        self._request = None
        if self._interrupt is not None:
            self._interrupt.cancel()
            self._interrupt = None
        if self._closed:
            return
        if response.error_code:
            self._refused(response.error_code)
            return
        self._failures = 0
        if self._session_epoch == 0:
            self._session_id = response.session_id
        # Without a session every request has all partitions.
        self._session_epoch = self._session_epoch % SESSION_EPOCH_MAX + 1 if self._session_id else 0
        self._response = iter(response.partitions)
        self._append()

    def _append(self) -> None:
        """Append the response, until the turn's budget is spent."""
        if self._closed or self._response is None:
            return
        for fetched in self._response:
            key = (fetched.topic_id, fetched.partition)
            if len(fetched.records) and key != self._filled_by:
                if self._filled_by is not None:
                    self._shared_s = self._all.clock.monotonic()
                self._filled_by = key
            followed = self._by_id.get(key)
            if followed is not None and followed.sent is not None:
                self._take(followed, followed.sent, fetched)
            if self._all.turns.spent():
                self._all.call_soon(self._append)
                return
        self._response = None
        self._truncate()
        self._copy_again()
        # Not before: records are views of the connection's buffer, which the next response is received into.
        outside, self._outside = self._outside, []
        for followed, sent in outside:
            self._ask_bounds(followed, sent)
        self._soon()

    def _take(self, followed: Followed, sent: FetchFrom, fetched: FetchedReplica) -> None:
        replica = followed.replica
        try:
            if fetched.error_code == OffsetOutOfRange.code:
                self._outside.append((followed, sent))
            elif fetched.error_code:
                raise ERRORS_BY_CODE.get(fetched.error_code, BrokerError)()
            elif fetched.diverging is not None:
                cut = replica.diverged(*fetched.diverging, leader_epoch=sent.leader_epoch)
                self._cuts[replica.tp] = cut.offset
            elif fetched.removals is not None and replica.copies_again(
                fetched.removals, leader_epoch=sent.leader_epoch
            ):
                self._copies[replica.tp] = Offset(fetched.log_start), fetched.removals
            else:
                replica.replicate(
                    fetched.records,
                    leader_epoch=sent.leader_epoch,
                    high_watermark=Offset(fetched.high_watermark),
                    log_start=Offset(fetched.log_start),
                    now_ms=self._all.clock.now_ms(),
                    removals=fetched.removals,
                )
                self._epoch_known = self._epoch_sent
                followed.failures = 0
                followed.lag = max(fetched.high_watermark - replica.offsets.log_end, 0)
                self._changed[replica.tp] = None
                if replica.config.follower_replication_throttled_replicas and len(fetched.records):
                    self._throttle(followed, len(fetched.records))
        except FencedLeaderEpoch as error:
            self._fenced(followed, sent, error)
        except BrokerError as error:
            self._partition_failed(followed, error)
            if isinstance(error, StaleBrokerEpoch) and self._epoch_sent == self._epoch_known:
                # Not a leader that has yet to hear of the registration.
                self._all.call_soon(partial(self._all.on_disowned, self._epoch_sent))
        except Exception as error:
            self._all.log.exception("replication_failed", partition=str(replica.tp), exc_info=error)
            self._partition_failed(followed, error)

    def _throttle(self, followed: Followed, size: int) -> None:
        """Leave out a partition that is copied too fast, until its bytes are within the rate."""
        tp, fetchers = followed.replica.tp, self._all
        named = followed.replica.config.follower_replication_throttled_replicas
        if is_named(named, tp.partition, fetchers.broker_id) and not fetchers.in_sync(tp):
            pause_ms = fetchers.throttle.copied(size)
            if pause_ms:
                self._wait(followed, pause_ms, self._soon)

    def _wait(self, followed: Followed, pause_ms: int, then: Callable[[], None]) -> None:
        """Do not fetch a partition for a while; the session must not have it meanwhile.

        `then` sends the next request. After a throttle that is when the poll in flight ends: an interruption would cost
        the session, and the acknowledgements of all other partitions that wait for this follower.
        """
        self._forget(followed)
        self._changed.pop(followed.replica.tp, None)
        followed.waits = self._all.timers.after_ms(pause_ms, partial(self._partition_again, followed, then))

    def _fenced(self, followed: Followed, sent: FetchFrom, error: FencedLeaderEpoch) -> None:
        """Drop a response of another leader epoch; where it is this replica's epoch that is old, wait for the news."""
        position = followed.replica.fetch_position()
        if position is None or position.leader_epoch != sent.leader_epoch:
            self._changed[followed.replica.tp] = None
        else:
            self._partition_failed(followed, error)

    def _truncate(self) -> None:
        """Cut the logs that diverge; the next fetch shows whether they agree now."""
        cuts, self._cuts = self._cuts, {}
        # A role may have changed since the response was taken.
        cuts = {tp: offset for tp, offset in cuts.items() if tp in self.partitions and self._still_follows(tp)}
        if not cuts:
            return
        try:
            self._all.replicas.truncate(cuts)
        except KafkaStorageError as error:
            for tp in cuts:
                self._partition_failed(self.partitions[tp], error)
        else:
            self._changed.update(dict.fromkeys(cuts))

    def _copy_again(self) -> None:
        """Empty the logs that lack removed tombstones; the next fetch copies them from the leaders' log starts."""
        copies, self._copies = self._copies, {}
        for tp, (start, removals) in copies.items():
            if tp not in self.partitions or not self._still_follows(tp):
                continue
            try:
                if self._all.in_sync(tp):
                    # Its copy counts. By the rules this cannot be, unless the metadata that is known here is old.
                    raise StillInSync(f"it lacks what was removed up to {removals.mark}, and is in the ISR")
                self._all.replicas.copy_again(tp, start, removals)
            except (KafkaStorageError, StillInSync) as error:
                self._partition_failed(self.partitions[tp], error)
            else:
                self._changed[tp] = None

    def _still_follows(self, tp: TopicPartition) -> bool:
        followed = self.partitions[tp]
        position = followed.replica.fetch_position()
        return (
            position is not None and followed.sent is not None and position.leader_epoch == followed.sent.leader_epoch
        )

    # Bounds of a leader's log

    def _ask_bounds(self, followed: Followed, sent: FetchFrom) -> None:
        """Ask where the leader's log begins and ends, because the fetch was outside of it."""
        self._forget(followed)
        self._questions += 1
        config = self._all.config()
        asked = ask_bounds(
            self._all.peers,
            sent,
            followed.replica.tp,
            broker_id=self._all.broker_id,
            timeout_ms=float(config.replica_socket_timeout_ms),
        )
        asked.deliver_to(partial(self._bounds_known, followed, sent), partial(self._bounds_unknown, followed))

    def _bounds_known(self, followed: Followed, sent: FetchFrom, bounds: tuple[Offset, Offset]) -> None:
        self._questions -= 1
        replica, (start, end) = followed.replica, bounds
        if self._closed or self.partitions.get(replica.tp) is not followed:
            self._soon()
            return
        try:
            cut = replica.out_of_range(start, end, leader_epoch=sent.leader_epoch)
            if cut is not None:
                self._all.replicas.truncate({replica.tp: cut.offset})
            elif replica.offsets.log_end < start:
                self._all.replicas.restart({replica.tp: start})
        except BrokerError as error:
            self._partition_failed(followed, error)
        else:
            self._changed[replica.tp] = None
        self._soon()

    def _bounds_unknown(self, followed: Followed, error: Exception) -> None:
        self._questions -= 1
        if not self._closed and self.partitions.get(followed.replica.tp) is followed:
            self._partition_failed(followed, error)
        self._soon()

    # Failures

    def _partition_failed(self, followed: Followed, error: Exception) -> None:
        """Fetch a partition again after a pause; until then the session must not have it, or it fails again at once."""
        tp = followed.replica.tp
        if followed.waits is not None or self.partitions.get(tp) is not followed:
            return
        pause_ms = self._backoff_ms(followed.failures)
        tell = self._all.log.debug if followed.failures else self._all.log.info
        followed.failures += 1
        tell("replica_fetch_failed", partition=str(tp), leader=self.leader, reason=reason_of(error), retry_ms=pause_ms)
        self._wait(followed, pause_ms, self.changed)

    def _partition_again(self, followed: Followed, then: Callable[[], None]) -> None:
        followed.waits = None
        tp = followed.replica.tp
        if not self._closed and self.partitions.get(tp) is followed:
            self._changed[tp] = None
            then()

    def _failed(self, request: Deferred[ReplicaFetchResponse], error: Exception) -> None:
        """No response: the session may have gone on without this fetcher, so that it starts another."""
        if self._request is not request:
            return
        self._request = None
        if not isinstance(error, PeerUnavailable):
            self._all.log.error("replication_failed", leader=self.leader, exc_info=error)
        self._back_off(str(error))

    def _refused(self, code: int) -> None:
        """The leader refused the request as a whole: it has forgotten the session, or does not know this broker yet."""
        if code in SESSION_ERRORS and not self._failures:
            self._failures = 1
            self._reset()
            self._soon()
            return
        self._back_off(ERRORS_BY_CODE.get(code, BrokerError).name)

    def _back_off(self, reason: str) -> None:
        self._reset()
        if self._closed:
            return
        pause_ms = self._backoff_ms(self._failures)
        tell = self._all.log.debug if self._failures else self._all.log.info
        self._failures += 1
        tell("leader_fetch_failed", leader=self.leader, reason=reason, retry_ms=pause_ms)
        self._pause = self._all.timers.after_ms(pause_ms, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._soon()

    def _backoff_ms(self, failures: int) -> int:
        most = self._all.config().replica_fetch_backoff_ms
        return min(RETRY_MS_MIN << min(failures, 16), most)

    def _reset(self) -> None:
        """Begin another session with the next request."""
        self._session_id = self._session_epoch = 0
        for followed in self.partitions.values():
            followed.sent = None

    def close(self) -> None:
        self._closed = True
        for timer in (self._pause, self._interrupt, *(each.waits for each in self.partitions.values())):
            if timer is not None:
                timer.cancel()
        request, self._request = self._request, None
        if request is not None:
            request.abandon()
        self._response = None


SESSION_EPOCH_MAX = (1 << 31) - 1


def reason_of(error: Exception) -> str:
    if isinstance(error, BrokerError):
        return error.name if not str(error) else f"{error.name}: {error}"
    return str(error)
