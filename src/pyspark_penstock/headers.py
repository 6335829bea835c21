"""The headers of records: an array of names and values, or a map.

A record may have several headers of one name, and a map may not: the last counts, as for `lastHeader` of Kafka's
clients. A map is written in its order.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType

from pyspark_penstock.untyped import numpy, pyarrow

ARRAY_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
MAP_TYPE = MapType(StringType(), BinaryType())


def headers_as_map(headers: Any, map_type: Any) -> Any:
    """An Arrow array of lists of names and values, as one of maps."""
    pairs = headers.values
    names, values = pairs.field(0), pairs.field(1)
    ends = headers.offsets.to_numpy()
    kept = _last_of_each(names, ends)
    if kept is not None:
        names, values = names.take(kept), values.take(kept)
        ends = numpy.searchsorted(kept.to_numpy(), ends).astype(numpy.int32)
    entries = pyarrow.StructArray.from_arrays([names, values], fields=[map_type.key_field, map_type.item_field])
    valid = headers.buffers()[0]
    offsets = pyarrow.py_buffer(ends)
    return pyarrow.Array.from_buffers(map_type, len(headers), [valid, offsets], headers.null_count, children=[entries])


def _last_of_each(names: Any, ends: Any) -> Any:
    """The indexes of the last header of each name in its record; None if that is all of them."""
    counts = ends[1:] - ends[:-1]
    if not len(counts) or counts.max() < 2:
        return None
    rows: Any = numpy.repeat(numpy.arange(len(counts)), counts)
    encoded = names.slice(int(ends[0]), len(rows)).dictionary_encode()
    codes: Any = rows * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
    # `unique` keeps the first of equal codes, so the order is reversed to keep the last.
    _, places = numpy.unique(codes[::-1], return_index=True)
    if len(places) == len(codes):
        return None
    return pyarrow.array(numpy.sort(len(codes) - 1 - places) + int(ends[0]))
