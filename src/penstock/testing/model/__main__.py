"""Run random schedules of the model: `python -m penstock.testing.model --seeds 1000`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import nullcontext

from penstock.testing.model.ablations import ABLATIONS
from penstock.testing.model.schedule import draw_schedule
from penstock.testing.model.walk import Result, run, shrink


def main() -> int:
    """Exit with 1 where a seed breaks a promise, after its shortest schedule was shown."""
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.model", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--ablate", choices=sorted(ABLATIONS), help="a rule to take out")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    with ABLATIONS[asked.ablate]() if asked.ablate else nullcontext():
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            result = run(draw_schedule(seed))
            counts.update(result.counts)
            if result.violation is not None:
                show(seed, result)
                return 1
    print(f"{asked.seeds} seeds, no promise broken: {dict(counts)}")
    return 0


def show(seed: int, result: Result) -> None:
    """Print the shortest schedule that breaks the same promise, step by step."""
    trace: list[str] = []
    run(shrink(draw_schedule(seed), lambda shorter: shorter.kind == result.kind), trace)
    print("\n".join(trace))
    print(f"seed {seed}: {result.violation}")


if __name__ == "__main__":
    sys.exit(main())
