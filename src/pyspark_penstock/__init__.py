"""Spark reads topics as tables and streams, and writes to them exactly once: ``format("penstock")``.

Spark finds `DefaultSource` by this package's name: nothing is registered. What a query does not use is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


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

        return batch_reader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_penstock.stream_reader import stream_reader

        return stream_reader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_penstock.writer import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_penstock.writer import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)
