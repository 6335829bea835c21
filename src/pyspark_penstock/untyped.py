"""Libraries whose own types are partial or missing: they are Any here, and what leaves this package is typed by us."""

from importlib import import_module
from typing import Any

from pyspark.sql.types import DataType, StructType

numpy: Any = import_module("numpy")
pyarrow: Any = import_module("pyarrow")


def arrow_schema(schema: StructType) -> Any:
    """The Arrow schema that Spark expects of a batch with these columns."""
    return import_module("pyspark.sql.pandas.types").to_arrow_schema(schema, timezone="UTC")


def arrow_type(kind: DataType) -> Any:
    return import_module("pyspark.sql.pandas.types").to_arrow_type(kind, timezone="UTC")


def fastavro() -> Any:
    """Imported when a query reads Avro."""
    return import_module("fastavro")
