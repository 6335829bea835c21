"""Writes rows with one producer: partitioned, encoded, pipelined, and retried until they are stored exactly once.

A producer numbers the batches of every partition, and brokers remember the last five: batches without a response are
sent again in the same order with the same sequence numbers, and are stored once. With a transactional id all rows are
one transaction, which stays open: the driver ends it.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

from penstock.client.connection import Address
from penstock.model.batch import (
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    DuplicateSequenceNumber,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from penstock.model.ids import NO_LEADER_EPOCH
from penstock.wire.api import metadata, produce
from penstock.wire.column_batches import RecordsOfPartition, add_rows, choose_partitions
from penstock.wire.compression import compress
from penstock.wire.records import crc_of
from pyspark_penstock.link import METADATA_VERSION_MAX, BrokerLink, LinkDown, raise_for
from pyspark_penstock.rows import RecordColumns, WrongRow
from pyspark_penstock.txn_calls import Producer, add_partitions
from pyspark_penstock.write_options import WriteOptions

PRODUCE_VERSION_MAX = 11
"""Later versions are for the second version of the transaction protocol, or identify topics by id."""
REQUESTS_MAX = 5
"""Requests in flight to one broker: as many batches of a partition as a broker remembers."""
SEQUENCE_END = 1 << 31
TOPIC_SECONDS_MAX = 15.0
"""How long a missing topic is waited for: its creation needs a controller, and another one takes over only after the
session of a lost one (`broker.session.timeout.ms`)."""
TOPIC_PAUSE_SECONDS = 0.1
OUT_OF_ORDER_SECONDS_MAX = 15.0
"""How long a leader may lack acknowledged records: longer than a deposed one leads on (`broker.session.timeout.ms`)."""

_CRC = Struct(">I")

Place = tuple[str, int]
OpenTransaction = Callable[[Mapping[str, Sequence[int]]], Producer]


@dataclass(slots=True)
class _Partition:
    """The records of one partition that are not sent yet, and the sequence number of the first."""

    place: Place
    records: RecordsOfPartition = field(default_factory=RecordsOfPartition)
    sequence: int = 0
    added: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    order: int
    place: Place
    content: bytes


class TxnWriter:
    """Writes the rows of one producer, from the first row to the last response."""

    def __init__(self, link: BrokerLink, options: WriteOptions, turn: int, open_with: OpenTransaction) -> None:
        """``turn`` is the partition at which rows without a key begin: different for each task, so that they spread.

        ``open_with`` is called once, before the first rows are sent, and returns the producer that has these partitions
        in its transaction; its exceptions propagate.
        """
        self._link = link
        self._open_with = open_with
        self.producer: Producer | None = None
        self._options = options
        self._turn = turn
        self._partitions: list[_Partition] = []
        self._records: list[RecordsOfPartition] = []
        self._first: dict[str, tuple[int, int]] = {}
        """For each topic: the index of its first partition in the list, and their number."""
        self._unacknowledged: dict[Address, deque[list[_Batch]]] = {}
        self._sealed_count = 0
        self.rows = 0

    def write(self, columns: RecordColumns) -> None:
        """Add the rows of one Arrow batch. Full batches are sent; the others wait for `flush`."""
        chosen = self._placed(columns)
        row = 0
        while row < columns.rows:
            row = add_rows(
                self._records,
                chosen,
                columns.times,
                columns.keys,
                columns.values,
                columns.headers,
                row,
                self._options.batch_bytes,
            )
            if row < columns.rows or self._is_full(chosen[row - 1]):
                self._send([self._partitions[chosen[row - 1]]])
        self.rows += columns.rows

    def flush(self) -> None:
        """Send the remaining rows, and return when all are acknowledged."""
        self._send([each for each in self._partitions if each.records.count])
        self._settle_all()

    def _is_full(self, index: int) -> bool:
        return self._records[index].size >= self._options.batch_bytes

    # Partitions of rows

    def _placed(self, columns: RecordColumns) -> array[int]:
        counts = array("i", [self._partition_count(topic) for topic in columns.topics] or [1])
        firsts = array("i", [self._first[topic][0] for topic in columns.topics] or [0])
        chosen = columns.partitions
        if columns.partitions_requested:
            for index, topic in enumerate(columns.topics):
                _check_requested(chosen, columns.topic_of, index, topic, counts[index])
        self._turn = choose_partitions(chosen, columns.keys, columns.topic_of, counts, firsts, self._turn)
        return chosen

    def _partition_count(self, topic: str) -> int:
        known = self._first.get(topic)
        if known is None:
            # Any broker may be asked, also one with pending responses.
            self._settle_all()
            count = partition_count(self._link, topic)
            known = self._first[topic] = (len(self._partitions), count)
            self._partitions += [_Partition((topic, index)) for index in range(count)]
            self._records += [each.records for each in self._partitions[known[0] :]]
        return known[1]

    # Sending, with responses in order

    def _send(self, full: list[_Partition]) -> None:
        if not full:
            return
        if not all(each.added for each in full):
            self._add([each for each in self._partitions if each.records.count and not each.added])
        if not all(self._link.knows_leader(*each.place) for each in full):
            self._settle_all()
        batches = [self._sealed(each) for each in full]
        by_leader: dict[Address, list[_Batch]] = {}
        for batch in batches:
            leader = self._leader(batch.place)
            by_leader.setdefault(leader, []).append(batch)
        for address, of_leader in by_leader.items():
            self._settle(address, REQUESTS_MAX - 1)
            self._unacknowledged.setdefault(address, deque()).append(of_leader)
            try:
                self._put(address, of_leader)
            except LinkDown:
                self._again()

    def _add(self, partitions: list[_Partition]) -> None:
        # The coordinator may be a broker with pending responses.
        self._settle_all()
        named: dict[str, list[int]] = {}
        for each in partitions:
            named.setdefault(each.place[0], []).append(each.place[1])
        if self.producer is None:
            self.producer = self._open_with(named)
        elif self.producer.transactional_id is not None:
            add_partitions(self._link, self.producer, named)
        for each in partitions:
            each.added = True

    def _sealed(self, partition: _Partition) -> _Batch:
        """The records of a partition as its next batch."""
        assert self.producer is not None, "rows are sent before a producer is there"
        records = partition.records
        count, first_time, last_time = records.count, records.base_time, records.time_max
        body = compress(self._options.codec, records.take(), self._options.level)
        flags = TRANSACTIONAL_FLAG if self.producer.transactional_id is not None else 0
        content = bytearray(
            HEADER.pack(
                0,
                HEADER_BYTES - PREFIX_BYTES + len(body),
                NO_LEADER_EPOCH,
                MAGIC,
                0,
                flags | self._options.codec,
                count - 1,
                first_time,
                last_time,
                self.producer.producer_id,
                self.producer.epoch,
                partition.sequence,
                count,
            )
        )
        content += body
        _CRC.pack_into(content, CRC_AT, crc_of(content, 0, len(content)))
        partition.sequence = (partition.sequence + count) % SEQUENCE_END
        self._sealed_count += 1
        return _Batch(self._sealed_count, partition.place, bytes(content))

    def _put(self, address: Address, batches: list[_Batch]) -> None:
        assert self.producer is not None, "rows are sent before a producer is there"
        topics: dict[str, list[produce.PartitionProduceData]] = {}
        for batch in batches:
            topic, index = batch.place
            topics.setdefault(topic, []).append(produce.PartitionProduceData(index=index, records=batch.content))
        request = produce.Request(
            transactional_id=self.producer.transactional_id,
            acks=-1,
            timeout_ms=self._link.settings.request_timeout_ms,
            topic_data=[produce.TopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()],
        )
        version = self._link.version(address, produce, PRODUCE_VERSION_MAX)
        self._link.send(address, produce.API_KEY, version, produce.encode_request(request, version))

    def _settle(self, address: Address, waiting_max: int) -> None:
        """Receive responses until at most so many are pending; retry batches after a broken connection or transient
        error."""
        while len(self._unacknowledged.get(address, ())) > waiting_max:
            try:
                self._take(address)
            except (LinkDown, OutOfOrderSequenceNumber):
                self._again()
                return
            except BrokerError as error:
                if not error.retriable:
                    raise
                self._again()
                return

    def _settle_all(self) -> None:
        """Receive all responses, so that any broker can be sent another request and its response awaited."""
        while any(self._unacknowledged.values()):
            for address in list(self._unacknowledged):
                self._settle(address, 0)

    def _take(self, address: Address) -> None:
        """Receive the next response of a broker; raises the first error in it."""
        version = self._link.version(address, produce, PRODUCE_VERSION_MAX)
        data, body = self._link.receive(address)
        response = produce.decode_response(data, body, version)
        for topic in response.responses:
            for part in topic.partition_responses:
                if part.error_code != DuplicateSequenceNumber.code:
                    raise_for(part.error_code, f"{topic.name}-{part.index}: {part.error_message or 'refused'}")
        self._unacknowledged[address].popleft()

    def _again(self) -> None:
        """Send the unacknowledged batches again in their order, one by one, to the current leaders."""
        left = [batch for requests in self._unacknowledged.values() for request in requests for batch in request]
        left.sort(key=lambda batch: batch.order)
        for address in self._unacknowledged:
            self._link.drop(address)
        self._unacknowledged.clear()
        for batch in left:
            self._repeat(batch)

    def _repeat(self, batch: _Batch) -> None:
        name = f"{batch.place[0]}-{batch.place[1]}"
        deadline = self._link.clock.monotonic() + OUT_OF_ORDER_SECONDS_MAX

        def attempt() -> None:
            try:
                self._once(batch)
            except OutOfOrderSequenceNumber as error:
                # Everything before it was acknowledged: a gap means that a broker lost acknowledged records, unless
                # the broker was deposed, does not know it yet, and misses what its successor has.
                if self._link.clock.monotonic() > deadline:
                    raise UnknownProducerId(f"{name} has lost acknowledged records") from error
                raise NotLeaderOrFollower(f"{name} lacks acknowledged records") from error

        self._link.retrying(f"writing to {name}", attempt)

    def _leader(self, place: Place) -> Address:
        return self._link.retrying(f"the leader of {place[0]}-{place[1]}", lambda: self._link.leader(*place))

    def _once(self, batch: _Batch) -> None:
        leader = self._link.leader(*batch.place)
        self._unacknowledged[leader] = deque([[batch]])
        try:
            self._put(leader, [batch])
            self._take(leader)
        except BrokerError:
            self._link.drop(leader)
            raise
        finally:
            self._unacknowledged.clear()


def partition_count(link: BrokerLink, topic: str) -> int:
    """The number of partitions of a topic. Brokers create a missing topic if they are configured to."""
    request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    deadline = link.clock.monotonic() + min(TOPIC_SECONDS_MAX, link.settings.api_timeout_ms / 1000)
    while True:
        found = link.retrying(f"topic {topic}", lambda: link.topics([topic])).get(topic)
        if found:
            return len(found)
        if link.clock.monotonic() > deadline:
            break
        link.retrying(f"topic {topic}", lambda: link.call_any(metadata, request, METADATA_VERSION_MAX))
        time.sleep(TOPIC_PAUSE_SECONDS)
    raise WrongRow(f"topic {topic} does not exist, and the brokers do not create topics (auto.create.topics.enable)")


def _check_requested(chosen: array[int], topic_of: memoryview, index: int, topic: str, count: int) -> None:
    """Refuse a partition that the topic does not have."""
    if max(chosen, default=-1) < count:
        return
    for row, partition in enumerate(chosen):
        if topic_of[row] == index and partition >= count:
            raise WrongRow(f"partition {partition} of topic {topic}, which has {count}")
