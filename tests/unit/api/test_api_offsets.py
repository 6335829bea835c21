"""Searches of a log by time meet disks that fail, and compactions."""

import asyncio
import errno

import pytest
from tests.unit.runtime.rig import NOW_MS, Rig, batch, topic

from penstock.api.offsets import SEARCHES_MAX, searched
from penstock.model.generated_errors import KafkaStorageError
from penstock.storage.view import LogView, TimedOffset


def filled() -> Rig:
    rig = Rig(topic())
    rig.append(rig.host(), batch(b"a", b"b"))
    return rig


def test_a_disk_that_fails_a_search_by_time_is_an_error_of_the_partition_and_goes_offline() -> None:
    rig = filled()
    rig.disk.fail("pread", "orders-0", errno.EIO)

    with pytest.raises(KafkaStorageError):
        asyncio.run(searched(rig.host(), lambda view: view.offset_for_time(NOW_MS)))

    assert rig.store.all_directories[0].offline is not None


def test_a_search_begins_again_when_a_compaction_changes_the_files() -> None:
    rig = filled()
    changes = 0

    def search(view: LogView) -> TimedOffset | None:
        nonlocal changes
        if changes < 2:
            changes += 1
            rig.host().log.rewrites += 1
        return view.offset_for_time(NOW_MS)

    found = asyncio.run(searched(rig.host(), search))

    assert found is not None
    assert (found.offset, changes) == (0, 2)


def test_a_log_that_changes_all_the_time_is_not_searched_for_ever() -> None:
    rig = filled()
    searches = 0

    def search(view: LogView) -> TimedOffset | None:
        nonlocal searches
        searches += 1
        rig.host().log.rewrites += 1
        return view.offset_for_time(NOW_MS)

    with pytest.raises(KafkaStorageError):
        asyncio.run(searched(rig.host(), search))

    assert searches == SEARCHES_MAX
