import importlib

import pytest

from penstock.api.response_errors import count_errors
from penstock.observe.counters import RequestCounters
from penstock.wire.api import add_partitions_to_txn, create_topics, metadata
from penstock.wire.api.table import TABLE
from penstock.wire.produce import ProducedPartition


class Response:
    """A response as the produce handler returns it."""

    def __init__(self, topics: list[tuple[str, None, list[ProducedPartition]]]) -> None:
        self.topics = topics


def counted(api_key: int, response: object) -> dict[tuple[int, int], int]:
    counters = RequestCounters({}, {})
    count_errors(counters, api_key, response)
    return counters.errors


def test_codes_are_found_at_every_depth() -> None:
    partitions = [metadata.MetadataResponsePartition(error_code=5), metadata.MetadataResponsePartition()]
    topics = [metadata.MetadataResponseTopic(error_code=3), metadata.MetadataResponseTopic(partitions=partitions)]

    assert counted(3, metadata.Response(topics=topics)) == {(3, 3): 1, (3, 5): 1}


def test_a_code_under_another_name_is_counted() -> None:
    partition = add_partitions_to_txn.AddPartitionsToTxnPartitionResult(partition_error_code=48)
    topic = add_partitions_to_txn.AddPartitionsToTxnTopicResult(results_by_partition=[partition])

    assert counted(24, add_partitions_to_txn.Response(results_by_topic_v3_and_below=[topic])) == {(24, 48): 1}


def test_lists_without_codes_are_not_counted() -> None:
    assert (metadata.Response.ERROR_FIELD, metadata.Response.ERROR_LISTS) == ("error_code", ("topics",))
    assert metadata.MetadataResponsePartition.ERROR_LISTS == ()
    assert create_topics.CreatableTopicConfigs.ERROR_FIELD is None


def test_the_results_of_produce_are_counted_by_partition() -> None:
    good, bad = ProducedPartition(0), ProducedPartition(1, error_code=87)

    assert counted(0, Response([("t", None, [good, bad, bad])])) == {(0, 87): 2}


@pytest.mark.parametrize("key", sorted(set(TABLE) - {0, 1}))
def test_a_response_without_errors_has_none(key: int) -> None:
    module = importlib.import_module(f"penstock.wire.api.{TABLE[key].module}")

    assert counted(key, module.Response()) == {}
