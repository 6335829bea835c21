"""Rules of clusters, each with a way to take it out: the simulator must notice that it is missing.

The model of replication (`penstock.testing.model`) has further ones, whose absence needs rarer schedules to show.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.controller import brokers as broker_rules
from penstock.controller import elections
from penstock.controller import leaders as leader_plans
from penstock.controller import reassignments as reassignment_plans
from penstock.controller import topics as topic_plans
from penstock.controller.elections import Brokers
from penstock.coordinator.context import CoordinatorContext
from penstock.coordinator.runtime import CoordinatorRuntime
from penstock.metadata.image import MetadataImage
from penstock.model.ids import BrokerId
from penstock.model.topic import PartitionState
from penstock.partition.follower import Follower
from penstock.partition.leader import Leader
from penstock.partition.replica import Replica
from penstock.partition.results import Fetched
from penstock.testing.sim.ablations import Ablation, replaced


@contextmanager
def epochs_of_lives() -> Generator[None]:
    """A broker that returns leads on in the leader epochs of its former life."""
    with_leader = elections.__dict__["_with_leader"]

    def keep(state: PartitionState, before: PartitionState, brokers: Brokers) -> PartitionState:
        if state.leader in brokers.fenced:
            return state
        kept: PartitionState = with_leader(state, before, brokers)
        return kept

    with replaced(elections, "_with_leader", keep):
        yield


@contextmanager
def unsafe_brokers() -> Generator[None]:
    """A broker that may have lost records stays in ISRs and eligible sets."""

    def trust(*registration: Any) -> bool:
        return False

    with replaced(broker_rules, "is_unsafe", trust), replaced(broker_rules, "is_replaced", trust):
        yield


@contextmanager
def eligible_replicas() -> Generator[None]:
    """A leader is elected as a last resort although eligible replicas may return."""
    risk_of = elections.risk_of

    def hurry(state: PartitionState, brokers: Brokers, **fields: Any) -> Any:
        return risk_of(replace(state, isr=(), eligible_leader_replicas=()), brokers, **fields)

    with replaced(leader_plans, "risk_of", hurry):
        yield


@contextmanager
def maximal_isr() -> Generator[None]:
    """The high watermark does not wait for replicas that a proposal adds."""

    def committed_only(leader: Leader) -> frozenset[BrokerId]:
        return leader.isr_proposed if leader.isr_proposed < leader.isr else leader.isr

    with replaced(Leader, "isr_maximal", property(committed_only)):
        yield


@contextmanager
def in_sync_min() -> Generator[None]:
    """The high watermark advances, and acks=all succeeds, with any ISR."""
    settle = Leader.__dict__["_settle"]

    def settle_for_less(leader: Leader) -> None:
        settle(leader)
        leader.too_few_in_sync = False

    with replaced(Leader, "_settle", settle_for_less):
        yield


@contextmanager
def caught_up() -> Generator[None]:
    """A follower joins the ISR with its first fetch."""

    def join(leader: Leader, follower: BrokerId) -> bool:
        return follower in leader.followers and follower not in leader.isr_maximal

    with replaced(Leader, "may_join", join):
        yield


@contextmanager
def divergence() -> Generator[None]:
    """A leader does not look where the log of a follower differs."""

    def find_none(*position: Any) -> None:
        """Find no difference."""

    with replaced(Leader, "divergence", find_none):
        yield


@contextmanager
def coordinator_epochs() -> Generator[None]:
    """A coordinator goes on with what it knew when its broker leads again, also where others have led since."""
    follow = CoordinatorRuntime.__dict__["_follow_role"]

    def keep(runtime: CoordinatorRuntime[Any, Any], partition: int) -> None:
        contexts, loads = vars(runtime)["_contexts"], vars(runtime)["_loads"]
        if partition not in contexts or partition in loads:
            follow(runtime, partition)

    def leads(context: CoordinatorContext[Any]) -> bool:
        return context.__getattribute__("_replica").is_leader is True

    with (
        replaced(CoordinatorRuntime, "_follow_role", keep),
        replaced(CoordinatorContext, "leads", property(leads)),
    ):
        yield


@contextmanager
def follower_high_watermark() -> Generator[None]:
    """A follower serves consumers all that it has fetched."""
    read = Replica.read

    def read_all(replica: Replica, *position: Any, **fields: Any) -> Fetched:
        offsets = replica.offsets
        if isinstance(replica.role, Follower):
            replica.offsets = replace(offsets, high_watermark=offsets.log_end, last_stable=offsets.log_end)
        try:
            return read(replica, *position, **fields)
        finally:
            replica.offsets = offsets

    with replaced(Replica, "read", read_all):
        yield


@contextmanager
def cordons() -> Generator[None]:
    """New replicas are placed on cordoned brokers, too."""

    def not_asked(*_: Any, **__: Any) -> None:
        return None

    with (
        replaced(topic_plans, "open_brokers", MetadataImage.live_brokers),
        replaced(topic_plans, "check_not_cordoned", not_asked),
        replaced(reassignment_plans, "check_not_cordoned", not_asked),
    ):
        yield


CLUSTER_ABLATIONS: dict[str, Ablation] = {
    "epochs-of-lives": epochs_of_lives,
    "unsafe-brokers": unsafe_brokers,
    "eligible-replicas": eligible_replicas,
    "maximal-isr": maximal_isr,
    "in-sync-min": in_sync_min,
    "caught-up": caught_up,
    "divergence": divergence,
    "coordinator-epochs": coordinator_epochs,
    "follower-high-watermark": follower_high_watermark,
    "cordons": cordons,
}
"""By the name that `penstock sim run --ablate` has for it; each needs several brokers."""
