"""GET /metrics, /healthz and /readyz over HTTP/1.1, and nothing else.

It shares the broker's event loop on purpose: a response to /healthz proves that the loop runs.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import chain

from penstock.model.turns import Turns
from penstock.observe.log import Logger
from penstock.observe.metric import Sample
from penstock.observe.metrics import Collector, render

REQUEST_BYTES_MAX = 8_192
REQUEST_SECONDS_MAX = 5.0
RESPONSE_SECONDS_MAX = 30.0
CONNECTIONS_MAX = 32
ANY_PORT = 0

STATUS_TEXT = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One HTTP response before it is encoded."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    def encoded(self, *, with_body: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {STATUS_TEXT[self.status]}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        return head + self.body if with_body else head


class Refused(Exception):
    """A request that gets an error response; its connection is then closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.response = json_response(status, {"error": reason})


def json_response(status: int, body: object, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status=status, body=json.dumps(body).encode() + b"\n", headers=headers)


def _listening(server: asyncio.Server) -> asyncio.Server:
    """The server, if it listens: uvloop hides the error if another process took the port between bind and listen."""
    if not all(server.sockets):
        server.close()
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    return server


class ObserveServer:
    """The endpoint of one broker. One request per connection; everything it holds is bounded.

    The broker is ready when `waiting_for` returns nothing.
    """

    def __init__(
        self,
        collector: Collector,
        waiting_for: Callable[[], Sequence[str]],
        log: Logger,
        turns: Turns,
        threads: Executor,
    ) -> None:
        self._turns = turns
        self._threads = threads
        self._collector = collector
        self._waiting_for = waiting_for
        self._log = log
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        self._without_request: dict[asyncio.Task[None], None] = {}
        """Connections that have not sent a whole request yet, the oldest first."""
        # One scrape is formatted at a time: two at once would only compete with the loop for the CPU.
        self._rendering = asyncio.Lock()

    async def start(self, host: str, port: int) -> bool:
        """Listen, on a free port if the configured one is taken, for instance by another broker on the same machine.

        Returns False and logs a warning if that fails: a broker must serve even without monitoring.
        """
        try:
            await self._listen(host, port)
        except UnicodeError as error:
            # An invalid host name.
            self._log.warning("metrics_unavailable", host=host, port=port, reason=str(error), key="metrics.listener")
            return False
        except OSError as error:
            reason = {"reason": str(error), "key": "metrics.listener"}
            if error.errno != errno.EADDRINUSE:
                self._log.warning("metrics_unavailable", host=host, port=port, **reason)
                return False
            try:
                await self._listen(host, ANY_PORT)
            except OSError as second:
                self._log.warning("metrics_unavailable", host=host, port=port, **{**reason, "reason": str(second)})
                return False
            self._log.warning("metrics_port_taken", host=host, wanted=port, port=self.port, key="metrics.listener")
        self._log.info("metrics_listening", host=host, port=self.port)
        return True

    async def _listen(self, host: str, port: int) -> None:
        self._server = _listening(await asyncio.start_server(self._accept, host, port, limit=REQUEST_BYTES_MAX))

    @property
    def port(self) -> int:
        """The port it listens on, of use when it was asked for port 0."""
        assert self._server is not None, "not listening"
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection. Harmless when it never listened."""
        if self._server is not None:
            self._server.close()
        open_now = list(self._connections)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX and not self._close_oldest_without_request():
            writer.close()
            return
        self._connections[task] = None
        self._without_request[task] = None
        try:
            await self._serve(reader, writer, task)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._connections.pop(task, None)
            self._without_request.pop(task, None)
            writer.close()

    def _close_oldest_without_request(self) -> bool:
        """Make room for a probe by closing a connection without a request. False if all are being served."""
        oldest = next(iter(self._without_request), None)
        if oldest is None:
            return False
        del self._without_request[oldest]
        self._connections.pop(oldest, None)
        oldest.cancel()
        return True

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        with_body = True
        try:
            method, path, headers = await _read_request(reader)
            self._without_request.pop(task, None)
            with_body = method != "HEAD"
            response = await self._respond(method, path, headers)
        except Refused as refused:
            response = refused.response
        async with asyncio.timeout(RESPONSE_SECONDS_MAX):
            writer.write(response.encoded(with_body=with_body))
            await writer.drain()

    async def _respond(self, method: str, path: str, headers: dict[str, str]) -> Response:
        if path not in ("/metrics", "/healthz", "/readyz"):
            return json_response(404, {"error": f"no page {path}", "pages": ["/metrics", "/healthz", "/readyz"]})
        if method not in ("GET", "HEAD"):
            return json_response(405, {"error": f"{method} is not allowed"}, (("Allow", "GET, HEAD"),))
        if path == "/healthz":
            return json_response(200, {"status": "alive"})
        if path == "/readyz":
            waiting_for = list(self._waiting_for())
            if waiting_for:
                return json_response(503, {"status": "not ready", "waiting_for": waiting_for})
            return json_response(200, {"status": "ready"})
        return await self._metrics(headers)

    async def _metrics(self, headers: dict[str, str]) -> Response:
        async with self._rendering:
            parts: list[Iterable[Sample]] = []
            await self._turns.run(self._collector.steps(parts))
            rendering = partial(
                render,
                chain.from_iterable(parts),
                accept=headers.get("accept", ""),
                accept_encoding=headers.get("accept-encoding", ""),
            )
            shown = await asyncio.get_running_loop().run_in_executor(self._threads, rendering)
        encoding = (("Content-Encoding", shown.encoding),) if shown.encoding else ()
        return Response(status=200, body=shown.body, content_type=shown.content_type, headers=encoding)


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    """Method, path without its query, and headers in lower case. A body is not read."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise Refused(408, f"no whole request within {REQUEST_SECONDS_MAX:g} s") from None
    except asyncio.LimitOverrunError:
        raise Refused(431, f"the request's headers are longer than {REQUEST_BYTES_MAX} bytes") from None
    except asyncio.IncompleteReadError as cut:
        if not cut.partial:
            raise ConnectionResetError from None
        raise Refused(400, "the request ends before its headers do") from None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise Refused(400, "not an HTTP/1.1 request line")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return words[0], words[1].partition("?")[0], headers
