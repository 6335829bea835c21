"""One replica of the model: drives the rules of its role over a log that is a list of records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    OffsetOutOfRange,
    StaleBrokerEpoch,
)
from penstock.model.ids import NO_BROKER_EPOCH, NO_OFFSET, BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition
from penstock.model.topic import PartitionState
from penstock.partition import role as roles
from penstock.partition.follower import FetchFrom, Follower, TruncateTo
from penstock.partition.leader import IsrProposal, Leader
from penstock.partition.offsets import Offsets
from penstock.partition.producers import ProducerTable
from penstock.partition.role import Offline, Role
from penstock.testing.model.disk import Record, RecordLog
from penstock.testing.model.history import History

FETCH_RECORDS_MAX = 3
"""In one response: so few that a follower needs several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A follower's fetch of one partition."""

    tp: TopicPartition
    follower: BrokerId
    broker_epoch: BrokerEpoch
    fetch: FetchFrom


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """A leader's response, with what the follower needs to know of its own request."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    offset: Offset
    error: BrokerError | None = None
    records: tuple[Record, ...] = ()
    high_watermark: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    log_end: Offset = NO_OFFSET
    diverging: tuple[LeaderEpoch, Offset] | None = None


class ModelReplica:
    """A replica of one partition in one life of its broker."""

    def __init__(
        self,
        tp: TopicPartition,
        log: RecordLog,
        history: History,
        *,
        broker_id: BrokerId,
        life: tuple[int, ...],
        flush_group: bool,
        responds_late: Callable[[], bool] = lambda: False,
    ) -> None:
        """`responds_late` says whether responses to producers wait for a later moment."""
        self.tp = tp
        self._responds_late = responds_late
        self.decided: PartitionState | None = None
        """The state that gave it its role."""
        self.log = log
        self._history = history
        self._life = life
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        """With which its broker was admitted; none while it is fenced."""
        offsets = Offsets.recovered(
            log_start=log.start,
            log_end=log.end,
            high_watermark=log.checkpoint,
            durable_end=log.durable_end if flush_group else None,
        )
        self.offsets = offsets
        self.role: Role = Follower(
            offsets, ProducerTable(), broker_id=broker_id, in_sync_min=1, flush_group=flush_group
        )
        self._waiting: list[tuple[Offset, Record]] = []
        """Records of acks=all requests without a response, with the offsets after them."""

    # Role

    @property
    def leader(self) -> Leader | None:
        return self.role if isinstance(self.role, Leader) else None

    @property
    def follower(self) -> Follower | None:
        return self.role if isinstance(self.role, Follower) else None

    def assume(self, decided: PartitionState, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        before = self.role
        self.broker_epoch = broker_epoch
        self.role, _ = roles.assume(before, decided, now_ms, newest_epoch=self.log.epochs.latest)
        if self.role is before:
            return
        self.decided = decided
        self._begin(before)

    def fence(self) -> None:
        before = self.role
        self.broker_epoch = NO_BROKER_EPOCH
        self.role = roles.fence(before)
        self._begin(before)

    def _begin(self, before: Role) -> None:
        role = self.role
        if isinstance(role, Leader):
            if not isinstance(before, Leader) or before.leader_epoch != role.leader_epoch:
                self._history.leads(self, role.leader_epoch, (*self._life, self.broker_epoch))
            self._move_on()
        else:
            self._waiting.clear()
            self.log.epochs.truncate_to(self.log.end)

    def configure(self, in_sync_min: int) -> None:
        """Apply the topic's settings."""
        role = self.role
        if not isinstance(role, Offline):
            role.configure(in_sync_min=in_sync_min, flush_group=role.flush_group)
            if isinstance(role, Leader):
                self._move_on()

    # Leader

    def produce(self, value: int) -> bool:
        """Append a record of an acks=all request; whether it was accepted."""
        leader = self.leader
        if leader is None or leader.too_few_in_sync:
            return False
        record = Record(leader.leader_epoch, value)
        base = self.log.end
        self._history.appends(self, base, record)
        self.log.append(record)
        self._waiting.append((self.log.end, record))
        leader.appended(base, self.log.end)
        self._move_on()
        return True

    def _move_on(self) -> None:
        """The high watermark or the ISR may have moved: respond to what is committed."""
        leader = self.leader
        assert leader is not None, "only a leader commits"
        self._history.committed(self)
        if self._responds_late():
            return
        still: list[tuple[Offset, Record]] = []
        for end, record in self._waiting:
            try:
                if leader.committed(end):
                    self._history.acknowledges(self, Offset(end - 1), record, leader.leader_epoch)
                else:
                    still.append((end, record))
            except BrokerError:
                pass
        self._waiting = still

    def serve_fetch(
        self, request: FetchRequest, epoch_of: Callable[[BrokerId], BrokerEpoch], now_ms: int
    ) -> tuple[FetchResponse, frozenset[BrokerId] | None]:
        """Respond to a follower; with the ISR to propose, if the follower may join it."""
        fetch = request.fetch
        try:
            return self._serve(request, epoch_of, now_ms)
        except BrokerError as error:
            response = FetchResponse(
                tp=self.tp,
                leader_epoch=fetch.leader_epoch,
                offset=fetch.offset,
                error=error,
                log_start=self.offsets.log_start,
                log_end=self.offsets.log_end,
            )
            return response, None

    def _serve(
        self, request: FetchRequest, epoch_of: Callable[[BrokerId], BrokerEpoch], now_ms: int
    ) -> tuple[FetchResponse, frozenset[BrokerId] | None]:
        fetch, role = request.fetch, self.role
        role.check_epoch(fetch.leader_epoch)
        if not isinstance(role, Leader):
            raise roles.refusal(role)
        broker_epoch = checked_broker_epoch(request, epoch_of)
        diverging = None
        if fetch.last_fetched_epoch >= 0:
            diverging = role.divergence(fetch.offset, fetch.last_fetched_epoch, self.log.epochs)
        propose = None
        records: list[Record] = []
        if diverging is None:
            fetched = role.follower_fetched(
                request.follower,
                broker_epoch=broker_epoch,
                leader_epoch=fetch.leader_epoch,
                fetch_offset=fetch.offset,
                held_end=fetch.held_end,
                log_start=fetch.log_start,
                now_ms=now_ms,
            )
            propose = fetched.propose_isr
            end = Offset(fetch.offset + FETCH_RECORDS_MAX)
            self._check_sound(fetch.offset, end)
            records = self.log.read(fetch.offset, end)
            self._move_on()
        offsets = self.offsets
        response = FetchResponse(
            tp=self.tp,
            leader_epoch=fetch.leader_epoch,
            offset=fetch.offset,
            records=tuple(records),
            high_watermark=offsets.high_watermark,
            log_start=offsets.log_start,
            log_end=offsets.log_end,
            diverging=diverging,
        )
        return response, propose

    def ineligible(self, proposal: IsrProposal, now_ms: int) -> None:
        """The controller will never write this proposal."""
        leader = self.leader
        if leader is not None:
            leader.proposal_ineligible(proposal, now_ms)
            self._move_on()

    def _check_sound(self, offset: Offset, end: Offset) -> None:
        damaged = self.log.damaged_at
        if damaged is not None and offset <= damaged < end:
            self.find_damage()
            raise KafkaStorageError()

    def find_damage(self) -> None:
        """A record cannot be read: another replica has to lead, and this one does not repair itself."""
        if self.log.damaged_at is not None and not isinstance(self.role, Offline):
            self._history.say(f"broker {self.broker_id} finds {self.tp} damaged at {self.log.damaged_at}")
            self._history.count("damage found")
            self.log.damage_known = True
            self.role = Offline(KafkaStorageError(), self.role.leader_epoch)
            self._waiting.clear()

    def fail(self) -> None:
        """The directory of the log fails: nothing of it can be used before the next start."""
        if not isinstance(self.role, Offline):
            self._history.say(f"broker {self.broker_id} cannot use its log of {self.tp}")
            self._history.count("logs failed")
            self.role = Offline(KafkaStorageError(), self.role.leader_epoch)
            self._waiting.clear()

    def delete_records(self, offset: Offset) -> None:
        """DeleteRecords, as far as the high watermark."""
        leader = self.leader
        if leader is not None:
            leader.log_start_moved(min(offset, self.offsets.high_watermark))
            self.log.delete_before(self.offsets.log_start)
            self._history.deleted(self.tp, self.offsets.log_start)

    # Follower

    def fetch(self, broker_epoch: BrokerEpoch) -> FetchRequest | None:
        """The next fetch; None without a leader."""
        follower = self.follower
        fetch = None if follower is None else follower.fetch_from(self.log.epochs)
        if fetch is None:
            return None
        return FetchRequest(tp=self.tp, follower=self.broker_id, broker_epoch=broker_epoch, fetch=fetch)

    def fetched(self, response: FetchResponse) -> None:
        """Append what the leader sent, or truncate where it says that the logs differ."""
        follower = self.follower
        if follower is None:
            return
        try:
            follower.check_response(response.leader_epoch)
        except FencedLeaderEpoch:
            return
        if isinstance(response.error, OffsetOutOfRange):
            self._out_of_range(follower, response)
        elif response.error is not None:
            return
        elif response.diverging is not None:
            epoch, end = response.diverging
            self._truncate(follower, follower.diverged(epoch, end, self.log.epochs))
        elif response.offset == self.log.end:
            for record in response.records:
                self.log.append(record)
            follower.replicated(self.log.end, response.high_watermark)
            if response.log_start > self.log.start:
                follower.log_start_moved(min(response.log_start, self.offsets.high_watermark))
                self.log.delete_before(self.offsets.log_start)
            self._history.committed(self)

    def _out_of_range(self, follower: Follower, response: FetchResponse) -> None:
        """The leader's log does not have the fetch offset: start again, or truncate to where it ends."""
        if self.log.end < response.log_start:
            self.log.restart_at(response.log_start)
            follower.restarted(response.log_start, ProducerTable())
        elif self.log.end > response.log_end:
            self._truncate(follower, follower.beyond_leader(response.log_end))

    def _truncate(self, follower: Follower, to: TruncateTo) -> None:
        end = to.offset
        self._history.truncates(self, end, reported=to.below_high_watermark)
        self.log.truncate(end)
        follower.truncated(end, ProducerTable())

    # Disk and readers

    def flush(self) -> None:
        if isinstance(self.role, Offline):
            return
        self.log.flush(self.offsets.high_watermark)
        self.role.flushed(self.log.end)
        if isinstance(self.role, Leader):
            self._move_on()
        else:
            self._history.committed(self)

    def checkpoint(self) -> None:
        self.log.checkpoint = max(self.log.checkpoint, self.offsets.high_watermark)

    def consume(self, back: int) -> None:
        """A consumer reads one of the last committed records, and asks for the latest offset."""
        if isinstance(self.role, Offline):
            return
        offset = Offset(self.offsets.high_watermark - 1 - back)
        record = self.log.get(offset)
        if self.log.damaged_at == offset:
            self.find_damage()
            return
        if self.leader is not None and record is not None:
            self._history.consumed(self, offset, record)
        if self.leader is not None and self.leader.latest_is_known():
            self._history.latest(self, self.offsets.high_watermark)


def checked_broker_epoch(request: FetchRequest, epoch_of: Callable[[BrokerId], BrokerEpoch]) -> BrokerEpoch:
    """Refuse a fetch of a broker's earlier life; `epoch_of` gives the admitted one."""
    if request.broker_epoch < epoch_of(request.follower):
        raise StaleBrokerEpoch()
    return request.broker_epoch
