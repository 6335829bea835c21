"""All transactional ids of one partition of `__transaction_state`.

Every command is answered at once: what would have to wait is refused with ConcurrentTransactions, and the client comes
again. So the coordinator holds nothing but what its events say, and whether a timer of its own is running.
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
from penstock.model.ids import TopicPartition
from penstock.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersNoted,
    MarkersWritten,
    PartitionsAdded,
    PartitionsVerified,
    ProducerInitialized,
    TransactionEnded,
    TxnCommand,
    VerifyPartitions,
)
from penstock.transactions.effects import WriteMarkers
from penstock.transactions.ending import Ending, judge_end
from penstock.transactions.events import TransactionForgotten, TransactionSaved
from penstock.transactions.init import check_entitled, check_init, initialized
from penstock.transactions.state import (
    BUMPING_VERSION,
    NO_PRODUCER_ID,
    TIMEOUT_MS_NEVER,
    Transaction,
    TxnState,
)
from penstock.transactions.timers import CompletionRetry, ExpiryCheck, LateCheck
from penstock.transactions.transitions import completed, prepared, widened

LATE_PER_STEP_MAX = 200
"""Transactions past their time that are aborted in one step; the rest follow in the next."""

EXPIRED_PER_STEP_MAX = 1_000
"""Transactional ids forgotten in one step."""

COMPLETION_RETRY_MS = 100
"""When to try again to write down that a transaction is complete."""

TakeProducerId = Callable[[], int | None]
"""A producer id that nobody has, or None while there is none at hand: the controller is being asked for more."""


class TxnShard:
    """One partition's transactional ids. The context writes a step's events, applies each, and only then asks again.

    Effects are carried out when a step's events are committed, never before.
    """

    __slots__ = ("_coordinator_epoch", "_late_check_set", "_open", "_take_producer_id", "_transactions", "config")

    def __init__(self, config: BrokerConfig, take_producer_id: TakeProducerId, coordinator_epoch: int) -> None:
        """`coordinator_epoch` is the leader epoch of the partition: markers are fenced by it."""
        self.config = config
        self._take_producer_id = take_producer_id
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, None] = {}
        """The ids with a transaction that nobody has ended yet, in the order in which they were seen to have one."""
        self._late_check_set = False

    # Decisions

    def decide(self, command: TxnCommand, ticket: Ticket, now_ms: int) -> Step:
        """What a command leads to: exactly one response, in this step. Nothing is raised."""
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
        """A timer of this shard rang. One that no longer matters leads to nothing."""
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
        """Every record has been applied: finish what was decided, and watch over the rest from now on."""
        timers = [SetTimer(ExpiryCheck(), now_ms + self._expiry_interval_ms)]
        if self._open:
            timers.append(self._late_check(now_ms))
        effects: list[Effect] = []
        events: list[Event] = []
        for transaction in self._transactions.values():
            if transaction.state.prepared:
                if transaction.partitions:
                    effects.append(self._markers(transaction))
                else:
                    events.append(TransactionSaved(completed(transaction, now_ms)))
        return Step(events=tuple(events), timers=tuple(timers), effects=tuple(effects))

    def refused(self, step: Step, error: BrokerError, now_ms: int) -> Step:
        """The log did not take a step's events, so they were not applied: its requests are answered with the failure.

        The returned step takes the place of the refused one, with nothing to be written. What was to happen by itself
        is tried again later; markers that are written already are not asked for again.
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
        """This broker coordinates these ids no longer. Nobody waits here for a response, so there is none to give."""
        return NOTHING

    # Facts

    def apply(self, event: Event) -> None:
        """Remember a fact that is in the log now; also replays it."""
        if isinstance(event, TransactionSaved):
            transaction = event.transaction
            self._transactions[transaction.transactional_id] = transaction
            if transaction.state is TxnState.ONGOING:
                self._open[transaction.transactional_id] = None
            else:
                self._open.pop(transaction.transactional_id, None)
        else:
            assert isinstance(event, TransactionForgotten), f"{event} is no fact about transactions"
            self._transactions.pop(event.transactional_id, None)
            self._open.pop(event.transactional_id, None)

    # Readings

    @property
    def count(self) -> int:
        """How many transactional ids are known."""
        return len(self._transactions)

    @property
    def open_count(self) -> int:
        """How many of them have a transaction under way that nobody has ended."""
        return len(self._open)

    def describe(self, transactional_id: str) -> Transaction:
        """What is known of an id. Raises InvalidRequest for the empty one, TransactionalIdNotFound for others."""
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
        """The transactions that are in one of these states, and so on; what is not given filters nothing.

        `states` None is any state, and an empty one is none: names that mean nothing were asked for. A duration below
        zero is no filter; one from zero on leaves those that began longer ago.
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
        """Which partitions are not part of this producer's transaction. Raises where it is not its producer."""
        found = self._of_producer(asked.transactional_id, asked.producer_id, asked.epoch)
        if found.state.prepared:
            raise ConcurrentTransactions()
        return frozenset(asked.partitions) - found.partitions

    # One command each

    def _init(self, command: InitProducer, ticket: Ticket, now_ms: int) -> Step:
        check_init(command, self.config)
        old = self._transactions.get(command.transactional_id)
        if old is not None:
            check_entitled(command, old)
        if old is not None and old.state is TxnState.ONGOING:
            # The client comes again when the transaction is complete, and gets its epoch then.
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
        new = widened(old, command.partitions, command.transaction_version, now_ms)
        timers = () if self._late_check_set else (self._late_check(now_ms),)
        return Step(events=(TransactionSaved(new),), responses=(Response(ticket, PartitionsAdded()),), timers=timers)

    def _end(self, command: EndTransaction, ticket: Ticket, now_ms: int) -> Step:
        if not command.transactional_id:
            raise InvalidRequest()
        old = self._transactions.get(command.transactional_id)
        if old is None:
            raise InvalidProducerIdMapping()
        match judge_end(old, command):
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
        """Decide how a transaction ends; `ticket` is told the producer's next id and epoch. Nothing undoes this.

        Without a ticket the producer is fenced: the last epoch is kept for that, so it needs no new producer id. Who
        initializes the transactional id next gets one.
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
        response = Response(ticket, MarkersNoted())
        if found is None:
            return Step(responses=(response,))
        return Step(events=(TransactionSaved(completed(found, now_ms)),), responses=(response,))

    # By itself

    def _abort_late(self, now_ms: int) -> Step:
        """Abort the transactions that are past their time. Their producers are fenced: they may be alive, and late."""
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
        """Forget the ids that nobody has used for long."""
        unused_since_ms = now_ms - self.config.transactional_id_expiration_ms
        events: list[Event] = []
        for transaction in self._transactions.values():
            if transaction.state.resting and transaction.updated_ms <= unused_since_ms:
                if len(events) == EXPIRED_PER_STEP_MAX:
                    return Step(events=tuple(events), timers=(SetTimer(ExpiryCheck(), now_ms),))
                events.append(TransactionForgotten(transaction.transactional_id))
        return Step(events=tuple(events), timers=(SetTimer(ExpiryCheck(), now_ms + self._expiry_interval_ms),))

    # Parts of decisions

    def _of_producer(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """The transaction of a producer that says it is the current one. Raises why it is not."""
        if not transactional_id:
            raise InvalidRequest()
        found = self._transactions.get(transactional_id)
        if found is None or found.producer_id != producer_id:
            raise InvalidProducerIdMapping()
        if found.epoch != epoch:
            raise ProducerFenced()
        return found

    def _awaiting(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction | None:
        """The transaction that waits for these markers, unless it has been completed."""
        found = self._transactions.get(transactional_id)
        if found is None or not found.state.prepared or (found.producer_id, found.epoch) != (producer_id, epoch):
            return None
        return found

    def _completion_retry(self, event: Event) -> CompletionRetry | None:
        """The timer for an event that says a transaction is complete, which nobody would say again."""
        if not isinstance(event, TransactionSaved):
            return None
        now = self._transactions.get(event.transactional_id)
        if now is None or not now.state.prepared:
            return None
        return CompletionRetry(now.transactional_id, now.producer_id, now.epoch)

    def _markers(self, transaction: Transaction) -> WriteMarkers:
        return WriteMarkers(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
            commit=transaction.state is TxnState.PREPARE_COMMIT,
            partitions=tuple(sorted(transaction.partitions)),
            coordinator_epoch=self._coordinator_epoch,
            transaction_version=transaction.version,
        )

    def _producer_id(self) -> int:
        """A fresh producer id. Raises CoordinatorLoadInProgress while there is none: the client comes again."""
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


def late(transaction: Transaction, now_ms: int) -> bool:
    """Has it lasted longer than its producer wanted?"""
    return transaction.timeout_ms != TIMEOUT_MS_NEVER and transaction.started_ms + transaction.timeout_ms < now_ms


def respond(ticket: Ticket, reply: Reply | BrokerError) -> Step:
    return Step(responses=(Response(ticket, reply),))
