"""A store of the version that kept all partitions in their topic's node is moved to the format of this one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.membership import bootstrap_cluster
from penstock.controller.migration import migrate_topics
from penstock.metadata.catalog import Catalog
from penstock.metadata.embedded import FILE_NAME, SCHEMA_VERSION, EmbeddedStore
from penstock.metadata.operations import Operation
from penstock.metadata.records import CLUSTER, PARTITIONS, PARTITIONS_MIGRATED
from penstock.metadata.store import StoreUnavailable
from penstock.model.ids import TopicId
from penstock.model.topic import PartitionState, TopicState

LARGE = 130
LED = "[1,1,[1],[1],1]"
EARLIER = [
    # Rows as that version wrote them: path, data, version, created.
    ("/brokers", "", 0, 1),
    ("/cluster", "old-cluster", 0, 1),
    ("/configs", "", 0, 1),
    ("/configs/brokers", "", 0, 1),
    ("/configs/groups", "", 0, 1),
    ("/controller-epoch", "1", 1, 1),
    ("/deletions", "", 0, 1),
    ("/deletions/04040404040404040404040404040404", '{"brokers":[1],"topic":"gone"}', 0, 6),
    ("/producer-ids", "1000", 1, 1),
    ("/quotas", "", 0, 1),
    ("/topics", "", 0, 1),
    ("/topics/grown", f'{{"grown_from":2,"id":"AgICAgICAgICAgICAgICAg==","partitions":[{LED},{LED},{LED}]}}', 2, 4),
    (
        "/topics/large",
        f'{{"id":"AwMDAwMDAwMDAwMDAwMDAw==","partitions":[{",".join([LED] * LARGE)}]}}',
        1,
        4,
    ),
    (
        "/topics/small",
        f'{{"configs":{{"retention.ms":"5"}},"id":"AQEBAQEBAQEBAQEBAQEBAQ==","partitions":[{LED}]}}',
        1,
        4,
    ),
]


def write_earlier(directory: Path) -> None:
    connection = sqlite3.connect(directory / FILE_NAME)
    connection.executescript(
        """
        CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL,
            owner INTEGER NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO counter VALUES ('transaction', 8), ('session', 1);
        PRAGMA user_version = 1;
        """
    )
    rows = [(path, data.encode(), version, created) for path, data, version, created in EARLIER]
    connection.executemany("INSERT INTO node VALUES (?, ?, ?, 0, ?)", rows)
    connection.commit()
    connection.close()


def led(count: int) -> tuple[PartitionState, ...]:
    return tuple(
        PartitionState(index=index, leader=1, leader_epoch=1, replicas=(1,), isr=(1,), partition_epoch=1)
        for index in range(count)
    )


async def topics_in(store: EmbeddedStore) -> dict[str, TopicState]:
    catalog = Catalog()
    await catalog.open(store)
    catalog.close()
    assert catalog.image.orphans() == []
    assert list(catalog.image.deletions) == [TopicId(bytes([4]) * 16)]
    return dict(catalog.image.topics)


def check(topics: dict[str, TopicState]) -> None:
    assert {name: topic.topic_id for name, topic in topics.items()} == {
        "small": bytes([1]) * 16,
        "grown": bytes([2]) * 16,
        "large": bytes([3]) * 16,
    }
    assert (topics["small"].configs, topics["small"].partitions) == ({"retention.ms": "5"}, led(1))
    assert (topics["grown"].partitions_at_creation, topics["grown"].partitions) == (2, led(3))
    assert (topics["large"].partitions_at_creation, topics["large"].partitions) == (LARGE, led(LARGE))


def test_topics_of_the_earlier_format_are_what_they_were(tmp_path: Path) -> None:
    async def act() -> None:
        store = await EmbeddedStore.open(tmp_path)
        await bootstrap_cluster(store, lambda: "another")
        check(await topics_in(store))
        cluster = await store.get(CLUSTER)
        assert cluster is not None
        assert cluster.data == b"old-cluster"
        before = await store.tree("/")
        await bootstrap_cluster(store, lambda: "another")
        assert await migrate_topics(store) == 0
        assert await store.tree("/") == before
        await store.close()

    write_earlier(tmp_path)
    asyncio.run(act())
    asyncio.run(act())


class Stopping:
    """A store in small transactions that fails after some of them, as the process it is in would."""

    operations_max = 2
    bytes_max = 1_000_000

    def __init__(self, store: EmbeddedStore, transactions: int) -> None:
        self._store = store
        self._left = transactions

    def multi(self, operations: Sequence[Operation]) -> Awaitable[int]:
        assert len(operations) <= self.operations_max
        if self._left == 0:
            raise StoreUnavailable("stopped")
        self._left -= 1
        return self._store.multi(operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("transactions", range(6))
def test_a_start_that_stops_in_the_middle_is_gone_on_with(tmp_path: Path, transactions: int) -> None:
    async def stop() -> None:
        store = await EmbeddedStore.open(tmp_path)
        try:
            with pytest.raises(StoreUnavailable):
                await migrate_topics(Stopping(store, transactions))  # type: ignore[arg-type]
        finally:
            await store.close()

    async def go_on() -> None:
        store = await EmbeddedStore.open(tmp_path)
        await bootstrap_cluster(store, lambda: "another")
        check(await topics_in(store))
        await store.close()

    write_earlier(tmp_path)
    asyncio.run(stop())
    asyncio.run(go_on())


def test_the_earlier_version_refuses_the_new_format(tmp_path: Path) -> None:
    async def act() -> None:
        await (await EmbeddedStore.open(tmp_path)).close()

    write_earlier(tmp_path)
    asyncio.run(act())
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    [[version]] = connection.execute("PRAGMA user_version").fetchall()
    connection.close()
    assert version == SCHEMA_VERSION == 2, "the earlier version opens files of format 1 only"


def test_a_new_store_has_nothing_to_migrate(tmp_path: Path) -> None:
    async def act() -> None:
        store = await EmbeddedStore.open(tmp_path)
        assert await migrate_topics(store) == 0
        assert (await store.tree("/")).nodes == {}
        await bootstrap_cluster(store, lambda: "new")
        found = await store.get(PARTITIONS)
        assert found is not None
        assert found.data == PARTITIONS_MIGRATED
        await store.close()

    asyncio.run(act())
