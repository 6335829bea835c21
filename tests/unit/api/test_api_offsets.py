"""Searches of a log by time, with disk errors and concurrent compactions."""

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


def test_a_disk_error_in_a_search_by_time_fails_the_partition_and_takes_the_directory_offline() -> None:
    rig = filled()
    rig.disk.fail("pread", "orders-0", errno.EIO)

    with pytest.raises(KafkaStorageError):
        asyncio.run(searched(rig.replica(), lambda view: view.offset_for_time(NOW_MS), rig.threads))

    assert rig.store.all_directories[0].offline is not None


def test_a_search_is_repeated_when_a_compaction_changes_the_files() -> None:
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


def test_a_search_of_a_constantly_changing_log_ends() -> None:
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
def test_a_batch_of_an_unknown_codec_fails_its_partition(codec: int) -> None:
    """Clients cannot produce one, but a leader of another version might have accepted it."""
    unknown_codec = batch(b"a")
    struct.pack_into(">H", unknown_codec, ATTRIBUTES_AT, codec)
    struct.pack_into(">I", unknown_codec, CRC_AT, crc_of(unknown_codec, 0, len(unknown_codec)))
    rig = Rig(topic())
    rig.replica().log.append_stamped(memoryview(unknown_codec), lambda *_: None)
    partition = by_time.ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)
    request = by_time.Request(topics=[by_time.ListOffsetsTopic(name="orders", partitions=[partition])])

    async def respond() -> by_time.Response:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            context = RequestContext(connection_on(ours), 2, 7, 1, "test", NOW_MS)
            offsets = Offsets(replicas=rig.replicas, threads=rig.threads, turns=rig.turns)
            return await settled(offsets.list_offsets(context, request))

    (found,) = asyncio.run(respond()).topics[0].partitions
    assert found.error_code == CorruptMessage.code
