"""README and the pages behind it, followed in the order of a reader: in one shell, on one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pages import SHELL_PAGES, blocks_of
from penstock.testing.broker_process import PenstockProcess
from reader import Reader

PAGE_SECONDS_MAX = 1_200
pytestmark = [pytest.mark.slow, pytest.mark.timeout(PAGE_SECONDS_MAX), pytest.mark.xdist_group("pages")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A broker with default settings, as `make up` starts it, and a shell beside it."""
    with PenstockProcess() as broker:
        started = Reader(tmp_path_factory.mktemp("reader"), broker.bootstrap, broker.data)
        yield started
        started.close()


@pytest.mark.parametrize("page", SHELL_PAGES)
def test_the_commands_and_programs_of_a_page_run_as_pasted(reader: Reader, page: str) -> None:
    printed = [reader.paste(block) for block in blocks_of(page) if block.is_run and not block.needs_spark]

    if page == "README.md":
        clients = [words for words in printed if "b'9.5'" in words]
        assert len(clients) == 3, "each of the three Python clients reads an order"
