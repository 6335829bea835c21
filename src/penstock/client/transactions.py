"""Transactions: lists them, describes them, and finds those that hang because no coordinator will end them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError
from penstock.client.wire_calls import ClusterView, WireCalls, refuse
from penstock.wire.api import describe_producers, describe_transactions, list_transactions, write_txn_markers

LIST_VERSION, DESCRIBE_VERSION, PRODUCERS_VERSION, MARKERS_VERSION = 1, 0, 0, 1
ANY_DURATION = -1
NOT_FOUND = 105
"""TRANSACTIONAL_ID_NOT_FOUND."""
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
ONGOING_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
NO_OFFSET = -1

Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in a coordinator's list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """A transactional id and the partitions of its transaction; `started_ms` is None without a transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    places: tuple[Place, ...]

    @property
    def is_open(self) -> bool:
        return self.state in ONGOING_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """An open transaction of a partition: it holds back the last stable offset."""

    place: Place
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that no coordinator will end, and the evidence."""

    transaction: OpenTransaction
    transactional_id: str | None
    why: str


class Transactions:
    """The transactions of a cluster. Every call returns its result or raises `ClientError`."""

    def __init__(self, connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        self._connection = connection
        self._seconds_max = seconds_max

    def _calls(self) -> WireCalls:
        return WireCalls(self._connection, self._seconds_max)

    def list(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration_ms_min: int = ANY_DURATION
    ) -> tuple[TransactionListing, ...]:
        """The transactional ids of all coordinators that pass the filters, by name."""
        with self._calls() as calls:
            return self._listed(calls, states=states, producer_ids=producer_ids, duration_ms_min=duration_ms_min)

    def _listed(
        self, calls: WireCalls, *, states: Sequence[str], producer_ids: Sequence[int], duration_ms_min: int
    ) -> tuple[TransactionListing, ...]:
        request = list_transactions.Request(
            state_filters=[*states], producer_id_filters=[*producer_ids], duration_filter=duration_ms_min
        )
        doing = "cannot list transactions"
        found: list[TransactionListing] = []
        for broker, address in calls.cluster().brokers.items():
            response = calls.ask(doing, address, list_transactions, LIST_VERSION, request)
            refuse(doing, response.error_code)
            if response.unknown_state_filters:
                raise ClientError(
                    f"there is no state {', '.join(response.unknown_state_filters)}",
                    hint=f"the states are {', '.join(STATES)}",
                )
            found += [
                TransactionListing(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    state=each.transaction_state,
                    coordinator=broker,
                )
                for each in response.transaction_states
            ]
        return tuple(sorted(found, key=lambda each: each.transactional_id))

    def describe(self, transactional_id: str) -> TransactionInfo:
        """One transactional id; an unknown one is an error."""
        with self._calls() as calls:
            found = self._described(calls, transactional_id)
        if found is None:
            raise ClientError(
                f"there is no transactional id {transactional_id}",
                hint="penstock txn list shows those there are; one that was not used for days is forgotten",
            )
        return found

    def _described(self, calls: WireCalls, transactional_id: str) -> TransactionInfo | None:
        doing = f"cannot describe transactional id {transactional_id}"
        request = describe_transactions.Request(transactional_ids=[transactional_id])
        address = calls.coordinator(transactional_id)
        (found,) = calls.ask(doing, address, describe_transactions, DESCRIBE_VERSION, request).transaction_states
        if found.error_code == NOT_FOUND:
            return None
        refuse(doing, found.error_code)
        return TransactionInfo(
            transactional_id=transactional_id,
            state=found.transaction_state,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.transaction_timeout_ms,
            started_ms=found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
            places=tuple(sorted((topic.topic, index) for topic in found.topics for index in topic.partitions)),
        )

    def open(self, topics: Iterable[str] | None) -> tuple[OpenTransaction, ...]:
        """The open transactions in the partitions of these topics, or of all topics with None."""
        with self._calls() as calls:
            return self._open(calls, calls.cluster(topics))

    def _open(self, calls: WireCalls, cluster: ClusterView) -> tuple[OpenTransaction, ...]:
        doing = "cannot look at the producers of partitions"
        wanted: dict[int, dict[str, list[int]]] = {}
        for each in cluster.leaders:
            if each.leader in cluster.brokers:
                wanted.setdefault(each.leader, {}).setdefault(each.topic, []).append(each.partition)
        found: list[OpenTransaction] = []
        for broker, topics in wanted.items():
            request = describe_producers.Request(
                topics=[
                    describe_producers.TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ]
            )
            response = calls.ask(doing, cluster.brokers[broker], describe_producers, PRODUCERS_VERSION, request)
            found += open_ones(doing, response)
        return tuple(sorted(found, key=lambda each: (each.place, each.start_offset)))

    def hanging(self, topics: Iterable[str] | None, *, now_ms: int, age_ms_min: int) -> tuple[HangingTransaction, ...]:
        """Transactions open in a partition, without a record for `age_ms_min`, that no coordinator has there.

        A younger transaction may be ending: its markers are written to its partitions one by one.
        """
        with self._calls() as calls:
            old = [
                each
                for each in self._open(calls, calls.cluster(topics))
                if now_ms - each.last_timestamp_ms >= age_ms_min
            ]
            return tuple(
                HangingTransaction(transaction=each, transactional_id=name, why=why)
                for each in old
                for name, why in [self._judged(calls, each)]
                if why is not None
            )

    def judge(self, transaction: OpenTransaction) -> HangingTransaction | None:
        """Whether an open transaction hangs, however young it is; None if its coordinator will end it."""
        with self._calls() as calls:
            name, why = self._judged(calls, transaction)
        return None if why is None else HangingTransaction(transaction=transaction, transactional_id=name, why=why)

    def _judged(self, calls: WireCalls, each: OpenTransaction) -> tuple[str | None, str | None]:
        listed = self._listed(calls, states=(), producer_ids=[each.producer_id], duration_ms_min=ANY_DURATION)
        if not listed:
            return None, "no transactional id has this producer id"
        name = listed[0].transactional_id
        info = self._described(calls, name)
        if info is None or info.producer_id != each.producer_id:
            return name, "the transactional id has another producer id by now"
        if not info.is_open:
            return name, f"the transactional id is in state {info.state}"
        if each.place not in info.places:
            return name, "the open transaction does not have this partition"
        return name, None

    def abort(self, transaction: OpenTransaction) -> None:
        """Write an abort marker to one partition, without asking the transaction's coordinator."""
        topic, partition = transaction.place
        doing = f"cannot abort the transaction in {topic} partition {partition}"
        marker = write_txn_markers.WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            # It is -1 before the first marker of this producer; coordinator epochs begin at 0.
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )
        with self._calls() as calls:
            cluster = calls.cluster([topic])
            (leader,) = [each.leader for each in cluster.leaders if each.partition == partition]
            if leader not in cluster.brokers:
                raise ClientError(f"{doing}: it has no leader")
            request = write_txn_markers.Request(markers=[marker])
            response = calls.ask(doing, cluster.brokers[leader], write_txn_markers, MARKERS_VERSION, request)
        for result in response.markers:
            for each in result.topics:
                for part in each.partitions:
                    refuse(doing, part.error_code)


def open_ones(doing: str, response: describe_producers.Response) -> list[OpenTransaction]:
    found: list[OpenTransaction] = []
    for topic in response.topics:
        for part in topic.partitions:
            refuse(f"{doing}: {topic.name} partition {part.partition_index}", part.error_code)
            found += [
                OpenTransaction(
                    place=(topic.name, part.partition_index),
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    start_offset=each.current_txn_start_offset,
                    last_timestamp_ms=each.last_timestamp,
                    coordinator_epoch=each.coordinator_epoch,
                )
                for each in part.active_producers
                if each.current_txn_start_offset > NO_OFFSET
            ]
    return found
