"""The nodes of a metadata store in memory: transactions, and trees as they were some transactions ago."""

from collections import Counter, deque
from collections.abc import Sequence

from penstock.metadata.nodes import Change, Changes, Node, Snapshot
from penstock.metadata.operations import ANY_VERSION, Check, Create, Delete, Operation, Set
from penstock.metadata.store import BadVersion, NodeExists, NoNode, NotEmpty, StoreFault

HISTORY_MAX = 1_000
"""Transactions that a lagging copy may be behind."""


class NodeTree:
    """Versioned nodes of any number of sessions. It reports nothing and forgets no session by itself."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.number = 0
        """Of the last transaction."""
        self._children: Counter[str] = Counter()
        self._history: deque[tuple[int, dict[str, Node | None]]] = deque(maxlen=HISTORY_MAX)
        """What each of the last transactions replaced."""

    def owned(self, session: int) -> list[str]:
        """The paths that go with a session."""
        return [path for path, node in self.nodes.items() if node.owner == session]

    def commit(self, session: int, operations: Sequence[Operation]) -> Changes | StoreFault | None:
        """Do a transaction: what changed, or None where nothing did, or why none of it was done."""
        draft: dict[str, Node | None] = {}
        children: Counter[str] = Counter()
        for index, operation in enumerate(operations):
            fault = self._do(draft, children, operation, session, index)
            if fault is not None:
                return fault
        changed = {path: node for path, node in draft.items() if node is not self.nodes.get(path)}
        if not changed:
            return None
        self.number += 1
        self._history.append((self.number, {path: self.nodes.get(path) for path in changed}))
        self._children.update(children)
        for path, node in changed.items():
            if node is None:
                del self.nodes[path]
            else:
                self.nodes[path] = node
        return Changes(number=self.number, changes=tuple(change_of(path, node) for path, node in changed.items()))

    def _do(
        self, draft: dict[str, Node | None], children: Counter[str], operation: Operation, session: int, index: int
    ) -> StoreFault | None:
        path = operation.path
        parent = path.rpartition("/")[0]
        node = draft[path] if path in draft else self.nodes.get(path)
        if isinstance(operation, Create):
            if node is not None:
                return NodeExists(path, index)
            above = draft[parent] if parent in draft else self.nodes.get(parent)
            if parent and (above is None or above.owner):
                return NoNode(parent, index)
            owner = session if operation.ephemeral else 0
            draft[path] = Node(data=operation.data, version=0, owner=owner, created=self.number + 1)
            children[parent] += 1
            return None
        if node is None:
            return NoNode(path, index)
        if operation.version not in (ANY_VERSION, node.version):
            return BadVersion(path, index)
        match operation:
            case Set():
                draft[path] = Node(
                    data=operation.data, version=node.version + 1, owner=node.owner, created=node.created
                )
            case Delete():
                if self._children[path] + children[path]:
                    return NotEmpty(path, index)
                draft[path] = None
                children[parent] -= 1
            case Check():
                pass
        return None

    # Reads

    def oldest(self) -> int:
        """The transaction that a copy may be as far behind as."""
        return self._history[0][0] - 1 if self._history else self.number

    def get(self, path: str, position: int) -> Node | None:
        before = self._undone(position)
        return before[path] if path in before else self.nodes.get(path)

    def tree(self, path: str, position: int) -> Snapshot:
        """A tree as it was after transaction `position`."""
        before = self._undone(position)
        prefix = path.rstrip("/") + "/"
        found = {
            each: node
            for each, node in (self.nodes | before).items()
            if node is not None and (each == path or each.startswith(prefix))
        }
        return Snapshot(number=position, nodes=dict(sorted(found.items())))

    def _undone(self, position: int) -> dict[str, Node | None]:
        before: dict[str, Node | None] = {}
        for number, replaced in reversed(self._history):
            if number <= position:
                break
            before |= replaced
        return before


def change_of(path: str, node: Node | None) -> Change:
    if node is None:
        return Change(path=path, data=None)
    return Change(path=path, data=node.data, version=node.version, created=node.created)
