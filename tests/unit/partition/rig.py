"""Shared by tests of replicas: a manual clock, event loop and threads, and a disk in memory."""

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from itertools import count
from threading import Event
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.metadata.image import ImageDelta, MetadataImage, TopicChange
from penstock.model.ids import BrokerId, TopicId
from penstock.model.threads import Item, Result
from penstock.model.timers import Timers
from penstock.model.topic import PartitionState, TopicState
from penstock.model.turns import Turns
from penstock.observe.log import Logger
from penstock.partition.fetch import Fetches
from penstock.partition.fetch_session import FetchSessions
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.partition.results import Appended
from penstock.partition.watchers import WatcherNotifier
from penstock.storage.group_commit import GroupCommit
from penstock.storage.store import LogStore
from penstock.testing import ManualClock, ManualLoop, MemDisk
from penstock.testing.manual import NOW_MS
from penstock.wire.records import Record, build_batch, decode_records, iter_batches

HOME = "/data"
LIVES = count()
"""Numbers the brokers of a test, so that each generates its own ids."""


class Seeded:
    """Randomness from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def uuid_bytes(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class ManualThreads(Executor):
    """Threads that run their work in `work()`, or at once if `eager`."""

    def __init__(self, *, eager: bool = False) -> None:
        self.eager = eager
        self.queue: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        self.queue.append((future, lambda: fn(*args, **kwargs)))
        if self.eager:
            self.work()
        return future

    @property
    def executor(self) -> Executor:
        return self

    def run_all(self, work: Callable[[Item], Result], items: Sequence[Item], *, at_once: int) -> list[Result]:
        return [work(item) for item in items]

    def pause(self, seconds: float, until: Event) -> None:
        """Return at once: no time passes in these threads."""

    def work(self) -> int:
        """Run everything submitted; returns how many calls."""
        queue, self.queue = self.queue, []
        for future, call in queue:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
        return len(queue)


class Notes:
    """A logger that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def _note(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))

    debug = info = warning = error = exception = _note

    def bind(self, **fields: Any) -> Logger:
        return self

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]


def topic(
    name: str = "orders", partitions: int = 1, number: int = 1, configs: Mapping[str, str] | None = None, epoch: int = 0
) -> TopicState:
    """A topic whose partitions this broker leads alone."""
    decided = tuple(
        PartitionState(index=index, leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,))
        for index in range(partitions)
    )
    topic_id = TopicId(number.to_bytes(16, "big"))
    return TopicState(name=name, topic_id=topic_id, configs=dict(configs or {}), partitions=decided)


def batch(*values: bytes | None, key: bytes | None = b"k", at_ms: int = NOW_MS, codec: int = 0, **kw: Any) -> bytearray:
    """A batch as a producer sends it."""
    records = [Record(index, at_ms, key, value) for index, value in enumerate(values)]
    if "producer_id" in kw:
        kw.setdefault("producer_epoch", 0)
        kw.setdefault("base_sequence", 0)
    return build_batch(records, compression=codec, **kw)


class Rig:
    """One broker's runtime, without a network."""

    def __init__(
        self,
        *topics: TopicState,
        disk: MemDisk | None = None,
        paths: tuple[str, ...] = (HOME,),
        deleted: tuple[TopicState, ...] = (),
        broker_id: int = 1,
        fenced: bool = False,
    ) -> None:
        """`deleted` are topics whose deletion was requested and not finished."""
        self.disk = disk if disk is not None else MemDisk()
        for path in paths:
            self.disk.make_directory(path, parents=True)
        self.disk.sync_directory("/")
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.threads = ManualThreads(eager=True)
        self.flushing = ManualThreads()
        self.notes = Notes()
        self.config = BrokerConfig()
        self.store = LogStore(
            paths,
            disk=self.disk,
            threads=self.threads,
            clock=self.clock,
            randomness=Seeded(next(LIVES)),
            log=self.notes,
            on_offline=self._offline,
        )
        self.turns = Turns(self.loop.call_soon, self.clock.monotonic)
        self.notifier = WatcherNotifier(self.loop.call_soon, self.turns)
        self.flushes = GroupCommit(self.flushing, self.loop.call_soon, clock=self.clock)
        self.timers = Timers(self.loop)
        self.sessions = FetchSessions(100, Seeded().below)
        self.replicas = Replicas(
            broker_id=BrokerId(broker_id),
            config=self.config,
            store=self.store,
            clock=self.clock,
            notifier=self.notifier,
            flushes=self.flushes,
            threads=self.threads,
            timers=self.timers,
            log=self.notes,
            is_deleted={topic.topic_id for topic in deleted}.__contains__,
            deleted_names=lambda: {topic.name for topic in deleted},
            fenced=fenced,
        )
        self.fetches = Fetches(
            replicas=self.replicas, sessions=self.sessions, timers=self.timers, now_ms=self.clock.now_ms
        )
        image = MetadataImage()
        image.topics.update({each.name: each for each in topics})
        self.store.load(
            self.replicas.settings({})[0],
            broker_id=BrokerId(broker_id),
            cluster_id="c",
            is_replicated=image.is_replicated,
        )
        self.replicas.start(topics)

    def _offline(self, directory: Any) -> None:
        self.replicas.went_offline(directory)

    def replica(self, name: str = "orders", partition: int = 0) -> Replica:
        return self.replicas.get(name, partition)

    def change(self, before: TopicState | None, after: TopicState | None) -> None:
        self.replicas.apply(ImageDelta(topics=(TopicChange(before=before, after=after),)))

    def append(self, replica: Replica, data: bytearray | bytes, **kw: Any) -> Appended:
        """Append a batch that needs no thread."""
        appended = replica.append(memoryview(data), self.clock.ms, **kw)
        assert isinstance(appended, Appended)
        return appended

    def flush(self) -> int:
        """Run the pending flushes and apply them on the loop; returns how many."""
        done = self.flushing.work()
        self.loop.run()
        return done

    def stop(self, *, clean: bool = True) -> MemDisk:
        """Stop the broker; returns its disk, for the next one."""
        if clean:
            self.replicas.close()
        self.store.close(clean=clean)
        if not clean:
            self.disk.kill()
        return self.disk


def records(replica: Replica, offset: int = 0, *, read_committed: bool = False) -> list[Record]:
    """The records of one read from an offset on."""
    found = replica.read(offset, 1 << 30, at_least_one=True, read_committed=read_committed).records
    data = found if isinstance(found, bytes) else found.contents()
    return [
        record
        for position, header in iter_batches(data)
        for record in decode_records(data[position : position + header.size])
        if record.offset >= offset
    ]


def values(replica: Replica, offset: int = 0, *, read_committed: bool = False) -> list[bytes | None]:
    return [record.value for record in records(replica, offset, read_committed=read_committed)]


def everything(replica: Replica) -> list[Record]:
    """All records, read up to the log end, as a client reads: past batches that compaction left without records."""
    found: list[Record] = []
    offset = replica.offsets.log_start
    while len(read := replica.read(offset, 1 << 30, at_least_one=True).records):
        data = read if isinstance(read, bytes) else read.contents()
        for position, header in iter_batches(data):
            records_in = decode_records(data[position : position + header.size])
            found += [record for record in records_in if record.offset >= offset]
            offset = header.next_offset
    return found
