"""Cycles in a graph of numbered operations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set

Graph = Mapping[int, Set[int]]


def cycles(graph: Graph) -> Iterator[list[int]]:
    """The shortest cycle through one operation of each strongly connected component."""
    for knot in components(graph):
        if len(knot) > 1:
            yield circle(graph, min(knot), frozenset(knot))


def circle(graph: Graph, start: int, inside: frozenset[int]) -> list[int]:
    """The shortest path from an operation back to itself within its component."""
    before: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for following in sorted(graph.get(node, frozenset()) & inside):
            if following == start:
                way = [node]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return way[::-1]
            if following not in before:
                before[following] = node
                waiting.append(following)
    raise AssertionError(f"{start} is in a component without a cycle")


def components(graph: Graph) -> Iterator[list[int]]:
    """Strongly connected operations, by Tarjan's algorithm without recursion: histories are longer than stacks."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in graph:
        if root in order:
            continue
        path: list[tuple[int, Iterator[int]]] = []
        _enter(root, graph, order, low, stack, on_stack, path)
        while path:
            node, edges = path[-1]
            following = next(edges, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    yield _popped(stack, on_stack, node)
            elif following not in order:
                _enter(following, graph, order, low, stack, on_stack, path)
            elif following in on_stack:
                low[node] = min(low[node], order[following])


def _enter(
    node: int,
    graph: Graph,
    order: dict[int, int],
    low: dict[int, int],
    stack: list[int],
    on_stack: set[int],
    path: list[tuple[int, Iterator[int]]],
) -> None:
    order[node] = low[node] = len(order)
    stack.append(node)
    on_stack.add(node)
    path.append((node, iter(graph.get(node, frozenset()))))


def _popped(stack: list[int], on_stack: set[int], until: int) -> list[int]:
    knot: list[int] = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        knot.append(node)
        if node == until:
            return knot
