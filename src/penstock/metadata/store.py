"""The metadata store: a small tree of versioned nodes that the whole cluster agrees on.

It is shaped after ZooKeeper, so that a cluster can keep its metadata there and a single broker in a file of its own.
What is promised here is the least that any store gives; the simulated one in `penstock.testing.sim` gives no more.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Protocol

from penstock.metadata.nodes import Changes, Gap, Node, Snapshot
from penstock.metadata.operations import Create, Operation, Set, size_of
from penstock.model.generated_errors import KafkaStorageError

NODE_BYTES_MAX = 512 * 1024
"""The largest node. ZooKeeper's limit is 1 MiB for a whole transaction."""


class SessionEvent(Enum):
    """What happened to the session that owns this broker's ephemeral nodes."""

    SUSPENDED = "suspended"
    """The store cannot be reached; the session may or may not be alive there."""
    RESUMED = "resumed"
    """The same session goes on."""
    LOST = "lost"
    """The session is over, and its ephemeral nodes are gone."""
    RENEWED = "renewed"
    """A new session has begun; `session` is its number."""


class StoreFault(Exception):
    """A transaction that could not be done as a whole; none of it was. `index` is that of the failed operation."""

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(path)
        self.path = path
        self.index = index


class NoNode(StoreFault):
    """The node, or the parent of one to be created, does not exist."""


class NodeExists(StoreFault):
    """The node to be created exists already."""


class BadVersion(StoreFault):
    """The node has another version than the transaction expects."""


class NotEmpty(StoreFault):
    """The node to be deleted has children."""


class StoreUnavailable(KafkaStorageError):
    """The store cannot be used now: its disk is full or failing, it cannot be reached, or it is closed.

    A transaction that fails with this was not done and will not be.
    """


class StoreUnreachable(StoreUnavailable):
    """The connection to the store is broken: waiting may help, also for a broker that starts."""


class OutcomeUnknown(Exception):
    """The transaction was done, or will be done later, or never: read back and decide."""


WatchCallback = Callable[[Changes | Gap], None]
SessionCallback = Callable[[SessionEvent], None]


class MetadataStore(Protocol):
    """Compare-and-set, transactions, watches, and nodes that go with the session that owns them.

    One set of tests checks every promise, on every store.
    """

    @property
    def session(self) -> int:
        """The number that owns this store's ephemeral nodes; never that of an earlier session."""
        ...

    @property
    def operations_max(self) -> int:
        """Operations of one transaction."""
        ...

    @property
    def bytes_max(self) -> int:
        """Bytes of one transaction: paths, data, and `OPERATION_BYTES` for each operation."""
        ...

    async def get(self, path: str) -> Node | None:
        """A node; it may be behind what other sessions wrote, see `sync`."""
        ...

    async def children(self, path: str) -> list[str]:
        """The names directly below a node, sorted; raises `NoNode` where it does not exist."""
        ...

    async def tree(self, path: str) -> Snapshot:
        """A node and everything below it: one call for a start with ten thousand topics."""
        ...

    async def sync(self) -> None:
        """Reads after this see every write, of any session, that was done before it was called."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Awaitable[int]:
        """Do all of it or nothing; the transaction's number, greater than all before, once it is durable.

        Raises a `StoreFault` or `StoreUnavailable`, then it is not done; or `OutcomeUnknown`. This session's reads
        see it when this returns, but watchers may be called later. Transactions that change nothing are not counted:
        they return the number of the last one that did.
        """
        ...

    def watch(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        """Call back on the event loop for every change of the node or anything below it, until the returned function
        is called.

        Changes come in the order of their numbers, late, and several in one call. Where some were missed a `Gap` comes
        in their place, before any change that follows them.
        """
        ...

    def on_session(self, callback: SessionCallback) -> Callable[[], None]:
        """Call back on the event loop for every event of the session, until the returned function is called."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes are removed."""
        ...


class StoreSource(Protocol):
    """Where a broker finds its metadata store when it starts. As a string, it says where that is, for messages."""

    @property
    def exclusive(self) -> bool:
        """Whether one broker has the store to itself, so that no other broker can ever join its cluster."""
        ...

    def exists(self) -> bool:
        """Whether there is metadata already; nothing is made by asking."""
        ...

    async def open(self) -> MetadataStore: ...


def check_size(operations: Sequence[Operation], store: MetadataStore) -> None:
    """Assert that a transaction is within the bounds of its store: planners keep them, so more is a bug."""
    assert len(operations) <= store.operations_max, f"{len(operations)} operations"
    for operation in operations:
        if isinstance(operation, Create | Set):
            assert len(operation.data) <= NODE_BYTES_MAX, f"{operation.path}: {len(operation.data)} bytes"
    total = sum(map(size_of, operations))
    assert total <= store.bytes_max, f"{total} bytes in one transaction"
