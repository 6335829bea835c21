"""cleanup.policy=consume with a share group: what it has finished is removed, and no other group may have it (C1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest
from tests.unit.partition.rig import NOW_MS, batch, topic, values
from tests.unit.shares.share_leader_rig import GROUP, Leader, runs

from penstock.model.deferred import Deferred
from penstock.model.generated_errors import TopicAuthorizationFailed
from penstock.shares.sessions import SharedPartition
from penstock.shares.share_partition import ACCEPT, REJECT
from penstock.wire.records import Record, build_batch

CONSUMED = {"cleanup.policy": "consume", "consume.group": GROUP}


@runs
async def test_what_a_share_group_has_finished_is_removed_once_that_is_committed() -> None:
    made = Leader(topic(configs=CONSUMED), settings={})
    replica = made.rig.replica()
    made.rig.append(replica, batch(b"a", b"b", b"c"))
    made.fetch()
    committing: list[Deferred[None]] = []
    write = made.coordinator.write

    def later(*args: object) -> Deferred[None]:
        write(*args)
        committing.append(Deferred())
        return committing[-1]

    made.coordinator.write = later  # type: ignore[method-assign]
    made.say(ACCEPT, 1)
    committing.pop().resolve(None)
    assert replica.offsets.log_start == 0, "the first is not finished"
    made.say(REJECT, 0)
    assert replica.offsets.log_start == 0, "not committed"

    committing.pop().resolve(None)

    assert replica.offsets.log_start == 2
    assert values(replica, 2) == [b"c"]
    assert made.share().share is not None


@runs
async def test_other_share_groups_are_refused_with_words() -> None:
    made = Leader(topic(configs=CONSUMED), settings={})
    key = SharedPartition(made.rig.replica().topic_id, 0)

    with pytest.raises(TopicAuthorizationFailed, match=f"group {GROUP} alone"):
        made.led.get("others", key)
    assert made.led.get(GROUP, key)


@runs
async def test_a_group_that_has_a_topic_loses_it_when_that_becomes_the_queue_of_another() -> None:
    plain = topic()
    made = Leader(plain, settings={})
    made.rig.append(made.rig.replica(), batch(b"a"))
    assert made.fetch() == [(0, 0, 1)]

    made.rig.change(plain, replace(plain, configs={"cleanup.policy": "consume", "consume.group": "others"}))

    with pytest.raises(TopicAuthorizationFailed, match="group others alone"):
        made.share()
    assert len(made.led) == 0


@runs
async def test_topics_without_the_policy_keep_what_a_group_has_finished() -> None:
    made = Leader(topic(), settings={})
    made.rig.append(made.rig.replica(), batch(b"a"))
    made.fetch()

    made.say(ACCEPT, 0)

    assert made.coordinator.start == 1
    assert values(made.rig.replica()) == [b"a"]


@pytest.mark.parametrize("order", ["none", "key"])
def test_repeated_messages_at_the_end_are_finished_without_a_member(order: str) -> None:
    async def story() -> None:
        configs = {**CONSUMED, "dedupe.window.records": "100"}
        made = Leader(topic(configs=configs), settings={"share.order": order})
        replica = made.rig.replica()
        message = Record(0, NOW_MS, b"k", b"v", (("penstock-msg-id", b"1"),))
        taken = []
        for _ in range(2):
            appended = replica.append(memoryview(build_batch([message])), NOW_MS)
            if isinstance(appended, Coroutine):
                await appended
            taken += made.fetch()
            if not made.coordinator.writes:
                made.say(ACCEPT, 0)

        assert taken == [(0, 0, 1)]
        assert made.coordinator.start == replica.offsets.log_start == 2

    asyncio.run(story())
