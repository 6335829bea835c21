"""Topics as views of Spark SQL: ``select ... from orders``.

A frame of a Python data source, and with it a view made of a frame, always reads the offsets that it looked up at its
first query: Spark keeps the source's plan. A view that is kept as SQL text is analyzed at each query, so these views
select from a table of the catalog that has columns and no data, and pass the options in ``WITH (...)``. Each query
looks up where topics begin and end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.types import StructType

from pyspark_penstock.cluster import Cluster
from pyspark_penstock.columns import read_schema
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOOTSTRAP = "kafka.bootstrap.servers"
EVERY_TOPIC = ".*"
INTERNAL = "__"
"""The prefix of internal topics of brokers and sinks."""
DATABASE = "spark_catalog.default"
DIGEST_CHARACTERS = 12
SECRETS = re.compile(r"password|secret|jaas|token", re.IGNORECASE)
VALUE = "value"
NOT_IN_FLAT_VIEWS = frozenset({VALUE, "topic", "timestampType"})
TOPICS_MAX = 10_000
"""The most topics that one call registers."""


def tables(
    spark: SparkSession,
    bootstrap: str,
    topics: Iterable[str] | str | None = None,
    *,
    pattern: str | None = None,
    formats: Mapping[str, Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    flatten: bool = True,
    database: str = DATABASE,
) -> dict[str, str]:
    """Register topics as temporary views and return the name of each topic's view.

    ``topics`` names them; without it all topics whose whole name matches ``pattern`` are taken, or all that are not
    internal. ``formats`` has options of single topics, such as ``{"orders": {"value.format": "json", "value.schema":
    "id bigint"}}``, and ``options`` those of all. A topic whose value is a struct becomes a view of its fields and of
    the record's own columns under names that begin with ``_`` (``_key``, ``_partition``, ``_offset``, ``_timestamp``,
    ``_value_error``); with ``flatten=False`` it has the columns that ``format("penstock")`` has.

    A view is named like its topic, with ``_`` for every character that SQL requires to be quoted; ``names`` has other
    names. Each query of a view looks up its offsets. ``database`` holds the tables without data that views select from,
    one for each set of columns.
    """
    shared = {BOOTSTRAP: bootstrap, **_texts(options)}
    if topics is not None and pattern is not None:
        raise WrongOption("Give topics or a pattern, not both")
    wanted = _listed(topics) if topics is not None else _matching(shared, pattern)
    unknown = sorted((set(formats or ()) | set(names or ())) - set(wanted))
    if unknown:
        raise WrongOption(
            f"formats or names speak of {', '.join(unknown)}, which is not among the topics: {', '.join(wanted[:20])}"
        )
    views = _named(wanted, names or {})
    # All are checked before the first is registered.
    statements = [
        _statements(view, {**shared, **_texts((formats or {}).get(topic)), "subscribe": topic}, flatten, database)
        for topic, view in views.items()
    ]
    # PySpark's types of this method are incomplete.
    run: Callable[[str], Any] = cast("Any", spark).sql
    for create_table, create_view in statements:
        run(create_table)
        run(create_view)
    return views


# Which topics, under which names


def _listed(topics: Iterable[str] | str) -> list[str]:
    named = topics.split(",") if isinstance(topics, str) else list(topics)
    found = [each.strip() for each in named if each.strip()]
    if not found:
        raise WrongOption("No topic is named")
    return list(dict.fromkeys(found))


def _matching(shared: Mapping[str, str], pattern: str | None) -> list[str]:
    options = ReadOptions.of({**shared, "subscribepattern": pattern or EVERY_TOPIC})
    with BrokerLink(options.link) as link:
        places = Cluster(link, options.subscription, read_committed=False).places()
    found = sorted({topic for topic, _ in places if pattern is not None or not topic.startswith(INTERNAL)})
    if not found:
        raise WrongOption(f"No topic matches {pattern!r}" if pattern else "There are no topics")
    if len(found) > TOPICS_MAX:
        raise WrongOption(f"{len(found)} topics match: name a pattern that matches at most {TOPICS_MAX}")
    return found


def view_name(topic: str) -> str:
    """The topic's name as an SQL name that needs no quotes."""
    return re.sub(r"\W", "_", topic, flags=re.ASCII)


def _named(topics: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    views = {topic: names.get(topic, view_name(topic)) for topic in topics}
    taken: dict[str, str] = {}
    for topic, view in views.items():
        # Names of views are not case-sensitive.
        other = taken.setdefault(view.lower(), topic)
        if other != topic:
            raise WrongOption(
                f"Topics {other} and {topic} would both be the view {view}: "
                f"give one another name, such as names={{{topic!r}: {view + '_2'!r}}}"
            )
    return views


# The SQL


def _statements(view: str, options: Mapping[str, str], flatten: bool, database: str) -> tuple[str, str]:
    """A table without data and a view of it with these options."""
    for name in options:
        if SECRETS.search(name):
            raise WrongOption(
                f"Option {name!r} would be readable in the text of the view {view}: "
                "read this topic by spark.read.format('penstock') instead"
            )
    schema = read_schema(ReadOptions.of(options))
    columns = _columns_sql(schema)
    digest = hashlib.sha256(columns.encode()).hexdigest()[:DIGEST_CHARACTERS]
    table = f"{database}.penstock_columns_{digest}"
    given = ", ".join(f"{_quoted(name)} {_literal(value)}" for name, value in options.items())
    selected = _flat(view, schema) if flatten else "*"
    # All names and texts are quoted above.
    query = f"SELECT {selected} FROM {table} WITH ({given})"  # noqa: S608
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING penstock",
        f"CREATE OR REPLACE TEMPORARY VIEW {_quoted(view)} AS {query}",
    )


def _columns_sql(schema: StructType) -> str:
    return ", ".join(f"{_quoted(each.name)} {_type_sql(each.dataType)}" for each in schema)


def _type_sql(data_type: Any) -> str:
    """A type for CREATE TABLE; names of fields are quoted, which `simpleString` does not do."""
    if isinstance(data_type, StructType):
        fields = ", ".join(f"{_quoted(each.name)}: {_type_sql(each.dataType)}" for each in data_type)
        return f"STRUCT<{fields}>"
    match data_type.typeName():
        case "array":
            return f"ARRAY<{_type_sql(data_type.elementType)}>"
        case "map":
            return f"MAP<{_type_sql(data_type.keyType)}, {_type_sql(data_type.valueType)}>"
        case _:
            return str(data_type.simpleString())


def _flat(view: str, schema: StructType) -> str:
    """Fields of the value, then the record's columns; all columns if the value is not a struct."""
    value = schema[VALUE].dataType if VALUE in schema.fieldNames() else None
    if not isinstance(value, StructType):
        return "*"
    fields = value.fieldNames()
    own = {name: f"_{name}" for name in schema.fieldNames() if name not in NOT_IN_FLAT_VIEWS}
    both = sorted({name.lower() for name in fields} & {name.lower() for name in own.values()})
    if both:
        raise WrongOption(
            f"The value of the view {view} has fields with names of the record's own columns, {', '.join(both)}: "
            "register it with flatten=False"
        )
    values = [f"{VALUE}.{_quoted(name)} AS {_quoted(name)}" for name in fields]
    return ", ".join([*values, *(f"{_quoted(name)} AS {_quoted(alias)}" for name, alias in own.items())])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Options as texts; a schema may be given as Spark's own type."""
    return {
        name: value.json() if isinstance(value, StructType) else str(value) for name, value in (options or {}).items()
    }
