"""The table of APIs: their versions, codecs and handlers.

ApiVersions, the coverage table of the docs and the metrics derive from its rows.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.model.deferred import Deferred
from penstock.net.connection import Connection
from penstock.net.reply import Buffer
from penstock.observe.counters import RequestCounters
from penstock.observe.histogram import Histogram
from penstock.wire.own_apis import ENTRIES

DECODE_BYTES_AT_ONCE_MAX = 16 * 1024
"""Largest frame that is decoded on the event loop: about two thousand elements. A thread decodes larger ones."""

DECODE_BYTES_AT_ONCE_FAST_MAX = 128 * 1024
"""The same for hand-written codecs, which are faster."""

ANONYMOUS = "ANONYMOUS"
"""Kafka's name of the user on a listener without authentication."""

Response = Any
Handler = Callable[["RequestContext", Any], Response | Deferred[Response] | None]
"""Serves a request: returns its response, now or later; None where the protocol has no response."""


@dataclass(slots=True)
class RequestContext:
    """The context of a request: connection, client, API, version and time."""

    connection: Connection
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    now_ms: int
    user: str = ANONYMOUS
    throttle_ms: int = 0
    """The throttle time of the response; the dispatcher mutes the connection for as long."""
    forwarded_from: str = ""
    """The client's address, where another broker forwarded the request."""

    @property
    def peer(self) -> str:
        """The address of the client that sent the request."""
        return self.forwarded_from or self.connection.peer

    def throttle(self, wait_ms: int) -> None:
        """Throttle the client; of several quotas the longest time counts."""
        self.throttle_ms = max(self.throttle_ms, wait_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One request type. `decode` and `encode` default to the generated module's."""

    key: int
    versions: range
    handle: Handler
    decode: Callable[[memoryview, int, int], Any] | None = None
    encode: Callable[[Any, int], bytes | list[Buffer]] | None = None
    borrows_frame: bool = False
    """Whether the decoded request refers to the frame's bytes: it is then decoded on the loop, whatever its size."""
    advertised_min: int | None = None
    """The lowest version in ApiVersions, where that is lower than the lowest one served."""
    forwarded: bool = False
    """Whether only the controller serves it, to which other brokers carry it; see `api.forwarding`."""
    is_local: Callable[[Any], bool] | None = None
    """Whether a request that would be forwarded concerns the broker it was sent to."""
    internal: bool = False
    """Whether it is for other brokers: clients do not see it in ApiVersions."""

    @property
    def name(self) -> str:
        return ENTRIES[self.key].name


class BoundApi:
    """A row with its codec loaded and its counters."""

    __slots__ = (
        "_counters",
        "decode",
        "decode_bytes_at_once_max",
        "durations",
        "encode",
        "flexible_from",
        "handle",
        "key",
        "name",
        "version_max",
        "version_min",
        "write",
    )

    def __init__(self, api: Api, counters: RequestCounters) -> None:
        entry = ENTRIES[api.key]
        decode, encode = api.decode, api.encode
        self.write: Callable[[Any, Any, int], None] | None = None
        """Writes a response into a writer, where the generated codec does it: a long one can then be sliced."""
        if decode is None or encode is None:
            module = importlib.import_module(f"penstock.wire.api.{entry.module}")
            decode = decode or module.decode_request
            if encode is None:
                encode = module.encode_response
                self.write = module._write_response
        self.key = api.key
        self.name = entry.name
        self.decode_bytes_at_once_max = DECODE_BYTES_AT_ONCE_MAX
        if api.borrows_frame:
            self.decode_bytes_at_once_max = sys.maxsize
        elif api.decode is not None:
            self.decode_bytes_at_once_max = DECODE_BYTES_AT_ONCE_FAST_MAX
        self.handle = api.handle
        self.decode = decode
        self.encode = encode
        self.version_min = api.versions.start
        self.version_max = api.versions[-1]
        self.flexible_from = entry.flexible_from if entry.flexible_from is not None else 1 << 15
        self.durations: list[Histogram | None] = [None] * (self.version_max + 1)
        self._counters = counters

    def duration(self, version: int) -> Histogram:
        """The histogram of durations of one version, made at its first request."""
        row = self.durations[version] = self._counters.row(self.key, version)
        return row


class Registry:
    """All rows. A codec module is imported at its first request, which keeps an idle broker small."""

    def __init__(self, apis: Iterable[Api], counters: RequestCounters) -> None:
        self.counters = counters
        self.apis: dict[int, Api] = {}
        for api in apis:
            assert api.key not in self.apis, f"{api.name} is registered twice"
            self.apis[api.key] = api
        self._bound: dict[int, BoundApi] = {}

    def bound(self, key: int) -> BoundApi | None:
        """The row of an API, ready to serve; None for an unknown API."""
        bound = self._bound.get(key)
        if bound is None and key in self.apis:
            bound = self._bound[key] = BoundApi(self.apis[key], self.counters)
        return bound

    def advertised(self, *, internal: bool = False) -> list[tuple[int, int, int]]:
        """Key, lowest and highest version of every API, for ApiVersions; with `internal` of those for brokers too."""
        return [
            (key, api.versions.start if api.advertised_min is None else api.advertised_min, api.versions[-1])
            for key, api in sorted(self.apis.items())
            if internal or not api.internal
        ]
