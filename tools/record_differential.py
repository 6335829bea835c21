"""Send the differential script to Apache Kafka and keep its answers in tests/differential/recordings.

    python tools/record_differential.py                  every family
    python tools/record_differential.py produce fetch    only these

A family's file is replaced as a whole, so an answer can only change by a change in the script or in Kafka.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from differential import recording
from differential.scenarios import FAMILIES
from differential.script import Target, look_at, play
from penstock.testing.apache_kafka import KAFKA_VERSION, ApacheKafka

SETTINGS = {
    "num.partitions": "1",
    "default.replication.factor": "1",
    "auto.create.topics.enable": "true",
    "log.retention.ms": str(14 * 24 * 3600 * 1000),
}
"""Kafka told to do what penstock does by default."""


def record_family(family: str, target: Target) -> int:
    recorded: recording.Recorded = {}
    cases = 0
    for scenario in FAMILIES[family]:
        assert scenario.name not in recorded, f"two scenarios named {scenario.path}"
        versions = scenario.versions_known(target.advertised[scenario.api])
        assert versions, f"{scenario.path}: no version of {scenario.api} is known to both"
        recorded[scenario.name] = {}
        for version in versions:
            try:
                recorded[scenario.name][version] = play(scenario, version, target)
            except Exception as error:
                error.add_note(f"in {scenario.path} v{version}")
                raise
            cases += 1
    recording.save(family, KAFKA_VERSION, recorded)
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"some of: {', '.join(FAMILIES)}")
    parser.add_argument("--bootstrap", help="a running Apache Kafka to ask, instead of starting one")
    chosen = parser.parse_args()
    families = chosen.families or list(FAMILIES)
    unknown = set(families) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are: {', '.join(FAMILIES)}")
    if chosen.bootstrap:
        record_all(families, look_at(chosen.bootstrap, prefix=f"{time.time_ns():x}."))
        return
    with ApacheKafka(properties=SETTINGS) as kafka:
        record_all(families, look_at(kafka.bootstrap))


def record_all(families: list[str], target: Target) -> None:
    for family in families:
        began = time.perf_counter()
        cases = record_family(family, target)
        print(f"{family}: {cases} cases in {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
