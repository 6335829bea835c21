"""Whether bytes are text."""

from __future__ import annotations

from typing import Any

from pyspark_penstock.untyped import pyarrow


def is_utf8(values: Any) -> bool:
    """Whether every value of a binary Arrow array is UTF-8: one pass, without an object for each row."""
    try:
        values.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        return False
    return True
