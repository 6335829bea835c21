"""This broker as a member of its cluster: bootstrap, registration, and election as controller.

All of it ends with the broker's session in the metadata store. When the session is lost and renewed, the broker
registers again and stands for election again. What a lost session means for partitions it leads is not decided here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.controller.controller import Controller
from penstock.controller.migration import migrate_topics
from penstock.controller.outcomes import Claim, read_claim
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import ImageDelta
from penstock.metadata.operations import Check, Create, Delete, Operation, Set
from penstock.metadata.records import (
    CHANGES,
    CLUSTER,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DIRECTORIES,
    PARTITIONS,
    PARTITIONS_MIGRATED,
    PRODUCER_IDS,
    TOPICS,
    BrokerState,
    ControllerState,
    broker_path,
    pack_broker,
    pack_controller,
    unpack_controller,
)
from penstock.metadata.store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    OutcomeUnknown,
    SessionEvent,
    StoreUnavailable,
    StoreUnreachable,
)
from penstock.observe.log import Logger
from penstock.storage.directories import StartRefused

Result = TypeVar("Result")

ATTEMPTS_MAX = 20
"""Transactions of unknown outcome, or overtaken by others, before a start or an election gives up for now."""

ATTEMPT_PAUSE_S = 0.1

REGISTRATION_WAIT_S = 30.0
"""For the registration of an earlier session to end; it does at that session's timeout."""

RETRY_S = 1.0
"""After the store could not be reached."""

START_ATTEMPTS_MAX = 60


async def reached(work: Callable[[], Awaitable[Result]]) -> Result:
    """Do a step of a start, again and again while the store cannot be reached, for a bounded time."""
    for _ in range(START_ATTEMPTS_MAX):
        try:
            return await work()
        except StoreUnreachable:
            await asyncio.sleep(RETRY_S)
    return await work()


async def bootstrap_cluster(store: MetadataStore, make_cluster_id: Callable[[], str]) -> None:
    """Create the nodes that every store holds and this one lacks: it is new, or an earlier version bootstrapped it."""
    cluster_id: bytes | None = None
    for _ in range(ATTEMPTS_MAX):
        await store.sync()
        operations: list[Operation] = [Create(path, b"") for path in DIRECTORIES if await store.get(path) is None]
        for path, first in ((CONTROLLER_EPOCH, b"0"), (CHANGES, b""), (PRODUCER_IDS, b"0")):
            if await store.get(path) is None:
                operations.append(Create(path, first))
        if await store.get(CLUSTER) is None:
            cluster_id = make_cluster_id().encode() if cluster_id is None else cluster_id
            operations.append(Create(CLUSTER, cluster_id))
        if Create(TOPICS, b"") in operations and await store.get(PARTITIONS) is None:
            operations.append(Create(PARTITIONS, PARTITIONS_MIGRATED))
        try:
            if not operations:
                await migrate_topics(store)
                return
            await store.multi(operations)
        except (NodeExists, OutcomeUnknown):
            # Done after all, or another broker bootstrapped the cluster in the meantime: look again.
            await asyncio.sleep(ATTEMPT_PAUSE_S)
    raise StoreUnavailable("the outcome of bootstrapping the cluster could not be found out")


async def register(store: MetadataStore, broker: BrokerState) -> int:
    """Say that this broker is up, for as long as its session lives; returns its broker epoch.

    Waits for the registration of an earlier session to end, and raises `StartRefused` if it does not.
    """
    path, data = broker_path(broker.broker_id), pack_broker(broker)
    waited_s = 0.0
    while waited_s < REGISTRATION_WAIT_S:
        try:
            return await store.multi([Create(path, data, ephemeral=True)])
        except (NodeExists, OutcomeUnknown):
            await store.sync()
            node = await store.get(path)
        if node is not None and node.owner == store.session:
            return node.created
        await asyncio.sleep(ATTEMPT_PAUSE_S)
        waited_s += ATTEMPT_PAUSE_S
    raise StartRefused(
        f"broker id {broker.broker_id} is registered by another session. Two brokers of one cluster cannot have the "
        "same id: stop the other one, or set another broker.id"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """An election that was won: the version of the controller epoch, and the number of the transaction."""

    epoch_version: int
    number: int


async def elect_controller(store: MetadataStore, broker_id: int) -> Elected | None:
    """Become controller; None where another broker is.

    The epoch goes up in the same transaction, and the controller checks its version with every write, so the
    writes of a former controller are refused. A claim of unknown outcome is found by its epoch, or claimed again.
    """
    sent: dict[int, int] = {}
    for _ in range(ATTEMPTS_MAX):
        await store.sync()
        epoch = await store.get(CONTROLLER_EPOCH)
        assert epoch is not None, "the store has not been bootstrapped"
        snapshot = await store.tree(CONTROLLER)
        node = snapshot.nodes.get(CONTROLLER)
        match read_claim(node, store.session, sent):
            case Claim.TAKEN:
                return None
            case Claim.WON:
                assert node is not None, "an election was won without a node"
                won = unpack_controller(node.data).epoch
                return Elected(epoch_version=sent[won], number=snapshot.number)
            case Claim.LATE:
                # The check keeps the deletion from being done after a later claim.
                operations: list[Operation] = [Check(CONTROLLER_EPOCH, epoch.version), Delete(CONTROLLER)]
            case Claim.FREE:
                claim = ControllerState(broker_id=broker_id, epoch=int(epoch.data) + 1)
                sent[claim.epoch] = epoch.version + 1
                operations = [
                    Create(CONTROLLER, pack_controller(claim), ephemeral=True),
                    Set(CONTROLLER_EPOCH, b"%d" % claim.epoch, epoch.version),
                ]
        try:
            number = await store.multi(operations)
        except (NodeExists, NoNode, BadVersion, OutcomeUnknown):
            await asyncio.sleep(ATTEMPT_PAUSE_S)
        else:
            if isinstance(operations[0], Create):
                return Elected(epoch_version=epoch.version + 1, number=number)
    raise StoreUnavailable("the outcome of the election could not be found out")


class Membership:
    """Keeps this broker registered, and controller where no other broker is."""

    def __init__(
        self, *, store: MetadataStore, catalog: Catalog, controller: Controller, broker: BrokerState, log: Logger
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._controller = controller
        self._broker = broker
        self._log = log
        self._changed = asyncio.Event()
        self._registered: int | None = None
        """The session that this broker is registered with."""
        self._elected: Elected | None = None
        self._follows = False
        self._lost = False
        """Whether the session is over and no other has begun."""

    async def join(self) -> bool:
        """Register, and become controller unless another broker is; whether this broker is the controller.

        Raises `StartRefused` or `StoreUnavailable`, and may then be called again.
        """
        if not self._follows:
            self._follows = True
            self._catalog.listen(self._follow)
            self._store.on_session(self._session_changed)
            self._controller.on_resigned = self._changed.set
        await self._settle()
        if self._registered != self._store.session or self._lost:
            raise StoreUnreachable("the session was lost while this broker registered")
        return self._controller.is_active

    async def run(self) -> None:
        """Follow the session and the controller's node, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._settle()
            except (StoreUnavailable, StartRefused) as error:
                self._log.warning("membership_unsettled", reason=str(error), retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    def _follow(self, delta: ImageDelta) -> None:
        if delta.brokers:
            self._changed.set()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._lost = True
            self._resign("session_lost")
        elif event is SessionEvent.RENEWED:
            self._lost = False
            self._changed.set()

    def _resign(self, reason: str) -> None:
        self._elected = None
        if self._controller.is_active:
            self._controller.resign()
            self._log.warning("controller_resigned", reason=reason)

    async def _settle(self) -> None:
        if self._lost:
            # The session that follows will settle it.
            return
        session = self._store.session
        if self._registered != session:
            number = await register(self._store, self._broker)
            await self._catalog.at_least(number)
            self._registered = session
        if self._controller.is_active:
            self._check_still_elected()
        controller = self._catalog.image.controller
        if self._controller.is_active or (controller is not None and controller.broker_id != self._broker.broker_id):
            return
        elected = await elect_controller(self._store, self._broker.broker_id)
        if elected is None:
            return
        # Its first decision must see all that was done before its election.
        await self._catalog.at_least(elected.number)
        if self._store.session == session and not self._lost:
            self._elected = elected
            self._controller.elected(elected.epoch_version)
            self._log.info("controller_elected", epoch_version=elected.epoch_version)

    def _check_still_elected(self) -> None:
        if self._elected is None or self._catalog.number < self._elected.number:
            return
        if self._catalog.image.controller_id != self._broker.broker_id:
            self._resign("no_longer_in_the_metadata")
