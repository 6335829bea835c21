"""AddPartitionsToTxn between brokers: the generated request with the coordinator epochs that its sender knows."""

import pytest

from penstock.wire import add_partitions_to_txn as between_brokers
from penstock.wire.api import add_partitions_to_txn as generated
from penstock.wire.primitives import FlexibleWriter, Malformed


def transaction(name: str, *partitions: int, verify_only: bool = False) -> generated.AddPartitionsToTxnTransaction:
    topics = [generated.AddPartitionsToTxnTopic(name="orders", partitions=list(partitions))]
    return generated.AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=2**40, producer_epoch=3, verify_only=verify_only, topics=topics
    )


TRANSACTIONS = [transaction("a", 0, 1), transaction("b", 5, verify_only=True)]


@pytest.mark.parametrize("version", [4, 5])
def test_epochs_travel_with_the_transactions(version: int) -> None:
    sent = between_brokers.Request(transactions=TRANSACTIONS, coordinator_epochs=[7, 9])

    read = between_brokers.decode_request(between_brokers.encode_request(sent, version), 0, version)

    assert isinstance(read, between_brokers.Request)
    assert (read.transactions, read.coordinator_epochs) == (TRANSACTIONS, [7, 9])


@pytest.mark.parametrize("version", [4, 5])
def test_other_brokers_skip_the_epochs(version: int) -> None:
    sent = between_brokers.Request(transactions=TRANSACTIONS, coordinator_epochs=[7, 9])

    read = generated.decode_request(between_brokers.encode_request(sent, version), 0, version)

    assert read.transactions == TRANSACTIONS


@pytest.mark.parametrize("version", [4, 5])
def test_a_request_without_epochs_names_no_coordinator(version: int) -> None:
    sent = generated.Request(transactions=TRANSACTIONS)

    read = between_brokers.decode_request(generated.encode_request(sent, version), 0, version)

    assert isinstance(read, between_brokers.Request)
    assert (read.transactions, read.coordinator_epochs) == (TRANSACTIONS, [-1, -1])


@pytest.mark.parametrize("version", range(4))
def test_the_request_of_a_client_is_the_generated_one(version: int) -> None:
    sent = generated.Request(v3_and_below_transactional_id="a", v3_and_below_topics=TRANSACTIONS[0].topics)

    assert between_brokers.encode_request(sent, version) == generated.encode_request(sent, version)
    assert between_brokers.decode_request(generated.encode_request(sent, version), 0, version) == sent


def test_epochs_of_other_transactions_are_malformed() -> None:
    body = generated.encode_request(generated.Request(transactions=TRANSACTIONS), 5)
    field, tail = FlexibleWriter(), FlexibleWriter()
    field.integers("i", [1])
    tail.tags([(between_brokers.COORDINATOR_EPOCHS_TAG, field)])

    with pytest.raises(Malformed):
        between_brokers.decode_request(body[:-1] + tail, 0, 5)
