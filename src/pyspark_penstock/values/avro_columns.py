"""Columns of Avro's types: converts decoded values to Arrow arrays, and Arrow arrays to values to encode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark_penstock.untyped import compute, pyarrow
from pyspark_penstock.values import gather
from pyspark_penstock.values.gather import Build
from pyspark_penstock.values.misfit import Misfit
from pyspark_penstock.values.times import DAYS_MAX, DAYS_MIN, MOMENT_US_MAX, MOMENT_US_MIN, check_range

DECIMAL_BYTES = 16
"""The size of a decimal in Arrow: a signed little-endian integer."""

Builder = Callable[[Any], Build]
"""For an Arrow type: builds a column from decoded values."""
Values = Callable[[Any], list[Any]]
"""The values to encode of an Arrow array; null is None."""


# Reading


def leaves(path: str) -> Builder:
    return lambda arrow_type: gather.leaf(arrow_type, path)


def dates(path: str) -> Builder:
    def convert(days: int) -> Any:
        if not DAYS_MIN <= days <= DAYS_MAX:
            raise Misfit("a date is not within the years 1 to 9999")
        return days

    def builder(arrow_type: Any) -> Build:
        return _or_each(
            lambda values: check_range(pyarrow.array(values, pyarrow.int32()), DAYS_MIN, DAYS_MAX).cast(arrow_type),
            gather.each(arrow_type, convert, path),
        )

    return builder


def moments(unit_us: int, path: str) -> Builder:
    """Timestamps in units of so many microseconds."""
    low, high = MOMENT_US_MIN // unit_us, MOMENT_US_MAX // unit_us

    def convert(number: int) -> Any:
        if not low <= number <= high:
            raise Misfit("a timestamp is not within the years 1 to 9999")
        return number * unit_us

    def builder(arrow_type: Any) -> Build:
        def whole(values: list[Any]) -> Any:
            found = check_range(pyarrow.array(values, pyarrow.int64()), low, high)
            return (found if unit_us == 1 else compute.multiply_checked(found, unit_us)).cast(arrow_type)

        return _or_each(whole, gather.each(arrow_type, convert, path))

    return builder


def symbols(names: Sequence[str], path: str) -> Builder:
    """Symbols of an enum, by their indexes."""

    def convert(index: int) -> Any:
        if not 0 <= index < len(names):
            raise Misfit(f"an enum of {len(names)} symbols has none of the number {index}")
        return names[index]

    return lambda arrow_type: gather.each(arrow_type, convert, path)


def decimals(path: str) -> Builder:
    def builder(arrow_type: Any) -> Build:
        def whole(values: list[Any]) -> Any:
            numbers = b"".join(bytes(DECIMAL_BYTES) if each is None else _decimal_bytes(each) for each in values)
            nulls = sum(each is None for each in values)
            valid = pyarrow.array([each is not None for each in values]).buffers()[1] if nulls else None
            found = pyarrow.Array.from_buffers(arrow_type, len(values), [valid, pyarrow.py_buffer(numbers)], nulls)
            found.validate(full=True)
            return found

        def build(values: list[Any]) -> Any:
            try:
                return whole(values)
            except Exception as error:
                raise gather.unfit(values, lambda value: whole([value]), path) from error

        return build

    return builder


def _or_each(whole: Build, one_by_one: Build) -> Build:
    """Build a column as a whole; if that fails, value by value, to find those that do not fit."""

    def build(values: list[Any]) -> Any:
        try:
            return whole(values)
        except Exception:
            return one_by_one(values)

    return build


def _decimal_bytes(raw: bytes) -> bytes:
    """A signed big-endian integer of any length, in Arrow's form."""
    if not raw:
        return bytes(DECIMAL_BYTES)
    fill = b"\xff" if raw[0] & 0x80 else b"\0"
    if len(raw) > DECIMAL_BYTES:
        head, raw = raw[:-DECIMAL_BYTES], raw[-DECIMAL_BYTES:]
        if head.strip(fill) or (raw[0] & 0x80) != (fill[0] & 0x80):
            raise Misfit("a decimal has more than 38 digits")
    return raw[::-1].ljust(DECIMAL_BYTES, fill)


# Writing


def as_they_are(array: Any) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def integers(bits: int, unit: int) -> Values:
    """Dates and timestamps as numbers in a unit of so many microseconds, truncated."""
    kind = pyarrow.int32() if bits == 32 else pyarrow.int64()

    def values(array: Any) -> list[Any]:
        found: list[Any] = array.cast(kind).to_pylist()
        return found if unit == 1 else [None if each is None else each // unit for each in found]

    return values


def symbol_indexes(symbols: Sequence[str]) -> Values:
    places = {name: index for index, name in enumerate(symbols)}

    def values(array: Any) -> list[Any]:
        found: list[Any] = array.to_pylist()
        unknown = next((each for each in found if each is not None and each not in places), None)
        if unknown is not None:
            raise Misfit(f"{unknown!r} is none of the enum's symbols: {', '.join(symbols)}")
        return [None if each is None else places[each] for each in found]

    return values


def decimal_bytes(size: int | None) -> Values:
    """Unscaled integers as bytes: as few as each needs, or a fixed number."""

    def encode(number: int) -> bytes:
        try:
            return number.to_bytes(size or (number.bit_length() + 8) // 8, "big", signed=True)
        except OverflowError:
            raise Misfit(f"a decimal does not fit {size} bytes") from None

    def values(array: Any) -> list[Any]:
        if not len(array):
            return []
        begin, end = array.offset * DECIMAL_BYTES, (array.offset + len(array)) * DECIMAL_BYTES
        raw = memoryview(array.buffers()[1])[begin:end].tobytes()
        numbers = [
            int.from_bytes(raw[at : at + DECIMAL_BYTES], "little", signed=True)
            for at in range(0, len(raw), DECIMAL_BYTES)
        ]
        marks = array.is_valid().to_pylist()
        return [encode(number) if mark else None for number, mark in zip(numbers, marks, strict=True)]

    return values


def lists(element: Values) -> Values:
    def values(array: Any) -> list[Any]:
        items = element(array.values)
        return [None if place is None else items[place[0] : place[1]] for place in _places(array)]

    return values


def maps(value: Values) -> Values:
    def values(array: Any) -> list[Any]:
        keys = array.keys.to_pylist()
        items = value(array.items)
        return [
            None if place is None else dict(zip(keys[place[0] : place[1]], items[place[0] : place[1]], strict=True))
            for place in _places(array)
        ]

    return values


def _places(array: Any) -> list[tuple[int, int] | None]:
    """For each row of a list or map array: the range of its elements, or None for null."""
    ends = array.offsets.to_pylist()
    marks = array.is_valid().to_pylist()
    return [(ends[row], ends[row + 1]) if mark else None for row, mark in enumerate(marks)]


def records(fields: Sequence[tuple[str, Values]]) -> Values:
    names = [name for name, _ in fields]

    def values(array: Any) -> list[Any]:
        # Flattened, a field is null where its record is.
        found = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
        columns = [of(found[name]) for name, of in fields]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if not array.null_count:
            return rows
        return [row if mark else None for row, mark in zip(rows, array.is_valid().to_pylist(), strict=True)]

    return values
