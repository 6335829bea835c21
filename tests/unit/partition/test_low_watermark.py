"""DeleteRecords waits until every live replica has deleted the records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.eventual import settled
from tests.unit.partition.rig import NOW_MS, Rig, batch
from tests.unit.partition.test_following import shared

from penstock.api.topics_records import TopicsRecords
from penstock.metadata.image import ImageDelta
from penstock.model.generated_errors import NotLeaderOrFollower, RequestTimedOut
from penstock.model.ids import NO_BROKER_EPOCH
from penstock.wire.api import delete_records as gone


class Context:
    """The context of a request whose handler is awaited by its caller."""

    @property
    def connection(self) -> Context:
        return self

    def run(self, work: Any) -> Any:
        return work


class Deleting:
    """A leader of three replicas whose records are deleted."""

    def __init__(self) -> None:
        self.rig = Rig(shared(replicas=(1, 2, 3)))
        self.live = {1, 2, 3}
        self.rig.replicas.cluster.broker_epoch_of = lambda broker: broker if broker in self.live else NO_BROKER_EPOCH
        self.replica = self.rig.replica()
        for _ in range(5):
            self.rig.append(self.replica, batch(b"a"))
        for follower in (2, 3):
            self.fetch(follower, 5, 0)
        self._records: Any = TopicsRecords(replicas=self.rig.replicas, timers=self.rig.timers, turns=self.rig.turns)

    def fetch(self, follower: int, offset: int, log_start: int) -> None:
        self.replica.follower_fetched(
            follower,
            broker_epoch=follower,
            leader_epoch=0,
            fetch_offset=offset,
            held_end=offset,
            log_start=log_start,
            now_ms=NOW_MS,
        )

    async def delete(self, offset: int) -> gone.DeleteRecordsPartitionResult:
        item = gone.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = gone.DeleteRecordsTopic(name="orders", partitions=[item])
        eventual = await self._records.delete_records(Context(), gone.Request(topics=[topic], timeout_ms=1_000))
        response: gone.Response = await settled(eventual)
        (found,) = response.topics[0].partitions
        return found


def run(act: Any) -> None:
    async def whole() -> None:
        await act(Deleting())

    asyncio.run(whole())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_deletion_waits_for_the_followers_log_starts() -> None:
    async def act(deleting: Deleting) -> None:
        pending = asyncio.create_task(deleting.delete(3))
        await turns()
        deleting.fetch(2, 5, 3)
        await turns()
        assert not pending.done()

        deleting.fetch(3, 5, 4)

        result = await pending
        assert (result.error_code, result.low_watermark) == (0, 3)

    run(act)


def test_deletion_does_not_wait_for_brokers_that_are_not_live() -> None:
    async def act(deleting: Deleting) -> None:
        deleting.fetch(2, 5, 3)
        pending = asyncio.create_task(deleting.delete(3))
        await turns()
        assert not pending.done()

        deleting.live.discard(3)
        deleting.rig.replicas.apply(ImageDelta(brokers=True))

        assert (await pending).error_code == 0

    run(act)


def test_deletion_times_out_and_says_how_far_it_is() -> None:
    async def act(deleting: Deleting) -> None:
        pending = asyncio.create_task(deleting.delete(3))
        await turns()

        deleting.rig.loop.pass_ms(2_000)

        result = await pending
        assert (result.error_code, result.low_watermark) == (RequestTimedOut.code, 0)

    run(act)


def test_deletion_fails_when_leadership_ends() -> None:
    async def act(deleting: Deleting) -> None:
        pending = asyncio.create_task(deleting.delete(3))
        await turns()

        deleting.rig.change(shared(replicas=(1, 2, 3)), shared(2, 1, replicas=(1, 2, 3), version=1))

        assert (await pending).error_code == NotLeaderOrFollower.code

    run(act)


def test_the_only_replica_deletes_at_once() -> None:
    rig = Rig(shared(replicas=(1,)))
    rig.append(rig.replica(), batch(b"a"))

    assert rig.replica().delete_records(1) == 1
    assert rig.replica().deleted_everywhere(1) is None


def test_a_follower_has_no_low_watermark() -> None:
    rig = Rig(shared(leader=2))

    with pytest.raises(NotLeaderOrFollower):
        rig.replica().low_watermark()
