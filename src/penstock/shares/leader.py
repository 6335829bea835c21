"""The share partitions of the partitions that this broker leads: load them, write what changes, wake who waits.

A share partition is loaded with the first request of its group, and lasts as long as this broker leads the partition
and members of the group have sessions here. Its rules are in `share_partition`. This drives them: it asks the
persister, sets a timer for the next lock that expires, and watches the replica for records, a moved log start and a
new leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol, TypeVar

from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    LeaderNotAvailable,
    NotCoordinator,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from penstock.model.ids import LeaderEpoch, Offset
from penstock.model.timers import Timer, Timers
from penstock.observe.log import Logger
from penstock.partition.leader import Leader
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.shares.batches import ReadBatches
from penstock.shares.dead_letters import DeadLetters, reason_of
from penstock.shares.keys import hashes_between, keyed
from penstock.shares.letters import Cause
from penstock.shares.persister import UNINITIALIZED_OFFSET, SharePartitionState, SharePersister
from penstock.shares.sessions import SharedPartition
from penstock.shares.settings import GroupSettings, ShareSettings
from penstock.shares.share_partition import Acknowledged, Acquired, DeadRange, ReadBatch, SharePartition, Write
from penstock.shares.time_to_live import divided
from penstock.storage.view import LogChanged, LogView

T = TypeVar("T")

RESTING_BYTES = 1 << 62
"""Growth that never happens: a replica whose share partition nobody waits for notifies only of other changes."""

SEARCHES_MAX = 10
"""Most searches of one log for a time: each but the first follows a change of its files."""

DEAD_AT_ONCE_MAX = 100
"""Records that are copied to the dead letters at once."""

DEAD_RETRY_MS = 1_000
"""Pause before dead letters that could not be copied are tried again; it doubles up to the longest."""

DEAD_RETRY_MS_MAX = 60_000

FENCED = (NotLeaderOrFollower, FencedStateEpoch, GroupIdNotFound, UnknownTopicOrPartition)
"""Errors of the persister after which a share partition has to be loaded again."""


class Waiter(Protocol):
    """A request that waits until something may be acquired."""

    @property
    def member(self) -> str:
        """Whose request it is."""
        ...

    def wake(self, led: LedSharePartition) -> None:
        """Try again: this share partition may have something to acquire, or is gone."""
        ...


class LedSharePartition:
    """One share partition whose partition this broker leads."""

    __slots__ = (
        "_acks",
        "_acks_writing",
        "_burial",
        "_burial_failures",
        "_expiry",
        "_expiry_ms",
        "_owner",
        "_start",
        "_start_ms",
        "_waiters",
        "_waking",
        "_watches",
        "gone",
        "group",
        "key",
        "leader_epoch",
        "replica",
        "share",
    )

    def __init__(self, owner: LedSharePartitions, group: str, key: SharedPartition, replica: Replica) -> None:
        self._owner = owner
        self.group = group
        self.key = key
        self.replica = replica
        self.leader_epoch: LeaderEpoch = replica.role.leader_epoch
        self.share: SharePartition | None = None
        """None while its state is being loaded."""
        self.gone: BrokerError | None = None
        """Why it is over."""
        self._acks: list[Deferred[None]] = []
        """Requests whose changes are in the next write."""
        self._acks_writing: list[Deferred[None]] = []
        """Requests whose changes are being written."""
        self._waiters: dict[Waiter, None] = {}
        self._waking = False
        self._watches = False
        """Whether the replica notifies of growth."""
        self._expiry: Timer | None = None
        self._expiry_ms = 0
        self._burial: Timer | DeadLetters | None = None
        """What copies dead letters, or the timer after which they are tried again."""
        self._burial_failures = 0
        self._start = -1
        self._start_ms = 0
        """Since when the first unfinished record has been that."""

    def __repr__(self) -> str:
        return f"LedSharePartition({self.group}, {self.replica.tp})"

    @property
    def settings(self) -> ShareSettings:
        return self._owner.settings.of(self.group)

    @property
    def is_writing(self) -> bool:
        return self.share is not None and self.share.is_writing

    @property
    def is_burying(self) -> bool:
        """Whether dead letters are on their way."""
        return self._burial is not None

    # Loading

    def load(self) -> None:
        """Read the state, which fences the leader before."""
        self.replica.watch(self, RESTING_BYTES)
        group, (topic_id, index) = self.group, self.key
        self._owner.persister.read(group, topic_id, index, self.leader_epoch).deliver_to(self._read, self._load_failed)

    def _read(self, state: SharePartitionState) -> None:
        if self.gone is not None:
            return
        if state.start_offset != UNINITIALIZED_OFFSET:
            self._begin(state, state.start_offset)
            return
        try:
            start = self._first_start()
        except BrokerError as error:
            self._load_failed(error)
            return
        if start is None:
            self._owner.spawn(self._search(state))
        elif self.settings.auto_offset_reset == "earliest":
            self._begin(state, start)
        else:
            self._begin_once(state, start)

    def _begin_once(self, state: SharePartitionState, start: Offset) -> None:
        """Begin where another leader would not begin later, once that is committed.

        Else the records between the two would be lost to the group, even those that its members hold.
        """
        group, (topic_id, index) = self.group, self.key
        self._owner.persister.write(
            group, topic_id, index, state.state_epoch, self.leader_epoch, start, 0, ()
        ).deliver_to(lambda _: self._begin(state, start) if self.gone is None else None, self._load_failed)

    def _first_start(self) -> Offset | None:
        """Where a new group begins; None where that has to be looked up by time."""
        offsets, settings = self.replica.offsets, self.settings
        if settings.auto_offset_reset == "earliest":
            return offsets.log_start
        if settings.reset_duration_ms is not None:
            return None
        if not self.replica.leading().latest_is_known():
            raise OffsetNotAvailable
        return offsets.high_watermark

    async def _search(self, state: SharePartitionState) -> None:
        """Begin at the first record that is young enough. Without one the group waits for it, as in Kafka."""
        timestamp = self._owner.now_wall_ms() - (self.settings.reset_duration_ms or 0)
        try:
            found = await self._search_log(lambda view: view.offset_for_time(timestamp))
        except Exception as error:
            self._load_failed(error)
            return
        if found is None or found.offset >= self.replica.offsets.high_watermark:
            self._load_failed(OffsetNotAvailable())
        elif self.gone is None:
            self._begin_once(state, found.offset)

    async def _search_log(self, search: Callable[[LogView], T]) -> T:
        """Search the log in a thread, and again when its files changed meanwhile."""
        for left in reversed(range(SEARCHES_MAX)):
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._owner.threads, search, self.replica.log.view())
            except LogChanged:
                if not left:
                    raise
        raise AssertionError("the last search returns or raises")

    def _begin(self, state: SharePartitionState, start: Offset) -> None:
        try:
            now_ms = self._owner.now_ms()
            share = SharePartition(
                state,
                start,
                self.settings.limits,
                now_ms=now_ms,
                wall_ahead_ms=self._owner.now_wall_ms() - now_ms,
            )
        except ValueError as error:
            self._owner.log.error(
                "share_state_refused", group=self.group, partition=str(self.replica.tp), exc_info=error
            )
            self._load_failed(UnknownServerError("The state of the share partition is not sound."))
            return
        share.log_start_moved(self.replica.offsets.log_start)
        if share.by_key and share.unfinished:
            self._owner.spawn(self._learn(share))
        else:
            self._serve(share)

    async def _learn(self, share: SharePartition) -> None:
        """Read the keys of what is unfinished, before any of it is handed out."""
        first, until, budget = Offset(share.start), Offset(share.end), self._owner.replicas.decompression
        try:
            found = await self._search_log(lambda view: hashes_between(view, first, until, budget))
        except Exception as error:
            self._load_failed(error)
            return
        for base, hashes in found:
            share.learn(base, hashes)
        if self.gone is None:
            self._serve(share)

    def _serve(self, share: SharePartition) -> None:
        self.share = share
        self._watch()
        self._plan_expiry(share)
        self._bury()
        self.wake()

    def _load_failed(self, error: Exception) -> None:
        if self.gone is None:
            self.drop(as_client_sees(error))

    # What may be acquired

    def next_offset(self, member: str | None = None) -> Offset | None:
        """The first offset that may be acquired and that readers may see; None where there is none now.

        Without a member it is one that some member may acquire.
        """
        share = self.share
        if share is None:
            return None
        settings = self.settings
        share.limits = settings.limits
        if share.by_key != settings.limits.by_key:
            # Members lose what they hold, and go on under the other order.
            self.drop(NotLeaderOrFollower())
            return None
        offsets = self.replica.offsets
        if offsets.log_start > share.start:
            share.log_start_moved(offsets.log_start)
        offset = share.next_offset(member)
        return offset if offset is not None and offset < self._readable_end() else None

    def _readable_end(self) -> Offset:
        """Where what readers of the group may see ends."""
        offsets = self.replica.offsets
        return offsets.last_stable if self.settings.read_committed else offsets.high_watermark

    def acquire(
        self,
        member: str,
        batches: ReadBatches,
        fetch_offset: Offset,
        *,
        records_max: int,
        records_exact: bool,
        batch_size: int,
    ) -> list[Acquired]:
        """Hand out records that were read at once from `next_offset` on."""
        share = self.share
        assert share is not None, f"{self}: acquired before it is loaded"
        has_ttl = self.replica.config.ttl_enable
        was_idle = not share.unfinished
        read: Iterable[ReadBatch] = divided(batches, self._owner.now_wall_ms()) if has_ttl else batches
        acquired = share.acquire(
            member,
            keyed(read, batches) if share.by_key else read,
            fetch_offset=fetch_offset,
            records_max=records_max,
            records_exact=records_exact,
            batch_size=batch_size,
            now_ms=self._owner.now_ms(),
        )
        if acquired:
            self._plan_expiry(share)
            self._owner.count(acquired)
            self._note_start(share, is_new=was_idle)
        if share.has_unwritten:
            # What has expired, and batches without records.
            self._write()
        return acquired

    def _note_start(self, share: SharePartition, *, is_new: bool = False) -> None:
        if is_new or share.start != self._start:
            self._start, self._start_ms = share.start, self._owner.now_ms()

    def start_seconds(self) -> float:
        """For how long the first unfinished record has been that; 0 without one."""
        if self.share is None or not self.share.unfinished:
            return 0.0
        return (self._owner.now_ms() - self._start_ms) / 1000

    # Acknowledging

    def acknowledge(self, member: str, ranges: Sequence[Acknowledged]) -> Deferred[None] | None:
        """Take a member's acknowledgements; None when there is nothing to wait for."""
        share = self.share
        if share is None:
            raise LeaderNotAvailable("The share partition is being loaded.")
        share.limits = self.settings.limits
        is_queued = share.acknowledge(member, ranges, self._owner.now_ms())
        self._plan_expiry(share)
        return self._written_later() if is_queued else None

    def release(self, member: str) -> Deferred[None] | None:
        """Release what a member holds; None when there is nothing to wait for."""
        share = self.share
        if share is None or not share.release_member(member):
            return None
        return self._written_later()

    def _written_later(self) -> Deferred[None]:
        result: Deferred[None] = Deferred()
        self._acks.append(result)
        self._write()
        return result

    def _write(self) -> None:
        share = self.share
        write = None if share is None or self.gone is not None else share.begin_write()
        if share is None or write is None:
            return
        self._acks_writing, self._acks = self._acks, []
        group, (topic_id, index) = self.group, self.key
        self._owner.persister.write(
            group,
            topic_id,
            index,
            share.state_epoch,
            self.leader_epoch,
            write.start,
            write.delivery_complete_count,
            write.batches,
        ).deliver_to(partial(self._written, share, write), partial(self._write_failed, share, write))

    def _written(self, share: SharePartition, write: Write, _: None) -> None:
        share.written(write)
        self._note_start(share)
        self._remove_consumed(write.start)
        self._plan_expiry(share)
        self._settle(None)

    def _write_failed(self, share: SharePartition, write: Write, error: Exception) -> None:
        share.write_failed(write)
        self._owner.count_expired(share)
        seen = as_client_sees(error)
        self._owner.log.debug(
            "share_state_unwritten", group=self.group, partition=str(self.replica.tp), reason=str(error)
        )
        if isinstance(seen, FENCED):
            self.drop(seen)
        self._settle(seen)

    def _settle(self, error: BrokerError | None) -> None:
        """Respond to the requests whose changes were written, and write what was queued meanwhile."""
        acks, self._acks_writing = self._acks_writing, []
        if self._acks or error is None:
            self._write()
        self._bury()
        for ack in acks:
            if error is None:
                ack.resolve(None)
            else:
                ack.fail(error)
        self.wake()
        self._owner.settled(self)

    def _remove_consumed(self, start: Offset) -> None:
        """Remove what is finished, now that this is committed, if the topic is there for this group alone."""
        replica = self.replica
        offset = min(start, replica.offsets.high_watermark)
        if replica.config.consume_group != self.group or self.gone is not None or offset <= replica.offsets.log_start:
            return
        try:
            replica.delete_records(offset)
        except BrokerError as error:
            self._owner.log.warning("consumed_records_kept", partition=str(replica.tp), reason=str(error))

    # Dead letters

    def _bury(self) -> None:
        """Copy what is given up to the dead letters, some records at a time."""
        share, letters = self.share, self._owner.dead_letters
        if share is None or letters is None or self.gone is not None or self._burial is not None:
            return
        dead = share.begin_copy(DEAD_AT_ONCE_MAX)
        if not dead:
            return
        settings = self.settings
        cause = Cause(self.replica.tp, self.group, settings.limits.deliveries_max)
        self._burial = letters
        letters.copy(self.replica, cause, settings.dead_letter_topic, dead, copies=settings.copies_dead).deliver_to(
            partial(self._buried, share), partial(self._unburied, share)
        )

    def _buried(self, share: SharePartition, dead: list[DeadRange]) -> None:
        self._burial, self._burial_failures = None, 0
        if self.gone is not None:
            return
        share.copied(dead)
        self._write()
        self._bury()
        self.wake()

    def _unburied(self, share: SharePartition, error: Exception) -> None:
        self._burial = None
        share.copy_failed()
        if self.gone is not None:
            return
        if not self._burial_failures:
            self._owner.log.warning(
                "dead_letters_not_copied",
                group=self.group,
                partition=str(self.replica.tp),
                topic=self.settings.dead_letter_topic,
                reason=reason_of(error),
            )
        pause_ms = min(DEAD_RETRY_MS << min(self._burial_failures, 16), DEAD_RETRY_MS_MAX)
        self._burial_failures += 1
        self._burial = self._owner.timers.after_ms(pause_ms, self._bury_again)

    def _bury_again(self) -> None:
        self._burial = None
        self._bury()

    # Expiry

    def _plan_expiry(self, share: SharePartition) -> None:
        """Set the timer for the next lock that expires. One that is set for earlier looks again then."""
        deadline_ms = share.next_deadline_ms()
        if deadline_ms is None or self.gone is not None:
            return
        if self._expiry is not None:
            if self._expiry_ms <= deadline_ms:
                return
            self._expiry.cancel()
        self._expiry_ms = deadline_ms
        self._expiry = self._owner.timers.after_ms(deadline_ms - self._owner.now_ms(), self._expire)

    def _expire(self) -> None:
        self._expiry = None
        share = self.share
        if share is None or self.gone is not None:
            return
        if share.expire(self._owner.now_ms()):
            self._owner.count_expired(share)
            self._write()
            self.wake()
        self._plan_expiry(share)

    # Waiting

    def wait(self, waiter: Waiter) -> None:
        """Wake a request when something may be acquired, or this is over, until `leave`."""
        self._waiters[waiter] = None
        if not self._watches:
            self._watch()

    def leave(self, waiter: Waiter) -> None:
        # The replica is watched until it grows the next time: the member is likely to be back by then.
        self._waiters.pop(waiter, None)

    def _watch(self) -> None:
        """Be notified of growth if a request waits for it."""
        if self.gone is None:
            self._watches = bool(self._waiters) and self.share is not None
            self.replica.watch(self, 0 if self._watches else RESTING_BYTES)

    def notify(self) -> None:
        """The replica changed: it grew, its log start moved, or it has another role."""
        if self.gone is not None:
            return
        role = self.replica.role
        if not isinstance(role, Leader) or not 0 <= role.leader_epoch - self.leader_epoch <= 1:
            # In an epoch that this broker does not know another one may have led, and handed out records.
            self.drop(NotLeaderOrFollower())
            return
        self.leader_epoch = role.leader_epoch
        if not self._waiters:
            self._watch()
        else:
            self.wake()

    def wake(self) -> None:
        """Let the requests that wait try again, the first first, as long as there is something to acquire."""
        if self._waking:
            return
        self._waking = True
        try:
            takers = self._takers()
            for waiter in list(self._waiters):
                if self.gone is None and self.next_offset() is None:
                    break
                if waiter in self._waiters and (takers is None or waiter.member in takers):
                    waiter.wake(self)
                    if waiter not in self._waiters:
                        takers = self._takers()
        finally:
            self._waking = False

    def _takers(self) -> frozenset[str] | None:
        """The members that may get something now; None is any member."""
        share = self.share
        if share is None or self.gone is not None or not share.by_key or not self._waiters:
            return None
        if share.room() and share.end < self._readable_end():
            return None
        return share.takers()

    # The end

    def drop(self, reason: BrokerError) -> None:
        """End this: it has to be loaded again, here or by another leader. What is being written gets its response."""
        if self.gone is not None:
            return
        self.gone = reason
        self.replica.unwatch(self)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if isinstance(self._burial, Timer):
            self._burial.cancel()
        self._owner.dropped(self)
        acks, self._acks = self._acks, []
        for ack in acks:
            ack.fail(reason)
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.wake(self)


class LedSharePartitions:
    """The share partitions that are loaded on this broker."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        persister: SharePersister,
        settings: GroupSettings,
        timers: Timers,
        threads: Executor,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        now_ms: Callable[[], int],
        now_wall_ms: Callable[[], int],
        has_sessions: Callable[[str], bool],
        log: Logger,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        """`has_sessions` says whether members of a group have sessions on this broker."""
        self.dead_letters = dead_letters
        self.replicas = replicas
        self.persister = persister
        self.settings = settings
        self.timers = timers
        self.threads = threads
        self.spawn = spawn
        self.now_ms = now_ms
        self.now_wall_ms = now_wall_ms
        self.log = log
        self._has_sessions = has_sessions
        self._led: dict[str, dict[SharedPartition, LedSharePartition]] = {}
        self.delivered = 0
        """Records handed out since the broker was started."""
        self.redelivered = 0
        """Those of them that had been handed out before."""
        self.expired = 0
        """Those of them whose lock expired."""

    def __len__(self) -> int:
        return sum(map(len, self._led.values()))

    def __iter__(self) -> Iterator[LedSharePartition]:
        for of_group in list(self._led.values()):
            yield from list(of_group.values())

    def count(self, acquired: Sequence[Acquired]) -> None:
        """Count what was handed out."""
        for each in acquired:
            many = each.last + 1 - each.first
            self.delivered += many
            if each.deliveries > 1:
                self.redelivered += many

    def count_expired(self, share: SharePartition) -> None:
        """Count the records whose lock has expired since the last call."""
        self.expired += share.locks_expired
        share.locks_expired = 0

    def of_group(self, group: str) -> list[LedSharePartition]:
        """The share partitions of a group."""
        return list(self._led.get(group, {}).values())

    def find(self, group: str, key: SharedPartition) -> LedSharePartition | None:
        """A share partition that is loaded, or being loaded."""
        of_group = self._led.get(group)
        return None if of_group is None else of_group.get(key)

    def get(self, group: str, key: SharedPartition) -> LedSharePartition:
        """A share partition, loading it if need be; raises why this broker does not lead the partition."""
        found = self.find(group, key)
        if found is not None and found.replica.config.consume_group in ("", group):
            return found
        replica = self.replicas.find(key.topic_id, key.partition)
        replica.leading()
        if replica.config.consume_group not in ("", group):
            refused = TopicAuthorizationFailed(
                f"topic {replica.tp.topic} is consumed by group {replica.config.consume_group} alone "
                "(consume.group): its records are removed once that group has consumed them"
            )
            if found is not None:
                # The topic has not always been so.
                found.drop(refused)
            raise refused
        if found is None:
            found = LedSharePartition(self, group, key, replica)
            self._led.setdefault(group, {})[key] = found
            found.load()
            if found.gone is not None:
                raise found.gone
        return found

    def acknowledged(self, group: str, key: SharedPartition) -> LedSharePartition:
        """The share partition of an acknowledgement, which loads nothing: who holds records has fetched them."""
        found = self.find(group, key)
        if found is None:
            self.replicas.find(key.topic_id, key.partition).leading()
            raise UnknownTopicOrPartition(UnknownTopicOrPartition.meaning())
        return found

    def dropped(self, led: LedSharePartition) -> None:
        of_group = self._led.get(led.group)
        if of_group is not None and of_group.get(led.key) is led:
            del of_group[led.key]
            if not of_group:
                del self._led[led.group]

    def settled(self, led: LedSharePartition) -> None:
        """A write has ended: nothing of a group without sessions is kept."""
        if led.gone is None and not led.is_writing and not led.is_burying and not self._has_sessions(led.group):
            led.drop(NotLeaderOrFollower())

    def session_ended(self, group: str) -> None:
        """Forget a group's share partitions with its last session: whoever comes next loads them."""
        if not self._has_sessions(group):
            for led in self.of_group(group):
                self.settled(led)


def as_client_sees(error: Exception) -> BrokerError:
    """An error of the persister as Kafka sends it to the member."""
    if isinstance(error, CoordinatorLoadInProgress | NotCoordinator):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, FencedLeaderEpoch | FencedStateEpoch):
        return NotLeaderOrFollower(str(error))
    return error if isinstance(error, BrokerError) else UnknownServerError()
