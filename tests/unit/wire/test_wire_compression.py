"""Compression codecs: compatible with other libraries, with bounded output."""

import gzip
import tracemalloc
import zlib
from random import Random
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python

from penstock.wire import compression
from penstock.wire.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    UnsupportedCompression,
    compress,
    decompress,
    pieces,
    stream_bytes,
)
from penstock.wire.primitives import Malformed

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
COMPRESSING = (GZIP, SNAPPY, LZ4, ZSTD)
LIMIT = 1 << 20
TEXT = b"the quick brown fox jumps over the lazy dog, " * 400

bodies = st.binary(max_size=200) | st.builds(
    lambda piece, times: piece * times, st.binary(max_size=20), st.integers(0, 9000)
)


@pytest.mark.parametrize("codec", CODECS)
@given(body=bodies)
def test_compressed_data_round_trips(codec: int, body: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, body), LIMIT)) == body


@pytest.mark.parametrize("codec", CODECS)
def test_memoryviews_are_accepted(codec: int) -> None:
    packed = memoryview(bytearray(compress(codec, memoryview(TEXT))))

    assert bytes(decompress(codec, packed, LIMIT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, level) for level in (-1, 1, 6, 9)] + [(LZ4, 9), (ZSTD, 1), (ZSTD, 19)]
)
def test_levels_change_the_size_and_not_the_content(codec: int, level: int) -> None:
    assert bytes(decompress(codec, compress(codec, TEXT, level), LIMIT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        pytest.param(GZIP, gzip.compress(TEXT), id="gzip"),
        pytest.param(GZIP, gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]), id="gzip of two members"),
        pytest.param(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), id="raw snappy"),
        pytest.param(SNAPPY, kafka_python.snappy_encode(TEXT, xerial_compatible=True), id="snappy as Java frames it"),
        pytest.param(LZ4, lz4.frame.compress(TEXT, content_checksum=True, store_size=True), id="lz4 with size and sum"),
        pytest.param(LZ4, lz4.frame.compress(TEXT, block_linked=True), id="lz4 with linked blocks"),
        pytest.param(ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(TEXT), id="zstd without size"),
        pytest.param(ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT), id="zstd with a sum"),
    ],
)
def test_data_compressed_by_other_libraries_is_read(codec: int, packed: bytes) -> None:
    assert bytes(decompress(codec, packed, LIMIT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "read"),
    [
        (GZIP, kafka_python.gzip_decode),
        (SNAPPY, kafka_python.snappy_decode),
        (LZ4, kafka_python.lz4_decode),
        (ZSTD, kafka_python.zstd_decode),
    ],
)
def test_other_libraries_read_data_compressed_here(codec: int, read: Any) -> None:
    assert bytes(read(bytes(compress(codec, TEXT)))) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_bounds_the_output(codec: int) -> None:
    packed = compress(codec, TEXT)

    assert len(decompress(codec, packed, len(TEXT))) == len(TEXT)
    with pytest.raises(Malformed, match="pass"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_decompression_bomb_is_rejected_near_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decompress(codec, bomb, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 4 * LIMIT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_pieces_are_small_and_together_the_whole(codec: int) -> None:
    body = Random(1).randbytes(100_000) + bytes(3 << 20) + TEXT
    packed = compress(codec, body)
    tracemalloc.start()
    try:
        largest = max(len(piece) for piece in pieces(codec, packed, 1 << 28))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert b"".join(pieces(codec, packed, 1 << 28)) == body
    assert largest <= compression.CHUNK_BYTES
    assert peak < 1 << 20


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_memory_of_streaming_is_known_beforehand(codec: int) -> None:
    assert stream_bytes(NONE, TEXT) == 0
    assert 0 < stream_bytes(codec, compress(codec, TEXT)) <= compression.ZSTD_WINDOW_BYTES_MAX
    whole = bytes(cramjam.snappy.compress_raw(bytes(10 << 20)))
    assert stream_bytes(SNAPPY, whole) == 10 << 20
    assert stream_bytes(ZSTD, zstandard.ZstdCompressor(level=3).compress(TEXT)) >= len(TEXT)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_cut_at_any_byte_is_malformed(codec: int) -> None:
    packed = bytes(compress(codec, TEXT[:5000]))
    # Java's snappy framing has no count of blocks: it may end after any complete one.
    whole = {len(compression.XERIAL_HEADER)} if codec == SNAPPY else set()

    for cut in set(range(len(packed))) - whole:
        with pytest.raises(Malformed):
            decompress(codec, packed[:cut], LIMIT)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(junk=st.binary(max_size=60), place=st.integers(0, 120))
def test_garbage_is_decompressed_or_malformed(codec: int, junk: bytes, place: int) -> None:
    packed = bytes(compress(codec, TEXT[:500]))
    for broken in (junk, packed[:place] + junk[:3] + packed[place + 3 :]):
        try:
            assert len(decompress(codec, broken, LIMIT)) <= LIMIT
        except Malformed:
            continue


def test_a_snappy_block_cannot_claim_more_than_it_can_hold() -> None:
    with pytest.raises(Malformed, match="cannot hold"):
        decompress(SNAPPY, b"\xff\xff\xff\x0f" + b"abc", 1 << 28)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCompression):
        decompress(codec, b"", LIMIT)
    with pytest.raises(UnsupportedCompression):
        compress(codec, b"")


def test_no_limit_exceeds_the_largest_output() -> None:
    assert compression.OUTPUT_BYTES_MAX == 1 << 30
    assert zlib.crc32(bytes(decompress(GZIP, compress(GZIP, TEXT), 1 << 60))) == zlib.crc32(TEXT)
