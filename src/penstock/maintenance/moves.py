"""Moves partitions between the log directories of a broker, one at a time, while they are in use."""

import asyncio
from collections.abc import Callable
from threading import Event

from penstock.config.broker import BrokerConfig
from penstock.maintenance.throttle import StoppableThrottle, Stopped
from penstock.model.clock import Clock, Randomness
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import LogDirNotFound
from penstock.model.ids import TopicPartition
from penstock.model.threads import Threads
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.storage.directories import LogDirectory
from penstock.storage.move import Move, abandon_move, begin_move, retire, try_switch
from penstock.storage.store import LogStore

RETRY_S = 1.0
"""Delay before a move is retried that found its log being compacted."""


class Moving:
    """The requested moves that are not done. A later request for a partition replaces an earlier one."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        store: LogStore,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        randomness: Randomness,
        threads: Threads,
        log: Logger,
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._config = config
        self._clock = clock
        self._randomness = randomness
        self._threads = threads
        self._log = log
        self._wanted: dict[TopicPartition, LogDirectory] = {}
        self._requested = asyncio.Event()
        self._stopping = Event()

    def request(self, tp: TopicPartition, path: str) -> None:
        """Request the move of a partition to a directory; raises why it cannot be moved.

        A request for the directory that the partition is in cancels its move.
        """
        target = next((directory for directory in self._store.all_directories if directory.path == path), None)
        if target is None:
            raise LogDirNotFound
        target.check()
        replica = self._replicas.get(tp.topic, tp.partition)
        if replica.log.directory is target:
            self._wanted.pop(tp, None)
        else:
            self._wanted[tp] = target
            self._requested.set()

    def under_way(self, path: str) -> list[TopicPartition]:
        """Partitions that are being moved to a directory."""
        return [tp for tp, target in self._wanted.items() if target.path == path]

    async def run(self) -> None:
        """Move partitions until cancelled; then stop the copy that runs in a thread."""
        try:
            while True:
                await self._requested.wait()
                self._requested.clear()
                for tp in list(self._wanted):
                    await self._move(tp)
        finally:
            self._stopping.set()

    async def _move(self, tp: TopicPartition) -> None:
        target = self._wanted.get(tp)
        if target is None:
            return
        move: Move | None = None
        try:
            replica = self._replicas.get(tp.topic, tp.partition)
            move = begin_move(replica.log, target, self._unique())
            if move is None:
                asyncio.get_running_loop().call_later(RETRY_S, self._requested.set)
                return
            await self._copy(replica, move, lambda: self._wanted.get(tp) is target)
        except (BrokerError, OSError) as error:
            self._log.error("move_failed", partition=str(tp), target=target.path, reason=str(error))
        except Stopped:
            raise
        except Exception:
            # An error in one log does not stop the others.
            self._log.exception("move_failed", partition=str(tp), target=target.path)
        finally:
            if move is not None and move.origin is None:
                abandon_move(move, self._store.trash)
        if self._wanted.get(tp) is target:
            del self._wanted[tp]

    async def _copy(self, replica: Replica, move: Move, still_wanted: Callable[[], bool]) -> None:
        """Copy in rounds until little is missing, switch, and remove the original once the copy is synced."""
        loop = asyncio.get_running_loop()
        while True:
            bytes_per_second = self._config().replica_alter_log_dirs_io_max_bytes_per_second
            throttle = StoppableThrottle(max(bytes_per_second, 1), self._clock, self._stopping, self._threads.pause)
            await loop.run_in_executor(self._threads.executor, move.copy, throttle)
            if replica.is_offline or not still_wanted():
                return
            if try_switch(move):
                break
        await loop.run_in_executor(self._threads.executor, move.settle)
        retire(move, self._store.trash, self._unique())
        self._log.info("partition_moved", partition=str(replica.tp), to=move.target.path)

    def _unique(self) -> str:
        return self._randomness.uuid_bytes().hex()
