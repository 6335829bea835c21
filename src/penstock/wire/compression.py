"""The protocol's four compression codecs, each with its fastest library, imported when first needed.

The caller bounds the output: decompression stops at the limit instead of filling memory, whatever size the input
claims. For searches, ``pieces`` decompresses a little at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from struct import Struct

from penstock.wire.primitives import Buffer, Malformed

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

OUTPUT_BYTES_MAX = 1 << 30
"""The upper bound of every limit on a decompressed batch."""

CHUNK_BYTES = 1 << 16
"""Bytes decompressed at a time, and compressed bytes passed to a library at a time."""

LZ4_BLOCKS_BYTES = 2 * (4 << 20)
"""Memory of lz4 while it streams: two blocks of the largest size."""

ZSTD_WINDOW_BYTES_MAX = 1 << 27
"""Window of zstd's highest level; its memory is used only as far as there is output."""

GZIP_LEVEL_DEFAULT = 1
ZSTD_LEVEL_DEFAULT = 3
LZ4_LEVEL_DEFAULT = 0

# Java's snappy library frames its blocks; librdkafka and others read and write both forms.
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32 * 1024
_U32 = Struct(">I")


class UnsupportedCompression(Malformed):
    """An unknown codec number: the batch cannot be read, like a damaged one."""


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress ``data``, with the library's default level if none is given; snappy uses Java's framing."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return _gzip_compress(data, level)
    if codec == SNAPPY:
        return _xerial_compress(data)
    if codec == LZ4:
        return _lz4_compress(data, level)
    if codec == ZSTD:
        return _zstd_compress(data, level)
    raise UnsupportedCompression(f"no codec has the number {codec}")


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """Decompress ``data``; Malformed if it is invalid, or decompresses to more than ``limit_bytes``."""
    limit_bytes = min(limit_bytes, OUTPUT_BYTES_MAX)
    # The lz4 library is fastest with all output at once.
    whole = codec == LZ4
    parts = _lz4_pieces(data, limit_bytes, limit_bytes + 1) if whole else pieces(codec, data, limit_bytes)
    first = next(parts, b"")
    second = next(parts, None)
    if second is None:
        return first
    out = bytearray(first)
    out += second
    for piece in parts:
        out += piece
    return out


def pieces(codec: int, data: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    """Decompress ``data`` a little at a time; Malformed if it is invalid or exceeds ``limit_bytes``.

    It takes ``stream_bytes`` of memory, independent of the decompressed size.
    """
    limit_bytes = min(limit_bytes, OUTPUT_BYTES_MAX)
    if codec == NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return iter((data,))
    if codec == GZIP:
        return _gzip_pieces(data, limit_bytes)
    if codec == SNAPPY:
        return _snappy_pieces(data, limit_bytes)
    if codec == LZ4:
        return _lz4_pieces(data, limit_bytes, CHUNK_BYTES)
    if codec == ZSTD:
        return _zstd_pieces(data, limit_bytes)
    raise UnsupportedCompression(f"no codec has the number {codec}")


def stream_bytes(codec: int, data: Buffer) -> int:
    """The approximate memory of ``pieces``: a codec's window, or its largest block."""
    if codec == GZIP:
        return 2 * CHUNK_BYTES
    if codec == SNAPPY:
        return max((_snappy_size(block) for block in _snappy_blocks(data)), default=0)
    if codec == LZ4:
        return LZ4_BLOCKS_BYTES
    if codec == ZSTD:
        return min(_zstd_window_bytes(data), ZSTD_WINDOW_BYTES_MAX)
    return 0


def _too_large(limit_bytes: int) -> Malformed:
    return Malformed(f"decompressed records pass {limit_bytes} bytes")


# The libraries' types are partial or missing; a module that is imported by name is untyped.


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    igzip = import_module("isal.igzip")
    # isal has levels 0 to 3; zlib's 1 to 9 and -1 are mapped to them.
    chosen = GZIP_LEVEL_DEFAULT if level is None or level < 0 else min(3, (level + 2) // 3)
    packed: bytes = igzip.compress(data, chosen)
    return packed


def _gzip_pieces(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    """Every member of a gzip file. The input is passed in parts, as the library copies unused input."""
    isal_zlib = import_module("isal.isal_zlib")
    view = memoryview(data)
    pos = total = 0
    pending: Buffer = b""
    stream = None
    is_full = False
    if not view:
        raise Malformed("gzip: no stream")
    while pending or is_full or pos < len(view):
        if not pending and not is_full:
            pending = view[pos : pos + CHUNK_BYTES]
            pos += len(pending)
        if stream is None:
            # 16 + 15: a gzip header around a window of 32 KB.
            stream = isal_zlib.decompressobj(wbits=31)
        wanted = min(CHUNK_BYTES, limit_bytes - total + 1)
        try:
            piece: bytes = stream.decompress(pending, wanted)
        except isal_zlib.error as error:
            raise Malformed(f"gzip: {error}") from error
        total += len(piece)
        if total > limit_bytes:
            raise _too_large(limit_bytes)
        if piece:
            yield piece
        if stream.eof:
            pending, stream, is_full = stream.unused_data, None, False
        else:
            # A full piece may leave output pending although all input is consumed.
            pending, is_full = stream.unconsumed_tail, len(piece) == wanted
    if stream is not None:
        raise Malformed("gzip: the stream ends early")


def _xerial_compress(data: Buffer) -> bytes:
    snappy = import_module("cramjam").snappy
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        out += _U32.pack(len(block))
        out += block
    return bytes(out)


def _snappy_pieces(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    cramjam = import_module("cramjam")
    total = 0
    for block in _snappy_blocks(data):
        total += _snappy_size(block)
        if total > limit_bytes:
            raise _too_large(limit_bytes)
        try:
            piece = bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise Malformed(f"snappy: {error}") from error
        yield piece


def _snappy_blocks(data: Buffer) -> Iterator[memoryview]:
    """The compressed blocks: those of Java's framing, or the whole input as one."""
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield view
        return
    if len(view) < len(XERIAL_HEADER):
        raise Malformed("snappy: the frame's header is cut")
    pos = len(XERIAL_HEADER)
    while pos < len(view):
        if len(view) - pos < 4:
            raise Malformed("snappy: a block's length is cut")
        size: int = _U32.unpack_from(view, pos)[0]
        pos += 4
        if size > len(view) - pos:
            raise Malformed(f"snappy: a block of {size} bytes, {len(view) - pos} remain")
        yield view[pos : pos + size]
        pos += size


def _snappy_size(block: memoryview) -> int:
    """The decompressed size that a block claims, used only as a bound: the library checks it."""
    size = 0
    for place in range(5):
        if place >= len(block):
            raise Malformed("snappy: a block without its size")
        size |= (block[place] & 0x7F) << (7 * place)
        if block[place] < 0x80:
            break
    # A snappy copy makes at most 64 bytes from 2, which bounds the decompressed size of a block.
    if size > 64 * len(block):
        raise Malformed(f"snappy: {len(block)} bytes cannot hold {size}")
    return size


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    frame = import_module("lz4.frame")
    # Java's reader requires independent blocks of 64 KB and no content size.
    packed: bytes = frame.compress(
        data,
        compression_level=LZ4_LEVEL_DEFAULT if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def _lz4_pieces(data: Buffer, limit_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    stream = import_module("lz4.frame").LZ4FrameDecompressor()
    view = memoryview(data)
    pos = total = 0
    while not stream.eof:
        shown = view[:0]
        if stream.needs_input:
            # In parts, as the library copies unused input.
            shown = view[pos : pos + piece_bytes]
            pos += len(shown)
        try:
            piece: bytes = stream.decompress(shown, max_length=min(piece_bytes, limit_bytes - total + 1))
        except RuntimeError as error:
            raise Malformed(f"lz4: {error}") from error
        total += len(piece)
        if total > limit_bytes:
            raise _too_large(limit_bytes)
        if piece:
            yield piece
        elif pos >= len(view) and stream.needs_input and not stream.eof:
            raise Malformed("lz4: the frame ends early")


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL_DEFAULT if level is None else level).compress(data)


def _zstd_pieces(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    import zstandard

    total = 0
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    try:
        _zstd_window_bytes(data)
        stream = decompressor.stream_reader(data, read_across_frames=True)
        while piece := stream.read(min(CHUNK_BYTES, limit_bytes - total + 1)):
            total += len(piece)
            if total > limit_bytes:
                raise _too_large(limit_bytes)
            yield piece
    except zstandard.ZstdError as error:
        raise Malformed(f"zstd: {error}") from error


def _zstd_window_bytes(data: Buffer) -> int:
    """The largest window of the frames; Malformed for a truncated frame, which the library accepts."""
    import zstandard

    view = memoryview(data)
    pos = window = 0
    while pos < len(view) or pos == 0:
        if len(view) - pos >= 8 and view[pos] & 0xF0 == 0x50 and bytes(view[pos + 1 : pos + 4]) == b"\x2a\x4d\x18":
            pos += 8 + int.from_bytes(view[pos + 4 : pos + 8], "little")
            continue
        try:
            frame = zstandard.get_frame_parameters(view[pos:])
            pos += zstandard.frame_header_size(view[pos:])
        except zstandard.ZstdError as error:
            raise Malformed(f"zstd: {error}") from error
        window = max(window, frame.window_size)
        last = False
        while not last:
            if len(view) - pos < 3:
                raise Malformed("zstd: the frame ends early")
            block = int.from_bytes(view[pos : pos + 3], "little")
            last = bool(block & 1)
            # A run is one byte however long it is.
            pos += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        pos += 4 if frame.has_checksum else 0
    if pos > len(view):
        raise Malformed("zstd: the frame ends early")
    return window
