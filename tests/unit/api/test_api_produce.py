"""Produce: acknowledgements that wait for the disk, and the clean-up of those that time out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.eventual import deliver
from tests.unit.partition.rig import Rig, batch, topic

from penstock.api.leader_hints import LeaderHints
from penstock.api.produce import Produce
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import RequestTimedOut
from penstock.model.timers import Timer
from penstock.observe.counters import TopicTraffic
from penstock.quotas.client_quotas import ClientQuotas
from penstock.wire.produce import ProduceRequest

REQUESTS = 500
TIMEOUT_MS = 1_000


class Context:
    """The context of a Produce request."""

    api_version = 9
    client_id = user = "c"

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def throttle(self, throttle_ms: int) -> None:
        """There are no quotas here."""


class Producing:
    """Produce requests to a topic whose disk hangs: a test starts its flushes."""

    def __init__(self) -> None:
        self.rig = Rig(topic(partitions=2, configs={"flush": "group"}))
        self._produce: Any = Produce(
            replicas=self.rig.replicas,
            timers=self.rig.timers,
            quotas=ClientQuotas(11, 1_000),
            traffic=TopicTraffic(),
            verification=None,  # type: ignore[arg-type]
            turns=self.rig.turns,
            hints=LeaderHints(MetadataImage()),
        )
        self.replicas = [self.rig.replica(partition=partition) for partition in range(2)]

    def send(self, *, acks: int = -1, partitions: int = 2) -> tuple[Deferred[Any], list[Any]]:
        """Send one batch to each partition; returns the deferred response, and the list it is delivered to."""
        batches = [(at, memoryview(batch(b"x"))) for at in range(partitions)]
        request = ProduceRequest(None, acks, TIMEOUT_MS, [("orders", None, batches)])
        pending = self._produce.handle(Context(self.rig.clock.ms), request)
        assert isinstance(pending, Deferred)
        responses: list[Any] = []
        deliver(pending, responses)
        return pending, responses

    @property
    def kept(self) -> int:
        """Number of waiters and timers."""
        waiters = sum(len(replica._commit_waiters) + len(replica._flush_waiters) for replica in self.replicas)
        return waiters + len(self.rig.timers)


def run(act: Callable[[Producing], Any]) -> None:
    async def whole() -> None:
        await act(Producing())

    asyncio.run(whole())


def codes(responses: list[Any]) -> list[int]:
    [response] = responses
    return [result.error_code for _, _, results in response.topics for result in results]


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_request_that_times_out_leaves_no_waiter_and_no_timer(acks: int) -> None:
    async def act(producing: Producing) -> None:
        sent = [producing.send(acks=acks) for _ in range(REQUESTS)]

        producing.rig.loop.pass_ms(2 * TIMEOUT_MS)
        await asyncio.sleep(0)

        assert all(codes(responses) == [RequestTimedOut.code] * 2 for _, responses in sent)
        assert producing.kept == 0

    run(act)


def test_a_request_whose_client_disconnects_leaves_no_waiter_and_no_timer() -> None:
    async def act(producing: Producing) -> None:
        sent = [producing.send() for _ in range(REQUESTS)]

        for pending, _ in sent:
            pending.abandon()
        await asyncio.sleep(0)

        assert producing.kept == 0
        assert not any(responses for _, responses in sent)

    run(act)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("timed_out", [False, True])
def test_a_request_leaves_nothing_to_the_garbage_collector(partitions: int, timed_out: bool) -> None:
    """Collections of what acknowledgements left were a third of a leader's time."""

    async def act(producing: Producing) -> None:
        for _ in range(REQUESTS):
            _, responses = producing.send(partitions=partitions)
            if timed_out:
                producing.rig.loop.pass_ms(2 * TIMEOUT_MS)
            producing.rig.flush()
            producing.rig.flush()
            await asyncio.sleep(0)
            assert len(responses) == 1

    with uncollected() as garbage:
        run(act)
    assert not [found for found in garbage if isinstance(found, Deferred | Timer)]


@contextlib.contextmanager
def uncollected() -> Iterator[list[object]]:
    """What is left to the collector meanwhile, once the block has ended."""
    gc.collect()
    found: list[object] = []
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.extend(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_requests_after_one_that_timed_out_are_acknowledged_when_the_disk_is_back() -> None:
    async def act(producing: Producing) -> None:
        _, late = producing.send()
        producing.rig.loop.pass_ms(2 * TIMEOUT_MS)
        _, timely = producing.send()

        producing.rig.flush()
        producing.rig.flush()
        await asyncio.sleep(0)

        assert codes(late) == [RequestTimedOut.code] * 2
        assert codes(timely) == [0, 0]
        assert producing.kept == 0

    run(act)
