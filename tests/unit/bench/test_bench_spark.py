import ast
import sys
from pathlib import Path

import pytest
from bench import spark_session
from bench.spark_process import session_command, session_environment


def test_a_spark_session_runs_with_the_python_of_its_side(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    assert session_command(python, {})[:2] == (str(python), spark_session.__file__)
    environment = session_environment(python)
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == str(python)
    assert environment["PYTHONPATH"] == ""


def test_the_program_of_a_spark_session_imports_no_code_of_this_commit() -> None:
    tree = ast.parse(Path(spark_session.__file__).read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    packages = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert packages == {"pyspark", "pyspark_penstock", "confluent_kafka"}


def test_a_query_that_fails_leaves_the_session_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object, topic: str) -> dict[str, float]:
        raise spark_session.QueryFailed(f"no {topic}")

    queries = {"failing": failing, "working": lambda _, rows: {"messages": rows}}
    monkeypatch.setattr(spark_session, "QUERIES", queries)
    lines = ['{"query": "failing", "arguments": {"topic": "t"}}', '{"query": "working", "arguments": {"rows": 3}}']
    responses: list[dict[str, object]] = []
    spark_session.serve(None, lines, responses.append)  # type: ignore[arg-type]
    assert responses == [{"error": "QueryFailed: no t"}, {"figures": {"messages": 3}}]
