"""A cluster's metadata as a file: a line per node, between one that says what it is and one that proves it whole.

An import raises what must never be used twice. After a restore from a backup, logs may have later leader epochs than
the metadata, and clients later partition epochs and producer ids: what was assigned since the backup must not be
assigned again. How much was assigned is not known, so epochs go up by `EPOCH_RAISE` and by one for each minute since
the export: a backup that is restored twice goes further the second time.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.metadata.nodes import Node
from penstock.metadata.records import (
    ADMISSIONS,
    CHANGES,
    CLUSTER,
    CONTROLLER_EPOCH,
    FEATURES,
    IMPORT,
    PARTITIONS,
    PRODUCER_IDS,
    STORE,
    Admission,
    RecordTooNew,
    StoreIdentity,
    chunk_of,
    last_name,
    pack_admission,
    pack_partitions,
    pack_store,
    unpack_admission,
    unpack_features,
    unpack_partitions,
)
from penstock.model.cluster_versions import FIRST, SUPPORTED
from penstock.model.ids import NO_BROKER_EPOCH, BrokerId, LeaderEpoch, PartitionEpoch

KIND = "penstock metadata"
FORMAT = 1
EPOCH_RAISE = 1_000
MINUTE_MS = 60_000
PRODUCER_ID_RAISE = 1_000_000_000
"""Of 2**63."""

EPOCH_MAX = 2**31 - 1

NOT_OURS = "/zookeeper"
"""ZooKeeper's own nodes, where a cluster has no path of its own there."""


class ExportDamaged(Exception):
    """The file is not a whole export of metadata that this version can read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The metadata of a cluster at one time, without what belongs to sessions."""

    cluster_id: str
    exported_ms: int
    number: int
    """The last transaction of the store that it was exported from."""
    nodes: Mapping[str, bytes]
    """Data by path, parents first."""


def is_kept(path: str, node: Node) -> bool:
    """Whether a node is part of an export: registrations and the controller's claim end with their sessions."""
    return node.owner == 0 and path != IMPORT and path != NOT_OURS and not path.startswith(f"{NOT_OURS}/")


# The file


def encode(export: Export) -> bytes:
    """The text of the file."""
    head = {
        "kind": KIND,
        "v": FORMAT,
        "cluster_id": export.cluster_id,
        "exported_ms": export.exported_ms,
        "number": export.number,
        "nodes": len(export.nodes),
    }
    body = "".join(f"{json.dumps(each)}\n" for each in (head, *_packed(export.nodes))).encode()
    return body + json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"


def _packed(nodes: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    for path, data in nodes.items():
        try:
            yield {"path": path, "data": data.decode()}
        except UnicodeDecodeError:
            yield {"path": path, "base64": b64encode(data).decode()}


def decode(text: bytes) -> Export:
    """An export from the text of its file; raises `ExportDamaged`."""
    body, _, last = text.rstrip(b"\n").rpartition(b"\n")
    try:
        head, *rows = [json.loads(line) for line in body.splitlines()]
        if head["kind"] != KIND:
            raise ExportDamaged("it is no export of metadata")
        if head["v"] > FORMAT:
            raise ExportDamaged(f"its format is {head['v']}, of a later version of penstock")
        proof = json.loads(last)["sha256"]
        nodes = dict(_unpacked(rows))
        found = Export(
            cluster_id=head["cluster_id"], exported_ms=head["exported_ms"], number=head["number"], nodes=nodes
        )
        count = head["nodes"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExportDamaged(f"it is cut short, or no export of metadata: {type(error).__name__}: {error}") from None
    if proof != hashlib.sha256(body + b"\n").hexdigest() or count != len(nodes):
        raise ExportDamaged("it was changed or cut short: its checksum does not fit")
    if CLUSTER not in nodes:
        raise ExportDamaged("it has no cluster")
    return found


def _unpacked(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bytes]]:
    for row in rows:
        yield row["path"], row["data"].encode() if "data" in row else b64decode(row["base64"], validate=True)


# Raising


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """By how much an import raises epochs and producer ids."""

    epochs: int
    producer_ids: int = PRODUCER_ID_RAISE


def raise_of(export: Export, now_ms: int, least: int = EPOCH_RAISE) -> Raise:
    """What an import now raises: see above."""
    return Raise(epochs=least + max(0, now_ms - export.exported_ms) // MINUTE_MS)


def raised(export: Export, by: Raise, store_id: str) -> dict[str, bytes]:
    """The nodes to import: nothing that was assigned since the export is assigned again.

    The store has an id of its own, so that brokers do not compare its numbers with those of their former store. Raises
    `ExportDamaged` for a cluster whose version this one does not support.
    """
    try:
        features = export.nodes.get(FEATURES)
        level = FIRST if features is None else unpack_features(features, 0).level
        if level not in SUPPORTED:
            # What it does not know, it would leave out.
            raise ExportDamaged(f"its cluster has version {level}, and this version of penstock supports {SUPPORTED}")
        found = {path: _raised(path, data, by, level) for path, data in export.nodes.items()}
    except RecordTooNew as error:
        raise ExportDamaged(str(error)) from None
    return {**found, STORE: pack_store(StoreIdentity(store_id=store_id, imported=True), level)}


def _raised(path: str, data: bytes, by: Raise, level: int) -> bytes:
    parent = path.rpartition("/")[0]
    if parent == PARTITIONS:
        chunk = chunk_of(path)[1]
        return pack_partitions(
            [
                replace(
                    state,
                    leader_epoch=LeaderEpoch(_bounded(path, state.leader_epoch + by.epochs)),
                    partition_epoch=PartitionEpoch(_bounded(path, state.partition_epoch + by.epochs)),
                )
                for state in unpack_partitions(data, chunk)
            ],
            level,
        )
    if parent == ADMISSIONS:
        known = unpack_admission(BrokerId(int(last_name(path))), data, 0)
        return pack_admission(
            Admission(
                broker_id=known.broker_id,
                epoch=NO_BROKER_EPOCH,
                directories=known.directories,
                imported_epoch=known.last_epoch,
                versions=known.versions,
            )
        )
    if path == CONTROLLER_EPOCH:
        return b"%d" % _bounded(path, int(data) + by.epochs)
    if path == PRODUCER_IDS:
        return b"%d" % (int(data) + by.producer_ids)
    return b"" if path == CHANGES else data


def _bounded(path: str, epoch: int) -> int:
    if epoch > EPOCH_MAX:
        raise ExportDamaged(f"an epoch of {path} would be {epoch}, which clients cannot represent")
    return epoch
