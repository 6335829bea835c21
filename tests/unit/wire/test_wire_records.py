"""Record batches: building, reading, validation and filtering, against a list of records."""

import struct
from types import ModuleType
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from either_way import both
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from penstock.model.batch import ATTRIBUTES_AT, BASE_TIMESTAMP_AT, CRC_AT, HEADER_BYTES, RECORD_COUNT_AT, BatchHeader
from penstock.wire.compression import UnsupportedCompression
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import decode_columns
from penstock.wire.records import (
    Record,
    RecordBatchBuilder,
    RecordKey,
    batch_keys,
    build_batch,
    build_marker,
    check_records,
    crc_of,
    crc_ok,
    decode_records,
    empty_batch,
    filter_batch,
    first_record,
    iter_batches,
    parse_batch_header,
    parse_marker,
)

LOOPS = both("record_loops")
CODECS = range(5)
NOW_MS = 1_700_000_000_000

blobs = st.none() | st.binary(max_size=30) | st.just(b"v" * 300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
times = st.integers(0, 2**42)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Records with increasing offsets, perhaps with gaps."""
    offset = 0
    records = []
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.integers(0, 3))
        records.append(Record(offset, draw(times), draw(blobs), draw(blobs), draw(headers)))
        offset += 1
    return records


def listed(records: list[Record]) -> list[Record]:
    return [record._replace(headers=tuple(record.headers)) for record in records]


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=record_lists(), base=st.integers(0, 2**40), producer=st.integers(-1, 2**60))
def test_the_records_of_a_batch_round_trip(codec: int, records: list[Record], base: int, producer: int) -> None:
    moved = [record._replace(offset=base + record.offset) for record in records]

    batch = build_batch(moved, base_offset=base, compression=codec, producer_id=producer, base_sequence=7)

    header = parse_batch_header(batch)
    assert listed(decode_records(batch)) == moved
    assert crc_ok(batch, 0, header)
    assert (header.size, header.codec, header.record_count) == (len(batch), codec, len(records))
    assert (header.base_offset, header.last_offset) == (base, moved[-1].offset)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert (header.producer_id, header.base_sequence) == (producer, 7)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=record_lists())
def test_a_walk_returns_keys_offsets_and_timestamps(codec: int, records: list[Record]) -> None:
    checked = check_records(build_batch(records, compression=codec))

    deltas = [record.timestamp_ms - records[0].timestamp_ms for record in records]
    assert checked.keyed == all(record.key is not None for record in records)
    assert checked.consecutive == ([record.offset for record in records] == list(range(len(records))))
    assert (checked.timestamp_delta_min, checked.timestamp_delta_max) == (min(deltas), max(deltas))


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=record_lists(), data=st.data())
def test_a_filtered_batch_keeps_the_chosen_records_and_its_offsets(
    codec: int, records: list[Record], data: st.DataObject
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    horizon = data.draw(st.none() | st.just(NOW_MS))
    batch = build_batch(records, compression=codec, producer_id=9, producer_epoch=2, base_sequence=4)

    kept = filter_batch(batch, keep, delete_horizon_ms=horizon)

    before, after = parse_batch_header(batch), parse_batch_header(kept)
    expected = [record for record, wanted in zip(records, keep, strict=True) if wanted]
    assert listed(decode_records(kept)) == expected
    assert crc_ok(kept, 0, after)
    assert after.record_count == len(expected)
    assert after[0] == before[0]
    assert after.next_offset == before.next_offset
    assert after.last_sequence == before.last_sequence
    assert (after.producer_id, after.producer_epoch) == (9, 2)
    assert after.has_delete_horizon == (horizon is not None and any(keep))
    if expected:
        assert after.max_timestamp == max(record.timestamp_ms for record in expected)
        assert horizon is None or after.base_timestamp == horizon


@given(records=record_lists(), codec=st.sampled_from(CODECS))
def test_keys_are_what_compaction_sees(records: list[Record], codec: int) -> None:
    found = list(batch_keys(build_batch(records, compression=codec)))

    assert found == [RecordKey(record.offset, record.key, record.value is None) for record in records]


@given(batches=st.lists(st.tuples(record_lists(), st.sampled_from(CODECS)), max_size=4), cut=st.integers(0, 40))
def test_columns_of_many_batches_point_at_every_part(batches: Any, cut: int) -> None:
    buffer = bytearray()
    expected = []
    for place, (records, codec) in enumerate(batches):
        moved = [record._replace(offset=1000 * place + record.offset) for record in records]
        buffer += build_batch(moved, base_offset=1000 * place, compression=codec)
        buffer += build_marker(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1)
        expected += moved
    buffer += build_batch([Record(0, 0, b"cut", b"off")])[:cut]

    columns = decode_columns(bytes(buffer))

    found = [
        Record(
            columns.offsets[row],
            columns.timestamps[row],
            part(columns.data, columns.key_at[row], columns.key_sizes[row]),
            part(columns.data, columns.value_at[row], columns.value_sizes[row]),
            tuple(columns.headers(row)),
        )
        for row in range(len(columns))
    ]
    assert found == expected


def part(data: Any, at: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(data[at : at + size])


def test_columns_have_the_log_append_time_if_the_broker_set_it() -> None:
    batch = build_batch([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")], timestamp_type=1)

    assert list(decode_columns(bytes(batch)).timestamps) == [9, 9]
    assert [record.timestamp_ms for record in decode_records(batch)] == [9, 9]


OTHERS = [
    pytest.param(AiokafkaBuilder, AiokafkaBatch, id="aiokafka"),
    pytest.param(KafkaPythonBuilder, KafkaPythonBatch, id="kafka-python"),
]


@pytest.mark.parametrize(("builder", "_reader"), OTHERS)
@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=record_lists())
def test_batches_that_other_clients_build_are_read(
    builder: Any, _reader: Any, codec: int, records: list[Record]
) -> None:
    made = builder(2, codec, 1, 77, 3, 5, 1 << 20)
    for offset, record in enumerate(records):
        made.append(offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(made.build())

    header = parse_batch_header(batch)

    assert listed(decode_records(batch)) == [record._replace(offset=place) for place, record in enumerate(records)]
    assert crc_ok(batch, 0, header)
    assert check_records(batch).consecutive
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 5)
    assert header.is_transactional


@pytest.mark.parametrize(("_builder", "reader"), OTHERS)
@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=record_lists())
def test_other_clients_read_the_batches_built_here(
    _builder: Any, reader: Any, codec: int, records: list[Record]
) -> None:
    batch = reader(build_batch(records, compression=codec))

    assert batch.validate_crc()
    assert [
        Record(found.offset, found.timestamp, found.key, found.value, tuple(found.headers)) for found in batch
    ] == records


@pytest.mark.parametrize("codec", [0])
@given(records=record_lists())
def test_an_uncompressed_batch_is_byte_for_byte_that_of_aiokafka(codec: int, records: list[Record]) -> None:
    builder = AiokafkaBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for place, record in enumerate(records):
        builder.append(place, record.timestamp_ms, record.key, record.value, list(record.headers))

    ours = build_batch([record._replace(offset=place) for place, record in enumerate(records)])

    theirs = bytearray(builder.build())
    # The broker sets offset and leader epoch; aiokafka sets the epoch to 0.
    theirs[12:16] = b"\xff" * 4
    assert ours == theirs


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_cut_at_any_byte_is_malformed(codec: int) -> None:
    batch = build_batch(
        [Record(0, NOW_MS, b"key", b"value", (("h", b"x"),)), Record(1, NOW_MS, None, None)], compression=codec
    )

    for cut in range(len(batch)):
        with pytest.raises(Malformed):
            decode_records(batch[:cut])
        assert list(iter_batches(batch[:cut])) == []


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(place=st.integers(HEADER_BYTES, 200), byte=st.integers(0, 255))
def test_a_batch_with_a_wrong_byte_is_read_or_malformed(codec: int, place: int, byte: int) -> None:
    batch = build_batch(
        [Record(n, NOW_MS + n, b"k%d" % n, b"v" * n, (("h", b"x"),)) for n in range(8)], compression=codec
    )
    batch[min(place, len(batch) - 1)] ^= byte

    for read in (decode_records, check_records, batch_keys, lambda data: decode_columns(bytes(data))):
        try:
            read(batch)
        except (Malformed, UnsupportedCompression):
            continue
    assert crc_ok(batch, 0, parse_batch_header(batch)) == (byte == 0)


@pytest.mark.parametrize("count", [0, 1, 3, 1 << 30, -1])
def test_a_record_count_that_does_not_fit_is_malformed(count: int) -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, b"k", b"v")])
    struct.pack_into(">i", batch, RECORD_COUNT_AT, count)

    for read in (check_records, decode_records, batch_keys, decode_columns):
        with pytest.raises(Malformed):
            read(batch)


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS])
def test_a_timestamp_out_of_range_is_malformed(horizon_ms: int | None) -> None:
    """Compaction may read one: compressed batches are stored without validation of their records."""
    batch = build_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + 10, b"l", None)], compression=1)
    struct.pack_into(">q", batch, BASE_TIMESTAMP_AT, 2**63 - 1)
    with pytest.raises(Malformed):
        filter_batch(batch, [False, True], delete_horizon_ms=horizon_ms)


def test_a_codec_that_does_not_exist_is_not_decompressed() -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")])
    batch[ATTRIBUTES_AT + 1] |= 7

    with pytest.raises(UnsupportedCompression):
        check_records(batch)


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists(), time=times, offset=st.integers(0, 60), dated=st.booleans())
def test_the_first_record_at_a_time_is_that_of_a_walk(
    codec: int, records: list[Record], time: int, offset: int, dated: bool
) -> None:
    batch = build_batch(records, compression=codec, timestamp_type=int(dated))

    found = first_record(batch, parse_batch_header(batch), time, offset)

    walked = [(record.timestamp_ms, record.offset) for record in decode_records(batch)]
    assert found == next((each for each in walked if each[0] >= time and each[1] >= offset), None)


@pytest.mark.parametrize("loops", LOOPS)
@given(records=record_lists(), time=times, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_a_search_by_time_finds_the_same_in_pieces_of_any_size(
    loops: ModuleType, records: list[Record], time: int, sizes: list[int]
) -> None:
    batch = build_batch(records)
    header, body = parse_batch_header(batch), bytes(batch[HEADER_BYTES:])
    search = loops.TimeSearch(len(records), time - header.base_timestamp, 0)
    rest, pos, turn = b"", 0, 0
    while pos < len(body) and not search.found:
        size = sizes[turn % len(sizes)]
        data = rest + body[pos : pos + size]
        rest = data[search.feed(data, False) :]
        pos, turn = pos + size, turn + 1
        assert search.found or len(rest) < 21
    search.feed(rest, True)

    deltas = [(record.timestamp_ms - header.base_timestamp, record.offset) for record in records]
    expected = next((each for each in deltas if each[0] >= time - header.base_timestamp), None)
    assert ((search.time_delta, search.offset_delta) if search.found else None) == expected


@pytest.mark.parametrize("loops", LOOPS)
def test_a_search_by_time_in_a_body_cut_at_any_byte_is_malformed(loops: ModuleType) -> None:
    body = bytes(build_batch([Record(n, NOW_MS + n, b"k", b"v" * n) for n in range(5)])[HEADER_BYTES:])
    for cut in range(len(body)):
        search = loops.TimeSearch(5, 1 << 62, 0)
        with pytest.raises(Malformed):
            search.feed(body[:cut], True)
    assert loops.TimeSearch(5, 1 << 62, 0).feed(body, True) == len(body)


def test_a_batch_decompresses_to_no_more_than_the_limit() -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(100_000))], compression=3)

    assert check_records(batch, limit_bytes=200_000).consecutive
    with pytest.raises(Malformed, match="pass 50000 bytes"):
        check_records(batch, limit_bytes=50_000)


def test_consecutive_batches_are_walked_and_other_bytes_are_malformed() -> None:
    one = build_batch([Record(0, NOW_MS, None, b"a")])
    other = build_batch([Record(1, NOW_MS, None, b"b")], base_offset=1)
    broken = bytearray(one + other)
    broken[len(one) + 16] = 1

    assert [(pos, header.base_offset) for pos, header in iter_batches(one + other)] == [(0, 0), (len(one), 1)]
    with pytest.raises(Malformed, match="magic 1"):
        list(iter_batches(broken))


def test_the_checksum_covers_what_follows_it() -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"a")])
    (stored,) = struct.unpack_from(">I", batch, CRC_AT)

    batch[0:16] = bytes(8) + batch[8:12] + b"\0\0\0\x09"

    assert crc_of(batch, 0, len(batch)) == stored


def test_sequences_wrap_to_zero() -> None:
    batch = build_batch([Record(n, NOW_MS, None, b"") for n in range(4)], producer_id=1, base_sequence=(1 << 31) - 2)

    assert parse_batch_header(batch).last_sequence == 1
    assert parse_batch_header(build_batch([Record(0, 1, None, None)])).last_sequence == -1


@pytest.mark.parametrize(("commit", "kind"), [(True, 1), (False, 0)])
def test_a_marker_has_the_outcome_of_the_transaction(commit: bool, kind: int) -> None:
    batch = build_marker(commit=commit, producer_id=5, producer_epoch=2, coordinator_epoch=8, timestamp_ms=NOW_MS)

    header = parse_batch_header(batch)
    (record,) = decode_records(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
    assert parse_marker(record) == (kind, 8)


def test_an_empty_batch_keeps_offsets_and_producer() -> None:
    header = parse_batch_header(
        build_batch([Record(n, NOW_MS, None, b"") for n in range(4)], producer_id=6, base_sequence=3, compression=4)
    )

    emptied = parse_batch_header(empty_batch(header))

    assert emptied.size == HEADER_BYTES
    assert (emptied.record_count, emptied.next_offset, emptied.last_sequence) == (0, 4, 6)
    assert (emptied.producer_id, emptied.codec) == (6, 0)
    assert decode_records(empty_batch(header)) == []


def test_the_builder_knows_its_size_and_count() -> None:
    builder = RecordBatchBuilder()
    builder.add(NOW_MS, b"k", b"v")
    builder.add(NOW_MS, b"k", b"v", [("h", None)])

    assert builder.count == 2
    assert builder.size_bytes == len(builder.build())


def test_offsets_that_do_not_increase_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="offset delta 1 after 1"):
        build_batch([Record(1, NOW_MS, None, None), Record(1, NOW_MS, None, None)])


# The loops themselves, as installed and from source.


def a_body(loops: ModuleType) -> tuple[bytes, int]:
    output = loops.Output()
    output.add(0, 0, b"key", b"value", [("h", b"x"), ("g", None)])
    output.add(-70, 1, None, b"v" * 200, [])
    output.add(2**62, 300, b"", None, [])
    return bytes(output.body), 3


@pytest.mark.parametrize("loops", LOOPS)
@given(records=record_lists(), cut=st.integers(0, 2000))
def test_the_last_value_of_a_header_is_found_in_the_records_that_have_it(
    loops: ModuleType, records: list[Record], cut: int
) -> None:
    records = [record._replace(headers=[("n", b"0"), *record.headers, ("n", record.key)]) for record in records]
    body = bytes(build_batch(records)[HEADER_BYTES:])

    found = loops.header_values(body, 0, len(body), len(records), b"n")

    assert found == [(record.offset, record.key) for record in records if record.key is not None]
    assert loops.header_values(body, 0, len(body), len(records), b"m" * 9) == []
    if cut < len(body):
        with pytest.raises(Malformed):
            loops.header_values(body, 0, cut, len(records), b"n")


@pytest.mark.parametrize("loops", LOOPS)
def test_the_loops_agree_on_a_body(loops: ModuleType) -> None:
    body, count = a_body(loops)

    assert body == a_body(LOOPS[0].values[0])[0]
    assert loops.check(body, 0, len(body), count) == (False, False, -70, 2**62)


@pytest.mark.parametrize("loops", LOOPS)
def test_a_body_cut_at_any_byte_is_malformed(loops: ModuleType) -> None:
    body, count = a_body(loops)

    for cut in range(len(body)):
        with pytest.raises(Malformed):
            loops.check(body[:cut], 0, cut, count)
        # Bytes after the end are not read, even if there are some.
        with pytest.raises(Malformed):
            loops.check(body, 0, cut, count)


@given(place=st.integers(0, 240), junk=st.binary(min_size=1, max_size=12))
def test_compiled_and_interpreted_loops_agree_on_any_body(place: int, junk: bytes) -> None:
    installed, source = (parameter.values[0] for parameter in LOOPS)
    body, count = a_body(source)
    broken = body[:place] + junk + body[place + len(junk) :]

    assert outcome(installed, broken, count) == outcome(source, broken, count)


@st.composite
def nearly_usual_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records for the fast path, sometimes an unusual one among them, and perhaps some overwritten bytes."""
    output = LOOPS[1].values[0].Output()
    small = st.none() | st.binary(max_size=70)
    count = draw(st.integers(1, 8))
    first = draw(st.sampled_from([0, 60, 8_190, 1 << 20]))
    for index in range(count):
        delta = draw(st.integers(-2, 200) | st.integers(8_100, 8_300))
        value = draw(st.binary(max_size=70) | st.sampled_from([None, b"v" * 8_191, b"v" * 8_192]))
        output.add(delta, first + index, draw(small), value, draw(st.just([]) | headers))
    body = bytes(output.body)
    place = draw(st.integers(0, len(body)))
    junk = draw(st.just(b"") | st.binary(max_size=4))
    return (body[:place] + junk + body[place + len(junk) :])[: draw(st.sampled_from([len(body), len(body) - 1]))], count


@settings(max_examples=300)
@given(case=nearly_usual_bodies())
def test_the_fast_path_agrees_with_the_slow_path(case: tuple[bytes, int]) -> None:
    body, count = case
    installed, source = (parameter.values[0] for parameter in LOOPS)

    assert outcome(source, body, count) == one_by_one(source, body, count)
    assert outcome(installed, body, count) == outcome(source, body, count)


def one_by_one(loops: ModuleType, body: bytes, count: int) -> Any:
    """A walk without the fast path."""
    try:
        walk = loops.Walk(loops.Cursor(body, 0, len(body)))
        if count * 7 > len(body):
            raise Malformed(f"{count} records in {len(body)} bytes")
        while walk.index < count:
            walk.one()
        if walk.cursor.pos != len(body):
            raise Malformed(f"{len(body) - walk.cursor.pos} bytes follow the last of {count} records")
    except Malformed as error:
        return str(error)
    return walk.keyed, walk.consecutive, walk.delta_min, walk.delta_max


def test_small_records_take_the_fast_path() -> None:
    source = LOOPS[1].values[0]
    output = source.Output()
    for index in range(3):
        output.add(index, index, b"key", b"value", [])
    output.add(3, 3, b"key", None, [])
    walk = source.Walk(source.Cursor(bytes(output.body), 0, len(output.body)))

    walk.usual(4)

    # The last few bytes and null values take the slow path.
    assert walk.index in (2, 3)


def outcome(loops: ModuleType, body: bytes, count: int) -> Any:
    try:
        return loops.check(body, 0, len(body), count)
    except Malformed as error:
        return str(error)


@pytest.mark.parametrize("loops", LOOPS)
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"\x80\x80\x80\x80\x80\x01" + bytes(20), id="a length of six bytes"),
        pytest.param(b"\x0c\x00" + b"\xff" * 11 + bytes(20), id="a time of eleven bytes"),
        pytest.param(b"\x01" + bytes(20), id="a negative length"),
        pytest.param(b"\x0c\x00\x00\x00\x03\x01\x00", id="a key of length -2"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", id="minus one headers"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", id="a header without a key"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\xfe\xff\x7f", id="too many headers"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", id="a record longer than its parts"),
    ],
)
def test_a_record_that_is_wrong_inside_is_malformed(loops: ModuleType, record: bytes) -> None:
    with pytest.raises(Malformed):
        loops.check(record, 0, len(record), 1)


def test_a_header_is_a_tuple_of_the_fields_on_disk() -> None:
    header = parse_batch_header(build_batch([Record(0, NOW_MS, None, b"x")], base_offset=0, leader_epoch=4))

    assert isinstance(header, BatchHeader)
    assert header._replace(crc=0, length=0) == (0, 0, 4, 2, 0, 0, 0, NOW_MS, NOW_MS, -1, -1, -1, 1)
