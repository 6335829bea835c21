"""The samples of a run: plain numbers, each with its work, side and round.

They are saved as JSON, so that a report can be rendered again without measuring.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

KAFKA = "kafka"
PENSTOCK = "penstock"
SIDES = (KAFKA, PENSTOCK)
BASELINE = "baseline"
"""The penstock of another commit, in a run that compares two of them."""
CEILING = "ceiling"
"""No side of the comparison: the load program without a broker."""
OF_A_RUN = frozenset({"memory-after"})
"""Works that depend on all works before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One execution of one work on one side."""

    work: str
    side: str
    round: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median, lowest and highest of several rounds."""

    median: float
    lowest: float
    highest: float
    rounds: int


@dataclass(slots=True, kw_only=True)
class Results:
    """The results of one run."""

    machine: Mapping[str, str]
    began: str
    command: str
    parts: list[str]
    """Its works, if it ran in full size on both sides and without a failure; otherwise none."""
    complete: bool
    """Whether these are all works."""
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list[Sample])
    failures: list[str] = field(default_factory=list[str])
    """Why works are missing, in a run that continues after a failure."""

    def spread(self, work: str, side: str, metric: str) -> Spread | None:
        """The rounds of one figure, or None when it was not measured."""
        found = [
            sample.values[metric]
            for sample in self.samples
            if sample.work == work and sample.side == side and metric in sample.values
        ]
        if not found:
            return None
        return Spread(median=statistics.median(found), lowest=min(found), highest=max(found), rounds=len(found))

    def add(self, samples: Iterable[Sample]) -> None:
        # One by one: samples stay when a later round fails.
        for sample in samples:
            self.samples.append(sample)

    @staticmethod
    def joined(runs: Sequence[Results], every_part: Collection[str]) -> Results:
        """Merge runs of some works each: the last measurement of a work counts.

        Every ratio is still of one run: a work's sides are never separated. The description of a whole run is not
        replaced by a part's.
        """
        machine = dict(runs[0].machine)
        for name in machine:
            # Differences, most likely the commit, are listed for each.
            machine[name] = "; ".join(dict.fromkeys(run.machine.get(name, "unknown") for run in runs))
        parts = sorted({part for run in runs for part in run.parts})
        last = {
            sample.work: run for run in runs for sample in run.samples if run.complete or sample.work not in OF_A_RUN
        }
        return Results(
            machine=machine,
            began="; ".join(run.began for run in runs),
            command="\n    ".join(run.command for run in runs),
            parts=parts,
            complete=parts == sorted(every_part),
            seconds=sum(run.seconds for run in runs),
            samples=[sample for run in runs for sample in run.samples if last.get(sample.work, run) is run],
        )

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Results:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        samples = [Sample(**sample) for sample in stored.pop("samples")]
        return Results(samples=samples, **stored)
