"""ZooKeeper's requests as kazoo sends them: those of the metadata store, some of which kazoo does not have.

kazoo calls `serialize` in its thread right before it sends a request, and `deserialize` with the whole response, whose
first bytes are its header. A response of several results has one object for each: an error is one of ZooKeeper's codes.

Persistent recursive watches and reads of many nodes in one request exist since ZooKeeper 3.6.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

from penstock.metadata.nodes import Node
from penstock.metadata.operations import Check, Create, Delete, Operation, Set


class Code(IntEnum):
    """ZooKeeper's errors that mean something to a metadata store."""

    ROLLED_BACK = 0
    """An operation of a transaction that would have been done, had not a later one failed."""
    INCONSISTENT = -2
    """An operation of a transaction that follows the one that failed."""
    UNIMPLEMENTED = -6
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    INVALID_ACL = -114


class Permission(NamedTuple):
    """Who may do what with a node: one entry of its access control list."""

    permissions: int
    scheme: str
    identity: str


PERMIT_ALL = 31
OPEN = (Permission(PERMIT_ALL, "world", "anyone"),)
CREATOR_ONLY = (Permission(PERMIT_ALL, "auth", ""),)
"""All for those who authenticate as the creator did, nothing for others."""

INT = struct.Struct("!i")
HEADER = struct.Struct("!iqi")
"""Of a response: the request's number, the last transaction that the server has done, an error."""
MULTI_HEADER = struct.Struct("!i?i")
STAT = struct.Struct("!qqqqiiiqiiq")
STAT_BYTES = STAT.size

DELETE, GET_DATA, SET_DATA, GET_CHILDREN, SYNC = 2, 4, 5, 8, 9
CHECK, MULTI, CREATE_WITH_STAT, MULTI_READ, ADD_WATCH = 13, 14, 15, 22, 106
ERROR = -1
MULTI_END = MULTI_HEADER.pack(-1, True, -1)
EPHEMERAL = 1
RECURSIVE = 1
OPERATION_BYTES = 48
"""The most that an operation needs beside path, data and access control list."""


class Stat(NamedTuple):
    """What ZooKeeper knows of a node."""

    created: int
    modified: int
    created_ms: int
    modified_ms: int
    version: int
    children_version: int
    acl_version: int
    owner: int
    data_bytes: int
    children: int
    children_modified: int


class Found(NamedTuple):
    """A node that was read, and how many it has below it."""

    node: Node
    children: int


def position_of(response: bytes) -> int:
    """The last transaction that the server had done when it responded."""
    position: int = HEADER.unpack_from(response)[1]
    return position


def text(value: str) -> bytes:
    encoded = value.encode()
    return INT.pack(len(encoded)) + encoded


def data(value: bytes) -> bytes:
    return INT.pack(len(value)) + value


def read_data(response: bytes, at: int) -> tuple[bytes, int]:
    (length,) = INT.unpack_from(response, at)
    at += INT.size
    # Minus one is no data, which other clients than this one may have written.
    end = at + max(length, 0)
    return response[at:end], end


def read_names(response: bytes, at: int) -> tuple[list[str], int]:
    (count,) = INT.unpack_from(response, at)
    at += INT.size
    names: list[str] = []
    for _ in range(count):
        name, at = read_data(response, at)
        names.append(name.decode())
    return names, at


def read_stat(response: bytes, at: int) -> tuple[Stat, int]:
    return Stat._make(STAT.unpack_from(response, at)), at + STAT_BYTES


def read_found(response: bytes, at: int) -> tuple[Found, int]:
    content, at = read_data(response, at)
    stat, at = read_stat(response, at)
    return Found(Node(data=content, version=stat.version, owner=stat.owner, created=stat.created), stat.children), at


def acl_bytes(permissions: Sequence[Permission]) -> bytes:
    entries = (INT.pack(each.permissions) + text(each.scheme) + text(each.identity) for each in permissions)
    return INT.pack(len(permissions)) + b"".join(entries)


class Event(NamedTuple):
    """A node was created, changed or deleted."""

    path: str
    transaction: int
    """Its number; servers before 3.9 do not tell it, then it is -1."""


def read_event(response: bytes) -> Event:
    kind_and_state = HEADER.size
    length_at = kind_and_state + 2 * INT.size
    path, _ = read_data(response, length_at)
    return Event(path.decode(), position_of(response))


class Done(NamedTuple):
    """A response without results."""

    position: int


@dataclass(slots=True, eq=False)
class Watch:
    """Report every change of a node and of all below it, until the connection ends."""

    type: ClassVar[int] = ADD_WATCH
    path: str

    def serialize(self) -> bytes:
        return text(self.path) + INT.pack(RECURSIVE)

    def deserialize(self, response: bytes, _at: int) -> Done:
        return Done(position_of(response))


@dataclass(slots=True, eq=False)
class Sync:
    """Have the server catch up with its leader."""

    type: ClassVar[int] = SYNC
    path: str

    def serialize(self) -> bytes:
        return text(self.path)

    def deserialize(self, response: bytes, _at: int) -> Done:
        return Done(position_of(response))


class Nodes(NamedTuple):
    """Nodes in the order in which they were asked for; an error is a code."""

    position: int
    nodes: list[Found | int]


@dataclass(slots=True, eq=False)
class ReadNodes:
    """Read several nodes as of one transaction."""

    type: ClassVar[int] = MULTI_READ
    paths: Sequence[str]

    def serialize(self) -> bytes:
        head = MULTI_HEADER.pack(GET_DATA, False, -1)
        return b"".join(head + text(path) + b"\0" for path in self.paths) + MULTI_END

    def deserialize(self, response: bytes, at: int) -> Nodes:
        nodes: list[Found | int] = []
        for _ in self.paths:
            kind, _, _ = MULTI_HEADER.unpack_from(response, at)
            at += MULTI_HEADER.size
            if kind == ERROR:
                nodes.append(INT.unpack_from(response, at)[0])
                at += INT.size
            else:
                found, at = read_found(response, at)
                nodes.append(found)
        return Nodes(position_of(response), nodes)


class Names(NamedTuple):
    """The names directly below several nodes; an error is a code."""

    position: int
    names: list[list[str] | int]


@dataclass(slots=True, eq=False)
class ReadChildren:
    """Read which nodes are directly below several others."""

    type: ClassVar[int] = MULTI_READ
    paths: Sequence[str]

    def serialize(self) -> bytes:
        head = MULTI_HEADER.pack(GET_CHILDREN, False, -1)
        return b"".join(head + text(path) + b"\0" for path in self.paths) + MULTI_END

    def deserialize(self, response: bytes, at: int) -> Names:
        names: list[list[str] | int] = []
        for _ in self.paths:
            kind, _, _ = MULTI_HEADER.unpack_from(response, at)
            at += MULTI_HEADER.size
            if kind == ERROR:
                names.append(INT.unpack_from(response, at)[0])
                at += INT.size
            else:
                found, at = read_names(response, at)
                names.append(found)
        return Names(position_of(response), names)


class Outcome(NamedTuple):
    """What became of a transaction: its number, or the operation that failed and with which code."""

    number: int
    failed: int | None = None
    code: int = 0


@dataclass(slots=True, eq=False)
class Transaction:
    """Do all operations or none. `sent` says whether the server may have got it."""

    type: ClassVar[int] = MULTI
    operations: Sequence[Operation]
    root: str
    acl: bytes
    sent: bool = False

    def serialize(self) -> bytes:
        self.sent = True
        return b"".join(map(self._packed, self.operations)) + MULTI_END

    def _packed(self, operation: Operation) -> bytes:
        path = text(self.root + operation.path)
        match operation:
            case Create():
                flags = INT.pack(EPHEMERAL if operation.ephemeral else 0)
                return MULTI_HEADER.pack(CREATE_WITH_STAT, False, -1) + path + data(operation.data) + self.acl + flags
            case Set():
                rest = data(operation.data) + INT.pack(operation.version)
                return MULTI_HEADER.pack(SET_DATA, False, -1) + path + rest
            case Delete():
                return MULTI_HEADER.pack(DELETE, False, -1) + path + INT.pack(operation.version)
            case Check():
                return MULTI_HEADER.pack(CHECK, False, -1) + path + INT.pack(operation.version)

    def deserialize(self, response: bytes, at: int) -> Outcome:
        number = position_of(response)
        for index in range(len(self.operations)):
            kind, _, _ = MULTI_HEADER.unpack_from(response, at)
            at += MULTI_HEADER.size
            if kind == ERROR:
                code: int = INT.unpack_from(response, at)[0]
                at += INT.size
                if code not in (Code.ROLLED_BACK, Code.INCONSISTENT):
                    return Outcome(number, index, code)
            elif kind == CREATE_WITH_STAT:
                _, at = read_data(response, at)
                stat, at = read_stat(response, at)
                number = stat.created
            elif kind == SET_DATA:
                stat, at = read_stat(response, at)
                number = stat.modified
        return Outcome(number)


Request = Watch | Sync | ReadNodes | ReadChildren | Transaction
