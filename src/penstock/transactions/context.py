"""The coordinator of the transactional ids in one partition of `__transaction_state`.

It also writes the markers. When a transaction's outcome is committed (the effect `WriteMarkers`), it writes a marker to
each of its partitions, retrying those that fail. When all are committed it submits `MarkersWritten` to its own shard,
which completes the transaction.
"""

from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial

from penstock.coordinator.context import CoordinatorClock, CoordinatorContext
from penstock.coordinator.step import Effect, Event, Result
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from penstock.model.ids import CoordinatorEpoch, TopicPartition
from penstock.model.timers import Timers
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.transactions.commands import MarkersWritten, TxnCommand
from penstock.transactions.effects import WriteMarkers
from penstock.transactions.markers import MARKERS_PER_TURN_MAX, Marker, Markers
from penstock.transactions.record_formats import encode_event
from penstock.transactions.shard import TxnShard

MARKER_RETRY_MS = 100
"""Delay before the retry of a marker that could not be written."""

REPLACED = (InvalidProducerEpoch, TransactionCoordinatorFenced)
"""Errors of a partition that has newer state of the producer than the marker and so does not need it."""


class Round:
    """One attempt to write a transaction's markers: the partitions without one yet, and those to retry."""

    __slots__ = ("ending", "retry", "to_write", "waiting")

    def __init__(self, ending: WriteMarkers, partitions: Iterable[TopicPartition]) -> None:
        self.ending = ending
        self.to_write = deque(partitions)
        self.waiting = 0
        """Markers that are appended but not committed."""
        self.retry: list[TopicPartition] = []

    def next(self, count: int) -> list[TopicPartition]:
        """Remove and return the next `count` partitions, or those left."""
        return [self.to_write.popleft() for _ in range(min(count, len(self.to_write)))]


class TxnCoordinatorContext(CoordinatorContext[TxnShard]):
    """The coordinator context of the transactional ids in one partition of `__transaction_state`."""

    __slots__ = ("_markers",)

    def __init__(
        self,
        partition: int,
        replica: Replica,
        shard: TxnShard,
        *,
        markers: Markers,
        clock: CoordinatorClock,
        timers: Timers,
        threads: Executor,
        log: Logger,
        write_timeout_ms: Callable[[], int],
    ) -> None:
        super().__init__(
            partition,
            replica,
            shard,
            clock=clock,
            timers=timers,
            threads=threads,
            log=log,
            write_timeout_ms=write_timeout_ms,
        )
        self._markers = markers

    @property
    def epoch(self) -> CoordinatorEpoch:
        """The coordinator epoch: leader epoch of this partition when the shard was loaded."""
        return self._shard.coordinator_epoch

    def submit(self, command: TxnCommand) -> Eventual[Result]:
        """Decide on a command. Raises if the shard is not serving."""
        ticket = self.ticket()
        self.carry_out(self._shard.decide(command, ticket, self._clock.now_ms()))
        return self.result(ticket)

    def apply(self, event: Event) -> None:
        self._shard.apply(event)

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        return encode_event(event)  # type: ignore[arg-type]

    def perform(self, effect: Effect) -> None:
        assert isinstance(effect, WriteMarkers), f"unknown effect {effect}"
        self._begin(effect, effect.partitions)

    def _begin(self, ending: WriteMarkers, partitions: Sequence[TopicPartition]) -> None:
        # The EndTxn response goes out first: the outcome is in the coordinator's log. The loop runs this before it
        # reads the next request, so that the client's next request finds the markers written.
        get_running_loop().call_soon(self._write_markers, Round(ending, partitions))

    def _write_markers(self, round_: Round) -> None:
        """Write some markers of a round; the next turn of the loop continues."""
        if not self.serving:
            return
        for tp in round_.next(MARKERS_PER_TURN_MAX):
            try:
                wait = self._write_marker(round_.ending, tp)
            except BrokerError as error:
                self._note_failure(round_, tp, error)
            else:
                if wait is not None:
                    round_.waiting += 1
                    wait.deliver_to(partial(self._marker_committed, round_), partial(self._marker_failed, round_, tp))
        if round_.to_write:
            get_running_loop().call_soon(self._write_markers, round_)
        elif not round_.waiting:
            self._markers_done(round_)

    def _marker_committed(self, round_: Round, _: None) -> None:
        """A marker counts as written once it is committed."""
        round_.waiting -= 1
        if not round_.to_write and not round_.waiting:
            self._markers_done(round_)

    def _marker_failed(self, round_: Round, tp: TopicPartition, error: Exception) -> None:
        """A marker that was appended may be lost before it is committed."""
        assert isinstance(error, BrokerError), f"a marker of {tp} failed with {error!r}"
        self._note_failure(round_, tp, error)
        self._marker_committed(round_, None)

    def _note_failure(self, round_: Round, tp: TopicPartition, error: BrokerError) -> None:
        """Write the marker of this partition again in the next round, unless it needs none."""
        if not self._needs_none(round_.ending, tp, error):
            round_.retry.append(tp)

    def _write_marker(self, ending: WriteMarkers, tp: TopicPartition) -> Deferred[None] | None:
        marker = Marker(
            ending.producer_id, ending.epoch, ending.commit, ending.coordinator_epoch, ending.transaction_version
        )
        return self._markers.write(tp, marker)

    def _needs_none(self, ending: WriteMarkers, tp: TopicPartition, error: BrokerError) -> bool:
        """Whether a partition does not need the marker: it is deleted, or has newer state of the producer."""
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

    def _markers_done(self, round_: Round) -> None:
        if not self.serving:
            return
        ending = round_.ending
        if round_.retry:
            self._timers.after_ms(MARKER_RETRY_MS, lambda: self._begin(ending, round_.retry))
            return
        command = MarkersWritten(
            transactional_id=ending.transactional_id, producer_id=ending.producer_id, epoch=ending.epoch
        )
        self.submit(command)
