"""The part of a classic consumer's subscription that a coordinator reads: its topics.

The metadata of a classic member is opaque to the coordinator in general. Consumers begin theirs alike in every version:
a version, the topics, and user data.
"""

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's metadata, or None if the bytes are not a consumer's subscription."""
    try:
        (count,) = INT32.unpack_from(metadata, INT16.size)
        position = INT16.size + INT32.size
        if not 0 <= count <= len(metadata):
            return None
        topics: list[str] = []
        for _ in range(count):
            (length,) = INT16.unpack_from(metadata, position)
            start = position + INT16.size
            position = start + length
            if length < 0 or position > len(metadata):
                return None
            topics.append(metadata[start:position].decode())
        (user_data_length,) = INT32.unpack_from(metadata, position)
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if user_data_length <= len(metadata) - position - INT32.size else None
