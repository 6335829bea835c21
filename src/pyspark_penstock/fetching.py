"""A range of one partition, fetched by a task: one request ahead, over restarts and changes of leader.

A task holds one response of about `FetchSettings.bytes_max` and the data made of it, however large the topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.client.connection import Address
from penstock.model.batch import BatchHeader
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InconsistentTopicId,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.wire.api import fetch, list_offsets
from penstock.wire.primitives import ZERO_UUID, Buffer
from penstock.wire.records import iter_batches
from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.link import BrokerLink, LinkDown, ResponseBuffer, raise_for
from pyspark_penstock.offsets import EARLIEST, LATEST, OffsetRange

FETCH_BYTES_DEFAULT = 1 << 22
"""The bytes that one fetch requests; a larger batch is returned whole.

Smaller fetches mean more requests, and more partial batches that have to be sent again.
"""
FETCH_VERSION_BY_NAME_MAX = 12
FETCH_VERSION_MAX = 16
"""Later versions are for replicas."""
GONE_SECONDS = 5.0
"""How long a topic must be unknown to count as deleted: a broker that has just started may not know it yet."""
LIST_OFFSETS_VERSION_MAX = 6

log = logging.getLogger("pyspark_penstock")


class DataLoss(PenstockRuntimeError):
    """Records that a query should read no longer exist, and failOnDataLoss is true."""


class ReadTimeout(PenstockRuntimeError):
    """No broker returned the records of a range in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a task fetches."""

    read_committed: bool = False
    fail_on_data_loss: bool = True
    bytes_max: int = FETCH_BYTES_DEFAULT
    wait_ms: int = 500
    timeout_ms: int = 120_000
    check_crcs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Whole consecutive batches, the aborted transactions among them, and the offset after them.

    The first batch may begin before the requested offset.
    """

    records: Buffer
    batches: list[tuple[int, BatchHeader]]
    aborted: list[tuple[int, int]]
    """Producer id and first offset."""
    first_offset: int
    next_offset: int


def data_loss(settings: FetchSettings, reason: str) -> None:
    """Fail the query, or log a warning if failOnDataLoss is false."""
    if settings.fail_on_data_loss:
        raise DataLoss(
            "[KAFKA_DATA_LOSS] Some data may have been lost because they are not available in Kafka any more; either "
            "the data was aged out by Kafka or the topic may have been deleted before all the data in the topic was "
            "processed. If you don't want your streaming query to fail on such cases, set the source option "
            f"failOnDataLoss to false. Reason: {reason}"
        )
    log.warning("data may have been lost: %s", reason)


class RangeFetcher:
    """The batches of a partition in a range, response by response. A response is valid until the next is requested."""

    def __init__(self, link: BrokerLink, wanted: OffsetRange, settings: FetchSettings) -> None:
        self._link = link
        self._wanted = wanted
        self._settings = settings
        self._clock: Clock = link.clock
        self._buffer = ResponseBuffer()
        self._sent_to: tuple[Address, int] | None = None
        self._pause = link.settings.backoff_ms / 1000
        self._gone_since: float | None = None
        self._progress_at = self._clock.monotonic()
        self._position = wanted.start

    def __iter__(self) -> Iterator[Fetched]:
        while self._position < self._wanted.end:
            fetched = self._attempt()
            if fetched is None:
                continue
            self._position = fetched.next_offset
            self._progressed()
            if self._position < self._wanted.end:
                self._send_ahead()
            yield fetched

    def _attempt(self) -> Fetched | None:
        """One response; None if there is none yet, or if the position was moved."""
        try:
            part = self._exchange()
            raise_for(part.error_code, f"{self._name} at offset {self._position}")
        except OffsetOutOfRange:
            self._out_of_range()
            return None
        except (UnknownTopicOrPartition, UnknownTopicId, InconsistentTopicId) as error:
            self._unknown(error)
            return None
        except LinkDown as error:
            self._wait(error)
            return None
        except BrokerError as error:
            if not error.retriable:
                raise
            # This broker knows the topic.
            self._gone_since = None
            self._wait(error)
            return None
        return self._whole(part)

    def _whole(self, part: fetch.PartitionData) -> Fetched | None:
        records: Buffer = b"" if part.records is None else part.records
        batches = [(pos, header) for pos, header in iter_batches(records) if header.next_offset > self._position]
        if batches:
            aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
            return Fetched(
                records=records,
                batches=batches,
                aborted=aborted,
                first_offset=self._position,
                next_offset=batches[-1][1].next_offset,
            )
        end = part.last_stable_offset if self._settings.read_committed else part.high_watermark
        # The range ended at the log's end when it was planned, so a shorter log is behind or has lost its end.
        behind = f"{self._name} ends at {end}" if end < self._wanted.end else f"{self._name} sends no records"
        self._wait(ReadTimeout(behind), pause=end < self._wanted.end)
        return None

    # Requests

    def _exchange(self) -> fetch.PartitionData:
        if self._sent_to is None:
            self._send()
        assert self._sent_to is not None, "a request was sent"
        (address, version), self._sent_to = self._sent_to, None
        data, body = self._link.receive(address, self._buffer)
        response = fetch.decode_response(data, body, version)
        raise_for(response.error_code, self._name)
        return response.responses[0].partitions[0]

    def _send_ahead(self) -> None:
        """Send the next request before this response is processed, so that the broker works meanwhile."""
        try:
            self._send()
        except (LinkDown, BrokerError):
            # The error occurs again, and is handled, when the response is needed.
            self._sent_to = None

    def _send(self) -> None:
        wanted = self._wanted
        address = self._link.leader(wanted.topic, wanted.partition)
        by_name = wanted.topic_id == ZERO_UUID
        version = self._link.version(address, fetch, FETCH_VERSION_BY_NAME_MAX if by_name else FETCH_VERSION_MAX)
        by_name = version <= FETCH_VERSION_BY_NAME_MAX
        part = fetch.FetchPartition(
            partition=wanted.partition,
            current_leader_epoch=self._link.leader_epoch(wanted.topic, wanted.partition),
            fetch_offset=self._position,
            partition_max_bytes=self._settings.bytes_max,
        )
        topic = fetch.FetchTopic(
            topic=wanted.topic if by_name else "",
            topic_id=ZERO_UUID if by_name else wanted.topic_id,
            partitions=[part],
        )
        request = fetch.Request(
            max_wait_ms=self._settings.wait_ms,
            min_bytes=1,
            max_bytes=self._settings.bytes_max,
            isolation_level=int(self._settings.read_committed),
            session_epoch=-1,
            topics=[topic],
        )
        self._link.send(address, fetch.API_KEY, version, fetch.encode_request(request, version))
        self._sent_to = address, version

    # Errors

    @property
    def _name(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"

    def _progressed(self) -> None:
        self._progress_at = self._clock.monotonic()
        self._pause = self._link.settings.backoff_ms / 1000
        self._gone_since = None

    def _wait(self, error: Exception, pause: bool = True) -> None:
        """Back off, up to the time that the range may take without a record."""
        waited = self._clock.monotonic() - self._progress_at
        if waited * 1000 > self._settings.timeout_ms:
            raise ReadTimeout(
                f"Could not read records in offset [{self._position}, {self._wanted.end}) for topic partition "
                f"{self._name} within {self._settings.timeout_ms} ms: {error}"
            ) from error
        if pause:
            self._link.forget()
            time.sleep(self._pause)
            self._pause = min(self._pause * 2, self._link.settings.backoff_max_ms / 1000)

    def _unknown(self, error: BrokerError) -> None:
        now = self._clock.monotonic()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now - self._gone_since < GONE_SECONDS:
            self._wait(error)
            return
        what = "was created again" if isinstance(error, UnknownTopicId) and self._exists() else "has been deleted"
        data_loss(
            self._settings,
            f"{self._name} {what}: records in offset [{self._position}, {self._wanted.end}) cannot be read.",
        )
        self._position = self._wanted.end

    def _exists(self) -> bool:
        try:
            return self._wanted.topic in self._link.topics([self._wanted.topic])
        except (LinkDown, BrokerError):
            return False

    def _out_of_range(self) -> None:
        """Handle a log that begins after or ends before the position: move to its next offset, if that is allowed."""
        first, last = self._link.retrying(self._name, lambda: (self._bound(EARLIEST), self._bound(LATEST)))
        if first <= self._position <= last:
            self._wait(OffsetOutOfRange(f"{self._name}: the offset {self._position} is out of range"))
            return
        resumed = min(first, self._wanted.end) if self._position < first else self._wanted.end
        data_loss(
            self._settings,
            f"Could not read records in offset [{self._position}, {resumed}) for topic partition {self._name}: "
            f"it begins at {first} and ends at {last}.",
        )
        self._position = resumed

    def _bound(self, which: int) -> int:
        wanted = self._wanted
        address = self._link.leader(wanted.topic, wanted.partition)
        requested = list_offsets.ListOffsetsPartition(
            partition_index=wanted.partition,
            current_leader_epoch=self._link.leader_epoch(wanted.topic, wanted.partition),
            timestamp=which,
        )
        request = list_offsets.Request(
            replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=wanted.topic, partitions=[requested])]
        )
        response = self._link.call(address, list_offsets, request, LIST_OFFSETS_VERSION_MAX)
        part = response.topics[0].partitions[0]
        raise_for(part.error_code, self._name)
        offset: int = part.offset
        return offset
