"""Validation of a produced batch, with the timestamps and the compression that the topic is configured for.

Batches are stored as they were sent. Only three things change one: LogAppendTime, a topic's `compression.type`, and a
wrong max timestamp. The checks are in Kafka's order, so that a batch with several faults gets the same error.

Uncompressed records are checked one by one. Compressed ones are not, unless the topic's settings need the records or
ask for the check (`compressed.check`): decompression costs more than everything else that happens to a batch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from fastcrc.crc32 import iscsi as crc32c

from penstock.config.log import TopicConfig
from penstock.model.batch import (
    ATTRIBUTES_AT,
    CLIENT_ATTRIBUTES,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnknownServerError,
    UnsupportedCompressionType,
)
from penstock.model.ids import Offset, TopicPartition
from penstock.wire import compression
from penstock.wire.decompression_budget import DecompressionBudget
from penstock.wire.primitives import Buffer, Malformed
from penstock.wire.record_loops import check, read_headers
from penstock.wire.records import Header, row_slices

LENGTH_MIN = 14
"""Least length of a message of the oldest format; a smaller length is invalid."""

RECORDS_BYTES_MAX = 128 * 1024 * 1024
"""Most bytes of records in a compressed batch."""

HEAVY_BYTES = 64 * 1024
"""From this batch size on, compression runs in a thread."""

HEAVY_CHECKED_BYTES = 2 * 1024
"""The same where each record has a meaning, which may take milliseconds to check."""

LIGHT_RECORDS_BYTES_MAX = 1024 * 1024
"""Most bytes that are decompressed on the event loop."""

RECORDS_RATIO_USUAL = 8
"""Most batches hold no more than this many times their compressed size."""

RECORD_ERRORS_MAX = 1000
"""Most invalid records listed in a response."""

TIMESTAMP_MAX = 2**63 - 1
ZSTD_FROM_VERSION = 7
"""The first Produce version that allows zstd."""

TIMES, KEY_SIZES = 2, 5
"""Columns of `record_loops.Rows`."""

unpack_header = HEADER.unpack_from
make_header: Callable[[type[BatchHeader], tuple[int, ...]], BatchHeader] = tuple.__new__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
"""A header without the check of its length that `_make` repeats."""

RecordCheck = Callable[[bytes, bool, Sequence[Header], int], str | None]
"""Why a topic does not accept a record of this key, that has a value or none, with these headers and this timestamp."""

NO_CODEC = -1
CODECS = {
    "producer": NO_CODEC,
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}


class ValidationRules:
    """A topic's settings as validation needs them, shared by all its partitions."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "bytes_max",
        "check_record",
        "codec",
        "compact",
        "dedupe_records",
        "heavy_bytes",
        "level",
        "log_append_time",
        "plain",
        "trusting",
    )

    def __init__(self, config: TopicConfig, check_record: "RecordCheck | None" = None) -> None:
        """`check_record` is for topics whose records have a meaning to the broker."""
        self.check_record = check_record
        self.heavy_bytes = HEAVY_BYTES if check_record is None else HEAVY_CHECKED_BYTES
        """From this batch size on, a batch that has to be opened is validated in a thread."""
        self.bytes_max = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.compact = "compact" in config.cleanup_policy
        self.codec = CODECS[config.compression_type]
        self.level: int | None = None
        if self.codec == compression.GZIP:
            self.level = config.compression_gzip_level
        elif self.codec == compression.LZ4:
            self.level = config.compression_lz4_level
        elif self.codec == compression.ZSTD:
            self.level = config.compression_zstd_level
        self.trusting = config.compressed_check == "header"
        """Whether only the header of a compressed batch is checked."""
        self.dedupe_records = config.dedupe_window_records
        self.plain = (
            not self.log_append_time
            and not self.compact
            and self.codec == NO_CODEC
            and not self.dedupe_records
            and check_record is None
        )
        """Whether the settings need no more than `plain_header`."""

    def opens(self, codec: int) -> bool:
        """Whether a batch of this codec has to be decompressed or compressed, or each of its records read."""
        return codec != compression.NONE or self.codec > compression.NONE or self.check_record is not None


class TooHeavy(Exception):
    """A batch is too large to decompress on the loop, or corrupt: a thread finds out which."""


def refusal(error: type[BrokerError], message: str, record_errors: list[tuple[int, str]]) -> BrokerError:
    """An error whose message goes to the producer, with the invalid records."""
    failure = error(message)
    failure.record_errors = record_errors
    return failure


def plain_header(
    records: memoryview, rules: ValidationRules, now_ms: int, version: int, tp: TopicPartition
) -> BatchHeader | None:
    """The header of a batch that may be stored as it is; None where `validate` has to decide.

    Almost every batch takes this path: the checks of `validate` in one function.
    """
    size = len(records)
    if not rules.plain or size < HEADER_BYTES:
        return None
    header = make_header(BatchHeader, unpack_header(records))
    base_offset, length, _, magic, crc, attributes, last, base_time, max_time, _, _, sequence, count = header
    if not (
        magic == MAGIC
        and length + PREFIX_BYTES == size <= rules.bytes_max
        and base_offset == 0
        and (attributes == 0 or (rules.trusting and attributes <= compression.LZ4 + (version >= ZSTD_FROM_VERSION)))
        and last + 1 == count > 0
        and (sequence >= 0 or header[9] < 0)
    ):
        return None
    if crc32c(records[ATTRIBUTES_AT:]) != crc:
        raise CorruptMessage(f"Record is corrupt (stored crc = {crc}) in topic partition {tp}.")
    if attributes == 0:
        try:
            _, consecutive, delta_min, delta_max = check(records, HEADER_BYTES, size, count)
        except Malformed:
            return None
        base_time += delta_min
        if not consecutive or base_time + delta_max - delta_min != max_time:
            return None
    elif base_time > max_time:
        return None
    if (
        base_time > NO_TIMESTAMP
        and now_ms - base_time <= rules.before_max_ms
        and max_time - now_ms <= rules.after_max_ms
    ):
        return header
    return None


def one_batch(records: memoryview, version: int) -> memoryview:
    """The single batch that a partition's records must be. An incomplete batch after it is cut off, as in Kafka."""
    size = batch_size(records)
    if size is None:
        raise InvalidRecord(
            f"Produce requests with version {version} must have at least one record batch per partition"
        )
    if records[MAGIC_AT] != MAGIC:
        raise InvalidRecord(
            f"Produce requests with version {version} are only allowed to contain record batches with magic version 2"
        )
    if version < ZSTD_FROM_VERSION and size >= HEADER_BYTES:
        check_old_codec(records[ATTRIBUTES_AT + 1] & CODEC_MASK, version)
    if batch_size(records[size:]) is not None:
        raise InvalidRecord(
            f"Produce requests with version {version} are only allowed to contain exactly one record batch per "
            "partition"
        )
    return records[:size]


def check_old_codec(codec: int, version: int) -> None:
    """Check the codec of a request version before zstd; Kafka checks it first."""
    if codec > compression.ZSTD:
        raise UnknownServerError(f"Unknown compression type id: {codec}")
    if codec == compression.ZSTD:
        raise UnsupportedCompressionType(
            f"Produce requests with version {version} are not allowed to use ZStandard compression"
        )


def batch_size(records: memoryview) -> int | None:
    """The size of the first batch; None when it is incomplete."""
    if len(records) < PREFIX_BYTES:
        return None
    length: int = PREFIX.unpack_from(records)[1]
    if length < LENGTH_MIN:
        raise refusal(
            CorruptMessage, f"Record size {length} is less than the minimum record overhead ({LENGTH_MIN})", []
        )
    if len(records) <= MAGIC_AT:
        return None
    if records[MAGIC_AT] > MAGIC:
        raise refusal(CorruptMessage, f"Invalid magic found in record: {(records[MAGIC_AT] ^ 0x80) - 0x80}", [])
    return length + PREFIX_BYTES if length + PREFIX_BYTES <= len(records) else None


def check_header(batch: memoryview, rules: ValidationRules, tp: TopicPartition, *, internal: bool) -> BatchHeader:
    """The header of a batch, after its size, CRC, codec and client fields are checked."""
    base_offset: Offset = PREFIX.unpack_from(batch)[0]
    if base_offset != 0 and not internal:
        raise InvalidRecord(
            f"The baseOffset of the record batch in the append to {tp} should be 0, but it is {base_offset}"
        )
    if len(batch) > rules.bytes_max and not internal:
        raise MessageTooLarge(
            f"The record batch size in the append to {tp} is {len(batch)} bytes which exceeds the maximum configured "
            f"value of {rules.bytes_max}."
        )
    if len(batch) < HEADER_BYTES:
        raise CorruptMessage(f"Record is corrupt (a batch of {len(batch)} bytes) in topic partition {tp}.")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if crc32c(batch[ATTRIBUTES_AT:]) != header.crc:
        raise CorruptMessage(f"Record is corrupt (stored crc = {header.crc}) in topic partition {tp}.")
    if header.attributes & CODEC_MASK > compression.ZSTD:
        # The error code that Kafka uses.
        raise UnknownServerError(f"Unknown compression type id: {header.attributes & CODEC_MASK}")
    if not internal:
        check_client_header(header, tp)
    return header


def check_client_header(header: BatchHeader, tp: TopicPartition) -> None:
    """Reject inconsistent counts, and fields that only a broker may set."""
    last, count = header.last_offset_delta, header.record_count
    if last < 0:
        raise InvalidRecord(f"Batch has an invalid offset range: [0, {last}] in topic partition {tp}")
    if count <= 0:
        raise InvalidRecord(f"Invalid reported count for record batch: {count} in topic partition {tp}")
    if last + 1 != count:
        raise InvalidRecord(
            f"Inconsistent batch offset range [0, {last}] and count of records {count} in topic partition {tp}"
        )
    check_client_attributes(header, tp)
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} "
            f"in topic partition {tp}"
        )


def check_client_attributes(header: BatchHeader, tp: TopicPartition) -> None:
    """Reject attributes that only a broker sets, that have no meaning yet, or that need a producer id."""
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecord(f"Clients are not allowed to write control records in topic partition {tp}")
    foreign = header.attributes & ~CLIENT_ATTRIBUTES
    if foreign:
        raise InvalidRecord(f"Clients are not allowed to set the attributes {foreign:#06x} in topic partition {tp}")
    if header.attributes & TRANSACTIONAL_FLAG and not header.has_producer:
        raise InvalidRecord(f"A transactional batch has no producer id in topic partition {tp}")


def validate(
    batch: memoryview,
    rules: ValidationRules,
    now_ms: int,
    tp: TopicPartition,
    *,
    internal: bool,
    records_bytes_max: int = RECORDS_BYTES_MAX,
) -> tuple[memoryview, BatchHeader]:
    """The batch to store, with its header; raises the error of the response.

    Depends on its arguments only and changes only `batch`, so that it may run in a thread.
    """
    header = check_header(batch, rules, tp, internal=internal)
    if header.attributes & CONTROL_FLAG:
        return batch, header
    codec = header.attributes & CODEC_MASK
    body, start = opened(batch, codec, records_bytes_max, tp)
    max_timestamp = check_records(body, start, header, rules, now_ms, tp)
    if rules.check_record is not None and not internal:
        check_each(body, start, header, rules.check_record, now_ms if rules.log_append_time else None, tp)
    target = codec if rules.codec == NO_CODEC else rules.codec
    if target != codec:
        packed = compression.compress(target, memoryview(body)[start:], rules.level)
        batch = memoryview(bytearray(HEADER_BYTES) + packed)
        if len(batch) > rules.bytes_max and not internal:
            raise MessageTooLarge(
                f"Message batch size is {len(batch)} bytes in append to partition {tp} which exceeds the maximum "
                f"configured size of {rules.bytes_max}."
            )
    attributes = header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME_FLAG) | target
    if rules.log_append_time:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = now_ms
    if target != codec or attributes != header.attributes or max_timestamp != header.max_timestamp:
        changed = header._replace(length=len(batch) - PREFIX_BYTES, attributes=attributes, max_timestamp=max_timestamp)
        return sealed(batch, changed)
    return batch, header


def validate_within(
    budget: DecompressionBudget, batch: memoryview, rules: ValidationRules, now_ms: int, tp: TopicPartition
) -> tuple[memoryview, BatchHeader]:
    """`validate` a client's batch in a thread, within the memory budget of all threads.

    The decompressed size is not known beforehand: a batch with an unusual ratio is decompressed twice.
    """
    usual = min(max(LIGHT_RECORDS_BYTES_MAX, RECORDS_RATIO_USUAL * len(batch)), RECORDS_BYTES_MAX)
    with budget.hold(usual):
        try:
            return validate(batch, rules, now_ms, tp, internal=False, records_bytes_max=usual)
        except TooHeavy:
            pass
    with budget.hold(RECORDS_BYTES_MAX):
        return validate(batch, rules, now_ms, tp, internal=False)


def opened(batch: memoryview, codec: int, records_bytes_max: int, tp: TopicPartition) -> tuple[Buffer, int]:
    """A buffer with the decompressed records of a batch, and where in it they start."""
    if codec == compression.NONE:
        return batch, HEADER_BYTES
    try:
        return compression.decompress(codec, batch[HEADER_BYTES:], records_bytes_max), 0
    except Malformed as error:
        if records_bytes_max < RECORDS_BYTES_MAX:
            raise TooHeavy
        # The error code that Kafka uses.
        raise UnknownServerError(f"Failed to decompress record stream in topic partition {tp}: {error}")


def sealed(batch: memoryview, header: BatchHeader) -> tuple[memoryview, BatchHeader]:
    """Write a changed header into the batch, with its new CRC."""
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    HEADER.pack_into(batch, 0, *header)
    header = header._replace(crc=crc32c(batch[ATTRIBUTES_AT:]))
    batch[CRC_AT : CRC_AT + 4] = header.crc.to_bytes(4, "big")
    return batch, header


def check_records(
    body: Buffer,
    start: int,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    tp: TopicPartition,
) -> int:
    """The greatest timestamp of the records; raises one error for all records that the topic does not accept."""
    append_time = header.attributes & LOG_APPEND_TIME_FLAG
    try:
        keyed, consecutive, delta_min, delta_max = check(body, start, len(body), header.record_count)
    except Malformed as error:
        raise InvalidRecord(f"Found invalid record structure in topic partition {tp}: {error}")
    if not consecutive:
        raise InvalidRecord(f"Record offsets in the batch are not consecutive in topic partition {tp}")
    if not keyed and rules.compact:
        refuse_keyless(body, start, header, tp)
    if append_time:
        least = greatest = header.max_timestamp
    else:
        least, greatest = header.base_timestamp + delta_min, header.base_timestamp + delta_max
        if greatest > TIMESTAMP_MAX and not rules.log_append_time:
            raise InvalidTimestamp(f"Timestamp {greatest} is more than a timestamp can be in topic partition {tp}")
    if append_time or not in_range(least, rules, now_ms) or not in_range(greatest, rules, now_ms):
        refuse_timestamps(header, record_timestamps(body, start, header), rules, now_ms)
    return max(greatest, NO_TIMESTAMP)


def check_each(
    body: Buffer, start: int, header: BatchHeader, check_record: RecordCheck, append_ms: int | None, tp: TopicPartition
) -> None:
    """Raise for the records that a check does not accept, if there are any. `append_ms` replaces their timestamps."""
    errors: list[tuple[int, str]] = []
    index = 0
    for rows, columns in row_slices(body, start, header.record_count):
        _, ends, times, _, key_at, key_sizes, _, value_sizes, headers_at, header_counts = columns
        for row in range(rows):
            key = bytes(body[key_at[row] : key_at[row] + key_sizes[row]])
            try:
                headers = read_headers(body, headers_at[row], ends[row]) if header_counts[row] else ()
                timestamp = header.base_timestamp + times[row] if append_ms is None else append_ms
                reason = check_record(key, value_sizes[row] >= 0, headers, timestamp)
            except UnicodeDecodeError:
                reason = "a header's key is not UTF-8"
            if reason is not None and len(errors) < RECORD_ERRORS_MAX:
                errors.append((index + row, reason))
        index += rows
    if errors:
        raise refusal(
            InvalidRecord, f"{len(errors)} record(s) are refused in topic partition {tp}: {errors[0][1]}", errors
        )


def record_timestamps(body: Buffer, start: int, header: BatchHeader) -> Iterator[int]:
    """The timestamp of each record."""
    append_time = header.attributes & LOG_APPEND_TIME_FLAG
    for rows, columns in row_slices(body, start, header.record_count):
        for delta in columns[TIMES][:rows]:
            yield header.max_timestamp if append_time else header.base_timestamp + delta


def in_range(timestamp: int, rules: ValidationRules, now_ms: int) -> bool:
    """Whether the topic accepts a timestamp; with LogAppendTime it accepts any."""
    if rules.log_append_time or timestamp == NO_TIMESTAMP:
        return True
    return now_ms - timestamp <= rules.before_max_ms and timestamp - now_ms <= rules.after_max_ms


def refuse_timestamps(header: BatchHeader, timestamps: Iterable[int], rules: ValidationRules, now_ms: int) -> None:
    """Raise for the records whose timestamps the topic does not accept, if there are any."""
    errors: list[tuple[int, str]] = []
    for index, timestamp in enumerate(timestamps):
        if len(errors) == RECORD_ERRORS_MAX:
            break
        if not rules.log_append_time and timestamp != NO_TIMESTAMP:
            if not in_range(timestamp, rules, now_ms):
                errors.append(
                    (
                        index,
                        f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp should "
                        f"be within [{now_ms - rules.before_max_ms}, {now_ms + rules.after_max_ms}]",
                    )
                )
        elif header.attributes & LOG_APPEND_TIME_FLAG:
            errors.append(
                (
                    index,
                    f"Invalid timestamp type in message with offset {index}. Producer should not set timestamp type "
                    "to LogAppendTime.",
                )
            )
    if errors:
        raise refusal(
            InvalidTimestamp,
            "One or more records have been rejected due to invalid timestamp",
            errors,
        )


def refuse_keyless(body: Buffer, start: int, header: BatchHeader, tp: TopicPartition) -> None:
    message = f"Compacted topic cannot accept message without key in topic partition {tp}"
    errors: list[tuple[int, str]] = []
    count = first = 0
    for rows, columns in row_slices(body, start, header.record_count):
        keyless = [first + row for row, size in enumerate(columns[KEY_SIZES][:rows]) if size < 0]
        errors += ((index, message) for index in keyless[: RECORD_ERRORS_MAX - len(errors)])
        count += len(keyless)
        first += rows
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, _ in errors[:3])
    raise refusal(
        InvalidRecord,
        f"One or more records have been rejected due to {count} record errors in total, and only showing the "
        f"first three errors at most: [{shown}]",
        errors,
    )
