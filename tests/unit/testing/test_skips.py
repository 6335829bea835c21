"""A run says once for each missing program how many tests it would run, and how to get it."""

from __future__ import annotations

import pytest

from programs import HOW_TO_GET, missing, summary_of_skips


def test_each_reason_is_one_line_with_its_count() -> None:
    reasons = [*[f"Skipped: {missing('kafka-jars')}"] * 54, "Skipped: needs a broker of its own"]

    assert summary_of_skips(reasons) == [
        "54 skipped: needs kafka-jars: run `make kafka` (needs Maven)",
        "1 skipped: needs a broker of its own",
    ]


def test_every_program_that_a_test_needs_says_how_to_get_it(request: pytest.FixtureRequest) -> None:
    needed = {name for item in request.session.items for marker in item.iter_markers("needs") for name in marker.args}

    assert needed <= HOW_TO_GET.keys()
