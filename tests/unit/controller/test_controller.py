"""The controller over a real store: transactions, elections, producer ids, and listeners."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.broker import BrokerConfig
from penstock.controller import controller as controller_module
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step
from penstock.controller.controller import (
    CHANGES_AT_ONCE_MAX,
    PRODUCER_ID_BLOCK,
    Controller,
    in_time,
)
from penstock.controller.membership import bootstrap_cluster, elect_controller, register
from penstock.controller.producer_ids import ProducerIds
from penstock.controller.quotas import QuotaChange
from penstock.controller.topics import Growth, NewTopic
from penstock.metadata.catalog import Catalog
from penstock.metadata.embedded import FILE_NAME, EmbeddedStore
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.operations import Delete, Set
from penstock.metadata.records import (
    BROKER_CONFIGS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PRODUCER_IDS,
    BrokerEndpoint,
    BrokerState,
    broker_path,
    pack,
)
from penstock.model.clock import SystemRandomness
from penstock.model.generated_errors import CoordinatorLoadInProgress, NotController, TopicAlreadyExists
from penstock.model.ids import BrokerId
from penstock.model.threads import ThreadPool
from penstock.model.topic import TopicState
from penstock.storage.disk import RealDisk
from penstock.storage.producer_id_floor import ProducerIdFloor

BROKER = BrokerState(
    broker_id=1, endpoints=(BrokerEndpoint(listener="PLAINTEXT", host="localhost", port=9092),), rack=None
)


@dataclass
class Cluster:
    store: EmbeddedStore
    catalog: Catalog
    live: LiveConfig
    controller: Controller
    threads: ThreadPool

    @classmethod
    async def start(cls, directory: Path) -> Cluster:
        threads = ThreadPool(1)
        store = await EmbeddedStore.open(directory)
        await bootstrap_cluster(store, lambda: "the-cluster")
        catalog = Catalog()
        await catalog.open(store)
        admitted = catalog.image.admissions.get(1)
        await register(store, BROKER if admitted is None else replace(BROKER, admitted_before=admitted.epoch))
        elected = await elect_controller(store, BROKER.broker_id)
        assert elected is not None
        live = LiveConfig(BrokerConfig())
        live.follow(catalog)
        controller = Controller(
            store=store,
            catalog=catalog,
            randomness=SystemRandomness(),
            config=lambda: live.current,
            epoch_version=elected.epoch_version,
            id_floor=ProducerIdFloor(RealDisk(), str(directory), threads.executor),
        )
        await controller.reconcile()
        return cls(store, catalog, live, controller, threads)


def run(directory: Path, act: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        cluster = await Cluster.start(directory)
        try:
            await act(cluster)
        finally:
            await cluster.store.close()
            cluster.threads.shutdown()

    asyncio.run(whole())


def test_a_store_is_bootstrapped_once(tmp_path: Path) -> None:
    async def first(cluster: Cluster) -> None:
        await bootstrap_cluster(cluster.store, lambda: "another")
        assert cluster.catalog.image.cluster_id == "the-cluster"
        assert cluster.catalog.image.controller_id == 1
        assert cluster.catalog.image.brokers == {1: cluster.catalog.image.brokers[1]}

    run(tmp_path, first)
    run(tmp_path, first)


def test_topics_exist_when_the_call_returns(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        received: list[ImageDelta] = []
        cluster.catalog.listen(received.append)
        outcomes = await cluster.controller.create_topics([NewTopic(name=f"t{n}", partitions=2) for n in range(1000)])
        assert all(isinstance(outcome, TopicState) for outcome in outcomes)
        assert len(received) == 1000 // CHANGES_AT_ONCE_MAX, "one transaction for each part"
        assert sum(len(delta.topics) for delta in received) == 1000
        assert len(cluster.catalog.image.topics) == 1000
        assert cluster.catalog.image.partition_count == 2000

    run(tmp_path, act)


def test_the_image_after_a_restart_is_the_image_before_it(tmp_path: Path) -> None:
    images: list[dict[str, TopicState]] = []

    async def change(cluster: Cluster) -> None:
        await cluster.controller.create_topics(
            [NewTopic(name="a", configs=(("retention.ms", "7"),)), NewTopic(name="b")]
        )
        await cluster.controller.grow_topics([Growth(name="a", count=3)])
        await cluster.controller.delete_topics(["b"])
        await cluster.controller.change_quotas(
            [QuotaChange(entity=(("client-id", None),), limits=(("producer_byte_rate", 5.0),))]
        )
        images.append(cluster.catalog.image.topics)

    async def look(cluster: Cluster) -> None:
        image = cluster.catalog.image
        assert image.topics == images[0]
        assert image.topics["a"].version == 1
        assert image.topics_by_id[image.topics["a"].topic_id] is image.topics["a"]
        assert image.quotas == {(("client-id", None),): {"producer_byte_rate": 5.0}}
        everything = cluster.catalog.everything()
        assert [change.after for change in everything.topics] == list(image.topics.values())

    run(tmp_path, change)
    run(tmp_path, look)


def test_two_requests_for_one_name_make_one_topic(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        outcomes = await asyncio.gather(*(cluster.controller.create_topics([NewTopic(name="a")]) for _ in range(5)))
        kinds = sorted(type(outcome).__name__ for (outcome,) in outcomes)
        assert kinds == ["TopicAlreadyExists"] * 4 + ["TopicState"]

    run(tmp_path, act)


def test_validation_writes_nothing(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        before = cluster.catalog.image.version
        (outcome,) = await cluster.controller.create_topics([NewTopic(name="a")], validate_only=True)
        assert isinstance(outcome, TopicState)
        assert cluster.catalog.image.version == before
        assert "a" not in cluster.catalog.image.topics

    run(tmp_path, act)


def test_a_topic_created_again_has_another_id_and_starts_at_epoch_zero(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        (first,) = await cluster.controller.create_topics([NewTopic(name="a", partitions=3)])
        await cluster.controller.delete_topics(["a"])
        (second,) = await cluster.controller.create_topics([NewTopic(name="a")])
        assert isinstance(first, TopicState)
        assert isinstance(second, TopicState)
        assert first.topic_id != second.topic_id
        assert first.topic_id not in cluster.catalog.image.topics_by_id
        assert cluster.catalog.image.partition_count == 1

    run(tmp_path, act)


@pytest.mark.parametrize("hears", [True, False], ids=["notices-its-successor", "does-not"])
def test_a_former_controller_cannot_write(tmp_path: Path, hears: bool) -> None:
    async def act(cluster: Cluster) -> None:
        if not hears:
            cluster.catalog.close()
        await cluster.store.multi([Delete(CONTROLLER)])
        assert await elect_controller(cluster.store, 2) is not None
        ids = await cluster.store.get(PRODUCER_IDS)

        for _ in range(2):
            with pytest.raises(NotController):
                await cluster.controller.create_topics([NewTopic(name="a")])
            with pytest.raises(NotController):
                await cluster.controller.claim_producer_ids()
            with pytest.raises(CoordinatorLoadInProgress):
                await ProducerIds(cluster.controller).next()

        assert await cluster.store.get("/topics/a") is None
        assert await cluster.store.get(PRODUCER_IDS) == ids

    run(tmp_path, act)


def test_the_controller_epoch_goes_up_with_every_start(tmp_path: Path) -> None:
    epochs: list[bytes] = []

    async def act(cluster: Cluster) -> None:
        node = await cluster.store.get(CONTROLLER_EPOCH)
        assert node is not None
        epochs.append(node.data)

    for _ in range(3):
        run(tmp_path, act)
    assert epochs == [b"1", b"2", b"3"]


def test_producer_ids_are_never_assigned_twice_across_restarts(tmp_path: Path) -> None:
    given: list[int] = []

    async def act(cluster: Cluster) -> None:
        ids = ProducerIds(cluster.controller)
        assert ids.next_at_hand() is None
        given.extend([await ids.next() for _ in range(3)])
        assert ids.next_at_hand() == given[-1] + 1
        given.append(given[-1] + 1)

    for _ in range(3):
        run(tmp_path, act)
    assert len(set(given)) == len(given)
    assert given == sorted(given)


def test_producer_ids_are_unique_across_blocks_and_concurrent_callers(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        ids = ProducerIds(cluster.controller)
        given = await asyncio.gather(*(ids.next() for _ in range(3)))
        given += [await ids.next() for _ in range(2 * PRODUCER_ID_BLOCK)]
        assert len(set(given)) == len(given)

    run(tmp_path, act)


def test_producer_ids_are_not_assigned_again_when_the_metadata_is_lost_or_older(tmp_path: Path) -> None:
    given: list[int] = []

    async def act(cluster: Cluster) -> None:
        given.extend(await cluster.controller.claim_producer_ids())

    run(tmp_path, act)
    older = (tmp_path / FILE_NAME).read_bytes()
    run(tmp_path, act)
    (tmp_path / FILE_NAME).write_bytes(older)
    run(tmp_path, act)
    (tmp_path / FILE_NAME).unlink()
    run(tmp_path, act)

    assert len(set(given)) == len(given) == 4 * PRODUCER_ID_BLOCK


def broker_setting(name: str, value: str, broker: str = "") -> ConfigChange:
    step = SettingStep(name=name, step=Step.SET, value=value)
    return ConfigChange(resource_type=ResourceType.BROKER, name=broker, steps=(step,))


def test_a_dynamic_broker_setting_is_in_effect_at_once_and_after_a_restart(tmp_path: Path) -> None:
    received: list[tuple[int, int]] = []

    async def change(cluster: Cluster) -> None:
        cluster.live.listen(lambda old, new: received.append((old.message_max_bytes, new.message_max_bytes)))
        await cluster.controller.change_configs([broker_setting("message.max.bytes", "5000")])
        assert cluster.live.current.topic_defaults.max_message_bytes == 5000
        await cluster.controller.change_configs([broker_setting("message.max.bytes", "6000", broker="1")])
        assert cluster.live.current.message_max_bytes == 6000

    async def look(cluster: Cluster) -> None:
        assert cluster.live.current.message_max_bytes == 6000
        assert cluster.live.current.given_cluster == {"message.max.bytes": "5000"}

    run(tmp_path, change)
    run(tmp_path, look)
    assert received == [(1048588, 5000), (5000, 6000)]


def test_a_stored_setting_that_this_version_cannot_read_does_not_prevent_a_start(tmp_path: Path) -> None:
    async def change(cluster: Cluster) -> None:
        await cluster.controller.change_configs([broker_setting("message.max.bytes", "5000")])
        settings = {"message.max.bytes": "5000", "key.of.tomorrow": "1", "log.retention.ms": "soon"}
        await cluster.store.multi([Set(f"{BROKER_CONFIGS}/<default>", pack(settings))])
        assert cluster.live.current.message_max_bytes == 5000

    async def look(cluster: Cluster) -> None:
        assert cluster.live.current.message_max_bytes == 5000
        assert cluster.live.current.log_retention_ms is None

    run(tmp_path, change)
    run(tmp_path, look)


def test_an_invalid_topic_leaves_the_store_unchanged(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.controller.create_topics([NewTopic(name="a")])
        before = await cluster.store.tree("/")
        (outcome,) = await cluster.controller.create_topics([NewTopic(name="a")])
        assert isinstance(outcome, TopicAlreadyExists)
        assert await cluster.store.tree("/") == before

    run(tmp_path, act)


def test_a_wait_in_time_ends_with_what_it_waits_for_and_leaves_no_failure_unnoticed() -> None:
    async def act() -> None:
        loop = asyncio.get_running_loop()
        unnoticed: list[object] = []
        loop.set_exception_handler(lambda _, context: unnoticed.append(context))
        late: asyncio.Future[None] = loop.create_future()
        assert not await in_time(late, 0.001)
        assert late.cancelled()
        failing: asyncio.Future[None] = loop.create_future()
        loop.call_soon(failing.set_exception, KeyError("a"))
        with pytest.raises(KeyError):
            await in_time(failing, 60.0)
        both: asyncio.Future[None] = loop.create_future()
        waiting = asyncio.ensure_future(in_time(both, 60.0))
        await asyncio.sleep(0)
        # A catalog that is closed fails the wait, and the task is cancelled in the same turn.
        both.set_exception(KeyError("b"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del both, waiting
        gc.collect()
        assert not unnoticed

    asyncio.run(act())


def test_a_step_of_the_balance_to_a_broker_that_does_not_return_is_cancelled(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create_topics([NewTopic(name="t", partitions=4, replication_factor=1)])
        await register(cluster.store, replace(BROKER, broker_id=BrokerId(2)))
        await controller.reconcile()
        assert await controller.balance_step()
        moving = [state for state in controller.image.topics["t"].partitions if state.is_reassigning]
        assert moving
        assert all(state.adding_replicas == (2,) for state in moving)
        await cluster.store.multi([Delete(broker_path(BrokerId(2)))])
        await controller.reconcile()

        for _ in range(controller_module.ABSENT_LOOKS_MAX):
            assert any(state.is_reassigning for state in controller.image.topics["t"].partitions)
            assert await controller.balance_step()

        assert not any(state.is_reassigning for state in controller.image.topics["t"].partitions)
        assert all(state.replicas == (1,) for state in controller.image.topics["t"].partitions)
        assert not await controller.balance_step()

    run(tmp_path, act)


def test_a_balance_that_finds_nothing_to_move_is_planned_again_when_something_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[int] = []

    def nothing(image: MetadataImage) -> tuple[()]:
        plans.append(image.changes_version)
        return ()

    monkeypatch.setattr(controller_module, "plan_balance_step", nothing)

    async def act(cluster: Cluster) -> None:
        controller = cluster.controller
        for _ in range(3):
            assert not await controller.balance_step()
        assert len(plans) == 1
        await controller.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        for _ in range(3):
            assert not await controller.balance_step()
        assert len(plans) == 2
        other = replace(BROKER, broker_id=BrokerId(2))
        await register(cluster.store, other)
        await controller.reconcile()
        assert not await controller.balance_step()
        assert len(plans) == 3

    run(tmp_path, act)
