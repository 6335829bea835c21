"""An image of a cluster that planners change without a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from penstock.controller.brokers import Settlement, plan_settlement, plan_stop
from penstock.controller.plan import Plan
from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Change
from penstock.metadata.operations import Check, Create, Delete, Operation
from penstock.metadata.records import (
    ALL_BROKERS,
    BrokerState,
    broker_config_path,
    broker_path,
    chunk_path,
    chunks_needed,
    pack,
    pack_broker,
    pack_partitions,
    pack_topic,
    topic_path,
)
from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId
from penstock.model.topic import PartitionState, TopicState

TOPIC = "t"
TOPIC_ID = TopicId(b"t" * 16)


class ClusterImage:
    """Brokers that come and go, one topic, and the transactions of a controller, numbered."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._numbers = count(1)
        self._versions: dict[str, int] = {}
        self._seen: dict[int, BrokerEpoch] = {}
        """The last epoch that each broker saw admitted."""

    def write(self, operations: Iterable[Operation]) -> None:
        number = next(self._numbers)
        changes = []
        for operation in operations:
            path = operation.path
            if isinstance(operation, Check):
                assert self._versions[path] == operation.version, f"{path} is at {self._versions[path]}"
            elif isinstance(operation, Delete):
                del self._versions[path]
                changes.append(Change(path=path, data=None))
            else:
                if isinstance(operation, Create):
                    assert path not in self._versions, f"{path} exists"
                else:
                    assert operation.version in (-1, self._versions[path]), f"{path} is at {self._versions[path]}"
                self._versions[path] = self._versions.get(path, -1) + 1
                changes.append(Change(path=path, data=operation.data, version=self._versions[path], created=number))
        self.image.apply(changes)

    def register(self, broker_id: int, **facts: Any) -> BrokerEpoch:
        """A broker registers: by default the same disk as ever, and nothing lost."""
        fields = {"admitted_before": self._seen.get(broker_id, -1), "directories": (f"d{broker_id}",), **facts}
        broker = BrokerState(broker_id=BrokerId(broker_id), endpoints=(), rack=None, **fields)
        if broker_path(BrokerId(broker_id)) in self._versions:
            self.gone(broker_id)
        self.write([Create(broker_path(BrokerId(broker_id)), pack_broker(broker), ephemeral=True)])
        return self.image.brokers[broker_id].epoch

    def gone(self, broker_id: int) -> None:
        self.write([Delete(broker_path(BrokerId(broker_id)))])

    def settle_once(self) -> Settlement:
        """One plan of the controller, written."""
        settlement = plan_settlement(self.image)
        for step in settlement.steps:
            self.write(step)
        for broker_id in self.image.brokers:
            if self.image.is_live(broker_id):
                self._seen[broker_id] = self.image.admissions[broker_id].epoch
        return settlement

    def settle(self, stopping: Sequence[int] = ()) -> None:
        """Plan and write until nothing is left, with some brokers about to stop."""
        for broker_id in stopping:
            self.carry_out(plan_stop(self.image, BrokerId(broker_id)))
        for _ in range(10):
            if not self.settle_once().steps:
                return
        raise AssertionError("the plans never end")

    def carry_out(self, plan: Plan[Any]) -> tuple[Any, ...]:
        for step in plan.steps:
            self.write(step)
        return plan.outcomes

    def start(self, *brokers: int) -> None:
        """Register some brokers and admit them."""
        for broker in brokers:
            self.register(broker)
        self.settle()

    def restart(self, broker_id: int, **facts: Any) -> None:
        """A broker registers again before the controller has seen that it was gone."""
        self.register(broker_id, **facts)

    def topic(self, *partitions: PartitionState, name: str = TOPIC, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic_id = TOPIC_ID if name == TOPIC else TopicId(name.encode().ljust(16, b"-"))
        topic = TopicState(name=name, topic_id=topic_id, configs=settings, partitions=partitions)
        chunks = range(chunks_needed(len(partitions)))
        size = 128
        self.write(
            [
                *(
                    Create(chunk_path(topic_id, each), pack_partitions(partitions[each * size : (each + 1) * size]))
                    for each in chunks
                ),
                Create(topic_path(name), pack_topic(topic)),
            ]
        )

    def set_default(self, **settings: str) -> None:
        """Change settings of the whole cluster."""
        data = pack({key.replace("_", "."): value for key, value in settings.items()})
        self.write([Create(broker_config_path(ALL_BROKERS), data)])

    def state(self, index: int = 0, name: str = TOPIC) -> PartitionState:
        return self.image.topics[name].partitions[index]


def partition(*replicas: int, isr: Sequence[int] | None = None, index: int = 0, **facts: Any) -> PartitionState:
    """A partition that its first in-sync replica leads."""
    brokers = tuple(map(BrokerId, replicas))
    in_sync = brokers if isr is None else tuple(map(BrokerId, isr))
    state = PartitionState(
        index=index,
        leader=in_sync[0] if in_sync else BrokerId(-1),
        leader_epoch=LeaderEpoch(5),
        replicas=brokers,
        isr=in_sync,
        in_sync_min=1 if len(replicas) > 1 else 0,
    )
    return replace(state, **facts)


def replicated(brokers: int = 3, in_sync_min: int = 2) -> ClusterImage:
    """Live brokers 1 to `brokers`, and a partition with a replica on each."""
    cluster = ClusterImage()
    ids = range(1, brokers + 1)
    cluster.start(*ids)
    cluster.topic(partition(*ids, in_sync_min=in_sync_min), min_insync_replicas=str(in_sync_min))
    cluster.settle()
    return cluster
