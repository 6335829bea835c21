"""This broker as a member of its cluster: bootstrap, registration, admission, and election as controller.

All of it ends with the broker's session in the metadata store. When the session is lost the broker is fenced: it leads
and follows nothing. When it is renewed, the broker registers again, stands for election again, and acts again once the
controller has admitted the new registration.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
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
    FEATURES,
    IMPORT,
    IMPORT_INCOMPLETE,
    NOTHING_KEPT,
    PARTITIONS,
    PARTITIONS_MIGRATED,
    PRODUCER_IDS,
    STORE,
    TOPICS,
    BrokerState,
    ControllerState,
    Features,
    StoreIdentity,
    admission_path,
    broker_path,
    pack_broker,
    pack_controller,
    pack_features,
    pack_store,
    unpack_admission,
    unpack_broker,
    unpack_controller,
    unpack_features,
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
from penstock.model.cluster_versions import SUPPORTED, VersionRange, refuses_broker
from penstock.model.errors import BrokerError
from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId
from penstock.observe.log import Logger
from penstock.storage.directories import StartRefused
from penstock.storage.registration import RegistrationRecord

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


async def bootstrap_cluster(
    store: MetadataStore,
    make_cluster_id: Callable[[], str],
    make_store_id: Callable[[], str] | None = None,
    *,
    supported: VersionRange = SUPPORTED,
) -> None:
    """Create the nodes that every store holds and this one lacks: it is new, or an earlier version bootstrapped it.

    A new cluster has the latest version that its first broker supports. Raises `StartRefused` for a cluster whose
    version it does not support: it could not even read the metadata.
    """
    cluster_id: bytes | None = None
    identity = None if make_store_id is None else StoreIdentity(store_id=make_store_id())
    for _ in range(ATTEMPTS_MAX):
        await store.sync()
        imported = await store.get(IMPORT)
        if imported is not None and imported.data == IMPORT_INCOMPLETE:
            raise StartRefused(
                "an import of metadata into this store is not complete: repeat it with 'penstock metadata import'"
            )
        features = await finalized_features(store, supported)
        operations: list[Operation] = [Create(path, b"") for path in DIRECTORIES if await store.get(path) is None]
        for path, first in ((CONTROLLER_EPOCH, b"0"), (CHANGES, b""), (PRODUCER_IDS, b"0")):
            if await store.get(path) is None:
                operations.append(Create(path, first))
        if await store.get(CLUSTER) is None:
            cluster_id = make_cluster_id().encode() if cluster_id is None else cluster_id
            operations.append(Create(CLUSTER, cluster_id))
            features = replace(features, level=supported.highest) if features.version is None else features
        if features.version is None:
            operations.append(Create(FEATURES, pack_features(features)))
        if identity is not None and await store.get(STORE) is None:
            operations.append(Create(STORE, pack_store(identity, features.level)))
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


async def finalized_features(store: MetadataStore, supported: VersionRange) -> Features:
    """The version of the cluster; raises `StartRefused` where a broker that supports these is not to join it."""
    node = await store.get(FEATURES)
    features = Features() if node is None else unpack_features(node.data, node.version)
    check_supported(features.level, supported)
    return features


def check_supported(level: int, supported: VersionRange) -> None:
    why = refuses_broker(level, supported)
    if why is not None:
        raise StartRefused(why)


async def version_check(store: MetadataStore, supported: VersionRange) -> tuple[Operation, ...]:
    """What a transaction begins with that holds only while the version of the cluster is what it is now."""
    features = await finalized_features(store, supported)
    return () if features.version is None else (Check(FEATURES, features.version),)


async def register(store: MetadataStore, broker: BrokerState, *, wait_s: float = REGISTRATION_WAIT_S) -> BrokerEpoch:
    """Say that this broker is up, for as long as its session lives; returns its broker epoch.

    Takes over from an earlier session of this broker, which the store may take for alive until its timeout. Waits for
    any other registration of its id to end, and raises `StartRefused` if it does not, and where the version of the
    cluster is not one that the broker supports.
    """
    path, data = broker_path(broker.broker_id), pack_broker(broker)
    await store.sync()
    operations: list[Operation] = [
        *await version_check(store, broker.versions),
        Create(path, data, ephemeral=True),
    ]
    other: BrokerState | None = None
    waited_s = 0.0
    while waited_s < wait_s:
        with suppress(NodeExists, NoNode, BadVersion, OutcomeUnknown):
            return BrokerEpoch(await store.multi(operations))
        await store.sync()
        node = await store.get(path)
        if node is not None and node.owner == store.session:
            return BrokerEpoch(node.created)
        operations = [*await version_check(store, broker.versions), Create(path, data, ephemeral=True)]
        if node is not None:
            other = unpack_broker(broker.broker_id, node.data, node.created)
            if is_former_life(other, broker):
                controller = await store.get(CONTROLLER)
                operations.insert(0, Delete(path, node.version))
                if controller is not None and controller.owner == node.owner:
                    operations.append(Delete(CONTROLLER, controller.version))
        await asyncio.sleep(ATTEMPT_PAUSE_S)
        waited_s += ATTEMPT_PAUSE_S
    raise StartRefused(
        f"broker id {broker.broker_id} is registered by another session: {where(other)}, and this one is "
        f"{where(broker)}. Two brokers of one cluster cannot have the same id: stop the other one, or set another "
        "broker.id"
    )


def is_former_life(registered: BrokerState, broker: BrokerState) -> bool:
    """Whether a registration is of an earlier life of this broker, which is over: this one holds its directories.

    A copy of the directories on another host does not.
    """
    return not set(registered.directories).isdisjoint(broker.directories) and registered.host == broker.host


def where(broker: BrokerState | None) -> str:
    """A broker by its addresses, host and directories, for a message."""
    if broker is None:
        return "an unknown one"
    addresses = ", ".join(f"{each.host}:{each.port}" for each in broker.endpoints) or "no address"
    return (
        f"{addresses} on host {broker.host or 'unknown'} with directories {', '.join(broker.directories) or 'unknown'}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """An election that was won: the version of the controller epoch, and the number of the transaction."""

    epoch_version: int
    number: int


async def elect_controller(
    store: MetadataStore, broker_id: BrokerId, supported: VersionRange = SUPPORTED
) -> Elected | None:
    """Become controller; None where another broker is.

    Raises `StartRefused` where the version of the cluster is not one that this broker supports.

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
                    *await version_check(store, supported),
                ]
        try:
            number = await store.multi(operations)
        except (NodeExists, NoNode, BadVersion, OutcomeUnknown):
            await asyncio.sleep(ATTEMPT_PAUSE_S)
        else:
            if isinstance(operations[0], Create):
                return Elected(epoch_version=epoch.version + 1, number=number)
    raise StoreUnavailable("the outcome of the election could not be found out")


Keep = Callable[[RegistrationRecord], Awaitable[None]]
"""Makes a record durable. A disk that fails costs nothing but a catch-up after the next start."""


async def keep_nothing(record: RegistrationRecord) -> None:
    """Do without a disk: this broker's next life is a new broker."""


class Membership:
    """Keeps this broker registered, admitted, and controller where no other broker is."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        catalog: Catalog,
        controller: Controller,
        broker: BrokerState,
        log: Logger,
        record: RegistrationRecord | None = None,
        keep: Keep = keep_nothing,
        alone: bool = False,
        registration_wait_s: float = REGISTRATION_WAIT_S,
    ) -> None:
        """`record` is what this broker's disk has about its former lives, and `keep` changes it.

        A broker that is `alone` on its store goes on with an older copy of it: no other broker could disagree.
        """
        self._alone = alone
        self._registration_wait_s = registration_wait_s
        self._store = store
        self._catalog = catalog
        self._controller = controller
        self._broker: BrokerState = broker
        self._log = log
        self._record: RegistrationRecord = record or RegistrationRecord()
        self._keep = keep
        self._changed = asyncio.Event()
        self._registered: int | None = None
        """The session that this broker is registered with."""
        self._epoch = NO_BROKER_EPOCH
        """Of the last registration."""
        self._elected: Elected | None = None
        self._follows = False
        self._lost = False
        """Whether the session is over and no other has begun."""
        self._disowned = False
        """Whether other brokers know that the registration is over, and this one has yet to hear it from the store."""
        self._admitted = asyncio.Event()
        self.is_suspended = False
        """Whether the store cannot be reached: the session may be over without this broker's knowing it."""
        self.admitted_epoch = NO_BROKER_EPOCH
        """Of the registration with which this broker leads and follows; none while it is fenced."""
        self.on_admitted: Callable[[BrokerEpoch], None] = lambda _: None
        """Called when the image shows the admission of this broker, and with it every partition state of that time."""
        self.on_fenced: Callable[[], None] = lambda: None
        """Called when the session is lost, so that other brokers may lead what this one led."""

    async def join(self) -> bool:
        """Register, and become controller unless another broker is; whether this broker is the controller.

        Raises `StartRefused` or `StoreUnavailable`, and may then be called again.
        """
        if not self._follows:
            self._follows = True
            self._catalog.listen(self._follow)
            self._store.on_session(self._session_changed)
            self._controller.on_resigned = self._changed.set
        self._check_store()
        await self._settle()
        if self._registered != self._store.session or self._lost:
            raise StoreUnreachable("the session was lost while this broker registered")
        if self._controller.is_active:
            # A cluster's first broker admits itself; a failure is repeated by `run`.
            with suppress(BrokerError):
                await self._controller.reconcile()
            await self._see_admission()
        return self._controller.is_active

    async def run(self) -> None:
        """Follow the session and the controller's node, and act as controller where elected, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._controller.run())
            tasks.create_task(self._run())

    async def admitted(self) -> None:
        """Wait until this broker is admitted."""
        await self._admitted.wait()

    def may_propose(self) -> bool:
        """Whether this broker asks for changes of ISRs: not while its session may be over without its knowing it."""
        return self.admitted_epoch != NO_BROKER_EPOCH and not self.is_suspended

    def disowned(self, epoch: BrokerEpoch) -> None:
        """Another broker, which knew this broker's registration, says that it is over.

        Without the store this broker cannot tell whether it is cut off alone, and others lead what it led, or whether
        all brokers are: the others can. It serves nothing then, so that clients look for the new leaders.
        """
        if self.is_suspended and epoch == self.admitted_epoch:
            self._log.warning("registration_over", broker_epoch=epoch)
            self._disowned = True
            self._fence()

    async def _run(self) -> None:
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
        match event:
            case SessionEvent.SUSPENDED:
                self._suspend()
            case SessionEvent.RESUMED:
                self.is_suspended = self._controller.is_suspended = False
                self._changed.set()
            case SessionEvent.LOST:
                self._suspend()
                self._lost = True
                self._disowned = False
                self._fence()
                self._resign("session_lost")
            case SessionEvent.RENEWED:
                self.is_suspended = self._controller.is_suspended = self._lost = False
                self._changed.set()

    def _suspend(self) -> None:
        """Decide nothing as controller and propose nothing as leader: another may have been elected."""
        self.is_suspended = self._controller.is_suspended = True

    def _fence(self) -> None:
        """End what this broker does as leader and follower: other brokers may lead from now on."""
        self._admitted.clear()
        if self.admitted_epoch != NO_BROKER_EPOCH:
            self._log.warning("broker_fenced", broker_epoch=self.admitted_epoch)
            self.admitted_epoch = NO_BROKER_EPOCH
            self.on_fenced()

    def _resign(self, reason: str) -> None:
        self._elected = None
        if self._controller.is_active:
            self._controller.resign()
            self._log.warning("controller_resigned", reason=reason)

    async def _settle(self) -> None:
        if self._lost or (self._disowned and self.is_suspended):
            # The session that follows will settle it.
            return
        session = self._store.session
        self._check_version()
        if self._disowned:
            await self._withdraw()
        if self._registered == session and not self._is_registered():
            # A transaction of an earlier life, done late, deleted this registration or took its place.
            self._log.warning("registration_replaced", broker_epoch=self._epoch)
            self._fence()
            self._registered = None
        if self._registered != session:
            self._epoch = await self._register()
            await self._catalog.at_least(self._epoch)
            self._registered = session
        await self._see_admission()
        if self._controller.is_active:
            self._check_still_elected()
        controller = self._catalog.image.controller
        if self._controller.is_active or (controller is not None and controller.broker_id != self._broker.broker_id):
            return
        elected = await elect_controller(self._store, self._broker.broker_id, self._broker.versions)
        if elected is None:
            return
        # Its first decision must see all that was done before its election.
        await self._catalog.at_least(elected.number)
        if self._store.session == session and not self._lost:
            self._elected = elected
            self._controller.elected(elected.epoch_version)
            self._log.info("controller_elected", epoch_version=elected.epoch_version)

    def _check_version(self) -> None:
        """Do nothing in a cluster whose version this broker does not support."""
        try:
            check_supported(self._catalog.image.level, self._broker.versions)
        except StartRefused:
            self._fence()
            self._resign("version_not_supported")
            raise

    def _is_registered(self) -> bool:
        """Whether the image, which is not older than the registration, still has it."""
        broker = self._catalog.image.brokers.get(self._broker.broker_id)
        return broker is not None and broker.epoch == self._epoch

    async def _withdraw(self) -> None:
        """End a registration of this session: what this broker led in it may have had a change of ISR under way.

        It leads again in the leader epochs that come with another registration.
        """
        path = broker_path(self._broker.broker_id)
        node = await self._store.get(path)
        if node is not None and node.owner == self._store.session:
            try:
                with suppress(NoNode, BadVersion):
                    await self._store.multi([Delete(path, node.version)])
            except OutcomeUnknown:
                raise StoreUnreachable("the outcome of ending a registration is not known") from None
        self._registered = None
        self._disowned = False

    async def _register(self) -> BrokerEpoch:
        await self._check_admission()
        record = self._record
        epoch = await register(
            self._store,
            replace(self._broker, admitted_before=record.admitted_before, may_have_lost=record.may_have_lost),
            wait_s=self._registration_wait_s,
        )
        if self._is_comparable() and epoch <= record.admitted_before:
            raise self._store_went_back(f"its newest is {epoch}")
        self._log.info("broker_registered", broker_epoch=epoch, may_have_lost=record.may_have_lost)
        return epoch

    def _is_comparable(self) -> bool:
        """Whether the record is of this store: after an import, numbers begin again."""
        return not self._alone and self._record.store_id == self._catalog.image.store.store_id

    def _check_store(self) -> None:
        """Refuse a store that was restored from an older copy: it would assign epochs again that logs have.

        Also one that this broker has left: its metadata was imported into another, and what was done there is missing.
        """
        image = self._catalog.image
        if self._is_comparable() and self._catalog.number < self._record.admitted_before:
            raise self._store_went_back(f"its newest is {self._catalog.number}")
        admission = image.admissions.get(self._broker.broker_id)
        has_left = self._record.store_id not in ("", image.store.store_id)
        if self._alone and not self._record.store_imported:
            # A copy takes the place of a store that was empty meanwhile: nothing was brought there from this one.
            has_left = False
        if has_left and admission is not None and admission.epoch != NO_BROKER_EPOCH:
            raise StartRefused(
                f"broker {self._broker.broker_id} has been a member of this cluster in another metadata store since it "
                "left this one: what changed there is missing here. Start it with that store, or bring its metadata "
                "here with 'penstock metadata export' and 'import'"
            )

    async def _check_admission(self) -> None:
        """Refuse a store that lacks this broker's last admission, however many transactions it has done since.

        Before the broker registers there: the controller may admit it at once.
        """
        if not self._is_comparable() or self._record.admitted_before == NO_BROKER_EPOCH:
            return
        await self._store.sync()
        node = await self._store.get(admission_path(self._broker.broker_id))
        known = NO_BROKER_EPOCH
        if node is not None:
            known = unpack_admission(self._broker.broker_id, node.data, node.version).epoch
        if known < self._record.admitted_before:
            raise self._store_went_back(f"its last admission there is {known}")

    def _store_went_back(self, what: str) -> StartRefused:
        return StartRefused(
            f"the metadata store has gone back: this broker was admitted by its transaction "
            f"{self._record.admitted_before}, and {what}. It was restored from an older copy or lost "
            "its data; start on such metadata with 'penstock metadata import', which makes a store of its own"
        )

    async def _see_admission(self) -> None:
        """Act as leader and follower once the image shows this registration admitted."""
        image, broker_id, epoch = self._catalog.image, self._broker.broker_id, self._epoch
        if not self._is_current(epoch) or not image.is_live(broker_id) or image.brokers[broker_id].epoch != epoch:
            return
        if self.admitted_epoch == epoch:
            return
        record = self._record.admitted(epoch, image.store.store_id, store_imported=image.store.imported)
        try:
            # Before it acts: a later life that does not know this epoch counts as one that lost records.
            await self._keep(record)
        except OSError as error:
            self._log.warning("registration_not_recorded", reason=str(error))
        self._record = record
        if self._is_current(epoch):
            # From now on a registration is of the same process.
            self._broker = replace(self._broker, clean=True, kept=NOTHING_KEPT)
            self.admitted_epoch = epoch
            self._admitted.set()
            self._log.info("broker_admitted", broker_epoch=epoch)
            self.on_admitted(epoch)

    def _is_current(self, epoch: BrokerEpoch) -> bool:
        """Whether the registration of an epoch is that of the session that lives."""
        return (
            epoch != NO_BROKER_EPOCH
            and epoch == self._epoch
            and self._registered == self._store.session
            and not self._lost
            and not self._disowned
        )

    def _check_still_elected(self) -> None:
        if self._elected is None or self._catalog.number < self._elected.number:
            return
        if self._catalog.image.controller_id != self._broker.broker_id:
            self._resign("no_longer_in_the_metadata")
