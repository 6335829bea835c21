# cython: annotation_typing=False, boundscheck=False, wraparound=False
"""Readers and writers of the protocol's primitive types.

A length is compared with the bytes that remain before anything is allocated for it, so that no input takes more memory
than its own size allows. Every fault of the input raises the same error, :class:`Malformed`.

``Reader`` and ``Writer`` have the old encoding, their ``Flexible`` subclasses the one with compact lengths and tagged
fields. A generated codec names the fields in their order; the reader or writer that it is given decides the encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar, TypeVar

Buffer = bytes | bytearray | memoryview
M = TypeVar("M")

ITEMS_MAX = 1 << 20
"""Structs and strings in the arrays of one message, which bounds the objects that a frame can create."""

STRING_BYTES_MAX = 0x7FFF
"""Kafka refuses longer strings in both encodings."""

VARINT_BYTES_MAX = 5
"""Seven bits each."""

NONE_LENGTH = -1
ZERO_UUID = bytes(16)

ITEMS_AT_ONCE_MAX = 256
"""Structs of an array that a slicing writer writes at once; it writes a longer array in slices."""

BYTES_AT_ONCE_MAX = 64 * 1024
"""Size of a message from which on a slicing writer defers every further array to a later slice."""

_BIT_32 = 1 << 32
_BITS_32 = _BIT_32 - 1
_I8 = Struct(">b")
_I16 = Struct(">h")
_I32 = Struct(">i")
_I64 = Struct(">q")
_U16 = Struct(">H")
_F64 = Struct(">d")


# Replica lists are short and many.
_SHORT_MAX = 16
_SHORT_INT32S = tuple(Struct(f">{count}i") for count in range(_SHORT_MAX + 1))


def _layout(count: int, code: str) -> Struct:
    return _SHORT_INT32S[count] if code == "i" and count <= _SHORT_MAX else Struct(f">{count}{code}")


class Malformed(Exception):
    """The input is invalid; the only error that decoding raises."""


class Message:
    """A struct of the protocol: fields by name, compared by value, printed in full."""

    __slots__: tuple[str, ...] = ()

    ERROR_FIELD: ClassVar[str | None] = None
    """The field with an error code, of a message that has one."""
    ERROR_LISTS: ClassVar[tuple[str, ...]] = ()
    """Lists of messages that have an error code somewhere."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in type(self).__slots__)})"


class Reader:
    """Reads the encoding without compact lengths and tags."""

    __slots__ = ("data", "end", "items_left", "octets", "pos")

    def __init__(self, data: Buffer, pos: int) -> None:
        assert pos >= 0, f"reading from {pos}"
        self.data = data
        # The same bytes again: compiled code has its own type for indexing by byte.
        self.octets = data
        self.pos = pos
        self.end = len(data)
        self.items_left = ITEMS_MAX

    def take(self, size: int) -> int:
        """Skip ``size`` bytes, which must exist; returns where they start."""
        pos = self.pos
        if size < 0 or size > self.end - pos:
            raise Malformed(f"{size} bytes are announced at {pos}, {self.end - pos} remain")
        self.pos = pos + size
        return pos

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        """Several fields of fixed width at once."""
        return layout.unpack_from(self.data, self.take(layout.size))

    def int8(self) -> int:
        value = self.octets[self.take(1)]
        return value - 0x100 if value > 0x7F else value

    def boolean(self) -> bool:
        return self.octets[self.take(1)] != 0

    def int16(self) -> int:
        pos = self.take(2)
        value = self.octets[pos] << 8 | self.octets[pos + 1]
        return value - 0x10000 if value > 0x7FFF else value

    def uint16(self) -> int:
        pos = self.take(2)
        return self.octets[pos] << 8 | self.octets[pos + 1]

    def int32(self) -> int:
        pos = self.take(4)
        high = self.octets[pos] << 8 | self.octets[pos + 1]
        value = high << 16 | self.octets[pos + 2] << 8 | self.octets[pos + 3]
        return value - _BIT_32 if value > 0x7FFFFFFF else value

    def int64(self) -> int:
        high = self.int32()
        low = self.int32()
        return high * _BIT_32 + (low & _BITS_32)

    def float64(self) -> float:
        value: float = _F64.unpack_from(self.data, self.take(8))[0]
        return value

    def uuid(self) -> bytes:
        start = self.take(16)
        return bytes(self.data[start : start + 16])

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        pos = self.pos
        # Nearly every length fits in one byte.
        if pos < self.end and self.octets[pos] < 0x80:
            self.pos = pos + 1
            return self.octets[pos]
        value = 0
        for place in range(VARINT_BYTES_MAX):
            byte = self.octets[self.take(1)]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value & _BITS_32
        raise Malformed(f"the varint before {self.pos} is longer than {VARINT_BYTES_MAX} bytes")

    def present(self) -> bool:
        """Whether a nullable struct follows."""
        return self.int8() >= 0

    # Lengths: the part in which the two encodings differ. A null is -1.

    def string_length(self) -> int:
        return self.int16()

    def bytes_length(self) -> int:
        return self.int32()

    def array_length(self) -> int:
        return self.int32()

    # Everything below is the same in both encodings.

    def string_nullable(self) -> str | None:
        size = self.string_length()
        if size < 0:
            if size == NONE_LENGTH:
                return None
            raise Malformed(f"a string of length {size} at {self.pos}")
        if size > STRING_BYTES_MAX:
            raise Malformed(f"a string of {size} bytes at {self.pos}, the most is {STRING_BYTES_MAX}")
        start = self.take(size)
        return str(self.data[start : start + size], "utf-8")

    def string(self) -> str:
        value = self.string_nullable()
        if value is None:
            raise Malformed(f"null at {self.pos} in place of a string")
        return value

    def view_nullable(self) -> memoryview | None:
        """A view of the bytes, without a copy."""
        size = self.bytes_length()
        if size < 0:
            if size == NONE_LENGTH:
                return None
            raise Malformed(f"bytes of length {size} at {self.pos}")
        start = self.take(size)
        return memoryview(self.data)[start : start + size]

    def raw_nullable(self) -> bytes | None:
        view = self.view_nullable()
        return None if view is None else bytes(view)

    def raw(self) -> bytes:
        view = self.view_nullable()
        if view is None:
            raise Malformed(f"null at {self.pos} in place of bytes")
        return bytes(view)

    def count(self, size_min: int, nullable: bool) -> int:
        """How many elements follow, of which each takes ``size_min`` bytes or more; -1 for null."""
        count = self.array_length()
        if count < 0:
            if count == NONE_LENGTH and nullable:
                return NONE_LENGTH
            raise Malformed(f"an array of length {count} at {self.pos}")
        if count * size_min > self.end - self.pos:
            raise Malformed(f"{count} elements are announced at {self.pos}, {self.end - self.pos} bytes remain")
        return count

    def items(self, size_min: int, nullable: bool) -> int:
        """The same for structs and strings, whose number is bounded over the whole message; -1 for null."""
        count = self.count(size_min, nullable)
        if count > 0:
            self.items_left -= count
            if self.items_left < 0:
                raise Malformed(f"more than {ITEMS_MAX} structs in one message")
        return count

    def array_nullable(self, read: Callable[[Reader, int], M], version: int, size_min: int) -> list[M] | None:
        count = self.items(size_min, True)
        return None if count < 0 else [read(self, version) for _ in range(count)]

    def array(self, read: Callable[[Reader, int], M], version: int, size_min: int) -> list[M]:
        items = self.array_nullable(read, version, size_min)
        if items is None:
            raise Malformed(f"null at {self.pos} in place of an array")
        return items

    def integers_nullable(self, code: str, size: int) -> list[int] | None:
        count = self.count(size, True)
        if count < 0:
            return None
        return list(_layout(count, code).unpack_from(self.data, self.take(count * size)))

    def integers(self, code: str, size: int) -> list[int]:
        items = self.integers_nullable(code, size)
        if items is None:
            raise Malformed(f"null at {self.pos} in place of an array")
        return items

    def strings_nullable(self) -> list[str] | None:
        count = self.items(1, True)
        return None if count < 0 else [self.string() for _ in range(count)]

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.items(1, False))]

    def uuids_nullable(self) -> list[bytes] | None:
        count = self.items(16, True)
        return None if count < 0 else [self.uuid() for _ in range(count)]

    def uuids(self) -> list[bytes]:
        return [self.uuid() for _ in range(self.items(16, False))]

    def tagged(self) -> Iterator[tuple[int, int]]:
        """Each tagged field's number and end; for an unknown number the caller sets ``pos`` to the end."""
        return iter(())

    def skip_tags(self) -> None:
        """Skip the tagged fields of a struct, all of which are unknown."""

    def finish(self) -> None:
        """Raise if the message goes beyond the end; bytes behind it are ignored."""
        if self.pos > self.end:
            raise Malformed(f"the message passes the end by {self.pos - self.end} bytes")


class FlexibleReader(Reader):
    """Reads the encoding with compact lengths and tagged fields."""

    __slots__ = ()

    def string_length(self) -> int:
        return self.varint() - 1

    def bytes_length(self) -> int:
        return self.varint() - 1

    def array_length(self) -> int:
        return self.varint() - 1

    def tagged(self) -> Iterator[tuple[int, int]]:
        count = self.varint()
        if count * 2 > self.end - self.pos:
            raise Malformed(f"{count} tagged fields are announced at {self.pos}")
        for _ in range(count):
            tag = self.varint()
            size = self.varint()
            if size > self.end - self.pos:
                raise Malformed(f"tagged field {tag} of {size} bytes at {self.pos} passes the end")
            end = self.pos + size
            yield tag, end
            if self.pos != end:
                raise Malformed(f"tagged field {tag} ends at {self.pos} in place of {end}")

    def skip_tags(self) -> None:
        # Nearly every struct has none.
        if self.pos < self.end and self.octets[self.pos] == 0:
            self.pos += 1
            return
        for _, end in self.tagged():
            self.pos = end


def varint_bytes(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Writer(bytearray):
    """Writes the encoding without compact lengths and tags."""

    def int8(self, value: int) -> None:
        self += _I8.pack(value)

    def boolean(self, value: bool) -> None:
        self.append(1 if value else 0)

    def int16(self, value: int) -> None:
        self += _I16.pack(value)

    def uint16(self, value: int) -> None:
        self += _U16.pack(value)

    def int32(self, value: int) -> None:
        self += _I32.pack(value)

    def int64(self, value: int) -> None:
        self += _I64.pack(value)

    def float64(self, value: float) -> None:
        self += _F64.pack(value)

    def uuid(self, value: bytes) -> None:
        if len(value) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
        self += value

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.append(value & 0x7F | 0x80)
            value >>= 7
        self.append(value)

    def present(self, value: object) -> bool:
        """Mark whether a nullable struct follows."""
        self.append(255 if value is None else 1)
        return value is not None

    # Lengths: the part in which the two encodings differ. A null is -1.

    def string_length(self, size: int) -> None:
        self += _I16.pack(size)

    def length(self, size: int) -> None:
        self += _I32.pack(size)

    def fresh(self) -> Writer:
        """An empty one of the same encoding, for the body of a tagged field."""
        return Writer()

    def tags(self, tagged: list[tuple[int, Writer]] | None = None) -> None:
        """End a struct."""
        assert not tagged, "a tagged field in a version that has none"

    # Everything below is the same in both encodings.

    def string(self, value: str) -> None:
        raw = value.encode()
        if len(raw) > STRING_BYTES_MAX:
            raise ValueError(f"a string of {len(raw)} bytes, the most is {STRING_BYTES_MAX}")
        self.string_length(len(raw))
        self += raw

    def string_nullable(self, value: str | None) -> None:
        if value is None:
            self.string_length(NONE_LENGTH)
        else:
            self.string(value)

    def raw(self, value: Buffer) -> None:
        self.length(len(value))
        self += value

    def raw_nullable(self, value: Buffer | None) -> None:
        if value is None:
            self.length(NONE_LENGTH)
        else:
            self.raw(value)

    def array(self, write: Callable[[Writer, M, int], None], items: list[M], version: int) -> None:
        self.length(len(items))
        for item in items:
            write(self, item, version)

    def array_nullable(self, write: Callable[[Writer, M, int], None], items: list[M] | None, version: int) -> None:
        if items is None:
            self.length(NONE_LENGTH)
        else:
            self.array(write, items, version)

    def integers(self, code: str, items: list[int]) -> None:
        self.length(len(items))
        self += _layout(len(items), code).pack(*items)

    def integers_nullable(self, code: str, items: list[int] | None) -> None:
        if items is None:
            self.length(NONE_LENGTH)
        else:
            self.integers(code, items)

    def strings(self, items: list[str]) -> None:
        self.length(len(items))
        for item in items:
            self.string(item)

    def strings_nullable(self, items: list[str] | None) -> None:
        if items is None:
            self.length(NONE_LENGTH)
        else:
            self.strings(items)

    def uuids(self, items: list[bytes]) -> None:
        self.length(len(items))
        for item in items:
            self.uuid(item)

    def uuids_nullable(self, items: list[bytes] | None) -> None:
        if items is None:
            self.length(NONE_LENGTH)
        else:
            self.uuids(items)


class FlexibleWriter(Writer):
    """Writes the encoding with compact lengths and tagged fields."""

    def string_length(self, size: int) -> None:
        self.varint(size + 1)

    def length(self, size: int) -> None:
        self.varint(size + 1)

    def fresh(self) -> Writer:
        return FlexibleWriter()

    def tags(self, tagged: list[tuple[int, Writer]] | None = None) -> None:
        if not tagged:
            self.append(0)
            return
        self.varint(len(tagged))
        for tag, body in tagged:
            self.varint(tag)
            self.varint(len(body))
            self += body


Hole = tuple[int, Callable[[Any, Any, int], None], Any, int]
"""A deferred array: the position of its elements, how one is written, the elements, the version."""


class SlicingWriter(Writer):
    """Writes the old encoding and defers long arrays, so that no message is written in one long step.

    An array that is not a list makes its elements while it is iterated, and is always deferred.
    """

    __slots__ = ("holes",)

    def __init__(self) -> None:
        self.holes: list[Hole] = []

    def array(self, write: Callable[[Writer, M, int], None], items: list[M], version: int) -> None:
        self.length(len(items))
        if type(items) is not list or len(items) > ITEMS_AT_ONCE_MAX or len(self) > BYTES_AT_ONCE_MAX:
            self.holes.append((len(self), write, items, version))
            return
        for item in items:
            write(self, item, version)

    def next_slice(self) -> SlicingWriter:
        """An empty one of the same encoding."""
        return SlicingWriter()


class SlicingFlexibleWriter(FlexibleWriter):
    """The same for the encoding with compact lengths and tagged fields."""

    __slots__ = ("holes",)

    def __init__(self) -> None:
        self.holes: list[Hole] = []

    def array(self, write: Callable[[Writer, M, int], None], items: list[M], version: int) -> None:
        self.length(len(items))
        if type(items) is not list or len(items) > ITEMS_AT_ONCE_MAX or len(self) > BYTES_AT_ONCE_MAX:
            self.holes.append((len(self), write, items, version))
            return
        for item in items:
            write(self, item, version)

    def next_slice(self) -> SlicingFlexibleWriter:
        """An empty one of the same encoding."""
        return SlicingFlexibleWriter()


def decode(read: Callable[[Reader, int], M], data: Buffer, offset: int, version: int, flexible: bool) -> M:
    """The message that begins at ``offset``.

    Bytes behind it are ignored, as in Kafka: librdkafka sends some requests with spare bytes.
    """
    reader = FlexibleReader(data, offset) if flexible else Reader(data, offset)
    try:
        message = read(reader, version)
    except UnicodeDecodeError as error:
        raise Malformed(f"{error} before {reader.pos} of {reader.end}") from error
    reader.finish()
    return message


def encode(write: Callable[[Writer, M, int], None], message: M, version: int, flexible: bool) -> bytes:
    """The bytes of a message; ValueError where a value does not fit its field."""
    writer = FlexibleWriter() if flexible else Writer()
    try:
        write(writer, message, version)
    except StructError as error:
        raise ValueError(f"{type(message).__module__}: {error}") from error
    return bytes(writer)


def absent(message: object, field: str, version: int) -> None:
    """Raise for a value that this version has no field for."""
    raise ValueError(f"{type(message).__module__} version {version} has no {field}: {getattr(message, field)!r}")


def out_of_range(name: str, version: int, version_min: int, version_max: int) -> ValueError:
    return ValueError(f"{name} has versions {version_min} to {version_max}, not {version}")
