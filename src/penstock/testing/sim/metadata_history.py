"""The history of a simulated cluster's metadata: every transaction of the store, judged and counted as it is done.

It knows what no broker has to know: who leads by the store's word, how often leaders and ISRs changed, and whether a
transaction broke a rule of the metadata. A client may ask it whether the broker of a response led at the time.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.config.replica import CORDONED_LOG_DIRS
from penstock.metadata import records
from penstock.metadata.nodes import Change, Changes
from penstock.metadata.records import Admission, BrokerState
from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import INTERNAL_TOPICS, NO_LEADER, LeaderRecoveryState, PartitionState
from penstock.testing.sim.recording import key_of
from penstock.testing.sim.store import SimStore

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

Place = tuple[TopicId, int]
"""A partition by topic id and index: a topic that is created again is another one."""


class Moment(StrEnum):
    """What happens in the metadata of a cluster, as far as a run counts it or a fault waits for it."""

    ELECTION = "elections"
    """A partition has another leader, or the same one in a new leader epoch."""
    ISR_CHANGE = "ISR changes"
    REGISTRATION = "registrations"
    RESTART_WITH_LOSS = "restarts with loss"
    """A broker registered that may have lost what it acknowledged, or has a new log directory."""
    COORDINATOR_MOVE = "coordinator moves"
    """Another broker leads a partition of an internal topic."""
    TAKE_OVER = "controller take-overs"
    """Another broker is controller."""
    REASSIGNMENT = "reassignments"
    """A partition has other replicas, and none of them is still to be added or removed."""
    CORDON = "cordons"
    """A broker gets no new replicas from then on."""
    RISKY_ELECTION = "elections with possible loss"
    """A leader was elected that was neither in the ISR nor eligible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """One change of a partition's leader or leader epoch."""

    at_s: float
    place: Place
    leader: BrokerId
    risky: bool


class MetadataHistory:
    """What the store of one simulation was told."""

    def __init__(self, store: SimStore, world: World) -> None:
        self._world = world
        self.counts: Counter[Moment] = Counter()
        self.findings: list[str] = []
        self.elections: list[Election] = []
        self.names: dict[TopicId, str] = {}
        """Of every topic that there ever was."""
        self.topics: dict[str, TopicId] = {}
        self.partitions: dict[Place, PartitionState] = {}
        self.brokers: dict[BrokerId, BrokerState] = {}
        self.admissions: dict[BrokerId, Admission] = {}
        self.controller: BrokerId | None = None
        """The broker that is, or was last, controller."""
        self._epoch_begun: dict[Place, int] = {}
        """The transaction in which each partition's leader epoch began."""
        self._doubtful: set[BrokerId] = set()
        """Brokers whose last admission was of a registration with possible loss."""
        self._unclean: set[TopicId] = set()
        """Topics that allow elections with loss while replicas with every record are away."""
        self._cordoned: set[str] = set()
        """Brokers that may get no new replica."""
        self._waiting: list[tuple[Moment, asyncio.Future[BrokerId]]] = []
        store.followers.append(self._follow)

    # What is true now

    def state(self, topic: str, index: int) -> PartitionState | None:
        """A partition of a topic that exists."""
        topic_id = self.topics.get(topic)
        return None if topic_id is None else self.partitions.get((topic_id, index))

    def existing(self) -> Iterator[tuple[str, PartitionState]]:
        """The partitions of all topics that exist, by name of the topic."""
        names = {topic_id: name for name, topic_id in self.topics.items()}
        for (topic_id, _), state in self.partitions.items():
            if topic_id in names:
                yield names[topic_id], state

    def unhealthy(self) -> list[str]:
        """The partitions that have no leader, replicas outside of the ISR, or a reassignment in progress.

        Those whose disks were all wiped are left out.
        """
        return [
            f"{name}-{state.index} (leader {state.leader}, ISR {list(state.isr)} of {list(state.replicas)}"
            f"{', being reassigned' if state.is_reassigning else ''})"
            for name, state in self.existing()
            if (state.leader == NO_LEADER or set(state.isr) != set(state.replicas) or state.is_reassigning)
            # It is offline until an operator decides.
            and not set(state.replicas) <= set(state.replaced_replicas)
        ]

    def risky(self) -> dict[str, float]:
        """When each partition last got a leader that was neither in the ISR nor eligible, by the history's name."""
        return {
            key_of(self.names[each.place[0]], each.place[1]): each.at_s
            for each in self.elections
            if each.risky and each.place[0] in self.names
        }

    def epochs_begun(self, topic: str, index: int) -> list[float]:
        """When a partition's leader epochs began, after its first."""
        return [
            each.at_s for each in self.elections if each.place[1] == index and self.names.get(each.place[0]) == topic
        ]

    async def next(self, moment: Moment, *, limit_s: float) -> BrokerId | None:
        """Wait for the next time that something happens: the broker that it is about, or None if it does not."""
        future: asyncio.Future[BrokerId] = asyncio.get_running_loop().create_future()
        waiting = (moment, future)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(limit_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._waiting.remove(waiting)

    # Following

    def _follow(self, done: Changes) -> None:
        admitted: list[BrokerId] = []
        for change in done.changes:
            parent = change.path.rpartition("/")[0]
            if parent == records.TOPICS:
                self._topic(change)
            elif parent == records.BROKERS:
                self._broker(change)
            elif parent == records.BROKER_CONFIGS:
                self._broker_configs(change)
            elif change.path == records.CONTROLLER and change.data is not None:
                self._elected(BrokerId(records.unpack_controller(change.data).broker_id))
        # Registrations and admissions first: a transaction may admit a broker and change its partitions.
        for change in done.changes:
            if change.path.rpartition("/")[0] == records.ADMISSIONS and change.data is not None:
                broker_id = BrokerId(int(records.last_name(change.path)))
                if self._admitted(broker_id, records.unpack_admission(broker_id, change.data, change.version)):
                    admitted.append(broker_id)
        for change in done.changes:
            if change.path.rpartition("/")[0] == records.PARTITIONS:
                self._partitions(done.number, change)
        for broker_id in admitted:
            self._check_admission(broker_id)

    def _broker_configs(self, change: Change) -> None:
        broker = records.last_name(change.path)
        settings: dict[str, str] = {} if change.data is None else json.loads(change.data)
        if settings.get(CORDONED_LOG_DIRS):
            self._count(Moment.CORDON, BrokerId(int(broker)))
            self._cordoned.add(broker)
        else:
            self._cordoned.discard(broker)

    def _partitions(self, number: int, change: Change) -> None:
        topic_id, chunk = records.chunk_of(change.path)
        if change.data is None:
            gone = [place for place in self.partitions if place[0] == topic_id]
            for place in gone:
                del self.partitions[place]
            return
        for state in records.unpack_partitions(change.data, chunk):
            self._partition(number, (topic_id, state.index), state)

    def _topic(self, change: Change) -> None:
        name = records.last_name(change.path)
        if change.data is None:
            self.topics.pop(name, None)
            return
        record = records.unpack_topic(change.data)
        topic_id = record.topic_id
        if record.configs.get("unclean.leader.election.enable") == "true":
            self._unclean.add(topic_id)
        self.topics[name] = topic_id
        self.names[topic_id] = name

    def _broker(self, change: Change) -> None:
        broker_id = BrokerId(int(records.last_name(change.path)))
        if change.data is None:
            self.brokers.pop(broker_id, None)
            return
        broker = records.unpack_broker(broker_id, change.data, change.created)
        known = self.brokers.get(broker_id)
        self.brokers[broker_id] = broker
        if known is not None and known.epoch == broker.epoch:
            return
        self._count(Moment.REGISTRATION, broker_id)
        if self._has_lost(broker):
            self._count(Moment.RESTART_WITH_LOSS, broker_id)

    def _has_lost(self, broker: BrokerState) -> bool:
        """Whether what a registration says, or does not say, makes the broker's logs doubtful."""
        before = self.admissions.get(broker.broker_id)
        return before is not None and (
            broker.may_have_lost
            or broker.admitted_before != before.epoch
            or not set(broker.directories) <= set(before.directories)
        )

    def _admitted(self, broker_id: BrokerId, admission: Admission) -> bool:
        """Whether another registration is admitted now."""
        broker, before = self.brokers.get(broker_id), self.admissions.get(broker_id)
        if before is not None and before.epoch == admission.epoch:
            self.admissions[broker_id] = admission
            return False
        if broker is not None and broker.epoch == admission.epoch and self._has_lost(broker):
            self._doubtful.add(broker_id)
        else:
            self._doubtful.discard(broker_id)
        if before is not None and admission.epoch < before.epoch:
            self._finding(f"broker {broker_id} was admitted with epoch {before.epoch}, then with {admission.epoch}")
        self.admissions[broker_id] = admission
        return True

    def _check_admission(self, broker_id: BrokerId) -> None:
        """What must be so before a broker may act again."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != self.admissions[broker_id].epoch:
            return
        for place, state in self.partitions.items():
            if len(state.replicas) < 2 or place[0] not in self.topics.values():
                continue
            # What is in another directory than those that may have lost records is not doubtful.
            doubtful = broker_id in self._doubtful and state.index not in broker.kept.get(place[0], ())
            if doubtful and broker_id in (*state.isr, *state.eligible_leader_replicas):
                self._finding(f"broker {broker_id} was admitted in the ISR or eligible set of {self._named(place)}")
            if state.leader == broker_id and self._epoch_begun[place] < broker.epoch:
                self._finding(f"broker {broker_id} was admitted and leads {self._named(place)} in its old epoch")

    def _elected(self, broker_id: BrokerId) -> None:
        if self.controller is not None and self.controller != broker_id:
            self._count(Moment.TAKE_OVER, broker_id)
        self.controller = broker_id

    def _partition(self, number: int, place: Place, after: PartitionState) -> None:
        before = self.partitions.get(place)
        if before == after:
            return
        self.partitions[place] = after
        self._check_state(place, after)
        added = set(after.replicas) - set(() if before is None else before.replicas)
        if placed := [each for each in sorted(added) if str(each) in self._cordoned]:
            self._finding(f"{self._named(place)} got replicas on cordoned brokers {placed}: {before} to {after}")
        if before is None:
            self._epoch_begun[place] = number
            return
        self._check_change(place, before, after)
        if before.is_reassigning and not after.is_reassigning:
            self._count(Moment.REASSIGNMENT, after.leader)
        if set(before.isr) != set(after.isr):
            self._count(Moment.ISR_CHANGE, after.leader)
        if after.leader_epoch != before.leader_epoch:
            self._epoch_begun[place] = number
            if after.leader != NO_LEADER:
                self._election(place, before, after)

    def _election(self, place: Place, before: PartitionState, after: PartitionState) -> None:
        holders = {*before.isr, *before.eligible_leader_replicas}
        if before.is_ghost:
            # It had no records, so every new replica has all of them.
            holders |= set(after.isr)
        if before.is_reassigning and not after.is_reassigning and before.leader != NO_LEADER:
            # The leader's proposal that completes a reassignment may make its new member the leader.
            holders |= set(after.isr)
        risky = after.leader not in holders
        self.elections.append(Election(at_s=self._world.now, place=place, leader=after.leader, risky=risky))
        self._count(Moment.ELECTION, after.leader)
        if risky:
            self._count(Moment.RISKY_ELECTION, after.leader)
            if (before.isr or before.eligible_leader_replicas) and place[0] not in self._unclean:
                self._finding(f"{self._named(place)} has replicas with every record, and elected another: {after}")
            if after.leader_recovery_state is LeaderRecoveryState.RECOVERED:
                self._finding(f"{self._named(place)} had an election with possible loss that does not say so: {after}")
            self._world.trace.line(f"risky election of {after.leader} in {self._named(place)}: {before} to {after}")
        last = before.leader if before.leader != NO_LEADER else before.last_known_leader
        if self.names.get(place[0]) in INTERNAL_TOPICS and last != after.leader:
            self._count(Moment.COORDINATOR_MOVE, after.leader)
        if len(after.replicas) > 1 and after.leader not in self.admissions:
            self._finding(f"{self._named(place)} has leader {after.leader}, which was never admitted")

    def _check_state(self, place: Place, state: PartitionState) -> None:
        if not set(state.isr) <= set(state.replicas):
            self._finding(f"the ISR of {self._named(place)} has brokers that are no replicas: {state}")
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self._finding(f"the leader of {self._named(place)} is not in the ISR: {state}")
        others = {*state.eligible_leader_replicas, *state.adding_replicas, *state.removing_replicas}
        if not others <= set(state.replicas):
            self._finding(f"{self._named(place)} names brokers that are no replicas: {state}")

    def _check_change(self, place: Place, before: PartitionState, after: PartitionState) -> None:
        name = self._named(place)
        if after.partition_epoch <= before.partition_epoch:
            self._finding(f"{name} changed without a new partition epoch: {before} to {after}")
        if after.leader_epoch < before.leader_epoch:
            self._finding(f"the leader epoch of {name} went back: {before} to {after}")
        if after.leader not in (before.leader, NO_LEADER) and after.leader_epoch == before.leader_epoch:
            self._finding(f"{name} has another leader in the same epoch: {before} to {after}")

        removed = set(before.replicas) - set(after.replicas)
        if removed and after.leader_epoch == before.leader_epoch:
            self._finding(f"{name} lost replicas {sorted(removed)} without a new leader epoch: {before} to {after}")
        if removed and len(after.isr) < min(len(set(before.isr) - removed), after.in_sync_needed(after.in_sync_min)):
            self._finding(f"{name} lost replicas {sorted(removed)} with others of its ISR: {before} to {after}")

    def _named(self, place: Place) -> str:
        return f"{self.names.get(place[0], place[0].hex())}-{place[1]}"

    def _finding(self, text: str) -> None:
        self.findings.append(text)
        self._world.trace.line(f"FINDING: {text}")

    def _count(self, moment: Moment, broker_id: BrokerId) -> None:
        self.counts[moment] += 1
        for wanted, future in self._waiting:
            if wanted is moment and not future.done():
                future.set_result(broker_id)
