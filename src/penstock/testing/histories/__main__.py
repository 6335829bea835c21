"""`python -m penstock.testing.histories FILE`: check a history; with `--run`, record it first."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from penstock.testing.histories.anomalies import Anomaly
from penstock.testing.histories.checker import check, forbidden
from penstock.testing.histories.history import HistoryError, load

SHOWN_MAX = 20
EXIT_ANOMALIES = 1
EXIT_UNREADABLE = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.histories", description=__doc__)
    parser.add_argument("file", type=Path, help="the history, as lines of JSON")
    parser.add_argument("--all", action="store_true", help="show anomalies that Kafka allows too, and fail for them")
    parser.add_argument("--run", metavar="HOST:PORT", help="first write the file, with work on this broker")
    parser.add_argument("--topic", default="history", help="the topic to use; it is created (default: history)")
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="of the work; a random one is printed")
    chosen = parser.parse_args()
    if chosen.run:
        work(chosen)
    try:
        events = tuple(load(chosen.file))
        found = check(events)
    except (HistoryError, OSError, UnicodeDecodeError) as error:
        print(f"{chosen.file}: {error}", file=sys.stderr)
        return EXIT_UNREADABLE
    wrong = found if chosen.all else forbidden(found)
    show(wrong, events=len(events))
    return EXIT_ANOMALIES if wrong else 0


def work(chosen: argparse.Namespace) -> None:
    """Write the history."""
    from penstock.client.library import kafka_admin
    from penstock.testing.histories.workload import Plan, Workload

    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}", flush=True)
    admin = kafka_admin().AdminClient({"bootstrap.servers": chosen.run})
    admin.create_topics([kafka_admin().NewTopic(chosen.topic, chosen.partitions)])[chosen.topic].result()
    plan = Plan(bootstrap=chosen.run, topic=chosen.topic, partitions=chosen.partitions, workers=chosen.workers)
    workload = Workload(plan, chosen.file, random.Random(seed))
    workload.start()
    try:
        time.sleep(chosen.seconds)
    finally:
        workload.finish()
    print(", ".join(f"{count} {what}" for what, count in sorted(workload.recorder.counts.items())), flush=True)


def show(wrong: tuple[Anomaly, ...], *, events: int) -> None:
    counts = Counter(anomaly.kind for anomaly in wrong)
    shown: Counter[str] = Counter()
    for anomaly in wrong:
        shown[anomaly.kind] += 1
        if shown[anomaly.kind] <= SHOWN_MAX:
            print(anomaly)
    for kind, count in counts.items():
        print(f"{count} x {kind}")
    if not wrong:
        print(f"no anomalies in {events} events")


if __name__ == "__main__":
    sys.exit(main())
