"""A writer whose batches a broker refuses for a while, or for good."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from tests.unit.pyspark_penstock.scripted_broker import Scripted, framed, scripted_broker, settings, versions

from penstock.model.generated_errors import NotLeaderOrFollower, OutOfOrderSequenceNumber, UnknownProducerId
from penstock.wire.api import api_versions, metadata, produce
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.rows import record_columns
from pyspark_penstock.txn_calls import Producer
from pyspark_penstock.txn_writer import OUT_OF_ORDER_SECONDS_MAX, TxnWriter
from pyspark_penstock.write_options import WriteOptions

PRODUCE_VERSION = 9


class SteppedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def write_one(codes: Sequence[int], *, seconds_each: float = 0.0) -> int:
    """Write a row to a leader that responds with these codes, the last of them for ever; returns its requests."""
    clock, left, sent = SteppedClock(), list(codes), 0

    def respond(api_key: int, correlation: bytes) -> bytes:
        nonlocal sent
        if api_key == api_versions.API_KEY:
            return versions(correlation, (metadata.API_KEY, 0, 12), (produce.API_KEY, 0, PRODUCE_VERSION))
        if api_key == metadata.API_KEY:
            return framed(correlation + b"\0" + metadata.encode_response(led_by(broker), 12))
        sent += 1
        clock.seconds += seconds_each
        part = produce.PartitionProduceResponse(index=0, error_code=left.pop(0) if len(left) > 1 else left[0])
        topic = produce.TopicProduceResponse(name="orders", partition_responses=[part])
        encoded = produce.encode_response(produce.Response(responses=[topic]), PRODUCE_VERSION)
        return framed(correlation + b"\0" + encoded)

    with scripted_broker(respond) as broker, BrokerLink(settings(broker.bootstrap), clock) as link:
        options = WriteOptions.of({"kafka.bootstrap.servers": broker.bootstrap, "topic": "orders"})
        producer = Producer(transactional_id=None, producer_id=1, epoch=0)
        writer = TxnWriter(link, options, 0, lambda _: producer)
        writer.write(record_columns(pa.record_batch({"value": [b"row"]}), "orders", 0, None))
        writer.flush()
    return sent


def led_by(broker: Scripted) -> metadata.Response:
    host, _, port = broker.bootstrap.rpartition(":")
    part = metadata.MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)
    return metadata.Response(
        brokers=[metadata.MetadataResponseBroker(node_id=1, host=host, port=int(port))],
        topics=[metadata.MetadataResponseTopic(name="orders", topic_id=b"i" * 16, partitions=[part])],
    )


@pytest.mark.parametrize("code", [OutOfOrderSequenceNumber.code, NotLeaderOrFollower.code])
def test_a_batch_that_a_deposed_leader_refuses_is_sent_again(code: int) -> None:
    assert write_one([code, code, code, 0]) == 4


def test_records_that_stay_missing_for_longer_than_a_session_are_lost() -> None:
    with pytest.raises(UnknownProducerId, match="orders-0 has lost acknowledged records"):
        write_one([OutOfOrderSequenceNumber.code], seconds_each=OUT_OF_ORDER_SECONDS_MAX / 2)
