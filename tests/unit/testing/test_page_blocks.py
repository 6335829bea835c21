"""Every block of code in a page is run by the tests, or says why not."""

from __future__ import annotations

import pytest

from pages import CLUSTER_PAGE, LANGUAGES, NOT_RUN, ROOT, RUN, SHELL_PAGES, SPARK_PAGES, Block, blocks_of, indented_code

PAGES = (*SHELL_PAGES, *SPARK_PAGES, CLUSTER_PAGE)
WRITTEN_BY_PROGRAMS = ("docs/differences.md",)
WITHOUT_COMMANDS = ("docs/invariants.md",)


def test_every_page_is_followed() -> None:
    found = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - {*WRITTEN_BY_PROGRAMS, *WITHOUT_COMMANDS}

    assert {"README.md", *found} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_code_is_in_fences_with_a_language(page: str) -> None:
    assert list(indented_code(page)) == []
    assert {block.language for block in blocks_of(page)} <= set(LANGUAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_not_run_says_why(page: str) -> None:
    skipped = [block for block in blocks_of(page) if block.language in RUN and not block.is_run]

    assert [block.place for block in skipped if not block.text.splitlines()[0].removeprefix(NOT_RUN)] == []


def test_the_address_is_the_brokers_and_measurements_are_small() -> None:
    block = Block(
        page="p", line=1, language="sh", text="penstock bench produce t --messages 200000 -b localhost:9092\n"
    )

    assert block.at("127.0.0.1:5") == "penstock bench produce t --messages 500 -b 127.0.0.1:5\n"
