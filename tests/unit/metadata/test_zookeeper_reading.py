"""How nodes are read from ZooKeeper as of one transaction, by what its responses and events say in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.metadata.nodes import Node
from penstock.metadata.zookeeper import NODES_PER_REQUEST, REQUESTS_IN_FLIGHT_MAX, Reading
from penstock.metadata.zookeeper_client import Failed
from penstock.metadata.zookeeper_requests import Code, Found, Names, Nodes, ReadChildren, ReadNodes, Request


def node(data: bytes) -> Node:
    return Node(data=data, version=0, owner=0, created=1)


class Server:
    """Answers requests from a dictionary when it is told to, in their order."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.nodes = nodes
        self.requests: list[tuple[Request, Callable[[Any], None]]] = []
        self.results: list[dict[str, Node | None]] = []
        self.failures: list[Failed] = []

    def ask(self, request: Request, respond: Callable[[Any], None]) -> None:
        self.requests.append((request, respond))

    def reading(self, *, deep: bool = False) -> Reading:
        return Reading(self.ask, root="/r", done=self.results.append, failed=self.failures.append, deep=deep)

    def below(self, path: str) -> list[str]:
        return [each.rpartition("/")[2] for each in self.nodes if each.rpartition("/")[0] == path]

    def respond(self) -> None:
        request, respond = self.requests.pop(0)
        match request:
            case ReadNodes():
                paths = [path.removeprefix("/r") for path in request.paths]
                respond(Nodes(0, [self.found(path) for path in paths]))
            case ReadChildren():
                respond(Names(0, [self.below(path.removeprefix("/r")) for path in request.paths]))
            case _:
                raise AssertionError(request)

    def found(self, path: str) -> Found | int:
        if path not in self.nodes:
            return int(Code.NO_NODE)
        return Found(node(self.nodes[path]), len(self.below(path)))

    def respond_to_all(self) -> None:
        while self.requests:
            self.respond()


def test_nodes_that_nothing_changed_meanwhile_are_read_once() -> None:
    server = Server({"/a": b"1"})
    reading = server.reading()
    reading.want(["/a", "/gone"])
    reading.go_on()
    server.respond_to_all()
    assert server.results == [{"/a": node(b"1"), "/gone": None}]


def test_an_event_before_a_nodes_response_is_in_the_response() -> None:
    server = Server({"/a": b"1"})
    reading = server.reading()
    reading.want(["/a"])
    reading.go_on()
    server.nodes["/a"] = b"2"
    reading.want(["/a"])
    server.respond()
    assert server.results == [{"/a": node(b"2")}]


def test_a_node_that_changed_with_another_is_read_too_before_anything_is_reported() -> None:
    server = Server({"/a": b"1", "/b": b"1"})
    reading = server.reading()
    reading.want(["/a"])
    reading.go_on()
    server.nodes |= {"/a": b"2", "/b": b"2"}
    reading.want(["/a", "/b"])
    server.respond()
    assert server.results == []
    server.respond()
    assert server.results == [{"/a": node(b"2"), "/b": node(b"2")}]


def test_a_node_that_changed_after_its_response_is_read_again() -> None:
    names = [f"/{n:03}" for n in range(NODES_PER_REQUEST + 1)]
    server = Server(dict.fromkeys(names, b"1"))
    reading = server.reading()
    reading.want(names)
    reading.go_on()
    server.respond()
    server.nodes |= {names[0]: b"2", names[-1]: b"2"}
    reading.want([names[0], names[-1]])
    server.respond_to_all()
    (result,) = server.results
    assert result[names[0]] == result[names[-1]] == node(b"2")


def test_few_requests_are_in_flight_at_once() -> None:
    server = Server({})
    reading = server.reading()
    reading.want([f"/{n}" for n in range(20 * NODES_PER_REQUEST)])
    reading.go_on()
    sent = 0
    while server.requests:
        assert len(server.requests) <= REQUESTS_IN_FLIGHT_MAX
        sent += 1
        server.respond()
    assert sent == 20


def test_a_tree_has_nodes_that_appeared_below_a_list_already_read() -> None:
    server = Server({"/t": b"", "/t/a": b"1"})
    reading = server.reading(deep=True)
    reading.want(["/t"])
    reading.go_on()
    server.respond()
    server.respond()
    server.nodes |= {"/t/b": b"2", "/t/b/c": b"3"}
    reading.want(["/t/b", "/t/b/c"])
    server.respond_to_all()
    assert server.results == [
        {"/t": node(b""), "/t/a": node(b"1"), "/t/b": node(b"2"), "/t/b/c": node(b"3")},
    ]


def test_a_tree_lacks_nodes_that_went_after_they_were_read() -> None:
    server = Server({"/t": b"", "/t/a": b"1", "/t/b": b"2"})
    reading = server.reading(deep=True)
    reading.want(["/t"])
    reading.go_on()
    server.respond()
    server.respond()
    del server.nodes["/t/a"]
    reading.want(["/t/a"])
    server.respond_to_all()
    assert server.results == [{"/t": node(b""), "/t/a": None, "/t/b": node(b"2")}]


@pytest.mark.parametrize("code", [int(Code.NO_AUTH), -4])
def test_a_failure_is_reported_once(code: int) -> None:
    server = Server({})
    reading = server.reading()
    reading.want([f"/{n}" for n in range(3 * NODES_PER_REQUEST)])
    reading.go_on()
    for _, respond in server.requests:
        respond(Failed("broken", code))
    assert [failed.code for failed in server.failures] == [code]
    assert server.results == []
