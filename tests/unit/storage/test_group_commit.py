"""flush=group: records are acknowledged and readable once flushed, with one fsync for all waiters."""

import asyncio
import errno

import pytest
from tests.unit.eventual import settled
from tests.unit.partition.rig import Rig, Seeded, batch, topic, values

from penstock.model.generated_errors import KafkaStorageError

GROUP = {"flush": "group"}


def test_a_batch_is_acknowledged_and_visible_only_when_it_is_on_the_disk() -> None:
    async def run() -> None:
        rig = Rig(topic(configs=GROUP))
        replica = rig.replica()
        appended = rig.append(replica, batch(b"a"))

        durable, committed = replica.durable(appended.end), replica.committed(appended.end)
        assert durable is not None
        assert committed is not None
        assert values(replica) == []
        assert durable.waiting
        rig.flush()

        await settled(durable)
        await settled(committed)
        assert values(replica) == [b"a"]
        assert replica.durable(appended.end) is None
        assert replica.committed(appended.end) is None

    asyncio.run(run())


def test_everything_appended_during_a_flush_shares_the_next_one() -> None:
    async def run() -> None:
        rig = Rig(topic(configs=GROUP))
        replica = rig.replica()
        waits = [replica.durable(rig.append(replica, batch(b"%d" % at)).end) for at in range(5)]
        assert len(rig.flushing.queue) == 1, "the first requests a flush, the others wait for it to finish"

        assert rig.flush() == 1
        await asyncio.sleep(0)
        done = [not wait.waiting for wait in waits if wait is not None]
        assert done == [True, False, False, False, False], "the flush covers batches appended before it began"
        assert rig.flush() == 1
        await asyncio.sleep(0)
        assert not any(wait.waiting for wait in waits if wait is not None)
        assert rig.flush() == 0

    asyncio.run(run())


def test_without_an_acknowledgement_the_batch_still_reaches_the_disk_and_readers() -> None:
    rig = Rig(topic(configs=GROUP))
    replica = rig.replica()
    rig.append(replica, batch(b"a"))

    rig.flush()

    assert values(replica) == [b"a"]
    assert replica.log.recovery_point == 1


def test_a_retry_of_a_batch_that_is_not_on_the_disk_yet_waits_like_the_first() -> None:
    async def run() -> None:
        rig = Rig(topic(configs=GROUP))
        replica = rig.replica()
        first = rig.append(replica, batch(b"a", producer_id=5))
        again = rig.append(replica, batch(b"a", producer_id=5))

        assert again.base_offset == first.base_offset
        wait = replica.durable(again.end)
        assert wait is not None
        rig.flush()
        await settled(wait)

    asyncio.run(run())


def test_a_failed_fsync_fails_all_waiters_and_takes_the_directory_offline() -> None:
    async def run() -> None:
        rig = Rig(topic(configs=GROUP), topic("plain", number=2))
        replica, other = rig.replica(), rig.replica("plain")
        rig.append(other, batch(b"x"))
        waits = [replica.durable(rig.append(replica, batch(b"a")).end), replica.committed(1)]
        rig.disk.fail("sync", ".log", errno.EIO)

        rig.flush()

        for wait in waits:
            assert wait is not None
            with pytest.raises(KafkaStorageError, match="offline"):
                await settled(wait)
        for gone in (replica, other):
            with pytest.raises(KafkaStorageError):
                rig.append(gone, batch(b"b"))
            with pytest.raises(KafkaStorageError):
                gone.read(0, 100, at_least_one=True)

    asyncio.run(run())


def test_acknowledged_records_survive_a_power_cut_and_no_others_were_readable() -> None:
    rig = Rig(topic(configs=GROUP))
    replica = rig.replica()
    rig.append(replica, batch(b"a"))
    rig.flush()
    rig.append(replica, batch(b"b"))
    seen = values(replica)
    rig.disk.crash(Seeded(3))

    again = Rig(topic(configs=GROUP), disk=rig.disk)

    assert seen == [b"a"]
    assert values(again.replica())[:1] == [b"a"]


def test_waiters_complete_when_a_topic_gives_up_flush_group() -> None:
    async def run() -> None:
        before, after = topic(configs=GROUP), topic(configs={})
        rig = Rig(before)
        replica = rig.replica()
        wait = replica.durable(rig.append(replica, batch(b"a")).end)
        assert wait is not None

        rig.change(before, after)

        await settled(wait)
        assert values(replica) == [b"a"]

    asyncio.run(run())


def test_older_records_are_flushed_when_a_topic_begins_to_use_flush_group_and_after_a_crash() -> None:
    before, after = topic(configs={}), topic(configs=GROUP)
    rig = Rig(before)
    replica = rig.replica()
    rig.append(replica, batch(b"a"))
    assert replica.log.is_dirty

    rig.change(before, after)
    assert rig.flush() == 1
    assert not replica.log.is_dirty

    rig.append(replica, batch(b"b"))
    again = Rig(after, disk=rig.stop(clean=False))
    assert not again.replica().log.is_dirty, "flushed before the first read"
    assert values(again.replica()) == [b"a", b"b"]


def test_flush_messages_is_the_number_of_records_between_flushes() -> None:
    rig = Rig(topic(configs={"flush.messages": "3"}))
    replica = rig.replica()
    flushes = []
    for _ in range(9):
        rig.append(replica, batch(b"a"))
        flushes.append(rig.flush())

    assert flushes == [0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert replica.log.recovery_point == 9
