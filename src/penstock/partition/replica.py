"""One partition on this broker, with the way that records take into it.

With `served_replica` it drives the rules in `state` and `producers`: it appends what they accept, tells them the result
and notifies waiters.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Coroutine
from typing import Any

from fastcrc.crc32 import iscsi as crc32c

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
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    TransactionalIdAuthorizationFailed,
)
from penstock.model.ids import TopicPartition
from penstock.partition.results import Appended
from penstock.partition.served_replica import ServedReplica
from penstock.partition.validation import (
    HEAVY_BYTES,
    LIGHT_RECORDS_BYTES_MAX,
    ZSTD_FROM_VERSION,
    TooHeavy,
    one_batch,
    validate,
    validate_within,
)
from penstock.storage.txn_index import AbortedTxn
from penstock.wire.compression import LZ4
from penstock.wire.primitives import Malformed
from penstock.wire.record_loops import check
from penstock.wire.records import ABORT_MARKER, decode_records, parse_marker

VerifyTxn = Callable[[TopicPartition, int, int], bool]
"""Raises where a producer's transaction, of this id and epoch, does not cover a partition.

True where the epoch is this transaction's alone, so that its sequences begin at 0 in every partition.
"""

VERSION_NEWEST = 13
BUMPING_VERSION = 2
"""From this version of transactions on, a marker has an epoch that is one more than that of the records it ends."""
unpack_header = HEADER.unpack_from
make_header: Callable[[type[BatchHeader], tuple[int, ...]], BatchHeader] = tuple.__new__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
"""A header without the check of its length that `_make` repeats."""


class Replica(ServedReplica):
    """One partition on this broker: appends what its rules accept, and serves reads."""

    __slots__ = ()

    def append(
        self,
        records: memoryview | None,
        now_ms: int,
        *,
        acks_all: bool = False,
        internal: bool = False,
        verify_txn: VerifyTxn | None = None,
        version: int = VERSION_NEWEST,
        transaction_version: int = 0,
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """Append the one batch that `records` is, or raise why not. Offsets are written into `records` itself.

        A batch that must be compressed anew or opened, and is large, is worked at off the loop: then the response is to
        be awaited, and whoever sent it must not be heard again before. `internal` is a coordinator's own batch, for
        whose markers `transaction_version` counts; a client's transactional batch is verified with `verify_txn`.
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
        return self._append_validated(one_batch(records, version), now_ms, verify_txn)

    def _append_own(self, batch: memoryview, now_ms: int, transaction_version: int) -> Appended:
        """A coordinator's batch: never too heavy, and never its own duplicate."""
        try:
            sound, header = validate(batch, self._rules, now_ms, self.tp, internal=True)
        except BrokerError as error:
            raise self._placed(error)
        if header.attributes & CONTROL_FLAG:
            return self._store_marker(sound, header, now_ms, transaction_version)
        if header.attributes & TRANSACTIONAL_FLAG:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
        return self._store(sound, header, now_ms, internal=True)

    def _append_validated(
        self, batch: memoryview, now_ms: int, verify_txn: VerifyTxn | None
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """The path of batches that need more than the common checks, or that fail them."""
        attributes = batch[ATTRIBUTES_AT + 1] if len(batch) >= HEADER_BYTES else 0
        if attributes & TRANSACTIONAL_FLAG and verify_txn is None:
            raise TransactionalIdAuthorizationFailed()
        # What is worked at later is copied now: the request's buffer is the connection's.
        if len(batch) >= HEAVY_BYTES and self._rules.opens(attributes & CODEC_MASK):
            return self._append_later(memoryview(bytearray(batch)), now_ms, verify_txn)
        try:
            sound, header = validate(
                batch, self._rules, now_ms, self.tp, internal=False, records_bytes_max=LIGHT_RECORDS_BYTES_MAX
            )
        except BrokerError as error:
            raise self._placed(error)
        except TooHeavy:
            return self._append_later(memoryview(bytearray(batch)), now_ms, verify_txn)
        return self._store(sound, header, now_ms, verify_txn=verify_txn)

    async def _append_later(self, copied: memoryview, now_ms: int, verify_txn: VerifyTxn | None) -> Appended:
        rules, tp, budget = self._rules, self.tp, self._decompression
        try:
            sound, header = await get_running_loop().run_in_executor(
                self._threads, lambda: validate_within(budget, copied, rules, now_ms, tp)
            )
        except BrokerError as error:
            raise self._placed(error)
        if not self.state.leads:
            raise self._refusal()
        return self._store(sound, header, now_ms, verify_txn=verify_txn)

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
        verify_txn: VerifyTxn | None = None,
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
                    self._check_begins(producer_id, epoch, sequence, verify_txn)
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
            if self.readable_bytes >= self._notify_at_bytes and not self._notification_due:
                self._notification_due = True
                self._notifier.add(self)
        if end >= self._flush_at:
            self._flushes.want(self)
        return Appended(base, max_time if attributes & LOG_APPEND_TIME_FLAG else -1, state.log_start, end)

    def _check_begins(self, producer_id: int, epoch: int, sequence: int, verify_txn: VerifyTxn | None) -> None:
        """A transaction's first batch here is accepted only if its coordinator verifies the producer now."""
        assert verify_txn is not None, f"{self.tp}: a transactional batch of {producer_id} without verification"
        if verify_txn(self.tp, producer_id, epoch) and sequence != 0 and self.producers.get(producer_id) is None:
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
            aborted.add(AbortedTxn.of(completed), self.log)
        self._bytes_unseen += len(batch)
        state.log_end = base + 1
        if not self._group and state.appended(base + 1):
            self._committed_more()
        if base + 1 >= self._flush_at:
            self._flushes.want(self)
        return Appended(base, -1, state.log_start, base + 1)
