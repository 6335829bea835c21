"""Requests between brokers: one connection per broker and purpose, bounded, fenced by the peer's broker epoch."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from struct import pack
from typing import Any

import pytest
from tests.unit.partition.rig import ManualClock, ManualLoop

from penstock.model.deferred import Deferred
from penstock.model.ids import BrokerId
from penstock.model.timers import Timers
from penstock.net.reply import FileRange
from penstock.net.transport import Acceptor, Bytes, Transport
from penstock.replication import peers
from penstock.replication.peers import (
    REQUESTS_WAITING_MAX,
    SETUP_MS,
    SMALL_RESPONSES,
    NotSent,
    PeerAddress,
    Peers,
    PeerUnavailable,
    Purpose,
)
from penstock.wire.api import api_versions, find_coordinator, metadata
from penstock.wire.frame import decode_request_header, encode_response_header, response_is_flexible


class ScriptedTransport:
    """A connection whose other side is the test."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.arrived = bytearray()
        self.ended = False
        self.closed = False
        self.room = 1 << 30
        self.expected = [1]
        """What was expected, over time; the reader is called back from the last on."""
        self.failure: Exception | None = None
        self._readable: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None

    def receive_into(self, view: memoryview) -> int:
        if not self.arrived:
            if self.ended:
                return 0
            raise BlockingIOError
        size = min(len(view), len(self.arrived))
        view[:size] = self.arrived[:size]
        del self.arrived[:size]
        return size

    def send(self, data: Bytes) -> int:
        if self.failure is not None:
            raise self.failure
        taken = min(self.room, len(data))
        if not taken:
            raise BlockingIOError
        self.room -= taken
        self.sent += data[:taken]
        return taken

    def send_vector(self, buffers: Sequence[Bytes], more: bool) -> int:
        raise AssertionError("requests are sent whole")

    def send_file(self, file: FileRange, position: int, size: int) -> int:
        raise AssertionError("requests are sent whole")

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._readable = callback

    def expect(self, size: int) -> None:
        self.expected.append(size)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._writable = callback

    def peer_left(self) -> str | None:
        return None

    def close(self) -> None:
        self.closed = True

    # The other side

    def arrive(self, data: bytes) -> None:
        self.arrived += data
        while len(self.arrived) >= self.expected[-1] and not self.closed and self._readable is not None:
            self._readable()

    def end(self) -> None:
        self.ended = True
        assert self._readable is not None
        self._readable()

    def make_room(self, size: int) -> None:
        self.room += size
        if self._writable is not None:
            self._writable()

    def requests(self) -> list[bytes]:
        """The frames that were sent whole, without their lengths; they are taken off."""
        frames: list[bytes] = []
        while len(self.sent) >= 4 and len(self.sent) >= 4 + (size := int.from_bytes(self.sent[:4], "big")):
            frames.append(bytes(self.sent[4 : 4 + size]))
            del self.sent[: 4 + size]
        return frames

    def respond(self, frame: bytes, api: Any, response: Any) -> None:
        header = decode_request_header(frame)
        head = encode_response_header(header.correlation_id, response_is_flexible(header.api_key, header.api_version))
        body = api.encode_response(response, header.api_version)
        self.arrive(pack(">i", len(head) + len(body)) + head + body)

    def respond_together(self, frames: Iterable[bytes], ports: Iterable[int]) -> None:
        """Respond to several requests in bytes that arrive at once."""
        together = ScriptedTransport()
        for frame, port in zip(frames, ports, strict=True):
            together.respond(frame, find_coordinator, find_coordinator.Response(port=port))
        self.arrive(bytes(together.arrived))

    def give_versions(self, keys: Iterable[int] = (3, 10)) -> None:
        [frame] = self.requests()
        rows = [api_versions.ApiVersion(api_key=key, min_version=0, max_version=3) for key in keys]
        self.respond(frame, api_versions, api_versions.Response(api_keys=rows))


class Suspended:
    """Waits until the coroutine is resumed."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Rig:
    """Peers of a broker that knows brokers 1 and 2."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.loop = ManualLoop(self.clock)
        self.addresses = {each: PeerAddress(host="host", port=9000 + each, epoch=5) for each in (1, 2)}
        self.connecting: list[Coroutine[Any, Any, None]] = []
        self.transports: list[tuple[int, ScriptedTransport]] = []
        self.refused: set[int] = set()
        self.failure: Exception = ConnectionRefusedError("nothing listens there")
        """What a refused connection fails with."""
        self.bugs: list[BaseException] = []
        self.stopping = False
        self.waits = False
        """Whether connecting waits for the network."""
        self.eager = False
        """Whether a task runs to its first wait when it is made."""
        self.peers = Peers(
            network=self,
            timers=Timers(self.loop),
            spawn=self.spawn,
            address_of=self.addresses.get,
            client_id="broker-0",
            version="1",
            on_bug=lambda _, error: self.bugs.append(error),
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self.stopping:
            raise RuntimeError("the task group is shutting down")
        self.connecting.append(work)
        if self.eager:
            self.connect_all()

    def bind(self, host: str, port: int) -> Acceptor:
        raise AssertionError("peers only connect")

    def reset_by_peers(self, transports: Iterable[Transport]) -> set[Transport]:
        return set()

    async def connect(self, host: str, port: int) -> ScriptedTransport:
        if port in self.refused:
            raise self.failure
        if self.waits:
            await Suspended()
        made = ScriptedTransport()
        self.transports.append((port, made))
        return made

    def connect_all(self) -> None:
        while self.connecting:
            with pytest.raises(StopIteration):
                self.connecting.pop(0).send(None)

    def send(self, broker: int = 1, purpose: Purpose = Purpose.FETCH, timeout_ms: float = 1000) -> list[Any]:
        """Ask for a coordinator; the list gets the response's port, or the error."""
        outcome: list[Any] = []
        sent: Deferred[Any] = self.peers.send(
            broker, purpose, find_coordinator, find_coordinator.Request(key="k"), timeout_ms=timeout_ms, version_max=3
        )
        sent.deliver_to(lambda response: outcome.append(response.port), outcome.append)
        return outcome

    def on_outcome(self, call: Callable[[Any], object], broker: int = 1, timeout_ms: float = 1000) -> None:
        """Send a request whose consumer makes a call with the response or the error."""
        sent: Deferred[Any] = self.peers.send(
            broker,
            Purpose.FETCH,
            find_coordinator,
            find_coordinator.Request(key="k"),
            timeout_ms=timeout_ms,
            version_max=3,
        )
        sent.deliver_to(call, call)

    def connected(self, broker: int = 1) -> tuple[ScriptedTransport, list[Any]]:
        """A connection that is ready, with one request on it."""
        outcome = self.send(broker)
        self.connect_all()
        transport = self.transports[-1][1]
        transport.give_versions()
        return transport, outcome


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    for connecting in made.connecting:
        connecting.close()


def test_a_request_waits_for_the_connection_and_its_versions_and_gets_its_response(rig: Rig) -> None:
    transport, outcome = rig.connected()
    [frame] = transport.requests()
    assert decode_request_header(frame).client_id == "broker-0"
    transport.respond(frame, find_coordinator, find_coordinator.Response(port=7))

    assert outcome == [7]


def test_each_broker_and_each_purpose_has_a_connection_of_its_own(rig: Rig) -> None:
    """A marker that waits for the high watermark must not hold up the follower fetch that moves it."""
    for broker in (1, 2):
        for purpose in Purpose:
            rig.send(broker, purpose)
            rig.send(broker, purpose)
    rig.connect_all()

    assert sorted(port for port, _ in rig.transports) == [9001] * len(Purpose) + [9002] * len(Purpose)


def test_requests_are_pipelined_and_responses_come_in_order(rig: Rig) -> None:
    transport, first = rig.connected()
    second = rig.send()
    frames = transport.requests()
    for port, frame in enumerate(frames):
        transport.respond(frame, find_coordinator, find_coordinator.Response(port=port))

    assert (first, second) == ([0], [1])


def test_a_request_to_a_broker_that_is_not_registered_is_not_sent(rig: Rig) -> None:
    [error] = rig.send(3)

    assert isinstance(error, NotSent)
    assert not rig.connecting


def test_a_refused_connection_fails_its_requests_and_the_next_one_tries_again(rig: Rig) -> None:
    rig.refused.add(9001)
    outcome = rig.send()
    rig.connect_all()
    [error] = outcome
    assert isinstance(error, NotSent)

    rig.refused.clear()
    transport, outcome = rig.connected()
    transport.respond(transport.requests()[0], find_coordinator, find_coordinator.Response(port=7))
    assert outcome == [7]


def test_a_peer_that_closes_fails_what_was_sent_as_unknown_and_what_was_not_as_not_sent(rig: Rig) -> None:
    transport, sent = rig.connected()
    many = [rig.send() for _ in range(70)]
    transport.end()

    errors = [each[0] for each in (sent, *many)]
    assert all(isinstance(error, PeerUnavailable) for error in errors)
    assert [isinstance(error, NotSent) for error in errors] == [False] * 64 + [True] * 7
    assert transport.closed
    assert rig.peers.connections == 0


def test_a_response_that_is_late_closes_the_connection_and_is_never_taken_for_another(rig: Rig) -> None:
    transport, late = rig.connected()
    beside = rig.send(timeout_ms=60_000)
    rig.loop.pass_ms(1500)

    assert isinstance(late[0], PeerUnavailable)
    assert not isinstance(late[0], NotSent)
    assert isinstance(beside[0], PeerUnavailable)
    assert transport.closed
    assert rig.peers.connections == 0


def test_a_connection_that_is_never_made_is_given_up_with_its_last_request(rig: Rig) -> None:
    outcome = rig.send()
    rig.loop.pass_ms(1500)
    assert isinstance(outcome[0], PeerUnavailable)
    assert rig.peers.connections == 0

    rig.connect_all()
    assert rig.transports[-1][1].closed, "a connection that was given up is closed when it is made after all"


def test_a_broker_that_registers_again_gets_a_new_connection(rig: Rig) -> None:
    transport, former = rig.connected()
    rig.addresses[1] = PeerAddress(host="host", port=9001, epoch=6)
    new = rig.send()

    assert isinstance(former[0], PeerUnavailable)
    assert transport.closed
    assert not new
    rig.connect_all()
    assert len(rig.transports) == 2


def test_connections_to_former_lives_are_closed_without_a_new_request(rig: Rig) -> None:
    first, _ = rig.connected(1)
    second, _ = rig.connected(2)
    del rig.addresses[1]
    rig.peers.drop_stale()

    assert (first.closed, second.closed) == (True, False)


def test_waiting_requests_are_bounded(rig: Rig) -> None:
    for _ in range(REQUESTS_WAITING_MAX):
        assert rig.send() == []

    [error] = rig.send()
    assert isinstance(error, NotSent)


def test_a_peer_without_the_api_is_not_sent_it_and_the_next_request_is(rig: Rig) -> None:
    refused = rig.send()
    taken: list[Any] = []
    rig.peers.send(1, Purpose.FETCH, metadata, metadata.Request(topics=None), timeout_ms=1000).deliver_to(
        taken.append, taken.append
    )
    rig.connect_all()
    transport = rig.transports[0][1]
    transport.give_versions([3])

    assert isinstance(refused[0], NotSent)
    assert [decode_request_header(frame).api_key for frame in transport.requests()] == [metadata.API_KEY]


def test_a_request_larger_than_the_transport_takes_is_sent_as_room_comes(rig: Rig) -> None:
    transport, _ = rig.connected()
    transport.requests()
    transport.room = 10
    rig.send()
    assert not transport.requests()
    transport.make_room(1 << 20)

    assert len(transport.requests()) == 1


def test_a_large_response_is_received_in_large_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "EXPECTED_BYTES_MIN", 1_000)
    monkeypatch.setattr(peers, "EXPECTED_BYTES_MAX", 8_000)
    transport, outcome = rig.connected()
    second = rig.send()
    first, next_ = transport.requests()
    stream = ScriptedTransport()
    stream.respond(first, find_coordinator, find_coordinator.Response(port=7, error_message="x" * 20_000))
    stream.respond(next_, find_coordinator, find_coordinator.Response(port=8))
    arriving = bytes(stream.arrived)
    for start in range(0, len(arriving), 100):
        transport.arrive(arriving[start : start + 100])

    assert (outcome, second) == ([7], [8])
    # Not more than the response lacks: the reader would wait for a response that nobody asked for.
    assert transport.expected[:2] == [1, 8_000]
    assert 1_000 <= transport.expected[-2] < 8_000
    assert transport.expected[-1] == 1


def test_rubbish_closes_the_connection_and_fails_its_requests(rig: Rig) -> None:
    transport, outcome = rig.connected()
    transport.arrive(b"\xff" * 64)

    assert isinstance(outcome[0], PeerUnavailable)
    assert transport.closed


def test_a_response_may_close_all_connections_while_others_arrive_with_it(rig: Rig) -> None:
    transport, first = rig.connected()
    closing: list[Any] = []
    rig.peers.send(
        1, Purpose.FETCH, find_coordinator, find_coordinator.Request(key="k"), timeout_ms=1000, version_max=3
    ).deliver_to(lambda _: rig.peers.close(), closing.append)
    third = rig.send()
    frames = transport.requests()
    stream = ScriptedTransport()
    for frame in frames:
        stream.respond(frame, find_coordinator, find_coordinator.Response(port=1))
    transport.arrive(bytes(stream.arrived))

    assert first == [1]
    assert isinstance(third[0], PeerUnavailable)
    assert not closing


def test_closing_fails_what_waits_and_what_comes_after(rig: Rig) -> None:
    _, outcome = rig.connected()
    rig.peers.close()

    assert isinstance(outcome[0], PeerUnavailable)
    assert isinstance(rig.send()[0], NotSent)
    assert rig.loop.alarms <= 1


def raises(_: Any) -> None:
    raise RuntimeError("a bug of the consumer")


def test_a_consumer_that_raises_does_not_affect_the_responses_that_arrive_with_its_own(rig: Rig) -> None:
    """Each response belongs to the request of its place in the queue, so none may be skipped."""
    transport, first = rig.connected()
    rig.on_outcome(raises)
    third = rig.send()
    fourth = rig.send()
    frames = transport.requests()
    transport.respond_together(frames[:3], (1, 2, 3))
    transport.respond_together(frames[3:], (4,))

    assert (first, third, fourth) == ([1], [3], [4])
    assert [str(bug) for bug in rig.bugs] == ["a bug of the consumer"]
    assert not transport.closed


def test_a_consumer_that_raises_when_a_connection_fails_does_not_keep_the_others_waiting(rig: Rig) -> None:
    transport, first = rig.connected(1)
    rig.on_outcome(raises)
    third = rig.send()
    other, _ = rig.connected(2)
    rig.peers.close()

    assert isinstance(first[0], PeerUnavailable)
    assert isinstance(third[0], PeerUnavailable)
    assert (transport.closed, other.closed) == (True, True)
    assert len(rig.bugs) == 1


def test_a_response_that_cannot_be_decoded_fails_its_own_request_at_once(rig: Rig) -> None:
    transport, outcome = rig.connected()
    correlation_id = decode_request_header(transport.requests()[0]).correlation_id
    transport.arrive(pack(">iib", 5, correlation_id, 0))

    [error] = outcome
    assert isinstance(error, PeerUnavailable)
    assert "FindCoordinator" in str(error)
    assert transport.closed


def test_a_request_that_cannot_be_encoded_fails_alone(rig: Rig) -> None:
    """The requests wait for the connection together, and one is encoded while another one's caller calls in."""
    before = rig.send()
    unsendable: list[Any] = []
    rig.peers.send(
        1,
        Purpose.FETCH,
        find_coordinator,
        find_coordinator.Request(key="k" * 40_000),
        timeout_ms=1000,
        version_max=2,
    ).deliver_to(unsendable.append, unsendable.append)
    after = rig.send()
    rig.connect_all()
    transport = rig.transports[-1][1]
    transport.give_versions()
    transport.respond_together(transport.requests(), (1, 2))

    assert isinstance(unsendable[0], NotSent)
    assert len(rig.bugs) == 1
    assert (before, after) == ([1], [2])


def test_a_consumer_that_sends_again_when_a_broker_has_registered_again_shares_the_new_connection(rig: Rig) -> None:
    rig.connected()
    again: list[list[Any]] = []
    rig.on_outcome(lambda _: again.append(rig.send()))
    rig.addresses[1] = PeerAddress(host="host", port=9001, epoch=6)
    new = rig.send()
    rig.connect_all()
    assert len(rig.transports) == 2, "one connection of the former life, one of the present"
    transport = rig.transports[-1][1]
    transport.give_versions()
    transport.respond_together(transport.requests(), (1, 2))

    assert (again, new) == ([[1]], [2])


def test_a_consumer_may_close_all_connections_while_a_request_replaces_one(rig: Rig) -> None:
    rig.connected()
    rig.on_outcome(lambda _: rig.peers.close())
    rig.addresses[1] = PeerAddress(host="host", port=9001, epoch=6)
    outcome = rig.send()

    assert isinstance(outcome[0], NotSent)
    assert rig.peers.connections == 0
    assert not rig.connecting


def test_a_peer_that_accepts_and_never_responds_is_given_up_although_requests_keep_coming(rig: Rig) -> None:
    rig.send(timeout_ms=SETUP_MS // 2)
    rig.connect_all()
    silent = rig.transports[-1][1]
    for _ in range(6):
        rig.loop.pass_ms(SETUP_MS // 4)
        rig.send(timeout_ms=SETUP_MS // 2)
    assert silent.closed

    rig.connect_all()
    rig.transports[-1][1].give_versions()
    assert rig.peers.connections == 1


def test_a_connection_that_is_ready_outlives_the_time_to_become_so(rig: Rig) -> None:
    transport, outcome = rig.connected()
    transport.respond(transport.requests()[0], find_coordinator, find_coordinator.Response(port=7))
    rig.loop.pass_ms(2 * SETUP_MS)

    assert outcome == [7]
    assert not transport.closed


def test_a_connection_refused_before_its_task_is_returned_does_not_stay(rig: Rig) -> None:
    rig.eager = True
    rig.refused.add(9001)
    assert isinstance(rig.send()[0], NotSent)
    assert rig.peers.connections == 0

    rig.refused.clear()
    outcome = rig.send()
    transport = rig.transports[-1][1]
    transport.give_versions()
    transport.respond(transport.requests()[0], find_coordinator, find_coordinator.Response(port=7))
    assert outcome == [7]


def test_a_connection_that_fails_with_another_error_than_that_of_a_socket_fails_its_requests(rig: Rig) -> None:
    """A host name with a label of more than 63 characters, as an operator may advertise."""
    rig.failure = UnicodeError("label too long")
    rig.refused.add(9001)
    outcome = rig.send()
    rig.connect_all()

    assert isinstance(outcome[0], NotSent)
    assert rig.peers.connections == 0


def test_a_broker_whose_tasks_are_ending_sends_nothing_more(rig: Rig) -> None:
    rig.stopping = True
    outcome = rig.send()

    assert isinstance(outcome[0], NotSent)
    assert rig.peers.connections == 0
    assert not len(rig.peers.timers)


def test_a_connecting_task_that_is_cancelled_fails_its_requests(rig: Rig) -> None:
    outcome = rig.send()
    [connecting] = rig.connecting
    rig.connecting.clear()
    rig.waits = True
    connecting.send(None)
    with pytest.raises(GeneratorExit):
        connecting.throw(GeneratorExit)

    assert isinstance(outcome[0], NotSent)
    assert rig.peers.connections == 0


@pytest.mark.parametrize("error", [BrokenPipeError("gone"), RuntimeError("a bug of the transport")])
def test_a_transport_that_fails_when_it_has_room_again_fails_its_requests(rig: Rig, error: Exception) -> None:
    transport, outcome = rig.connected()
    transport.requests()
    transport.room = 0
    waiting = rig.send()
    transport.failure = error
    transport.make_room(1 << 20)

    assert isinstance(outcome[0], PeerUnavailable)
    assert isinstance(waiting[0], PeerUnavailable)
    assert transport.closed
    assert rig.bugs == ([error] if isinstance(error, RuntimeError) else [])


def test_responses_of_every_size_are_received_in_order(rig: Rig) -> None:
    transport, _ = rig.connected()
    transport.requests()
    rig.addresses.clear()
    rig.addresses[1] = PeerAddress(host="host", port=9001, epoch=5)
    counts = [1, 9_000, 1, 3_000, *[1] * (SMALL_RESPONSES + 1), 4_000, 1]
    seen: list[int] = []
    names = [f"{'t' * 100}{number}" for number in range(max(counts))]
    for count in counts:
        sent: Deferred[Any] = rig.peers.send(
            BrokerId(1), Purpose.TRANSACTIONS, metadata, metadata.Request(), timeout_ms=60_000, version_max=3
        )
        sent.deliver_to(lambda response: seen.append(len(response.topics)), pytest.fail)
        if len(rig.transports) == 1:
            rig.connect_all()
            rig.transports[-1][1].give_versions()
        [frame] = rig.transports[-1][1].requests()
        topics = [metadata.MetadataResponseTopic(name=name) for name in names[:count]]
        rig.transports[-1][1].respond(frame, metadata, metadata.Response(topics=topics))

    assert seen == counts
