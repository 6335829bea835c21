"""The link to the brokers: its requests, its caches, and its errors when a broker misbehaves."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from tests.unit.pyspark_penstock.scripted_broker import Responder, Scripted, framed, one_topic, settings, versions

from penstock.model.generated_errors import LeaderNotAvailable, TopicAuthorizationFailed, UnknownServerError
from penstock.wire.api import api_versions, metadata
from pyspark_penstock.link import (
    RESPONSE_BYTES_MAX,
    BrokerLink,
    LinkDown,
    ResponseBuffer,
    ResponseTooLarge,
    Unreachable,
)


@pytest.fixture
def port() -> Iterator[Callable[[Responder], Scripted]]:
    opened: list[Scripted] = []

    def open_port(respond: Responder) -> Scripted:
        opened.append(Scripted(respond))
        return opened[-1]

    yield open_port
    for each in opened:
        each.close()


def test_a_broker_that_closes_the_connection_is_named(port: Callable[[Responder], Scripted]) -> None:
    scripted = port(lambda _, __: None)
    with BrokerLink(settings(scripted.bootstrap)) as link, pytest.raises(LinkDown, match="it closed the connection"):
        link.topics(["orders"])


def test_a_response_that_is_too_large_is_not_read(port: Callable[[Responder], Scripted]) -> None:
    scripted = port(lambda _, __: struct.pack(">i", RESPONSE_BYTES_MAX + 1))
    with (
        BrokerLink(settings(scripted.bootstrap)) as link,
        pytest.raises(ResponseTooLarge, match="announced a response"),
    ):
        link.topics(["orders"])


def test_a_broker_without_a_version_that_is_known_is_an_error(port: Callable[[Responder], Scripted]) -> None:
    scripted = port(lambda _, correlation: versions(correlation, (metadata.API_KEY, 90, 99)))
    with BrokerLink(settings(scripted.bootstrap)) as link, pytest.raises(UnknownServerError, match="Metadata"):
        link.topics(["orders"])


def test_metadata_of_a_topic_is_cached_until_it_is_forgotten(port: Callable[[Responder], Scripted]) -> None:
    requested: list[int] = []

    def respond(api_key: int, correlation: bytes) -> bytes:
        requested.append(api_key)
        if api_key == api_versions.API_KEY:
            return versions(correlation, (metadata.API_KEY, 0, 12))
        return one_topic(correlation)

    scripted = port(respond)
    with BrokerLink(settings(scripted.bootstrap)) as link:
        assert link.leader("orders", 0) == ("h", 9)
        assert link.leader("orders", 0) == ("h", 9)
        assert link.topic_id("orders") == b"i" * 16
        assert requested.count(metadata.API_KEY) == 1
        link.forget()
        link.leader("orders", 0)
        assert requested.count(metadata.API_KEY) == 2
    assert scripted.connections == 1


def test_a_failure_that_may_pass_is_tried_again_and_another_is_not() -> None:
    link = BrokerLink(settings("127.0.0.1:1"))
    tries: list[int] = []

    def passes() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LeaderNotAvailable
        return "done"

    assert link.retrying("trying", passes) == "done"

    def refused() -> None:
        tries.append(1)
        raise TopicAuthorizationFailed

    tries.clear()
    with pytest.raises(TopicAuthorizationFailed):
        link.retrying("trying", refused)
    assert len(tries) == 1


def test_retries_end_with_the_failure_and_the_operation() -> None:
    link = BrokerLink(settings("127.0.0.1:1", api_timeout_ms=50))
    with pytest.raises(LinkDown, match=r"looking at the topics: broker 127\.0\.0\.1:1"):
        link.retrying("looking at the topics", lambda: link.topics(["orders"]))


class HastyClock:
    """A clock that advances by a second at every read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


def test_an_unreachable_cluster_fails_within_seconds_and_not_after_a_minute() -> None:
    clock = HastyClock()
    link = BrokerLink(settings("127.0.0.1:1,no-such-host.invalid:9092"), clock)
    with pytest.raises(Unreachable, match=r"no broker answers at kafka\.bootstrap\.servers=127\.0\.0\.1:1,no-such"):
        link.require_contact()
    assert clock.seconds < 10


def test_one_bootstrap_server_that_responds_is_enough(port: Callable[[Responder], Scripted]) -> None:
    scripted = port(lambda _, correlation: versions(correlation, (metadata.API_KEY, 0, 12)))
    with BrokerLink(settings(f"127.0.0.1:1,{scripted.bootstrap}")) as link:
        link.require_contact()
        link.require_contact()
    assert scripted.connections == 1


def test_topics_of_the_brokers_own_are_not_listed(port: Callable[[Responder], Scripted]) -> None:
    names = {"orders": False, "__consumer_offsets": True}

    def respond(api_key: int, correlation: bytes) -> bytes:
        if api_key == api_versions.API_KEY:
            return versions(correlation, (metadata.API_KEY, 0, 12))
        found = [metadata.MetadataResponseTopic(name=name, is_internal=own) for name, own in names.items()]
        return framed(correlation + b"\0" + metadata.encode_response(metadata.Response(topics=found), 12))

    with BrokerLink(settings(port(respond).bootstrap)) as link:
        assert set(link.topics(None)) == {"orders"}
        assert set(link.topics(["orders", "__consumer_offsets"])) == set(names)


def test_a_response_buffer_is_reused_and_never_resized_while_in_use() -> None:
    buffer = ResponseBuffer()
    first = buffer.room(4)
    first[:] = b"abcd"
    again = buffer.room(3)
    assert bytes(again) == b"abc"
    larger = buffer.room(100)
    assert len(larger) == 100
    assert bytes(first) == b"abcd"
