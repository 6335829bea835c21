"""Drives partitions that are drained or resume: hands their batches and markers to the leaders of their targets.

The target's leader may be this broker or another. What goes to another is sent on one connection, so that it arrives in
the order of its numbers (`penstock.partition.redirect`). The rules decide; a refusal means that the client, or the
transaction coordinator, sends again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from penstock.controller.isr import IsrChange
from penstock.metadata.image import ImageDelta
from penstock.model.batch import HEADER, NO_PRODUCER_ID, BatchHeader
from penstock.model.clock import Clock
from penstock.model.cluster_versions import GHOST_PARTITIONS
from penstock.model.deferred import Deferred, Eventual
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, Offset, ProducerId, TopicPartition
from penstock.model.producers import PRODUCER_ID_MAX
from penstock.model.topic import NO_LEADER, PartitionState, TopicState
from penstock.observe.log import Logger
from penstock.partition.leader import Leader
from penstock.partition.redirect import (
    AdoptedProducer,
    Drain,
    Handover,
    Resumption,
    Source,
    derived_id,
    producers_for_target,
    source_of,
)
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.partition.results import Appended
from penstock.partition.verification import TxnProof
from penstock.replication.controller_channel import awaited
from penstock.replication.controller_client import ControllerClient
from penstock.replication.peers import NotSent, Peers, PeerUnavailable, Purpose
from penstock.wire import redirect as wire
from penstock.wire.primitives import Malformed
from penstock.wire.records import build_marker

T = TypeVar("T")

RETRY_S = 0.2
"""Pause before a partition that resumes asks its target again, which has another leader."""
OPEN_PAUSE_S = 1.0
"""The same where it accepts records, and a transaction is open in the target: each question appends a control batch."""

EMPTY_CHECK_S = 1.0
"""How often the leader of drained partitions looks whether one is empty."""

ADOPTED_PER_TURN_MAX = 50
"""Producers that a partition which resumes adopts in one turn of the loop, with five batches each."""

UNANSWERED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of batches on their way to one broker: its clients do not wait for all of them, with acks=0 or a short timeout.
"""

LANES = 8
"""Connections to another broker: responses of one are in order, so that a target which waits for its followers holds
up only those that share its connection."""

STALE = (FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicId, UnknownTopicOrPartition)
"""Refusals of a target that mean to a client that leaders have changed."""


class Redirects:
    """Both sides of drained partitions on this broker."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        replicas: Replicas,
        peers: Peers,
        client: ControllerClient,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        timeout_ms: Callable[[], int],
        log: Logger,
        level: Callable[[], int] = lambda: GHOST_PARTITIONS,
    ) -> None:
        """`level` is the version of the cluster."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._peers = peers
        self._client = client
        self._clock = clock
        self._spawn = spawn
        self._timeout_ms = timeout_ms
        self._log = log
        self._level = level
        self._drained: dict[TopicPartition, None] = {}
        """Led by this broker, as far as it is known: each becomes a ghost once it is empty."""
        self._looks_for_empty = False
        self._resuming: set[TopicPartition] = set()
        self._bytes_in_flight: Counter[BrokerId] = Counter()
        """Bytes on their way, by broker."""

    # The leader of a drained partition

    def hand_over(
        self,
        replica: Replica,
        records: memoryview | None,
        now_ms: int,
        *,
        acks: int,
        version: int,
        proof: TxnProof | None,
    ) -> tuple[Replica, Appended | Coroutine[Any, Any, Appended]] | Deferred[Appended]:
        """Append a batch to the target: the replica here that has it, or the response of another broker."""
        found = replica.hand_over(records, now_ms, version=version, proof=proof)
        if isinstance(found, Appended):
            return replica, found
        handover, batch = found
        refused = partial(forgetting, replica.detour, handover.producer_id)
        target = self._target(replica)
        if target.leader == self._broker_id:
            to = self._replicas.get(replica.tp.topic, target.index)
            source = self._source(replica, target)
            try:
                appended = to.accept(source, handover, memoryview(batch), now_ms, acks_all=acks == -1, version=version)
                return to, appended if isinstance(appended, Appended) else self._appended_later(to, appended, refused)
            except OutOfOrderSequenceNumber as error:
                return failing(error, to.confirm_leader(now_ms))
            except STALE as error:
                raise NotLeaderOrFollower(str(error)) from None
            except BrokerError as error:
                raise refused(error)
        waiting = self._bytes_in_flight[target.leader]
        if waiting and waiting + len(batch) > UNANSWERED_BYTES_MAX:
            raise NotEnoughReplicas(f"{waiting} bytes are on their way to broker {target.leader} already")
        request = wire.Request(
            **self._addressed(replica, target, handover.number),
            kind=wire.Kind.RECORDS,
            acks=acks,
            produce_version=version,
            first_sequence=handover.first_sequence,
            begins_at=handover.begins_at,
            payload=batch,
        )
        count = BatchHeader._make(HEADER.unpack_from(batch)).last_offset_delta + 1
        sent: Deferred[Appended] = self._sent(target, request, unknown=RequestTimedOut).then(
            partial(appended_of, count, partial(forget, replica.detour, handover.producer_id) if acks == -1 else None),
            failed=refused,
        )
        return sent

    async def _appended_later(
        self, to: Replica, work: Coroutine[Any, Any, Appended], refused: Callable[[Exception], Exception]
    ) -> Appended:
        """A batch that is validated off the loop, with the errors of one that is not."""
        try:
            return await work
        except OutOfOrderSequenceNumber:
            confirmed = to.confirm_leader(self._clock.now_ms())
            if confirmed is not None:
                await self._confirmed(confirmed)
            raise
        except STALE as error:
            raise NotLeaderOrFollower(str(error)) from None
        except BrokerError as error:
            raise refused(error)

    async def _confirmed(self, confirmed: Deferred[None]) -> None:
        """Wait for a proof of leadership, but not for ever: the client's connection waits too."""
        try:
            async with asyncio.timeout(self._timeout_ms() / 1000):
                await awaited(confirmed)
        except TimeoutError:
            raise RequestTimedOut() from None

    def mark(self, replica: Replica, marker: wire.Marker) -> Deferred[None] | None:
        """Append the marker of a transaction to the target as well; None if it is committed. As `Markers.write`.

        The producer id of `marker` is the client's.
        """
        detour = replica.detour
        assert detour is not None, f"{replica.tp} is not drained and does not resume"
        if not 0 <= marker.producer_id <= PRODUCER_ID_MAX:
            # An operator's marker of a producer that no client can be.
            return None
        number = detour.ended(replica.producers, marker.producer_id)
        target = self._target(replica)
        derived = wire.Marker(
            producer_id=derived_id(marker.producer_id, replica.tp.partition),
            epoch=marker.epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        if target.leader == self._broker_id:
            try:
                to = self._replicas.get(replica.tp.topic, target.index)
                return self._append_marker(to, self._source(replica, target), number, derived)
            except STALE as error:
                raise NotLeaderOrFollower(str(error)) from None
        request = wire.Request(
            **self._addressed(replica, target, number), kind=wire.Kind.MARKER, payload=wire.pack_marker(derived)
        )
        written: Deferred[None] = self._sent(target, request).then(lambda _: None)
        return written

    def _target(self, replica: Replica) -> PartitionState:
        """The state of the partition that a replica is, or was, drained into; raises where it has no leader."""
        detour, topic = replica.detour, self._replicas.topic(replica.tp.topic)
        assert detour is not None, f"{replica.tp} is not drained and does not resume"
        if topic is None or topic.partitions[detour.target].leader == NO_LEADER:
            raise NotLeaderOrFollower("the partition that it is drained into has no leader")
        return topic.partitions[detour.target]

    def _source(self, replica: Replica, target: PartitionState) -> Source:
        assert replica.detour is not None, f"{replica.tp} is not drained and does not resume"
        topic = self._replicas.topic(replica.tp.topic)
        assert topic is not None, f"{replica.tp} leads without a topic"
        return Source(
            partition=replica.tp.partition,
            leader_epoch=replica.detour.leader_epoch,
            target_epoch=target.leader_epoch,
            known_epoch=topic.shown(replica.tp.partition).leader_epoch,
            life=replica.detour.life,
        )

    def _addressed(self, replica: Replica, target: PartitionState, number: int) -> dict[str, Any]:
        assert replica.detour is not None, f"{replica.tp} is not drained and does not resume"
        return {
            "topic_id": replica.topic_id,
            "source": replica.tp.partition,
            "source_epoch": replica.detour.leader_epoch,
            "source_life": replica.detour.life,
            "number": number,
            "target": target.index,
            "target_epoch": target.leader_epoch,
        }

    def _sent(
        self, target: PartitionState, request: wire.Request, *, unknown: type[BrokerError] = NotLeaderOrFollower
    ) -> Deferred[wire.Response]:
        """The response of the target's leader; `unknown` is the error where it may have done it and not responded.

        A client that leaves does not abandon the request, nor close the connection that other clients use.
        """
        result: Deferred[wire.Response] = Deferred()
        sent = self._peers.send(
            target.leader,
            Purpose.REDIRECTS,
            wire,
            request,
            timeout_ms=float(self._timeout_ms()),
            lane=lane_of(request),
        )
        self._bytes_in_flight[target.leader] += len(request.payload)
        ended = partial(self._ended, target.leader, len(request.payload))
        sent.deliver_to(partial(ended, partial(responded, result)), partial(ended, partial(failed, result, unknown)))
        return result

    def _ended(self, broker_id: BrokerId, size: int, deliver: Callable[[T], None], outcome: T) -> None:
        self._bytes_in_flight[broker_id] -= size
        deliver(outcome)

    # The leader of the target

    def serve(self, request: wire.Request) -> Eventual[wire.Response] | Coroutine[Any, Any, Eventual[wire.Response]]:
        """Append what another broker redirects; a coroutine where the batch is validated off the loop."""
        try:
            to = self._replicas.find(request.topic_id, request.target)
            source = self._source_of(request)
            now_ms = self._clock.now_ms()
            match request.kind:
                case wire.Kind.RECORDS:
                    appended = to.accept(
                        source,
                        Handover(request.number, NO_PRODUCER_ID, request.first_sequence, request.begins_at),
                        memoryview(request.payload),
                        now_ms,
                        acks_all=request.acks == -1,
                        version=request.produce_version,
                    )
                    if isinstance(appended, Appended):
                        return acknowledged(to, appended, request.acks)
                    return self._serve_later(request, to, appended)
                case wire.Kind.MARKER:
                    marker = wire.unpack_marker(request.payload)
                    committed = self._append_marker(to, source, request.number, marker)
                    return refusable(after_wait(committed, wire.Response()))
                case wire.Kind.PRODUCERS:
                    producers = (AdoptedProducer(*each) for each in wire.unpack_producers(request.payload))
                    end = to.accept_producers(source, request.number, producers, now_ms)
                    return refusable(after_wait(to.committed(end), wire.Response()))
                case wire.Kind.FENCE | wire.Kind.FENCE_AGAIN:
                    open_only = request.kind is wire.Kind.FENCE_AGAIN
                    fence, known = to.accept_fence(source, request.number, now_ms, open_only=open_only)
                    return refusable(after_wait(to.committed(fence.end), wire.Response(producers=tuple(known))))
        except OutOfOrderSequenceNumber as error:
            return self._out_of_order(request, error)
        except BrokerError as error:
            return wire.Response(error_code=error.code)
        except Malformed as error:
            self._log.warning("redirect_malformed", reason=str(error))
            return wire.Response(error_code=InvalidRequest.code)

    def _out_of_order(self, request: wire.Request, error: OutOfOrderSequenceNumber) -> Eventual[wire.Response]:
        """Refuse a batch for good only as the leader. One that was deposed and does not know it misses batches that
        its successor has; a client could look for another leader, and the drained partition's cannot."""
        try:
            to = self._replicas.find(request.topic_id, request.target)
            confirmed = to.confirm_leader(self._clock.now_ms())
        except BrokerError as refusal:
            return wire.Response(error_code=refusal.code)
        return refusable(after_wait(confirmed, wire.Response(error_code=error.code)))

    async def _serve_later(
        self, request: wire.Request, to: Replica, work: Coroutine[Any, Any, Appended]
    ) -> Eventual[wire.Response]:
        try:
            return acknowledged(to, await work, request.acks)
        except OutOfOrderSequenceNumber as error:
            return self._out_of_order(request, error)
        except BrokerError as error:
            return wire.Response(error_code=error.code)

    def _source_of(self, request: wire.Request) -> Source:
        name = self._replicas.topic_name(request.topic_id)
        topic = None if name is None else self._replicas.topic(name)
        if topic is None or not 0 <= request.source < len(topic.partitions):
            raise UnknownTopicOrPartition()
        state = topic.shown(request.source)
        if request.source_epoch > state.leader_epoch:
            # Also of a client that forges it, and would lock out the leader.
            raise UnknownLeaderEpoch(f"leader epoch {request.source_epoch} of partition {request.source} is unknown")
        is_ghost = topic.partitions[request.source].is_ghost
        if request.source_epoch == state.leader_epoch and (
            is_ghost or request.target not in (state.drained_into, state.resumes_from)
        ):
            # The leader of a ghost is that of its target, and sends nothing.
            raise NotLeaderOrFollower(f"partition {request.source} is not drained into {request.target}")
        return Source(
            partition=request.source,
            leader_epoch=request.source_epoch,
            target_epoch=request.target_epoch,
            known_epoch=state.leader_epoch,
            life=request.source_life,
        )

    def _append_marker(self, to: Replica, source: Source, number: int, marker: wire.Marker) -> Deferred[None] | None:
        now_ms = self._clock.now_ms()
        batch = build_marker(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        appended = to.accept_marker(source, number, memoryview(batch), now_ms, marker.transaction_version)
        return to.committed(appended.end)

    # Partitions that resume

    def start(self, topics: Iterable[TopicState]) -> None:
        """Resume what the metadata says, as the leader of it."""
        for topic in topics:
            for state in topic.partitions:
                self._look(topic.name, state)

    def follow(self, delta: ImageDelta) -> None:
        """Prepare partitions that are drained from now on, and resume those that are so no longer."""
        for change in delta.topics:
            if change.after is None:
                continue
            before = () if change.before is None else change.before.partitions
            for at, state in enumerate(change.after.partitions):
                if at >= len(before) or before[at] is not state:
                    self._look(change.after.name, state)
                    self._prepare(change.after.name, state)

    def _look(self, topic: str, state: PartitionState) -> None:
        tp = TopicPartition(topic, state.index)
        if state.resumes_from >= 0 and state.leader == self._broker_id and tp not in self._resuming:
            self._resuming.add(tp)
            resuming = self._resume(tp)
            self._begin(resuming)
        if state.drained_into >= 0 and state.leader == self._broker_id:
            self._drained[tp] = None
            if not self._looks_for_empty:
                self._looks_for_empty = True
                self._begin(self._look_for_empty())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._spawn(work)
        except RuntimeError:
            # The broker is stopping.
            work.close()

    def _prepare(self, topic: str, state: PartitionState) -> None:
        """Append the barrier of a drained partition before its first batch comes, which would have to wait for it."""
        if state.drained_into >= 0 and state.leader == self._broker_id:
            try:
                self._replicas.get(topic, state.index).begin_drain(self._clock.now_ms())
            except BrokerError as error:
                self._log.debug("drain_waits", partition=f"{topic}-{state.index}", reason=error.name)

    async def _resume(self, tp: TopicPartition) -> None:
        """Ask the target until this partition knows what it has, no transaction is open there, and the controller has
        written that the partition has resumed."""
        try:
            while self._is_to_resume(tp):
                try:
                    replica = self._replicas.get(*tp)
                    resumption = replica.detour
                    if isinstance(resumption, Resumption):
                        await self._advance(replica, resumption)
                except BrokerError as error:
                    self._log.debug("resumption_waits", partition=str(tp), reason=error.name)
                if self._is_to_resume(tp):
                    await asyncio.sleep(self._pause_s(tp))
        finally:
            self._resuming.discard(tp)

    def _pause_s(self, tp: TopicPartition) -> float:
        replica = self._replicas.used(tp)
        detour = None if replica is None else replica.detour
        return OPEN_PAUSE_S if isinstance(detour, Resumption) and detour.is_ready else RETRY_S

    def _is_to_resume(self, tp: TopicPartition) -> bool:
        topic = self._replicas.topic(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return False
        state = topic.partitions[tp.partition]
        return state.resumes_from >= 0 and state.leader == self._broker_id

    async def _advance(self, replica: Replica, resumption: Resumption) -> None:
        known = await self._fence(replica, resumption)
        if replica.detour is not resumption:
            return
        if not resumption.is_ready:
            for at in range(0, len(known), ADOPTED_PER_TURN_MAX):
                replica.adopt(known[at : at + ADOPTED_PER_TURN_MAX], self._clock.now_ms(), last=False)
                await asyncio.sleep(0)
                if replica.detour is not resumption:
                    return
            replica.adopt((), self._clock.now_ms())
            self._log.info("partition_accepts_again", partition=str(replica.tp), producers=len(known))
        committed = replica.committed(replica.offsets.log_end)
        if committed is not None:
            await awaited(committed)
        role = replica.role
        if any(producer.open for producer in known) or not isinstance(role, Leader) or role.is_proposing:
            return
        epoch_of = self._replicas.cluster.broker_epoch_of
        change = IsrChange(
            topic_id=replica.topic_id,
            partition=replica.tp.partition,
            leader_epoch=role.leader_epoch,
            partition_epoch=role.partition_epoch,
            isr=tuple((member, epoch_of(member)) for member in sorted(role.isr)),
            resumed=True,
        )
        (refusal,) = await self._client.alter_partitions([change])
        if refusal is not None:
            raise refusal
        self._log.info("partition_resumed", partition=str(replica.tp))

    # Drained partitions that are empty

    async def _look_for_empty(self) -> None:
        """Report drained partitions that are empty to the controller, while this broker leads some."""
        try:
            while self._drained:
                await self.report_empty()
                await asyncio.sleep(EMPTY_CHECK_S)
        finally:
            self._looks_for_empty = False

    async def report_empty(self) -> None:
        """Report those that are empty now."""
        for tp in list(self._drained):
            if not self._is_drained_here(tp):
                del self._drained[tp]
            elif self._level() >= GHOST_PARTITIONS:
                try:
                    await self._report_if_empty(self._replicas.get(*tp))
                except BrokerError as error:
                    self._log.debug("empty_partition_waits", partition=str(tp), reason=error.name)

    def _is_drained_here(self, tp: TopicPartition) -> bool:
        topic = self._replicas.topic(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return False
        state = topic.partitions[tp.partition]
        return state.drained_into >= 0 and state.leader == self._broker_id

    async def _report_if_empty(self, replica: Replica) -> None:
        """Have the controller make a partition a ghost, if it is empty and its target knows what its producers wrote.

        From the report on nothing is appended to its log: a response that is lost may mean that it is a ghost already.
        """
        drain = replica.detour
        if not isinstance(drain, Drain) or replica.emptied_to() is None:
            return
        await self._hand_over_producers(replica, drain)
        if replica.detour is not drain or replica.emptied_to() is None:
            return
        drain.is_ending = True
        end = replica.offsets.log_end
        committed = replica.committed(end)
        if committed is not None:
            await awaited(committed)
        while self._leads_as(replica, drain):
            refusal = await self._reported(replica, end)
            if isinstance(refusal, IneligibleReplica):
                # The one refusal after which it is known that the report has no effect.
                drain.is_ending = False
                return
            if refusal is None:
                self._log.info("drained_partition_is_empty", partition=str(replica.tp), log_end=end)
                return
            await asyncio.sleep(RETRY_S)

    def _leads_as(self, replica: Replica, drain: Drain) -> bool:
        """Whether a replica is in use and still the leader of a drained partition."""
        return self._replicas.used(replica.tp) is replica and replica.detour is drain and replica.is_leader

    async def _reported(self, replica: Replica, end: Offset) -> BrokerError | None:
        """Why the controller has not made an empty partition a ghost, as far as it says."""
        role = replica.leading()
        epoch_of = self._replicas.cluster.broker_epoch_of
        change = IsrChange(
            topic_id=replica.topic_id,
            partition=replica.tp.partition,
            leader_epoch=role.leader_epoch,
            partition_epoch=role.partition_epoch,
            isr=tuple((member, epoch_of(member)) for member in sorted(role.isr)),
            emptied=end,
        )
        try:
            (refusal,) = await self._client.alter_partitions([change])
        except BrokerError as error:
            return error
        return refusal

    async def _hand_over_producers(self, replica: Replica, drain: Drain) -> None:
        """Have the target know what this partition knows of its producers, whose log will be gone."""
        ids = [producer_id for producer_id, _ in replica.producers if 0 <= producer_id <= PRODUCER_ID_MAX]
        for at in range(0, len(ids), ADOPTED_PER_TURN_MAX):
            those = ids[at : at + ADOPTED_PER_TURN_MAX]
            some = list(producers_for_target(replica.producers, replica.tp.partition, those))
            number, target = drain.next_number(), self._target(replica)
            if target.leader == self._broker_id:
                to = self._replicas.get(replica.tp.topic, target.index)
                end = to.accept_producers(self._source(replica, target), number, some, self._clock.now_ms())
                committed = to.committed(end)
                if committed is not None:
                    await awaited(committed)
                await asyncio.sleep(0)
            else:
                request = wire.Request(
                    **self._addressed(replica, target, number),
                    kind=wire.Kind.PRODUCERS,
                    payload=wire.pack_producers(some),
                )
                await awaited(self._sent(target, request))
            if replica.detour is not drain:
                return

    async def _fence(self, replica: Replica, resumption: Resumption) -> list[AdoptedProducer]:
        """What the target has of this partition's producers, of which it accepts no more from older leaders.

        Of those with open transactions, where this partition knows the others.
        """
        number = resumption.next_number()
        target = self._target(replica)
        if target.leader == self._broker_id:
            to = self._replicas.get(replica.tp.topic, target.index)
            source, now_ms = self._source(replica, target), self._clock.now_ms()
            fence, known = to.accept_fence(source, number, now_ms, open_only=resumption.is_ready)
            committed = to.committed(fence.end)
            if committed is not None:
                await awaited(committed)
            return known
        kind = wire.Kind.FENCE_AGAIN if resumption.is_ready else wire.Kind.FENCE
        request = wire.Request(**self._addressed(replica, target, number), kind=kind)
        response = await awaited(self._sent(target, request))
        return [AdoptedProducer(*producer) for producer in response.producers]


def lane_of(request: wire.Request) -> int:
    """The connection for a target: always the same one, or its requests could overtake each other."""
    return (int.from_bytes(request.topic_id[-4:], "big") + request.target) % LANES


def appended_of(count: int, committed: Callable[[], None] | None, response: wire.Response) -> Appended:
    """Where another broker has a batch of so many records. It is acknowledged already."""
    if committed is not None:
        committed()
    end = Offset(response.base_offset + count)
    return Appended(response.base_offset, response.log_append_time_ms, response.log_start, end)


def forgetting(drain: Drain | Resumption | None, producer_id: ProducerId, error: Exception) -> Exception:
    """The error of a batch, after which a new producer may begin with a later one if it is final."""
    is_final = (
        isinstance(error, BrokerError) and not error.retriable and not isinstance(error, OutOfOrderSequenceNumber)
    )
    if is_final:
        forget(drain, producer_id)
    return error


def forget(drain: Drain | Resumption | None, producer_id: ProducerId) -> None:
    """The target knows a producer for good, or it may begin elsewhere."""
    if isinstance(drain, Drain) and producer_id >= 0:
        drain.forget(source_of(producer_id)[0])


def failing(error: BrokerError, confirmed: Deferred[None] | None) -> Deferred[Appended]:
    """Fails with an error once that is confirmed, or with why it cannot be."""
    failed: Deferred[Appended] = Deferred()
    if confirmed is None:
        failed.fail(error)
    else:
        confirmed.deliver_to(lambda _: failed.fail(error), failed.fail)
    return failed


def responded(result: Deferred[wire.Response], response: wire.Response) -> None:
    if not result.waiting:
        return
    if response.error_code:
        error = ERRORS_BY_CODE.get(response.error_code, UnknownServerError)()
        result.fail(NotLeaderOrFollower(str(error)) if isinstance(error, STALE) else error)
    else:
        result.resolve(response)


def failed(result: Deferred[wire.Response], unknown: type[BrokerError], error: Exception) -> None:
    """Fail as the client has to know it: it sends the batch again, and the target finds it if it has it."""
    if not result.waiting:
        return
    if isinstance(error, NotSent):
        result.fail(NotLeaderOrFollower(str(error)))
    else:
        result.fail(unknown(str(error)) if isinstance(error, PeerUnavailable) else error)


def acknowledged(to: Replica, appended: Appended, acks: int) -> Eventual[wire.Response]:
    """The response once a batch has the requested acknowledgement."""
    response = wire.Response(
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start=appended.log_start,
    )
    if acks == 0:
        return response
    return refusable(after_wait(to.committed(appended.end) if acks == -1 else to.durable(appended.end), response))


def after_wait(wait: Deferred[None] | None, response: wire.Response) -> Eventual[wire.Response]:
    return response if wait is None else wait.then(lambda _: response)


def refusable(eventual: Eventual[wire.Response]) -> Eventual[wire.Response]:
    """The response, with the error code where the wait for it fails."""
    if not isinstance(eventual, Deferred):
        return eventual
    return eventual.catch(BrokerError, lambda error: wire.Response(error_code=error.code))
