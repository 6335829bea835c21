"""Evolution of a table's schema: columns may be added or stay empty, and keep their types."""

from __future__ import annotations

import base64
from typing import Any

from pyspark_penstock.lake import SchemaClash
from pyspark_penstock.untyped import pyarrow

_types: Any = pyarrow.types


def merged(held: Any, wanted: Any) -> Any:
    """The merged Arrow schema of a table and of rows to write; SchemaClash if a type changes."""
    return pyarrow.schema(_merged_fields(list(held), list(wanted), ""))


def has_all(held: Any, wanted: Any) -> bool:
    """Whether a table has all columns of the rows to write."""
    return same(merged(held, wanted), held)


def same(one: Any, other: Any) -> bool:
    """Whether two schemas have the same columns; names of list elements do not count."""
    return len(one) == len(other) and all(
        left.name == right.name and _same_type(left.type, right.type) for left, right in zip(one, other, strict=True)
    )


def is_partitionable(kind: Any) -> bool:
    """Whether all readers understand a column's values as text in paths."""
    plain = _plain(kind)
    return bool(
        _types.is_string(plain) or _types.is_integer(plain) or _types.is_boolean(plain) or _types.is_date32(plain)
    )


def to_text(schema: Any) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def of_text(text: str) -> Any:
    return pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(text)))


def _merged_fields(held: list[Any], wanted: list[Any], path: str) -> list[Any]:
    coming = {field.name: field for field in wanted}
    fields: list[Any] = []
    for field in held:
        other = coming.pop(field.name, None)
        kind = field.type if other is None else _merged_type(field.type, other.type, f"{path}{field.name}")
        fields.append(pyarrow.field(field.name, kind, nullable=True))
    fields += [pyarrow.field(field.name, field.type, nullable=True) for field in coming.values()]
    return fields


def _merged_type(held: Any, wanted: Any, path: str) -> Any:
    if _types.is_struct(held) and _types.is_struct(wanted):
        return pyarrow.struct(_merged_fields(_children(held), _children(wanted), f"{path}."))
    if _is_list(held) and _is_list(wanted):
        inner = _merged_type(held.value_type, wanted.value_type, f"{path}[]")
        return held if _same_type(inner, held.value_type) else pyarrow.list_(inner)
    if not _same_type(held, wanted):
        raise SchemaClash(
            f"the table has the column {path} as {held}, and the new rows have it as {wanted}: "
            "write to another table, or give the column another name"
        )
    return held


def _same_type(one: Any, other: Any) -> bool:
    if _types.is_struct(one) and _types.is_struct(other):
        return same(_children(one), _children(other))
    if _is_list(one) and _is_list(other):
        return _same_type(one.value_type, other.value_type)
    if _types.is_map(one) and _types.is_map(other):
        return _same_type(one.key_type, other.key_type) and _same_type(one.item_type, other.item_type)
    return bool(_plain(one) == _plain(other))


def _children(struct: Any) -> list[Any]:
    return [struct.field(index) for index in range(struct.num_fields)]


def _is_list(kind: Any) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind))


def _plain(kind: Any) -> Any:
    """Spark's type among the types that differ only in their capacity."""
    if _types.is_large_string(kind) or _types.is_string_view(kind):
        return pyarrow.string()
    if _types.is_large_binary(kind) or _types.is_binary_view(kind):
        return pyarrow.binary()
    if _types.is_timestamp(kind) and kind.tz is not None:
        # Equal time zones have several names.
        return pyarrow.timestamp(kind.unit, "UTC" if kind.tz in ("UTC", "+00:00", "Etc/UTC") else kind.tz)
    return kind
