"""Records of a share group on three brokers, while leaders, share coordinators and the group coordinator die."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_replicated_writes import create, leader_of, write
from tests.unit.replication.test_share_groups_moving import GROUP, MEMBER, SETTINGS, Member

from penstock.model.ids import TopicPartition
from penstock.model.topic import SHARE_STATE_TOPIC
from penstock.shares.state.service import coordinator_key
from penstock.testing.sim.client import Disconnected
from penstock.wire.api import incremental_alter_configs, share_fetch
from penstock.wire.share_records import ShareKey

ORDERS = TopicPartition("orders", 0)
RECORDS = 60
ACCEPT = 1


class Reader:
    """Reads one share partition record by record, and accepts each with the next fetch."""

    def __init__(self, member: Member, topic_id: bytes) -> None:
        self.member = member
        self.topic_id = topic_id
        self.session: tuple[int, int] | None = None
        """The leader, and the epoch of the next request."""
        self.held: list[int] = []
        self.accepted: set[int] = set()
        """Offsets whose acceptance was answered without an error."""
        self.delivered: Counter[int] = Counter()
        self.again: list[int] = []
        """Offsets that were delivered after they had been accepted."""

    async def turn(self) -> None:
        """One fetch, with the acknowledgements of the one before; another session where the leader is another."""
        cluster = self.member.cluster
        leader = leader_of(cluster, ORDERS)
        if leader not in cluster.brokers or not cluster.brokers[leader].running:
            self._reset()
            await self.member.pause()
            return
        if self.session is None or self.session[0] != leader:
            self._reset()
            self.session = (leader, 0)
        epoch = self.session[1]
        batches = [
            share_fetch.AcknowledgementBatch(first_offset=each, last_offset=each, acknowledge_types=[ACCEPT])
            for each in (self.held if epoch else ())
        ]
        partition = share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        request = share_fetch.Request(
            group_id=GROUP,
            member_id=MEMBER,
            share_session_epoch=epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_records=4,
            batch_size=4,
            topics=[share_fetch.FetchTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        try:
            response = await cluster.ask(leader, share_fetch, 2, request, timeout_s=30.0)
        except Disconnected:
            self._reset()
            return
        self._take(response, bool(batches))

    def _take(self, response: share_fetch.Response, acknowledged: bool) -> None:
        rows = [each for topic in response.responses for each in topic.partitions]
        if response.error_code or any(each.error_code or each.acknowledge_error_code for each in rows):
            self._reset()
            return
        assert self.session is not None
        self.session = (self.session[0], self.session[1] + 1)
        if acknowledged:
            self.accepted.update(self.held)
        self.held = [
            offset
            for each in rows
            for found in each.acquired_records
            for offset in range(found.first_offset, found.last_offset + 1)
        ]
        self.again += [offset for offset in self.held if offset in self.accepted]
        self.delivered.update(self.held)

    def _reset(self) -> None:
        """The session is lost. What it held comes again; what was acknowledged and not answered may have counted."""
        self.session = None
        self.held = []


async def begin(cluster: SimCluster) -> Reader:
    """A group with a member that reads a topic with records."""
    await create(cluster)
    for _ in range(RECORDS // 3):
        assert await write(cluster, ORDERS, values=3) == 0
    earliest = incremental_alter_configs.AlterableConfig(name="share.auto.offset.reset", value="earliest")
    group = incremental_alter_configs.AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[earliest])
    response = await cluster.ask(1, incremental_alter_configs, 1, incremental_alter_configs.Request(resources=[group]))
    assert [each.error_code for each in response.responses] == [0]
    member = Member(cluster)
    assert await member.beat("orders") == 0
    await member.has(1)
    [topic_id] = member.assigned
    return Reader(member, topic_id)


def share_coordinator_of(reader: Reader) -> int:
    parts = reader.member.cluster.parts(reader.member.cluster.controller)
    place = parts.share_states.partition_of(coordinator_key(ShareKey(GROUP, reader.topic_id, 0)))
    return parts.ground.catalog.image.topics[SHARE_STATE_TOPIC].partitions[place].leader


async def victim(reader: Reader, role: str) -> int:
    if role == "partition leader":
        return leader_of(reader.member.cluster, ORDERS)
    return share_coordinator_of(reader) if role == "share coordinator" else await reader.member.coordinator()


@pytest.mark.parametrize("role", ["partition leader", "share coordinator", "group coordinator"])
def test_accepted_records_never_come_again_and_none_is_lost(role: str) -> None:
    async def story(cluster: SimCluster) -> None:
        reader = await begin(cluster)
        while len(reader.accepted) < RECORDS // 3:
            await reader.turn()
        dead = await victim(reader, role)
        cluster.brokers[dead].kill()

        async def is_read() -> bool:
            await reader.turn()
            # The last records are accepted; what was acknowledged without an answer may be finished too.
            offsets = await reader.member.offsets()
            return offsets == {("orders", 0): (RECORDS, 0)}

        await cluster.until(is_read, limit_s=180.0)
        assert reader.again == []
        assert set(reader.delivered) == set(range(RECORDS))
        assert len(reader.accepted) >= RECORDS - 8, "at most two requests were not answered"
        await reader.member.has(1)
        cluster.brokers[dead].start()
        await cluster.brokers[dead].ready()

    SimCluster(settings=SETTINGS).run(story)
