"""The coordinator of the share partitions in one partition of `__share_group_state`.

Writes to different share partitions do not depend on one another, so those that come in one turn of the loop are
decided as they come and appended together when the turn ends. A second write to the same share partition, and every
other command, is decided after the ones before it are appended.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor

from penstock.config.broker import BrokerConfig
from penstock.coordinator.context import CoordinatorClock, CoordinatorContext, Phase
from penstock.coordinator.step import Effect, Event, Result, Step
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.ids import Offset, TopicId
from penstock.model.timers import Timers
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.shares.state.commands import StateCommand, WriteState
from penstock.shares.state.effects import Prune
from penstock.shares.state.record_formats import encode_event
from penstock.shares.state.shard import StateShard
from penstock.wire.records import RecordBatchBuilder
from penstock.wire.share_records import ShareKey

BATCH_BYTES_FULL = 256 * 1024
"""A batch of this size takes no further writes."""

WRITES_WAITING_MAX = 1024
"""Writes that may wait for the end of the turn; at this many they are appended at once."""


class StateCoordinatorContext(CoordinatorContext[StateShard]):
    """The coordinator context of the share partitions in one partition of `__share_group_state`."""

    __slots__ = ("_appending_at", "_flush_planned", "_waiting_keys", "_writes")

    def __init__(
        self,
        partition: int,
        replica: Replica,
        shard: StateShard,
        *,
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
        self._writes: list[Step] = []
        """Writes of this turn, decided and not yet appended."""
        self._waiting_keys: set[ShareKey] = set()
        """The share partitions that they write to."""
        self._flush_planned = False
        self._appending_at: Offset | None = None
        """Where the batch that is being appended begins, or before; None while the log is loaded."""

    # Serving

    def submit(self, command: StateCommand) -> Eventual[Result]:
        """Decide on a command. Raises if the shard is not serving."""
        ticket = self.ticket()
        if not isinstance(command, WriteState):
            self.write_pending()
            self.carry_out(self._shard.decide(command, ticket, self._clock.now_ms()))
            return self.result(ticket)
        if command.key in self._waiting_keys or len(self._writes) >= WRITES_WAITING_MAX:
            self.write_pending()
        self._writes.append(self._shard.decide(command, ticket, self._clock.now_ms()))
        self._waiting_keys.add(command.key)
        if not self._flush_planned:
            self._flush_planned = True
            get_running_loop().call_soon(self._flush)
        return self.result(ticket)

    def forget_topics(self, topic_ids: Iterable[TopicId]) -> None:
        """Topics were deleted."""
        if self._phase is Phase.SERVING:
            self.write_pending()
            step = self._shard.on_topics_deleted(topic_ids)
            if step.events:
                self.carry_out(step)

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings changed; they apply from the next command or timer on."""
        self._shard.config = config

    def end(self) -> None:
        self._writes.clear()
        self._waiting_keys.clear()
        super().end()

    # Writing

    def apply(self, event: Event) -> None:
        self._shard.apply(event, self._appending_at)

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        return encode_event(event)  # type: ignore[arg-type]

    def _append(self, builder: RecordBatchBuilder, steps: Sequence[Step], now_ms: int) -> None:
        self._appending_at = self._replica.offsets.log_end
        super()._append(builder, steps, now_ms)

    def perform(self, effect: Effect) -> None:
        """Delete the records that later snapshots replace. If that fails, the next time will do."""
        assert isinstance(effect, Prune), f"unknown effect {effect}"
        if not self.serving:
            return
        offsets = self._replica.offsets
        if effect.below <= offsets.log_start:
            return
        try:
            self._replica.delete_records(min(effect.below, offsets.high_watermark))
        except BrokerError as error:
            self._log.warning(
                "share_state_not_pruned", partition=self.partition, below=effect.below, reason=error.wire_message
            )

    def _flush(self) -> None:
        self._flush_planned = False
        self.write_pending()

    def write_pending(self) -> None:
        """Append the writes that wait for the end of the turn."""
        while self._writes:
            self._append_writes()
        self._waiting_keys.clear()

    def _append_writes(self) -> None:
        """Append one batch of them; writes beyond BATCH_BYTES_FULL stay for the next."""
        writes = self._writes
        now_ms = self._clock.now_ms()
        builder = RecordBatchBuilder(base_timestamp_ms=now_ms)
        taken = 0
        for step in writes:
            if builder.size_bytes >= BATCH_BYTES_FULL:
                break
            self.add_events(builder, step, now_ms)
            taken += 1
        steps = writes[:taken]
        del writes[:taken]
        self.write(builder, steps, now_ms)
