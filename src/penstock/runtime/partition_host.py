"""One partition on this broker: its log, what is agreed on it, its producers, and those who wait for it.

This is the shell around `core.partition` and `core.producers`: it appends what they accept, tells them what became of
it, and wakes whoever waited. Everything runs on the event loop; between two awaits nobody else does.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from fastcrc.crc32 import iscsi as crc32c

from penstock.config.log import TopicConfig
from penstock.core.partition import Partition
from penstock.core.producers import ProducerTable
from penstock.model.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    TransactionalIdAuthorizationFailed,
)
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.topic import PartitionState
from penstock.runtime.aborted import AbortedTxns
from penstock.runtime.awaited import Awaited
from penstock.runtime.divergence import divergence
from penstock.runtime.group_commit import GroupCommit
from penstock.runtime.intake import (
    HEAVY_BYTES,
    LIGHT_RECORDS_BYTES_MAX,
    ZSTD_FROM_VERSION,
    IntakeRules,
    TooHeavy,
    one_batch,
    screen,
)
from penstock.runtime.outcomes import Appended, Fetched
from penstock.runtime.wakes import Wakes, Watcher
from penstock.storage.flush import FlushJob
from penstock.storage.log import Log
from penstock.storage.slices import FileSlice
from penstock.storage.txn_index import AbortedTxn
from penstock.wire.compression import LZ4
from penstock.wire.primitives import Malformed
from penstock.wire.record_loops import check
from penstock.wire.records import ABORT_MARKER, decode_records, parse_marker

Vouch = Callable[[TopicPartition, int, int], bool]
"""Raises where a producer's transaction, of this id and epoch, does not cover a partition.

True where the epoch is this transaction's alone, so that its sequences begin at 0 in every partition.
"""

VERSION_NEWEST = 13
BUMPING_VERSION = 2
"""From this version of transactions on, a marker has an epoch that is one more than that of the records it ends."""
FLUSH_NEVER = 2**63
unpack_header = HEADER.unpack_from
make_header: Callable[[type[BatchHeader], tuple[int, ...]], BatchHeader] = tuple.__new__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
"""A header without the check of its length that `_make` repeats."""


class PartitionHost:
    """The read and the write path of one partition."""

    __slots__ = (
        "_aborted",
        "_awaiting_commit",
        "_awaiting_disk",
        "_bytes_unseen",
        "_flush_at",
        "_flushes",
        "_group",
        "_rules",
        "_stirred",
        "_threads",
        "_wakes",
        "_watchers",
        "config",
        "gone",
        "log",
        "producers",
        "readable_bytes",
        "snapshot_at",
        "snapshot_bytes",
        "snapshot_ms",
        "state",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        log: Log,
        state: Partition,
        producers: ProducerTable,
        config: TopicConfig,
        rules: IntakeRules,
        *,
        wakes: Wakes,
        flushes: GroupCommit,
        threads: Executor,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.state, self.producers = state, producers
        self.gone: BrokerError | None = None
        """Why nobody is served here any more: the topic was deleted, the disk failed. Never taken back."""
        self.readable_bytes = 0
        """Bytes that have become visible to readers since the host was made: only differences mean anything."""
        self._bytes_unseen = 0
        """Bytes appended that readers do not see yet."""
        self._aborted: AbortedTxns | None = None
        self.snapshot_at = -1
        """Offset of the newest snapshot of the producers: a start replays what is behind it."""
        self.snapshot_bytes = 0
        self.snapshot_ms = 0
        self._wakes = wakes
        self._flushes = flushes
        self._threads = threads
        self._watchers: dict[Watcher, None] = {}
        self._stirred = False
        self._awaiting_commit = Awaited()
        self._awaiting_disk = Awaited()
        self._group = False
        self._flush_at = FLUSH_NEVER
        """An append that ends here or beyond asks for a flush."""
        log.producers = producers.snapshot
        self.configure(config, rules)
        state.stabilise(producers.first_unstable)

    # Writing

    def append(
        self,
        records: memoryview | None,
        now_ms: int,
        *,
        acks_all: bool = False,
        internal: bool = False,
        vouch: Vouch | None = None,
        version: int = VERSION_NEWEST,
        transaction_version: int = 0,
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """Append the one batch that `records` is, or raise why not. Offsets are written into `records` itself.

        A batch that must be compressed anew or opened, and is large, is worked at off the loop: then the answer is to
        be awaited, and whoever sent it must not be heard again before. `internal` is a coordinator's own batch, for
        whose markers `transaction_version` counts; a client's transactional batch needs somebody to `vouch` for it.
        """
        state = self.state
        if not state.leads:
            raise self._refusal()
        if acks_all:
            state.check_enough_in_sync()
        if records is None:
            records = memoryview(b"")
        rules = self._rules
        size = len(records)
        if rules.plain and size >= HEADER_BYTES and not internal:
            header = make_header(BatchHeader, unpack_header(records))
            base_offset, length, _, magic, crc, attributes, last, base_time, max_time, _, _, sequence, count = header
            if (
                magic == MAGIC
                and length + PREFIX_BYTES == size <= rules.bytes_max
                and base_offset == 0
                and (attributes == 0 or (rules.trusting and attributes <= LZ4 + (version >= ZSTD_FROM_VERSION)))
                and last + 1 == count > 0
                and (sequence >= 0 or header[9] < 0)
            ):
                if crc32c(records[ATTRIBUTES_AT:]) != crc:
                    raise CorruptMessage(f"Record is corrupt (stored crc = {crc}) in topic partition {self.tp}.")
                if attributes == 0:
                    try:
                        _, sound, delta_min, delta_max = check(records, HEADER_BYTES, size, count)
                    except Malformed:
                        # Refused below, in Kafka's words.
                        sound, delta_min, delta_max = False, 0, 0
                    base_time += delta_min
                    sound = sound and base_time + delta_max - delta_min == max_time
                else:
                    sound = base_time <= max_time
                if (
                    sound
                    and base_time > NO_TIMESTAMP
                    and now_ms - base_time <= rules.before_max_ms
                    and max_time - now_ms <= rules.after_max_ms
                ):
                    return self._store(records, header, now_ms)
        if internal:
            return self._append_own(records, now_ms, transaction_version)
        return self._append_screened(one_batch(records, version), now_ms, vouch)

    def _append_own(self, batch: memoryview, now_ms: int, transaction_version: int) -> Appended:
        """A coordinator's batch: never too heavy, and never its own duplicate."""
        try:
            sound, header = screen(batch, self._rules, now_ms, self.tp, internal=True)
        except BrokerError as error:
            raise self._placed(error)
        if header.attributes & CONTROL_FLAG:
            return self._store_marker(sound, header, now_ms, transaction_version)
        if header.attributes & TRANSACTIONAL_FLAG:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
        return self._store(sound, header, now_ms, internal=True)

    def _append_screened(
        self, batch: memoryview, now_ms: int, vouch: Vouch | None
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """The path of batches that need more than the common checks, or that fail them."""
        attributes = batch[ATTRIBUTES_AT + 1] if len(batch) >= HEADER_BYTES else 0
        if attributes & TRANSACTIONAL_FLAG and vouch is None:
            raise TransactionalIdAuthorizationFailed()
        # What is worked at later is copied now: the request's buffer is the connection's.
        if len(batch) >= HEAVY_BYTES and self._rules.opens(attributes & CODEC_MASK):
            return self._append_later(memoryview(bytearray(batch)), now_ms, vouch)
        try:
            sound, header = screen(
                batch, self._rules, now_ms, self.tp, internal=False, records_bytes_max=LIGHT_RECORDS_BYTES_MAX
            )
        except BrokerError as error:
            raise self._placed(error)
        except TooHeavy:
            return self._append_later(memoryview(bytearray(batch)), now_ms, vouch)
        return self._store(sound, header, now_ms, vouch=vouch)

    async def _append_later(self, copied: memoryview, now_ms: int, vouch: Vouch | None) -> Appended:
        rules, tp = self._rules, self.tp
        try:
            sound, header = await get_running_loop().run_in_executor(
                self._threads, lambda: screen(copied, rules, now_ms, tp, internal=False)
            )
        except BrokerError as error:
            raise self._placed(error)
        if not self.state.leads:
            raise self._refusal()
        return self._store(sound, header, now_ms, vouch=vouch)

    def _placed(self, error: BrokerError) -> BrokerError:
        """Say where the log begins that refuses a batch; for a batch too large or damaged, Kafka does not."""
        if not isinstance(error, MessageTooLarge | CorruptMessage):
            error.log_start = self.state.log_start
        return error

    def _store(
        self,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        internal: bool = False,
        vouch: Vouch | None = None,
    ) -> Appended:
        """Append a batch that is fit to be stored, unless its producer's state says otherwise."""
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        state = self.state
        producers = self.producers
        _, _, _, _, _, attributes, last, _, max_time, producer_id, epoch, sequence, _ = header
        if producer_id >= 0:
            transactional = attributes & TRANSACTIONAL_FLAG != 0
            if not internal:
                if transactional and not producers.is_open(producer_id, epoch):
                    self._check_begins(producer_id, epoch, sequence, vouch)
                try:
                    duplicate = producers.check(producer_id, epoch, sequence, last, transactional)
                except BrokerError as error:
                    raise self._placed(error)
                if duplicate is not None:
                    base, last, timestamp = duplicate
                    return Appended(base, timestamp, state.log_start, last + 1)
            base = self.log.append(batch, header, state.leader_epoch)
            producers.record(producer_id, epoch, sequence, last, transactional, base, max_time, now_ms)
        else:
            base = self.log.append(batch, header, state.leader_epoch)
        assert base == state.log_end, f"{self.tp}: a batch at {base}, the log ended at {state.log_end}"
        state.log_end = end = base + last + 1
        if self._group or state.followers:
            self._bytes_unseen += len(batch)
            if not self._group and state.appended(end):
                self._committed_more()
        else:
            state.local_end = state.high_watermark = end
            if producers.first_unstable is None:
                state.last_stable = end
            else:
                self._stabilise()
            self.readable_bytes += len(batch)
            if self._watchers and not self._stirred:
                self._stirred = True
                self._wakes.add(self)
        if end >= self._flush_at:
            self._flushes.want(self)
        return Appended(base, max_time if attributes & LOG_APPEND_TIME_FLAG else -1, state.log_start, end)

    def _check_begins(self, producer_id: int, epoch: int, sequence: int, vouch: Vouch | None) -> None:
        """A transaction's first batch here is taken only from whom the coordinator vouches for, as of now."""
        assert vouch is not None, f"{self.tp}: a transactional batch of {producer_id} that nobody vouches for"
        if vouch(self.tp, producer_id, epoch) and sequence != 0 and self.producers.get(producer_id) is None:
            raise self._placed(
                OutOfOrderSequenceNumber(
                    f"Invalid sequence number for new producer {producer_id} in partition {self.tp}: {sequence}"
                )
            )

    def _store_marker(self, batch: memoryview, header: BatchHeader, now_ms: int, transaction_version: int) -> Appended:
        """Append what ends a producer's transaction, and note it where readers will look when it was aborted."""
        state = self.state
        kind, coordinator_epoch = parse_marker(decode_records(batch)[0])
        producer_id, epoch = header.producer_id, header.producer_epoch
        bumps = transaction_version >= BUMPING_VERSION
        self.producers.check_marker(producer_id, epoch, coordinator_epoch, bumps=bumps)
        aborted = self.aborted()
        base = self.log.append(batch, header, state.leader_epoch)
        completed = self.producers.record_marker(
            producer_id, epoch, coordinator_epoch, base, kind == ABORT_MARKER, header.max_timestamp, now_ms
        )
        if completed is not None and completed.aborted:
            aborted.add(
                AbortedTxn(producer_id, completed.first_offset, completed.last_offset, completed.last_stable), self.log
            )
        self._bytes_unseen += len(batch)
        state.log_end = base + 1
        if not self._group and state.appended(base + 1):
            self._committed_more()
        if base + 1 >= self._flush_at:
            self._flushes.want(self)
        return Appended(base, -1, state.log_start, base + 1)

    # Commitment

    def _stabilise(self) -> None:
        self.producers.advance(self.state.high_watermark)
        self.state.stabilise(self.producers.first_unstable)

    def _committed_more(self) -> None:
        """The high watermark moved: readers see more, and producers that waited for it are answered."""
        self._stabilise()
        self.readable_bytes += self._bytes_unseen
        self._bytes_unseen = 0
        self._stir()
        self._awaiting_commit.reach(self.state.high_watermark)

    def committed(self, end: int) -> "Future[None] | None":
        """None when readers may see everything below `end`; else what completes then. Cancel it to stop waiting."""
        if self.state.high_watermark >= end:
            return None
        if self.gone is not None:
            raise self.gone
        return self._awaiting_commit.wait(end)

    def durable(self, end: int) -> "Future[None] | None":
        """None when everything below `end` is as safe here as the topic's `flush` asks; else what completes then."""
        if self.state.local_end >= end:
            return None
        if self.gone is not None:
            raise self.gone
        return self._awaiting_disk.wait(end)

    def begin_flush(self) -> FlushJob | None:
        return None if self.gone is not None else self.log.begin_flush()

    def end_flush(self, job: FlushJob, failure: OSError | None) -> None:
        """Apply a flush, or its failure, which takes the log directory offline and everybody here with it."""
        if self.gone is not None:
            return
        try:
            self.log.finish_flush(job, failure)
        except KafkaStorageError as error:
            self.leave(error)
            return
        if not self._group:
            self._plan_flush()
        elif self.state.flushed(min(job.end, self.state.log_end)):
            self._committed_more()
        self._awaiting_disk.reach(self.state.local_end)

    def _plan_flush(self) -> None:
        due = self.log.recovery_point + self.config.flush_messages
        self._flush_at = 0 if self._group else min(due, FLUSH_NEVER)

    # Reading

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        at_least_one: bool,
        read_committed: bool = False,
        leader_epoch: int = -1,
        fetched_epoch: int = -1,
    ) -> Fetched:
        """Whole batches from the one that holds `offset`, as far as the reader may see. Epochs below 0 ask no check."""
        state = self.state
        if leader_epoch != state.leader_epoch and leader_epoch >= 0:
            state.check_epoch(leader_epoch)
        if not state.leads:
            raise self._refusal()
        if fetched_epoch >= 0:
            left = divergence(self.log, state, offset, fetched_epoch)
            if left is not None:
                return Fetched(b"", state.high_watermark, state.last_stable, state.log_start, None, left)
        end = state.last_stable if read_committed else state.high_watermark
        aborted: list[AbortedTxn] | None = None
        records: FileSlice | bytes = b""
        if offset < end and offset >= state.log_start:
            records = self.log.slice(offset, bytes_max, end=end, at_least_one=at_least_one) or b""
            if read_committed:
                aborted = self.aborted().between(offset, end)
        elif offset < state.log_start or offset > state.log_end:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {self.tp}, but we only have log segments from "
                f"offset {state.log_start} up to {state.log_end}."
            )
        elif read_committed:
            aborted = []
        return Fetched(records, state.high_watermark, state.last_stable, state.log_start, aborted)

    def aborted(self) -> AbortedTxns:
        """The aborted transactions of the log, found on the disk at the first use."""
        if self._aborted is None:
            self._aborted = AbortedTxns.load(self.log)
        return self._aborted

    def forget_aborted(self) -> None:
        """Compaction changed the log's aborted transactions: look again when they are needed."""
        self._aborted = None

    def delete_records(self, offset: int) -> int:
        """Make `offset` the first that readers see (-1: the high watermark); the log start that results."""
        state = self.state
        if not state.leads:
            raise self._refusal()
        if offset == -1:
            offset = state.high_watermark
        if offset < 0:
            raise OffsetOutOfRange(f"The offset {offset} for partition {self.tp} is not valid")
        state.start_moved(offset)
        self.log.delete_before(state.log_start)
        self.start_moved()
        return state.log_start

    def start_moved(self) -> None:
        """The log begins later than before: retention or DeleteRecords dropped what was there."""
        self.state.start_moved(self.log.log_start)
        self._stabilise()
        if self._aborted is not None:
            self._aborted.forget_before(self.log.log_start)
        self._stir()

    # Watching

    def watch(self, watcher: Watcher) -> None:
        """Notify from now on, in a later turn of the loop, until `unwatch`. A host that is gone says so at once."""
        self._watchers[watcher] = None
        if self.gone is not None:
            self._stir()

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def _stir(self) -> None:
        if self._watchers and not self._stirred:
            self._stirred = True
            self._wakes.add(self)

    def tell(self) -> None:
        """Notify the watchers; they may stop watching meanwhile."""
        self._stirred = False
        for watcher in tuple(self._watchers):
            watcher.notify(self)

    # Life

    def configure(self, config: TopicConfig, rules: IntakeRules) -> None:
        """Take on a topic's settings, also while in use."""
        self.config, self._rules = config, rules
        state = self.state
        state.in_sync_min = config.min_insync_replicas
        self.log.config = config
        self._group = config.flush == "group"
        self._plan_flush()
        if self._group and self.log.is_dirty:
            # Written before the topic asked for the disk, or found after a crash.
            self._flushes.want(self)
        elif not self._group and state.local_end < state.log_end:
            # What waited for the disk no longer does.
            if state.appended(state.log_end):
                self._committed_more()
            self._awaiting_disk.reach(state.local_end)

    def assume(self, decided: PartitionState) -> None:
        """Take on what the controller decided about leadership and replicas."""
        before = self.state.high_watermark
        self.state.assume(decided)
        if self.state.high_watermark != before:
            self._committed_more()
        if not self.state.leads:
            self._awaiting_commit.fail(NotLeaderOrFollower())
            self._awaiting_disk.fail(NotLeaderOrFollower())
            self._stir()

    def snapshot(self, now_ms: int) -> None:
        """Keep the producers as they are, so that a start replays only what comes after."""
        self.log.snapshot_producers(self.producers.snapshot(), self.state.log_end)
        self.snapshot_at = self.state.log_end
        self.snapshot_bytes = self.readable_bytes
        self.snapshot_ms = now_ms

    def note_committed(self) -> None:
        """Tell the log what is committed, for the next checkpoint."""
        self.log.high_watermark = self.state.high_watermark

    def leave(self, reason: BrokerError) -> None:
        """Serve nobody any more: whoever waits is told why, and so is whoever comes."""
        if self.gone is not None:
            return
        self.gone = reason
        self.state.leads = False
        self._awaiting_commit.fail(reason)
        self._awaiting_disk.fail(reason)
        self._stir()

    def _refusal(self) -> BrokerError:
        return self.gone if self.gone is not None else NotLeaderOrFollower()
