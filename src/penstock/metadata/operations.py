"""The operations of a metadata store's transaction, as values: planning needs no store."""

from dataclasses import dataclass

ANY_VERSION = -1
"""Of a node's version: do not compare."""

OPERATION_BYTES = 64
"""Allowed for each operation of a transaction beside its path and data."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node, which must not exist, below one that does. An ephemeral one goes when its session ends."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's data; its version goes up by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node that has no children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, provided that the node has this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


def size_of(operation: Operation) -> int:
    """Bytes that an operation counts toward the bound of a transaction."""
    data = len(operation.data) if isinstance(operation, Create | Set) else 0
    return OPERATION_BYTES + len(operation.path) + data
