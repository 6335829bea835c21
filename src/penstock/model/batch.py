"""The 61-byte header of a record batch, which is all that a broker usually reads of it.

A batch is stored, replicated and sent as the producer made it. The broker writes two fields, the base offset and the
leader epoch; both precede the part that the checksum covers, so that the checksum stays valid.
"""

from struct import Struct
from typing import NamedTuple

from penstock.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId

MAGIC = 2
"""The only magic that is stored; 0 and 1 are the message sets of old producers."""

HEADER = Struct(">qiibIHiqqqhii")
"""Attributes are a bit set and therefore unsigned: the highest bit is not a sign."""
HEADER_BYTES = 61
"""The whole header; the records begin here."""

PREFIX = Struct(">qi")
PREFIX_BYTES = 12
"""Base offset and length: the length counts from here."""

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
"""Also where the checksummed part begins."""
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

PRODUCER = Struct(">H20xqhi")
"""Attributes, producer id, producer epoch and base sequence, from `ATTRIBUTES_AT` on."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40
CLIENT_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG
"""Bits that a producer may set. Control and delete horizon are the broker's; the others have no meaning yet."""

NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

assert HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The header of a batch; ``BatchHeader._make(HEADER.unpack_from(buffer, position))``."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The first offset after the batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; they wrap to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the delete horizon of tombstones and markers."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent producer wrote it. Every negative id means none, as in Kafka."""
        return self.producer_id >= 0
