"""Requests to other brokers of the cluster.

Responses leave a connection in the order of its requests, so a request that waits (a marker for the high watermark)
would hold up every later one. Therefore each purpose has a connection of its own to each broker. A connection belongs
to one broker epoch: when the broker registers again, what was sent to its former life fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from penstock.model.deferred import Deferred
from penstock.model.ids import BrokerId
from penstock.model.timers import Timer, Timers
from penstock.net.transport import Network, Transport
from penstock.wire.channel import Channel, Codec, ProtocolViolation, Response, VersionUnsupported

REQUESTS_WAITING_MAX = 1_000
"""Requests to one broker for one purpose that are not sent yet."""
SETUP_MS = 10_000
"""How long a connection may take until it is ready, as Kafka's `socket.connection.setup.timeout.ms`. Requests that wait
for it have timeouts of their own, but each ends only one wait: without this bound, a peer that accepts and never
responds would keep its connection for as long as new requests join the queue."""
RECEIVE_BYTES = 256 * 1024
"""Size of a connection's buffer; it grows for a larger response, and shrinks again after `SMALL_RESPONSES` others."""
SMALL_RESPONSES = 100
EXPECTED_BYTES_MIN = 64 * 1024
EXPECTED_BYTES_MAX = 1024 * 1024
"""Of a response that lacks more than the first, at most the second is awaited at once: the peer sends on while it is
being received."""
SEND_BYTES = 256 * 1024
"""Bytes offered to the transport at once: what it does not take is copied again."""
SOFTWARE_NAME = "penstock-broker"
LENGTH_BYTES = 4


class Purpose(Enum):
    """What a connection is for: requests of one purpose may wait for each other, those of two never do."""

    FETCH = "fetch"
    CONTROLLER = "controller"
    FORWARDING = "forwarding"
    """Requests of clients, some of which take long: an ISR proposal must not wait for them."""
    TRANSACTIONS = "transactions"
    """Partitions that a broker adds to transactions: each waits until the coordinator has committed it."""
    VERIFICATIONS = "verifications"
    """Of partitions in transactions. The coordinator responds at once, and a produce waits for it."""
    QUERIES = "queries"
    REDIRECTS = "redirects"
    """Of drained partitions to the ones they are drained into: batches and markers, in the order of their numbers."""
    SCHEDULES = "schedules"
    """Deliveries of schedules, which wait for their target partitions to have committed them."""
    DEAD_LETTERS = "dead letters"
    """Records that share groups give up: each batch waits until its partition has committed it."""
    MARKERS = "markers"
    """Apart from other requests of transactions: a marker waits until its partition has committed it."""
    SHARES = "shares"
    """Reads and writes of share state: each waits until the coordinator has committed it."""


LinkKey = tuple[BrokerId, Purpose, int]
"""Broker, purpose and lane of a connection."""


class PeerUnavailable(Exception):
    """No response came: the request may or may not have been carried out."""


class NotSent(PeerUnavailable):
    """The request never left this broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddress:
    """Where a broker listens for other brokers, in which of its lives."""

    host: str
    port: int
    epoch: int


@dataclass(slots=True, eq=False)
class _Request:
    """A request and who waits for its response."""

    api: Codec
    body: Any
    version_max: int | None
    result: Deferred[Any]


class Peers:
    """Every connection from this broker to others.

    `address_of` gives where a broker is in its present life, or None while it is not registered. `spawn` starts a task
    that ends with the broker. `on_bug` gets exceptions of consumers and encoders: they must not affect the requests of
    others, nor the code that happens to call in.
    """

    def __init__(
        self,
        *,
        network: Network,
        timers: Timers,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        address_of: Callable[[BrokerId], PeerAddress | None],
        client_id: str,
        version: str,
        on_bug: Callable[[str, BaseException], None],
        version_max: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        """`version_max` gives the newest version of a request, by API key, that brokers of this cluster send."""
        self.network = network
        self.timers = timers
        self.spawn = spawn
        self._address_of = address_of
        self.client_id = client_id
        self.version = version
        self.version_max = version_max
        self._on_bug = on_bug
        self.links: dict[LinkKey, _Link] = {}
        self._closed = False

    def send(
        self,
        broker_id: BrokerId,
        purpose: Purpose,
        api: Codec,
        request: Any,
        *,
        timeout_ms: float,
        version_max: int | None = None,
        lane: int = 0,
    ) -> Deferred[Any]:
        """Send a request; what completes with the decoded response, or fails with `PeerUnavailable`.

        A response's decoder gets a view of the connection's buffer. What it keeps of that is valid until the next
        request of this purpose is sent to the broker: so a fetch that is sent after the last one was appended never
        copies records.

        Requests of different lanes of a purpose do not wait for each other either.

        After `timeout_ms` the connection is closed: a response that is late would be taken for that to the next
        request. `timeout_ms` counts from here, and connecting is a part of it.
        """
        key = (broker_id, purpose, lane)
        while True:
            address = self._address_of(broker_id)
            if self._closed or address is None:
                return _failed(NotSent(f"broker {broker_id} is not registered"))
            link = self.links.get(key)
            if link is None or link.address == address:
                break
            # The consumers of what fails may send requests or close all connections, so everything is looked up again.
            link.close(f"broker {broker_id} has registered again")
        wanted = _Request(api, request, self.least(api, version_max), Deferred())
        if link is not None:
            return link.send(wanted, timeout_ms)
        link = self.links[key] = _Link(self, key, address)
        result = link.send(wanted, timeout_ms)
        link.start()
        return result

    def least(self, api: Codec, version_max: int | None) -> int | None:
        """The newest version of a request that both its sender and the version of the cluster allow."""
        found = [each for each in (version_max, self.version_max(api.API_KEY)) if each is not None]
        return min(found, default=None)

    def drop_stale(self) -> None:
        """Close the connections to former lives of brokers; called when registrations change."""
        for (broker_id, _, _), link in list(self.links.items()):
            if link.address != self._address_of(broker_id):
                link.close(f"broker {broker_id} has registered again or is gone")

    def close(self) -> None:
        """Close every connection; what waits fails."""
        self._closed = True
        for link in list(self.links.values()):
            link.close("this broker is stopping")

    @property
    def connections(self) -> int:
        return len(self.links)

    def report(self, error: Exception) -> None:
        """Report a bug. A report that fails must not affect other requests either."""
        with suppress(Exception):
            self._on_bug("peers", error)


class _Link:
    """One connection to one broker for one purpose; made when it is needed, replaced when it fails."""

    def __init__(self, peers: Peers, key: LinkKey, address: PeerAddress) -> None:
        self._peers = peers
        self._key = key
        self.address = address
        self._channel = Channel(peers.client_id)
        self._transport: Transport | None = None
        self._waiting: deque[_Request] = deque()
        """Not sent yet."""
        self._sent: deque[_Request | None] = deque()
        """Without a response; None is the request for versions."""
        self._out = bytearray()
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._begin = 0
        self._end = 0
        """The bytes of the buffer that are received and not yet a response."""
        self._small = 0
        """Responses since the last one that needed a larger buffer."""
        self._expected = 1
        """What the transport was last told to expect."""
        self._closed = False
        self._ready = False
        """Whether the peer's versions are known, so that requests may be sent."""
        self._setup: Timer | None = None
        """Closes the connection unless it is ready by then."""

    def start(self) -> None:
        """Connect. A task group that is shutting down starts no task."""
        self._setup = self._peers.timers.after_ms(SETUP_MS, self._setup_expired)
        connecting = self._connect()
        try:
            self._peers.spawn(connecting)
        except RuntimeError:
            connecting.close()
            self.close("this broker is stopping")

    def _setup_expired(self) -> None:
        self.close(f"the connection to broker {self._key[0]} was not ready within {SETUP_MS} ms")

    def send(self, request: _Request, timeout_ms: float) -> Deferred[Any]:
        if len(self._waiting) >= REQUESTS_WAITING_MAX:
            return _failed(NotSent(f"{REQUESTS_WAITING_MAX} requests to broker {self._key[0]} are waiting"))
        self._waiting.append(request)
        request.result.on_abandon = partial(self._abandoned, request)
        result = request.result.timeout(
            self._peers.timers, timeout_ms, lambda: PeerUnavailable(f"broker {self._key[0]} did not respond in time")
        )
        if self._ready:
            self._send_waiting()
        return result

    def _abandoned(self, request: _Request) -> None:
        """Forget a request that nobody waits for; one that is on its way takes the connection with it.

        So does the last one that waits for a connection: the next request tries to connect again.
        """
        if request in self._waiting:
            self._waiting.remove(request)
            if self._transport is not None or self._waiting:
                return
        self.close(f"broker {self._key[0]} did not respond in time")

    async def _connect(self) -> None:
        try:
            transport = await self._peers.network.connect(self.address.host, self.address.port)
        except Exception as error:
            # Not only `OSError`: a name that is no host name raises `UnicodeError`, for one.
            self.close(f"cannot connect to broker {self._key[0]}: {error}")
            return
        except BaseException:
            self.close("this broker is stopping")
            raise
        if self._closed:
            transport.close()
            return
        self._transport = transport
        self._sent.append(None)
        try:
            transport.on_readable(self._on_readable)
        except Exception as error:
            self._broken(error)
            return
        self._write(self._channel.versions_request(software_name=SOFTWARE_NAME, software_version=self._peers.version))

    def _send_waiting(self) -> None:
        while self._waiting and not self._channel.full() and not self._closed:
            request = self._waiting.popleft()
            try:
                version = self._channel.version(request.api, request.version_max)
                frame = self._channel.request(request.api, version, request.body)
            except VersionUnsupported as error:
                self._fail(request, NotSent(f"broker {self._key[0]} has {error}"))
                continue
            except Exception as error:
                # A request that cannot be encoded: the caller of this may be the consumer of another request.
                self._peers.report(error)
                self._fail(request, NotSent(f"{request.api.NAME} cannot be encoded: {error}"))
                continue
            self._sent.append(request)
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        if self._closed:
            return
        idle = not self._out
        self._out += frame
        if idle:
            self._on_writable()

    def _on_writable(self) -> None:
        transport = self._transport
        if self._closed or transport is None:
            return
        try:
            while self._out:
                sent = transport.send(self._out[:SEND_BYTES])
                del self._out[:sent]
        except (BlockingIOError, InterruptedError):
            transport.on_writable(self._on_writable)
            return
        except Exception as error:
            self._broken(error)
            return
        transport.on_writable(None)

    def _on_readable(self) -> None:
        transport = self._transport
        if self._closed or transport is None:
            return
        try:
            size = transport.receive_into(self._buffer[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except Exception as error:
            self._broken(error)
            return
        if not size:
            self.close(f"broker {self._key[0]} closed the connection")
            return
        self._end += size
        try:
            self._take_whole(transport)
        except ProtocolViolation as error:
            self.close(f"broker {self._key[0]}: {error}")

    def _take_whole(self, transport: Transport) -> None:
        """Take every response that is whole."""
        while self._end - self._begin >= LENGTH_BYTES:
            begin = self._begin
            size = self._channel.length(self._buffer[begin : begin + LENGTH_BYTES])
            body, end = begin + LENGTH_BYTES, begin + LENGTH_BYTES + size
            if end > self._end:
                missing = end - self._end
                self._make_room(LENGTH_BYTES + size)
                self._expect(transport, missing)
                return
            self._begin = end
            if end == self._end:
                # Nothing is received until the next request is sent, so what this response refers to stays as it is.
                self._begin = self._end = 0
            self._take(self._channel.response(self._buffer[body:end]))
            if self._transport is not transport:
                # The consumer of this response has closed the connection.
                return
        self._make_room(LENGTH_BYTES)
        self._expect(transport, 1)

    def _expect(self, transport: Transport, missing: int) -> None:
        """Let a large response arrive in large pieces, instead of by the packet."""
        wanted = 1 if missing < EXPECTED_BYTES_MIN else min(missing, EXPECTED_BYTES_MAX)
        if wanted != self._expected:
            self._expected = wanted
            transport.expect(wanted)

    def _make_room(self, size: int) -> None:
        """Make room for a response of so many bytes, of which some may have been received."""
        if size > RECEIVE_BYTES:
            self._small = 0
        elif len(self._buffer) > RECEIVE_BYTES:
            self._small += 1
        if size <= len(self._buffer) - self._begin and self._small < SMALL_RESPONSES:
            return
        rest = self._buffer[self._begin : self._end]
        if size > len(self._buffer) or self._small >= SMALL_RESPONSES:
            self._small = 0
            self._buffer = memoryview(bytearray(max(size, len(rest), RECEIVE_BYTES)))
        self._buffer[: len(rest)] = bytes(rest)
        self._begin, self._end = 0, len(rest)

    def _take(self, response: Response) -> None:
        request = self._sent[0]
        if request is None:
            code = self._channel.learn_versions(response)
            if code:
                raise ProtocolViolation(f"error {code} to ApiVersions")
            self._sent.popleft()
            self._become_ready()
        else:
            try:
                value = response.decode(request.api)
            except Exception as error:
                raise ProtocolViolation(f"a response to {request.api.NAME} cannot be decoded: {error}") from error
            self._sent.popleft()
            if request.result.waiting:
                try:
                    request.result.resolve(value)
                except Exception as error:
                    self._peers.report(error)
        self._send_waiting()

    def _broken(self, error: Exception) -> None:
        """Close because the transport failed; an error that no transport may raise is reported too."""
        if not isinstance(error, OSError):
            self._peers.report(error)
        self.close(f"broker {self._key[0]}: {error}")

    def _become_ready(self) -> None:
        self._ready = True
        if self._setup is not None:
            self._setup.cancel()

    def _fail(self, request: _Request, failure: PeerUnavailable) -> None:
        if request.result.waiting:
            try:
                request.result.fail(failure)
            except Exception as error:
                self._peers.report(error)

    def close(self, reason: str) -> None:
        """Let go of the connection; every request on it fails."""
        if self._closed:
            return
        self._closed = True
        if self._peers.links.get(self._key) is self:
            del self._peers.links[self._key]
        if self._setup is not None:
            self._setup.cancel()
        if self._transport is not None:
            try:
                self._transport.close()
            except Exception as error:
                self._peers.report(error)
            self._transport = None
        self._out.clear()
        sent, waiting = [each for each in self._sent if each is not None], list(self._waiting)
        self._sent.clear()
        self._waiting.clear()
        for request in sent:
            self._fail(request, PeerUnavailable(reason))
        for request in waiting:
            self._fail(request, NotSent(reason))


def _failed(error: Exception) -> Deferred[Any]:
    failed: Deferred[Any] = Deferred()
    failed.fail(error)
    return failed
