"""What a transactional producer asks of its coordinator, one function per question.

Everything speaks the first version of the transaction protocol: there a producer keeps its epoch when its transaction
ends, so that an end which was sent and not answered can be sent again by anybody who knows the producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from pyspark_penstock.link import COORDINATOR_OF_TRANSACTIONS, BrokerLink, raise_for

INIT_VERSION_MAX = 4
ADD_PARTITIONS_VERSION_MAX = 3
ADD_OFFSETS_VERSION_MAX = 3
END_VERSION_MAX = 4
LIST_VERSION_MAX = 1

REPLACED = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping)
"""Somebody else has the transactional id now, or the coordinator aborted its transaction for being late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who writes: a transactional id (None without transactions), and what its coordinator gave it."""

    transactional_id: str | None
    producer_id: int
    epoch: int


def init_producer(link: BrokerLink, transactional_id: str | None, timeout_ms: int) -> Producer:
    """Become the producer of an id: whoever was it before is fenced, and its open transaction aborted."""
    doing = f"the producer {transactional_id}" if transactional_id is not None else "a producer id"

    def attempt() -> Producer:
        request = init_producer_id.Request(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if transactional_id is None:
            answer = link.ask_anyone(init_producer_id, request, INIT_VERSION_MAX)
        else:
            address = link.coordinator(transactional_id, COORDINATOR_OF_TRANSACTIONS)
            answer = link.ask(address, init_producer_id, request, INIT_VERSION_MAX)
        raise_for(answer.error_code, doing)
        return Producer(transactional_id=transactional_id, producer_id=answer.producer_id, epoch=answer.producer_epoch)

    return link.patiently(doing, attempt)


def add_partitions(link: BrokerLink, producer: Producer, partitions: Mapping[str, Sequence[int]]) -> None:
    """Make partitions part of the transaction. Again for one that is part of it, this asks whether it is still open."""
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
        answer = link.ask(address, add_partitions_to_txn, request, ADD_PARTITIONS_VERSION_MAX)
        for topic in answer.results_by_topic_v3_and_below:
            for part in topic.results_by_partition:
                raise_for(part.partition_error_code, f"{topic.name}-{part.partition_index} in transaction {name}")

    link.patiently(f"the partitions of {name}", attempt)


def add_group(link: BrokerLink, producer: Producer, group: str) -> None:
    """Make the offsets of a group part of the transaction."""
    assert producer.transactional_id is not None, "no transaction"
    name = producer.transactional_id
    request = add_offsets_to_txn.Request(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id=group
    )

    def attempt() -> None:
        address = link.coordinator(name, COORDINATOR_OF_TRANSACTIONS)
        answer = link.ask(address, add_offsets_to_txn, request, ADD_OFFSETS_VERSION_MAX)
        raise_for(answer.error_code, f"group {group} in transaction {name}")

    link.patiently(f"the group of {name}", attempt)


def end_transaction(link: BrokerLink, producer: Producer, *, commit: bool) -> None:
    """Commit or abort. Asked again for what was done before, it is done; for the opposite, InvalidTxnState is raised.

    A producer that was replaced gets one of `REPLACED`.
    """
    assert producer.transactional_id is not None, "no transaction"
    name = producer.transactional_id
    request = end_txn.Request(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commit
    )

    def attempt() -> None:
        address = link.coordinator(name, COORDINATOR_OF_TRANSACTIONS)
        raise_for(link.ask(address, end_txn, request, END_VERSION_MAX).error_code, f"the end of transaction {name}")

    link.patiently(f"the end of {name}", attempt)


def commit_all(link: BrokerLink, producers: Iterable[Producer]) -> list[Producer]:
    """Commit the transactions of these producers; those that turn out to be aborted are returned."""
    lost: list[Producer] = []
    for producer in producers:
        try:
            end_transaction(link, producer, commit=True)
        except (*REPLACED, InvalidTxnState):
            lost.append(producer)
    return lost


def abort_quietly(link: BrokerLink, producers: Iterable[Producer]) -> None:
    """Abort what these producers have open. One that has nothing open, or is replaced, is left alone."""
    for producer in producers:
        try:
            end_transaction(link, producer, commit=False)
        except (*REPLACED, InvalidTxnState, TransactionalIdNotFound):
            continue


def is_known(link: BrokerLink, transactional_id: str) -> bool:
    """Whether there has been a producer of this id."""

    def attempt() -> bool:
        address = link.coordinator(transactional_id, COORDINATOR_OF_TRANSACTIONS)
        request = describe_transactions.Request(transactional_ids=[transactional_id])
        (found,) = link.ask(address, describe_transactions, request).transaction_states
        if found.error_code == TransactionalIdNotFound.code:
            return False
        raise_for(found.error_code, f"the producer {transactional_id}")
        return True

    return link.patiently(f"the producer {transactional_id}", attempt)


def open_transactions(link: BrokerLink, prefix: str) -> list[str]:
    """The transactional ids with this beginning that have a transaction open, on any broker."""

    def attempt() -> list[str]:
        found: list[str] = []
        for address in link.brokers():
            request = list_transactions.Request(state_filters=["Ongoing"])
            answer = link.ask(address, list_transactions, request, LIST_VERSION_MAX)
            raise_for(answer.error_code, "the open transactions")
            found += [each.transactional_id for each in answer.transaction_states]
        return sorted(each for each in found if each.startswith(prefix))

    return link.patiently("the open transactions", attempt)


def abort_open(link: BrokerLink, transactional_ids: Iterable[str], timeout_ms: int) -> None:
    """Abort the open transactions of these ids, whoever their producers are, and fence those."""
    for name in transactional_ids:
        try:
            init_producer(link, name, timeout_ms)
        except BrokerError as error:
            if error.retriable:
                raise
