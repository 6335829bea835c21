"""Dividing file descriptors between logs and connections."""

import pytest

from penstock.broker.descriptors import OTHER_MAX, divide


@pytest.mark.parametrize("limit", [256, 400, 1024, 4096, 20_000, 1 << 20])
@pytest.mark.parametrize("log_files_wanted", [64, 2048, 1 << 30])
def test_logs_and_connections_never_want_more_than_there_are(limit: int, log_files_wanted: int) -> None:
    budget = divide(limit, log_files_wanted=log_files_wanted)

    assert budget.log_files_max + budget.connections_max + OTHER_MAX == limit
    assert budget.log_files_max <= log_files_wanted
    assert budget.connections_max >= budget.log_files_max or budget.log_files_max == log_files_wanted


def test_a_tiny_limit_leaves_something_for_each() -> None:
    budget = divide(16, log_files_wanted=2048)

    assert budget.log_files_max > 0
    assert budget.connections_max > 0
