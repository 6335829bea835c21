# cython: annotation_typing=False
"""The codec of request and response headers.

A frame is four bytes of length, a header and a body. The functions here get the frame without its length.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from penstock.wire.api.table import TABLE
from penstock.wire.primitives import Buffer, FlexibleReader, Malformed

API_VERSIONS = 18
_HEAD = Struct(">hhih")
_HEAD_BYTES = 10
_CORRELATION = Struct(">i")

_NEVER = 1 << 15
_FLEXIBLE_FROM = {key: _NEVER if entry.flexible_from is None else entry.flexible_from for key, entry in TABLE.items()}


class RequestHeader:
    """The header of a request; ``body_offset`` is where its body begins."""

    __slots__ = ("api_key", "api_version", "body_offset", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_offset: int
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, body_offset={self.body_offset})"
        )


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version is flexible; an unknown API is not."""
    return api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER)


def decode_request_header(data: Buffer) -> RequestHeader:
    """Decode the header of any request, also of an unknown API or version.

    The client id keeps the old string encoding in every version, so that a broker can read the header of a version
    that came after it.
    """
    try:
        api_key, api_version, correlation_id, size = _HEAD.unpack_from(data, 0)
        pos = _HEAD_BYTES
        client_id: str | None = None
        if size >= 0:
            if size > len(data) - pos:
                raise Malformed(f"a client id of {size} bytes, {len(data) - pos} remain")
            client_id = str(data[pos : pos + size], "utf-8")
            pos += size
        elif size != -1:
            raise Malformed(f"a client id of length {size}")
        if api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER):
            if data[pos] == 0:
                pos += 1
            else:
                reader = FlexibleReader(data, pos)
                reader.skip_tags()
                pos = reader.pos
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, pos)


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, *, flexible: bool | None = None
) -> bytes:
    """The header a client sends; ``flexible`` follows from the API and version unless it is given."""
    if flexible is None:
        flexible = is_flexible(api_key, api_version)
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    return _HEAD.pack(api_key, api_version, correlation_id, size) + name + (b"\0" if flexible else b"")


def response_is_flexible(api_key: int, api_version: int) -> bool:
    """Whether the response's header has tagged fields.

    That of ApiVersions never has: a client that asks for a version the broker does not know must still be able to
    read the response.
    """
    return api_key != API_VERSIONS and api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER)


def encode_response_header(correlation_id: int, flexible: bool) -> bytes:
    """Encode the header of a response; see :func:`response_is_flexible`."""
    return _CORRELATION.pack(correlation_id) + b"\0" if flexible else _CORRELATION.pack(correlation_id)


def decode_response_header(data: Buffer, flexible: bool) -> tuple[int, int]:
    """The correlation id, and the position of the response's body."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(data, 0)[0]
        if not flexible:
            return correlation_id, 4
        reader = FlexibleReader(data, 4)
        reader.skip_tags()
    except (StructError, IndexError) as error:
        raise Malformed(f"response header: {error}") from error
    return correlation_id, reader.pos
