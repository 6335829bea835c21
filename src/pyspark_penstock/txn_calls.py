"""Requests of a transactional producer to its coordinator, one function each.

All use the first version of the transaction protocol, in which a producer keeps its epoch when its transaction ends: an
EndTxn whose response was lost can be sent again by any client that knows the producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.client.connection import Address
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdNotFound,
)
from penstock.wire.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from pyspark_penstock.link import COORDINATOR_OF_TRANSACTIONS, BrokerLink, LinkDown, raise_for

INIT_VERSION_MAX = 4
ADD_PARTITIONS_VERSION_MAX = 3
ADD_OFFSETS_VERSION_MAX = 3
END_VERSION_MAX = 4
LIST_VERSION_MAX = 1

REPLACED = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping)
"""Another producer has the transactional id now, or the coordinator aborted the transaction after its timeout."""
FORGOTTEN = (InvalidProducerIdMapping, TransactionalIdNotFound)
"""The coordinator does not know the producer: its id has expired, and may be in use again."""
ONGOING = "Ongoing"
END_AT_ONCE = 32
"""EndTxn requests in flight to one broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """A producer: its transactional id (None without transactions), producer id and epoch."""

    transactional_id: str | None
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A transactional id as its coordinator sees it."""

    state: str
    producer_id: int
    epoch: int

    @property
    def is_open(self) -> bool:
        return self.state == ONGOING


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """Transactions that could not be committed: aborted, or with an unknown outcome."""

    lost: list[Producer]
    unknown: list[Producer]


def init_producer(link: BrokerLink, transactional_id: str | None, timeout_ms: int) -> Producer:
    """Become the producer of an id: the previous one is fenced, and its open transaction aborted."""
    doing = f"the producer {transactional_id}" if transactional_id is not None else "a producer id"

    def attempt() -> Producer:
        request = init_producer_id.Request(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if transactional_id is None:
            response = link.call_any(init_producer_id, request, INIT_VERSION_MAX)
        else:
            address = link.coordinator(transactional_id, COORDINATOR_OF_TRANSACTIONS)
            response = link.call(address, init_producer_id, request, INIT_VERSION_MAX)
        raise_for(response.error_code, doing)
        return Producer(
            transactional_id=transactional_id, producer_id=response.producer_id, epoch=response.producer_epoch
        )

    return link.retrying(doing, attempt)


def add_partitions(link: BrokerLink, producer: Producer, partitions: Mapping[str, Sequence[int]]) -> None:
    """Add partitions to the transaction. For a partition already in it, this verifies that it is still open."""
    assert producer.transactional_id is not None, "no transaction"
    name = producer.transactional_id
    request = add_partitions_to_txn.Request(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))
            for topic, indexes in partitions.items()
        ],
    )

    def attempt() -> None:
        address = link.coordinator(name, COORDINATOR_OF_TRANSACTIONS)
        response = link.call(address, add_partitions_to_txn, request, ADD_PARTITIONS_VERSION_MAX)
        for topic in response.results_by_topic_v3_and_below:
            for part in topic.results_by_partition:
                raise_for(part.partition_error_code, f"{topic.name}-{part.partition_index} in transaction {name}")

    link.retrying(f"the partitions of {name}", attempt)


def add_group(link: BrokerLink, producer: Producer, group: str) -> None:
    """Add the offsets of a group to the transaction."""
    assert producer.transactional_id is not None, "no transaction"
    name = producer.transactional_id
    request = add_offsets_to_txn.Request(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id=group
    )

    def attempt() -> None:
        address = link.coordinator(name, COORDINATOR_OF_TRANSACTIONS)
        response = link.call(address, add_offsets_to_txn, request, ADD_OFFSETS_VERSION_MAX)
        raise_for(response.error_code, f"group {group} in transaction {name}")

    link.retrying(f"the group of {name}", attempt)


def end_transaction(link: BrokerLink, producer: Producer, *, commit: bool) -> None:
    """Commit or abort. Repeating the same end succeeds; the opposite raises InvalidTxnState.

    A replaced producer gets one of `REPLACED`.
    """
    name = producer.transactional_id
    assert name is not None, "no transaction"
    request = _end_request(producer, commit=commit)

    def attempt() -> None:
        address = link.coordinator(name, COORDINATOR_OF_TRANSACTIONS)
        raise_for(link.call(address, end_txn, request, END_VERSION_MAX).error_code, f"the end of transaction {name}")

    link.retrying(f"the end of {name}", attempt)


def _end_request(producer: Producer, *, commit: bool) -> end_txn.Request:
    return end_txn.Request(
        transactional_id=producer.transactional_id or "",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )


def commit_all(link: BrokerLink, producers: Sequence[Producer]) -> Commits:
    """Commit the transactions of these producers, pipelined."""
    failures = end_all(link, producers, commit=True)
    # The outcome is unknown for an id that expired, or expired and was created again.
    unknown = [each for each, error in failures.items() if isinstance(error, FORGOTTEN)]
    return Commits(lost=[each for each in failures if each not in unknown], unknown=unknown)


def abort_quietly(link: BrokerLink, producers: Sequence[Producer]) -> None:
    """Abort the open transactions of these producers; producers without one, or replaced ones, are skipped."""
    end_all(link, producers, commit=False)


def end_all(link: BrokerLink, producers: Sequence[Producer], *, commit: bool) -> dict[Producer, BrokerError]:
    """End transactions, pipelined; returns the error of those that ended otherwise or were replaced."""
    names = [producer.transactional_id or "" for producer in producers]
    link.retrying("the coordinators", lambda: link.find_coordinators(names, COORDINATOR_OF_TRANSACTIONS))
    failures: dict[Producer, BrokerError] = {}
    for start in range(0, len(producers), END_AT_ONCE):
        for producer, error in _ended(link, producers[start : start + END_AT_ONCE], commit=commit).items():
            try:
                if error is not None:
                    _raise_unless_retriable(error)
                    end_transaction(link, producer, commit=commit)
            except (*REPLACED, *FORGOTTEN, InvalidTxnState) as failure:
                failures[producer] = failure
    return failures


def _raise_unless_retriable(error: Exception) -> None:
    if isinstance(error, BrokerError) and not error.retriable:
        raise error


def _ended(link: BrokerLink, producers: Sequence[Producer], *, commit: bool) -> dict[Producer, Exception | None]:
    """Send the EndTxn requests of some producers at once, one connection after the other, and receive the responses."""
    ended: dict[Producer, Exception | None] = {}
    by_coordinator: dict[Address, list[Producer]] = {}
    for producer in producers:
        assert producer.transactional_id is not None, "no transaction"
        try:
            address = link.coordinator(producer.transactional_id, COORDINATOR_OF_TRANSACTIONS)
        except (LinkDown, BrokerError) as error:
            ended[producer] = error
            continue
        by_coordinator.setdefault(address, []).append(producer)
    for address, of_address in by_coordinator.items():
        try:
            version = link.version(address, end_txn, END_VERSION_MAX)
            for producer in of_address:
                body = end_txn.encode_request(_end_request(producer, commit=commit), version)
                link.send(address, end_txn.API_KEY, version, body)
            for producer in of_address:
                data, at = link.receive(address)
                code = end_txn.decode_response(data, at, version).error_code
                ended[producer] = _error_of(code, f"the end of transaction {producer.transactional_id}")
        except LinkDown as error:
            ended.update({producer: error for producer in of_address if producer not in ended})
    return ended


def _error_of(code: int, doing: str) -> Exception | None:
    try:
        raise_for(code, doing)
    except BrokerError as error:
        return error
    return None


def described(link: BrokerLink, transactional_ids: Sequence[str]) -> dict[str, Described]:
    """The coordinators' descriptions of these ids; unknown ids are omitted."""

    def attempt() -> dict[str, Described]:
        link.find_coordinators(transactional_ids, COORDINATOR_OF_TRANSACTIONS)
        by_coordinator: dict[Address, list[str]] = {}
        for name in transactional_ids:
            by_coordinator.setdefault(link.coordinator(name, COORDINATOR_OF_TRANSACTIONS), []).append(name)
        found: dict[str, Described] = {}
        for address, names in by_coordinator.items():
            request = describe_transactions.Request(transactional_ids=names)
            for each in link.call(address, describe_transactions, request).transaction_states:
                if each.error_code == TransactionalIdNotFound.code:
                    continue
                raise_for(each.error_code, f"the producer {each.transactional_id}")
                found[each.transactional_id] = Described(
                    state=each.transaction_state, producer_id=each.producer_id, epoch=each.producer_epoch
                )
        return found

    return link.retrying("the state of transactions", attempt)


def is_known(link: BrokerLink, transactional_id: str) -> bool:
    """Whether the coordinator knows this id."""
    return transactional_id in described(link, [transactional_id])


def open_transactions(link: BrokerLink, prefix: str) -> list[str]:
    """The transactional ids with this prefix that have an open transaction, on any broker."""

    def attempt() -> list[str]:
        found: list[str] = []
        for address in link.brokers():
            request = list_transactions.Request(state_filters=["Ongoing"])
            response = link.call(address, list_transactions, request, LIST_VERSION_MAX)
            raise_for(response.error_code, "the open transactions")
            found += [each.transactional_id for each in response.transaction_states]
        return sorted(each for each in found if each.startswith(prefix))

    return link.retrying("the open transactions", attempt)


def abort_open(link: BrokerLink, transactional_ids: Iterable[str], timeout_ms: int) -> None:
    """Abort the open transactions of these ids, and fence their producers."""
    for name in transactional_ids:
        try:
            init_producer(link, name, timeout_ms)
        except BrokerError as error:
            if error.retriable:
                raise
