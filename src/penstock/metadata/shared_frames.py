"""The messages between a shared metadata store and its sessions: lists in JSON, each behind its length.

A request is `[id, verb, ...]`. Its response has the same id: `[id, "ok", value]`, after any number of
`[id, "part", value]` where the value is a long list, or an error. Id 0 is for what was not asked for: changes, gaps.
JSON is quick enough: a node's data is text already, and travels as Latin-1 so that any byte may be in it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.metadata.nodes import Change, Changes, Node
from penstock.metadata.operations import Check, Create, Delete, Operation, Set
from penstock.metadata.store import (
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    OutcomeUnknown,
    StoreFault,
    StoreUnavailable,
)

PROTOCOL_VERSION = 1
"""Parent and children are of one installation; another version is a process that outlived an upgrade."""

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 8 * 1024 * 1024
"""A transaction of `BYTES_MAX` whose every byte needs six in JSON fits in."""

OPERATIONS_MAX = 4096
BYTES_MAX = 1024 * 1024
"""Of one transaction, as `MetadataStore` counts them."""

PART_BYTES = 512 * 1024
"""About so much of a long list is in one message."""

NOT_ASKED = 0
"""The id of messages that are no responses."""

Message = list[Any]

FAULTS: Mapping[str, type[StoreFault]] = {
    "no_node": NoNode,
    "node_exists": NodeExists,
    "bad_version": BadVersion,
    "not_empty": NotEmpty,
}
FAULT_NAMES: Mapping[type[StoreFault], str] = {fault: name for name, fault in FAULTS.items()}


class FrameRefused(Exception):
    """The other side sent what is no message: the connection cannot go on."""


def pack_frame(message: Message) -> bytes:
    """A message with its length before it."""
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    assert len(text) <= FRAME_BYTES_MAX, f"a message of {len(text)} bytes"
    return len(text).to_bytes(LENGTH_BYTES) + text


class FrameReader:
    """Cuts received bytes into messages."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; raises `FrameRefused`."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTH_BYTES:
            length = int.from_bytes(buffer[start : start + LENGTH_BYTES])
            if length > FRAME_BYTES_MAX:
                raise FrameRefused(f"a message of {length} bytes")
            end = start + LENGTH_BYTES + length
            if len(buffer) < end:
                break
            yield _unpack(bytes(buffer[start + LENGTH_BYTES : end]))
            start = end
        del buffer[:start]


def _unpack(text: bytes) -> Message:
    try:
        message = json.loads(text.decode(errors="surrogatepass"))
    except ValueError as error:
        raise FrameRefused(f"a message that is not JSON: {error}") from None
    match message:
        case [int(), str(), *_]:
            return list(message)
        case _:
            raise FrameRefused("a message without an id and a verb")


# Values in messages


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _data(text: str) -> bytes:
    return text.encode("latin-1")


def pack_node(node: Node | None) -> list[Any] | None:
    return None if node is None else [_text(node.data), node.version, node.owner, node.created]


def unpack_node(packed: list[Any] | None) -> Node | None:
    if packed is None:
        return None
    data, version, owner, created = packed
    return Node(data=_data(data), version=version, owner=owner, created=created)


def pack_nodes(nodes: Mapping[str, Node]) -> Iterator[tuple[list[Any], int]]:
    """Every node of a tree, and about how many bytes it needs."""
    for path, node in nodes.items():
        yield [path, pack_node(node)], len(path) + len(node.data)


def unpack_nodes(packed: Sequence[list[Any]]) -> dict[str, Node]:
    found = ((path, unpack_node(node)) for path, node in packed)
    return {path: node for path, node in found if node is not None}


def pack_changes(changes: Changes) -> Message:
    """The message that reports a transaction."""
    packed = [
        [change.path, None if change.data is None else _text(change.data), change.version, change.created]
        for change in changes.changes
    ]
    return [NOT_ASKED, "changes", changes.number, packed]


def unpack_changes(number: int, packed: Sequence[list[Any]]) -> Changes:
    changes = (
        Change(path=path, data=None if text is None else _data(text), version=version, created=created)
        for path, text, version, created in packed
    )
    return Changes(number=number, changes=tuple(changes))


def pack_operation(operation: Operation) -> list[Any]:
    match operation:
        case Create():
            return ["create", operation.path, _text(operation.data), operation.ephemeral]
        case Set():
            return ["set", operation.path, _text(operation.data), operation.version]
        case Delete():
            return ["delete", operation.path, operation.version]
        case Check():
            return ["check", operation.path, operation.version]


def unpack_operation(packed: list[Any]) -> Operation:
    match packed:
        case ["create", path, text, ephemeral]:
            return Create(path, _data(text), ephemeral)
        case ["set", path, text, version]:
            return Set(path, _data(text), version)
        case ["delete", path, version]:
            return Delete(path, version)
        case ["check", path, version]:
            return Check(path, version)
        case _:
            raise FrameRefused(f"no operation: {packed}")


def pack_error(request: int, error: BaseException) -> Message:
    """The response to a request that failed."""
    if isinstance(error, StoreFault):
        return [request, "fault", FAULT_NAMES[type(error)], error.path, error.index]
    return [request, "unknown" if isinstance(error, OutcomeUnknown) else "unavailable", str(error)]


def unpack_error(verb: str, rest: Sequence[Any]) -> Exception:
    match verb, rest:
        case "fault", [name, path, index]:
            return FAULTS[name](path, index)
        case "unknown", [words]:
            return OutcomeUnknown(words)
        case "unavailable", [words]:
            return StoreUnavailable(words)
        case _:
            raise FrameRefused(f"a response of unknown kind {verb}")
