"""Send the differential script to Apache Kafka and keep its responses in tests/differential/recordings.

    python tools/record_differential.py                  every family
    python tools/record_differential.py produce fetch    only these
    python tools/record_differential.py --page           only write docs/differences.md from differences.py
    python tools/record_differential.py --check          write nothing, report where Kafka now responds differently

A family's file is replaced as a whole, so a response can only change by a change in the script or in Kafka.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from differential import recording
from differential.compare import differences_between
from differential.differences import PAGE, page
from differential.scenarios import FAMILIES
from differential.script import SETTINGS, Target, look_at, play
from penstock.testing.apache_kafka import KAFKA_VERSION, ApacheKafka


def play_family(family: str, target: Target) -> recording.Recorded:
    played: recording.Recorded = {}
    for scenario in FAMILIES[family]:
        assert scenario.name not in played, f"two scenarios named {scenario.path}"
        versions = scenario.versions_known(target.advertised[scenario.api])
        assert versions, f"{scenario.path}: no version of {scenario.api} is known to both"
        played[scenario.name] = {}
        for version in versions:
            try:
                played[scenario.name][version] = play(scenario, version, target)
            except Exception as error:
                error.add_note(f"in {scenario.path} v{version}")
                raise
    return played


def report_changes(family: str, played: recording.Recorded) -> int:
    """Print every field in which these responses differ from the recorded ones; returns their number."""
    found = differences_between(recording.load(family), as_loaded(played))
    for difference in found:
        print(f"{family}: {difference}")
    return len(found)


def as_loaded(played: recording.Recorded) -> recording.Recorded:
    """The responses after a round trip through JSON, which turns tuples into lists."""
    return {
        name: {version: json.loads(json.dumps(responses)) for version, responses in versions.items()}
        for name, versions in played.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"some of: {', '.join(FAMILIES)}")
    parser.add_argument("--bootstrap", help="a running Apache Kafka to use, instead of starting one")
    parser.add_argument("--page", action="store_true", help="only write docs/differences.md from the declarations")
    parser.add_argument("--check", action="store_true", help="compare with the recordings, write nothing")
    chosen = parser.parse_args()
    if chosen.page:
        PAGE.write_text(page(), encoding="utf-8")
        return
    families = chosen.families or list(FAMILIES)
    unknown = set(families) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are: {', '.join(FAMILIES)}")
    if chosen.bootstrap:
        run(families, look_at(chosen.bootstrap, prefix=f"{time.time_ns():x}."), check=chosen.check)
        return
    with ApacheKafka(properties=SETTINGS) as kafka:
        run(families, look_at(kafka.bootstrap), check=chosen.check)


def run(families: list[str], target: Target, *, check: bool) -> None:
    changes = 0
    for family in families:
        began = time.perf_counter()
        played = play_family(family, target)
        if check:
            changes += report_changes(family, played)
        else:
            recording.save(family, KAFKA_VERSION, played)
        cases = sum(len(versions) for versions in played.values())
        print(f"{family}: {cases} cases in {time.perf_counter() - began:.1f} s", flush=True)
    if changes:
        sys.exit(f"{changes} fields differ from the recordings")


if __name__ == "__main__":
    main()
