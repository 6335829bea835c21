"""The controller: the only writer of the cluster's metadata.

It decides with its planners (`topics`, `configs`, `quotas`, `brokers`, `elections`, `reassignments`), writes what they
plan, in as few transactions as the store allows, and responds when they are durable and this broker has acted on them.
Beside requests it reconciles: whenever brokers come or go it plans from the image what the metadata should be, until
nothing is left.

The outcome of a transaction may be unknown. Then the controller reads back and decides (`outcomes`): one that is not
done is voided by another in its place before the plan is tried again, so it cannot be done later. Where the store
cannot be read either, the request fails with REQUEST_TIMED_OUT, and the transaction can only be done before the
controller's next one, which finds out and plans again.

While the session with the store is suspended, another broker may be controller. A request waits for the end of that,
and is then refused with NOT_CONTROLLER, which clients retry: nothing of it was written, and nothing will be.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count, islice
from typing import TypeVar, assert_never

from penstock.config.broker import BrokerConfig
from penstock.controller.auto_balance import plan_balance_step
from penstock.controller.brokers import Settlement, brokers_of, plan_settlement, plan_stop
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step, plan_config_changes
from penstock.controller.elections import LogEnd, Risk
from penstock.controller.isr import IsrChange, check_broker_epoch, plan_isr_changes, shows_newer
from penstock.controller.leaders import (
    Election,
    LogEnds,
    at_risk,
    elect_at_risk,
    elect_preferred,
    elect_uncleanly,
    leave_isr,
    not_preferred,
    plan_elections,
    plan_unregistration,
)
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
from penstock.controller.reassignments import Reassignment, plan_reassignments
from penstock.controller.topics import (
    IN_SYNC_MIN,
    Growth,
    NewTopic,
    check_total,
    orphan_steps,
    partitions_asked,
    plan_creations,
    plan_deletions,
    plan_growths,
)
from penstock.controller.versions import plan_version_change
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import ImageDelta, MetadataImage, TopicChange
from penstock.metadata.operations import Operation, Set
from penstock.metadata.records import ALL_BROKERS, CHANGES, CONTROLLER_EPOCH, PRODUCER_IDS
from penstock.metadata.store import MetadataStore, OutcomeUnknown, StoreFault, StoreUnavailable, StoreUnreachable
from penstock.model.clock import Randomness
from penstock.model.cluster_versions import SUPPORTED, UpgradeType, VersionRange
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotController, RequestTimedOut
from penstock.model.ids import BrokerEpoch, BrokerId, TopicId, TopicPartition
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState, TopicState
from penstock.observe.log import Logger, logger
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

SUSPENSION_WAIT_MS = 10_000
"""How long a request waits at most for a suspended session to go on; shorter than the patience of any client."""

IMAGE_WAIT_S = 10.0
"""How long a change that is done waits until this broker's image has it."""

RECONCILE_ROUNDS_MAX = 20
"""Plans in a row before requests have their turn: an admission leads to elections, and these to nothing."""

RECONCILE_RETRY_S = 0.5
"""After the metadata store refused or failed."""

AT_RISK_RETRY_S = 1.0
AT_RISK_ROUNDS_MAX = 10
"""How often live replicas are asked how far their logs go, before the longest of those that responded is elected."""

ASK_TIMEOUT_S = 2.0
"""For a broker's response how far its logs go: partitions without a leader wait for it."""

PREFERRED_AT_ONCE_MAX = 1_000
"""Leaderships given back in one interval."""

AUTO_BALANCE_STEP_S = 1.0
"""How often a step of the balance is looked at until it is complete and the next one follows."""

ABSENT_LOOKS_MAX = 60
"""After so many looks at a step, `AUTO_BALANCE_STEP_S` apart, its moves to a broker that is away are cancelled."""

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
        log: Logger | None = None,
        in_sync_min: int | None = None,
        supported: VersionRange = SUPPORTED,
    ) -> None:
        """`config` returns the broker's current settings: some change while it runs.

        `in_sync_min` is the min.insync.replicas of a cluster that has none yet. `supported` are the versions of a
        cluster that this broker can be controller of.

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
        self._log = log or logger("controller")
        self._in_sync_min = in_sync_min
        self._supported = supported
        self._is_suspended = False
        self._undoubted = asyncio.Event()
        """Set while this broker knows whether it is the controller."""
        self._undoubted.set()
        self._unknown: Sent | None = None
        """A transaction that is under way, or whose outcome could not be found out, or that the image does not have."""
        # A plan is valid for the image it was made from, so the next plan waits for the previous transaction.
        self._turn = asyncio.Lock()
        self._work = asyncio.Event()
        self.ask_log_ends: AskLogEnds = no_log_ends
        """Asks a broker how far its logs of some partitions go; set by the part that reaches other brokers."""
        self._at_risk: dict[TopicPartition, int] = {}
        """Partitions that wait for a live replica to respond how far its log goes, and for how many rounds."""
        self._balance_due = asyncio.Event()
        """Set when brokers or settings change: a new broker need not wait for its share."""
        self._balanced: list[TopicPartition] = []
        """Moved by the last step of the balance: their preferred leaders are elected when it is complete."""
        self._absent: dict[TopicPartition, int] = {}
        """Partitions of that step that go to a broker which is away, and how often in a row that was seen."""
        self._balanced_at: int | None = None
        """The version of the metadata of which a plan of the balance found nothing to move. Where racks keep brokers
        uneven, such a plan takes longest."""
        self.elections = 0
        self.unclean_elections = 0
        """Leaders elected by this broker, and those of them that may lack committed records."""
        catalog.listen(self._follow)

    def elected(self, epoch_version: int) -> None:
        """Write from now on, with the version of the controller epoch that this broker won."""
        self._epoch_version = epoch_version
        self._unknown = None
        self._wake_requests()
        self._work.set()

    def resign(self) -> None:
        """Write nothing more until the next election."""
        self._epoch_version = None
        self._unknown = None
        self._wake_requests()
        self.on_resigned()

    @property
    def is_suspended(self) -> bool:
        """Whether the store cannot be reached: another broker may be controller, so this one decides nothing."""
        return self._is_suspended

    @is_suspended.setter
    def is_suspended(self, value: bool) -> None:
        self._is_suspended = value
        self._wake_requests()

    def _wake_requests(self) -> None:
        if self._is_suspended and self.is_active:
            self._undoubted.clear()
        else:
            self._undoubted.set()

    @property
    def is_active(self) -> bool:
        """Whether this broker was elected and has not resigned."""
        return self._epoch_version is not None

    @property
    def image(self) -> MetadataImage:
        return self._catalog.image

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, wait_ms: int = SUSPENSION_WAIT_MS
    ) -> tuple[TopicState | BrokerError, ...]:
        """Create topics. An invalid topic does not affect the others; a raised `BrokerError` fails all of them.

        Here and below, `wait_ms` bounds the wait for a session that is suspended.
        """
        config = self._config()
        check_total(partitions_asked(topic, config) for topic in topics)

        def plan(some: Sequence[NewTopic]) -> Plan[TopicState]:
            return plan_creations(
                self.image,
                some,
                config=self._config(),
                make_id=self._randomness.uuid_bytes,
                first=self._first_place(),
            )

        return await self._carry_out_in_parts(topics, plan, validate_only=validate_only, wait_ms=wait_ms)

    def _first_place(self) -> int:
        """Where placement begins: at any broker as leader, with any other next to it.

        Else all topics with fewer partitions than there are brokers would have the same neighbours, and two of them
        would lead all that a lost broker led.
        """
        live = len(self.image.live_brokers())
        return self._randomness.below(max(live * (live - 1), 1))

    async def delete_topics(
        self, topics: Sequence[str | TopicId], *, wait_ms: int = SUSPENSION_WAIT_MS
    ) -> tuple[TopicState | BrokerError, ...]:
        """Delete topics by name or id; the outcome is the deleted topic."""
        return await self._carry_out_in_parts(
            topics, lambda some: plan_deletions(self.image, some, config=self._config()), wait_ms=wait_ms
        )

    async def grow_topics(
        self, growths: Sequence[Growth], *, validate_only: bool = False, wait_ms: int = SUSPENSION_WAIT_MS
    ) -> tuple[TopicState | BrokerError, ...]:
        """Give topics more partitions."""

        def plan(some: Sequence[Growth]) -> Plan[TopicState]:
            return plan_growths(self.image, some, first=self._first_place())

        return await self._carry_out_in_parts(growths, plan, validate_only=validate_only, wait_ms=wait_ms)

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

    async def change_version(self, wanted: int, *, upgrade_type: UpgradeType, validate_only: bool = False) -> None:
        """Finalize a version of the cluster; raises `InvalidUpdateVersion` where that would exclude a member of it."""

        def plan() -> Plan[int]:
            return plan_version_change(self.image, wanted, upgrade_type=upgrade_type, supported=self._supported)

        await self.confirm()
        before = self.image.level
        await self._carry_out(plan, validate_only=validate_only)
        if self.image.level != before:
            self._log.info("cluster_version_finalized", version=self.image.level, before=before)

    # Replicas

    async def alter_partitions(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch, changes: Sequence[IsrChange]
    ) -> tuple[PartitionState | BrokerError, ...]:
        """Write the ISRs that a leader proposes; raises `StaleBrokerEpoch` for a former life of it.

        Only the outcome IneligibleReplica means that the proposal is not written and never will be.
        """

        async def plan() -> Plan[PartitionState]:
            if shows_newer(self.image, changes):
                await self._catch_up()
            return plan_isr_changes(self.image, broker_id, broker_epoch, changes)

        async with self._deciding():
            return await self._settled(plan)

    async def shut_down(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Move leaders away from a broker that wants to stop; whether it may stop now.

        It leaves every ISR that has another live member. What only it could lead stays with it until it is gone.
        """

        async def plan() -> Plan[None]:
            check_broker_epoch(self.image, broker_id, broker_epoch)
            return plan_stop(self.image, broker_id)

        async with self._deciding():
            await self._settled(plan)
            self._log.info("broker_stopping", broker=broker_id, broker_epoch=broker_epoch)
        await self.reconcile()
        return True

    async def replicas_failed(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        keep_records: bool,
    ) -> None:
        """Take replicas whose logs failed on a live broker out of their ISRs; others lead what they led.

        Those that `keep_records` cannot be used, and are not damaged.
        """

        def plan(some: Sequence[TopicPartition]) -> Plan[PartitionState]:
            check_broker_epoch(self.image, broker_id, broker_epoch)
            decide = leave_isr(brokers_of(self.image), broker_id, keeps_records=keep_records)
            return plan_elections(self.image, some, decide)

        outcomes = await self._carry_out_in_parts(partitions, plan)
        left = sum(isinstance(each, PartitionState) for each in outcomes)
        if left:
            self._log.warning("replicas_failed", broker=broker_id, partitions=left)
            self._work.set()

    async def reassign(
        self, wanted: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> tuple[PartitionState | BrokerError, ...]:
        """Begin or cancel reassignments of partitions; one that needs no copy is complete when this returns."""

        def plan(some: Sequence[Reassignment]) -> Plan[PartitionState]:
            return plan_reassignments(
                self.image,
                some,
                brokers=brokers_of(self.image),
                allow_factor_change=allow_factor_change,
                unclean_by_default=self._config().unclean_leader_election_enable,
            )

        outcomes = await self._carry_out_in_parts(wanted, plan)
        if any(isinstance(each, PartitionState) and each.leader == NO_LEADER for each in outcomes):
            self._work.set()
        return outcomes

    async def elect_leaders(
        self, election: Election, partitions: Sequence[TopicPartition]
    ) -> tuple[PartitionState | BrokerError, ...]:
        """Elect preferred leaders, or by an operator's order any leaders; the outcome is ElectionNotNeeded where there
        is one already."""
        ends: LogEnds = {}
        if election is Election.UNCLEAN:
            ends = await self._log_ends(partitions)

        def plan(some: Sequence[TopicPartition]) -> Plan[PartitionState]:
            brokers = brokers_of(self.image)
            decide = elect_preferred(brokers) if election is Election.PREFERRED else elect_uncleanly(brokers, ends)
            return plan_elections(self.image, some, decide)

        outcomes = await self._carry_out_in_parts(partitions, plan)
        self._count_elections(zip(partitions, outcomes, strict=True), "ordered by an operator")
        return outcomes

    async def elect_at_risk(self) -> bool:
        """Elect leaders where no replica is known to have every committed record, and report each as possible loss.

        Waits for the responses of all live replicas, for some rounds; False where it has to be called again.
        """
        unclean = self._config().unclean_leader_election_enable
        risks = at_risk(self.image, unclean_by_default=unclean)
        if not risks:
            self._at_risk.clear()
            return True
        ends = await self._log_ends(list(risks))
        silent = [tp for tp in risks if any((tp, each) not in ends for each in self._live_replicas(tp))]
        self._at_risk = {tp: self._at_risk.get(tp, 0) + 1 for tp in silent}
        partitions = [tp for tp in risks if self._at_risk.get(tp, AT_RISK_ROUNDS_MAX) >= AT_RISK_ROUNDS_MAX]

        def plan(some: Sequence[TopicPartition]) -> Plan[PartitionState]:
            brokers = brokers_of(self.image)
            decide = elect_at_risk(self.image, brokers, ends, unclean_by_default=unclean)
            return plan_elections(self.image, some, decide)

        outcomes = await self._carry_out_in_parts(partitions, plan)
        for risk in Risk:
            some = [(tp, each) for tp, each in zip(partitions, outcomes, strict=True) if risks[tp] is risk]
            self._count_elections(some, risk.value)
        return len(partitions) == len(risks) and not any(isinstance(each, BrokerError) for each in outcomes)

    async def unregister_broker(self, broker_id: BrokerId) -> None:
        """Forget a broker that is gone and will not return."""
        await self._carry_out(lambda: plan_unregistration(self.image, broker_id))
        self._work.set()

    async def _log_ends(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        """How far the logs of the live replicas of some partitions go; those that do not respond are left out."""
        wanted: dict[BrokerId, list[TopicPartition]] = {}
        for tp in partitions:
            for replica in self._live_replicas(tp):
                wanted.setdefault(replica, []).append(tp)
        found: dict[tuple[TopicPartition, BrokerId], LogEnd] = {}
        responses = await asyncio.gather(*(self._ask_in_time(broker, tps) for broker, tps in wanted.items()))
        for broker, ends in zip(wanted, responses, strict=True):
            found |= {(tp, broker): end for tp, end in ends.items()}
        return found

    async def _ask_in_time(
        self, broker: BrokerId, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd]:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                return await self.ask_log_ends(broker, partitions)
        except TimeoutError:
            return {}

    def _live_replicas(self, tp: TopicPartition) -> list[BrokerId]:
        topic = self.image.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return []
        return [replica for replica in topic.partitions[tp.partition].replicas if self.image.is_live(replica)]

    def _count_elections(
        self, outcomes: Iterable[tuple[TopicPartition, PartitionState | BrokerError]], why: str
    ) -> None:
        for tp, outcome in outcomes:
            if isinstance(outcome, PartitionState):
                self.elections += 1
                if outcome.leader_recovery_state is LeaderRecoveryState.RECOVERING:
                    self.unclean_elections += 1
                    self._log.error(
                        "election_may_have_lost_records",
                        partition=str(tp),
                        why=why,
                        leader=outcome.leader,
                        leader_epoch=outcome.leader_epoch,
                    )

    # Reconciling

    def _follow(self, delta: ImageDelta) -> None:
        """Reconcile after every change that a state of a partition may depend on."""
        if self.is_active:
            self._log_reassignments(delta)
        if delta.brokers or delta.broker_configs:
            self._balanced_at = None
            self._balance_due.set()
        if delta.brokers or delta.broker_configs or any(is_reconfigured(change) for change in delta.topics):
            self._work.set()

    def _log_reassignments(self, delta: ImageDelta) -> None:
        for change in delta.topics:
            if change.before is None or change.after is None or change.before.topic_id != change.after.topic_id:
                continue
            for was, now in zip(change.before.partitions, change.after.partitions, strict=False):
                if was.replicas != now.replicas or was.is_reassigning != now.is_reassigning:
                    self._log.info(
                        "reassignment_in_progress" if now.is_reassigning else "reassignment_ended",
                        partition=f"{change.after.name}-{now.index}",
                        replicas=list(now.replicas),
                        before=list(was.replicas),
                        adding=list(now.adding_replicas),
                        removing=list(now.removing_replicas),
                        leader=now.leader,
                        leader_epoch=now.leader_epoch,
                    )

    async def run(self) -> None:
        """Do the controller's work whenever there may be some and this broker is the controller, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_reconciliation())
            tasks.create_task(self._run_leader_balance())
            tasks.create_task(self._run_balance())

    async def _run_balance(self) -> None:
        """Move replicas to brokers that have fewer than others, a step at a time, if `auto.balance` is on."""
        under_way = False
        while True:
            pause_s = AUTO_BALANCE_STEP_S if under_way else self._config().auto_balance_check_interval_seconds
            await in_time(self._balance_due.wait(), pause_s)
            self._balance_due.clear()
            under_way = False
            if not self.is_active or not self._config().auto_balance:
                continue
            try:
                under_way = await self.balance_step()
            except BrokerError as error:
                self._log.warning("balance_failed", reason=str(error))

    async def balance_step(self) -> bool:
        """Begin the next reassignments of the balance; whether there is more to do, now or once they are complete."""
        if any(state.is_reassigning for topic in self.image.topics.values() for state in topic.partitions):
            await self._cancel_stuck_balance()
            return True
        self._absent.clear()
        moved, self._balanced = self._balanced, []
        if moved:
            await self.elect_leaders(Election.PREFERRED, moved)
        if self._balanced_at == self.image.changes_version:
            return False
        wanted = plan_balance_step(self.image)
        if not wanted:
            self._balanced_at = self.image.changes_version
            return False
        outcomes = await self.reassign(wanted, allow_factor_change=False)
        self._balanced = [
            one.tp for one, each in zip(wanted, outcomes, strict=True) if isinstance(each, PartitionState)
        ]
        self._log.info("balance_step", partitions=len(self._balanced), refused=len(wanted) - len(self._balanced))
        return bool(self._balanced)

    async def _cancel_stuck_balance(self) -> None:
        """Cancel moves of the last step to a broker that has been away for long.

        Only of a step that this controller began: an operator's reassignment may wait for the broker.
        """
        topics = self.image.topics
        away = [
            tp
            for tp in self._balanced
            if tp.topic in topics
            and tp.partition < len(topics[tp.topic].partitions)
            and not all(map(self.image.is_live, topics[tp.topic].partitions[tp.partition].adding_replicas))
        ]
        self._absent = {tp: self._absent.get(tp, 0) + 1 for tp in away}
        stuck = [tp for tp, looks in self._absent.items() if looks >= ABSENT_LOOKS_MAX]
        if stuck:
            outcomes = await self.reassign([Reassignment(tp=tp, replicas=None) for tp in stuck])
            cancelled = sum(isinstance(each, PartitionState) for each in outcomes)
            self._balanced = [tp for tp in self._balanced if tp not in stuck]
            self._log.warning("balance_step_cancelled", partitions=cancelled, hint="the broker they go to is away")

    async def _run_leader_balance(self) -> None:
        """Give leaderships back to preferred replicas, from time to time."""
        while True:
            await asyncio.sleep(self._config().leader_imbalance_check_interval_seconds)
            if self.is_active and self._config().auto_leader_rebalance_enable:
                away = not_preferred(self.image, brokers_of(self.image))
                partitions = list(islice(away, PREFERRED_AT_ONCE_MAX))
                try:
                    if partitions:
                        await self.elect_leaders(Election.PREFERRED, partitions)
                        self._log.info("preferred_leaders_elected", partitions=len(partitions))
                except BrokerError as error:
                    self._log.warning("preferred_leaders_not_elected", reason=str(error))

    async def _run_reconciliation(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            if not self.is_active:
                continue
            try:
                await self._settle_in_sync_min()
                await self.reconcile()
                if not await self.elect_at_risk():
                    asyncio.get_running_loop().call_later(AT_RISK_RETRY_S, self._work.set)
            except BrokerError as error:
                if self._epoch_version is None:
                    # It has resigned, and another controller does the rest.
                    continue
                self._log.warning("reconciliation_failed", reason=str(error), retry_s=RECONCILE_RETRY_S)
                await asyncio.sleep(RECONCILE_RETRY_S)
                self._work.set()

    async def _settle_in_sync_min(self) -> None:
        """Give the cluster a min.insync.replicas, if this broker's own settings have one and the cluster's have none.

        It is the cluster's from then on: the files of brokers may differ, and partitions have one minimum.
        """
        known = self.image.broker_settings(ALL_BROKERS)
        if self._in_sync_min is not None and IN_SYNC_MIN not in known:
            step = SettingStep(name=IN_SYNC_MIN, step=Step.SET, value=str(self._in_sync_min))
            change = ConfigChange(resource_type=ResourceType.BROKER, name="", steps=(step,))
            [outcome] = await self.change_configs([change])
            self._log.info(
                "min_insync_replicas_set", value=self._in_sync_min, done=not isinstance(outcome, BrokerError)
            )

    async def reconcile(self) -> None:
        """Write what follows from the brokers in the image: ISRs without the dead, leaders, admissions.

        Returns when nothing is left to write, or after many rounds, with the rest to be done by `run`.
        """
        for _ in range(RECONCILE_ROUNDS_MAX):
            async with self._deciding():
                settlement = plan_settlement(self.image)
                if not settlement.steps:
                    return
                try:
                    await self._write(settlement.steps, resumable=True)
                except ImageBehind:
                    await self._catch_up()
                    continue
            self._report(settlement)
        self._work.set()

    def _report(self, settlement: Settlement) -> None:
        for broker in settlement.admitted:
            self._log.info("registration_admitted", broker=broker.broker_id, broker_epoch=broker.epoch)
        changes = settlement.changes
        if changes:
            elections = [each for each in changes if each.after.leader_epoch > each.before.leader_epoch]
            self.elections += sum(each.after.leader != NO_LEADER for each in elections)
            self._log.info(
                "partitions_reconciled",
                partitions=len(changes),
                elections=sum(each.after.leader != NO_LEADER for each in elections),
                without_leader=sum(each.after.leader == NO_LEADER for each in elections),
                isr_changes=sum(each.after.isr != each.before.isr for each in changes),
            )

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

        async with self._deciding():
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
        wait_ms: int = SUSPENSION_WAIT_MS,
    ) -> tuple[Outcome | BrokerError, ...]:
        """Carry out many independent changes, some at a time, so that other requests are not blocked."""
        outcomes: list[Outcome | BrokerError] = []
        for first in range(0, len(wanted), CHANGES_AT_ONCE_MAX):
            some = wanted[first : first + CHANGES_AT_ONCE_MAX]
            try:
                done = await self._carry_out(
                    partial(make_plan, some), validate_only=validate_only, wait_ms=0 if first else wait_ms
                )
            except BrokerError as error:
                if not first:
                    raise
                return (*outcomes, *[error] * (len(wanted) - first))
            outcomes += done
            if first + len(some) < len(wanted):
                await asyncio.sleep(0)
        return tuple(outcomes)

    async def _carry_out(
        self,
        make_plan: Callable[[], Plan[Outcome]],
        *,
        validate_only: bool = False,
        wait_ms: int = SUSPENSION_WAIT_MS,
    ) -> tuple[Outcome | BrokerError, ...]:
        async def plan() -> Plan[Outcome]:
            return make_plan()

        await self._session_settled(wait_ms)
        async with self._deciding():
            if validate_only:
                return make_plan().outcomes
            return await self._settled(plan)

    async def _settled(self, make_plan: Callable[[], Awaitable[Plan[Outcome]]]) -> tuple[Outcome | BrokerError, ...]:
        """Write a plan; plan again if the image it was planned from is behind.

        A refusal is written nowhere, so it is made only after a look at the store: another broker may be controller,
        and know what this one does not.
        """
        confirmed = False
        for _ in range(ATTEMPTS_MAX):
            plan = await make_plan()
            if not confirmed and any(isinstance(each, BrokerError) for each in plan.outcomes):
                await self._confirm()
                confirmed = True
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

    async def confirm(self) -> None:
        """Bring the image up to date; raises where this broker is not the controller, or cannot find out."""
        await self._session_settled()
        async with self._deciding():
            await self._confirm()

    async def _session_settled(self, wait_ms: int = SUSPENSION_WAIT_MS) -> None:
        """Wait for the end of a suspension: the session goes on, or this broker learns that it is not controller."""
        if not self._undoubted.is_set() and wait_ms > 0:
            await in_time(self._undoubted.wait(), min(wait_ms, SUSPENSION_WAIT_MS) / 1000)

    @asynccontextmanager
    async def _deciding(self) -> AsyncGenerator[None]:
        """Decide alone, with every earlier outcome known.

        A decision that the store could not be reached for was not written: the next controller has to make it.
        """
        async with self._turn:
            try:
                await self._find_out_unknown()
                yield
            except StoreUnreachable as error:
                raise NotController(f"the metadata store cannot be reached: {error}") from error

    async def _confirm(self) -> None:
        await self._catch_up()
        node = await self._store.get(CONTROLLER_EPOCH)
        if node is None or node.version != self._epoch_version:
            self.resign()
            raise NotController()

    async def _sweep(self) -> None:
        """Remove what an earlier plan left that stopped half-way; the request that is done does not depend on it."""
        steps = orphan_steps(self.image)
        if steps:
            with suppress(BrokerError, ImageBehind):
                await self._write(steps)

    async def _find_out_unknown(self) -> None:
        """Settle an earlier transaction of unknown outcome before anything is decided or responded.

        A refusal that is planned without it would contradict it if it is done later. Raises where it stays unknown,
        and where this broker is not the controller: its image may be behind, so it does not even refuse a request.
        """
        if not self.is_active:
            raise NotController()
        if self.is_suspended:
            raise StoreUnreachable("the session with the metadata store is suspended")
        if self._unknown is not None:
            number = await self._found_out(self._unknown)
            if number is not None:
                await self._follow_to(number)
            self._unknown = None

    async def _write(self, steps: Sequence[PlanStep], *, resumable: bool = False) -> None:
        """Write a plan's transactions one after the other; each holds only while this broker is the controller.

        A plan that is `resumable` may be made again when some of it is done. Of any other that stops half-way nothing
        is claimed: a plan made again would find its own traces, and a refusal would say that nothing was done.
        """
        first = True
        for operations in transactions(
            steps,
            operations_max=self._store.operations_max - FENCE_OPERATIONS,
            bytes_max=self._store.bytes_max - FENCE_BYTES,
        ):
            try:
                await self._commit(operations)
            except (ImageBehind, BrokerError) as error:
                if first or resumable:
                    raise
                raise RequestTimedOut("a part of the change is done, and the rest is not") from error
            first = False

    async def _commit(self, operations: Sequence[Operation]) -> None:
        """Do one transaction and wait until the image has it."""
        for _ in range(ATTEMPTS_MAX):
            sent = Sent(mark=self._mark(), expected=self.image.changes_version)
            self._unknown = sent
            try:
                number: int | None = await self._send(sent, operations)
            except OutcomeUnknown:
                try:
                    number = await self._found_out(sent)
                except NotController as error:
                    # Its successor's transactions hide whether it is done.
                    raise RequestTimedOut("the outcome of the change in the metadata store is unknown") from error
            except (BrokerError, ImageBehind):
                # It is not done.
                self._unknown = None
                raise
            if number is not None:
                await self._follow_to(number)
            self._unknown = None
            if number is not None:
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
                await self._follow_to(number)
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
        await self._follow_to(snapshot.number)

    async def _follow_to(self, number: int) -> None:
        """Wait until the image has a transaction. The store may have become unreachable since it was done."""
        try:
            followed = await in_time(self._catalog.at_least(number), IMAGE_WAIT_S)
        except StoreUnavailable:
            followed = False
        if not followed:
            raise RequestTimedOut("the metadata of this broker does not follow its store")

    def _mark(self) -> bytes:
        """Unlike that of any other transaction, of this or another controller."""
        return b"%d.%d" % (-1 if self._epoch_version is None else self._epoch_version, next(self._marks))


async def in_time(work: Awaitable[object], seconds: float) -> bool:
    """Whether something is done in time; raises what it raises. Needs no task, as `asyncio.timeout` does."""
    waiting = asyncio.ensure_future(work)
    try:
        await asyncio.wait((waiting,), timeout=seconds)
    finally:
        if not waiting.cancel() and not waiting.cancelled():
            # Its failure is not reported as one that nobody noticed, also where this is cancelled at the same time.
            waiting.exception()
    if waiting.cancelled() or not waiting.done():
        return False
    waiting.result()
    return True


AskLogEnds = Callable[[BrokerId, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, LogEnd]]]


async def no_log_ends(_: BrokerId, __: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
    """No broker can be asked."""
    return {}


def is_reconfigured(change: TopicChange) -> bool:
    """Whether a topic has other settings. A new one agrees with the brokers that were live when it was planned."""
    before, after = change.before, change.after
    return before is not None and after is not None and before.configs != after.configs


class ImageBehind(Exception):
    """A plan was refused because its image is older than the store."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index
