"""All transactional ids of one partition of `__transaction_state`.

No command waits: where one would have to, it fails with CONCURRENT_TRANSACTIONS, and the client retries. So the only
state beside the applied events is whether the timeout check is scheduled.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import assert_never

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import NOTHING, Effect, Event, Reply, Response, SetTimer, Step, Ticket
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidRequest,
    ProducerFenced,
    TransactionalIdNotFound,
)
from penstock.model.ids import CoordinatorEpoch, ProducerEpoch, ProducerId, TopicPartition
from penstock.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    PartitionsAdded,
    PartitionsVerified,
    ProducerInitialized,
    TransactionCompleted,
    TransactionEnded,
    TxnCommand,
    VerifyPartitions,
)
from penstock.transactions.effects import WriteMarkers
from penstock.transactions.ending import Ending, classify_end
from penstock.transactions.events import TransactionForgotten, TransactionSaved
from penstock.transactions.init import check_init, check_producer, initialized
from penstock.transactions.state import (
    BUMPING_VERSION,
    NO_PRODUCER_ID,
    TIMEOUT_MS_NEVER,
    Transaction,
    TxnState,
)
from penstock.transactions.timers import CompletionRetry, ExpiryCheck, LateCheck
from penstock.transactions.transitions import completed, prepared, with_partitions

LATE_PER_STEP_MAX = 200
"""Timed-out transactions that are aborted in one step; the rest follow in the next."""

EXPIRED_PER_STEP_MAX = 1_000
"""Transactional ids expired in one step."""

COMPLETION_RETRY_MS = 100
"""Delay before the retry of a refused completion record."""

TakeProducerId = Callable[[], ProducerId | None]
"""A new producer id, or None while a block of ids is being requested from the controller."""


class TxnShard:
    """One partition's transactional ids. The context appends and applies a step's events before the next decision.

    Effects are carried out once a step's events are committed.
    """

    __slots__ = ("_late_check_set", "_open", "_take_producer_id", "_transactions", "config", "coordinator_epoch")

    def __init__(
        self, config: BrokerConfig, take_producer_id: TakeProducerId, coordinator_epoch: CoordinatorEpoch
    ) -> None:
        """`coordinator_epoch` is the leader epoch of the partition: markers are fenced by it."""
        self.config = config
        self._take_producer_id = take_producer_id
        self.coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, None] = {}
        """The ids with an ongoing transaction, in the order in which the shard first applied one."""
        self._late_check_set = False

    # Decisions

    def decide(self, command: TxnCommand, ticket: Ticket, now_ms: int) -> Step:
        """Decide on a command. The step has exactly one response, which may be an error."""
        try:
            match command:
                case AddPartitions():
                    return self._add(command, ticket, now_ms)
                case VerifyPartitions():
                    missing = self.missing(command)
                    return respond(ticket, PartitionsVerified(missing=missing))
                case EndTransaction():
                    return self._end(command, ticket, now_ms)
                case MarkersWritten():
                    return self._complete(command, ticket, now_ms)
                case InitProducer():
                    return self._init(command, ticket, now_ms)
        except BrokerError as error:
            return respond(ticket, error)
        assert_never(command)

    def wake(self, key: Hashable, now_ms: int) -> Step:
        """A timer of this shard expired. An obsolete one is ignored."""
        match key:
            case LateCheck():
                return self._abort_late(now_ms)
            case ExpiryCheck():
                return self._expire(now_ms)
            case CompletionRetry():
                found = self._awaiting(key.transactional_id, key.producer_id, key.epoch)
                return NOTHING if found is None else Step(events=(TransactionSaved(completed(found, now_ms)),))
            case _:
                raise AssertionError(f"{key} is no timer of transactions")

    def loaded(self, now_ms: int) -> Step:
        """Every record has been applied: complete prepared transactions, and start the timeout and expiry checks.

        The step has no events, so that it cannot be refused, and its markers with it, while the ISR is too small.
        """
        timers = [SetTimer(ExpiryCheck(), now_ms + self._expiry_interval_ms)]
        if self._open:
            timers.append(self._late_check(now_ms))
        effects: list[Effect] = []
        for transaction in self._transactions.values():
            if transaction.state.prepared:
                if transaction.partitions:
                    effects.append(self._markers(transaction))
                else:
                    timers.append(SetTimer(completion_retry(transaction), now_ms))
        return Step(timers=tuple(timers), effects=tuple(effects))

    def refused(self, step: Step, error: BrokerError, now_ms: int) -> Step:
        """The append of a step failed, so its events were not applied: its requests fail with the error.

        The returned step replaces the refused one and has no events. Checks and completions are retried later; markers
        are not written again.
        """
        timers: dict[Hashable, SetTimer] = {}
        for timer in step.timers:
            assert isinstance(timer, SetTimer), f"{timer} of a step of transactions"
            timers[timer.key] = timer
        if LateCheck() in timers or (self._open and not self._late_check_set):
            timers[LateCheck()] = self._late_check(now_ms)
        if ExpiryCheck() in timers:
            timers[ExpiryCheck()] = SetTimer(ExpiryCheck(), now_ms + self._expiry_interval_ms)
        for event in step.events:
            retry = self._completion_retry(event)
            if retry is not None:
                timers[retry] = SetTimer(retry, now_ms + COMPLETION_RETRY_MS)
        responses = tuple(Response(response.ticket, error) for response in step.responses)
        return Step(responses=responses, timers=tuple(timers.values()))

    def unloaded(self) -> Step:
        """This broker no longer coordinates these ids. No request waits here, so there are no responses."""
        return NOTHING

    # Events

    def apply(self, event: Event) -> None:
        """Apply an event that is in the log, when it was appended or when the log is loaded."""
        if isinstance(event, TransactionSaved):
            transaction = event.transaction
            self._transactions[transaction.transactional_id] = transaction
            if transaction.state is TxnState.ONGOING:
                self._open[transaction.transactional_id] = None
            else:
                self._open.pop(transaction.transactional_id, None)
        else:
            assert isinstance(event, TransactionForgotten), f"{event} is not an event of a transaction"
            self._transactions.pop(event.transactional_id, None)
            self._open.pop(event.transactional_id, None)

    # Queries

    @property
    def count(self) -> int:
        """How many transactional ids are known."""
        return len(self._transactions)

    def describe(self, transactional_id: str) -> Transaction:
        """The state of an id. Raises InvalidRequest for an empty id, TransactionalIdNotFound for an unknown one."""
        if not transactional_id:
            raise InvalidRequest()
        found = self._transactions.get(transactional_id)
        if found is None:
            raise TransactionalIdNotFound()
        return found

    def listed(
        self,
        now_ms: int,
        *,
        states: Iterable[TxnState] | None = None,
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        matches: Callable[[str], bool] | None = None,
    ) -> list[Transaction]:
        """The transactions that pass all filters of a ListTransactions request.

        `states` of None is any state; empty is none, if the request has only unknown names. A negative duration is no
        filter; others select transactions that began longer ago.
        """
        of_states = None if states is None else set(states)
        of_producers = set(producer_ids)
        return [
            transaction
            for transaction in self._transactions.values()
            if (not of_producers or transaction.producer_id in of_producers)
            and (of_states is None or transaction.state in of_states)
            and (duration_ms < 0 or now_ms - transaction.started_ms > duration_ms)
            and (matches is None or matches(transaction.transactional_id))
        ]

    def missing(self, asked: VerifyPartitions) -> frozenset[TopicPartition]:
        """The partitions that are not part of this producer's transaction. Raises if the producer is not current."""
        found = self._of_producer(asked.transactional_id, asked.producer_id, asked.epoch)
        if found.state.prepared:
            raise ConcurrentTransactions()
        return frozenset(asked.partitions) - found.partitions

    # Commands

    def _init(self, command: InitProducer, ticket: Ticket, now_ms: int) -> Step:
        check_init(command, self.config)
        old = self._transactions.get(command.transactional_id)
        if old is not None:
            check_producer(command, old)
        if old is not None and old.state is TxnState.ONGOING:
            # The client retries, and gets its epoch when the transaction is complete.
            return self._prepare(
                old, BUMPING_VERSION, now_ms, commit=False, responses=(Response(ticket, ConcurrentTransactions()),)
            )
        new = initialized(command, old, self._producer_id, now_ms)
        reply = ProducerInitialized(producer_id=new.producer_id, epoch=new.epoch)
        return Step(events=(TransactionSaved(new),), responses=(Response(ticket, reply),))

    def _add(self, command: AddPartitions, ticket: Ticket, now_ms: int) -> Step:
        old = self._of_producer(command.transactional_id, command.producer_id, command.epoch)
        if old.state.prepared:
            raise ConcurrentTransactions()
        if old.state is TxnState.ONGOING and old.partitions.issuperset(command.partitions):
            return respond(ticket, PartitionsAdded())
        new = with_partitions(old, command.partitions, command.transaction_version, now_ms)
        timers = () if self._late_check_set else (self._late_check(now_ms),)
        return Step(events=(TransactionSaved(new),), responses=(Response(ticket, PartitionsAdded()),), timers=timers)

    def _end(self, command: EndTransaction, ticket: Ticket, now_ms: int) -> Step:
        if not command.transactional_id:
            raise InvalidRequest()
        old = self._transactions.get(command.transactional_id)
        if old is None:
            raise InvalidProducerIdMapping()
        match classify_end(old, command):
            case Ending.ENDED_BEFORE:
                return respond(ticket, TransactionEnded(producer_id=old.producer_id, epoch=old.epoch))
            case Ending.ENDS:
                return self._prepare(old, command.transaction_version, now_ms, commit=command.commit, ticket=ticket)

    def _prepare(
        self,
        old: Transaction,
        version: int,
        now_ms: int,
        *,
        commit: bool,
        ticket: Ticket | None = None,
        responses: tuple[Response, ...] = (),
    ) -> Step:
        """Decide the outcome of a transaction, for good; `ticket` gets the producer's next id and epoch.

        Without a ticket the producer is fenced. The last epoch is reserved for that, so no new producer id is needed;
        the next InitProducerId allocates one.
        """
        spent = ticket is not None and version >= BUMPING_VERSION and old.exhausted
        next_producer_id = self._producer_id() if spent else NO_PRODUCER_ID
        new = prepared(old, version, now_ms, commit=commit, next_producer_id=next_producer_id)
        after = completed(new, now_ms)
        if ticket is not None:
            responses = (Response(ticket, TransactionEnded(producer_id=after.producer_id, epoch=after.epoch)),)
        if new.partitions:
            return Step(events=(TransactionSaved(new),), responses=responses, effects=(self._markers(new),))
        return Step(events=(TransactionSaved(new), TransactionSaved(after)), responses=responses)

    def _complete(self, command: MarkersWritten, ticket: Ticket, now_ms: int) -> Step:
        found = self._awaiting(command.transactional_id, command.producer_id, command.epoch)
        response = Response(ticket, TransactionCompleted())
        if found is None:
            return Step(responses=(response,))
        return Step(events=(TransactionSaved(completed(found, now_ms)),), responses=(response,))

    # Timeouts and expiry

    def _abort_late(self, now_ms: int) -> Step:
        """Abort the transactions that timed out, and fence their producers, which may still be alive."""
        self._late_check_set = False
        step = NOTHING
        aborted = 0
        for transactional_id in self._open:
            transaction = self._transactions[transactional_id]
            if not late(transaction, now_ms):
                continue
            if aborted == LATE_PER_STEP_MAX:
                self._late_check_set = True
                return step.then(Step(timers=(SetTimer(LateCheck(), now_ms),)))
            step = step.then(self._prepare(transaction, BUMPING_VERSION, now_ms, commit=False))
            aborted += 1
        if aborted < len(self._open):
            step = step.then(Step(timers=(self._late_check(now_ms),)))
        return step

    def _expire(self, now_ms: int) -> Step:
        """Expire the ids that have been unused for transactional.id.expiration.ms."""
        unused_since_ms = now_ms - self.config.transactional_id_expiration_ms
        events: list[Event] = []
        for transaction in self._transactions.values():
            if transaction.state.resting and transaction.updated_ms <= unused_since_ms:
                if len(events) == EXPIRED_PER_STEP_MAX:
                    return Step(events=tuple(events), timers=(SetTimer(ExpiryCheck(), now_ms),))
                events.append(TransactionForgotten(transaction.transactional_id))
        return Step(events=tuple(events), timers=(SetTimer(ExpiryCheck(), now_ms + self._expiry_interval_ms),))

    # Lookups and parts of steps

    def _of_producer(self, transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch) -> Transaction:
        """The transaction of the current producer. Raises if the producer id or epoch is not the current one."""
        if not transactional_id:
            raise InvalidRequest()
        found = self._transactions.get(transactional_id)
        if found is None or found.producer_id != producer_id:
            raise InvalidProducerIdMapping()
        if found.epoch != epoch:
            raise ProducerFenced()
        return found

    def _awaiting(self, transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch) -> Transaction | None:
        """The transaction that waits for these markers; None if it is already complete."""
        found = self._transactions.get(transactional_id)
        if found is None or not found.state.prepared or (found.producer_id, found.epoch) != (producer_id, epoch):
            return None
        return found

    def _completion_retry(self, event: Event) -> CompletionRetry | None:
        """The retry timer of a refused event that completes a transaction; no request would retry it."""
        if not isinstance(event, TransactionSaved):
            return None
        now = self._transactions.get(event.transactional_id)
        if now is None or not now.state.prepared:
            return None
        return completion_retry(now)

    def _markers(self, transaction: Transaction) -> WriteMarkers:
        return WriteMarkers(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
            commit=transaction.state is TxnState.PREPARE_COMMIT,
            partitions=tuple(sorted(transaction.partitions)),
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=transaction.version,
        )

    def _producer_id(self) -> ProducerId:
        """A new producer id. Raises CoordinatorLoadInProgress while there is none: the client retries."""
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise CoordinatorLoadInProgress()
        return producer_id

    def _late_check(self, now_ms: int) -> SetTimer:
        self._late_check_set = True
        interval_ms = self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        return SetTimer(LateCheck(), now_ms + interval_ms)

    @property
    def _expiry_interval_ms(self) -> int:
        return self.config.transaction_remove_expired_transaction_cleanup_interval_ms


def completion_retry(transaction: Transaction) -> CompletionRetry:
    return CompletionRetry(transaction.transactional_id, transaction.producer_id, transaction.epoch)


def late(transaction: Transaction, now_ms: int) -> bool:
    """Whether a transaction is past its timeout."""
    return transaction.timeout_ms != TIMEOUT_MS_NEVER and transaction.started_ms + transaction.timeout_ms < now_ms


def respond(ticket: Ticket, reply: Reply | BrokerError) -> Step:
    return Step(responses=(Response(ticket, reply),))
