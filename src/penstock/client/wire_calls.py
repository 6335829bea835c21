"""Requests that librdkafka cannot send, in our own codec: one connection per broker, one request at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from penstock.client.connection import CLIENT_ID, REQUEST_SECONDS_MAX, Address, Connection, parse_addresses
from penstock.client.failures import ClientError, failure
from penstock.client.library import kafka
from penstock.wire.api import find_coordinator, metadata
from penstock.wire.channel import LENGTH, Channel, Codec, ProtocolViolation

RESPONSE_BYTES_MAX = 64 * 1024 * 1024
FIND_COORDINATOR_VERSION = 3
METADATA_VERSION = 9
COORDINATOR_OF_TRANSACTIONS = 1
PLAINTEXT = "plaintext"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeader:
    """A partition and the broker that leads it."""

    topic: str
    partition: int
    leader: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The brokers, and the leader of each partition."""

    brokers: Mapping[int, Address]
    leaders: tuple[PartitionLeader, ...]


class WireCalls:
    """Connections to the brokers of a cluster. Every call returns a response or raises `ClientError`."""

    def __init__(self, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        if not speaks_plaintext(connection):
            protocol = connection.properties["security.protocol"]
            raise ClientError(f"cannot ask this over {protocol}", hint="use a listener without encryption or SASL")
        connection.check()
        self._bootstrap = parse_addresses(connection.bootstrap)
        self._seconds_max = seconds_max
        self._links: dict[Address, tuple[socket.socket, Channel]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock, _ in self._links.values():
            sock.close()

    def cluster(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """Every broker, and the leaders of these topics, or of all topics with None."""
        response = self.metadata(topics)
        for topic in response.topics:
            refuse(f"cannot look at topic {topic.name}", topic.error_code)
        return ClusterView(
            brokers={each.node_id: (each.host, each.port) for each in response.brokers},
            leaders=tuple(
                PartitionLeader(topic=topic.name or "", partition=part.partition_index, leader=part.leader_id)
                for topic in response.topics
                for part in sorted(topic.partitions, key=lambda part: part.partition_index)
            ),
        )

    def metadata(self, topics: Iterable[str] | None) -> metadata.Response:
        """The Metadata response for these topics, or for all with None; it creates none."""
        wanted = None if topics is None else [metadata.MetadataRequestTopic(name=name) for name in topics]
        request = metadata.Request(topics=wanted, allow_auto_topic_creation=False)
        found: metadata.Response = self.of_anyone("cannot look at the cluster", metadata, METADATA_VERSION, request)
        return found

    def coordinator(self, transactional_id: str) -> Address:
        """The address of the coordinator of this transactional id."""
        request = find_coordinator.Request(key=transactional_id, key_type=COORDINATOR_OF_TRANSACTIONS)
        doing = f"cannot find the coordinator of {transactional_id}"
        response = self.of_anyone(doing, find_coordinator, FIND_COORDINATOR_VERSION, request)
        refuse(doing, response.error_code)
        return response.host, response.port

    def of_anyone(self, doing: str, api: Codec, version: int, request: Any) -> Any:
        """The response of the first bootstrap address that responds."""
        failed: ClientError | None = None
        for address in self._bootstrap:
            try:
                return self.ask(doing, address, api, version, request)
            except ClientError as error:
                failed = error
        assert failed is not None, "a bootstrap list is never empty"
        raise failed

    def ask(self, doing: str, address: Address, api: Codec, version: int, request: Any) -> Any:
        """Send one request of an API and return its response."""
        try:
            if address not in self._links:
                sock = socket.create_connection(address, timeout=self._seconds_max)
                self._links[address] = sock, Channel(CLIENT_ID, response_bytes_max=RESPONSE_BYTES_MAX)
            sock, channel = self._links[address]
            sock.sendall(channel.request(api, version, request))
            response = channel.response(_received(sock, channel.length(_received(sock, LENGTH.size))))
        except (OSError, EOFError, ProtocolViolation) as error:
            link = self._links.pop(address, None)
            if link is not None:
                link[0].close()
            why = "it closed the connection" if isinstance(error, EOFError) else str(error)
            raise ClientError(f"{doing}: broker {address[0]}:{address[1]}: {why}") from error
        return response.decode(api)


def speaks_plaintext(connection: Connection) -> bool:
    """Whether this module can connect: it has neither TLS nor SASL."""
    return connection.properties.get("security.protocol", PLAINTEXT).lower() == PLAINTEXT


def refuse(doing: str, code: int) -> None:
    """Raise the error of a response's error code."""
    if code:
        raise failure(kafka().KafkaError(code), doing)


def _received(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
