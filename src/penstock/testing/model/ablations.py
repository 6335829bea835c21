"""Rules of replication, each with a way to take it out: the model must find what goes wrong without it.

Most of them patch a rule that ships. Where the rule is that a driver does not do something, the driver of the model
does it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

from penstock.controller import brokers, elections, isr, leaders
from penstock.controller.elections import Brokers
from penstock.controller.leaders import Decide
from penstock.controller.outcomes import Claim, Sent, read_claim
from penstock.metadata.operations import ANY_VERSION, Check, Operation, Set
from penstock.metadata.records import CHANGES, CONTROLLER_EPOCH
from penstock.model.generated_errors import IneligibleReplica, InvalidUpdateVersion
from penstock.model.ids import NO_BROKER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, Offset
from penstock.model.topic import NO_LEADER, PartitionState
from penstock.partition import role as roles
from penstock.partition.follower import Follower, TruncateTo
from penstock.partition.leader import Leader
from penstock.partition.role import Role
from penstock.storage.registration import RegistrationRecord
from penstock.testing.model import control, process, replica
from penstock.testing.model.control import Control
from penstock.testing.model.network import IsrRequest
from penstock.testing.model.process import Process
from penstock.testing.model.replica import ModelReplica

Ablation = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: type | ModuleType, name: str, other: object) -> Generator[None]:
    """Have something else in the place of a function, a method or a property."""
    original = owner.__dict__[name]
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


def nothing(*_: object) -> None:
    """Check nothing."""


def none(*_: object) -> list[Operation]:
    return []


def unchanged(value: Role) -> Role:
    return value


# Brokers and sessions


@contextmanager
def fenced_until_admitted() -> Generator[None]:
    """4: a broker acts as soon as it is registered."""

    def act(of: Process) -> None:
        if of.broker_epoch != NO_BROKER_EPOCH:
            of.admitted_epoch = of.broker_epoch
            of.assume_roles()

    with patched(Process, "_act", act):
        yield


@contextmanager
def fetch_broker_epoch() -> Generator[None]:
    """4: a leader counts the fetch of a broker's earlier life as one of its present life."""
    fetched = Leader.follower_fetched

    def count(leader: Leader, follower: Any, *, broker_epoch: Any, **fields: Any) -> Any:
        known = leader.followers[follower].broker_epoch if follower in leader.followers else NO_BROKER_EPOCH
        return fetched(leader, follower, broker_epoch=max(broker_epoch, known), **fields)

    def accept(request: Any, epoch_of: Any) -> Any:
        return max(request.broker_epoch, epoch_of(request.follower))

    with patched(Leader, "follower_fetched", count), patched(replica, "checked_broker_epoch", accept):
        yield


@contextmanager
def lost_session_stops() -> Generator[None]:
    """5: a broker goes on leading after it has learned that its session is lost."""
    with patched(roles, "fence", unchanged):
        yield


@contextmanager
def new_epoch_for_each_life() -> Generator[None]:
    """5: the next life of a leader goes on in the epoch of the former one."""

    def keep(state: Any, before: Any, known: Any) -> Any:
        if state.leader != NO_LEADER:
            return state
        return elections.elected(state, known.electable) or elections.elected(state, known.live) or state

    with patched(elections, "_with_leader", keep), patched(roles, "is_too_old", never):
        yield


@contextmanager
def unsafe_restart_leaves() -> Generator[None]:
    """11: a broker that may have lost records stays in ISR and eligible set."""
    with patched(brokers, "is_unsafe", never):
        yield


@contextmanager
def loss_is_remembered() -> Generator[None]:
    """11: a second start after a power failure does not know what the first one found."""

    def forget(record: RegistrationRecord, *, lost: bool) -> RegistrationRecord:
        return replace(record, may_have_lost=lost)

    with patched(RegistrationRecord, "recovered", forget):
        yield


@contextmanager
def replaced_disk_leaves() -> Generator[None]:
    """11: a broker with a new disk stays in ISR and eligible set."""
    with patched(brokers, "is_unsafe", never), patched(brokers, "is_replaced", never):
        yield


# ISR proposals


@contextmanager
def proposal_outlives_timeout() -> Generator[None]:
    """8: a leader gives its proposal up when no response comes in time."""

    def give_up(on: Process, of: ModelReplica) -> None:
        leader = of.leader
        if leader is not None and leader.proposal is not None:
            of.ineligible(leader.proposal, on.cluster.now_ms)

    with patched(Process, "retry_proposal", give_up):
        yield


@contextmanager
def refusal_of_a_version() -> Generator[None]:
    """8: a leader gives its proposal up when the controller refuses its version."""

    def give_up(on: Process, request: Any, outcome: Any) -> None:
        if isinstance(request, IsrRequest) and isinstance(outcome, IneligibleReplica | InvalidUpdateVersion):
            on.replicas[request.tp].ineligible(request.proposal, on.cluster.now_ms)

    with patched(Process, "responded", give_up):
        yield


@contextmanager
def members_broker_epochs() -> Generator[None]:
    """13: an ISR is written whatever registrations its members have now."""
    with patched(isr, "is_eligible", always), patched(isr, "is_unknown", never), patched(isr, "admission_checks", none):
        yield


@contextmanager
def partition_epoch_is_compared() -> Generator[None]:
    """7: an ISR is written whatever state of the partition it was made from."""
    checked = isr.checked

    def blind(image: Any, broker_id: Any, change: Any) -> Any:
        state = image.topics_by_id[change.topic_id].partitions[change.partition]
        now = replace(change, partition_epoch=state.partition_epoch, leader_epoch=state.leader_epoch)
        return checked(image, broker_id, now)

    with patched(isr, "checked", blind):
        yield


@contextmanager
def refusals_know_admissions() -> Generator[None]:
    """13: a controller calls a member ineligible whose admission its image lacks."""
    with patched(isr, "is_unknown", never):
        yield


@contextmanager
def responses_wait_for_outcomes() -> Generator[None]:
    """8: a controller refuses a request while a transaction of its own is under way."""
    turn = Control.turn

    def respond(of: Control, number: int) -> None:
        if of.requests:
            of.respond_next()
        else:
            turn(of, number)

    with patched(Control, "turn", respond):
        yield


@contextmanager
def transactions_are_fenced() -> Generator[None]:
    """2: the transaction of a deposed controller is done whenever it arrives."""

    def unfenced(epoch_version: int, sent: Sent) -> tuple[Operation, Operation]:
        return Check(CONTROLLER_EPOCH, ANY_VERSION), Set(CHANGES, sent.mark, ANY_VERSION)

    with patched(control, "fence", unfenced), patched(isr, "admission_checks", none):
        yield


@contextmanager
def late_claim_is_deleted() -> Generator[None]:
    """A broker takes its own session's claim, which it gave up, for that of another controller."""

    def taken(node: Any, session: int, epochs: Any) -> Claim:
        found = read_claim(node, session, epochs)
        return Claim.TAKEN if found is Claim.LATE else found

    with patched(control, "read_claim", taken):
        yield


@contextmanager
def maximal_isr() -> Generator[None]:
    """14: a proposed member does not count before its write."""

    def committed(leader: Leader) -> frozenset[BrokerId]:
        return leader.isr

    with patched(Leader, "isr_maximal", property(committed)):
        yield


@contextmanager
def shrink_waits_for_write() -> Generator[None]:
    """14: a member that is proposed for removal no longer counts."""

    def proposed(leader: Leader) -> frozenset[BrokerId]:
        return leader.isr_proposed

    with patched(Leader, "isr_maximal", property(proposed)):
        yield


@contextmanager
def held_end() -> Generator[None]:
    """14: with flush=group, what a follower has fetched counts before it is on its disk."""
    fetched = Leader.follower_fetched

    def count(leader: Leader, follower: Any, *, fetch_offset: Any, held_end: Any, **fields: Any) -> Any:
        return fetched(leader, follower, fetch_offset=fetch_offset, held_end=fetch_offset, **fields)

    with patched(Leader, "follower_fetched", count):
        yield


@contextmanager
def acks_need_min_isr() -> Generator[None]:
    """18: a write is acknowledged though the ISR became too small before the response."""

    def committed(leader: Leader, end: Offset) -> bool:
        return leader.offsets.high_watermark >= end

    with patched(Leader, "committed", committed):
        yield


@contextmanager
def truncation_is_reported() -> Generator[None]:
    """24: a truncation of committed records looks like any other."""
    truncate_to = Follower._truncate_to  # pyright: ignore[reportPrivateUsage]

    def silent(follower: Follower, offset: Offset) -> TruncateTo:
        return replace(truncate_to(follower, offset), below_high_watermark=False)

    with patched(Follower, "_truncate_to", silent):
        yield


@contextmanager
def high_watermark_needs_min_isr() -> Generator[None]:
    """15 and 18: the high watermark moves and acks=all succeeds while the ISR is smaller than its minimum."""
    settle = Leader._settle  # pyright: ignore[reportPrivateUsage]

    def without(leader: Leader) -> None:
        settle(leader)
        leader.too_few_in_sync = False

    with patched(Leader, "_settle", without):
        yield


@contextmanager
def min_isr_counts_the_committed() -> Generator[None]:
    """15: the proposed members count toward the minimum ISR."""

    def proposed(leader: Leader) -> bool:
        return len(leader.isr_maximal) < leader._in_sync_needed  # pyright: ignore[reportPrivateUsage]

    advance = Leader._advance  # pyright: ignore[reportPrivateUsage]

    def advanced(leader: Leader) -> bool:
        leader.too_few_in_sync = proposed(leader)
        return advance(leader)

    with patched(Leader, "_advance", advanced):
        yield


@contextmanager
def min_isr_of_the_state() -> Generator[None]:
    """15: a leader uses the minimum ISR of the topic's settings, which it may learn later than the state."""
    settle = Leader._settle  # pyright: ignore[reportPrivateUsage]

    def without(leader: Leader) -> None:
        leader._in_sync_min_decided = 0  # pyright: ignore[reportPrivateUsage]
        settle(leader)

    with patched(Leader, "_settle", without):
        yield


@contextmanager
def join_at_high_watermark() -> Generator[None]:
    """17: a follower joins the ISR below the high watermark."""

    def may_join(leader: Leader, follower: Any) -> bool:
        progress = leader.followers.get(follower)
        return progress is not None and follower not in leader.isr_maximal and progress.held_end > NO_OFFSET

    with patched(Leader, "may_join", may_join):
        yield


@contextmanager
def join_at_epoch_start() -> Generator[None]:
    """17: a follower joins the ISR at the high watermark, below the start of the leader's epoch."""

    def may_join(leader: Leader, follower: Any) -> bool:
        progress = leader.followers.get(follower)
        if progress is None or follower in leader.isr_maximal:
            return False
        return bool(progress.held_end >= leader.offsets.high_watermark)

    with patched(Leader, "may_join", may_join):
        yield


@contextmanager
def fetch_leader_epoch() -> Generator[None]:
    """16: a fetch of an earlier leader epoch counts."""
    fetched = Leader.follower_fetched

    def count(leader: Leader, follower: Any, *, leader_epoch: Any, **fields: Any) -> Any:
        return fetched(leader, follower, leader_epoch=leader.leader_epoch, **fields)

    with patched(Leader, "follower_fetched", count), patched(Leader, "check_epoch", nothing):
        yield


@contextmanager
def latest_waits() -> Generator[None]:
    """20: a new leader gives its high watermark as the latest offset."""
    with patched(Leader, "latest_is_known", always):
        yield


# Truncation


@contextmanager
def leader_keeps_its_log() -> Generator[None]:
    """21: a new leader truncates its log to its high watermark."""
    begin = ModelReplica._begin  # pyright: ignore[reportPrivateUsage]

    def cut(of: ModelReplica, before: Any) -> None:
        role = of.role
        if isinstance(role, Leader) and not isinstance(before, Leader):
            end = of.offsets.high_watermark
            of.log.truncate(end)
            of.offsets.log_end = of.offsets.local_end = role.epoch_start = end
        begin(of, before)

    with patched(ModelReplica, "_begin", cut):
        yield


@contextmanager
def truncation_by_epoch() -> Generator[None]:
    """22: a follower truncates to its high watermark."""

    def diverged(follower: Follower, *_: Any) -> TruncateTo:
        return TruncateTo(offset=follower.offsets.high_watermark, below_high_watermark=False)

    with patched(Follower, "diverged", diverged):
        yield


@contextmanager
def response_leader_epoch() -> Generator[None]:
    """23: a follower acts on the response to a fetch of an earlier leader epoch."""
    with patched(Follower, "check_response", nothing):
        yield


@contextmanager
def failed_log_keeps_its_records() -> Generator[None]:
    """12: a replica that cannot use its log counts as one that has lost it."""
    original = leaders.leave_isr

    def forgotten(brokers: Brokers, broker_id: BrokerId, *, keeps_records: bool) -> Decide:
        return original(brokers, broker_id, keeps_records=False)

    with patched(control, "leave_isr", forgotten):
        yield


@contextmanager
def cut_waits_for_an_epoch() -> Generator[None]:
    """11: a replica that knows of no ISR with it cuts its damaged log at once."""

    def unlisted(decided: PartitionState, broker_id: BrokerId, last_epoch: LeaderEpoch) -> bool:
        return broker_id != decided.leader and broker_id not in decided.isr

    with patched(process, "may_cut", unlisted):
        yield


# Elections


@contextmanager
def eligible_after_isr() -> Generator[None]:
    """10: a replica outside of ISR and eligible set is elected, and no loss is reported."""

    def elected(state: Any, candidates: Any) -> Any:
        for each in state.replicas:
            if each in candidates:
                return elections.led_by(elections.with_isr(state, (each,)), each)
        return None

    with patched(elections, "elected", elected):
        yield


@contextmanager
def last_resort_after_eligible() -> Generator[None]:
    """12: a leader of last resort is elected while eligible replicas exist."""

    def risk_of(state: Any, known: Any, *, unclean_allowed: bool) -> Any:
        return elections.Risk.LAST_RESORT if state.leader == NO_LEADER else None

    with patched(leaders, "risk_of", risk_of):
        yield


@contextmanager
def eligible_below_min() -> Generator[None]:
    """Replicas that leave a large enough ISR stay eligible."""
    with_isr = elections.with_isr

    def keep(state: Any, isr: Any, *, unsafe: Any = ()) -> Any:
        after = with_isr(state, isr, unsafe=unsafe)
        eligible = {*state.isr, *state.eligible_leader_replicas} - {*isr} - {*unsafe}
        return replace(after, eligible_leader_replicas=elections.in_order(state, eligible))

    with patched(elections, "with_isr", keep), patched(isr, "with_isr", keep):
        yield


ABLATIONS: dict[str, Ablation] = {
    "fenced-until-admitted": fenced_until_admitted,
    "fetch-broker-epoch": fetch_broker_epoch,
    "lost-session-stops": lost_session_stops,
    "new-epoch-for-each-life": new_epoch_for_each_life,
    "unsafe-restart-leaves": unsafe_restart_leaves,
    "loss-is-remembered": loss_is_remembered,
    "replaced-disk-leaves": replaced_disk_leaves,
    "proposal-outlives-timeout": proposal_outlives_timeout,
    "refusal-of-a-version": refusal_of_a_version,
    "partition-epoch-is-compared": partition_epoch_is_compared,
    "members-broker-epochs": members_broker_epochs,
    "refusals-know-admissions": refusals_know_admissions,
    "responses-wait-for-outcomes": responses_wait_for_outcomes,
    "transactions-are-fenced": transactions_are_fenced,
    "late-claim-is-deleted": late_claim_is_deleted,
    "maximal-isr": maximal_isr,
    "shrink-waits-for-write": shrink_waits_for_write,
    "held-end": held_end,
    "high-watermark-needs-min-isr": high_watermark_needs_min_isr,
    "min-isr-counts-the-committed": min_isr_counts_the_committed,
    "min-isr-of-the-state": min_isr_of_the_state,
    "join-at-high-watermark": join_at_high_watermark,
    "join-at-epoch-start": join_at_epoch_start,
    "fetch-leader-epoch": fetch_leader_epoch,
    "acks-need-min-isr": acks_need_min_isr,
    "truncation-is-reported": truncation_is_reported,
    "latest-waits": latest_waits,
    "cut-waits-for-an-epoch": cut_waits_for_an_epoch,
    "failed-log-keeps-its-records": failed_log_keeps_its_records,
    "leader-keeps-its-log": leader_keeps_its_log,
    "truncation-by-epoch": truncation_by_epoch,
    "response-leader-epoch": response_leader_epoch,
    "eligible-after-isr": eligible_after_isr,
    "last-resort-after-eligible": last_resort_after_eligible,
    "eligible-below-min": eligible_below_min,
}
"""By name."""
