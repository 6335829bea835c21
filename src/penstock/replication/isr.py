"""Proposes the ISRs of the partitions that this broker leads to the controller.

A proposal ends only with a newer state of its partition in the metadata, or with the controller's word that it will
never be written. Until then it is sent again and again, and the leader counts every member that it may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from penstock.config.broker import BrokerConfig
from penstock.controller.isr import IsrChange
from penstock.metadata.store import SessionEvent
from penstock.model.clock import Clock, monotonic_ms
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import IneligibleReplica
from penstock.model.ids import BrokerEpoch, TopicId, TopicPartition
from penstock.model.turns import Turns
from penstock.observe.log import Logger
from penstock.partition.leader import IsrProposal, Leader
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.replication.controller_client import ControllerClient

RETRY_S = 0.2
"""Pause before proposals without an end are sent again: their new states are on the way, or the controller refused."""
CHANGES_PER_REQUEST_MAX = 1_000
CHECK_S_MIN = 0.1


class Failure(NamedTuple):
    """A replica that cannot serve."""

    tp: TopicPartition
    damaged: bool
    broker_epoch: BrokerEpoch
    """Of the registration in which it failed."""


class IsrProposals:
    """Proposals in flight, and the check for members that lag. Frozen while the store's session is suspended."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        client: ControllerClient,
        clock: Clock,
        turns: Turns,
        config: Callable[[], BrokerConfig],
        log: Logger,
    ) -> None:
        self._replicas = replicas
        self._client = client
        self._clock = clock
        self._turns = turns
        self._config = config
        self._log = log
        self._proposals: dict[TopicPartition, tuple[Replica, IsrProposal]] = {}
        self._failed: dict[tuple[TopicId, int], Failure] = {}
        """Replicas that cannot serve, until the controller knows."""
        self._wanted = asyncio.Event()
        self._frozen = False
        self.shrinks = 0
        self.expansions = 0
        """Proposals of a smaller and of a larger ISR."""

    def session_changed(self, event: SessionEvent) -> None:
        """Propose nothing while it is unknown whether the broker's session lives."""
        self._frozen = event in (SessionEvent.SUSPENDED, SessionEvent.LOST)
        if not self._frozen:
            self._wanted.set()

    def may_propose(self) -> bool:
        return not self._frozen

    def propose(self, replica: Replica, proposal: IsrProposal) -> None:
        """Send a proposal to the controller until it ends."""
        role = replica.role
        assert isinstance(role, Leader), f"{replica.tp}: only a leader proposes"
        lost, joined = sorted(role.isr - proposal.members), sorted(proposal.members - role.isr)
        if lost:
            self.shrinks += 1
            self._log.warning("isr_shrinks", partition=str(replica.tp), lost=lost, isr=sorted(proposal.members))
        if joined:
            self.expansions += 1
            self._log.info("isr_expands", partition=str(replica.tp), joined=joined, isr=sorted(proposal.members))
        self._proposals[replica.tp] = (replica, proposal)
        self._wanted.set()

    def resigned(self, tp: TopicPartition) -> None:
        """A replica's log failed: it leaves the ISR, and another one leads."""
        topic = self._replicas.topic(tp.topic)
        if topic is None:
            return
        # Also one that no record counts on: a proposal may add it, until a new leader epoch begins.
        damaged = self._replicas.is_damaged(tp)
        if damaged or not self._replicas.is_known_to_fail(tp):
            failure = Failure(tp, damaged, self._client.broker_epoch)
            self._failed[topic.topic_id, tp.partition] = failure
            self._wanted.set()

    @property
    def in_flight(self) -> int:
        """Proposals without an end."""
        return len(self._proposals)

    async def run(self) -> None:
        """Send proposals, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._frozen:
                continue
            try:
                await self._send_failed()
                ended = await self._send()
            except BrokerError as error:
                self._log.info("isr_proposals_unheard", reason=error.name, proposals=len(self._proposals))
                ended = False
            if not ended:
                await asyncio.sleep(RETRY_S)
                self._wanted.set()

    async def run_checks(self) -> None:
        """Look for members that lag, until cancelled; as often as half the time that they may."""
        while True:
            lag_ms_max = self._config().replica_lag_time_max_ms
            await asyncio.sleep(max(lag_ms_max / 2000, CHECK_S_MIN))
            if not self._frozen:
                await self._check(lag_ms_max)

    async def _check(self, lag_ms_max: int) -> None:
        for replica in list(self._replicas.live()):
            replica.shrink_isr(monotonic_ms(self._clock), lag_ms_max)
            if self._turns.spent():
                await self._turns.pause()

    async def _send_failed(self) -> None:
        some = dict(islice(self._failed.items(), CHANGES_PER_REQUEST_MAX))
        for each in some:
            # A replica that fails again meanwhile is reported again.
            del self._failed[each]
        failed = {each: failure for each, failure in some.items() if not self._is_over(failure)}
        if failed:
            try:
                await self._client.replicas_failed({each: failure.damaged for each, failure in failed.items()})
            except BrokerError:
                # What failed again meanwhile was judged later.
                self._failed = {**failed, **self._failed}
                raise

    def _is_over(self, failure: Failure) -> bool:
        """Whether a disk was full before this broker registered again, and the log is online.

        The controller takes a reported replica for failed until its broker registers again. If the disk is still full,
        the next write says so.
        """
        return (
            not failure.damaged
            and failure.broker_epoch != self._client.broker_epoch
            and not self._replicas.is_offline(failure.tp)
        )

    async def _send(self) -> bool:
        """Send what has no end yet; whether everything has one."""
        self._drop_ended()
        some = list(islice(self._proposals.values(), CHANGES_PER_REQUEST_MAX))
        if some:
            refusals = await self._client.alter_partitions([change_of(*each) for each in some])
            for (replica, proposal), refusal in zip(some, refusals, strict=True):
                if isinstance(refusal, IneligibleReplica):
                    self._log.info("isr_ineligible", partition=str(replica.tp), isr=sorted(proposal.members))
                    replica.proposal_ineligible(proposal, monotonic_ms(self._clock))
                elif refusal is not None:
                    # It may have been written all the same; the next state of the partition tells.
                    self._log.debug(
                        "isr_refused", partition=str(replica.tp), isr=sorted(proposal.members), reason=str(refusal.name)
                    )
            self._drop_ended()
        return not self._proposals and not self._failed

    def _drop_ended(self) -> None:
        for tp, (replica, proposal) in list(self._proposals.items()):
            if not is_in_flight(replica, proposal) or self._replicas.used(tp) is not replica:
                del self._proposals[tp]


def is_in_flight(replica: Replica, proposal: IsrProposal) -> bool:
    """Whether a leader still waits for the end of a proposal."""
    role = replica.role
    return (
        isinstance(role, Leader)
        and role.is_proposing
        and role.leader_epoch == proposal.leader_epoch
        and role.partition_epoch == proposal.partition_epoch
    )


def change_of(replica: Replica, proposal: IsrProposal) -> IsrChange:
    return IsrChange(
        topic_id=replica.topic_id,
        partition=replica.tp.partition,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        isr=proposal.isr,
    )
