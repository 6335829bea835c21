import gzip
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.observe import catalog
from penstock.observe.catalog import METRICS
from penstock.observe.counters import RequestCounters, StorageCounters, ThrottleCounters, TopicTraffic
from penstock.observe.loop_lag import LoopLag
from penstock.observe.metric import Sample
from penstock.observe.metrics import Collector, render
from penstock.observe.partitions import BrokerView, ClusterSource, PartitionView, TopicView


def scraped(*sources: object) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """A scrape as Prometheus' own parser reads it: sample name, then sorted labels, then the value."""
    text = render(Collector(sources).snapshot()).body.decode()  # type: ignore[arg-type]
    values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return values


def test_every_metric_has_a_unique_name_and_a_help_text() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(metric.help.endswith(".") for metric in METRICS)
    assert all(metric.name.startswith(("penstock_", "kafka_")) for metric in METRICS)


def test_requests_are_counted_by_api_and_version_and_timed_by_api() -> None:
    requests = RequestCounters({0: "Produce"}, {3: "UNKNOWN_TOPIC_OR_PARTITION"})
    requests.row(0, 9).add(100)
    requests.row(0, 9).add(3_000_000)
    requests.row(0, 12).add(50)
    requests.failed(0, 3)
    requests.failed(0, 999)
    requests.refuse("frame_too_large")

    shown = scraped(requests)

    assert shown["penstock_requests_total"] == {
        (("api", "Produce"), ("version", "9")): 2,
        (("api", "Produce"), ("version", "12")): 1,
    }
    assert shown["penstock_request_seconds_count"] == {(("api", "Produce"),): 3}
    assert shown["penstock_request_seconds_sum"] == {(("api", "Produce"),): pytest.approx(3.00015)}
    buckets = shown["penstock_request_seconds_bucket"]
    assert buckets[(("api", "Produce"), ("le", "0.000128"))] == 2
    assert buckets[(("api", "Produce"), ("le", "+Inf"))] == 3
    assert shown["penstock_request_errors_total"] == {
        (("api", "Produce"), ("error", "UNKNOWN_TOPIC_OR_PARTITION")): 1,
        (("api", "Produce"), ("error", "999")): 1,
    }
    assert shown["penstock_requests_refused_total"] == {(("reason", "frame_too_large"),): 1}


def cluster(partitions: list[PartitionView], *, per_partition: bool) -> ClusterSource:
    return ClusterSource(
        brokers=lambda: [BrokerView(1, "h:9092")],
        topics=lambda: [TopicView("orders", len(partitions))],
        partitions=lambda: partitions,
        per_partition=lambda: per_partition,
    )


def test_without_partition_samples_the_partition_count_stays() -> None:
    partitions = [PartitionView("orders", at, 1, (1,), (1,), 0, 0, 0) for at in range(3)]

    shown = scraped(cluster(partitions, per_partition=False))

    assert shown["kafka_topic_partitions"] == {(("topic", "orders"),): 3}
    assert shown["kafka_brokers"] == {(): 1}
    assert not [name for name in shown if name.startswith("kafka_topic_partition_")]


def test_a_scrape_copies_one_row_per_step() -> None:
    copied: list[int] = []

    def partitions() -> Iterator[PartitionView]:
        for at in range(5):
            copied.append(at)
            yield PartitionView("orders", at, 1, (1,), (1,), 0, 0, 0)

    source = ClusterSource(brokers=list, topics=list, partitions=partitions, per_partition=lambda: True)
    parts: list[Iterable[Sample]] = []
    for step, _ in enumerate(Collector([source]).steps(parts)):
        assert copied == list(range(step + 1))
    assert len(copied) == 5
    assert sum(sample.metric is catalog.PARTITION_END for part in parts for sample in part) == 5


def test_partitions_have_kafka_exporters_names() -> None:
    led = PartitionView("orders", 0, 1, (1, 2), (1,), 5, 90, 4096)
    orphan = PartitionView("orders", 1, -1, (2, 1), (2, 1), 0, 0, 0)
    shown = scraped(cluster([led, orphan], per_partition=True))

    zero, one = (("partition", "0"), ("topic", "orders")), (("partition", "1"), ("topic", "orders"))
    assert shown["kafka_brokers"] == {(): 1}
    assert shown["kafka_broker_info"] == {(("address", "h:9092"), ("id", "1")): 1}
    assert shown["kafka_topic_partitions"] == {(("topic", "orders"),): 2}
    assert shown["kafka_topic_partition_current_offset"] == {zero: 90, one: 0}
    assert shown["kafka_topic_partition_oldest_offset"] == {zero: 5, one: 0}
    assert shown["kafka_topic_partition_leader"] == {zero: 1, one: -1}
    assert shown["kafka_topic_partition_leader_is_preferred"] == {zero: 1, one: 0}
    assert shown["kafka_topic_partition_in_sync_replica"] == {zero: 1, one: 2}
    assert shown["kafka_topic_partition_under_replicated_partition"] == {zero: 1, one: 0}
    assert shown["penstock_partition_bytes"] == {zero: 4096, one: 0}


def test_the_traffic_of_a_deleted_topic_is_dropped() -> None:
    traffic = TopicTraffic()
    traffic.row("kept").bytes_in += 7
    traffic.row("gone").bytes_in += 9

    traffic.forget("gone")

    assert scraped(traffic)["penstock_topic_bytes_in_total"] == {(("topic", "kept"),): 7}


def test_flushes_are_counted_with_their_time() -> None:
    storage = StorageCounters()
    storage.flush_seconds.add(1_000)
    storage.flush_seconds.add(2_000)
    storage.segments_deleted += 3

    shown = scraped(storage)

    assert shown["penstock_flushes_total"] == {(): 2}
    assert shown["penstock_flush_seconds_sum"] == {(): 0.003}
    assert shown["penstock_segments_deleted_total"] == {(): 3}


def test_throttles_are_counted_and_their_time_summed() -> None:
    throttles = ThrottleCounters()
    throttles.throttled("produce", 250)
    throttles.throttled("produce", 500)

    shown = scraped(throttles)

    assert shown["penstock_throttles_total"] == {(("api", "produce"),): 2}
    assert shown["penstock_throttle_seconds_total"] == {(("api", "produce"),): 0.75}


def test_the_longest_loop_lag_is_that_since_the_last_scrape() -> None:
    lag = LoopLag()
    lag.add(5_000)
    lag.add(-3)

    first, second = scraped(lag), scraped(lag)

    assert first["penstock_loop_lag_seconds_max"] == {(): 0.005}
    assert second["penstock_loop_lag_seconds_max"] == {(): 0}
    assert second["penstock_loop_lag_seconds_count"] == {(): 2}


def test_a_scrape_shows_the_process_and_can_be_compressed() -> None:
    shown = render([], accept_encoding="deflate, gzip;q=0.5")

    assert shown.encoding == "gzip"
    assert b"process_resident_memory_bytes" in gzip.decompress(shown.body)


def test_a_sample_with_the_wrong_labels_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="has the labels"):
        catalog.REQUESTS.sample(1, "Produce")
