"""Links that a worker keeps from task to task."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.unit.pyspark_penstock.scripted_broker import Scripted, one_topic, scripted_broker, settings, versions

from penstock.wire.api import api_versions, metadata
from pyspark_penstock.link import LinkDown
from pyspark_penstock.shared_link import IDLE_SECONDS_MAX, LINKS_IDLE_MAX, LinkPool


class HandClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class CountingBroker:
    """A broker that counts requests."""

    def __init__(self) -> None:
        self.api_keys: list[int] = []
        self.closes_after: int | None = None

    def respond(self, api_key: int, correlation: bytes) -> bytes | None:
        self.api_keys.append(api_key)
        if self.closes_after is not None and len(self.api_keys) > self.closes_after:
            return None
        return versions(correlation, (metadata.API_KEY, 0, 12)) if api_key == 18 else one_topic(correlation)


@pytest.fixture
def counting() -> CountingBroker:
    return CountingBroker()


@pytest.fixture
def broker(counting: CountingBroker) -> Iterator[Scripted]:
    with scripted_broker(counting.respond) as scripted:
        yield scripted


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def pool(clock: HandClock) -> Iterator[LinkPool]:
    made = LinkPool(clock)
    yield made
    made.close()


def test_the_next_task_is_connected_and_knows_no_leaders(
    pool: LinkPool, broker: Scripted, counting: CountingBroker
) -> None:
    for _ in range(3):
        with pool.link(settings(broker.bootstrap)) as link:
            assert link.leader("orders", 0) == ("h", 9)
    assert broker.connections == 1
    assert counting.api_keys == [api_versions.API_KEY, *[metadata.API_KEY] * 3]


def test_an_assumed_leader_is_not_looked_up_until_it_is_forgotten(
    pool: LinkPool, broker: Scripted, counting: CountingBroker
) -> None:
    with pool.link(settings(broker.bootstrap)) as link:
        link.assume_leader("orders", 0, ("planned", 1))
        assert link.leader("orders", 0) == ("planned", 1)
        assert counting.api_keys == []
        link.forget()
        assert link.leader("orders", 0) == ("h", 9)
    with pool.link(settings(broker.bootstrap)) as link:
        assert link.leader("orders", 0) == ("h", 9)


def test_a_task_that_fails_leaves_no_connection(pool: LinkPool, broker: Scripted) -> None:
    def fails() -> None:
        with pool.link(settings(broker.bootstrap)) as link:
            link.topics(["orders"])
            raise LinkDown("the task's own failure")

    for _ in range(2):
        with pytest.raises(LinkDown):
            fails()
    with pool.link(settings(broker.bootstrap)) as link:
        link.topics(["orders"])
    assert broker.connections == 3


def test_a_connection_with_a_pending_response_is_not_reused(
    pool: LinkPool, broker: Scripted, counting: CountingBroker
) -> None:
    with pool.link(settings(broker.bootstrap)) as link:
        link.topics(["orders"])
        [address] = [link.settings.bootstrap.split(":")]
        body = metadata.encode_request(metadata.Request(topics=[]), 12)
        link.send((address[0], int(address[1])), metadata.API_KEY, 12, body)
    with pool.link(settings(broker.bootstrap)) as link:
        assert link.leader("orders", 0) == ("h", 9)
    assert broker.connections == 2


def test_a_connection_that_its_broker_closed_meanwhile_is_made_again(
    pool: LinkPool, broker: Scripted, counting: CountingBroker
) -> None:
    with pool.link(settings(broker.bootstrap)) as link:
        link.topics(["orders"])
        [channel] = vars(link)["_channels"].values()
        counting.closes_after = len(counting.api_keys)
        channel.socket.sendall(b"\0\0\0\x0a" + bytes(10))
        channel.socket.setblocking(True)
        channel.socket.recv(1, 2)
    counting.closes_after = None
    with pool.link(settings(broker.bootstrap)) as link:
        assert link.leader("orders", 0) == ("h", 9)
    assert broker.connections == 2


def test_a_link_that_has_waited_long_is_closed(pool: LinkPool, broker: Scripted, clock: HandClock) -> None:
    with pool.link(settings(broker.bootstrap)) as first:
        first.topics(["orders"])
    clock.seconds += IDLE_SECONDS_MAX + 1
    with pool.link(settings(broker.bootstrap)) as second:
        assert second is not first
        second.topics(["orders"])


def test_links_are_kept_by_their_settings_and_only_a_few(pool: LinkPool) -> None:
    first = [settings(f"127.0.0.1:{port}") for port in range(1, LINKS_IDLE_MAX + 2)]
    made = []
    for each in first:
        with pool.link(each) as link:
            made.append(link)
    with pool.link(first[-1]) as again:
        assert again is made[-1]
    with pool.link(first[0]) as other:
        assert other is not made[0]


def test_two_tasks_at_a_time_have_a_link_each(pool: LinkPool) -> None:
    with pool.link(settings("127.0.0.1:1")) as one, pool.link(settings("127.0.0.1:1")) as two:
        assert one is not two


def test_a_fork_makes_links_of_its_own(pool: LinkPool, monkeypatch: pytest.MonkeyPatch) -> None:
    with pool.link(settings("127.0.0.1:1")) as first:
        pass
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pool.link(settings("127.0.0.1:1")) as second:
        assert second is not first
