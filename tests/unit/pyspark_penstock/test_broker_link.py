"""The link to the brokers: its requests, its caches, and its errors when a broker misbehaves."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.unit.pyspark_penstock.scripted_broker import Responder, Scripted, framed, one_topic, settings, versions

from penstock.client.connection import parse_addresses
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    LeaderNotAvailable,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from penstock.wire.api import api_versions, find_coordinator, metadata, offset_commit, offset_fetch
from pyspark_penstock.cluster import Cluster
from pyspark_penstock.link import (
    RESPONSE_BYTES_MAX,
    BrokerLink,
    LinkDown,
    ResponseBuffer,
    ResponseTooLarge,
    Unreachable,
)
from pyspark_penstock.topic_options import Subscription


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


def of_two_brokers(correlation: bytes, leader: int, epoch: int, ports: list[int]) -> bytes:
    """A Metadata response: the topic orders, led by one of two brokers, whose ids are their places in the list."""
    part = metadata.MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    found = metadata.Response(
        brokers=[
            metadata.MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port)
            for number, port in enumerate(ports)
        ],
        topics=[metadata.MetadataResponseTopic(name="orders", topic_id=b"i" * 16, partitions=[part])],
    )
    return framed(correlation + b"\0" + metadata.encode_response(found, 12))


def test_a_broker_with_old_metadata_is_not_believed_and_another_one_is_asked(
    port: Callable[[Responder], Scripted],
) -> None:
    ports: list[int] = []

    def responder(leader: int, epoch: int) -> Responder:
        def respond(api_key: int, correlation: bytes) -> bytes:
            if api_key == api_versions.API_KEY:
                return versions(correlation, (metadata.API_KEY, 0, 12))
            return of_two_brokers(correlation, leader, epoch, ports)

        return respond

    # The first broker leads in epoch 5, is paused, and still says so when the second one leads in epoch 6.
    scripted = [port(responder(0, 5)), port(responder(1, 6))]
    ports += [int(each.bootstrap.rpartition(":")[2]) for each in scripted]
    with BrokerLink(settings(",".join(each.bootstrap for each in scripted))) as link:
        assert link.leader("orders", 0) == ("127.0.0.1", ports[0])
        assert link.leader_epoch("orders", 0) == 5
        link.forget()
        assert link.leader("orders", 0) == ("127.0.0.1", ports[1])
        link.forget()
        with pytest.raises(LeaderNotAvailable):
            link.leader("orders", 0)
        assert link.retrying("asking", lambda: link.leader("orders", 0)) == ("127.0.0.1", ports[1])
        assert link.leader_epoch("orders", 0) == 6


def test_a_broker_that_accepts_and_never_responds_is_left_for_one_that_does(
    port: Callable[[Responder], Scripted],
) -> None:
    asked: list[int] = []

    def respond(api_key: int, correlation: bytes) -> bytes:
        asked.append(api_key)
        if api_key == api_versions.API_KEY:
            return versions(correlation, (metadata.API_KEY, 0, 12))
        return one_topic(correlation)

    scripted = port(respond)
    with socket.create_server(("127.0.0.1", 0)) as paused:
        address = f"127.0.0.1:{paused.getsockname()[1]}"
        chosen = replace(settings(f"{address},{scripted.bootstrap}"), connect_timeout_ms=200)
        with BrokerLink(chosen) as link:
            link.require_contact()
            assert asked == [api_versions.API_KEY]
            link.drop(parse_addresses(scripted.bootstrap)[0])
            for _ in range(3):
                link.forget()
                link.topics(["orders"])
        paused.settimeout(0)
        # The broker that does not respond was tried once, and is the last choice from then on.
        paused.accept()[0].close()
        with pytest.raises(BlockingIOError):
            paused.accept()


def test_a_group_whose_coordinator_moves_is_looked_up_again(port: Callable[[Responder], Scripted]) -> None:
    codes = [NotCoordinator.code, CoordinatorLoadInProgress.code, 0]
    found: list[int] = []

    def respond(api_key: int, correlation: bytes) -> bytes:
        if api_key == api_versions.API_KEY:
            known = [(each.API_KEY, 0, each.VERSION_MAX) for each in (find_coordinator, offset_fetch, offset_commit)]
            return versions(correlation, *known)
        if api_key == find_coordinator.API_KEY:
            found.append(api_key)
            host, _, number = scripted.bootstrap.rpartition(":")
            at = find_coordinator.Response(host=host, port=int(number))
            return framed(correlation + b"\0" + find_coordinator.encode_response(at, 3))
        code = codes.pop(0)
        if api_key == offset_fetch.API_KEY:
            of_place = offset_fetch.OffsetFetchResponsePartition(partition_index=0, committed_offset=7)
            topic = offset_fetch.OffsetFetchResponseTopic(name="orders", partitions=[of_place])
            fetched = offset_fetch.Response(error_code=code, topics=[] if code else [topic])
            return framed(correlation + b"\0" + offset_fetch.encode_response(fetched, 7))
        committed = offset_commit.OffsetCommitResponsePartition(partition_index=0, error_code=code)
        named = offset_commit.OffsetCommitResponseTopic(name="orders", partitions=[committed])
        return framed(correlation + b"\0" + offset_commit.encode_response(offset_commit.Response(topics=[named]), 8))

    scripted = port(respond)
    with BrokerLink(settings(scripted.bootstrap)) as link:
        cluster = Cluster(link, Subscription(topics=("orders",)), read_committed=False)
        assert cluster.committed("group", [("orders", 0)]) == {("orders", 0): 7}
        assert (codes, len(found)) == ([], 3)
        codes += [NotCoordinator.code, CoordinatorLoadInProgress.code, 0]
        cluster.commit("group", {("orders", 0): 9})
        assert (codes, len(found)) == ([], 5)
