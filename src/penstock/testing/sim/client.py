"""A client's connection to one broker, for simulated clients: one request at a time, with a timeout.

It is made of the channel that every client of ours has and of a `Network`, so it also runs on real sockets.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

from penstock.net.transport import Network, Transport
from penstock.wire.channel import Channel, ProtocolViolation, Response
from penstock.wire.primitives import Buffer

RECEIVE_BYTES = 64 * 1024


class Disconnected(Exception):
    """The connection is gone; a request that was sent may have been carried out."""


class TimedOut(Disconnected):
    """No response came in time; the connection was closed, as clients of Kafka do."""


class SimClient:
    """One connection. Open it with `open`; after a `Disconnected` it is of no further use."""

    def __init__(self, transport: Transport, client_id: str) -> None:
        self._transport = transport
        self._channel = Channel(client_id)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._out = bytearray()
        self._waiter: asyncio.Future[Response] | None = None
        self.closed = False
        transport.on_readable(self._on_readable)

    @classmethod
    async def open(
        cls, network: Network, host: str, port: int, *, client_id: str = "sim", timeout_s: float = 5.0
    ) -> SimClient:
        try:
            async with asyncio.timeout(timeout_s):
                transport = await network.connect(host, port)
        except TimeoutError:
            raise TimedOut(f"no connection to {host}:{port} within {timeout_s:g} s") from None
        except OSError as error:
            raise Disconnected(str(error)) from error
        return cls(transport, client_id)

    async def ask(self, api: ModuleType, version: int, request: Any, *, timeout_s: float = 5.0) -> Any:
        """The decoded response."""
        response = await self.ask_raw(api.API_KEY, version, api.encode_request(request, version), timeout_s=timeout_s)
        return response.decode(api)

    async def ask_raw(self, api_key: int, version: int, *body: Buffer, timeout_s: float = 5.0) -> Response:
        """The response to a request whose body is encoded already."""
        if self.closed:
            raise Disconnected("closed")
        assert self._waiter is None, "one request at a time"
        waiter: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        timer = asyncio.get_running_loop().call_later(timeout_s, self._timed_out, timeout_s)
        self._write(self._channel.frame(api_key, version, *body))
        try:
            return await waiter
        finally:
            timer.cancel()
            if self._waiter is waiter:
                # Whoever waited was cancelled: the response would be taken for that to the next request.
                self._waiter = None
                self.close()

    def post(self, api_key: int, version: int, *body: Buffer) -> None:
        """Send a request that gets no response (Produce with acks=0)."""
        frame = self._channel.frame(api_key, version, *body)
        self._channel.expects_no_response()
        self._write(frame)

    def _timed_out(self, timeout_s: float) -> None:
        self._fail(TimedOut(f"no response within {timeout_s:g} s"))

    def _write(self, frame: bytes) -> None:
        idle = not self._out
        self._out += frame
        if idle:
            self._on_writable()

    def _on_writable(self) -> None:
        if self.closed:
            return
        try:
            while self._out:
                del self._out[: self._transport.send(bytes(self._out))]
        except (BlockingIOError, InterruptedError):
            self._transport.on_writable(self._on_writable)
        except OSError as error:
            self._fail(Disconnected(str(error)))
        else:
            self._transport.on_writable(None)

    def _on_readable(self) -> None:
        if self.closed:
            return
        try:
            size = self._transport.receive_into(self._buffer)
            if not size:
                self._fail(Disconnected("the broker closed the connection"))
                return
            for response in self._channel.feed(self._buffer[:size]):
                waiter, self._waiter = self._waiter, None
                if waiter is not None and not waiter.done():
                    waiter.set_result(response)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ProtocolViolation) as error:
            self._fail(Disconnected(str(error)))

    def _fail(self, error: Disconnected) -> None:
        waiter, self._waiter = self._waiter, None
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._transport.close()
