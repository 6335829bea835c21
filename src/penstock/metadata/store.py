"""The metadata store: a small tree of versioned nodes that the whole cluster agrees on.

It is shaped after ZooKeeper, so that a cluster can keep its metadata there and a single broker in a file of its own.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.metadata.image import Change
from penstock.metadata.operations import Operation
from penstock.model.generated_errors import KafkaStorageError

NODE_BYTES_MAX = 16 * 1024 * 1024
"""The largest node: a topic with every partition's state. One of 100,000 partitions is a quarter of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One fact. `version` counts its changes, `created` numbers the transaction that made it, `owner` the session
    whose end removes it; 0 is nobody's."""

    data: bytes
    version: int
    owner: int
    created: int


class StoreFault(Exception):
    """A transaction that could not be done as a whole; none of it was. `index` says which operation it was."""

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(path)
        self.path = path
        self.index = index


class NoNode(StoreFault):
    """The node, or the parent of one to be made, is not there."""


class NodeExists(StoreFault):
    """The node to be made is there already."""


class BadVersion(StoreFault):
    """Somebody changed the node since it was read."""


class NotEmpty(StoreFault):
    """The node to be removed has children."""


class StoreUnavailable(KafkaStorageError):
    """The store cannot take a change now: its disk is full or failing, or it is closed."""


WatchCallback = Callable[[Sequence[Change]], None]


class MetadataStore(Protocol):
    """Compare-and-set, transactions, watches, and nodes that go with their owner.

    Every promise here is checked by one set of tests, whatever keeps the nodes.
    """

    @property
    def session(self) -> int:
        """The number that owns this store's ephemeral nodes; never that of an earlier session."""
        ...

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """The names right below a node, sorted; raises `NoNode` where it is not there."""
        ...

    async def tree(self, path: str) -> Mapping[str, Node]:
        """A node and everything below it, parents first: one round for a start with ten thousand topics."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Awaitable[int]:
        """Do all of it or nothing; the transaction's number, greater than all before.

        It is on disk, and watchers have been told, before this returns. Raises a `StoreFault`.
        """
        ...

    def watch(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        """Call back on the event loop for every transaction that changes the node or anything below it.

        Called once per transaction, in their order, with the node's new contents; for ever, until what is returned
        here is called.
        """
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes are removed."""
        ...


class StoreSource(Protocol):
    """Where a broker finds its metadata store when it starts. As a string, it says where that is, for messages."""

    def exists(self) -> bool:
        """Whether there is metadata already; nothing is made by asking."""
        ...

    async def open(self) -> MetadataStore: ...
