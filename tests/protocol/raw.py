"""A client without comfort: bytes on a socket, with kafka-python's codec for the messages.

It hides nothing a test could want to see: error codes, throttle times, closed connections, responses' order.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import FetchRequest, IsolationLevel, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest

TIMEOUT_SECONDS = 60.0
EARLIEST = -2
LATEST = -1

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
RECORD_LIST_TOO_LARGE = 18
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
KAFKA_STORAGE_ERROR = 56
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100


class Wire:
    """One connection. `ask` sends a request and returns its response; `send` and `receive` do the halves."""

    def __init__(self, bootstrap: str, *, client_id: str | None = "raw", timeout: float = TIMEOUT_SECONDS) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0
        self._expected: list[tuple[int, Any]] = []

    def send(self, request: Any) -> int:
        """Send a request built with `version=`; its correlation id."""
        self._correlation += 1
        self.socket.sendall(self.encode(request, self._correlation))
        if request.expect_response():
            self._expected.append((self._correlation, request))
        return self._correlation

    def encode(self, request: Any, correlation_id: int = 1) -> bytes:
        request.with_header(correlation_id=correlation_id, client_id=self.client_id)
        return bytes(request.encode(header=True, framed=True))

    def receive(self) -> Any:
        """The next response. It must be to the oldest request without one."""
        correlation, request = self._expected.pop(0)
        frame = self.read_frame()
        received = struct.unpack_from(">i", frame)[0]
        assert received == correlation, f"response to request {received}, {correlation} is the next"
        response_class = ResponseClassRegistry.get_response_class(request.header)
        return response_class.decode(frame, header=True)

    def ask(self, request: Any) -> Any:
        self.send(request)
        return self.receive()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes:
        """One response, without its length."""
        (length,) = struct.unpack(">i", self.read(4))
        return self.read(length)

    def read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise EOFError(f"closed after {len(data)} of {length} bytes")
            data += part
        return bytes(data)

    def closed(self) -> bool:
        """Whether the broker closes this connection without another byte; waits for one or the other."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The requests that most tests need.

    def versions(self) -> dict[int, range]:
        response = self.ask(ApiVersionsRequest(version=0))
        return {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}

    def produce(
        self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> ProducedPartition:
        """Produce to one partition; its response, also when that is an error. Nothing for acks=0."""
        request = produce_request(topic, batch, partition=partition, acks=acks, version=version)
        if acks == 0:
            self.send(request)
            return None
        response = self.ask(request)
        [[partition_response]] = [each.partition_responses for each in response.responses]
        return partition_response

    def offset(self, topic: str, timestamp: int = LATEST, *, partition: int = 0) -> int:
        """The offset at a time, at the start (EARLIEST) or the end (LATEST)."""
        found = self.listed(topic, timestamp, partition=partition)
        assert found.error_code == NONE, f"error {found.error_code}"
        return int(found.offset)

    def listed(self, topic: str, timestamp: int = LATEST, *, partition: int = 0) -> Any:
        """One partition's part of a ListOffsets response, also if it is an error."""
        topic_class = ListOffsetsRequest.ListOffsetsTopic
        response = self.ask(
            ListOffsetsRequest(
                version=7,
                replica_id=-1,
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                topics=[
                    topic_class(
                        name=topic,
                        partitions=[
                            topic_class.ListOffsetsPartition(
                                partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
                            )
                        ],
                    )
                ],
            )
        )
        [[found]] = [each.partitions for each in response.topics]
        return found

    def fetch(self, topic: str, offset: int = 0, **options: Any) -> Any:
        """Fetch from one partition by its topic's name; returns its part of the response."""
        response = self.ask(fetch_request([(topic, options.pop("partition", 0), offset)], **options))
        assert response.error_code == NONE, f"error {response.error_code}"
        [[found]] = [each.partitions for each in response.responses]
        return found

    def topic_id(self, topic: str) -> Any:
        response = self.ask(
            MetadataRequest(
                version=12,
                topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
        [found] = response.topics
        return found.topic_id if found.error_code == NONE else None


ProducedPartition = Any


def produce_request(
    topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9, timeout_ms: int = 10_000
) -> Any:
    topic_class = ProduceRequest.TopicProduceData
    data = topic_class.PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        version=version,
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[topic_class(name=topic, partition_data=[data])],
    )


def fetch_request(
    positions: Sequence[tuple[Any, int, int]],
    *,
    version: int = 12,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 50 << 20,
    partition_bytes_max: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
) -> Any:
    """A fetch from (topic, partition, offset)s; the topic is a name up to version 12, an id from 13 on."""
    topic_class = FetchRequest.FetchTopic
    topics = []
    for topic, partition, offset in positions:
        wanted = topic_class.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=partition_bytes_max,
        )
        name = {"topic": topic} if version < 13 else {"topic_id": topic}
        topics.append(topic_class(partitions=[wanted], **name))
    return FetchRequest(
        version=version,
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        isolation_level=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )


def is_served(bootstrap: str) -> bool:
    """Whether a new client gets a response: asked after everything a bad one does."""
    with contextlib.suppress(OSError, EOFError), Wire(bootstrap, client_id="good") as good:
        return bool(good.versions())
    return False
