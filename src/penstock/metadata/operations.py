"""What can be asked of the metadata store in one atomic step. Values: deciding needs no store."""

from dataclasses import dataclass

ANY_VERSION = -1
"""Of a node's version: do not compare."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; its parent is there and it is not. An ephemeral one goes when its maker's session ends."""

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
    """Remove a node that has no children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, provided that the node has this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
