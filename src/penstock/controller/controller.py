"""The controller: the only writer of the cluster's metadata.

Its planners (`topics`, `configs`, `quotas`) decide, and it writes each plan in one transaction. A call returns when the
transaction is on the disk and this broker has applied it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from penstock.config.broker import BrokerConfig
from penstock.controller.configs import ConfigChange, plan_config_changes
from penstock.controller.plan import Plan
from penstock.controller.quotas import QuotaChange, plan_quota_changes
from penstock.controller.topics import (
    Growth,
    NewTopic,
    check_total,
    partitions_asked,
    plan_creations,
    plan_deletions,
    plan_growths,
    plan_new_epochs,
)
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Check, Create, Operation, Set
from penstock.metadata.records import (
    CLUSTER,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DIRECTORIES,
    PRODUCER_IDS,
    BrokerState,
    broker_path,
    pack_broker,
)
from penstock.metadata.store import BadVersion, MetadataStore, NodeExists, NoNode
from penstock.model.clock import Randomness
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotController
from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import TopicState
from penstock.storage.producer_id_floor import ProducerIdFloor

Outcome = TypeVar("Outcome")
Wanted = TypeVar("Wanted")

CHANGES_AT_ONCE_MAX = 50
"""Most topics, resources or entities changed in one transaction; a larger request takes several."""

PRODUCER_ID_BLOCK = 1000
"""Producer ids allocated at once: a crash loses at most so many of 2**63."""


async def bootstrap_cluster(store: MetadataStore, make_cluster_id: Callable[[], str]) -> None:
    """Create the nodes that a new store lacks, or that an earlier version did not create."""
    operations: list[Operation] = [Create(path, b"") for path in DIRECTORIES if await store.get(path) is None]
    if await store.get(CONTROLLER_EPOCH) is None:
        operations.append(Create(CONTROLLER_EPOCH, b"0"))
    if await store.get(PRODUCER_IDS) is None:
        operations.append(Create(PRODUCER_IDS, b"0"))
    if await store.get(CLUSTER) is None:
        operations.append(Create(CLUSTER, make_cluster_id().encode()))
    if not operations:
        return
    try:
        await store.multi(operations)
    except NodeExists:
        # Another broker bootstrapped the cluster in the meantime.
        return


async def register(store: MetadataStore, broker: BrokerState) -> None:
    """Register this broker for the lifetime of its session."""
    await store.multi([Create(broker_path(broker.broker_id), pack_broker(broker), ephemeral=True)])


async def elect_controller(store: MetadataStore, broker_id: BrokerId) -> int | None:
    """Become controller; returns the version of the new controller epoch, or None if another broker is controller.

    The election raises the epoch in the same transaction, and a controller checks its version with every write, so that
    writes of a former controller are refused.
    """
    epoch = await store.get(CONTROLLER_EPOCH)
    assert epoch is not None, "the store has not been bootstrapped"
    next_epoch = b"%d" % (int(epoch.data) + 1)
    claim = Create(CONTROLLER, b"%d" % broker_id, ephemeral=True)
    try:
        await store.multi([claim, Set(CONTROLLER_EPOCH, next_epoch, epoch.version)])
    except (NodeExists, BadVersion):
        return None
    return epoch.version + 1


class Controller:
    """Makes every change of metadata, one after the other."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        catalog: Catalog,
        randomness: Randomness,
        config: Callable[[], BrokerConfig],
        epoch_version: int | None,
        id_floor: ProducerIdFloor | None = None,
    ) -> None:
        """`config` returns the broker's current settings: some change while it runs.

        `epoch_version` is the result of `elect_controller`; None refuses every write.
        """
        self._store = store
        self._catalog = catalog
        self._randomness = randomness
        self._config = config
        self._id_floor = id_floor
        # Not the newest version seen: a former controller also sees the election of its successor.
        self._epoch_version = epoch_version
        # A plan is valid for the image it was made from, so the next plan waits for the previous transaction.
        self._turn = asyncio.Lock()

    @property
    def image(self) -> MetadataImage:
        return self._catalog.image

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> tuple[TopicState | BrokerError, ...]:
        """Create topics. An invalid topic does not affect the others; a raised `BrokerError` fails all of them."""
        config = self._config()
        check_total(partitions_asked(topic, config) for topic in topics)

        def plan(some: Sequence[NewTopic]) -> Plan[TopicState]:
            return plan_creations(
                self.image,
                some,
                config=self._config(),
                make_id=self._randomness.uuid_bytes,
                first=self._randomness.below(max(len(self.image.brokers), 1)),
            )

        return await self._carry_out_in_parts(topics, plan, validate_only=validate_only)

    async def delete_topics(self, topics: Sequence[str | TopicId]) -> tuple[TopicState | BrokerError, ...]:
        """Delete topics by name or id; the outcome is the deleted topic."""
        return await self._carry_out_in_parts(
            topics, lambda some: plan_deletions(self.image, some, config=self._config())
        )

    async def grow_topics(
        self, growths: Sequence[Growth], *, validate_only: bool = False
    ) -> tuple[TopicState | BrokerError, ...]:
        """Give topics more partitions."""

        def plan(some: Sequence[Growth]) -> Plan[TopicState]:
            first = self._randomness.below(max(len(self.image.brokers), 1))
            return plan_growths(self.image, some, first=first)

        return await self._carry_out_in_parts(growths, plan, validate_only=validate_only)

    async def change_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> tuple[Mapping[str, str] | BrokerError, ...]:
        """Change settings of topics, brokers and groups; they are in effect when this returns."""
        counts = Counter((change.resource_type, change.name) for change in changes)
        return await self._carry_out_in_parts(
            changes,
            lambda some: plan_config_changes(self.image, some, config=self._config(), counts=counts),
            validate_only=validate_only,
        )

    async def change_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> tuple[Mapping[str, float] | BrokerError, ...]:
        """Change client quotas."""
        return await self._carry_out_in_parts(
            changes, lambda some: plan_quota_changes(self.image, some), validate_only=validate_only
        )

    async def begin_epochs(self, broker_id: BrokerId) -> None:
        """Start a new leader epoch in every partition this broker leads, after a stop that may have lost records."""
        await self._carry_out(lambda: plan_new_epochs(self.image, broker_id))

    async def claim_producer_ids(self) -> range:
        """Allocate a block of producer ids that were never assigned and will not be assigned again."""
        async with self._turn:
            node = await self._store.get(PRODUCER_IDS)
            assert node is not None, "the store has not been bootstrapped"
            floor = self._id_floor
            # Metadata restored from an older copy would assign ids again that are in the logs.
            first = max(int(node.data), 0 if floor is None else await floor.read())
            end = first + PRODUCER_ID_BLOCK
            await self._write([Set(PRODUCER_IDS, b"%d" % end, node.version)])
            if floor is not None:
                await floor.write(end)
        return range(first, end)

    async def _carry_out_in_parts(
        self,
        wanted: Sequence[Wanted],
        make_plan: Callable[[Sequence[Wanted]], Plan[Outcome]],
        *,
        validate_only: bool = False,
    ) -> tuple[Outcome | BrokerError, ...]:
        """Carry out many independent changes, some at a time, so that other requests are not blocked."""
        outcomes: list[Outcome | BrokerError] = []
        for first in range(0, len(wanted), CHANGES_AT_ONCE_MAX):
            some = wanted[first : first + CHANGES_AT_ONCE_MAX]
            try:
                done = await self._carry_out(partial(make_plan, some), validate_only=validate_only)
            except BrokerError as error:
                if not first:
                    raise
                return (*outcomes, *[error] * (len(wanted) - first))
            outcomes += done
            if first + len(some) < len(wanted):
                await asyncio.sleep(0)
        return tuple(outcomes)

    async def _carry_out(
        self, make_plan: Callable[[], Plan[Outcome]], *, validate_only: bool = False
    ) -> tuple[Outcome | BrokerError, ...]:
        async with self._turn:
            plan = make_plan()
            if plan.operations and not validate_only:
                await self._write(plan.operations)
            return plan.outcomes

    async def _write(self, operations: Sequence[Operation]) -> None:
        """Write one transaction, on condition that this broker is the controller; otherwise raise NotController."""
        if self._epoch_version is None:
            raise NotController()
        try:
            await self._store.multi([Check(CONTROLLER_EPOCH, self._epoch_version), *operations])
        except (BadVersion, NoNode, NodeExists) as fault:
            if fault.index == 0:
                # Another broker was elected: resign.
                self._epoch_version = None
            # Otherwise only another controller can have changed the metadata that the plan was made from.
            raise NotController() from None
