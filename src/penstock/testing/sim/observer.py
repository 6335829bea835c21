"""The observer of a simulation: looks at committed offsets and last stable offsets, which may only grow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.coordinator.runtime import partition_of
from penstock.model.topic import GROUP_OFFSETS_TOPIC
from penstock.testing.histories import CommittedOffset, LastStable
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.consumers import end_offset
from penstock.testing.sim.links import ELSEWHERE, GROUP_KEY, UNDECIDED, Code, Link, NotSent
from penstock.testing.sim.plan import OFFSETS_PARTITIONS, Plan, Topic
from penstock.testing.sim.recording import key_of
from penstock.wire.api import offset_fetch

OFFSET_FETCH_VERSION = 9
LOOK_S = 1.0
NOTHING_COMMITTED = -1


async def committed_offsets(
    link: Link, group: str, topics: Sequence[Topic], *, stable: bool, member_id: str | None = None, epoch: int = -1
) -> dict[str, int] | None:
    """What a group has committed, by partition; None where the coordinator did not say, or not yet."""
    wanted = [
        offset_fetch.OffsetFetchRequestTopics(name=topic.name, partition_indexes=list(range(topic.partitions)))
        for topic in topics
    ]
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=wanted, member_id=member_id, member_epoch=epoch)
    request = offset_fetch.Request(groups=[asked], require_stable=stable)
    address = await link.coordinator(GROUP_KEY, group)
    place = (GROUP_OFFSETS_TOPIC, partition_of(group, OFFSETS_PARTITIONS))
    response = await link.ask_reigning(address, place, offset_fetch, OFFSET_FETCH_VERSION, request)
    [result] = response.groups
    if result.error_code:
        link.forget()
        if result.error_code not in ELSEWHERE | UNDECIDED:
            if member_id is None:
                link.unexpected(f"an offset fetch of {group}", result.error_code)
            else:
                raise NotSent(f"refused: {result.error_code}")
        return None
    found: dict[str, int] = {}
    for topic in result.topics:
        for part in topic.partitions:
            if part.error_code:
                if part.error_code != Code.UNSTABLE_OFFSET_COMMIT:
                    link.unexpected(f"an offset fetch of {group}", part.error_code)
                return None
            found[key_of(topic.name, part.partition_index)] = part.committed_offset
    return found


class Observer:
    """Looks now and then. It is the only one who looks, so that each look is later than the one before."""

    def __init__(self, link: Link, plan: Plan) -> None:
        self._link = link
        self._plan = plan

    async def run(self) -> None:
        while not self._plan.stopping:
            try:
                await self.look()
            except Disconnected:
                await self._link.backoff()
            await asyncio.sleep(self._link.random.random() * 2 * LOOK_S / self._plan.pace)

    async def look(self, *, stable: bool | None = None) -> bool:
        """Look at everything; whether everything could be seen.

        Offsets of a transaction show a little after its commit is acknowledged. A `stable` look waits for that.
        """
        link, recording = self._link, self._link.recording
        complete = True
        for group in self._plan.groups:
            before = {key: offset for (name, key), offset in recording.acknowledged.items() if name == group}
            settled = link.random.random() < 0.5 if stable is None else stable
            found = await committed_offsets(link, group, self._plan.topics, stable=settled)
            if found is None:
                complete = False
                continue
            for key, offset in before.items() if settled else ():
                if found[key] < offset:
                    text = f"group {group} has committed {found[key]} in {key}; {offset} was acknowledged"
                    recording.finding(text, key=key)
            for key, offset in found.items():
                if offset != NOTHING_COMMITTED:
                    recording.add(CommittedOffset(group=group, key=key, offset=offset))
        for topic in self._plan.topics:
            for index in range(topic.partitions):
                last_stable = await end_offset(link, topic.name, index, committed=True)
                if last_stable >= 0:
                    recording.add(LastStable(key=key_of(topic.name, index), offset=last_stable))
                else:
                    complete = False
        recording.operations["look"] += 1
        return complete
