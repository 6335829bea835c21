"""Quotas: rates over windows, throttle times, and the most specific quota."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.quotas.client_quotas import (
    CLIENTS_MAX,
    DEFAULT,
    IDLE_MS_MAX,
    KINDS,
    THROTTLE_MS_MAX,
    ClientQuotas,
    QuotaEntity,
    Quotas,
    UsageRate,
)

EVERY_CLIENT = QuotaEntity(None, DEFAULT)


def bytes_quota(limit: float, entity: QuotaEntity = EVERY_CLIENT) -> Quotas:
    quotas = Quotas(samples=11, window_ms=1000)
    quotas.set(entity, limit)
    return quotas


def test_without_any_quota_nothing_is_enabled_or_counted() -> None:
    quotas = ClientQuotas(11, 1000)

    assert not quotas.enabled
    assert quotas.produce.record("", "anyone", 1e12, 0) == 0


def test_a_client_within_its_quota_is_not_throttled() -> None:
    quotas = bytes_quota(100)

    assert [quotas.record("", "app", 90, now_ms) for now_ms in range(0, 60_000, 1000)] == [0] * 60


def test_a_new_client_has_all_windows_but_one_to_spend() -> None:
    quotas = bytes_quota(100)

    assert quotas.record("", "app", 1000, 0) == 0
    assert quotas.value_max("", "app") == 1000


def test_the_throttle_time_brings_the_rate_back_to_the_quota() -> None:
    quotas = bytes_quota(100)

    # 1500 bytes over ten seconds is 150/s; at 100/s they take fifteen.
    assert quotas.record("", "app", 1500, 0) == 5000


def test_after_the_throttle_time_the_client_is_within_its_quota() -> None:
    quotas = bytes_quota(100)
    wait_ms = quotas.record("", "app", 1050, 0)
    assert wait_ms == 500

    assert quotas.record("", "app", 0, 11_000) == 0


def test_usage_older_than_the_windows_does_not_count() -> None:
    quotas = bytes_quota(100)
    assert quotas.record("", "app", 5000, 0) > 0

    assert quotas.record("", "app", 1000, 11_000) == 0


def test_unrecorded_usage_does_not_count() -> None:
    quotas = bytes_quota(100)
    assert quotas.record("", "app", 2000, 0) > 0
    quotas.unrecord("", "app", 2000, 0)

    assert quotas.record("", "app", 1000, 0) == 0


def test_a_throttle_for_request_time_is_at_most_one_window() -> None:
    quotas = ClientQuotas(11, 1000)
    quotas.set("request_percentage", QuotaEntity(None, DEFAULT), 1)

    assert quotas.request.record("", "app", 5000, 0) == 1000


def test_clients_have_separate_usage_under_a_default_quota() -> None:
    quotas = bytes_quota(100)
    assert quotas.record("", "one", 2000, 0) > 0

    assert quotas.record("", "two", 900, 0) == 0


def test_client_ids_of_one_user_share_the_users_quota() -> None:
    quotas = bytes_quota(100, QuotaEntity("alice", None))
    assert quotas.record("alice", "one", 900, 0) == 0

    assert quotas.record("alice", "two", 900, 0) > 0
    assert quotas.record("bob", "two", 1e9, 0) == 0


def test_the_most_specific_quota_applies() -> None:
    quotas = Quotas(11, 1000)
    order = [
        QuotaEntity(None, DEFAULT),
        QuotaEntity(None, "app"),
        QuotaEntity(DEFAULT, None),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT, "app"),
        QuotaEntity("alice", None),
        QuotaEntity("alice", DEFAULT),
        QuotaEntity("alice", "app"),
    ]

    for limit, entity in enumerate(order, start=1):
        quotas.set(entity, limit)
        assert quotas.limit("alice", "app") == limit
    for limit, entity in reversed(list(enumerate(order, start=1))):
        assert quotas.limit("alice", "app") == limit
        quotas.set(entity, None)
    assert not quotas.enabled
    assert quotas.limit("alice", "app") is None


def test_a_changed_quota_applies_to_usage_so_far() -> None:
    quotas = bytes_quota(1000)
    assert quotas.record("", "app", 5000, 0) == 0

    quotas.set(QuotaEntity(None, "app"), 100)

    assert quotas.record("", "app", 0, 0) > 0


def test_idle_clients_are_dropped_and_clients_are_bounded() -> None:
    quotas = bytes_quota(100)
    for client in range(CLIENTS_MAX + 5):
        quotas.record("", f"client-{client}", 1, client)
    assert len(quotas._usage) == CLIENTS_MAX

    quotas.forget_idle(IDLE_MS_MAX + CLIENTS_MAX)
    assert len(quotas._usage) <= 5


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10_000)), min_size=1, max_size=60))
def test_the_rate_is_the_sum_of_live_samples_over_the_time_they_span(steps: list[tuple[int, int]]) -> None:
    samples_max, window_ms = 3, 1000
    rate = UsageRate(samples_max, window_ms)
    model: list[list[int]] = []
    now_ms = 0
    for gap_ms, value in steps:
        now_ms += gap_ms
        rate.record(value, now_ms)
        if model and now_ms - model[-1][0] < window_ms:
            model[-1][1] = now_ms
            model[-1][2] += value
        else:
            model.append([now_ms, now_ms, value])
        live = [sample for sample in model if now_ms - sample[1] < samples_max * window_ms][-samples_max - 1 :]
        elapsed = now_ms - live[0][0]
        full = elapsed // window_ms
        elapsed += max(0, samples_max - 1 - full) * window_ms
        measured, span = rate.measure(now_ms)
        assert span == max(1, elapsed)
        assert measured == pytest.approx(sum(sample[2] for sample in live) * 1000 / span)


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9])
def test_a_tiny_quota_gives_the_longest_throttle_time(limit: float) -> None:
    quotas = ClientQuotas(11, 1000)
    for kind in KINDS:
        quotas.set(kind, EVERY_CLIENT, limit)

    assert quotas.request.record("", "app", 100.0, 0) == 1000
    assert quotas.produce.record("", "app", 100_000_000.0, 0) == THROTTLE_MS_MAX


def test_a_huge_quota_allows_as_much_as_can_be_counted() -> None:
    allowed = bytes_quota(1.7e308).value_max("", "app")

    assert allowed is not None
    assert int(allowed) == 2**63


@pytest.mark.parametrize("limit", [math.nan, math.inf, -math.inf, 0, -1.0, "many"])
def test_an_invalid_stored_limit_is_ignored_and_returned(limit: Any) -> None:
    quotas = ClientQuotas(11, 1000)

    ignored = quotas.follow((("client-id", "app"),), {"producer_byte_rate": limit, "request_percentage": 50.0})

    assert list(ignored) == ["producer_byte_rate"]
    assert quotas.produce.limit("", "app") is None
    assert quotas.request.limit("", "app") == 50.0


def test_a_client_named_default_has_its_own_quota() -> None:
    quotas = ClientQuotas(11, 1000)
    quotas.follow([("client-id", None)], {"producer_byte_rate": 10.0})

    quotas.follow([("client-id", "<default>")], {"producer_byte_rate": 20.0})

    assert quotas.produce.limit("", "<default>") == 20
    assert quotas.produce.limit("", "another") == 10
    quotas.follow([("client-id", "<default>")], {})
    assert quotas.produce.limit("", "<default>") == 10
