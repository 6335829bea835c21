"""Turns a frame into a response: header, version check, decoding, the handler, encoding."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from penstock.api.api_versions import ApiVersions
from penstock.api.registry import BoundApi, Registry, RequestContext
from penstock.api.response_errors import count_errors, count_errors_in
from penstock.model.clock import Clock
from penstock.model.deferred import Deferred, Eventual
from penstock.model.turns import Turns
from penstock.net.connection import Connection
from penstock.net.reply import CloseConnection, Frame, Outcome
from penstock.observe.counters import ThrottleCounters
from penstock.quotas.client_quotas import ClientQuotas
from penstock.wire.frame import RequestHeader, decode_request_header
from penstock.wire.primitives import Malformed, SlicingFlexibleWriter, SlicingWriter
from penstock.wire.slices import SlicedMessage

API_VERSIONS = 18

RESPONSE_BYTES_MAX = 100 << 20
"""Greatest size of a response that is made in slices: clients refuse a longer one, and it bounds the memory."""

PREFIX = struct.Struct("!ii")
PREFIX_FLEXIBLE = struct.Struct("!iib")


class Dispatcher:
    """Serves the frames of every connection. Called with a frame, it is a `net.connection.Serve`."""

    __slots__ = ("_api_versions", "_clock", "_on_bug", "_quotas", "_registry", "_threads", "_throttles", "_turns")

    def __init__(
        self,
        *,
        registry: Registry,
        api_versions: ApiVersions,
        clock: Clock,
        on_bug: Callable[[str, BaseException], None],
        quotas: ClientQuotas,
        throttles: ThrottleCounters,
        turns: Turns,
        threads: Executor,
    ) -> None:
        self._registry = registry
        self._api_versions = api_versions
        self._clock = clock
        self._on_bug = on_bug
        self._quotas = quotas
        self._throttles = throttles
        self._turns = turns
        self._threads = threads

    def __call__(self, connection: Connection, frame: memoryview) -> Outcome:
        began_s = self._clock.monotonic()
        try:
            header = decode_request_header(frame)
            api = self._registry.bound(header.api_key)
            version = header.api_version
            if api is None:
                self._registry.counters.refuse("unknown_api")
                raise CloseConnection(f"unknown api key {header.api_key}")
            if not api.version_min <= version <= api.version_max:
                return self._refuse_version(api, version, header.correlation_id)
            if len(frame) > api.decode_bytes_at_once_max:
                return connection.run(self._decode_later(connection, api, header, frame))
            request = api.decode(frame, header.body_offset, version)
        except Exception as error:
            raise self._undecoded(error) from error
        return self._serve(connection, api, header, request, began_s)

    async def _decode_later(
        self, connection: Connection, api: BoundApi, header: RequestHeader, frame: memoryview
    ) -> Outcome:
        """Decode a large request in a thread, then serve it. The connection is held meanwhile."""
        decoding = asyncio.get_running_loop().run_in_executor(
            self._threads, api.decode, frame, header.body_offset, header.api_version
        )
        try:
            request = await decoding
        except Exception as error:
            raise self._undecoded(error) from error
        return self._serve(connection, api, header, request, self._clock.monotonic())

    def _undecoded(self, error: Exception) -> CloseConnection:
        if isinstance(error, CloseConnection):
            return error
        if isinstance(error, Malformed):
            self._registry.counters.refuse("malformed")
            return CloseConnection(f"malformed request: {error}")
        self._on_bug("decoding", error)
        return CloseConnection("a request could not be decoded")

    def _serve(
        self, connection: Connection, api: BoundApi, header: RequestHeader, request: Any, began_s: float
    ) -> Outcome:
        version = header.api_version
        result: Eventual[Any] = None
        context = RequestContext(
            connection, header.api_key, version, header.correlation_id, header.client_id, self._clock.now_ms()
        )
        try:
            result = api.handle(context, request)
            took_s = self._clock.monotonic() - began_s
            (api.durations[version] or api.duration(version)).add(int(took_s * 1e6))
            if self._quotas.enabled:
                # A quota of 100 is one core: the share of time that the client kept the loop busy.
                context.throttle(
                    self._quotas.request.record(context.user, context.client_id or "", took_s * 100, context.now_ms)
                )
            return self._outcome(api, context, result)
        except Exception as error:
            if isinstance(result, Deferred):
                result.abandon()
            if isinstance(error, CloseConnection):
                raise
            raise self._unserved(api, context, error) from error

    def _unserved(self, api: BoundApi, context: RequestContext, error: Exception) -> CloseConnection:
        """The error that closes the connection of a request without a response; a bug is reported."""
        if isinstance(error, CloseConnection):
            return error
        self._on_bug(api.name, error)
        return CloseConnection(f"{api.name} v{context.api_version} failed")

    def _refuse_version(self, api: BoundApi, version: int, correlation_id: int) -> Frame:
        """Refuse a version. A newer client sends ApiVersions first, and needs the supported versions in the refusal."""
        if api.key != API_VERSIONS:
            self._registry.counters.refuse("unknown_version")
            raise CloseConnection(f"{api.name} v{version} is not served")
        body = api.encode(self._api_versions.unsupported(), 0)
        assert isinstance(body, bytes)
        return [PREFIX.pack(4 + len(body), correlation_id) + body]

    def _outcome(self, api: BoundApi, context: RequestContext, result: Any) -> Outcome:
        if type(result) is Deferred:
            return result.then(  # pyright: ignore[reportUnknownMemberType]
                partial(self._deliver, api, context), failed=partial(self._unserved, api, context)
            )
        if result is None:
            self._throttle(api, context)
            return None
        return self._frame(api, context, result)

    def _deliver(self, api: BoundApi, context: RequestContext, response: object) -> Outcome:
        """The frame of a deferred response."""
        try:
            if response is None:
                self._throttle(api, context)
                return None
            return self._frame(api, context, response)
        except CloseConnection:
            raise
        except Exception as error:
            raise self._unserved(api, context, error) from error

    def _throttle(self, api: BoundApi, context: RequestContext) -> None:
        """Mute the connection of a client over its quota, whether or not the response has a throttle time."""
        if context.throttle_ms:
            self._throttles.throttled(api.name.lower(), context.throttle_ms)
            context.connection.mute(context.throttle_ms / 1000)

    def _frame(self, api: BoundApi, context: RequestContext, response: Any) -> Outcome:
        if context.throttle_ms:
            # The response goes out at once and the client waits after it: a delayed response would look like a failure.
            # Responses without the field (SaslHandshake, WriteTxnMarkers) only mute the client.
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = context.throttle_ms
            self._throttle(api, context)
        version = context.api_version
        count_errors(self._registry.counters, api.key, response)
        if api.write is None:
            return self._framed(api, context, api.encode(response, version))
        writer = SlicingFlexibleWriter() if version >= api.flexible_from else SlicingWriter()
        api.write(writer, response, version)
        if writer.holes:
            return context.connection.run(self._sliced(api, context, writer))
        return self._framed(api, context, bytes(writer))

    async def _sliced(
        self, api: BoundApi, context: RequestContext, writer: SlicingWriter | SlicingFlexibleWriter
    ) -> Frame:
        """Encode a long response over several turns of the loop."""
        counters, key, turns = self._registry.counters, api.key, self._turns
        message = SlicedMessage(writer, lambda element: count_errors_in(counters, key, element))
        try:
            for _ in message.steps():
                if message.size > RESPONSE_BYTES_MAX:
                    raise CloseConnection(f"the response to {api.name} is larger than {RESPONSE_BYTES_MAX} bytes")
                if context.connection.closed:
                    return []
                if turns.spent():
                    await turns.pause()
        except CloseConnection:
            raise
        except Exception as error:
            raise self._unserved(api, context, error) from error
        return self._framed(api, context, list(message.parts))

    def _framed(self, api: BoundApi, context: RequestContext, body: bytes | Frame) -> Frame:
        """A response's header and body."""
        version = context.api_version
        # ApiVersions responses have the old header at every version: the client does not know the broker yet.
        flexible = version >= api.flexible_from and api.key != API_VERSIONS
        if isinstance(body, bytes):
            if flexible:
                return [PREFIX_FLEXIBLE.pack(5 + len(body), context.correlation_id, 0) + body]
            return [PREFIX.pack(4 + len(body), context.correlation_id) + body]
        length = sum(map(len, body))
        if flexible:
            body.insert(0, PREFIX_FLEXIBLE.pack(5 + length, context.correlation_id, 0))
        else:
            body.insert(0, PREFIX.pack(4 + length, context.correlation_id))
        return body
