"""Requests that librdkafka has no words for, in our own codec: one connection per broker, one question at a time."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, Self

from penstock.client.connection import CLIENT_ID, REQUEST_SECONDS_MAX, Address, Connection, parse_addresses
from penstock.client.failures import ClientError, failure
from penstock.client.library import kafka
from penstock.wire.api import find_coordinator, metadata
from penstock.wire.frame import decode_response_header, encode_request_header, response_is_flexible

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
    """The brokers, and who leads what."""

    brokers: Mapping[int, Address]
    leaders: tuple[PartitionLeader, ...]


class WireCalls:
    """Connections to the brokers of a cluster. Every call either returns a response or raises `ClientError`."""

    def __init__(self, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        if not speaks_plaintext(connection):
            protocol = connection.properties["security.protocol"]
            raise ClientError(
                f"cannot ask about transactions over {protocol}", hint="use a listener without encryption or SASL"
            )
        connection.check()
        self._bootstrap = parse_addresses(connection.bootstrap)
        self._seconds_max = seconds_max
        self._sockets: dict[Address, socket.socket] = {}
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets.values():
            each.close()

    def cluster(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """Every broker, and the leaders of these topics; of all there are, with None."""
        wanted = None if topics is None else [metadata.MetadataRequestTopic(name=name) for name in topics]
        request = metadata.Request(topics=wanted, allow_auto_topic_creation=False)
        doing = "cannot look at the cluster"
        response = self._of_anyone(doing, metadata, METADATA_VERSION, request)
        for topic in response.topics:
            refuse(f"cannot look at topic {topic.name}", topic.error_code)
        return ClusterView(
            brokers={each.node_id: (each.host, each.port) for each in response.brokers},
            leaders=tuple(
                PartitionLeader(topic=topic.name, partition=part.partition_index, leader=part.leader_id)
                for topic in response.topics
                for part in sorted(topic.partitions, key=lambda part: part.partition_index)
            ),
        )

    def coordinator(self, transactional_id: str) -> Address:
        """Which broker keeps this transactional id."""
        request = find_coordinator.Request(key=transactional_id, key_type=COORDINATOR_OF_TRANSACTIONS)
        doing = f"cannot find the coordinator of {transactional_id}"
        response = self._of_anyone(doing, find_coordinator, FIND_COORDINATOR_VERSION, request)
        refuse(doing, response.error_code)
        return response.host, response.port

    def _of_anyone(self, doing: str, api: ModuleType, version: int, request: Any) -> Any:
        """The response of the first address that gives one."""
        failed: ClientError | None = None
        for address in self._bootstrap:
            try:
                return self.ask(doing, address, api, version, request)
            except ClientError as error:
                failed = error
        assert failed is not None, "a bootstrap list is never empty"
        raise failed

    def ask(self, doing: str, address: Address, api: ModuleType, version: int, request: Any) -> Any:
        """One request, one response, of the generated module of an API."""
        self._asked += 1
        header = encode_request_header(api.API_KEY, version, self._asked, CLIENT_ID)
        payload = header + api.encode_request(request, version)
        try:
            if address not in self._sockets:
                self._sockets[address] = socket.create_connection(address, timeout=self._seconds_max)
            connection = self._sockets[address]
            connection.sendall(struct.pack(">i", len(payload)) + payload)
            (size,) = struct.unpack(">i", _received(connection, 4))
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                raise ClientError(f"{doing}: the broker announced an answer of {size} bytes")
            response = _received(connection, size)
        except (OSError, EOFError) as error:
            self._sockets.pop(address, None)
            why = "it closed the connection" if isinstance(error, EOFError) else str(error)
            raise ClientError(f"{doing}: broker {address[0]}:{address[1]}: {why}") from error
        correlation_id, body = decode_response_header(response, response_is_flexible(api.API_KEY, version))
        assert correlation_id == self._asked, f"asked {self._asked}, answered {correlation_id}"
        return api.decode_response(response, body, version)


def speaks_plaintext(connection: Connection) -> bool:
    """Whether a connection of our own can be used: this module knows neither TLS nor SASL."""
    return connection.properties.get("security.protocol", PLAINTEXT).lower() == PLAINTEXT


def refuse(doing: str, code: int) -> None:
    """Raise what an error code of a response means."""
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
