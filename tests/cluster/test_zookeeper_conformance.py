"""What every metadata store promises, on a real ZooKeeper; and that no thread of its client is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.metadata.test_store_conformance import *  # noqa: F403
from tests.unit.metadata.test_store_conformance import Kind

from cluster.zookeeper_stores import source
from penstock.metadata.store import MetadataStore
from penstock.testing.zookeeper import ZooKeeper

pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as servers:
        yield servers


@pytest.fixture(params=["zookeeper"])
def kind(zookeeper: ZooKeeper) -> Iterator[Kind]:
    """A path of a file system is a path below which a store has its nodes."""

    async def open_store(path: Path) -> MetadataStore:
        return await source(zookeeper.connect, str(path)).open()

    yield Kind(open_store, asyncio.run)
    assert [thread.name for thread in threading.enumerate() if thread.name == "zookeeper"] == []
