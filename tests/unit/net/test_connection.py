"""A connection on one end of a socket pair; the test holds the other end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.model.deferred import Deferred
from penstock.net.connection import (
    FRAME_LARGE_BYTES,
    SENDMSG_BUFFERS_MAX,
    SHARE_REQUESTS,
    SHARE_S,
    Connection,
    ConnectionLimits,
)
from penstock.net.frame_memory import FrameMemory
from penstock.net.reply import CloseConnection, Frame, Outcome
from penstock.net.sockets import SocketTransport
from penstock.net.turns import Turns

PATIENCE_S = 120.0
"""For what must happen: far more than it takes, so that only a fault is ever noticed."""
LIMITS = ConnectionLimits(frame_bytes_max=1 << 20, requests_waiting_max=4, out_bytes_max=1 << 16)

MEMORY_BYTES = 16 << 20


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Peer:
    """The test's end, and everything the connection under test was given."""

    def __init__(
        self, serve: Callable[[Connection, memoryview], Outcome], limits: ConnectionLimits, memory: FrameMemory
    ) -> None:
        self.loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.sock = ours
        self.now_s = 100.0
        self.reasons: list[str] = []
        self.bugs: list[BaseException] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.connection = Connection(
            SocketTransport(theirs, self.loop),
            peer="test",
            listener="TEST",
            serve=serve,
            limits=limits,
            memory=memory,
            turns=Turns(self.loop.call_soon, lambda: self.now_s),
            loop=self.loop,
            monotonic=lambda: self.now_s,
            spawn=self.spawn,
            on_closed=lambda _, reason: self.reasons.append(reason),
            on_bug=lambda _, error: self.bugs.append(error),
        )
        self.connection.start()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def send(self, *bodies: bytes) -> None:
        await self.loop.sock_sendall(self.sock, b"".join(framed(body) for body in bodies))

    async def receive(self) -> bytes:
        length = int.from_bytes(await self.exactly(4), "big")
        return await self.exactly(length)

    async def exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = await asyncio.wait_for(self.loop.sock_recv(self.sock, count - len(got)), PATIENCE_S)
            assert piece, "the connection closed"
            got += piece
        return got

    async def until(self, fact: Callable[[], object]) -> None:
        """Let the loop turn until something is so."""
        end_s = self.loop.time() + PATIENCE_S
        while not fact():
            assert self.loop.time() < end_s, "it never came to that"
            await asyncio.sleep(0)

    async def closed(self) -> str:
        piece = await asyncio.wait_for(self.loop.sock_recv(self.sock, 1), PATIENCE_S)
        assert piece == b""
        return self.reasons[0]


def response(body: bytes) -> Frame | None:
    return [framed(body)]


@asynccontextmanager
async def peer(
    serve: Callable[[Connection, memoryview], Outcome],
    limits: ConnectionLimits = LIMITS,
    memory: FrameMemory | None = None,
) -> AsyncIterator[Peer]:
    made = Peer(serve, limits, FrameMemory(MEMORY_BYTES) if memory is None else memory)
    try:
        yield made
    finally:
        made.connection.close("the test is over")
        made.sock.close()
    assert made.bugs == []


def echo(_: Connection, frame: memoryview) -> Frame:
    return [framed(bytes(frame))]


def test_every_frame_of_one_segment_gets_its_response_in_order() -> None:
    async def scenario() -> None:
        async with peer(echo) as it:
            await it.send(b"one", b"two", b"", b"three")
            assert [await it.receive() for _ in range(4)] == [b"one", b"two", b"", b"three"]

    asyncio.run(scenario())


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 9])
def test_a_frame_may_arrive_in_pieces(cut: int) -> None:
    async def scenario() -> None:
        async with peer(echo) as it:
            data = framed(b"hello") + framed(b"world")
            await it.loop.sock_sendall(it.sock, data[:cut])
            await asyncio.sleep(0)
            await it.loop.sock_sendall(it.sock, data[cut:])
            assert await it.receive() == b"hello"
            assert await it.receive() == b"world"

    asyncio.run(scenario())


def test_large_and_small_frames_mixed_arrive_whole() -> None:
    sizes = [10, FRAME_LARGE_BYTES + 1, 3, 300_000, FRAME_LARGE_BYTES - 4, FRAME_LARGE_BYTES, 0, 999_999, 7]
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]

    async def scenario() -> None:
        async with peer(echo) as it:
            sending = asyncio.ensure_future(it.send(*bodies))
            for body in bodies:
                assert await it.receive() == body
            await sending

    asyncio.run(scenario())


def test_a_frame_past_the_limit_closes_the_connection_before_it_is_read() -> None:
    async def scenario() -> None:
        async with peer(echo) as it:
            await it.loop.sock_sendall(it.sock, b"\x7f\xff\xff\xff")
            assert "2147483647 bytes" in await it.closed()

    asyncio.run(scenario())


def test_a_negative_length_closes_the_connection() -> None:
    async def scenario() -> None:
        async with peer(echo) as it:
            await it.loop.sock_sendall(it.sock, b"\xff\xff\xff\xff1234")
            assert "are allowed" in await it.closed()

    asyncio.run(scenario())


def test_a_response_that_waits_holds_back_later_responses_but_not_later_requests() -> None:
    pending = Deferred[bytes]()
    served: list[bytes] = []

    def serve(_: Connection, frame: memoryview) -> Outcome:
        served.append(bytes(frame))
        return pending.then(response) if frame == b"wait" else [framed(bytes(frame))]

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"wait", b"next")
            await it.until(lambda: served == [b"wait", b"next"])
            pending.resolve(b"waited")
            assert await it.receive() == b"waited"
            assert await it.receive() == b"next"

    asyncio.run(scenario())


def test_responses_of_one_turn_are_sent_together() -> None:
    waiting: asyncio.Queue[Deferred[bytes]] = asyncio.Queue()

    def serve(_: Connection, frame: memoryview) -> Outcome:
        pending = Deferred[bytes]()
        waiting.put_nowait(pending)
        return pending.then(response)

    async def work() -> None:
        async with peer(serve) as client:
            await client.send(b"1", b"2", b"3")
            first, second, third = [await waiting.get() for _ in range(3)]

            first.resolve(b"one")
            second.resolve(b"two")
            with pytest.raises(BlockingIOError):
                client.sock.recv(100)
            third.resolve(b"three")
            together = client.sock.recv(100)

            assert together == framed(b"one") + framed(b"two") + framed(b"three")

    asyncio.run(work())


def test_a_response_does_not_wait_for_one_behind_it_beyond_the_turn() -> None:
    waiting: asyncio.Queue[Deferred[bytes]] = asyncio.Queue()

    def serve(_: Connection, frame: memoryview) -> Outcome:
        pending = Deferred[bytes]()
        waiting.put_nowait(pending)
        return pending.then(response)

    async def work() -> None:
        async with peer(serve) as client:
            await client.send(b"1", b"2")
            first, _ = [await waiting.get() for _ in range(2)]

            first.resolve(b"one")

            assert await client.receive() == b"one"

    asyncio.run(work())


def test_a_response_resolved_before_it_is_delivered_goes_out_at_once() -> None:
    def serve(_: Connection, frame: memoryview) -> Outcome:
        pending = Deferred[bytes]()
        pending.resolve(bytes(frame))
        return pending.then(response)

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"a", b"b", b"c")
            assert [await it.receive() for _ in range(3)] == [b"a", b"b", b"c"]

    asyncio.run(scenario())


def test_a_coroutine_holds_the_requests_behind_it() -> None:
    gate = asyncio.Event()
    served: list[bytes] = []

    async def slow(body: bytes) -> Frame | None:
        await gate.wait()
        served.append(b"end of " + body)
        return [framed(body)]

    def serve(connection: Connection, frame: memoryview) -> Outcome:
        served.append(bytes(frame))
        return connection.run(slow(bytes(frame))) if frame == b"slow" else [framed(bytes(frame))]

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"slow", b"next")
            await it.until(lambda: served)
            for _ in range(10):
                await asyncio.sleep(0)
            assert served == [b"slow"]
            gate.set()
            assert await it.receive() == b"slow"
            assert await it.receive() == b"next"
            assert served == [b"slow", b"end of slow", b"next"]

    asyncio.run(scenario())


def test_a_held_request_completes_before_later_requests_are_served() -> None:
    verified = Deferred[str]()
    order: list[str] = []

    def write(value: str) -> Frame | None:
        order.append(value)
        return [framed(b"written")]

    def serve(connection: Connection, frame: memoryview) -> Outcome:
        order.append(bytes(frame).decode())
        return (
            connection.hold(verified).then(write, shielded=connection.report)
            if frame == b"write"
            else response(bytes(frame))
        )

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"write", b"next")
            await it.until(lambda: order)
            for _ in range(10):
                await asyncio.sleep(0)
            verified.resolve("verified")
            assert order == ["write"], "in a turn of its own"
            assert [await it.receive(), await it.receive()] == [b"written", b"next"]
            assert order == ["write", "verified", "next"]

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", ["hold", "run"])
def test_the_work_of_a_disconnected_peer_is_done_and_its_response_abandoned(waits: str) -> None:
    written = Deferred[Frame | None]()
    order: list[str] = []

    def write(_: None) -> Deferred[Frame | None]:
        order.append("written")
        return written

    async def scenario() -> None:
        gate = asyncio.Event()
        verified = Deferred[None]()

        async def verify_and_write() -> Outcome:
            await gate.wait()
            return write(None)

        def serve(connection: Connection, frame: memoryview) -> Outcome:
            order.append("asked")
            if waits == "run":
                return connection.run(verify_and_write())
            return connection.hold(verified).then(write, shielded=connection.report)

        async with peer(serve) as it:
            await it.send(b"write")
            await it.until(lambda: order)
            it.sock.shutdown(socket.SHUT_WR)
            it.connection.close("the peer is gone")
            gate.set()
            verified.resolve(None)
            await it.until(lambda: order == ["asked", "written"])
            await it.until(lambda: written.abandoned)
            assert it.bugs == []

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", ["hold", "run"])
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_bug_in_held_work_is_reported_once_also_for_a_disconnected_peer(waits: str, *, is_gone: bool) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        verified = Deferred[None]()
        served: list[bytes] = []

        def broken(_: object) -> Outcome:
            raise ZeroDivisionError

        async def wait() -> None:
            await gate.wait()

        def serve(connection: Connection, frame: memoryview) -> Outcome:
            served.append(bytes(frame))
            if waits == "run":
                waited = connection.run(wait())
                assert isinstance(waited, Deferred)
                return waited.then(broken, shielded=connection.report).then(lambda frame: frame)
            return connection.hold(verified).then(broken, shielded=connection.report).then(lambda frame: frame)

        async with peer(serve) as it:
            await it.send(b"work")
            await it.until(lambda: served)
            if is_gone:
                it.connection.close("the peer is gone")
            gate.set()
            verified.resolve(None)
            await it.until(lambda: it.bugs)
            assert [type(bug) for bug in it.bugs] == [ZeroDivisionError]
            assert it.connection.closed
            it.bugs.clear()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_bug_in_work_of_several_turns_is_reported_once_also_for_a_peer_that_left(*, is_gone: bool) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        served: list[bytes] = []

        async def broken() -> Outcome:
            await gate.wait()
            raise ZeroDivisionError

        def serve(connection: Connection, frame: memoryview) -> Outcome:
            served.append(bytes(frame))
            return connection.run(broken())

        async with peer(serve) as it:
            await it.send(b"work")
            await it.until(lambda: served)
            if is_gone:
                it.connection.close("the peer is gone")
            gate.set()
            await it.until(lambda: it.bugs)
            assert [type(bug) for bug in it.bugs] == [ZeroDivisionError]
            assert it.connection.closed
            it.bugs.clear()

    asyncio.run(scenario())


def test_waiting_requests_are_bounded() -> None:
    waiting: list[Deferred[bytes]] = []

    def serve(_: Connection, frame: memoryview) -> Outcome:
        waiting.append(Deferred[bytes]())
        return waiting[-1].then(response)

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(*(b"%d" % number for number in range(10)))
            await it.until(lambda: len(waiting) >= LIMITS.requests_waiting_max)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(waiting) == LIMITS.requests_waiting_max
            for number in range(10):
                waiting[number].resolve(b"%d" % number)
                assert await it.receive() == b"%d" % number

    asyncio.run(scenario())


def test_a_reader_that_does_not_read_is_not_read_from() -> None:
    served = 0
    response = bytes(1 << 16)

    def serve(_: Connection, __: memoryview) -> Outcome:
        nonlocal served
        served += 1
        return [framed(response)]

    async def scenario() -> None:
        async with peer(serve) as it:
            requests = 2_000
            sending = asyncio.ensure_future(it.send(*[b"x"] * requests))
            for _ in range(50):
                await asyncio.sleep(0)
            taken_up = served
            assert taken_up < requests
            for _ in range(requests):
                assert await it.receive() == response
            await sending
            assert served == requests

    asyncio.run(scenario())


class Slice:
    """A part of a file, as storage hands one out."""

    def __init__(self, path: Path, position: int, length: int) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self.position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self.fileno(), size, position)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


def test_a_slice_of_a_file_is_sent_between_its_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "log"
    content = os.urandom(3_000_000)
    path.write_bytes(content)
    piece = Slice(path, 17, 2_900_000)

    def serve(_: Connection, __: memoryview) -> Outcome:
        return [(len(piece) + 6).to_bytes(4, "big"), b"abc", piece, b"xyz"]

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"get", b"get")
            for _ in range(2):
                assert await it.receive() == b"abc" + content[17 : 17 + 2_900_000] + b"xyz"

    asyncio.run(scenario())
    piece.close()


@pytest.mark.timeout(60)  # A loop that never ends is what this is about.
@pytest.mark.parametrize("pieces", [1, SENDMSG_BUFFERS_MAX, SENDMSG_BUFFERS_MAX + 1])
def test_empty_pieces_of_a_response_do_not_block_it(pieces: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"of a file")
    nothing = Slice(path, 0, 0)

    def serve(_: Connection, __: memoryview) -> Outcome:
        return [pieces.to_bytes(4, "big"), b"", *[b"x"] * pieces, b"", nothing, b""]

    async def scenario() -> None:
        async with peer(serve) as it:
            for _ in range(2):
                await it.send(b"ask")
                assert await it.receive() == b"x" * pieces

    asyncio.run(scenario())
    nothing.close()


def test_a_file_that_ends_before_its_slice_closes_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short")
    piece = Slice(path, 0, 6)

    async def scenario() -> None:
        async with peer(lambda _, __: [len(piece).to_bytes(4, "big"), piece]) as it:
            await it.send(b"get")
            assert await it.exactly(4 + 5) == b"\0\0\0\6short"
            assert await it.closed() == "send failed: a file ended before its slice"

    asyncio.run(scenario())
    piece.close()


def test_closing_abandons_pending_responses() -> None:
    abandoned: list[bool] = []
    served: list[bytes] = []

    def serve(_: Connection, frame: memoryview) -> Outcome:
        served.append(bytes(frame))
        return Deferred[Frame | None](lambda: abandoned.append(True))

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"wait", b"wait")
            await it.until(lambda: len(served) == 2)
            it.sock.shutdown(socket.SHUT_WR)
            await it.closed()

    asyncio.run(scenario())
    assert abandoned == [True, True]


def test_a_request_without_a_response_closes_with_its_reason() -> None:
    def serve(_: Connection, __: memoryview) -> Outcome:
        raise CloseConnection("no such api")

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"?")
            assert await it.closed() == "no such api"

    asyncio.run(scenario())


MUTED_S = 0.05


def test_a_muted_connection_takes_up_nothing_until_its_time_is_over() -> None:
    served_s: list[float] = []

    def serve(connection: Connection, frame: memoryview) -> Outcome:
        served_s.append(asyncio.get_running_loop().time())
        if frame == b"mute":
            connection.mute(MUTED_S)
        return [framed(bytes(frame))]

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"mute", b"next")
            assert await it.receive() == b"mute"
            assert await it.receive() == b"next"
            muted_s, next_s = served_s
            # The loop may round a time by the resolution of its clock.
            assert next_s - muted_s >= MUTED_S * 0.9

    asyncio.run(scenario())


def test_of_several_mutes_the_one_that_ends_last_counts() -> None:
    served_s: list[float] = []

    def serve(connection: Connection, frame: memoryview) -> Outcome:
        served_s.append(asyncio.get_running_loop().time())
        if frame == b"mute":
            for seconds in (MUTED_S / 10, MUTED_S, MUTED_S / 5):
                connection.mute(seconds)
        return [framed(bytes(frame))]

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"mute", b"next")
            assert await it.receive() == b"mute"
            assert await it.receive() == b"next"
            muted_s, next_s = served_s
            assert next_s - muted_s >= MUTED_S * 0.9

    asyncio.run(scenario())


def test_a_muted_connection_that_closes_is_not_kept_until_its_time_is_over() -> None:
    async def scenario() -> None:
        async with peer(echo) as it:
            it.connection.mute(3_600)
            timer = it.connection._unmute_timer
            assert timer is not None
            it.connection.close("the test is over")
            assert timer.cancelled(), "the loop lets go of what a cancelled timer would have called"

    asyncio.run(scenario())


def test_a_missed_deadline_is_named() -> None:
    async def scenario() -> None:
        async with peer(echo) as it:
            assert it.connection.overdue(it.now_s + 59) is None
            assert "no request" in (it.connection.overdue(it.now_s + 61) or "")
            await it.send(b"one")
            assert await it.receive() == b"one"
            assert it.connection.overdue(it.now_s + 61) is None
            assert "idle" in (it.connection.overdue(it.now_s + 601) or "")
            await it.loop.sock_sendall(it.sock, b"\0\0\0\x09half")
            await it.until(lambda: "whole" in (it.connection.overdue(it.now_s + 61) or ""))

    asyncio.run(scenario())


async def most_served_in_a_turn(step_s: float, requests: int) -> int:
    """How many requests of one segment are served in one turn of the loop, each of which takes so long."""
    turn = 0
    per_turn: Counter[int] = Counter()

    def serve(_: Connection, frame: memoryview) -> Outcome:
        per_turn[turn] += 1
        it.now_s += step_s
        return [framed(bytes(frame))]

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        counting[0] = it.loop.call_soon(count_turns)

    async with peer(serve) as it:
        counting = [it.loop.call_soon(count_turns)]
        await it.send(*(b"%d" % number for number in range(requests)))
        for number in range(requests):
            assert await it.receive() == b"%d" % number
        counting[0].cancel()
    assert per_turn.total() == requests
    return max(per_turn.values())


def test_the_requests_of_one_segment_are_served_in_shares_of_a_turn() -> None:
    # A segment on its way may come in two pieces, each in a turn of its own with what is left of the one before.
    assert asyncio.run(most_served_in_a_turn(0.0, 2_000)) <= 2 * SHARE_REQUESTS
    assert asyncio.run(most_served_in_a_turn(SHARE_S / 4, 200)) <= 8
    assert asyncio.run(most_served_in_a_turn(1.0, 20)) <= 2


def test_large_frames_of_many_connections_stay_within_their_memory_and_all_arrive() -> None:
    memory = FrameMemory(2 << 20)
    body = bytes(1_000_000)

    async def ask(it: Peer) -> bool:
        sending = asyncio.ensure_future(it.send(body))
        response = await it.receive()
        await sending
        return response == b"ok"

    async def scenario() -> None:
        used: list[int] = []

        def serve(_: Connection, frame: memoryview) -> Outcome:
            used.append(memory.used)
            return [framed(b"ok" if frame == body else b"damaged")]

        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(peer(serve, memory=memory)) for _ in range(8)]
            for _ in range(3):
                assert all(await asyncio.gather(*map(ask, peers)))
            assert max(used) <= memory.bytes_max + LIMITS.frame_bytes_max
        assert memory.used == 0

    asyncio.run(scenario())


def test_half_a_frame_holds_its_memory_no_longer_than_a_frame_may_take() -> None:
    memory = FrameMemory(600_000)
    half = framed(bytes(1_000_000))[:500_000]

    async def scenario() -> None:
        async with peer(echo, memory=memory) as first, peer(echo, memory=memory) as second:
            sending = [asyncio.ensure_future(it.loop.sock_sendall(it.sock, half)) for it in (first, second)]
            await first.until(lambda: memory.waiting)
            late_s = first.now_s + LIMITS.frame_s + 1

            assert first.connection.overdue(late_s) or second.connection.overdue(late_s)
            for it in (first, second):
                it.connection.close("overdue")
            await asyncio.gather(*sending, return_exceptions=True)
            assert memory.used == 0

    asyncio.run(scenario())


def test_a_frame_that_is_late_is_noticed_beside_a_response_that_waits() -> None:
    served: list[bytes] = []

    def serve(_: Connection, frame: memoryview) -> Outcome:
        served.append(bytes(frame))
        return Deferred[Frame | None]()

    async def scenario() -> None:
        async with peer(serve) as it:
            await it.send(b"wait")
            await it.until(lambda: served)
            await it.loop.sock_sendall(it.sock, b"\0\0\0\x09half")
            await it.until(lambda: "whole" in (it.connection.overdue(it.now_s + LIMITS.frame_s + 1) or ""))

    asyncio.run(scenario())
