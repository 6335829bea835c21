"""Spark reads topics as tables and streams, and writes to them exactly once: ``format("penstock")``.

Spark finds `DefaultSource` by this package's name, without registration. Modules are imported when a query needs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise ModuleNotFoundError(
        f"pyspark_penstock needs PySpark 4.0 or newer: run pip install 'penstock[spark]' ({error})", name=error.name
    ) from None

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_penstock.listener import listen
    from pyspark_penstock.session import local_session, register
    from pyspark_penstock.sql_tables import tables
    from pyspark_penstock.values.avro_schema import avro_schema

__all__ = ["DefaultSource", "avro_schema", "listen", "local_session", "register", "tables"]

_IMPORTED_WHEN_USED = {
    "avro_schema": "pyspark_penstock.values.avro_schema",
    "listen": "pyspark_penstock.listener",
    "local_session": "pyspark_penstock.session",
    "register": "pyspark_penstock.session",
    "tables": "pyspark_penstock.sql_tables",
}
"""Spark imports this package in every Python process it starts, to look for data sources."""


def __getattr__(name: str) -> Any:
    module = _IMPORTED_WHEN_USED.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a query; WrongOption for a table of the catalog, whose options Spark does not pass."""
    from pyspark_penstock.errors import WrongOption

    given = dict(options)
    if not given:
        raise WrongOption(
            "No options were given. If this is a table of CREATE TABLE ... USING penstock: Spark keeps the table's "
            "OPTIONS and does not pass them to a data source written in Python. Pass them with the query, "
            "SELECT ... FROM table WITH (`kafka.bootstrap.servers` 'host:9092', subscribe 'topic') or "
            "INSERT INTO table WITH (`kafka.bootstrap.servers` 'host:9092', topic 'topic') ..., register topics by "
            "pyspark_penstock.tables(spark, 'host:9092'), or use CREATE TEMPORARY VIEW ... USING penstock OPTIONS (...)"
        )
    return given


class DefaultSource(DataSource):
    """Topics as a data source, with the columns and options of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def __repr__(self) -> str:
        # Options may hold secrets.
        return "DefaultSource()"

    def schema(self) -> StructType:
        from pyspark_penstock.columns import read_schema
        from pyspark_penstock.options import ReadOptions

        return read_schema(ReadOptions.of(dict(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_penstock.batch_reader import batch_reader

        return batch_reader(_given(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_penstock.stream_reader import stream_reader

        return stream_reader(_given(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_penstock.writer import batch_writer

        return batch_writer(_given(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_penstock.writer import stream_writer

        return stream_writer(_given(self.options), schema, overwrite)
