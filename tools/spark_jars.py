"""Fetch the jars of Spark's own Kafka connector by their Maven coordinates into .cache/spark-kafka-<version>.

The pyspark package brings everything else. Running it again does nothing: the folder appears complete, by one rename,
or not at all.

    python tools/spark_jars.py            fetch if they are missing, print the folder
    python tools/spark_jars.py --check    only report whether they exist (exit status 1 if not)
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SPARK_VERSION = "4.2.0"
COORDINATES = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
)
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
FETCH_SECONDS_MAX = 600
OUTPUT_LINES_SHOWN = 25


class FetchFailed(Exception):
    """The jars could not be fetched; the message says what to do."""


def jars_folder(root: Path) -> Path:
    return root / ".cache" / f"spark-kafka-{SPARK_VERSION}"


def jars(folder: Path) -> list[Path]:
    return [folder / f"{artifact}-{version}.jar" for _, artifact, version in COORDINATES]


def is_complete(folder: Path) -> bool:
    return all(jar.is_file() for jar in jars(folder))


def fetch(folder: Path) -> None:
    """Fill the folder, or leave it unchanged."""
    maven = shutil.which("mvn")
    if maven is None:
        raise FetchFailed("mvn was not found on PATH: install Maven (Debian: apt install maven)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        filled = Path(scratch) / "jars"
        for group, artifact, version in COORDINATES:
            run_maven(
                [maven, "-B", "-q", COPY, f"-Dartifact={group}:{artifact}:{version}", f"-DoutputDirectory={filled}"]
            )
        if not is_complete(filled):
            raise FetchFailed(f"mvn succeeded, but {filled} lacks some of {COORDINATES}")
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(filled, folder)


def run_maven(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"mvn did not end within {FETCH_SECONDS_MAX} s: is its repository reachable?") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        tail = "\n".join(lines[-OUTPUT_LINES_SHOWN:])
        raise FetchFailed(f"mvn failed with status {done.returncode}:\n{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch the jars of Spark's Kafka connector into .cache/")
    parser.add_argument("--check", action="store_true", help="only say whether the jars are there")
    options = parser.parse_args()
    folder = jars_folder(Path(__file__).resolve().parent.parent)
    if not is_complete(folder):
        if options.check:
            print(f"missing: {folder}")
            return 1
        try:
            fetch(folder)
        except FetchFailed as failure:
            print(f"spark_jars: {failure}", file=sys.stderr)
            return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
