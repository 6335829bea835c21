"""The way to the brokers: what it asks, what it remembers, and what it says when the other side misbehaves."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.model.generated_errors import LeaderNotAvailable, TopicAuthorizationFailed, UnknownServerError
from penstock.wire.api import api_versions, metadata
from pyspark_penstock.link import ANSWER_BYTES_MAX, AnswerBuffer, AnswerTooLarge, BrokerLink, LinkDown, LinkSettings

Answer = Callable[[int, bytes], bytes | None]
SECONDS_MAX = 60.0


class Scripted:
    """A port that answers every request as a function says; None closes the connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS_MAX)
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                while size := connection.recv(4, socket.MSG_WAITALL):
                    request = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                    api_key, _, correlation_id = struct.unpack_from(">hhi", request)
                    answer = self._answer(api_key, struct.pack(">i", correlation_id))
                    if answer is None:
                        break
                    connection.sendall(answer)

    def close(self) -> None:
        # A listener that another thread waits on is woken by a shutdown, not by a close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(SECONDS_MAX)


@pytest.fixture
def port() -> Iterator[Callable[[Answer], Scripted]]:
    opened: list[Scripted] = []

    def open_port(answer: Answer) -> Scripted:
        opened.append(Scripted(answer))
        return opened[-1]

    yield open_port
    for each in opened:
        each.close()


def settings(bootstrap: str, api_timeout_ms: int = 60_000) -> LinkSettings:
    return LinkSettings(bootstrap=bootstrap, api_timeout_ms=api_timeout_ms, backoff_ms=1, backoff_max_ms=5)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def versions(correlation: bytes, *known: tuple[int, int, int]) -> bytes:
    keys = [api_versions.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in known]
    return framed(correlation + api_versions.encode_response(api_versions.Response(api_keys=keys), 3))


def test_a_broker_that_closes_the_connection_is_named(port: Callable[[Answer], Scripted]) -> None:
    scripted = port(lambda _, __: None)
    with BrokerLink(settings(scripted.bootstrap)) as link, pytest.raises(LinkDown, match="it closed the connection"):
        link.topics(["orders"])


def test_an_answer_that_nobody_asked_for_is_not_read(port: Callable[[Answer], Scripted]) -> None:
    scripted = port(lambda _, __: struct.pack(">i", ANSWER_BYTES_MAX + 1))
    with BrokerLink(settings(scripted.bootstrap)) as link, pytest.raises(AnswerTooLarge, match="announced an answer"):
        link.topics(["orders"])


def test_a_broker_without_a_version_that_is_known_is_an_error(port: Callable[[Answer], Scripted]) -> None:
    scripted = port(lambda _, correlation: versions(correlation, (metadata.API_KEY, 90, 99)))
    with BrokerLink(settings(scripted.bootstrap)) as link, pytest.raises(UnknownServerError, match="Metadata"):
        link.topics(["orders"])


def test_what_is_known_of_a_topic_is_asked_once_until_it_is_forgotten(port: Callable[[Answer], Scripted]) -> None:
    asked: list[int] = []

    def answer(api_key: int, correlation: bytes) -> bytes:
        asked.append(api_key)
        if api_key == api_versions.API_KEY:
            return versions(correlation, (metadata.API_KEY, 0, 12))
        part = metadata.MetadataResponsePartition(partition_index=0, leader_id=7, leader_epoch=3)
        found = metadata.Response(
            brokers=[metadata.MetadataResponseBroker(node_id=7, host="h", port=9)],
            topics=[metadata.MetadataResponseTopic(name="orders", topic_id=b"i" * 16, partitions=[part])],
        )
        return framed(correlation + b"\0" + metadata.encode_response(found, 12))

    scripted = port(answer)
    with BrokerLink(settings(scripted.bootstrap)) as link:
        assert link.leader("orders", 0) == ("h", 9)
        assert link.leader("orders", 0) == ("h", 9)
        assert link.topic_id("orders") == b"i" * 16
        assert asked.count(metadata.API_KEY) == 1
        link.forget()
        link.leader("orders", 0)
        assert asked.count(metadata.API_KEY) == 2
    assert scripted.connections == 1


def test_a_failure_that_may_pass_is_tried_again_and_another_is_not() -> None:
    link = BrokerLink(settings("127.0.0.1:1"))
    tries: list[int] = []

    def passes() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LeaderNotAvailable
        return "done"

    assert link.patiently("trying", passes) == "done"

    def refused() -> None:
        tries.append(1)
        raise TopicAuthorizationFailed

    tries.clear()
    with pytest.raises(TopicAuthorizationFailed):
        link.patiently("trying", refused)
    assert len(tries) == 1


def test_patience_ends_with_the_failure_and_what_was_tried() -> None:
    link = BrokerLink(settings("127.0.0.1:1", api_timeout_ms=50))
    with pytest.raises(LinkDown, match=r"looking at the topics: broker 127\.0\.0\.1:1"):
        link.patiently("looking at the topics", lambda: link.topics(["orders"]))


def test_room_for_answers_is_kept_and_never_taken_away_from_one_in_use() -> None:
    buffer = AnswerBuffer()
    first = buffer.room(4)
    first[:] = b"abcd"
    again = buffer.room(3)
    assert bytes(again) == b"abc"
    larger = buffer.room(100)
    assert len(larger) == 100
    assert bytes(first) == b"abcd"
