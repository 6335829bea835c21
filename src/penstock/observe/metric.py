"""Declarations of metrics, and their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from penstock.observe.histogram import Histogram


class Kind(StrEnum):
    """The type of a metric, as in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One declared metric. The reference page and the exposition both come from this."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    help: str

    def __post_init__(self) -> None:
        assert (self.kind is Kind.COUNTER) == self.name.endswith("_total"), f"{self.name}: counters end in _total"

    def sample(self, value: float | Histogram, *labels: str) -> Sample:
        """One number of this metric, with the label values in the declared order."""
        assert len(labels) == len(self.labels), f"{self.name} has the labels {self.labels}, not {labels}"
        return Sample(self, labels, value)


class Sample(NamedTuple):
    """One value of a metric; a tuple, because a scrape has tens of thousands."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


class Frozen:
    """Rows that are copied one by one on the loop, and become samples when they are formatted, in a thread.

    A source with many rows returns this; one with few yields its samples.
    """

    __slots__ = ("_expand", "_rows", "_taken")

    def __init__(self, rows: Iterable[Any], expand: Callable[[list[Any]], Iterable[Sample]]) -> None:
        """`rows` is iterated on the event loop with pauses, during which its underlying collections may change."""
        self._rows = rows
        self._expand = expand
        self._taken: list[Any] = []

    def steps(self) -> Iterator[None]:
        """Copy the rows, one a step."""
        for row in self._rows:
            self._taken.append(row)
            yield

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._expand(self._taken))


class Source(Protocol):
    """A source of samples. Hot paths keep plain integers; this is called only by a scrape."""

    def samples(self) -> Iterable[Sample]:
        """The current samples. Iterated on the event loop with pauses, so it copies and does not format.

        The underlying collections may change between two samples.
        """
        ...
