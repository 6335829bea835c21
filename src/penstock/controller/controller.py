"""The controller: the only writer of the cluster's metadata.

It decides with its planners (`topics`, `configs`, `quotas`), writes what they plan, in as few transactions as the store
allows, and responds when they are durable and this broker has acted on them.

The outcome of a transaction may be unknown. Then the controller reads back and decides (`outcomes`): one that is not
done is voided by another in its place before the plan is tried again, so it cannot be done later. Where the store
cannot be read either, the request fails with an error that clients retry, and the transaction can only be done before
the controller's next one, which finds out and plans again.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TypeVar, assert_never

from penstock.config.broker import BrokerConfig
from penstock.controller.configs import ConfigChange, plan_config_changes
from penstock.controller.outcomes import (
    EPOCH_CHECK,
    FENCE_BYTES,
    FENCE_OPERATIONS,
    Found,
    Sent,
    fence,
    found_after,
)
from penstock.controller.plan import Plan, PlanStep, transactions
from penstock.controller.quotas import QuotaChange, plan_quota_changes
from penstock.controller.topics import (
    Growth,
    NewTopic,
    check_total,
    orphan_steps,
    partitions_asked,
    plan_creations,
    plan_deletions,
    plan_growths,
    plan_new_epochs,
)
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Operation, Set
from penstock.metadata.records import CHANGES, PRODUCER_IDS
from penstock.metadata.store import MetadataStore, OutcomeUnknown, StoreFault, StoreUnavailable
from penstock.model.clock import Randomness
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotController, RequestTimedOut
from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import TopicState
from penstock.storage.producer_id_floor import ProducerIdFloor

Outcome = TypeVar("Outcome")
Wanted = TypeVar("Wanted")

CHANGES_AT_ONCE_MAX = 50
"""Topics, resources or entities that one plan changes; a request for more makes several."""

ATTEMPTS_MAX = 5
"""Of one plan, when transactions are found not to be done or the image turns out to be behind."""

READ_BACKS_MAX = 20
READ_BACK_PAUSE_S = 0.25
"""How often, and after which pause, the controller looks for the outcome of a transaction before it gives up."""

PRODUCER_ID_BLOCK = 1000
"""Producer ids allocated at once: a crash loses at most so many of 2**63."""


class Controller:
    """Makes every change of metadata, one after the other."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        catalog: Catalog,
        randomness: Randomness,
        config: Callable[[], BrokerConfig],
        epoch_version: int | None = None,
        id_floor: ProducerIdFloor | None = None,
    ) -> None:
        """`config` returns the broker's current settings: some change while it runs.

        `epoch_version` is what the election gave; None refuses every write, see `elected`.
        """
        self._store = store
        self._catalog = catalog
        self._randomness = randomness
        self._config = config
        self._id_floor = id_floor
        self._epoch_version = epoch_version
        self._marks = count()
        self.on_resigned: Callable[[], None] = lambda: None
        """Called when this broker finds that it is no longer controller."""
        # A plan is valid for the image it was made from, so the next plan waits for the previous transaction.
        self._turn = asyncio.Lock()

    def elected(self, epoch_version: int) -> None:
        """Write from now on, with the version of the controller epoch that this broker won."""
        self._epoch_version = epoch_version

    def resign(self) -> None:
        """Write nothing more until the next election."""
        self._epoch_version = None
        self.on_resigned()

    @property
    def is_active(self) -> bool:
        """Whether this broker was elected and has not resigned."""
        return self._epoch_version is not None

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
        floor = self._id_floor

        async def plan() -> Plan[range]:
            node = await self._store.get(PRODUCER_IDS)
            assert node is not None, "the store has not been bootstrapped"
            # Metadata restored from an older copy would assign ids again that are in the logs.
            first = max(int(node.data), 0 if floor is None else await floor.read())
            end = first + PRODUCER_ID_BLOCK
            claim = Set(PRODUCER_IDS, b"%d" % end, node.version)
            return Plan(steps=((claim,),), outcomes=(range(first, end),))

        async with self._turn:
            [claimed] = await self._settled(plan)
            assert isinstance(claimed, range), "a claim of producer ids is never refused"
            if floor is not None:
                await floor.write(claimed.stop)
        return claimed

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
        async def plan() -> Plan[Outcome]:
            return make_plan()

        async with self._turn:
            if not self.is_active:
                # Its image may be behind, so it does not even refuse a request.
                raise NotController()
            if validate_only:
                return make_plan().outcomes
            return await self._settled(plan)

    async def _settled(self, make_plan: Callable[[], Awaitable[Plan[Outcome]]]) -> tuple[Outcome | BrokerError, ...]:
        """Write a plan; plan again if the image it was planned from is behind."""
        for _ in range(ATTEMPTS_MAX):
            plan = await make_plan()
            try:
                await self._write(plan.steps)
            except ImageBehind:
                await self._catch_up()
            else:
                if plan.steps:
                    await self._sweep()
                return plan.outcomes
        raise NotController("the metadata changes faster than this controller follows it")

    async def _sweep(self) -> None:
        """Remove what an earlier plan left that stopped half-way; the request that is done does not depend on it."""
        steps = orphan_steps(self.image)
        if steps:
            with suppress(BrokerError, ImageBehind):
                await self._write(steps)

    async def _write(self, steps: Sequence[PlanStep]) -> None:
        """Write a plan's transactions one after the other; each holds only while this broker is the controller."""
        first = True
        for operations in transactions(
            steps,
            operations_max=self._store.operations_max - FENCE_OPERATIONS,
            bytes_max=self._store.bytes_max - FENCE_BYTES,
        ):
            try:
                await self._commit(operations)
            except ImageBehind:
                if first:
                    raise
                # Done in part, so a plan made again would find its own traces.
                raise NotController() from None
            first = False

    async def _commit(self, operations: Sequence[Operation]) -> None:
        """Do one transaction and wait until the image has it."""
        for _ in range(ATTEMPTS_MAX):
            sent = Sent(mark=self._mark(), expected=self.image.changes_version)
            try:
                number: int | None = await self._send(sent, operations)
            except OutcomeUnknown:
                number = await self._found_out(sent)
            if number is not None:
                await self._catalog.at_least(number)
                return
        raise RequestTimedOut("the metadata store did not do the change")

    async def _send(self, sent: Sent, operations: Sequence[Operation]) -> int:
        """Raises NotController where this broker is not the controller, and `ImageBehind` for a plan out of date."""
        if self._epoch_version is None:
            raise NotController()
        try:
            return await self._store.multi([*fence(self._epoch_version, sent), *operations])
        except StoreFault as fault:
            if fault.index == EPOCH_CHECK:
                # Another broker was elected.
                self.resign()
                raise NotController() from None
            raise ImageBehind(fault.index) from None

    async def _found_out(self, sent: Sent) -> int | None:
        """Read back a transaction of unknown outcome: a number not before its own if it is done, None if it is not
        and never will be."""
        for _ in range(READ_BACKS_MAX):
            try:
                found, number = await self._read_back(sent)
            except (StoreUnavailable, OutcomeUnknown):
                found, number = Found.PENDING, 0
            if found is Found.DONE:
                return number
            if found is Found.NEVER:
                await self._catalog.at_least(number)
                return None
            await asyncio.sleep(READ_BACK_PAUSE_S)
        raise RequestTimedOut("the outcome of the change in the metadata store is unknown")

    async def _read_back(self, sent: Sent) -> tuple[Found, int]:
        """What the store shows, and as of which transaction; one that is pending is voided."""
        await self._store.sync()
        snapshot = await self._store.tree(CHANGES)
        found = found_after(sent, snapshot.nodes.get(CHANGES))
        match found:
            case Found.DONE | Found.NEVER:
                return found, snapshot.number
            case Found.SUPERSEDED:
                self.resign()
                raise NotController()
            case Found.PENDING:
                void = Sent(mark=self._mark(), expected=sent.expected)
                try:
                    return Found.NEVER, await self._send(void, ())
                except ImageBehind:
                    # It was done meanwhile, or an earlier void was.
                    return Found.PENDING, snapshot.number
            case _:
                assert_never(found)

    async def _catch_up(self) -> None:
        """Bring the image to what the store is now."""
        await self._store.sync()
        snapshot = await self._store.tree(CHANGES)
        await self._catalog.at_least(snapshot.number)

    def _mark(self) -> bytes:
        """Unlike that of any other transaction, of this or another controller."""
        return b"%d.%d" % (-1 if self._epoch_version is None else self._epoch_version, next(self._marks))


class ImageBehind(Exception):
    """A plan was refused because its image is older than the store."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index
