"""Searches of a log by time meet disks that fail, and compactions."""

import asyncio
import errno
import socket
import struct

import pytest
from tests.unit.api.api_world import connection_on
from tests.unit.eventual import settled
from tests.unit.partition.rig import NOW_MS, Rig, batch, topic

from penstock.api.offsets import SEARCHES_MAX, Offsets, searched
from penstock.api.registry import RequestContext
from penstock.model.batch import ATTRIBUTES_AT, CRC_AT
from penstock.model.generated_errors import CorruptMessage, KafkaStorageError
from penstock.storage.view import LogView, TimedOffset
from penstock.wire.api import list_offsets as by_time
from penstock.wire.records import crc_of


def filled() -> Rig:
    rig = Rig(topic())
    rig.append(rig.replica(), batch(b"a", b"b"))
    return rig


def test_a_disk_that_fails_a_search_by_time_is_an_error_of_the_partition_and_goes_offline() -> None:
    rig = filled()
    rig.disk.fail("pread", "orders-0", errno.EIO)

    with pytest.raises(KafkaStorageError):
        asyncio.run(searched(rig.replica(), lambda view: view.offset_for_time(NOW_MS), rig.threads))

    assert rig.store.all_directories[0].offline is not None


def test_a_search_begins_again_when_a_compaction_changes_the_files() -> None:
    rig = filled()
    changes = 0

    def search(view: LogView) -> TimedOffset | None:
        nonlocal changes
        if changes < 2:
            changes += 1
            rig.replica().log.partition_directory.rewrites += 1
        return view.offset_for_time(NOW_MS)

    found = asyncio.run(searched(rig.replica(), search, rig.threads))

    assert found is not None
    assert (found.offset, changes) == (0, 2)


def test_a_log_that_changes_all_the_time_is_not_searched_for_ever() -> None:
    rig = filled()
    searches = 0

    def search(view: LogView) -> TimedOffset | None:
        nonlocal searches
        searches += 1
        rig.replica().log.partition_directory.rewrites += 1
        return view.offset_for_time(NOW_MS)

    with pytest.raises(KafkaStorageError):
        asyncio.run(searched(rig.replica(), search, rig.threads))

    assert searches == SEARCHES_MAX


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_batch_of_an_unknown_codec_is_an_error_of_its_partition(codec: int) -> None:
    """Clients cannot store one; a leader of another version might have."""
    strange = batch(b"a")
    struct.pack_into(">H", strange, ATTRIBUTES_AT, codec)
    struct.pack_into(">I", strange, CRC_AT, crc_of(strange, 0, len(strange)))
    rig = Rig(topic())
    rig.replica().log.append_stamped(memoryview(strange), lambda *_: None)
    asked = by_time.ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)
    request = by_time.Request(topics=[by_time.ListOffsetsTopic(name="orders", partitions=[asked])])

    async def answered() -> by_time.Response:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            context = RequestContext(connection_on(ours), 2, 7, 1, "test", NOW_MS)
            offsets = Offsets(replicas=rig.replicas, threads=rig.threads, turns=rig.turns)
            return await settled(offsets.list_offsets(context, request))

    (found,) = asyncio.run(answered()).topics[0].partitions
    assert found.error_code == CorruptMessage.code
