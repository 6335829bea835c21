"""Moves a cluster's metadata from a store to a file and from a file into another store. Data directories stay as
they are.

An import can be interrupted and repeated. It begins with a node that says that it is incomplete, by which brokers
refuse to start, and its last transaction adds the cluster's id and says that it is complete. Every transaction in
between sets that node at the version it expects, so that one of unknown outcome, also of an import that was
interrupted, cannot be done after a later one. The node stays, so that a second one like it cannot come late.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.metadata.export_file import NOT_OURS, Export, is_kept
from penstock.metadata.nodes import Node
from penstock.metadata.operations import Create, Delete, Operation, Set, size_of
from penstock.metadata.records import (
    BROKERS,
    CLUSTER,
    IMPORT,
    IMPORT_COMPLETE,
    IMPORT_INCOMPLETE,
    TOPICS,
    last_name,
)
from penstock.metadata.store import BadVersion, MetadataStore, NodeExists, OutcomeUnknown, StoreUnavailable

ATTEMPTS_MAX = 20
"""Of one transaction whose outcome is unknown."""

ATTEMPT_PAUSE_S = 0.25
GUARD_BYTES = 512
"""Allowed for the operation that precedes those of every transaction."""


class TransferRefused(Exception):
    """Nothing was changed, or an import has to be repeated; the message says why, and `hint` what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


async def export_from(store: MetadataStore, *, now_ms: int) -> tuple[Export, list[int]]:
    """The metadata in a store, and the brokers that are registered there, whose later changes it does not have."""
    await store.sync()
    snapshot = await store.tree("/")
    nodes = snapshot.nodes
    if IMPORT in nodes and nodes[IMPORT].data == IMPORT_INCOMPLETE:
        raise TransferRefused("an import into this store is not complete", "repeat the import first")
    if CLUSTER not in nodes:
        raise TransferRefused("there is no cluster in this store", "name the store of a broker that has been started")
    kept = {path: node.data for path, node in sorted(nodes.items()) if is_kept(path, node)}
    running = sorted(int(last_name(path)) for path in nodes if path.startswith(f"{BROKERS}/"))
    cluster_id = nodes[CLUSTER].data.decode()
    return Export(cluster_id=cluster_id, exported_ms=now_ms, number=snapshot.number, nodes=kept), running


async def import_into(store: MetadataStore, nodes: Mapping[str, bytes]) -> bool:
    """Fill an empty store, or one with an incomplete import, which is started over; whether there was one."""
    there = await _found(store)
    cluster = there.get(CLUSTER)
    if cluster is not None:
        same = cluster == nodes[CLUSTER]
        raise TransferRefused(
            f"the store has {'this' if same else 'a'} cluster already: {cluster.decode(errors='replace')}",
            "an earlier import is complete, or brokers use the store: it is not changed"
            if same
            else "an import replaces nothing: name an empty store, or move the other one away",
        )
    interrupted = IMPORT in there
    if there and not interrupted:
        raise TransferRefused(
            f"the store is not empty: it has {', '.join(sorted(there)[:3])}", "name an empty store, such as a new path"
        )
    if interrupted:
        await _void(store)
        leftovers = sorted((path for path in await _found(store) if path != IMPORT), reverse=True)
        await _do_all(store, [Delete(path) for path in leftovers])
    else:
        await _begin(store)
    await _do_all(store, [Create(path, data) for path, data in sorted(nodes.items()) if path != CLUSTER])
    await _check(store, nodes)
    await _complete(store, nodes[CLUSTER])
    return interrupted


async def _found(store: MetadataStore) -> dict[str, bytes]:
    await store.sync()
    nodes = (await store.tree("/")).nodes
    return {path: node.data for path, node in nodes.items() if path != NOT_OURS and not path.startswith(f"{NOT_OURS}/")}


async def _check(store: MetadataStore, nodes: Mapping[str, bytes]) -> None:
    """Read back what was written."""
    found = await _found(store)
    found.pop(IMPORT, None)
    wanted = {path: data for path, data in nodes.items() if path != CLUSTER}
    if found != wanted:
        differ = sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
        raise TransferRefused(
            f"the store does not have what was written: {', '.join(differ[:3])} differ",
            "see that nothing else writes there, and repeat the import",
        )


async def _begin(store: MetadataStore) -> None:
    for _ in range(ATTEMPTS_MAX):
        with suppress(OutcomeUnknown, NodeExists):
            await store.multi([Create(IMPORT, IMPORT_INCOMPLETE)])
        await store.sync()
        if await store.get(IMPORT) is not None:
            return
        await asyncio.sleep(ATTEMPT_PAUSE_S)
    raise not_known()


async def _void(store: MetadataStore) -> None:
    """See that no transaction of the interrupted import is done from now on."""
    for _ in range(ATTEMPTS_MAX):
        await store.sync()
        guard = await _guard(store)
        with suppress(OutcomeUnknown, BadVersion):
            await store.multi([Set(IMPORT, guard.data, guard.version)])
            return
        await asyncio.sleep(ATTEMPT_PAUSE_S)
    raise not_known()


async def _do_all(store: MetadataStore, operations: Sequence[Operation]) -> None:
    for chunk in _chunks(store, operations):
        await _do(store, chunk)


def _chunks(store: MetadataStore, operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """As many operations at once as the store allows, beside the one that precedes them."""
    chunk: list[Operation] = []
    size = 0
    for operation in operations:
        more = size_of(operation)
        if chunk and (len(chunk) >= store.operations_max - 1 or size + more > store.bytes_max - GUARD_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(operation)
        size += more
    if chunk:
        yield chunk


async def _do(store: MetadataStore, operations: Sequence[Operation]) -> None:
    """Do a transaction once, also where its outcome is unknown at first."""
    await store.sync()
    guard = await _guard(store)
    unknown = False
    for _ in range(ATTEMPTS_MAX):
        try:
            await store.multi([Set(IMPORT, guard.data, guard.version), *operations])
        except OutcomeUnknown:
            unknown = True
            await asyncio.sleep(ATTEMPT_PAUSE_S)
            await store.sync()
            if (await _guard(store)).version > guard.version:
                return
        except BadVersion:
            if not unknown:
                raise TransferRefused("another import into this store is under way", "run one at a time") from None
            # The attempt before was done late.
            return
        else:
            return
    raise not_known()


async def _guard(store: MetadataStore) -> Node:
    node = await store.get(IMPORT)
    if node is None or node.data == IMPORT_COMPLETE:
        raise TransferRefused("another import has completed meanwhile", "run one import at a time")
    return node


async def _complete(store: MetadataStore, cluster_id: bytes) -> None:
    for _ in range(ATTEMPTS_MAX):
        guard = await _guard(store)
        try:
            await store.multi([Create(CLUSTER, cluster_id), Set(IMPORT, IMPORT_COMPLETE, guard.version)])
        except (OutcomeUnknown, NodeExists, BadVersion):
            await asyncio.sleep(ATTEMPT_PAUSE_S)
            await store.sync()
            if await store.get(CLUSTER) is not None:
                return
        else:
            return
    raise not_known()


def not_known() -> StoreUnavailable:
    return StoreUnavailable("the outcome of a transaction could not be found out: repeat the import")


def topics_in(export: Export) -> int:
    return sum(path.startswith(f"{TOPICS}/") for path in export.nodes)


def facts_of(export: Export) -> dict[str, Any]:
    """What a report says about an export."""
    return {"cluster_id": export.cluster_id, "nodes": len(export.nodes), "topics": topics_in(export)}
