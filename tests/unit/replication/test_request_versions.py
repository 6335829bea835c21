"""The versions of requests between brokers follow the version of their cluster."""

from __future__ import annotations

import importlib

import pytest

from penstock.model.cluster_versions import LEVELS, SUPPORTED
from penstock.replication.request_versions import (
    FORWARDED,
    SENT,
    forwarded_versions,
    sent_versions,
    shown_to_clients,
    versions_at,
)
from penstock.wire.own_apis import ENTRIES, OWN

LATER = {1: {10: 3, 11: 0}, 2: {10: 4}, 4: {11: 1, 12: 0}}


@pytest.mark.parametrize(("level", "found"), [(1, {10: 3, 11: 0}), (3, {10: 4, 11: 0}), (4, {10: 4, 11: 1, 12: 0})])
def test_a_request_has_the_version_that_its_cluster_brought(level: int, found: dict[int, int]) -> None:
    assert versions_at(level, LATER) == found


@pytest.mark.parametrize("table", [SENT, FORWARDED], ids=["sent", "forwarded"])
def test_every_change_of_a_request_belongs_to_a_version_that_exists(table: dict[int, dict[int, int]]) -> None:
    assert set(table) <= set(LEVELS)


def test_a_later_version_of_a_request_needs_a_later_version_of_the_cluster() -> None:
    """Whoever adds a version to one of these requests adds a cluster version, or brokers never send it."""
    for key, version in {**sent_versions(SUPPORTED.highest), **forwarded_versions(SUPPORTED.highest)}.items():
        entry = ENTRIES[key]
        module = importlib.import_module(f"penstock.wire.{entry.module if key in OWN else f'api.{entry.module}'}")
        assert version == module.VERSION_MAX, f"{entry.name} has a version that no cluster version allows"


def test_clients_see_no_version_of_a_request_that_the_controller_may_not_understand() -> None:
    create_topics = 19
    rows = [(create_topics, 2, 99), (0, 0, 99)]

    assert shown_to_clients(rows, SUPPORTED.lowest) == [(create_topics, 2, 7), (0, 0, 99)]
