"""What a metadata store holds and reports, as values: following it needs no store."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One fact. `version` counts its changes, `created` is the number of the transaction that made it, and `owner`
    the session whose end removes it, or 0."""

    data: bytes
    version: int
    owner: int
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A node after a transaction; `data` is None when it is gone. `created` numbers the transaction that made it."""

    path: str
    data: bytes | None
    version: int = 0
    created: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A node and everything below it as of transaction `number`, parents first."""

    number: int
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """One or several transactions as a watcher gets them: `changes` bring what it knows to transaction `number`.

    Where a node changed several times, only its last state is here.
    """

    number: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes were missed: the watcher reads the tree again."""
