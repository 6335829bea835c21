"""Numbers of a benchmark: rates, and latencies with their percentiles."""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass
from typing import Any

SAMPLES_MAX = 1_000_000
MEGABYTE = 1_000_000
PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999))


class Latencies:
    """Durations in seconds. When there are too many, every second one is dropped, and from then on only every second
    new one is kept: the sample stays spread over the whole run."""

    def __init__(self, samples_max: int = SAMPLES_MAX) -> None:
        self._samples = array("d")
        self._samples_max = samples_max
        self._stride = 1
        self._seen = 0
        self.max_seconds = 0.0

    def add(self, seconds: float) -> None:
        self.max_seconds = max(self.max_seconds, seconds)
        if self._seen % self._stride == 0:
            self._samples.append(seconds)
            if len(self._samples) >= self._samples_max:
                del self._samples[1::2]
                self._stride *= 2
        self._seen += 1

    def __len__(self) -> int:
        return self._seen

    def millis(self) -> dict[str, float]:
        """The percentiles and the maximum in milliseconds; empty when nothing was measured."""
        if not self._samples:
            return {}
        ordered = sorted(self._samples)
        last = len(ordered) - 1
        found = {name: ordered[min(last, int(share * len(ordered)))] for name, share in PERCENTILES}
        return {name: round(seconds * 1000, 3) for name, seconds in (*found.items(), ("max", self.max_seconds))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one benchmark measured."""

    work: str
    topic: str
    records: int
    bytes: int
    seconds: float
    latency_ms: dict[str, float]

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / MEGABYTE / self.seconds if self.seconds > 0 else 0.0

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self),
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records_per_second, 1),
            "megabytes_per_second": round(self.megabytes_per_second, 2),
        }

    def sentence(self) -> str:
        """As text."""
        lines = [
            f"{self.records:,} records, {self.bytes / MEGABYTE:,.1f} MB in {self.seconds:.2f} s: "
            f"{self.records_per_second:,.0f} records/s, {self.megabytes_per_second:,.1f} MB/s"
        ]
        if self.latency_ms:
            lines.append("latency ms  " + "  ".join(f"{name} {value:g}" for name, value in self.latency_ms.items()))
        return "\n".join(lines)


def rate_text(records: int, size: int, seconds: float) -> str:
    """The rate for the progress bar."""
    if seconds <= 0:
        return ""
    return f"{records / seconds:,.0f}/s {size / MEGABYTE / seconds:,.1f} MB/s"
