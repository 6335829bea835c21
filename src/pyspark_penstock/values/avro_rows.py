"""One Avro record in bytes, without a header: as fastavro decodes and encodes it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from pyspark_penstock.untyped import fastavro
from pyspark_penstock.values.avro_schema import AvroSchema
from pyspark_penstock.values.misfit import Misfit


def avro_decoder(schema: AvroSchema) -> Callable[[bytes | None], Any]:
    """Decode one value to a dictionary of plain values. No bytes may follow the record."""
    schemaless_reader = fastavro().schemaless_reader
    plain = schema.plain

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            raise Misfit("null")
        stream = io.BytesIO(raw)
        try:
            found: Any = schemaless_reader(stream, plain, None)
        except Exception as error:
            raise Misfit(f"not valid Avro: {type(error).__name__}: {error}") from None
        if stream.tell() != len(raw):
            raise Misfit(f"{len(raw) - stream.tell()} bytes follow the Avro record")
        return found

    return decode


def avro_encoder(schema: AvroSchema) -> Callable[[Any], bytes]:
    """Encode one dictionary of plain values; Misfit if a required field is null."""
    schemaless_writer = fastavro().schemaless_writer
    plain = schema.plain

    def encode(record: Any) -> bytes:
        stream = io.BytesIO()
        try:
            schemaless_writer(stream, plain, record)
        except Exception as error:
            raise Misfit(f"{type(error).__name__}: {error}") from None
        return stream.getvalue()

    return encode
