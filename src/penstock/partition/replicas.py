"""The partitions this broker holds, kept in step with the metadata.

The first request for a partition opens its log, reads its producers and makes its replica. A broker with ten thousand
partitions therefore starts as fast as one with ten.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from penstock.config.broker import BrokerConfig
from penstock.config.log import TopicConfig
from penstock.metadata.image import ImageDelta, TopicChange
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import OFFSET_ZERO, TOPIC_ID_ZERO, BrokerId, Offset, TopicId, TopicPartition
from penstock.model.threads import Threads
from penstock.model.topic import PartitionState, TopicState
from penstock.observe.log import Logger
from penstock.partition import role as roles
from penstock.partition.follower import Follower
from penstock.partition.offsets import Offsets
from penstock.partition.producer_replay import Replayed, replay_producers
from penstock.partition.producers import ProducerTable
from penstock.partition.replica import Replica
from penstock.partition.role import Offline
from penstock.partition.validation import ValidationRules
from penstock.partition.watchers import WatcherNotifier
from penstock.storage.directories import LogDirectory
from penstock.storage.flush import FlushJob
from penstock.storage.group_commit import GroupCommit
from penstock.storage.log import Log
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
        "_deleted_names",
        "_flushes",
        "_is_deleted",
        "_live",
        "_log",
        "_names",
        "_notifier",
        "_replayed",
        "_settings",
        "_store",
        "_threads",
        "_topics",
        "decompression",
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
        log: Logger,
        is_deleted: Callable[[TopicId], bool] = lambda _: False,
        deleted_names: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`is_deleted` says whether a client deleted the topic with an id: only such a topic's logs are removed.

        `deleted_names` gives the names of deleted topics whose logs may still be on the disk.
        """
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
        self._log = log
        self._live: dict[str, dict[int, Replica]] = {}
        self._topics: dict[str, TopicState] = {}
        self._names: dict[bytes, str] = {}
        self._settings: dict[frozenset[tuple[str, str]], Settings] = {}
        """Topics with the same overrides share one object: ten thousand partitions need a handful."""
        self._replayed: dict[TopicPartition, Replayed] = {}
        """Producers read ahead at start, until their replicas are made."""
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

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def name_of(self, topic: object) -> str | None:
        """The name of a topic that a request gives by name or by id."""
        return topic if isinstance(topic, str) else self._names.get(topic) if isinstance(topic, bytes) else None

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def used(self, tp: TopicPartition) -> Replica | None:
        """The replica of a partition, if a request has opened it."""
        replicas = self._live.get(tp.topic)
        return None if replicas is None else replicas.get(tp.partition)

    def live(self) -> Iterator[Replica]:
        """The replicas that requests have opened; copy it before code that may open or drop one runs."""
        return (replica for replicas in self._live.values() for replica in replicas.values())

    def __len__(self) -> int:
        """Partitions of all topics, used or not."""
        return sum(len(topic.partitions) for topic in self._topics.values())

    def settings(self, overrides: Mapping[str, str]) -> Settings:
        """A topic's settings, resolved once for all topics that have the same overrides."""
        key = frozenset(overrides.items())
        found = self._settings.get(key)
        if found is None:
            config = TopicConfig.resolve(overrides, self._config)
            found = self._settings[key] = (config, ValidationRules(config))
        return found

    # Opening

    def _open(self, topic: str, partition: int) -> Replica:
        """Open a replica at the first request for its partition."""
        if self._closed:
            # The log directory is marked clean; another broker may already write to it.
            raise NotLeaderOrFollower()
        known = self._topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            raise UnknownTopicOrPartition()
        decided = known.partitions[partition]
        if self._broker_id not in decided.replicas:
            raise NotLeaderOrFollower()
        tp = TopicPartition(topic, partition)
        config, rules = self.settings(known.configs)
        log = self._log_of(tp, known, config)
        log.directory.check()
        log.config = config
        log.open()
        producers, snapshot_at, _ = self._producers_of(log)
        offsets = Offsets.recovered(
            log_start=log.log_start,
            log_end=log.log_end,
            high_watermark=log.high_watermark,
            durable_end=log.recovery_point if config.flush == "group" else None,
        )
        waiting = Follower(
            offsets,
            producers,
            broker_id=self._broker_id,
            in_sync_min=config.min_insync_replicas,
            flush_group=config.flush == "group",
        )
        role = roles.assume(waiting, decided, self._clock.now_ms()).role
        assert not isinstance(role, Offline), f"{tp}: offline before it was opened"
        replica = Replica(
            tp,
            known.topic_id,
            log,
            role,
            producers,
            config,
            rules,
            notifier=self._notifier,
            flushes=self._flushes,
            threads=self._threads.executor,
            decompression=self.decompression,
        )
        replica.snapshot_at = snapshot_at
        replica.snapshot_ms = self._clock.now_ms()
        self._live.setdefault(topic, {})[partition] = replica
        return replica

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
        return restored if restored is not None else self._store.create(tp, topic.topic_id, config)

    def _dismiss(self, log: Log) -> None:
        """Remove a log whose topic a client deleted; set every other log aside.

        A log without metadata may be the only copy of a topic: metadata may have been lost or restored from a backup.
        """
        if self._is_deleted(log.topic_id):
            self._store.delete(log.tp)
            self._log.info("deletion_finished", partition=str(log.tp))
            return
        aside = self._store.set_aside(log.tp)
        lost = f"its topic id is lost, and a topic {log.tp.topic} was deleted before the stop"
        unknown = f"the metadata has no topic with its id, {log.topic_id.hex()}"
        self._log.warning(
            "log_set_aside",
            partition=str(log.tp),
            path=aside,
            reason=lost if log.topic_id == TOPIC_ID_ZERO and log.tp.topic in self._deleted_names() else unknown,
            hint="'penstock log adopt' makes it a topic again; the broker never removes it",
        )

    def _check_whole(self) -> None:
        """Raise while a log directory is offline: a missing log may be in it and must not be recreated."""
        for directory in self._store.all_directories:
            directory.check()

    def _producers_of(self, log: Log) -> Replayed:
        if log.log_end == 0:
            return Replayed(ProducerTable(), OFFSET_ZERO, 0)
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
                self._log.warning("log_repair", partition=str(log.tp), reason=str(damage))
                log.repair()
                found = self._replay(log.view(), log.high_watermark)
        except OSError as error:
            raise log.failed(error, f"reading the producers of {log.tp}") from error
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

    # Following the metadata

    def start(self, topics: Iterable[TopicState]) -> None:
        """Take over the topics of the metadata. Reads the producers of logs that recovery has opened.

        Called before serving: it may read all that was written since the last producer snapshots.
        """
        whole = all(directory.offline is None for directory in self._store.all_directories)
        for topic in topics:
            try:
                self._adopt(topic, created=whole)
            except KafkaStorageError as error:
                self._log.error("metadata_not_followed", topic=topic.name, reason=str(error))
        self._store.settle_restored()
        self._dismiss_unknown()
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
        """Dismiss logs that the metadata does not have, and drop those of which this broker is no longer a replica."""
        for log in list(self._store):
            try:
                if not self._is_held(log):
                    self._dismiss(log)
                elif log.topic_id != TOPIC_ID_ZERO and not self._is_replica(log.tp):
                    self._leave(log.tp)
            except KafkaStorageError as error:
                self._log.error("log_without_topic", partition=str(log.tp), path=log.path, reason=str(error))

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
                log = self._own_log(tp, topic)
                if log is not None:
                    log.config = config
                    if log.is_lost:
                        # Offline from here on, also after the next start; requests for it fail with the reason.
                        with suppress(KafkaStorageError):
                            log.open()
                elif created:
                    self._create_log(tp, topic, config)

    def apply(self, delta: ImageDelta) -> None:
        """Apply a metadata change: topics created, deleted, grown or reconfigured, leaders changed."""
        for change in delta.topics:
            try:
                self._apply_topic(change)
            except KafkaStorageError as error:
                # The directory has logged its own fault; apply the changes of the other topics.
                self._log.error("metadata_not_followed", topic=named(change), reason=str(error))

    def _apply_topic(self, change: TopicChange) -> None:
        before, after = change.before, change.after
        if before is not None and (after is None or after.topic_id != before.topic_id):
            self._remove(before)
            before = None
        if after is None:
            return
        if before is None:
            self._adopt(after, created=True)
            return
        self._topics[after.name] = after
        if after.configs != before.configs:
            self._reconfigure(after, self.settings(after.configs))
        self._settle(after, range(len(before.partitions), len(after.partitions)), created=True)
        for was, decided in zip(before.partitions, after.partitions, strict=False):
            if decided != was:
                self._follow(after, was, decided)

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

    def _follow(self, topic: TopicState, was: PartitionState, decided: PartitionState) -> None:
        """Apply the controller's decision on a partition; this broker may become or cease to be a replica."""
        tp = TopicPartition(topic.name, decided.index)
        if self._broker_id not in decided.replicas:
            if self._broker_id in was.replicas:
                self._leave(tp)
        elif self._broker_id not in was.replicas:
            self._settle(topic, (decided.index,), created=True)
        else:
            replica = self._live.get(tp.topic, {}).get(tp.partition)
            if replica is not None:
                replica.assume(decided, self._clock.now_ms())

    def _leave(self, tp: TopicPartition) -> None:
        """This broker is no longer a replica of a partition: delete its copy, after the usual delay."""
        self._drop(tp, NotLeaderOrFollower())
        self._log.info("replica_removed", partition=str(tp))

    def truncate(self, cuts: Mapping[TopicPartition, Offset]) -> None:
        """Truncate the logs of partitions that this broker follows, and their producers. Blocks on the disk."""
        replicas = [self.get(*tp) for tp in cuts]
        for replica in replicas:
            assert isinstance(replica.role, Follower), f"{replica.tp}: a leader never truncates itself"
        self._store.truncate(cuts)
        for replica in replicas:
            producers, snapshot_at, _ = self._producers_of(replica.log)
            replica.truncated(producers, snapshot_at)

    def _remove(self, topic: TopicState) -> None:
        self._topics.pop(topic.name, None)
        self._names.pop(topic.topic_id, None)
        for index in range(len(topic.partitions)):
            self._drop(TopicPartition(topic.name, index), UnknownTopicOrPartition())
        self._live.pop(topic.name, None)

    def _drop(self, tp: TopicPartition, reason: BrokerError) -> None:
        """Stop serving a partition, and delete its log."""
        replica = self._live.get(tp.topic, {}).pop(tp.partition, None)
        if replica is not None:
            replica.leave(reason)
        self._replayed.pop(tp, None)
        if self._store.get(tp) is not None:
            self._store.delete(tp)

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

    def close(self) -> None:
        """Stop serving, and hand each log the state that its next opening needs. No log is opened any more."""
        self._closed = True
        for replica in list(self.live()):
            if not replica.is_offline:
                replica.note_committed()
                replica.leave(NotLeaderOrFollower())
        for tp, (producers, _, _) in self._replayed.items():
            log = self._store.get(tp)
            if log is not None:
                log.producers = producers.freeze
        self._live.clear()


def result_of(outcome: Replayed | Exception) -> Replayed:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def named(change: TopicChange) -> str:
    topic = change.after if change.after is not None else change.before
    return topic.name if topic is not None else ""
