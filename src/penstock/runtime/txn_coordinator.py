"""The coordinator of the transactional ids in one partition of `__transaction_state`.

When it has decided how a transaction ends, it tells every partition of the transaction, again and again where one
cannot be told, and notes that the transaction is complete when all of them know.
"""

from asyncio import Future
from concurrent.futures import Executor
from functools import partial

from penstock.core.step import Effect, Event, Ticket
from penstock.core.txn.commands import MarkersWritten, TxnCommand
from penstock.core.txn.effects import WriteMarkers
from penstock.core.txn.shard import TxnShard
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from penstock.model.ids import TopicPartition
from penstock.observe.log import Logger
from penstock.runtime.coordinator_shell import Coordinator, CoordinatorClock, Sink
from penstock.runtime.partition_host import PartitionHost
from penstock.runtime.timers import Timers
from penstock.runtime.txn_journal import encode_event
from penstock.runtime.txn_markers import MarkerLog

MARKER_RETRY_MS = 100
"""When a partition that could not be told is told again."""

REPLACED = (InvalidProducerEpoch, TransactionCoordinatorFenced)
"""A partition that knows more of the producer than the marker does needs it no longer."""


class TxnCoordinator(Coordinator[TxnShard]):
    """All transactional ids of one partition."""

    __slots__ = ("_markers",)

    def __init__(
        self,
        partition: int,
        host: PartitionHost,
        shard: TxnShard,
        *,
        markers: MarkerLog,
        clock: CoordinatorClock,
        timers: Timers,
        threads: Executor,
        log: Logger,
    ) -> None:
        super().__init__(partition, host, shard, clock=clock, timers=timers, threads=threads, log=log)
        self._markers = markers

    def submit(self, command: TxnCommand, sink: Sink) -> Ticket:
        """Decide on a command; `sink` gets its answer, before this returns or later. Raises where nobody is served."""
        ticket = self.ticket(sink)
        self.carry_out(self._shard.decide(command, ticket, self._clock.now_ms()))
        return ticket

    def apply(self, event: Event) -> None:
        self._shard.apply(event)

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        return encode_event(event)  # type: ignore[arg-type]

    def perform(self, effect: Effect) -> None:
        assert isinstance(effect, WriteMarkers), f"nobody performs {effect}"
        self._tell(effect, effect.partitions)

    def _tell(self, ending: WriteMarkers, partitions: tuple[TopicPartition, ...]) -> None:
        """Write the markers of some partitions; come back for those that could not take theirs."""
        if not self.serving:
            return
        again: list[TopicPartition] = []
        waits: list[tuple[TopicPartition, Future[None]]] = []
        for tp in partitions:
            try:
                wait = self._write_marker(ending, tp)
            except BrokerError as error:
                if not self._given_up(ending, tp, error):
                    again.append(tp)
            else:
                if wait is not None:
                    waits.append((tp, wait))
        if waits:
            self._await(ending, again, waits)
        else:
            self._told(ending, again)

    def _write_marker(self, ending: WriteMarkers, tp: TopicPartition) -> "Future[None] | None":
        return self._markers.write(
            tp,
            producer_id=ending.producer_id,
            epoch=ending.epoch,
            commit=ending.commit,
            coordinator_epoch=ending.coordinator_epoch,
            transaction_version=ending.transaction_version,
        )

    def _given_up(self, ending: WriteMarkers, tp: TopicPartition, error: BrokerError) -> bool:
        """Whether a partition that has no marker needs none: it is gone, or further than this."""
        if isinstance(error, REPLACED):
            self._log.warning(
                "marker_refused",
                transactional_id=ending.transactional_id,
                producer_id=ending.producer_id,
                topic=tp.topic,
                partition=tp.partition,
                reason=error.wire_message,
            )
            return True
        return isinstance(error, UnknownTopicOrPartition)

    def _await(
        self, ending: WriteMarkers, again: list[TopicPartition], waits: list[tuple[TopicPartition, "Future[None]"]]
    ) -> None:
        """Markers that are written count when they are committed."""
        left = len(waits)

        def settled(tp: TopicPartition, done: "Future[None]") -> None:
            nonlocal left
            left -= 1
            error = None if done.cancelled() else done.exception()
            if error is not None:
                if not isinstance(error, BrokerError):
                    raise error
                if not self._given_up(ending, tp, error):
                    again.append(tp)
            if not left:
                self._told(ending, again)

        for tp, wait in waits:
            wait.add_done_callback(partial(settled, tp))

    def _told(self, ending: WriteMarkers, again: list[TopicPartition]) -> None:
        if not self.serving:
            return
        if again:
            self._timers.after_ms(MARKER_RETRY_MS, lambda: self._tell(ending, tuple(again)))
            return
        command = MarkersWritten(
            transactional_id=ending.transactional_id, producer_id=ending.producer_id, epoch=ending.epoch
        )
        self.submit(command, lambda _: None)
