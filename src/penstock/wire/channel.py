"""The client's side of one connection, without its I/O: framing, correlation, versions.

The CLI, the Spark link, the benchmark, brokers that send requests to each other and the clients of the simulator bring
their own sockets. A channel frames what they send, keeps the requests that have no response yet, and matches each
response with its request: brokers respond in the order of the requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from penstock.wire.api import api_versions
from penstock.wire.frame import decode_response_header, encode_request_header, response_is_flexible
from penstock.wire.primitives import Buffer, Malformed

LENGTH = Struct(">i")
RESPONSE_BYTES_MIN = 4
"""A response holds at least its correlation id."""
RESPONSE_BYTES_MAX = 1 << 28
"""The largest response a channel accepts; a fetch gets more than it asked for only where one batch is larger."""
PIPELINE_MAX = 64
"""Requests of one connection that wait for their responses."""
API_VERSIONS_VERSION = 3
UNSUPPORTED_VERSION = 35
CORRELATION_ID_MAX = (1 << 31) - 1


class CodecClass(Protocol):
    """A handwritten codec with the interface of a generated module."""

    @property
    def API_KEY(self) -> int: ...

    @property
    def NAME(self) -> str: ...

    @property
    def VERSION_MIN(self) -> int: ...

    @property
    def VERSION_MAX(self) -> int: ...

    @property
    def encode_request(self) -> Callable[[Any, int], Buffer]: ...

    @property
    def decode_response(self) -> Callable[[Buffer, int, int], Any]: ...


Codec = ModuleType | CodecClass
"""The generated module of an API, or what stands for it."""


class ProtocolViolation(Exception):
    """The peer sent something that is not a response to what was requested; the connection is of no further use."""


class ResponseTooLarge(ProtocolViolation):
    """The peer announced a response that no request asked for."""


class VersionUnsupported(Exception):
    """The peer has no version of an API that is known here."""


class Sent(NamedTuple):
    """A request that has no response yet."""

    correlation_id: int
    api_key: int
    version: int


@dataclass(frozen=True, slots=True)
class Response:
    """A response before it is decoded: the frame without its length, and where its body begins."""

    sent: Sent
    data: Buffer
    body: int

    def decode(self, api: Codec) -> Any:
        assert self.sent.api_key == api.API_KEY, f"{api.NAME} is not the API of request {self.sent}"
        return api.decode_response(self.data, self.body, self.sent.version)


class Channel:
    """One connection's requests and responses. The owner of the socket calls it; no method waits."""

    __slots__ = ("_client_id", "_pipeline_max", "_received", "_response_bytes_max", "_sent_last", "pending", "versions")

    def __init__(
        self, client_id: str, *, response_bytes_max: int = RESPONSE_BYTES_MAX, pipeline_max: int = PIPELINE_MAX
    ) -> None:
        self._client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._pipeline_max = pipeline_max
        self._sent_last = 0
        self._received = bytearray()
        """Bytes of responses that are not complete; used by `feed` only."""
        self.versions: Mapping[int, tuple[int, int]] = {}
        """The oldest and the newest version of each API that the peer has, by API key."""
        self.pending: deque[Sent] = deque()

    # Requests

    def frame(self, api_key: int, version: int, *body: Buffer) -> bytes:
        """A request whose body is encoded already, with its length and header; it is pending from here on."""
        assert len(self.pending) < self._pipeline_max, f"{len(self.pending)} requests without a response"
        self._sent_last = correlation_id = self._sent_last + 1 if self._sent_last < CORRELATION_ID_MAX else 1
        header = encode_request_header(api_key, version, correlation_id, self._client_id)
        self.pending.append(Sent(correlation_id, api_key, version))
        return b"".join((LENGTH.pack(len(header) + sum(map(len, body))), header, *body))

    def request(self, api: Codec, version: int, request: Any) -> bytes:
        """A request of the generated module of an API."""
        return self.frame(api.API_KEY, version, api.encode_request(request, version))

    def expects_no_response(self) -> None:
        """Forget the last request: a Produce with acks=0 gets no response."""
        self.pending.pop()

    def full(self) -> bool:
        """Whether no further request may be sent before a response."""
        return len(self.pending) >= self._pipeline_max

    # Responses

    def length(self, prefix: Buffer) -> int:
        """The size of the response that these four bytes announce."""
        size: int = LENGTH.unpack_from(prefix, 0)[0]
        if size > self._response_bytes_max:
            raise ResponseTooLarge(f"a response of {size} bytes; the most are {self._response_bytes_max}")
        if size < RESPONSE_BYTES_MIN:
            raise ProtocolViolation(f"a response of {size} bytes")
        return size

    def response(self, data: Buffer) -> Response:
        """Match a whole response, without its length, with the request it belongs to."""
        if not self.pending:
            raise ProtocolViolation("a response without a request")
        sent = self.pending[0]
        try:
            correlation_id, body = decode_response_header(data, response_is_flexible(sent.api_key, sent.version))
        except Malformed as error:
            raise ProtocolViolation(str(error)) from error
        if correlation_id != sent.correlation_id:
            raise ProtocolViolation(
                f"a response to request {correlation_id}; the next is that to {sent.correlation_id}"
            )
        self.pending.popleft()
        return Response(sent, data, body)

    def feed(self, data: Buffer) -> list[Response]:
        """Take bytes as they arrive; the responses that are whole now, in order."""
        received = self._received
        received += data
        responses: list[Response] = []
        start = 0
        while len(received) - start >= LENGTH.size:
            size = self.length(memoryview(received)[start : start + LENGTH.size])
            end = start + LENGTH.size + size
            if len(received) < end:
                break
            responses.append(self.response(bytes(memoryview(received)[start + LENGTH.size : end])))
            start = end
        if start:
            del received[:start]
        return responses

    # Versions

    def versions_request(self, *, software_name: str, software_version: str) -> bytes:
        """The first request of a connection: which versions does the peer have?"""
        request = api_versions.Request(client_software_name=software_name, client_software_version=software_version)
        return self.request(api_versions, API_VERSIONS_VERSION, request)

    def learn_versions(self, response: Response) -> int:
        """Take the response to `versions_request`; its error code."""
        # A broker that does not know the version responds in version 0, with the versions that it has.
        error_code = int.from_bytes(response.data[response.body : response.body + 2], "big", signed=True)
        version = 0 if error_code == UNSUPPORTED_VERSION else response.sent.version
        try:
            found = api_versions.decode_response(response.data, response.body, version)
        except Malformed as error:
            raise ProtocolViolation(str(error)) from error
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
        return 0 if self.versions else error_code

    def version(self, api: Codec, version_max: int | None = None) -> int:
        """The newest version of an API, up to `version_max`, that both sides know."""
        oldest, newest = self.versions.get(api.API_KEY, (0, -1))
        chosen: int = min(newest, api.VERSION_MAX, api.VERSION_MAX if version_max is None else version_max)
        if chosen < max(oldest, api.VERSION_MIN):
            raise VersionUnsupported(f"no version of {api.NAME} that is known here")
        return chosen
