"""A codec of AddPartitionsToTxn as brokers send it: which coordinator each transaction is meant for.

As the generated ``api.add_partitions_to_txn``, with a tagged field of ours in the request: the coordinator epoch that
the sender knows for each transaction. A coordinator of an earlier epoch must not respond, since a later one may have
ended the transaction. A request without the field is one of a client or of another kind of broker.
"""

from __future__ import annotations

from penstock.wire.api import add_partitions_to_txn as generated
from penstock.wire.primitives import Buffer, FlexibleWriter, Malformed, Reader, decode

API_KEY = generated.API_KEY
NAME = generated.NAME
VERSION_MIN = generated.VERSION_MIN
VERSION_MAX = generated.VERSION_MAX
FLEXIBLE_FROM = generated.FLEXIBLE_FROM

Response = generated.Response
encode_response = generated.encode_response
decode_response = generated.decode_response

BATCHED_FROM = 4
"""The first version that brokers send, which has many transactions."""
COORDINATOR_EPOCHS_TAG = 100
NO_COORDINATOR_EPOCH = -1

_TRANSACTION_BYTES_MIN = 14
_TOPIC_BYTES_MIN = 3


class Request(generated.Request):
    """Transactions, and the coordinator epoch of each as the sender knows it."""

    __slots__ = ("coordinator_epochs",)

    def __init__(
        self,
        *,
        transactions: list[generated.AddPartitionsToTxnTransaction],
        coordinator_epochs: list[int] | None = None,
    ) -> None:
        super().__init__(transactions=transactions)
        unknown = [NO_COORDINATOR_EPOCH] * len(transactions)
        self.coordinator_epochs = unknown if coordinator_epochs is None else coordinator_epochs
        """One for each transaction; `NO_COORDINATOR_EPOCH` where the sender does not tell."""


def encode_request(request: generated.Request, version: int) -> bytes:
    body = generated.encode_request(request, version)
    if not isinstance(request, Request) or version < BATCHED_FROM:
        return body
    assert body[-1] == 0, "the generated request ends with an empty list of tags"
    field, tail = FlexibleWriter(), FlexibleWriter()
    field.integers("i", request.coordinator_epochs)
    tail.tags([(COORDINATOR_EPOCHS_TAG, field)])
    return body[:-1] + tail


def decode_request(data: Buffer, offset: int, version: int) -> generated.Request:
    if not BATCHED_FROM <= version <= VERSION_MAX:
        return generated.decode_request(data, offset, version)
    return decode(_read_request, data, offset, version, True)


def _read_request(reader: Reader, version: int) -> Request:
    transactions = reader.array(_read_transaction, version, _TRANSACTION_BYTES_MIN)
    epochs: list[int] | None = None
    for tag, end in reader.tagged():
        if tag == COORDINATOR_EPOCHS_TAG:
            epochs = reader.integers("i", 4)
        else:
            reader.pos = end
    if epochs is not None and len(epochs) != len(transactions):
        raise Malformed(f"{len(epochs)} coordinator epochs of {len(transactions)} transactions")
    return Request(transactions=transactions, coordinator_epochs=epochs)


def _read_transaction(reader: Reader, version: int) -> generated.AddPartitionsToTxnTransaction:
    transactional_id = reader.string()
    producer_id, producer_epoch, verify_only = reader.int64(), reader.int16(), reader.boolean()
    topics = reader.array(_read_topic, version, _TOPIC_BYTES_MIN)
    reader.skip_tags()
    return generated.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=verify_only,
        topics=topics,
    )


def _read_topic(reader: Reader, version: int) -> generated.AddPartitionsToTxnTopic:
    topic = generated.AddPartitionsToTxnTopic(name=reader.string(), partitions=reader.integers("i", 4))
    reader.skip_tags()
    return topic
