"""Export and import of metadata: what is raised, what is refused, and imports that are interrupted at any moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.metadata.virtual_time import SeededRandomness, run_virtual

from penstock.controller.brokers import is_unsafe
from penstock.controller.membership import bootstrap_cluster
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.export_file import (
    EPOCH_RAISE,
    Export,
    ExportDamaged,
    Raise,
    decode,
    encode,
    raise_of,
    raised,
)
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Create, Operation
from penstock.metadata.records import (
    CLUSTER,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    FORMAT_MAX,
    IMPORT,
    IMPORT_COMPLETE,
    IMPORT_INCOMPLETE,
    PRODUCER_IDS,
    Admission,
    BrokerState,
    Features,
    StoreIdentity,
    admission_path,
    broker_path,
    chunk_path,
    pack,
    pack_admission,
    pack_broker,
    pack_features,
    pack_partitions,
    pack_store,
    pack_topic,
    topic_path,
    unpack_admission,
    unpack_partitions,
    unpack_store,
)
from penstock.metadata.store import MetadataStore, StoreUnavailable
from penstock.metadata.transfer import TransferRefused, export_from, import_into
from penstock.model.cluster_versions import SUPPORTED
from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from penstock.model.topic import PartitionState, TopicState
from penstock.storage.directories import StartRefused
from penstock.testing.sim.store import SimSource, SimStore

TOPIC_ID = TopicId(bytes(range(16)))
BROKER = BrokerId(1)
MINUTE_MS = 60_000
COMPLETE = {IMPORT: IMPORT_COMPLETE}


def state(index: int) -> PartitionState:
    return PartitionState(
        index=index,
        leader=BROKER,
        leader_epoch=LeaderEpoch(7),
        replicas=(BROKER,),
        isr=(BROKER,),
        partition_epoch=PartitionEpoch(9),
    )


async def fill(store: MetadataStore) -> None:
    """A cluster with a topic of 300 partitions, and a broker that is up."""
    await bootstrap_cluster(store, lambda: "the-cluster", lambda: "the-store")
    states = tuple(state(index) for index in range(300))
    topic = TopicState(name="t", topic_id=TOPIC_ID, configs={"retention.ms": "1"}, partitions=states, version=0)
    chunks = [pack_partitions(states[start : start + 128]) for start in range(0, 300, 128)]
    broker = BrokerState(broker_id=BROKER, endpoints=(), rack=None)
    await store.multi(
        [
            *(Create(chunk_path(TOPIC_ID, number), data) for number, data in enumerate(chunks)),
            Create(topic_path("t"), pack_topic(topic)),
            Create(broker_path(BROKER), pack_broker(broker), ephemeral=True),
            Create(CONTROLLER, b"{}", ephemeral=True),
            Create(
                admission_path(BROKER),
                pack_admission(Admission(broker_id=BROKER, epoch=BrokerEpoch(42), directories=("d",))),
            ),
        ]
    )


def an_export(directory: Path) -> Export:
    async def run() -> Export:
        store = await EmbeddedStore.open(directory)
        await fill(store)
        export, running = await export_from(store, now_ms=1_000)
        assert running == [1]
        await store.close()
        return export

    directory.mkdir()
    return asyncio.run(run())


def test_an_export_has_all_but_what_belongs_to_sessions(tmp_path: Path) -> None:
    export = an_export(tmp_path / "source")

    assert export.cluster_id == "the-cluster"
    assert {topic_path("t"), chunk_path(TOPIC_ID, 2), admission_path(BROKER), CLUSTER} <= set(export.nodes)
    assert not {broker_path(BROKER), CONTROLLER} & set(export.nodes)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    export = an_export(tmp_path / "source")
    odd = Export(
        cluster_id="c", exported_ms=1, number=2, nodes={CLUSTER: b"c", "/x": b"\xff\x00", "/y": "ü\n".encode()}
    )

    assert decode(encode(export)) == export
    assert decode(encode(odd)) == odd


@pytest.mark.parametrize("lost", [1, 2, 40, 200, 4_000])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, lost: int) -> None:
    text = encode(an_export(tmp_path / "source"))
    if lost == 1:
        # The last line end means nothing.
        decode(text[:-1])
        return
    with pytest.raises(ExportDamaged, match="cut short"):
        decode(text[:-lost])


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    text = encode(an_export(tmp_path / "source"))

    with pytest.raises(ExportDamaged, match="checksum"):
        decode(text.replace(b"retention.ms", b"retention.mz"))
    for nonsense in (b"", b"{}\n{}\n", b"[1]\n[2]\n", b'{"kind": "x", "v": 1}\n{"sha256": ""}\n', b"\xff\n\xff\n"):
        with pytest.raises(ExportDamaged):
            decode(nonsense)


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    head, rest = encode(an_export(tmp_path / "source")).split(b"\n", 1)

    with pytest.raises(ExportDamaged, match="later version"):
        decode(json.dumps({**json.loads(head), "v": 99}).encode() + b"\n" + rest)


def test_an_export_of_a_cluster_of_a_later_version_is_refused_before_anything_of_it_is_lost(tmp_path: Path) -> None:
    export = an_export(tmp_path / "source")
    later = pack_features(Features(level=SUPPORTED.highest + 1))
    with pytest.raises(ExportDamaged, match="supports 1 to"):
        raised(replace(export, nodes={**export.nodes, FEATURES: later}), Raise(epochs=1), "new")
    chunk = {"v": FORMAT_MAX + 1, "partitions": []}
    with pytest.raises(ExportDamaged, match="format"):
        raised(replace(export, nodes={**export.nodes, chunk_path(TOPIC_ID, 0): pack(chunk)}), Raise(epochs=1), "new")


def test_an_import_raises_all_that_must_not_be_assigned_twice(tmp_path: Path) -> None:
    export = an_export(tmp_path / "source")

    nodes = raised(export, Raise(epochs=100, producer_ids=1_000), "new")

    states = unpack_partitions(nodes[chunk_path(TOPIC_ID, 2)], 2)
    assert {(each.leader_epoch, each.partition_epoch) for each in states} == {(107, 109)}
    assert [each.index for each in states] == list(range(256, 300))
    assert nodes[CONTROLLER_EPOCH] == b"100"
    assert nodes[PRODUCER_IDS] == b"1000"
    assert unpack_store(nodes["/store"]) == StoreIdentity(store_id="new", imported=True)
    assert nodes[topic_path("t")] == export.nodes[topic_path("t")]


def test_an_imported_admission_admits_no_registration_and_still_knows_the_disk(tmp_path: Path) -> None:
    nodes = raised(an_export(tmp_path / "source"), Raise(epochs=1), "new")
    admission = unpack_admission(BROKER, nodes[admission_path(BROKER)], 0)
    assert admission.last_epoch == 42
    assert admission.directories == ("d",)

    image = MetadataImage()
    image.admissions[BROKER] = admission
    image.brokers[BROKER] = BrokerState(broker_id=BROKER, endpoints=(), rack=None, epoch=BrokerEpoch(42))
    assert not image.is_live(BROKER)
    for known, unsafe in ((42, False), (41, True), (-1, True)):
        broker = BrokerState(
            broker_id=BROKER, endpoints=(), rack=None, directories=("d",), admitted_before=BrokerEpoch(known)
        )
        assert is_unsafe(broker, admission) == unsafe


def test_a_second_import_of_a_file_raises_more_than_the_first(tmp_path: Path) -> None:
    export = an_export(tmp_path / "source")

    assert raise_of(export, export.exported_ms).epochs == EPOCH_RAISE
    assert raise_of(export, export.exported_ms + 90 * MINUTE_MS).epochs == EPOCH_RAISE + 90
    assert raise_of(export, now_ms=0).epochs == EPOCH_RAISE


def test_an_epoch_that_clients_cannot_represent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportDamaged, match="represent"):
        raised(an_export(tmp_path / "source"), Raise(epochs=2**31), "new")


def test_an_import_fills_an_empty_store_and_refuses_one_with_a_cluster(tmp_path: Path) -> None:
    nodes = raised(an_export(tmp_path / "source"), Raise(epochs=1), "new")

    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path)
        assert not await import_into(store, nodes)
        assert {path: node.data for path, node in (await store.tree("/")).nodes.items()} == nodes | COMPLETE
        with pytest.raises(TransferRefused, match="the-cluster"):
            await import_into(store, nodes)
        await bootstrap_cluster(store, lambda: "another")
        await store.close()

    asyncio.run(run())


def test_a_store_with_other_nodes_is_refused_and_zookeepers_own_do_not_count(tmp_path: Path) -> None:
    nodes = raised(an_export(tmp_path / "source"), Raise(epochs=1), "new")

    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path)
        await store.multi([Create("/zookeeper", b""), Create("/zookeeper/quota", b""), Create("/mine", b"")])
        with pytest.raises(TransferRefused, match="/mine"):
            await import_into(store, nodes)
        await store.close()
        (tmp_path / "other").mkdir()
        store = await EmbeddedStore.open(tmp_path / "other")
        await store.multi([Create("/zookeeper", b""), Create("/zookeeper/quota", b"")])
        await import_into(store, nodes)
        export, _ = await export_from(store, now_ms=0)
        assert dict(export.nodes) == nodes
        await store.close()

    asyncio.run(run())


def test_there_is_nothing_to_export_without_a_cluster(tmp_path: Path) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path)
        with pytest.raises(TransferRefused, match="no cluster"):
            await export_from(store, now_ms=0)
        await store.multi([Create(IMPORT, IMPORT_INCOMPLETE), Create(CLUSTER, b"c")])
        with pytest.raises(TransferRefused, match="not complete"):
            await export_from(store, now_ms=0)
        await store.close()

    asyncio.run(run())


class Killed(Exception):
    """The import's process ends here."""


class KilledStore:
    """Ends an import after so many transactions."""

    def __init__(self, store: EmbeddedStore, transactions: int) -> None:
        self._store = store
        self._left = transactions
        self.operations_max = 3

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[int]:
        if not self._left:
            raise Killed
        self._left -= 1
        return self._store.multi(operations)


def test_an_import_killed_at_any_transaction_keeps_brokers_out_and_can_be_repeated(tmp_path: Path) -> None:
    nodes = raised(an_export(tmp_path / "source"), Raise(epochs=1), "new")
    other = {**nodes, "/topics/other": b"{}", "/store": b"newer"}

    async def run(transactions: int) -> bool:
        directory = tmp_path / str(transactions)
        directory.mkdir()
        store = await EmbeddedStore.open(directory)
        killed: Any = KilledStore(store, transactions)
        try:
            await import_into(killed, nodes)
        except Killed:
            if transactions:
                with pytest.raises(StartRefused, match="not complete"):
                    await bootstrap_cluster(store, lambda: "wrong")
            # Also with another file.
            assert await import_into(store, other) == bool(transactions)
            assert {path: node.data for path, node in (await store.tree("/")).nodes.items()} == other | COMPLETE
            return False
        finally:
            await store.close()
        return True

    for transactions in range(100):
        if asyncio.run(run(transactions)):
            assert transactions > 5
            return
    raise AssertionError("it never completed")


@pytest.mark.parametrize("seed", range(20))
def test_an_import_survives_transactions_of_unknown_outcome(tmp_path: Path, seed: int) -> None:
    nodes = raised(an_export(tmp_path / "source"), Raise(epochs=1), "new")

    async def run() -> None:
        server = SimStore(SeededRandomness(seed), operations_max=4)
        server.faults.unknown_percent = 40
        server.faults.lag_percent = 20
        store = await SimSource(server).open()
        while True:
            try:
                await import_into(store, nodes)
                break
            except StoreUnavailable:
                await asyncio.sleep(1)
            except TransferRefused:
                # The last transaction was done after its outcome was unknown.
                assert CLUSTER in server.nodes
                break
        await asyncio.sleep(60)
        assert {path: node.data for path, node in server.nodes.items()} == nodes | COMPLETE
        await store.close()

    run_virtual(run())


@pytest.mark.parametrize(
    ("data", "store"),
    [(b"abc", StoreIdentity(store_id="abc")), (b"abc.imported", StoreIdentity(store_id="abc", imported=True))],
)
def test_the_identity_of_a_store_of_the_first_format_is_read(data: bytes, store: StoreIdentity) -> None:
    assert unpack_store(data) == store
    assert unpack_store(pack_store(store)) == store
