"""The way from a Spark process to the brokers: one connection per broker, in our own codec.

A link belongs to one thread and is never pickled; its settings are, and every process makes a link of its own.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from penstock.wire.api import api_versions, find_coordinator, metadata
from penstock.wire.frame import decode_response_header, encode_request_header, response_is_flexible
from penstock.wire.primitives import ZERO_UUID, Buffer
from pyspark_penstock.errors import PenstockRuntimeError, WrongOption

ANSWER_BYTES_MAX = 1 << 28
"""The largest answer that is read; a fetch asks for far less and gets more only where a single batch is larger."""
PIPELINE_MAX = 64
"""Requests of one connection that wait for their answers."""
VERSIONS_ASKED_WITH = 3
FIND_COORDINATOR_VERSION_MAX = 3
"""The latest that asks for one coordinator."""
FIND_COORDINATORS_VERSION = 4
"""The first that asks for several at once."""
METADATA_VERSION_MAX = 12
"""The latest that still asks by name; it answers with topic ids."""
COORDINATORS_KEPT_MAX = 1_000
"""Coordinators that a link remembers from one task to the next."""
CONTACT_MS_MAX = 5_000
"""How long the first contact with a cluster is tried."""
COORDINATOR_OF_GROUP = 0
COORDINATOR_OF_TRANSACTIONS = 1
CLIENT_ID = "pyspark-penstock"
PLAINTEXT = "PLAINTEXT"

Answered = TypeVar("Answered")


class LinkDown(PenstockRuntimeError):
    """A connection could not be made or broke; what was asked may or may not have been done."""


class Unreachable(LinkDown):
    """No bootstrap server has ever answered."""


class AnswerTooLarge(PenstockRuntimeError):
    """A broker announced an answer that no request asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How to reach a cluster and how long to try; travels to executors. The names are Kafka's where it has them."""

    bootstrap: str
    client_id: str = CLIENT_ID
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    api_timeout_ms: int = 60_000
    """How long an operation is repeated while brokers are away or leaders move."""
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """From Kafka's client properties (without Spark's prefix ``kafka.``).

        Properties without a meaning here are let pass, as Kafka's clients do; a transport that is not there is refused.
        """
        bootstrap = properties.get("bootstrap.servers", "").strip()
        if not bootstrap:
            raise WrongOption(
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer or producer"
            )
        protocol = properties.get("security.protocol", PLAINTEXT)
        if protocol.upper() != PLAINTEXT:
            raise WrongOption(f"Option 'kafka.security.protocol' is {protocol}: only {PLAINTEXT} is spoken here")
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
    """A partition and who leads it; -1 while nobody does."""

    index: int
    leader: int
    leader_epoch: int


class AnswerBuffer:
    """Room for one answer after the other, as large as the largest so far."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def room(self, size: int) -> memoryview:
        if len(self._data) < size:
            # The former one may still be looked at, so it is not grown but replaced.
            self._data = bytearray(size)
        return memoryview(self._data)[:size]


@dataclass(slots=True)
class _Channel:
    """One connection, the versions its broker speaks, and what is on its way."""

    socket: socket.socket
    versions: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    pending: deque[tuple[int, int, int]] = field(default_factory=deque[tuple[int, int, int]])
    """Correlation id, API key and version of each request that has no answer yet."""

    def is_idle(self) -> bool:
        """Whether no answer is awaited and none came: a connection that its broker has closed is readable."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not self.pending and not poll.poll(0)


class BrokerLink:
    """Connections to the brokers of a cluster, and what is known of its leaders and coordinators.

    Calls return an answer or raise: `LinkDown` where the way is broken, a `BrokerError` where a broker said no.
    `patiently` repeats what may pass.
    """

    def __init__(self, settings: LinkSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock() if clock is None else clock
        self._bootstrap = parse_addresses(settings.bootstrap)
        self._channels: dict[Address, _Channel] = {}
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, dict[int, PartitionView]] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._leaders_assumed: dict[tuple[str, int], Address] = {}
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for channel in self._channels.values():
            channel.socket.close()
        self._channels.clear()

    # What is known of the cluster

    def topics(self, names: Iterable[str] | None) -> dict[str, dict[int, PartitionView]]:
        """The partitions of these topics, of all but the brokers' own with None; asked each time.

        A topic that does not exist is left out.
        """
        wanted = None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.Request(topics=wanted, allow_auto_topic_creation=False)
        answer = self.ask_anyone(metadata, request, METADATA_VERSION_MAX)
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        found: dict[str, dict[int, PartitionView]] = {}
        for topic in answer.topics:
            self._topics.pop(topic.name, None)
            if topic.error_code == UnknownTopicOrPartition.code:
                continue
            if names is None and (topic.is_internal or topic.error_code == TopicAuthorizationFailed.code):
                continue
            raise_for(topic.error_code, f"topic {topic.name}")
            self._topic_ids[topic.name] = topic.topic_id
            found[topic.name] = {
                each.partition_index: PartitionView(
                    index=each.partition_index, leader=each.leader_id, leader_epoch=each.leader_epoch
                )
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            }
        self._topics.update(found)
        return found

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic that `topics` has found, all zeros where brokers have none: a new topic has a new one."""
        return self._topic_ids.get(topic, ZERO_UUID)

    def brokers(self) -> tuple[Address, ...]:
        """Every broker of the cluster. Asked anew."""
        self.topics(())
        return tuple(self._brokers.values())

    def leader(self, topic: str, partition: int) -> Address:
        """Where to ask for a partition; remembered until `forget`."""
        assumed = self._leaders_assumed.get((topic, partition))
        if assumed is not None:
            return assumed
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

    def assume_leader(self, topic: str, partition: int, address: Address) -> None:
        """Take another process's word for who leads; a broker that does not lead any more says so, and is forgotten."""
        self._leaders_assumed[topic, partition] = address

    def coordinator(self, key: str, kind: int = COORDINATOR_OF_GROUP) -> Address:
        """Which broker keeps this group or transactional id; remembered until `forget`."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        request = find_coordinator.Request(key=key, key_type=kind)
        answer = self.ask_anyone(find_coordinator, request, FIND_COORDINATOR_VERSION_MAX)
        raise_for(answer.error_code, f"the coordinator of {key}")
        address = (answer.host, answer.port)
        self._coordinators[kind, key] = address
        return address

    def find_coordinators(self, keys: Sequence[str], kind: int = COORDINATOR_OF_GROUP) -> None:
        """Find the coordinators of many groups or transactional ids by one request; `coordinator` remembers them."""
        missing = [key for key in keys if (kind, key) not in self._coordinators]
        if len(missing) < 2:
            return
        request = find_coordinator.Request(key_type=kind, coordinator_keys=missing)
        answer = self.ask_anyone(find_coordinator, request, FIND_COORDINATORS_VERSION)
        for each in answer.coordinators:
            if not each.error_code:
                self._coordinators[kind, each.key] = (each.host, each.port)

    def forget(self) -> None:
        """Ask anew who leads and who coordinates."""
        self._topics.clear()
        self._coordinators.clear()
        self._leaders_assumed.clear()

    def renew(self) -> None:
        """Make the link of an earlier task as good as new: it keeps coordinators, and connections that are idle.

        A coordinator that has moved says so, or is not there, and is looked for again; topics and leaders are not kept,
        as a topic may have more partitions by now.
        """
        self._topics.clear()
        if len(self._coordinators) > COORDINATORS_KEPT_MAX:
            self._coordinators.clear()
        self._topic_ids.clear()
        for address, channel in list(self._channels.items()):
            if not channel.is_idle():
                self.drop(address)

    # One question, one answer

    def ask_anyone(self, api: ModuleType, request: Any, version_max: int | None = None) -> Any:
        """The answer of the first broker that gives one, those of the bootstrap list last."""
        tried: list[str] = []
        for address in dict.fromkeys([*self._channels, *self._brokers.values(), *self._bootstrap]):
            try:
                return self.ask(address, api, request, version_max)
            except LinkDown as error:
                tried.append(str(error))
        raise LinkDown("; ".join(tried))

    def ask(self, address: Address, api: ModuleType, request: Any, version_max: int | None = None) -> Any:
        """One request and its answer, in the latest version (up to ``version_max``) that both sides know."""
        version = self.version(address, api, version_max)
        self.send(address, api.API_KEY, version, api.encode_request(request, version))
        assert len(self._channels[address].pending) == 1, "asked while other answers are on their way"
        data, body = self.receive(address)
        return api.decode_response(data, body, version)

    def version(self, address: Address, api: ModuleType, version_max: int | None = None) -> int:
        """The version to speak with this broker."""
        least, most = self._channel(address).versions.get(api.API_KEY, (0, -1))
        least = max(least, api.VERSION_MIN)
        chosen: int = min(most, api.VERSION_MAX, api.VERSION_MAX if version_max is None else version_max)
        if chosen < least:
            raise UnknownServerError(
                f"broker {address[0]}:{address[1]} has no version of {api.NAME} that is known here"
            )
        return chosen

    # Pipelined, answers in order

    def send(self, address: Address, api_key: int, version: int, *body: Buffer) -> int:
        """Send a request whose body is encoded already; the correlation id. Answers come in order from `receive`."""
        channel = self._channel(address)
        assert len(channel.pending) < PIPELINE_MAX, f"{len(channel.pending)} requests without an answer"
        self._send(address, channel, api_key, version, body)
        return self._asked

    def waiting(self, address: Address) -> int:
        """Requests to this broker that have no answer yet."""
        channel = self._channels.get(address)
        return 0 if channel is None else len(channel.pending)

    def receive(self, address: Address, into: AnswerBuffer | None = None) -> tuple[memoryview, int]:
        """The next answer of this broker, and where its body begins.

        A caller that is done with an answer before it asks for the next one gives the same ``into`` each time.
        """
        channel = self._channels.get(address)
        if channel is None:
            raise LinkDown(f"broker {address[0]}:{address[1]}: the connection was closed")
        return self._receive(address, channel, into)

    def drop(self, address: Address) -> None:
        """Close the connection to a broker; answers on their way are lost."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.socket.close()

    # Patience

    def require_contact(self) -> None:
        """Raise `Unreachable` within seconds where no bootstrap server answers.

        For the start of a query, where a wrong address is likelier than a broker that restarts; later on, `patiently`
        waits for those.
        """
        patience = min(CONTACT_MS_MAX, self.settings.api_timeout_ms) / 1000
        deadline = self.clock.monotonic() + patience
        while not self._channels:
            tried: list[str] = []
            for address in self._bootstrap:
                try:
                    self._channel(address, patience / len(self._bootstrap))
                    return
                except LinkDown as error:
                    tried.append(str(error))
            if self.clock.monotonic() + self.settings.backoff_max_ms / 1000 > deadline:
                raise Unreachable(
                    f"no broker answers at kafka.bootstrap.servers={self.settings.bootstrap}: {'; '.join(tried)}. Is "
                    "the address right, does a broker run there, and can this machine reach it?"
                )
            time.sleep(self.settings.backoff_ms / 1000)

    def patiently(self, doing: str, attempt: Callable[[], Answered]) -> Answered:
        """Repeat an attempt while its failure may pass, up to `LinkSettings.api_timeout_ms`; then raise the failure."""
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

    def _channel(self, address: Address, connect_seconds_max: float | None = None) -> _Channel:
        channel = self._channels.get(address)
        if channel is not None:
            return channel
        try:
            seconds = self.settings.connect_timeout_ms / 1000
            made = socket.create_connection(address, timeout=min(seconds, connect_seconds_max or seconds))
        except OSError as error:
            raise LinkDown(f"broker {address[0]}:{address[1]}: {error}") from error
        made.settimeout(self.settings.request_timeout_ms / 1000)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = _Channel(made)
        self._channels[address] = channel
        request = api_versions.Request(client_software_name=CLIENT_ID, client_software_version="1")
        body = api_versions.encode_request(request, VERSIONS_ASKED_WITH)
        self._send(address, channel, api_versions.API_KEY, VERSIONS_ASKED_WITH, (body,))
        data, at = self._receive(address, channel)
        answer = api_versions.decode_response(data, at, VERSIONS_ASKED_WITH)
        raise_for(answer.error_code, f"the versions of broker {address[0]}:{address[1]}")
        channel.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return channel

    def _send(self, address: Address, channel: _Channel, api_key: int, version: int, body: tuple[Buffer, ...]) -> None:
        self._asked += 1
        header = encode_request_header(api_key, version, self._asked, self.settings.client_id)
        size = len(header) + sum(map(len, body))
        try:
            channel.socket.sendall(b"".join((struct.pack(">i", size), header, *body)))
        except OSError as error:
            self.drop(address)
            raise LinkDown(f"broker {address[0]}:{address[1]}: {error}") from error
        channel.pending.append((self._asked, api_key, version))

    def _receive(self, address: Address, channel: _Channel, into: AnswerBuffer | None = None) -> tuple[memoryview, int]:
        assert channel.pending, "nothing was asked"
        where = f"broker {address[0]}:{address[1]}"
        try:
            (size,) = struct.unpack(">i", _received(channel.socket, memoryview(bytearray(4))))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise AnswerTooLarge(f"{where} announced an answer of {size} bytes, the most are {ANSWER_BYTES_MAX}")
            data = _received(channel.socket, memoryview(bytearray(size)) if into is None else into.room(size))
        except AnswerTooLarge:
            self.drop(address)
            raise
        except (OSError, EOFError) as error:
            self.drop(address)
            why = "it closed the connection" if isinstance(error, EOFError) else str(error)
            raise LinkDown(f"{where}: {why}") from error
        expected, api_key, version = channel.pending.popleft()
        correlation_id, body = decode_response_header(data, response_is_flexible(api_key, version))
        assert correlation_id == expected, f"asked {expected}, answered {correlation_id}"
        return data, body


def raise_for(code: int, doing: str) -> None:
    """Raise what an error code of an answer means; 0 means nothing."""
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
