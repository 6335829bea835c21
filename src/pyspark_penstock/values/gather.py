"""Builds columns from decoded rows: one list of Python objects for each leaf type, and one call of Arrow for each list.

A `Build` makes an Arrow array of a list of values, None for null. If some do not fit it raises Unfit with their
indexes, and the caller builds again without them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

from pyspark_penstock.untyped import numpy, pyarrow
from pyspark_penstock.values.misfit import Unfit, reason_of

Build = Callable[[list[Any]], Any]
Convert = Callable[[Any], Any]
Get = Callable[[Any], Any]
"""Takes a field out of a decoded row: an attrgetter or an itemgetter."""


def leaf(arrow_type: Any, path: str = "") -> Build:
    """Values that Arrow takes unchanged."""

    def build(values: list[Any]) -> Any:
        try:
            return pyarrow.array(values, arrow_type)
        except Exception as error:
            raise unfit(values, lambda value: pyarrow.array([value], arrow_type), path) from error

    return build


def each(arrow_type: Any, convert: Convert, path: str = "") -> Build:
    """Values that are converted one by one for Arrow."""
    whole = leaf(arrow_type, path)

    def build(values: list[Any]) -> Any:
        try:
            converted = [None if value is None else convert(value) for value in values]
        except Exception as error:
            raise unfit(values, convert, path) from error
        return whole(converted)

    return build


def unfit(values: list[Any], convert: Convert, path: str) -> Unfit:
    """Which of the values cannot be converted, and why."""
    reasons: dict[int, str] = {}
    for place, value in enumerate(values):
        if value is None:
            continue
        try:
            convert(value)
        except Exception as error:
            reasons[place] = f"{path}: {reason_of(error)}" if path else reason_of(error)
    return Unfit(reasons)


def structs(arrow_type: Any, fields: Sequence[tuple[Get, Build]]) -> Build:
    """Rows of fields."""
    arrow_fields = [arrow_type.field(index) for index in range(arrow_type.num_fields)]

    def build(values: list[Any]) -> Any:
        nulls = [value is None for value in values]
        if not any(nulls):
            arrays = [child(list(map(get, values))) for get, child in fields]
            return pyarrow.StructArray.from_arrays(arrays, fields=arrow_fields)
        arrays = [child([None if value is None else get(value) for value in values]) for get, child in fields]
        return pyarrow.StructArray.from_arrays(arrays, fields=arrow_fields, mask=pyarrow.array(nulls))

    return build


def lists(arrow_type: Any, element: Build) -> Build:
    """Lists of elements."""

    def build(values: list[Any]) -> Any:
        items = _built(element, list(chain.from_iterable(_present(values))), values)
        return _nested(arrow_type, values, items)

    return build


def maps(arrow_type: Any, value: Build) -> Build:
    """Dictionaries with keys that are strings."""
    entry_fields = [arrow_type.key_field, arrow_type.item_field]
    key = leaf(arrow_type.key_type)

    def build(values: list[Any]) -> Any:
        present = _present(values)
        keys = _built(key, list(chain.from_iterable(present)), values)
        items = _built(value, list(chain.from_iterable(one.values() for one in present)), values)
        return _nested(arrow_type, values, pyarrow.StructArray.from_arrays([keys, items], fields=entry_fields))

    return build


def _present(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _built(build: Build, items: list[Any], values: list[Any]) -> Any:
    """Build the elements of the values; an element that does not fit is reported for its value."""
    try:
        return build(items)
    except Unfit as error:
        ends = list(accumulate(0 if value is None else len(value) for value in values))
        raise Unfit({bisect_right(ends, place): reason for place, reason in error.reasons.items()}) from error


def _nested(arrow_type: Any, values: list[Any], child: Any) -> Any:
    """An array of lists over the rows of its child."""
    ends: Any = numpy.zeros(len(values) + 1, numpy.int64)
    numpy.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
    nulls = [value is None for value in values]
    count = sum(nulls)
    valid = pyarrow.array([not each for each in nulls]).buffers()[1] if count else None
    offsets = pyarrow.py_buffer(ends.astype(numpy.int32))
    return pyarrow.Array.from_buffers(arrow_type, len(values), [valid, offsets], count, children=[child])
