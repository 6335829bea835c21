"""The transaction coordinator of this broker."""

from collections.abc import Callable
from concurrent.futures import Executor

from penstock.config.broker import BrokerConfig
from penstock.coordinator.runtime import CoordinatorRuntime
from penstock.metadata.image import MetadataImage
from penstock.model.clock import Clock
from penstock.model.ids import CoordinatorEpoch, ProducerId
from penstock.model.timers import Timers
from penstock.model.topic import TRANSACTION_STATE_TOPIC
from penstock.observe.counters import StorageCounters
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.storage.store import LogStore
from penstock.transactions.context import TxnCoordinatorContext
from penstock.transactions.markers import Markers
from penstock.transactions.record_formats import TxnReader
from penstock.transactions.shard import TxnShard


class TxnCoordinatorService(CoordinatorRuntime[TxnCoordinatorContext, TxnReader]):
    """The coordinator runtime of transactions: finds a transactional id's context; raises if another broker has it."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        logs: LogStore,
        image: MetadataImage,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timers: Timers,
        threads: Executor,
        log: Logger,
        markers: Markers,
        take_producer_id: Callable[[], ProducerId | None],
        counters: StorageCounters | None = None,
    ) -> None:
        super().__init__(
            TRANSACTION_STATE_TOPIC,
            replicas=replicas,
            logs=logs,
            image=image,
            config=config,
            clock=clock,
            timers=timers,
            threads=threads,
            log=log,
            counters=counters,
        )
        self._markers = markers
        self._take_producer_id = take_producer_id

    def make(self, partition: int, replica: Replica) -> TxnCoordinatorContext:
        return TxnCoordinatorContext(
            partition,
            replica,
            TxnShard(self._config(), self._take_producer_id, CoordinatorEpoch(replica.role.leader_epoch)),
            markers=self._markers,
            clock=self._clock,
            timers=self._timers,
            threads=self._threads,
            log=self._log,
            write_timeout_ms=lambda: self._config().request_timeout_ms,
        )

    def reader(self) -> TxnReader:
        return TxnReader()
