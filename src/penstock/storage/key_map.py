"""The newest offset of every key, in bounded memory."""

from hashlib import blake2b

from penstock.model.ids import NO_OFFSET, Offset

DIGEST_BYTES = 16
KEY_BYTES_MAX = 15
"""Keys up to this size are stored as they are; longer ones as their digest, which is longer than any such key."""

ENTRY_BYTES = 200
"""Memory per entry: its slot in the dictionary at the worst moment, the digest and the offset."""


def keys_max_of(buffer_bytes: int) -> int:
    """How many keys a buffer of so many bytes holds (log.cleaner.dedupe.buffer.size)."""
    return max(1, buffer_bytes // ENTRY_BYTES)


class KeyMap:
    """Key -> newest offset. Full at `keys_max`; two keys with the same 128-bit digest count as one."""

    __slots__ = ("_offsets", "keys_max")

    def __init__(self, keys_max: int) -> None:
        assert keys_max > 0
        self.keys_max = keys_max
        self._offsets: dict[bytes, Offset] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self.keys_max

    def put(self, key: bytes, offset: Offset) -> None:
        self._offsets[key if len(key) <= KEY_BYTES_MAX else blake2b(key, digest_size=DIGEST_BYTES).digest()] = offset

    def newest(self, key: bytes) -> Offset:
        """The newest offset of a key; -1 when the map does not have it."""
        return self._offsets.get(
            key if len(key) <= KEY_BYTES_MAX else blake2b(key, digest_size=DIGEST_BYTES).digest(), NO_OFFSET
        )
