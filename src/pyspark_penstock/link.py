"""Connections from a Spark process to the brokers, one per broker, with our own codec.

A link belongs to one thread and is never pickled; its settings are, and every process creates its own link.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

from penstock.client.connection import Address, parse_addresses
from penstock.client.failures import ClientError
from penstock.model.clock import Clock, SystemClock
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    LeaderNotAvailable,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from penstock.wire import channel as wire
from penstock.wire.api import find_coordinator, metadata
from penstock.wire.primitives import ZERO_UUID, Buffer
from pyspark_penstock.errors import PenstockRuntimeError, WrongOption

RESPONSE_BYTES_MAX = 1 << 28
"""The largest response that is read; a fetch requests far less and gets more only for a single larger batch."""
FIND_COORDINATOR_VERSION_MAX = 3
"""The latest version for one coordinator."""
FIND_COORDINATORS_VERSION = 4
"""The first version for several coordinators at once."""
METADATA_VERSION_MAX = 12
"""The latest version that requests topics by name; its response has topic ids."""
COORDINATORS_KEPT_MAX = 1_000
"""Coordinators that a link remembers from one task to the next."""
CONTACT_MS_MAX = 5_000
"""How long the first connection to a cluster is tried."""
NO_LEADER = -1
NO_EPOCH = -1
COORDINATOR_OF_GROUP = 0
COORDINATOR_OF_TRANSACTIONS = 1
CLIENT_ID = "pyspark-penstock"
PLAINTEXT = "PLAINTEXT"

Result = TypeVar("Result")


class LinkDown(PenstockRuntimeError):
    """A connection failed or broke; the request may or may not have been processed."""


class Unreachable(LinkDown):
    """No bootstrap server has ever responded."""


class ResponseTooLarge(PenstockRuntimeError):
    """A broker announced a response larger than any request allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How to reach a cluster and how long to retry; sent to executors. Names are Kafka's where it has them."""

    bootstrap: str
    client_id: str = CLIENT_ID
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    api_timeout_ms: int = 60_000
    """How long an operation is retried while brokers are unavailable or leaders move."""
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """From Kafka's client properties (without Spark's prefix ``kafka.``).

        Properties without a meaning here are ignored, as by Kafka's clients; an unsupported security protocol is
        refused.
        """
        bootstrap = properties.get("bootstrap.servers", "").strip()
        if not bootstrap:
            raise WrongOption(
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer or producer"
            )
        protocol = properties.get("security.protocol", PLAINTEXT)
        if protocol.upper() != PLAINTEXT:
            raise WrongOption(f"Option 'kafka.security.protocol' is {protocol}: only {PLAINTEXT} is supported")
        try:
            parse_addresses(bootstrap)
        except ClientError as error:
            raise WrongOption(f"Option 'kafka.bootstrap.servers': {error}") from None
        return cls(
            bootstrap=bootstrap,
            client_id=properties.get("client.id", CLIENT_ID),
            request_timeout_ms=_millis(properties, "request.timeout.ms", 30_000),
            connect_timeout_ms=_millis(properties, "socket.connection.setup.timeout.ms", 10_000),
            api_timeout_ms=_millis(properties, "default.api.timeout.ms", 60_000),
            backoff_ms=_millis(properties, "retry.backoff.ms", 100),
            backoff_max_ms=_millis(properties, "retry.backoff.max.ms", 1_000),
        )


def _millis(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise WrongOption(f"Option 'kafka.{name}' must be a positive number of milliseconds, not {text!r}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition and its leader; -1 if it has none."""

    index: int
    leader: int
    leader_epoch: int


class ResponseBuffer:
    """A buffer that is reused for responses, as large as the largest so far."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def room(self, size: int) -> memoryview:
        if len(self._data) < size:
            # The old buffer may still be in use, so it is replaced and not grown.
            self._data = bytearray(size)
        return memoryview(self._data)[:size]


@dataclass(slots=True)
class _Connection:
    """A socket, and the requests and responses on it."""

    socket: socket.socket
    channel: wire.Channel

    def is_idle(self) -> bool:
        """Whether no response is pending and no data arrived: a connection that its broker has closed is readable."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not self.channel.pending and not poll.poll(0)


class BrokerLink:
    """Connections to the brokers of a cluster, with its known leaders and coordinators.

    Calls return a response or raise: `LinkDown` for a broken connection, a `BrokerError` for an error code. `retrying`
    retries transient failures.
    """

    def __init__(self, settings: LinkSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock() if clock is None else clock
        self._bootstrap = parse_addresses(settings.bootstrap)
        self._connections: dict[Address, _Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, dict[int, PartitionView]] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._leader_epochs: dict[tuple[str, bytes, int], int] = {}
        """The latest leader epoch of each partition; a broker that names an earlier one has old metadata."""
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._leaders_assumed: dict[tuple[str, int], tuple[Address, int]] = {}
        self._failures = 0
        self._failed: dict[Address, int] = {}
        """The number of the last failure of each broker that has not responded since."""
        self._turn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()

    # Cluster metadata

    def topics(self, names: Iterable[str] | None) -> dict[str, dict[int, PartitionView]]:
        """The partitions of these topics, or with None of all but internal topics; never cached.

        A topic that does not exist is omitted.
        """
        wanted = None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.Request(topics=wanted, allow_auto_topic_creation=False)
        response = self.call_any(metadata, request, METADATA_VERSION_MAX)
        self._brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        found: dict[str, dict[int, PartitionView]] = {}
        for topic in response.topics:
            self._topics.pop(topic.name, None)
            if topic.error_code == UnknownTopicOrPartition.code:
                continue
            if names is None and (topic.is_internal or topic.error_code == TopicAuthorizationFailed.code):
                continue
            raise_for(topic.error_code, f"topic {topic.name}")
            self._topic_ids[topic.name] = topic.topic_id
            found[topic.name] = {
                each.partition_index: self._view(topic, each)
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            }
        self._topics.update(found)
        return found

    def _view(self, topic: metadata.MetadataResponseTopic, part: metadata.MetadataResponsePartition) -> PartitionView:
        """A partition as a broker describes it, without its leader if the broker is behind what is known here.

        A broker that was paused or cut off names itself as the leader until it learns of its successor.
        """
        place = (topic.name or "", topic.topic_id, part.partition_index)
        known = self._leader_epochs.get(place, NO_EPOCH)
        if part.leader_epoch < known:
            return PartitionView(index=part.partition_index, leader=NO_LEADER, leader_epoch=known)
        self._leader_epochs[place] = part.leader_epoch
        return PartitionView(index=part.partition_index, leader=part.leader_id, leader_epoch=part.leader_epoch)

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic that `topics` has found, all zeros if brokers have none; a re-created topic has another
        id."""
        return self._topic_ids.get(topic, ZERO_UUID)

    def brokers(self) -> tuple[Address, ...]:
        """Every broker of the cluster; never cached."""
        self.topics(())
        return tuple(self._brokers.values())

    def leader(self, topic: str, partition: int) -> Address:
        """The leader of a partition; cached until `forget`."""
        assumed = self._leaders_assumed.get((topic, partition))
        if assumed is not None:
            return assumed[0]
        if topic not in self._topics:
            self.topics([topic])
        view = self._topics.get(topic, {}).get(partition)
        if view is None:
            raise UnknownTopicOrPartition(f"{topic}-{partition} does not exist")
        address = self._brokers.get(view.leader)
        if address is None:
            self.forget()
            raise LeaderNotAvailable(f"{topic}-{partition} has no leader")
        return address

    def knows_leader(self, topic: str, partition: int) -> bool:
        """Whether `leader` needs no request."""
        view = self._topics.get(topic, {}).get(partition)
        return (topic, partition) in self._leaders_assumed or (view is not None and view.leader in self._brokers)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch of the leader that `leader` returned: a broker with another one refuses the request."""
        assumed = self._leaders_assumed.get((topic, partition))
        if assumed is not None:
            return assumed[1]
        view = self._topics.get(topic, {}).get(partition)
        return NO_EPOCH if view is None else view.leader_epoch

    def assume_leader(self, topic: str, partition: int, address: Address, leader_epoch: int = NO_EPOCH) -> None:
        """Use a leader that another process has looked up; if it no longer leads, its error clears it."""
        self._leaders_assumed[topic, partition] = address, leader_epoch

    def coordinator(self, key: str, kind: int = COORDINATOR_OF_GROUP) -> Address:
        """The coordinator of a group or transactional id; cached until `forget`."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        request = find_coordinator.Request(key=key, key_type=kind)
        response = self.call_any(find_coordinator, request, FIND_COORDINATOR_VERSION_MAX)
        raise_for(response.error_code, f"the coordinator of {key}")
        address = (response.host, response.port)
        self._coordinators[kind, key] = address
        return address

    def find_coordinators(self, keys: Sequence[str], kind: int = COORDINATOR_OF_GROUP) -> None:
        """Find the coordinators of many groups or transactional ids with one request, for `coordinator`."""
        missing = [key for key in keys if (kind, key) not in self._coordinators]
        if len(missing) < 2:
            return
        request = find_coordinator.Request(key_type=kind, coordinator_keys=missing)
        response = self.call_any(find_coordinator, request, FIND_COORDINATORS_VERSION)
        for each in response.coordinators:
            if not each.error_code:
                self._coordinators[kind, each.key] = (each.host, each.port)

    def forget(self) -> None:
        """Clear the cached leaders and coordinators; the next lookup begins with another broker."""
        self._turn += 1
        self._topics.clear()
        self._coordinators.clear()
        self._leaders_assumed.clear()

    def renew(self) -> None:
        """Prepare the link of an earlier task for the next: it keeps coordinators and idle connections.

        A coordinator that has moved returns an error or is unreachable, and is looked up again; topics and leaders are
        dropped, as a topic may have more partitions by now.
        """
        self._topics.clear()
        self._leaders_assumed.clear()
        self._leader_epochs.clear()
        if len(self._coordinators) > COORDINATORS_KEPT_MAX:
            self._coordinators.clear()
        self._topic_ids.clear()
        for address, connection in list(self._connections.items()):
            if not connection.is_idle():
                self.drop(address)

    # One request, one response

    def call_any(self, api: ModuleType, request: Any, version_max: int | None = None) -> Any:
        """The response of the first broker that is reachable.

        Bootstrap servers are tried after known brokers, and brokers whose last request failed after all others. After
        `forget` the search begins with another broker, as the last one may have old metadata.
        """
        tried: list[str] = []
        for address in self._candidates():
            try:
                return self.call(address, api, request, version_max)
            except LinkDown as error:
                tried.append(str(error))
        raise LinkDown("; ".join(tried))

    def _candidates(self) -> list[Address]:
        known = list(dict.fromkeys([*self._connections, *self._brokers.values(), *self._bootstrap]))
        first = self._turn % len(known)
        return sorted([*known[first:], *known[:first]], key=lambda address: self._failed.get(address, 0))

    def call(self, address: Address, api: ModuleType, request: Any, version_max: int | None = None) -> Any:
        """Send one request and return its response, in the latest version (up to ``version_max``) that both sides
        know."""
        version = self.version(address, api, version_max)
        self.send(address, api.API_KEY, version, api.encode_request(request, version))
        assert self.waiting(address) == 1, "a call while other responses are pending"
        data, body = self.receive(address)
        return api.decode_response(data, body, version)

    def version(self, address: Address, api: ModuleType, version_max: int | None = None) -> int:
        """The API version to use with this broker."""
        try:
            return self._connection(address).channel.version(api, version_max)
        except wire.VersionUnsupported as error:
            raise UnknownServerError(f"broker {address[0]}:{address[1]} has {error}") from error

    # Pipelined requests

    def send(self, address: Address, api_key: int, version: int, *body: Buffer) -> None:
        """Send an encoded request. `receive` returns responses in order."""
        connection = self._connection(address)
        self._send(address, connection, connection.channel.frame(api_key, version, *body))

    def waiting(self, address: Address) -> int:
        """The number of requests to this broker in flight."""
        connection = self._connections.get(address)
        return 0 if connection is None else len(connection.channel.pending)

    def receive(self, address: Address, into: ResponseBuffer | None = None) -> tuple[Buffer, int]:
        """The next response of this broker, and where its body begins.

        A caller that needs only one response at a time passes the same ``into`` each time.
        """
        connection = self._connections.get(address)
        if connection is None:
            raise LinkDown(f"broker {address[0]}:{address[1]}: the connection was closed")
        response = self._receive(address, connection, into)
        return response.data, response.body

    def drop(self, address: Address) -> None:
        """Close the connection to a broker; pending responses are lost."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.socket.close()

    # Retries

    def require_contact(self) -> None:
        """Raise `Unreachable` within seconds if no bootstrap server responds.

        For the start of a query, where a wrong address is likelier than a broker that restarts; later on, `patiently`
        waits for those.
        """
        patience = min(CONTACT_MS_MAX, self.settings.api_timeout_ms) / 1000
        deadline = self.clock.monotonic() + patience
        while not self._connections:
            tried: list[str] = []
            for address in self._bootstrap:
                try:
                    self._connection(address, patience / len(self._bootstrap))
                    return
                except LinkDown as error:
                    tried.append(str(error))
            if self.clock.monotonic() + self.settings.backoff_max_ms / 1000 > deadline:
                raise Unreachable(
                    f"no broker answers at kafka.bootstrap.servers={self.settings.bootstrap}: {'; '.join(tried)}. Is "
                    "the address right, does a broker run there, and can this machine reach it?"
                )
            time.sleep(self.settings.backoff_ms / 1000)

    def retrying(self, doing: str, attempt: Callable[[], Result]) -> Result:
        """Retry an attempt while its failure is transient, up to `LinkSettings.api_timeout_ms`; then raise the
        failure."""
        deadline = self.clock.monotonic() + self.settings.api_timeout_ms / 1000
        pause = self.settings.backoff_ms / 1000
        while True:
            try:
                return attempt()
            except (LinkDown, BrokerError) as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                if self.clock.monotonic() + pause > deadline:
                    if isinstance(error, BrokerError):
                        raise
                    raise LinkDown(f"{doing}: {error}") from error
            self.forget()
            time.sleep(pause)
            pause = min(pause * 2, self.settings.backoff_max_ms / 1000)

    # Frames

    def _connection(self, address: Address, connect_seconds_max: float | None = None) -> _Connection:
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        try:
            seconds = self.settings.connect_timeout_ms / 1000
            # Also the limit for the versions: a paused broker's machine accepts connections.
            made = socket.create_connection(address, timeout=min(seconds, connect_seconds_max or seconds))
        except OSError as error:
            self._note_failure(address)
            raise LinkDown(f"broker {address[0]}:{address[1]}: {error}") from error
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = wire.Channel(self.settings.client_id, response_bytes_max=RESPONSE_BYTES_MAX)
        connection = self._connections[address] = _Connection(made, channel)
        self._send(address, connection, channel.versions_request(software_name=CLIENT_ID, software_version="1"))
        response = self._receive(address, connection)
        try:
            code = channel.learn_versions(response)
        except wire.ProtocolViolation as error:
            self.drop(address)
            raise LinkDown(f"broker {address[0]}:{address[1]}: {error}") from error
        raise_for(code, f"the versions of broker {address[0]}:{address[1]}")
        made.settimeout(self.settings.request_timeout_ms / 1000)
        return connection

    def _note_failure(self, address: Address) -> None:
        self._failures += 1
        self._failed[address] = self._failures

    def _send(self, address: Address, connection: _Connection, frame: bytes) -> None:
        try:
            connection.socket.sendall(frame)
        except OSError as error:
            self._note_failure(address)
            self.drop(address)
            raise LinkDown(f"broker {address[0]}:{address[1]}: {error}") from error

    def _receive(self, address: Address, connection: _Connection, into: ResponseBuffer | None = None) -> wire.Response:
        channel = connection.channel
        assert channel.pending, "no request is in flight"
        where = f"broker {address[0]}:{address[1]}"
        try:
            size = channel.length(_received(connection.socket, memoryview(bytearray(4))))
            data = _received(connection.socket, memoryview(bytearray(size)) if into is None else into.room(size))
            response = channel.response(data)
            self._failed.pop(address, None)
            return response
        except wire.ResponseTooLarge as error:
            self.drop(address)
            raise ResponseTooLarge(f"{where} announced {error}") from error
        except (OSError, EOFError, wire.ProtocolViolation) as error:
            self._note_failure(address)
            self.drop(address)
            why = "it closed the connection" if isinstance(error, EOFError) else str(error)
            raise LinkDown(f"{where}: {why}") from error


def raise_for(code: int, doing: str) -> None:
    """Raise the exception of an error code; 0 is no error."""
    if code:
        kind = ERRORS_BY_CODE.get(code, UnknownServerError)
        raise kind(f"{doing}: {kind.name}: {kind.meaning()}")


def _received(connection: socket.socket, data: memoryview) -> memoryview:
    done = 0
    while done < len(data):
        part = connection.recv_into(data[done:])
        if not part:
            raise EOFError
        done += part
    return data
