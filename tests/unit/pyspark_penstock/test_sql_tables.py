"""The SQL that registers topics as views: names, columns, quotes, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.sql_tables import tables, view_name

ADDRESS = "localhost:9092"
TYPED = {"value.format": "json", "value.schema": "id bigint, `the name` string, at struct<`a b`: array<int>>"}


class Session:
    """Records the statements it gets."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def sql(self, text: str) -> None:
        self.statements.append(text)


def registered(*topics: str, **how: Any) -> tuple[dict[str, str], list[str]]:
    session = Session()
    views = tables(session, ADDRESS, topics, **how)  # type: ignore[arg-type]
    return views, session.statements


def test_a_typed_topic_is_a_view_of_its_fields_and_the_records_own_columns() -> None:
    views, (table, view) = registered("orders", formats={"orders": TYPED})

    assert views == {"orders": "orders"}
    assert "`value` STRUCT<`id`: bigint, `the name`: string, `at`: STRUCT<`a b`: ARRAY<int>>>" in table
    assert table.startswith("CREATE TABLE IF NOT EXISTS spark_catalog.default.penstock_columns_")
    assert "value.`id` AS `id`, value.`the name` AS `the name`" in view
    assert "`offset` AS `_offset`" in view
    assert "`kafka.bootstrap.servers` 'localhost:9092'" in view
    assert "`subscribe` 'orders'" in view


def test_other_topics_have_the_columns_of_the_data_source_and_share_a_table() -> None:
    _, statements = registered("a", "b")

    assert statements[0] == statements[2]
    assert "SELECT * FROM" in statements[1]
    assert ADDRESS not in statements[0]


def test_options_are_quoted() -> None:
    _, (_, view) = registered("orders", options={"client": "it's a \\ backslash"})

    assert r"`client` 'it\'s a \\ backslash'" in view


def test_a_schema_may_be_sparks_own_type() -> None:
    schema = StructType().add("id", "long")
    _, (table, _) = registered("orders", formats={"orders": {"value.format": "json", "value.schema": schema}})

    assert "STRUCT<`id`: bigint>" in table


def test_names_that_sql_would_want_quoted_are_mapped_and_can_be_chosen() -> None:
    assert view_name("web-clicks.v1") == "web_clicks_v1"
    views, statements = registered("web-clicks.v1", "b", names={"b": "other name"})
    assert views == {"web-clicks.v1": "web_clicks_v1", "b": "other name"}
    assert "TEMPORARY VIEW `other name` AS" in statements[3]


@pytest.mark.parametrize(
    ("topics", "how", "message"),
    [
        (["a.b", "a-b"], {}, "both be the view a_b.*names="),
        (["Orders", "orders"], {}, "both be the view"),
        (["a"], {"formats": {"b": {}}}, "speak of b"),
        (["a"], {"pattern": "x"}, "not both"),
        ([], {}, "No topic is named"),
        (["a"], {"options": {"kafka.sasl.jaas.config": "x"}}, "readable in the text of the view"),
        (["a"], {"formats": {"a": {"value.format": "json"}}}, "value.schema"),
        (
            ["a"],
            {"formats": {"a": {"value.format": "json", "value.schema": "_Offset bigint"}}},
            "_offset.*flatten=False",
        ),
    ],
)
def test_a_wrong_table_is_refused_before_any_view_is_registered(topics: list[str], how: Any, message: str) -> None:
    session = Session()

    with pytest.raises(WrongOption, match=message):
        tables(session, ADDRESS, topics, **how)  # type: ignore[arg-type]

    assert session.statements == []
