"""Collects samples and renders them in the Prometheus format.

A scrape has two halves: `Collector.steps` copies the numbers on the event loop, and `render` formats them in a thread,
because formatting the samples of ten thousand partitions would block the loop for too long.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, cast

from penstock.observe.histogram import Histogram
from penstock.observe.metric import Frozen, Kind, Metric, Sample, Source

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

GZIP_LEVEL = 1


class Collector:
    """The list of sources, which are read only by a scrape."""

    __slots__ = ("_sources",)

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self._sources: list[Source] = list(sources)

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def snapshot(self) -> Iterable[Sample]:
        """Every sample now; the result may be iterated in any thread."""
        parts: list[Iterable[Sample]] = []
        for _ in self.steps(parts):
            pass
        return chain.from_iterable(parts)

    def steps(self, parts: list[Iterable[Sample]]) -> Iterator[None]:
        """Copy every sample into `parts`, a few per step, so that the event loop can pause between steps."""
        for source in self._sources:
            samples = source.samples()
            if isinstance(samples, Frozen):
                parts.append(samples)
                yield from samples.steps()
            else:
                copied: list[Sample] = []
                parts.append(copied)
                for sample in samples:
                    copied.append(sample)
                    yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """A rendered scrape, ready to send."""

    content_type: str
    encoding: str | None
    body: bytes


def render(samples: Iterable[Sample], *, accept: str = "", accept_encoding: str = "") -> Exposition:
    """The scrape in the format that the client prefers. Slow for large brokers: call it in a thread.

    The library is imported here, so that a broker without scrapes does not load it.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.process_collector import ProcessCollector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(samples))
    ProcessCollector(registry=registry)
    encoder, content_type = choose_encoder(accept)
    body = encoder(registry)
    if any(part.partition(";")[0].strip() == "gzip" for part in accept_encoding.lower().split(",")):
        return Exposition(content_type=content_type, encoding="gzip", body=gzip.compress(body, GZIP_LEVEL))
    return Exposition(content_type=content_type, encoding=None, body=body)


class _Snapshot:
    """A collector of prometheus_client over copied samples."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        by_metric: dict[str, list[Sample]] = {}
        for sample in self._samples:
            by_metric.setdefault(sample.metric.name, []).append(sample)
        for samples in by_metric.values():
            yield _family(samples[0].metric, samples)


def _family(metric: Metric, samples: list[Sample]) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    match metric.kind:
        case Kind.COUNTER:
            counters = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            for sample in samples:
                counters.add_metric(sample.labels, _number(sample))
            return counters
        case Kind.GAUGE:
            gauges = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for sample in samples:
                gauges.add_metric(sample.labels, _number(sample))
            return gauges
        case Kind.HISTOGRAM:
            histograms = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for sample in samples:
                counted = cast("Histogram", sample.value)
                histograms.add_metric(sample.labels, counted.cumulative(), counted.sum_seconds)
            return histograms


def _number(sample: Sample) -> float:
    assert not isinstance(sample.value, Histogram), f"{sample.metric.name} is not a histogram"
    return sample.value
