"""The pages about Spark: their Python in one session, their commands in one shell, on one broker.

A page's Python has only the names that the page itself defines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pages import SPARK_PAGES, Block, blocks_of
from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.pipelines.running import WORKER_STARTS_MAX, is_late_worker
from reader import Reader
from spark.spark_processes import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE_SECONDS_MAX = 1_800
README_BEFORE_SPARK = "penstock produce orders -k c7 -v 9.5"
"""What README has sent before it comes to Spark; the other pages make what they need."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(PAGE_SECONDS_MAX)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with PenstockProcess() as broker, pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT_LIVED_JAVA.items():
            patch.setenv(name, value)
        started = Reader(tmp_path_factory.mktemp("reader"), broker.bootstrap, broker.data)
        started.paste(
            Block(page="this test", line=0, language="sh", text=f". .venv/bin/activate\n{README_BEFORE_SPARK}\n")
        )
        yield started
        started.close()


@pytest.fixture
def names() -> dict[str, Any]:
    """The names of the reader's Python session, from block to block of a page."""
    return {"__name__": "__main__"}


@pytest.mark.parametrize("page", ["README.md", *SPARK_PAGES])
def test_the_commands_and_programs_of_a_page_run_as_pasted(
    spark: SparkSession,
    reader: Reader,
    names: dict[str, Any],
    page: str,
    tmp_path: Path,
) -> None:
    for block in blocks_of(page):
        if block.is_run and block.needs_spark:
            run_python(block, reader.bootstrap, names, tmp_path)
        elif block.is_run and page != "README.md":
            reader.paste(block)


def run_python(block: Block, bootstrap: str, names: dict[str, Any], folder: Path) -> None:
    """In the session of all tests, whose Java was started in another folder than the reader's."""
    text = block.at(bootstrap).replace('"checkpoints/', f'"{folder}/checkpoints/')
    program = compile(text, block.place, "exec")
    for starts_left in reversed(range(WORKER_STARTS_MAX)):
        try:
            exec(program, names)
            return
        except Exception as error:
            if not (starts_left and is_late_worker(error)):
                print(f"{block.place} fails:\n{block.text}", file=sys.stderr)
                raise
