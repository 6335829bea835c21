"""One client's connection: bytes in, frames to the server, responses out in the order of their requests.

Its transport (`penstock.net.transport`) is driven by readiness callbacks instead of asyncio's streams, for two reasons
that can be measured: received bytes land in one buffer that is handed on without a copy, and a file's bytes leave by
`sendfile` without ever entering the process.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutine
from typing import Any, Protocol, TypeVar, cast

from penstock.model.deferred import Deferred
from penstock.net.eager import begun
from penstock.net.frame_memory import FrameMemory
from penstock.net.reply import Buffer, CloseConnection, FileRange, Frame, Outcome
from penstock.net.transport import Transport
from penstock.net.turns import Turns

T = TypeVar("T")

SOFTWARE_UNKNOWN = ("unknown", "unknown")
"""Name and version of a client that sent none; Kafka uses the same words."""

LENGTH_BYTES = 4
BUFFER_REST_BYTES = 4 * 1024
"""A connection's buffer while it is idle: ten thousand idle clients cost 40 MB."""

BUFFER_BYTES = 64 * 1024
"""Its buffer while it is busy. A larger frame gets a larger buffer. An idle connection releases both."""

FRAME_LARGE_BYTES = 64 * 1024
"""A frame of this size or more is received alone, so that the bytes behind it never have to be moved."""

IN_MEMORY = (bytes, bytearray, memoryview)
FRAME_GROWTH_BYTES = 256 * 1024
"""What a large frame is charged for before its bytes arrive; then twice what has arrived, where that is more."""

BUFFER_KEPT_BYTES = 4 << 20
"""A buffer of at most this size is kept for the next large frame."""

SHARE_S = 0.002
SHARE_REQUESTS = 256
"""The share of one connection in a turn of the loop; further requests wait for later turns. The bytes are bounded by
its buffer, which holds a large frame or 64 KiB of small ones."""

SENDMSG_BUFFERS_MAX = 512
SENDFILE_BYTES_MAX = 4 << 20
"""One `sendfile` call sends at most this much, so that one fast reader cannot hold the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds on everything that a peer can use."""

    frame_bytes_max: int
    requests_waiting_max: int = 128
    """Outstanding responses of one connection; with so many, it is not read."""
    out_bytes_max: int = 2 << 20
    """Unsent response bytes of one connection; beyond, it is not read."""
    idle_s: float = 600.0
    frame_s: float = 60.0
    """How long a frame may take to arrive, from its first byte to its last."""
    first_request_s: float = 60.0


class Serve(Protocol):
    """Called by a connection with each whole frame. The view is valid until the response is made."""

    def __call__(self, connection: Connection, frame: memoryview) -> Outcome: ...


class Slot:
    """A place in the queue of responses."""

    __slots__ = ("frame", "ready", "waited_for")

    def __init__(self, waited_for: Deferred[Frame | None] | None) -> None:
        self.waited_for = waited_for
        self.frame: Frame = []
        self.ready = False


class Connection:
    """One peer. Its requests are served in order, and responses sent in order even where a later one is ready first.

    An unexpected exception closes this connection and is reported once to `on_bug`. It is not raised further, because
    the caller (the loop, a listener, a waiter of many connections) serves others too.
    """

    __slots__ = (
        "_charged", "_closed_callback", "_end", "_frame_began_s", "_gathering", "_held", "_kept", "_last_active_s",
        "_limits", "_loop", "_memory", "_muted", "_on_bug", "_out", "_out_bytes", "_queued", "_reading",
        "_receive_into", "_send_one", "_serve", "_slots", "_spawn", "_start", "_starved_for", "_turns",
        "_unmute_timer", "_view", "_when_closed", "_working", "_writing", "bytes_in", "bytes_out",
        "closed", "listener", "monotonic", "peer", "requests", "software", "transport",
    )  # fmt: skip

    def __init__(
        self,
        transport: Transport,
        *,
        peer: str,
        listener: str,
        serve: Serve,
        limits: ConnectionLimits,
        memory: FrameMemory,
        turns: Turns,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_closed: Callable[[Connection, str], None],
        on_bug: Callable[[str, BaseException], None],
    ) -> None:
        self.transport = transport
        # Bound once, since every request calls them.
        self._receive_into = transport.receive_into
        self._send_one = transport.send
        self.peer = peer
        self.listener = listener
        self.software: tuple[str, str] = SOFTWARE_UNKNOWN
        """Name and version of the client library, from its ApiVersions request (KIP-511)."""
        self._serve = serve
        self._limits = limits
        self._memory = memory
        self._turns = turns
        self._loop = loop
        self.monotonic = monotonic
        self._spawn = spawn
        self._closed_callback = on_closed
        self._on_bug = on_bug
        self._view = memoryview(bytearray(BUFFER_REST_BYTES))
        self._charged = 0
        """Bytes of a large buffer that may be received into."""
        self._kept = False
        """Whether the memory may take a large buffer back."""
        self._starved_for = 0
        """Bytes of memory that a large frame waits for."""
        self._start = 0
        self._end = 0
        self._out: deque[Buffer | RestOfFile] = deque()
        self._out_bytes = 0
        self._slots: deque[Slot] = deque()
        self._reading = False
        self._writing = False
        self._gathering = False
        self._held = 0
        """Requests that keep the next one from being served, since their effects have to come first."""
        self._muted = False
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._queued = False
        self._working = False
        self._when_closed: dict[Callable[[Connection], None], None] | None = None
        """What belongs to this connection and ends with it, besides its requests; few connections have any."""
        self.closed = False
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._last_active_s = monotonic()
        self._frame_began_s = 0.0

    def start(self) -> None:
        try:
            self._resume()
        except Exception as error:
            self.fail(error)

    # Reading

    def _resume(self) -> None:
        """Read further requests, unless something prevents it."""
        if self._reading or self._blocked() or self._starved_for:
            return
        if self._frame_began_s:
            # The peer could not send while nothing was read, so that time does not count.
            self._frame_began_s = self.monotonic()
        self._reading = True
        self.transport.on_readable(self._on_readable)

    def _blocked(self) -> bool:
        """Whether no request may be served: a request holds, a throttle, unsent responses, or its share is used up."""
        return self.closed or self._held > 0 or self._muted or self._queued or self._full()

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.on_readable(None)

    def _full(self) -> bool:
        return self._out_bytes > self._limits.out_bytes_max or len(self._slots) >= self._limits.requests_waiting_max

    def _on_readable(self) -> None:
        try:
            try:
                room = self._room()
                if room is None:
                    self._pause()
                    return
                received = self._receive_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.close(f"receive failed: {error.strerror}")
                return
            if received == 0:
                self.close("the peer closed" if self._start == self._end else "the peer closed inside a frame")
                return
            self._end += received
            self.bytes_in += received
            self._last_active_s = self.monotonic()
            self._work()
        except Exception as error:
            self.fail(error)

    def _room(self) -> memoryview | None:
        """Where the next bytes go: the rest of a large frame alone, or all the buffer has left.

        None: there is no memory for more of a large frame now.
        """
        start, end = self._start, self._end
        if end - start >= LENGTH_BYTES:
            whole = LENGTH_BYTES + int.from_bytes(self._view[start : start + LENGTH_BYTES], "big")
            if whole > FRAME_LARGE_BYTES:
                return self._room_for_large(whole)
        if end >= min(len(self._view), BUFFER_BYTES):
            assert start > 0 or end < BUFFER_BYTES, "a frame as large as the buffer is received alone"
            self._move_to_front(BUFFER_BYTES)
        return self._view[self._end : BUFFER_BYTES]

    def _room_for_large(self, whole: int) -> memoryview | None:
        if self._kept:
            self._kept = False
            self._memory.reuse(self)
        # The length of the frame behind it comes along, so that the next read is exact as well.
        wanted = whole + LENGTH_BYTES
        # A peer can announce any length, so memory is charged as the bytes arrive.
        charge = min(wanted, max(FRAME_GROWTH_BYTES, 2 * (self._end - self._start)))
        if self._start + charge > self._charged:
            self._move_to_front(wanted)
            missing = charge - self._charged
            if missing > 0:
                if not self._memory.take(self, missing):
                    self._starved_for = missing
                    return None
                self._charged += missing
        return self._view[self._end : self._start + min(wanted, self._charged - self._start)]

    def _move_to_front(self, wanted: int) -> None:
        """Make room for `wanted` bytes from the first unserved byte on."""
        start, end = self._start, self._end
        if wanted > len(self._view):
            view = memoryview(mapped(wanted) if wanted > BUFFER_BYTES else bytearray(wanted))
            view[: end - start] = self._view[start:end]
            self._view = view
        elif start:
            self._view[: end - start] = bytes(self._view[start:end])
        self._start, self._end = 0, end - start

    def memory_granted(self) -> None:
        try:
            self._charged += self._starved_for
            self._starved_for = 0
            self._resume()
        except Exception as error:
            self.fail(error)

    def drop_memory(self) -> bool:
        """Release a large buffer that holds no large frame; False while a request in it is being served."""
        if self._working or self._held:
            return False
        self._kept = False
        self._charged = 0
        left = self._view[self._start : self._end]
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._view[: len(left)] = left
        self._start, self._end = 0, len(left)
        return True

    def _keep_memory(self) -> None:
        """After a large frame, keep its buffer for the next one unless it is very large; the memory may reclaim it."""
        if len(self._view) <= BUFFER_KEPT_BYTES:
            self._kept = True
            self._memory.keep(self)
        else:
            self._shrink(BUFFER_BYTES)

    def _shrink(self, size: int) -> None:
        """Replace an empty buffer by one of this size."""
        self._view = memoryview(bytearray(size))
        if self._charged:
            self._kept = False
            self._charged = 0
            self._memory.release(self)

    def _work(self) -> None:
        """Serve the whole frames in the buffer, up to its share of the turn, and send their responses together."""
        self._working = True
        while self._serve_frames():
            if not self._writing:
                self._flush()
            if self._full():
                break
        self._working = False
        if self.closed:
            return
        if self._start == self._end:
            self._start = self._end = 0
            self._frame_began_s = 0.0
            if self._charged and not self._held and not self._kept:
                self._keep_memory()
        elif not self._held and self._frame_began_s == 0.0:
            self._frame_began_s = self._last_active_s
        if self._out and not self._writing:
            self._flush()
        if self._held or self._muted or self._queued or self._full():
            self._pause()

    def _serve_frames(self) -> bool:
        """Serve whole frames; True where it stopped with frames left because too many responses are unsent."""
        view = self._view
        limits = self._limits
        served = 0
        while not (self._held or self._muted or self.closed):
            start = self._start
            available = self._end - start
            if available < LENGTH_BYTES:
                return False
            length = int.from_bytes(view[start : start + LENGTH_BYTES], "big")
            if length > limits.frame_bytes_max:
                self.close(f"a frame of {length} bytes, more than {limits.frame_bytes_max} are allowed")
                return False
            if available < LENGTH_BYTES + length:
                return False
            if self._out_bytes > limits.out_bytes_max or len(self._slots) >= limits.requests_waiting_max:
                return True
            body = start + LENGTH_BYTES
            self._start = body + length
            self._serve_frame(view[body : body + length])
            if self._start == self._end:
                return False
            served += 1
            if served == SHARE_REQUESTS or self.monotonic() - self._last_active_s > SHARE_S:
                self._wait_for_turn()
                return False
        return False

    def _wait_for_turn(self) -> None:
        """Let the loop serve others before the next request, since this connection's share is used up."""
        if not self.closed:
            self._queued = True
            self._turns.add(self)

    def take_turn(self) -> None:
        """Serve another share."""
        try:
            self._queued = False
            self._go_on()
        except Exception as error:
            self.fail(error)

    def _serve_frame(self, frame: memoryview) -> None:
        self.requests += 1
        self._frame_began_s = 0.0
        try:
            outcome = self._serve(self, frame)
            if outcome is None:
                return
            if type(outcome) is list:
                self._respond(outcome)
            else:
                assert isinstance(outcome, Deferred)
                slot = Slot(outcome)
                self._slots.append(slot)
                outcome.deliver_to(partial(self._fill, slot), self._unserved)
        except CloseConnection as reason:
            self.close(str(reason))

    def _respond(self, frame: Frame) -> None:
        if self._slots:
            slot = Slot(None)
            slot.frame = frame
            slot.ready = True
            self._slots.append(slot)
            return
        for buffer in frame:
            self._out_bytes += len(buffer)
        self._out.extend(frame)

    def _fill(self, slot: Slot, frame: Frame | None) -> None:
        """Fill in a response that was deferred; None where the protocol wants none."""
        try:
            slot.waited_for = None
            if frame is not None:
                slot.frame = frame
            slot.ready = True
            self._drain_slots()
        except Exception as error:
            self.fail(error)

    def _unserved(self, error: Exception) -> None:
        """Close because a deferred response failed: none behind it may be sent."""
        if isinstance(error, CloseConnection):
            self.close(str(error))
        else:
            self.fail(error)

    def _drain_slots(self) -> None:
        """Send the responses that are ready, up to the first that is not."""
        if self.closed:
            return
        slots = self._slots
        while slots and slots[0].ready:
            for buffer in slots[0].frame:
                self._out_bytes += len(buffer)
            self._out.extend(slots.popleft().frame)
        if self._working:
            return
        if slots and self._out:
            # Responses complete in bursts: this peer's next one is likely to be ready before the turn ends.
            if not self._gathering:
                self._gathering = True
                self._loop.call_soon(self._gathered)
            return
        if self._out and not self._writing:
            self._flush()
        self._go_on()

    def _gathered(self) -> None:
        """Send the responses that became ready in this turn."""
        try:
            self._gathering = False
            if self.closed:
                return
            if self._out and not self._writing:
                self._flush()
            self._go_on()
        except Exception as error:
            self.fail(error)

    # Requests that hold the connection

    def hold(self, until: Deferred[T]) -> Deferred[T]:
        """Serve no other request of this peer before this completes: the effects of this one come before theirs.

        A peer that leaves does not undo its request: abandoning the returned Deferred leaves `until` to complete, and
        what is done with its value should be `shielded`. The next request is served in a turn of its own, since the
        code that completes `until` serves others too.
        """
        if not until.waiting:
            return until
        self._held += 1
        held: Deferred[T] = Deferred()

        def go_on(complete: Callable[[Any], None], outcome: T | Exception) -> None:
            try:
                complete(outcome)
                self._release()
            except Exception as error:
                self.fail(error)

        def go_on_later(complete: Callable[[Any], None], outcome: T | Exception) -> None:
            try:
                self._loop.call_soon(go_on, complete, outcome)
            except Exception as error:
                self.fail(error)

        until.deliver_to(partial(go_on_later, held.resolve), partial(go_on_later, held.fail))
        return held

    def run(self, work: Coroutine[Any, Any, T | Deferred[T]]) -> T | Deferred[T]:
        """Do work that may take several turns of the loop. No other request of this peer is served before it ends.

        It begins at once, and most work ends without a wait: then its result is returned. It is finished even if the
        peer leaves meanwhile, unless it checks for that.
        """
        rest = begun(work)
        if not iscoroutine(rest):
            return cast("T | Deferred[T]", rest)
        result: Deferred[T] = Deferred()
        self._held += 1
        task = self._finish(rest, result)
        try:
            self._spawn(task)
        except Exception:
            # A listener that is stopping starts no task.
            task.close()
            rest.close()
            raise
        return result

    async def _finish(self, work: Coroutine[Any, Any, T | Deferred[T]], result: Deferred[T]) -> None:
        try:
            try:
                value = await work
            except Exception as error:
                if result.abandoned:
                    self.report(error)
                result.fail(error)
            else:
                result.complete_with(value)
            self._release()
        except Exception as error:
            self.fail(error)
        except BaseException:
            # Cancelled: the request gets no response, so no later request may get one.
            self.close("a request was cancelled")
            raise

    def _release(self) -> None:
        self._held -= 1
        if self._held or self.closed:
            return
        if self._out and not self._writing:
            self._flush()
        self._go_on()

    def _go_on(self) -> None:
        """Serve what is in the buffer, then read on."""
        if self._blocked():
            return
        if self._end > self._start:
            self._last_active_s = self.monotonic()
            self._work()
        elif self._charged and not self._kept:
            self._keep_memory()
        self._resume()

    # Writing

    def _flush(self) -> None:
        try:
            self._send()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"send failed: {error.strerror}")
            return
        if self._out:
            if not self._writing:
                self._writing = True
                self.transport.on_writable(self._on_writable)
        elif self._writing:
            self._writing = False
            self.transport.on_writable(None)

    def _on_writable(self) -> None:
        try:
            before = self._out_bytes
            self._flush()
            if self._out_bytes < before:
                self._last_active_s = self.monotonic()
            if not self._reading:
                self._go_on()
        except Exception as error:
            self.fail(error)

    def _send(self) -> None:
        """Send until nothing is left or the kernel takes no more: a piece that is taken in part is the last one."""
        out = self._out
        while out:
            first = out[0]
            if isinstance(first, RestOfFile):
                if not self._send_file(first):
                    return
            elif not len(first):
                # Sending an empty buffer makes no progress, so the loop would never end.
                out.popleft()
            elif isinstance(first, IN_MEMORY):
                if not self._sent(self._send_one(first) if len(out) == 1 else self._send_vector()):
                    return
            else:
                out[0] = RestOfFile(first)

    def _send_file(self, rest: RestOfFile) -> bool:
        """Send the next bytes of a file; whether the kernel took all it was asked to."""
        wanted = min(rest.length, SENDFILE_BYTES_MAX)
        sent = self.transport.send_file(rest.file, rest.position, wanted)
        if sent == 0:
            raise OSError(errno.EIO, "a file ended before its slice")
        self._out_bytes -= sent
        self.bytes_out += sent
        rest.position += sent
        rest.length -= sent
        if not rest.length:
            self._out.popleft()
        return sent == wanted

    def _send_vector(self) -> int:
        vector: list[bytes | bytearray | memoryview] = []
        file_follows = False
        for buffer in self._out:
            if not isinstance(buffer, IN_MEMORY):
                file_follows = True
                break
            vector.append(buffer)
            if len(vector) == SENDMSG_BUFFERS_MAX:
                break
        return self.transport.send_vector(vector, file_follows)

    def _sent(self, sent: int) -> bool:
        """Remove what was sent; whether it ended between two pieces."""
        self._out_bytes -= sent
        self.bytes_out += sent
        out = self._out
        while sent:
            first = out[0]
            assert isinstance(first, IN_MEMORY)
            length = len(first)
            if sent < length:
                out[0] = memoryview(first)[sent:]
                return False
            sent -= length
            out.popleft()
        return True

    # Life

    def mute(self, seconds: float) -> None:
        """Read nothing for a while: what a throttled client would send waits in its own socket.

        Of several waits, as requests that were pipelined bring them, the one that ends last counts.
        """
        if self.closed:
            return
        timer = self._unmute_timer
        if timer is not None:
            if timer.when() >= self._loop.time() + seconds:
                return
            timer.cancel()
        self._muted = True
        self._pause()
        self._unmute_timer = self._loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        try:
            self._muted = False
            self._unmute_timer = None
            self._last_active_s = self.monotonic()
            self._go_on()
        except Exception as error:
            self.fail(error)

    def overdue(self, now_s: float, *, is_reset: bool = False) -> str | None:
        """Why this connection should be closed, if it should. Called from time to time.

        What a muted peer sent before it reset is served even so: it may be a producer that wants no response.
        """
        if is_reset and not self._muted:
            return "the peer reset the connection"
        limits = self._limits
        late_s = now_s - self._frame_began_s if self._frame_began_s else 0.0
        # Only while the peer is awaited. One that holds memory and waits for more must not hold it for ever.
        waits = self._reading or self._out_bytes > limits.out_bytes_max or (self._starved_for and self._charged)
        if late_s > limits.frame_s and waits:
            return f"a frame did not arrive whole within {limits.frame_s:g} s"
        if self._held or self._muted or self._queued or self._slots or self._starved_for:
            # A reset may go unnoticed while a response waits: some loops report an error only to a reader.
            return self.transport.peer_left()
        quiet_s = now_s - self._last_active_s
        if not self.requests and quiet_s > limits.first_request_s:
            return f"no request within {limits.first_request_s:g} s"
        if quiet_s > limits.idle_s:
            return f"idle for {limits.idle_s:g} s"
        if self._start == self._end and len(self._view) > BUFFER_REST_BYTES and quiet_s > 1.0:
            self._shrink(BUFFER_REST_BYTES)
        return None

    def when_closed(self, callback: Callable[[Connection], None]) -> None:
        """Call back once when this connection is closed, however often that is asked."""
        if self._when_closed is None:
            self._when_closed = {}
        self._when_closed[callback] = None

    def close(self, reason: str) -> None:
        """Close the transport and abandon every deferred response. Closing again does nothing."""
        if self.closed:
            return
        self.closed = True
        waited_for = [slot.waited_for for slot in self._slots if slot.waited_for is not None]
        self._slots.clear()
        self._out.clear()
        self._out_bytes = 0
        # Each step is guarded: a waiter that cannot be abandoned must not keep the transport open.
        steps: list[Callable[[], None]] = [self._pause, self._stop_writing, *(each.abandon for each in waited_for)]
        if self._unmute_timer is not None:
            # Else it keeps a closed connection in memory for as long as its client is throttled: days, perhaps.
            steps.append(self._unmute_timer.cancel)
        if self._when_closed is not None:
            steps += [partial(callback, self) for callback in self._when_closed]
        steps += [self.transport.close, lambda: self._memory.release(self), lambda: self._closed_callback(self, reason)]
        for step in steps:
            try:
                step()
            except Exception as error:
                self._report(error)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self.transport.on_writable(None)

    def fail(self, error: Exception) -> None:
        """Close this connection because of a bug, and report the bug."""
        self._working = False
        self._report(error)
        self.close("a bug of the broker, which its log describes")

    def report(self, error: Exception) -> None:
        """Report a failure of a request whose peer has left. A reason to close needs no report then."""
        if not isinstance(error, CloseConnection):
            self._report(error)

    def _report(self, error: Exception) -> None:
        # A report that fails must not affect other connections either.
        with suppress(Exception):
            self._on_bug("connection", error)


def mapped(wanted: int) -> mmap.mmap:
    """Memory that the system provides page by page as it is written to: a frame's length alone takes none."""
    size = -(-wanted // FRAME_GROWTH_BYTES) * FRAME_GROWTH_BYTES
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class RestOfFile:
    """A range of a file on its way out, and how far it is."""

    __slots__ = ("file", "length", "position")

    def __init__(self, whole: FileRange) -> None:
        self.file = whole
        self.position = whole.position
        self.length = len(whole)
