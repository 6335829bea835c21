"""Typed keys and values: bytes become columns when a topic is read, and columns become bytes when it is written.

`parsers` reads and `encoders` writes; both take a `ValueFormat`, made from the options ``value.format`` and
``value.schema``. JSON is in `json_scan` (almost every row), `json_fast` (if the scanner is not compiled or does not
know a type), `json_exact` (the rows that those reject, and the definition of correct results) and `json_text`
(writing); Avro is in `avro_schema` (types), `avro_columns` and `avro_rows` (both ways). `schema_text` and `ddl` parse
schemas; `gather` builds columns from decoded rows.
"""

from pyspark_penstock.values.parsers import ValueParser, value_parser, value_type

__all__ = ["ValueParser", "value_parser", "value_type"]
