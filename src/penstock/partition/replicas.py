"""The partitions this broker holds, kept in step with the metadata.

The first request for a partition opens its log, reads its producers and makes its replica. A broker with ten thousand
partitions therefore starts as fast as one with ten.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from penstock.config.broker import BrokerConfig
from penstock.config.log import TopicConfig
from penstock.metadata.image import ImageDelta, TopicChange
from penstock.model.clock import Clock, monotonic_ms
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidTopic,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import (
    NO_LEADER_EPOCH,
    TOPIC_ID_ZERO,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from penstock.model.removals import CopyStart, Removals
from penstock.model.threads import Threads
from penstock.model.timers import Timers
from penstock.model.topic import PartitionState, TopicState
from penstock.observe.log import Logger
from penstock.partition import role as roles
from penstock.partition.cluster_port import ClusterPort
from penstock.partition.follower import Follower
from penstock.partition.leader import Leader
from penstock.partition.offsets import Offsets
from penstock.partition.producer_replay import Replayed, replay_producers
from penstock.partition.producers import ProducerTable
from penstock.partition.redirect import Drain
from penstock.partition.refused_changes import RefusedChanges
from penstock.partition.replica import Replica
from penstock.partition.role import Offline
from penstock.partition.validation import RecordCheck, ValidationRules
from penstock.partition.views import Views
from penstock.partition.watchers import WatcherNotifier
from penstock.storage.directories import LogDirectory
from penstock.storage.flush import FlushJob
from penstock.storage.group_commit import GroupCommit
from penstock.storage.log import Log
from penstock.storage.recovery import Loaded
from penstock.storage.store import LogStore
from penstock.storage.view import LogView
from penstock.storage.walk import BadBatch
from penstock.wire.decompression_budget import DecompressionBudget

Settings = tuple[TopicConfig, ValidationRules]


class Replicas:
    """The replicas of this broker: finds the replica of a partition, or raises why there is none."""

    __slots__ = (
        "_broker_id",
        "_clock",
        "_closed",
        "_config",
        "_damaged",
        "_deleted_names",
        "_fenced",
        "_flushes",
        "_ghosts",
        "_is_deleted",
        "_live",
        "_log",
        "_names",
        "_notifier",
        "_record_check",
        "_refused",
        "_replayed",
        "_settings",
        "_store",
        "_threads",
        "_topics",
        "cluster",
        "decompression",
        "views",
    )

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        config: BrokerConfig,
        store: LogStore,
        clock: Clock,
        notifier: WatcherNotifier,
        flushes: GroupCommit,
        threads: Threads,
        timers: Timers,
        log: Logger,
        is_deleted: Callable[[TopicId], bool] = lambda _: False,
        deleted_names: Callable[[], Collection[str]] = tuple,
        cluster: ClusterPort | None = None,
        fenced: bool = False,
        record_check: Callable[[TopicConfig], RecordCheck | None] = lambda _: None,
    ) -> None:
        """`record_check` gives the check of records in topics whose records have a meaning to the broker.

        `is_deleted` says whether a client deleted the topic with an id: only such a topic's logs are removed.

        `deleted_names` gives the names of deleted topics whose logs may still be on the disk. A broker that is `fenced`
        leads and follows nothing until `unfence`.
        """
        self.cluster = ClusterPort() if cluster is None else cluster
        self._fenced = fenced
        self._record_check = record_check
        self._is_deleted = is_deleted
        self._deleted_names = deleted_names
        self._broker_id = broker_id
        self._config = config
        self._store = store
        self._clock = clock
        self._notifier = notifier
        self._flushes = flushes
        self._threads = threads
        self.decompression = DecompressionBudget(config.decompression_max_bytes)
        """Limit on the decompressed records that all requests hold at once."""
        self.views = Views()
        """Filtered views: their records are in the replicas of their parents."""
        self._log = log
        self._live: dict[str, dict[int, Replica]] = {}
        self._ghosts: dict[str, dict[int, PartitionState]] = {}
        """Ghosts in use of each topic, with the state that they are served in."""
        self._topics: dict[str, TopicState] = {}
        self._names: dict[bytes, str] = {}
        self._settings: dict[frozenset[tuple[str, str]], Settings] = {}
        """Topics with the same overrides share one object: ten thousand partitions need a handful."""
        self._replayed: dict[TopicPartition, Replayed] = {}
        """Producers read ahead at start, until their replicas are made."""
        self._damaged: dict[TopicPartition, LeaderEpoch] = {}
        """Replicas of several whose logs are damaged, with the last leader epoch in which they served or fetched: they
        are repaired when no record counts on them."""
        self._refused = RefusedChanges(timers, self._follow_again)
        self._closed = False

    # Finding

    def get(self, topic: str, partition: int) -> Replica:
        """The replica of a partition. The methods of a replica that cannot serve raise why."""
        try:
            return self._live[topic][partition]
        except KeyError:
            return self._open(topic, partition)

    def find(self, topic: object, partition: int) -> Replica:
        """As `get`, by topic name or id, whichever the request has."""
        if isinstance(topic, str):
            return self.get(topic, partition)
        assert isinstance(topic, bytes), f"neither a name nor an id: {topic!r}"
        name = self._names.get(topic)
        if name is None:
            raise UnknownTopicId()
        return self.get(name, partition)

    def readable(self, topic: str, partition: int) -> Replica:
        """The replica that consumers of a topic or a view read: a view's is its parent's."""
        view = self.views.get(topic) if len(self.views) else None
        return self.get(topic if view is None else view.parent, partition)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def name_of(self, topic: object) -> str | None:
        """The name of a topic that a request gives by name or by id."""
        if isinstance(topic, str) or not isinstance(topic, bytes):
            return topic if isinstance(topic, str) else None
        name = self._names.get(topic)
        if name is None and (view := self.views.get(topic)) is not None:
            return view.name
        return name

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def used(self, tp: TopicPartition) -> Replica | None:
        """The replica of a partition, if a request has opened it."""
        replicas = self._live.get(tp.topic)
        return None if replicas is None else replicas.get(tp.partition)

    def live(self) -> Iterator[Replica]:
        """The replicas that requests have opened; copy it before code that may open or drop one runs."""
        return (replica for replicas in self._live.values() for replica in replicas.values())

    def followed(self) -> Iterator[Replica]:
        """The replicas that have a leader to fetch from. All of them are open; copy it as `live`."""
        return (replica for replica in self.live() if replica.follows)

    def __len__(self) -> int:
        """Partitions of all topics, used or not."""
        return sum(len(topic.partitions) for topic in self._topics.values())

    def settings(self, overrides: Mapping[str, str]) -> Settings:
        """A topic's settings, resolved once for all topics that have the same overrides."""
        key = frozenset(overrides.items())
        found = self._settings.get(key)
        if found is None:
            config = TopicConfig.resolve(overrides, self._config)
            found = self._settings[key] = (config, ValidationRules(config, self._record_check(config)))
        return found

    # Opening

    def _open(self, topic: str, partition: int) -> Replica:
        """Open a replica at the first request for its partition."""
        if self._closed:
            # The log directory is marked clean; another broker may already write to it.
            raise NotLeaderOrFollower()
        known = self._topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            view = self.views.get(topic)
            if view is not None:
                raise InvalidTopic(f"{topic} is a view of {view.parent}: it can only be read")
            raise UnknownTopicOrPartition()
        decided = known.partitions[partition]
        if decided.is_ghost:
            return self._open_ghost(known, decided)
        if self._broker_id not in decided.replicas:
            raise NotLeaderOrFollower()
        tp = TopicPartition(topic, partition)
        if tp in self._damaged:
            raise damaged_log(tp)
        config, rules = self.settings(known.configs)
        log = self._log_of(tp, known, config)
        log.directory.check()
        log.config = config
        log.replicated = len(decided.replicas) > 1
        log.open()
        if log.log_end < decided.log_base:
            # All its records are gone, and their offsets may have been read: this replica was away meanwhile.
            log.restart_at(decided.log_base)
        log.delete_before(decided.log_base)
        producers, snapshot_at, _ = self._producers_of(log)
        waiting = self._waiting(log, producers, config)
        role: roles.Role = waiting
        if not self._fenced:
            self._check_epoch(tp, waiting, decided, log)
            role = roles.assume(waiting, decided, monotonic_ms(self._clock), newest_epoch=log.epochs.latest).role
        assert not isinstance(role, Offline), f"{tp}: offline before it was opened"
        replica = self._made(known, log, role, (config, rules))
        replica.follow_detour(decided)
        replica.snapshot_at = snapshot_at
        return replica

    def _waiting(self, log: Log, producers: ProducerTable, config: TopicConfig) -> Follower:
        """The role in which the replica of a log begins."""
        offsets = Offsets.recovered(
            log_start=log.log_start,
            log_end=log.log_end,
            high_watermark=log.high_watermark,
            durable_end=log.recovery_point if config.flush == "group" else None,
        )
        return Follower(
            offsets,
            producers,
            broker_id=self._broker_id,
            in_sync_min=config.min_insync_replicas,
            flush_group=config.flush == "group",
        )

    def _made(self, topic: TopicState, log: Log, role: Leader | Follower, settings: Settings) -> Replica:
        replica = Replica(
            log.tp,
            topic.topic_id,
            log,
            role,
            role.producers,
            *settings,
            notifier=self._notifier,
            flushes=self._flushes,
            threads=self._threads.executor,
            decompression=self.decompression,
            cluster=self.cluster,
        )
        replica.snapshot_ms = self._clock.now_ms()
        self._live.setdefault(log.tp.topic, {})[log.tp.partition] = replica
        return replica

    # Ghosts

    def _open_ghost(self, topic: TopicState, decided: PartitionState) -> Replica:
        """A drained partition without replicas, at the leader of its target: nothing to read, and no log to append to.

        It lasts while that broker leads the target, in one leader epoch.
        """
        shown = topic.shown(decided.index)
        if self._fenced or shown.leader != self._broker_id:
            raise NotLeaderOrFollower()
        target = self.get(topic.name, decided.drained_into)
        numbers = target.ghost_numbers(decided.index)
        config, rules = self.settings(topic.configs)
        tp = TopicPartition(topic.name, decided.index)
        log = self._store.unwritten(tp, topic.topic_id, config, target.log.directory, base=decided.log_base)
        log.open()
        alone = replace(shown, replicas=(self._broker_id,), isr=(self._broker_id,))
        waiting = self._waiting(log, ProducerTable(), config)
        role = roles.lead(waiting, alone, monotonic_ms(self._clock))
        replica = self._made(topic, log, role, (config, rules))
        replica.detour = Drain(
            partition=decided.index,
            target=decided.drained_into,
            leader_epoch=shown.leader_epoch,
            life=decided.log_base,
            numbers=numbers,
        )
        replica.detour.barrier = decided.log_base
        replica.snapshot_at = decided.log_base
        self._ghosts.setdefault(topic.name, {})[decided.index] = shown
        return replica

    def _drop_ghosts(self, topic: str, *, unless: TopicState | None = None) -> None:
        """Stop serving ghosts of a topic, `unless` they are the same in another state of it."""
        ghosts = self._ghosts.get(topic, {})
        for index, served in list(ghosts.items()):
            now = None if unless is None else unless.shown(index)
            if now is None or (now.leader, now.leader_epoch) != (served.leader, served.leader_epoch):
                self._stop_serving(TopicPartition(topic, index), NotLeaderOrFollower())

    def _check_epoch(self, tp: TopicPartition, role: roles.Role, decided: PartitionState, log: Log) -> None:
        """Report that this broker will not lead, because its log has records of the epoch that it is to lead in."""
        if isinstance(role, Offline):
            return
        if decided.leader == self._broker_id and roles.is_too_old(role, decided, log.epochs.latest):
            self._log.error(
                "leader_epoch_too_old",
                partition=str(tp),
                leader_epoch=decided.leader_epoch,
                newest_epoch=log.epochs.latest,
                hint="the metadata is older than the log: it may have been restored from a backup",
            )

    def _log_of(self, tp: TopicPartition, topic: TopicState, config: TopicConfig) -> Log:
        """The partition's log, created where it is missing."""
        log = self._own_log(tp, topic)
        if log is None:
            self._check_whole()
            log = self._create_log(tp, topic, config)
        return log

    def _own_log(self, tp: TopicPartition, topic: TopicState) -> Log | None:
        """The log of a topic's partition. A log of another topic id is deleted or set aside."""
        log = self._store.get(tp)
        if log is None or self._is_of(log, topic):
            return log
        self._dismiss(log)
        return None

    def _is_of(self, log: Log, topic: TopicState) -> bool:
        """Whether a log belongs to a topic. A log without an id may be of a deleted topic of the same name."""
        if log.topic_id == TOPIC_ID_ZERO:
            return topic.name not in self._deleted_names()
        return log.topic_id == topic.topic_id

    def _create_log(self, tp: TopicPartition, topic: TopicState, config: TopicConfig) -> Log:
        """The topic's log that was set aside while the metadata did not have the topic; otherwise an empty log."""
        restored = self._store.restore(tp, topic.topic_id, config)
        if restored is not None:
            return restored
        return self._store.create(tp, topic.topic_id, config, base=topic.partitions[tp.partition].log_base)

    def _dismiss(self, log: Log) -> None:
        """Remove a log whose topic a client deleted; set every other log aside.

        A log without metadata may be the only copy of a topic: metadata may have been lost or restored from a backup.
        """
        if self._is_deleted(log.topic_id):
            self._store.delete(log.tp)
            self._log.info("deletion_finished", partition=str(log.tp))
            return
        lost = f"its topic id is lost, and a topic {log.tp.topic} was deleted before the stop"
        unknown = f"the metadata has no topic with its id, {log.topic_id.hex()}"
        self._set_aside(
            log, lost if log.topic_id == TOPIC_ID_ZERO and log.tp.topic in self._deleted_names() else unknown
        )

    def _set_aside(self, log: Log, reason: str) -> None:
        self._log.warning(
            "log_set_aside",
            partition=str(log.tp),
            path=self._store.set_aside(log.tp),
            reason=reason,
            hint="'penstock log adopt' makes it a topic again; the broker never removes it",
        )

    def _check_whole(self) -> None:
        """Raise while a log directory is offline: a missing log may be in it and must not be recreated."""
        for directory in self._store.all_directories:
            directory.check()

    def _producers_of(self, log: Log) -> Replayed:
        if log.log_end == 0 or not log.partition_directory.made:
            return Replayed(ProducerTable(), log.log_end, 0)
        ahead = self._replayed.pop(log.tp, None)
        if ahead is not None:
            return ahead
        return self._settle_replay(log, lambda: self._replay(log.view(), log.high_watermark))

    def _replay(self, view: LogView, high_watermark: Offset) -> Replayed:
        """Read the producers of a log. May run in any thread."""
        now_ms, idle_ms_max = self._clock.now_ms(), self._config.producer_id_expiration_ms
        return replay_producers(view, high_watermark, now_ms, idle_ms_max)

    def _replay_at_start(self, log: Log) -> Callable[[], Replayed | Exception]:
        """The work of reading a log's producers, for any thread. It returns its failure: the other logs go on."""
        view, high_watermark = log.view(), log.high_watermark

        def replay() -> Replayed | Exception:
            try:
                return self._replay(view, high_watermark)
            except Exception as error:
                return error

        return replay

    def _settle_replay(self, log: Log, replay: Callable[[], Replayed]) -> Replayed:
        """The result of a replay, retried once after a repair if the log is damaged.

        A disk error takes the log directory offline; any other error takes only this partition offline.
        """
        try:
            try:
                found = replay()
            except BadBatch as damage:
                if log.replicated and self.counts(log.tp):
                    raise self._resign(log.tp, damage) from damage
                self._log.warning("log_repair", partition=str(log.tp), reason=str(damage))
                log.repair()
                found = self._replay(log.view(), log.high_watermark)
        except OSError as error:
            raise log.failed(error, f"reading the producers of {log.tp}") from error
        except DamagedReplica:
            raise
        except Exception as error:
            log.directory.check()
            refusal = log.offline or log.take_offline(f"its producers cannot be read: {type(error).__name__}: {error}")
            self._log.exception("partition_offline", partition=str(log.tp), path=log.path)
            raise refusal from error
        if found.rebuilt:
            self._log.info("aborted_transactions_rebuilt", partition=str(log.tp), index_files=found.rebuilt)
        return found

    async def repair(self, tp: TopicPartition) -> bool | None:
        """Repair a log in which a corrupt batch was found, and serve the rest.

        Returns whether damage was quarantined; None when the log cannot be repaired now. The partition is not served
        meanwhile, and requests that wait for it fail.
        """
        log = self._store.get(tp)
        if log is None or not log.opened or log.offline is not None or log.cleaning is not None:
            return None
        if log.replicated:
            self.resign(tp, "a batch is damaged")
            return None
        replica = self._live.get(tp.topic, {}).pop(tp.partition, None)
        if replica is not None:
            replica.note_committed()
            replica.leave(NotLeaderOrFollower())
        self._replayed.pop(tp, None)
        work = log.begin_repair()
        try:
            loaded = await asyncio.get_running_loop().run_in_executor(self._threads.executor, work)
        except Exception as error:
            if self._store.get(tp) is not log:
                # Deleted meanwhile, and its files with it.
                return None
            log.fail_repair(error)
        if self._store.get(tp) is not log:
            return None
        log.end_repair(loaded)
        return any(finding.serious for finding in loaded.findings)

    # Damage in one of several replicas

    def counts(self, tp: TopicPartition) -> bool:
        """Whether this broker leads a partition, is in its ISR or eligible: records may be held because it has them."""
        decided = self._decided(tp)
        if decided is None:
            return False
        return self._broker_id in (decided.leader, *decided.isr, *decided.eligible_leader_replicas)

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether the log of a partition is offline, which only a restart ends."""
        log = self._store.get(tp)
        return log is not None and (log.offline is not None or log.directory.offline is not None)

    def is_known_to_fail(self, tp: TopicPartition) -> bool:
        """Whether the controller knows that this broker cannot use its log of a partition."""
        decided = self._decided(tp)
        return decided is not None and self._broker_id in decided.failed_replicas

    def _decided(self, tp: TopicPartition) -> PartitionState | None:
        topic = self._topics.get(tp.topic)
        return None if topic is None or tp.partition >= len(topic.partitions) else topic.partitions[tp.partition]

    def is_damaged(self, tp: TopicPartition) -> bool:
        """Whether a replica of several waits to be repaired."""
        return tp in self._damaged

    def resign(self, tp: TopicPartition, reason: object) -> None:
        """Stop serving a replica of several whose log is damaged, until no record counts on it and it is cut there.

        It must not repair itself while others count on what it holds (`role.may_cut`).
        """
        self._resign(tp, reason)
        self._repair_damaged(tp)

    def _resign(self, tp: TopicPartition, reason: object) -> "DamagedReplica":
        refusal = damaged_log(tp)
        replica = self._live.get(tp.topic, {}).pop(tp.partition, None)
        if tp not in self._damaged:
            self._log.error("replica_damaged", partition=str(tp), reason=str(reason))
            decided = self._decided(tp)
            known = NO_LEADER_EPOCH if decided is None else decided.leader_epoch
            self._damaged[tp] = known if replica is None else replica.role.leader_epoch
        if replica is not None:
            replica.note_committed()
            replica.leave(refusal)
        self._replayed.pop(tp, None)
        self.cluster.on_resigned(tp)
        self._report([tp])
        return refusal

    def _repair_damaged(self, tp: TopicPartition) -> None:
        """Cut a damaged log that nobody counts on, off the loop, and follow again."""
        log, decided, last_epoch = self._store.get(tp), self._decided(tp), self._damaged.get(tp)
        if log is None or decided is None or last_epoch is None or self._fenced:
            return
        if not roles.may_cut(decided, self._broker_id, last_epoch):
            return
        if not log.opened or log.offline is not None or log.cleaning is not None:
            return
        work = log.begin_repair()
        repair = asyncio.get_running_loop().run_in_executor(self._threads.executor, work)
        repair.add_done_callback(partial(self._repaired, log))

    def _repaired(self, log: Log, repair: "asyncio.Future[Loaded]") -> None:
        tp = log.tp
        if self._store.get(tp) is not log or self._closed:
            self._damaged.pop(tp, None)
            return
        try:
            error = repair.exception()
            if error is not None:
                log.fail_repair(error if isinstance(error, Exception) else Exception(str(error)))
            log.end_repair(repair.result())
            # It goes on below its old marks.
            self._store.checkpoint_cut(log.directory)
        except KafkaStorageError as failure:
            self._log.error("replica_not_repaired", partition=str(tp), reason=str(failure))
            return
        self._damaged.pop(tp, None)
        topic = self._topics.get(tp.topic)
        if topic is not None and tp.partition < len(topic.partitions) and self._is_replica(tp):
            self._open_follower(topic, topic.partitions[tp.partition])
            self._report([tp])

    # Following the metadata

    def start(self, topics: Iterable[TopicState]) -> None:
        """Take over the topics of the metadata. Reads the producers of logs that recovery has opened.

        Called before serving: it may read all that was written since the last producer snapshots.
        """
        whole = all(directory.offline is None for directory in self._store.all_directories)
        for topic in topics:
            self._adopt(topic, created=whole)
        self._store.settle_restored()
        self._dismiss_unknown()
        if not self._fenced:
            self._leave_removed()
        logs = [log for log in self._store if log.opened and log.log_end and self._is_held(log)]
        replays = [self._replay_at_start(log) for log in logs]
        outcomes = self._threads.run_all(
            lambda replay: replay(), replays, at_once=self._config.num_recovery_threads_per_data_dir
        )
        for log, outcome in zip(logs, outcomes, strict=True):
            # The fault of a log or its disk is logged, and every request for the partition fails with it.
            with suppress(KafkaStorageError):
                self._replayed[log.tp] = self._settle_replay(log, partial(result_of, outcome))
        self._flush_found()

    def _dismiss_unknown(self) -> None:
        """Dismiss logs that the metadata does not have."""
        for log in list(self._store):
            try:
                if not self._is_held(log):
                    self._dismiss(log)
            except KafkaStorageError as error:
                self._log.error("log_without_topic", partition=str(log.tp), path=log.path, reason=str(error))
                self._try_again(log.tp)

    def _flush_found(self) -> None:
        """Flush the records found after a crash in logs with `flush=group`, whose readers see only flushed records."""
        jobs: list[tuple[Log, FlushJob]] = []
        for log in self._store:
            if log.opened and log.is_dirty and log.offline is None and self._is_held(log):
                config, _ = self.settings(self._topics[log.tp.topic].configs)
                job = log.begin_flush() if config.flush == "group" and log.directory.offline is None else None
                if job is not None:
                    jobs.append((log, job))
        for (log, job), failure in zip(jobs, self._store.run_flushes([job for _, job in jobs]), strict=True):
            # A failed flush takes the directory offline, and every request for the partition fails with it.
            with suppress(KafkaStorageError):
                log.finish_flush(job, failure)

    def _is_held(self, log: Log) -> bool:
        topic = self._topics.get(log.tp.topic)
        if topic is None or log.tp.partition >= len(topic.partitions):
            return False
        return self._is_of(log, topic)

    def _is_replica(self, tp: TopicPartition) -> bool:
        return self._broker_id in self._topics[tp.topic].partitions[tp.partition].replicas

    def _adopt(self, topic: TopicState, *, created: bool) -> None:
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self._settle(topic, range(len(topic.partitions)), created=created)

    def _settle(self, topic: TopicState, partitions: Iterable[int], *, created: bool) -> None:
        """Give logs that exist their settings, and new partitions their logs."""
        config, _ = self.settings(topic.configs)
        for index in partitions:
            if self._broker_id in topic.partitions[index].replicas:
                tp = TopicPartition(topic.name, index)
                try:
                    self._settle_log(tp, topic, config, created=created)
                except KafkaStorageError as error:
                    self._not_followed(tp, error)

    def _settle_log(self, tp: TopicPartition, topic: TopicState, config: TopicConfig, *, created: bool) -> None:
        log = self._own_log(tp, topic)
        if log is None and created:
            log = self._create_log(tp, topic, config)
        if log is None:
            return
        log.config = config
        log.replicated = len(topic.partitions[tp.partition].replicas) > 1
        if log.is_lost:
            # Offline from here on, also after the next start; requests for it fail with the reason.
            with suppress(KafkaStorageError):
                log.open()

    def apply(self, delta: ImageDelta) -> None:
        """Apply a metadata change: topics created, deleted, grown or reconfigured, leaders changed."""
        changed: list[TopicPartition] = []
        self.views.follow(delta.views)
        for change in delta.topics:
            self._apply_topic(change, changed)
        self._report(changed)
        if delta.brokers:
            # A broker that is gone holds no records, so that deletions no longer wait for it.
            for replica in list(self.live()):
                replica.reach_low_watermark()

    def _report(self, changed: Collection[TopicPartition]) -> None:
        if changed:
            self.cluster.on_roles_changed(changed)

    def _apply_topic(self, change: TopicChange, changed: list[TopicPartition]) -> None:
        before, after = change.before, change.after
        if before is not None and (after is None or after.topic_id != before.topic_id):
            changed += (TopicPartition(before.name, index) for index in range(len(before.partitions)))
            self._remove(before)
            before = None
        if after is None:
            return
        known = 0 if before is None else len(before.partitions)
        if before is None:
            self._adopt(after, created=True)
        else:
            self._topics[after.name] = after
            # First: this broker may be a replica of what it served as a ghost.
            self._drop_ghosts(after.name, unless=after)
            if after.configs != before.configs:
                self._reconfigure(after, self.settings(after.configs))
            self._settle(after, range(known, len(after.partitions)), created=True)
            for was, decided in zip(before.partitions, after.partitions, strict=False):
                if decided != was:
                    tp = TopicPartition(after.name, decided.index)
                    try:
                        self._follow(after, was, decided, changed)
                    except KafkaStorageError as error:
                        # Its role may have changed before.
                        changed.append(tp)
                        self._not_followed(tp, error)
        for decided in after.partitions[known:]:
            if self._broker_id in decided.replicas:
                changed.append(TopicPartition(after.name, decided.index))
                self._open_follower(after, decided)

    def _open_follower(self, topic: TopicState, decided: PartitionState) -> Replica | None:
        """Open the replica of a partition that other brokers lead. A leader is opened by its first request."""
        tp = TopicPartition(topic.name, decided.index)
        if self._fenced or len(decided.replicas) == 1 or decided.leader == self._broker_id:
            return None
        try:
            return self.get(*tp)
        except DamagedReplica:
            self._repair_damaged(tp)
        except BrokerError as error:
            tell = self._log.debug if tp in self._refused else self._log.error
            tell("follower_not_opened", partition=str(tp), reason=str(error))
            self.cluster.on_resigned(tp)
            if isinstance(error, KafkaStorageError):
                self._try_again(tp)
        return None

    # What a log directory refuses for a while

    def _not_followed(self, tp: TopicPartition, error: KafkaStorageError) -> None:
        """Report that a partition is not as the metadata wants it; others, also of its topic, are not concerned."""
        tell = self._log.debug if tp in self._refused else self._log.error
        tell("metadata_not_followed", partition=str(tp), reason=str(error))
        self._try_again(tp)

    def _try_again(self, tp: TopicPartition) -> None:
        """Follow the metadata in a partition again later, unless only a restart of the broker helps."""
        log = self._store.get(tp)
        directories = self._store.all_directories if log is None else (log.directory,)
        if all(each.offline is None for each in directories) and (log is None or log.offline is None):
            self._refused.add(tp)

    def _follow_again(self, tp: TopicPartition) -> None:
        """Do what the metadata wants of a partition now; it may have changed since that was refused."""
        if self._fenced:
            self._refused.add(tp)
            return
        try:
            followed = self._catch_up(tp)
        except KafkaStorageError as error:
            self._not_followed(tp, error)
        else:
            if followed:
                self._report([tp])

    def _catch_up(self, tp: TopicPartition) -> bool:
        """Whether a partition has another role now."""
        log = self._store.get(tp)
        if log is not None and not self._is_held(log):
            self._dismiss(log)
        topic, decided, replica = self._topics.get(tp.topic), self._decided(tp), self.used(tp)
        if topic is None or decided is None:
            return False
        if self._broker_id in decided.replicas:
            if replica is not None:
                return self._assume(replica, decided)
            return self._open_follower(topic, decided) is not None
        if self._store.get(tp) is not None:
            self._leave(tp)
        return False

    def fence(self) -> None:
        """Lead and follow nothing, because the broker's registration is gone or not admitted yet."""
        self._fenced = True
        for topic in list(self._ghosts):
            self._drop_ghosts(topic)
        self._report([replica.tp for replica in list(self.live()) if replica.fence()])

    def unfence(self) -> None:
        """Take the roles that the metadata gives. Its state of each partition is as new as the broker's admission."""
        self._fenced = False
        changed: list[TopicPartition] = []
        self._leave_removed()
        for topic in list(self._topics.values()):
            live = self._live.get(topic.name, {})
            for decided in topic.partitions:
                if self._broker_id not in decided.replicas:
                    continue
                replica = live.get(decided.index)
                if replica is None:
                    replica = self._open_follower(topic, decided)
                    changed.append(TopicPartition(topic.name, decided.index))
                elif self._assume(replica, decided):
                    changed.append(replica.tp)
        self._report(changed)

    def _assume(self, replica: Replica, decided: PartitionState) -> bool:
        self._check_epoch(replica.tp, replica.role, decided, replica.log)
        return replica.assume(decided, monotonic_ms(self._clock))

    def _reconfigure(self, topic: TopicState, settings: Settings) -> None:
        live = self._live.get(topic.name, {})
        for index in range(len(topic.partitions)):
            replica = live.get(index)
            if replica is not None:
                replica.configure(*settings)
            else:
                log = self._store.get(TopicPartition(topic.name, index))
                if log is not None:
                    log.config = settings[0]

    def _follow(
        self, topic: TopicState, was: PartitionState, decided: PartitionState, changed: list[TopicPartition]
    ) -> None:
        """Apply the controller's decision on a partition; this broker may become or cease to be a replica."""
        tp = TopicPartition(topic.name, decided.index)
        if self._broker_id not in decided.replicas:
            if self._broker_id in was.replicas:
                self._leave(tp)
                changed.append(tp)
        elif self._broker_id not in was.replicas:
            self._settle(topic, (decided.index,), created=True)
            self._open_follower(topic, decided)
            changed.append(tp)
        else:
            replica = self._live.get(tp.topic, {}).get(tp.partition)
            if len(decided.replicas) != len(was.replicas) and (log := self._store.get(tp)) is not None:
                log.replicated = len(decided.replicas) > 1
            if tp in self._damaged:
                self._repair_damaged(tp)
            elif replica is None:
                if (decided.leader, decided.leader_epoch) != (was.leader, was.leader_epoch):
                    changed.append(tp)
                self._open_follower(topic, decided)
            elif not self._fenced and self._assume(replica, decided):
                changed.append(tp)

    def _leave(self, tp: TopicPartition) -> None:
        """This broker is no longer a replica of a partition: delete its log, after the usual delay.

        While the broker is fenced the metadata may be older than its log: of a partition that it left and joined again
        the log may be the only one. Then the log waits for `unfence`.
        """
        if self._fenced:
            self._stop_serving(tp, NotLeaderOrFollower())
            return
        log, decided = self._store.get(tp), self._decided(tp)
        if log is None or decided is None:
            self._stop_serving(tp, NotLeaderOrFollower())
            return
        if log.offline is None and log.directory.offline is None:
            log.open()
            if log.epochs.latest >= decided.leader_epoch:
                self._stop_serving(tp, NotLeaderOrFollower())
                self._set_aside(log, "the metadata is older than the log: a removal begins a new leader epoch")
                return
        self._drop(tp, NotLeaderOrFollower())
        self._log.info("replica_removed", partition=str(tp), files_deleted_after_ms=log.config.file_delete_delay_ms)

    def _leave_removed(self) -> None:
        """Delete the logs of replicas that were removed while this broker was away or fenced."""
        for log in list(self._store):
            try:
                if log.topic_id != TOPIC_ID_ZERO and self._is_held(log) and not self._is_replica(log.tp):
                    self._leave(log.tp)
            except KafkaStorageError as error:
                self._log.error("replica_not_removed", partition=str(log.tp), path=log.path, reason=str(error))
                self._try_again(log.tp)

    def truncate(self, cuts: Mapping[TopicPartition, Offset]) -> None:
        """Truncate the logs of partitions that this broker follows, and their producers. Blocks on the disk."""
        replicas = self._to_shorten(cuts)
        for replica in replicas:
            offset, high_watermark = cuts[replica.tp], replica.offsets.high_watermark
            # Committed records are cut only after an unclean election, or where a rule of replication is broken.
            alarm = offset < high_watermark
            tell = self._log.error if alarm else self._log.info
            tell(
                "committed_records_truncated" if alarm else "log_truncated",
                partition=str(replica.tp),
                offset=offset,
                log_end=replica.offsets.log_end,
                high_watermark=high_watermark,
                leader_epoch=replica.role.leader_epoch,
            )
        try:
            self._store.truncate(cuts)
        finally:
            # Those that were cut, whatever became of others; where one failed, all of its log directory are offline.
            self._shortened(
                each for each in replicas if not each.is_offline and each.log.log_end < each.offsets.log_end
            )

    def restart(self, starts: Mapping[TopicPartition, Offset]) -> None:
        """Empty the logs of followers whose leaders' logs start later than theirs end. Blocks on the disk."""
        replicas = self._to_shorten(starts)
        for replica in replicas:
            self._log.warning(
                "log_restarted",
                partition=str(replica.tp),
                offset=starts[replica.tp],
                log_end=replica.offsets.log_end,
                leader_epoch=replica.role.leader_epoch,
            )
        self._store.restart(starts)
        self._shortened(replicas)

    def copy_again(self, tp: TopicPartition, start: Offset, removals: Removals) -> None:
        """Empty the log of a follower that lacks removed tombstones, to be copied from `start`. Blocks on the disk."""
        [replica] = self._to_shorten({tp: start})
        log, epoch = replica.log, replica.role.leader_epoch
        self._log.warning(
            "log_copied_again",
            partition=str(tp),
            offset=start,
            log_end=replica.offsets.log_end,
            removed_to=removals.mark,
            leader_epoch=epoch,
        )
        if log.size_bytes or log.log_end != start:
            self._store.restart({tp: start})
            self._shortened([replica])
        log.copy_from_start(removals.mark, CopyStart(epoch, removals.revision))

    def _to_shorten(self, offsets: Mapping[TopicPartition, Offset]) -> list[Replica]:
        replicas = [self.get(*tp) for tp in offsets]
        for replica in replicas:
            assert isinstance(replica.role, Follower), f"{replica.tp}: a leader never truncates itself"
        return replicas

    def _shortened(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            producers, snapshot_at, _ = self._producers_of(replica.log)
            replica.truncated(producers, snapshot_at)

    def _remove(self, topic: TopicState) -> None:
        self._topics.pop(topic.name, None)
        self._names.pop(topic.topic_id, None)
        for index in range(len(topic.partitions)):
            tp = TopicPartition(topic.name, index)
            try:
                self._drop(tp, UnknownTopicOrPartition())
            except KafkaStorageError as error:
                self._not_followed(tp, error)
        self._live.pop(topic.name, None)
        self._ghosts.pop(topic.name, None)

    def _drop(self, tp: TopicPartition, reason: BrokerError) -> None:
        """Stop serving a partition, and delete its log."""
        self._stop_serving(tp, reason)
        if self._store.get(tp) is not None:
            self._store.delete(tp)

    def _stop_serving(self, tp: TopicPartition, reason: BrokerError) -> None:
        replica = self._live.get(tp.topic, {}).pop(tp.partition, None)
        if replica is not None:
            replica.leave(reason)
        self._ghosts.get(tp.topic, {}).pop(tp.partition, None)
        self._replayed.pop(tp, None)
        self._damaged.pop(tp, None)

    def reconfigure_all(self, config: BrokerConfig) -> None:
        """Apply changed broker defaults to every topic that does not override them."""
        self._config = config
        self._settings.clear()
        for topic in self._topics.values():
            self._reconfigure(topic, self.settings(topic.configs))

    # Ending

    def went_offline(self, directory: LogDirectory) -> None:
        """A log directory failed: take its replicas offline until the broker restarts."""
        for replica in list(self.live()):
            if replica.log.directory is directory:
                replica.leave(directory.unreachable())
        for log in self._store:
            # Also those that no request has opened.
            if log.directory is directory and log.replicated:
                self.cluster.on_resigned(log.tp)

    def close(self) -> None:
        """Stop serving, and hand each log the state that its next opening needs. No log is opened any more."""
        self._closed = True
        self._refused.close()
        for replica in list(self.live()):
            if not replica.is_offline:
                replica.note_committed()
                replica.leave(NotLeaderOrFollower())
        for tp, (producers, _, _) in self._replayed.items():
            log = self._store.get(tp)
            if log is not None:
                log.producers = producers.freeze
        self._live.clear()


class DamagedReplica(KafkaStorageError):
    """One of several replicas is damaged and waits to be repaired."""


def damaged_log(tp: TopicPartition) -> DamagedReplica:
    return DamagedReplica(f"The log of {tp} is damaged here. Other brokers have copies, from which it is restored.")


def result_of(outcome: Replayed | Exception) -> Replayed:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
