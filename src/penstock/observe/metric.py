"""What a metric is: declared once, sampled when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from penstock.observe.histogram import Histogram


class Kind(StrEnum):
    """How a reader may use the number: a counter only grows, a gauge is true now, a histogram counts by size."""

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
        assert len(labels) == len(self.labels), f"{self.name} wants the labels {self.labels}, not {labels}"
        return Sample(self, labels, value)


class Sample(NamedTuple):
    """One number of one metric at one moment; a tuple, because a scrape makes tens of thousands."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


class Frozen:
    """Rows that are copied one by one and become samples only when they are formatted, which is off the event loop.

    A source with many rows returns this; one with few just yields its samples.
    """

    __slots__ = ("_expand", "_rows", "_taken")

    def __init__(self, rows: Iterable[Any], expand: Callable[[list[Any]], Iterable[Sample]]) -> None:
        """`rows` is iterated on the event loop, with pauses: what it goes through may change between two rows."""
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
    """Anything with numbers to show. Hot paths keep plain integers; this is called only when somebody scrapes."""

    def samples(self) -> Iterable[Sample]:
        """The numbers now. Iterated on the event loop with pauses, so it copies and does not format.

        What it goes through may change between two samples.
        """
        ...
