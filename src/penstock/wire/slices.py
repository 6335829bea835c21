"""Long messages, written in slices so that the event loop can run other work between them.

A slicing writer leaves holes where long arrays belong. `SlicedMessage.steps` fills them element by element and stops
after each; joined, the parts are byte for byte what the plain writer writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, Protocol, TypeVar, cast

from penstock.wire.primitives import BYTES_AT_ONCE_MAX, ITEMS_AT_ONCE_MAX, SlicingFlexibleWriter, SlicingWriter

From = TypeVar("From", covariant=True)
To = TypeVar("To")


class Countable(Sized, Iterable[From], Protocol[From]):
    """A sized iterable."""


class _Each(Generic[From, To]):
    """Elements that are created lazily, one at a time."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Countable[From], make: Callable[[From], To]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[To]:
        return map(self._make, self._items)


def each(items: Countable[From], make: Callable[[From], To], *, at_once_max: int = ITEMS_AT_ONCE_MAX) -> list[To]:
    """`[make(item) for item in items]` for the array of a response; a long one is created while it is written.

    The elements of a long one have the state of the moment in which they are written. `at_once_max` is lower than the
    default if one element takes long to create.
    """
    if len(items) <= at_once_max:
        return [make(item) for item in items]
    return cast("list[To]", _Each(items, make))


def is_long(items: Sequence[object]) -> bool:
    """Whether an array is long enough to be written in slices."""
    return not isinstance(items, list) or len(items) > ITEMS_AT_ONCE_MAX


class SlicedMessage:
    """A message with holes, and its parts as they are written."""

    __slots__ = ("_visit", "_writer", "parts", "size")

    def __init__(self, writer: SlicingWriter | SlicingFlexibleWriter, visit: Callable[[Any], None]) -> None:
        """`visit` is called once with each element of a long array."""
        self._writer = writer
        self._visit = visit
        self.parts: list[bytes] = []
        self.size = 0

    def steps(self) -> Iterator[None]:
        """Write the message; the caller may pause between two steps."""
        return self._fill(self._writer)

    def _fill(self, writer: SlicingWriter | SlicingFlexibleWriter) -> Iterator[None]:
        start = 0
        with memoryview(writer) as view:
            for end, write, items, version in writer.holes:
                self._add(bytes(view[start:end]))
                start = end
                yield from self._elements(writer.next_slice(), write, items, version)
            self._add(bytes(view[start:]))

    def _elements(
        self,
        slice_: SlicingWriter | SlicingFlexibleWriter,
        write: Callable[[Any, Any, int], None],
        items: Sequence[object],
        version: int,
    ) -> Iterator[None]:
        long = is_long(items)
        for item in items:
            if long:
                self._visit(item)
            write(slice_, item, version)
            if slice_.holes or len(slice_) > BYTES_AT_ONCE_MAX:
                yield from self._fill(slice_)
                slice_ = slice_.next_slice()
            yield
        self._add(bytes(slice_))

    def _add(self, part: bytes) -> None:
        if part:
            self.parts.append(part)
            self.size += len(part)
