"""Fetch Apache Kafka's jars by their Maven coordinates into .cache/kafka-<version>/libs.

The broker and its command line tools run from these jars alone, so no distribution is unpacked. Running it again does
nothing: the folder appears complete, by one rename, or not at all.

    python tools/kafka_jars.py            fetch if they are missing, print the folder
    python tools/kafka_jars.py --check    only report whether they exist (exit status 1 if not)
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"
COORDINATES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")
LOGGING_FOLDER = "logging"
FETCH_SECONDS_MAX = 600
OUTPUT_LINES_SHOWN = 25

POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock.tools</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""

DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>"""


class FetchFailed(Exception):
    """The jars could not be fetched; the message says what to do."""


def libs_folder(root: Path) -> Path:
    return root / ".cache" / f"kafka-{KAFKA_VERSION}" / "libs"


def is_complete(libs: Path) -> bool:
    jars = [libs / jar_name(artifact, version) for _, artifact, version in COORDINATES]
    jars.append(libs / LOGGING_FOLDER / jar_name(*LOGGING[1:]))
    return all(jar.is_file() for jar in jars)


def jar_name(artifact: str, version: str) -> str:
    return f"{artifact}-{version}.jar"


def fetch(libs: Path) -> None:
    """Fill the folder, or leave it unchanged."""
    maven = shutil.which("mvn")
    if maven is None:
        raise FetchFailed(
            "mvn was not found on PATH: install Maven (Debian: apt install maven), "
            f"or copy Kafka {KAFKA_VERSION}'s libs folder to {libs}"
        )
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="fetch-") as scratch:
        pom = Path(scratch) / "pom.xml"
        filled = Path(scratch) / "libs"
        pom.write_text(pom_text(), encoding="utf-8")
        run_maven(maven, pom, filled)
        set_logging_apart(filled)
        if not is_complete(filled):
            raise FetchFailed(f"mvn succeeded, but {filled} lacks some of {COORDINATES}")
        publish(filled, libs)


def set_logging_apart(filled: Path) -> None:
    """Keep the logging binding that writes to stderr out of the folder that the tools load.

    The tools stay silent with slf4j-nop; a broker whose class path starts with the logging folder says why it failed.
    """
    name = jar_name(*LOGGING[1:])
    apart = filled / LOGGING_FOLDER
    apart.mkdir()
    (filled / name).rename(apart / name)


def pom_text() -> str:
    dependencies = "\n".join(
        DEPENDENCY.format(group=group, artifact=artifact, version=version)
        for group, artifact, version in (*COORDINATES, LOGGING)
    )
    return POM.format(dependencies=dependencies)


def run_maven(maven: str, pom: Path, filled: Path) -> None:
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={filled}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"mvn did not end within {FETCH_SECONDS_MAX} s: is its repository reachable?") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        tail = "\n".join(lines[-OUTPUT_LINES_SHOWN:])
        raise FetchFailed(f"mvn failed with status {done.returncode}:\n{tail}")


def publish(filled: Path, libs: Path) -> None:
    if libs.exists() and not is_complete(libs):
        shutil.rmtree(libs)
    try:
        os.rename(filled, libs)
    except OSError:
        # Another run has created the same folder.
        if not is_complete(libs):
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch Apache Kafka's jars into .cache/")
    parser.add_argument("--check", action="store_true", help="only say whether the jars are there")
    options = parser.parse_args()
    libs = libs_folder(Path(__file__).resolve().parent.parent)
    if not is_complete(libs):
        if options.check:
            print(f"missing: {libs}")
            return 1
        try:
            fetch(libs)
        except FetchFailed as failure:
            print(f"kafka_jars: {failure}", file=sys.stderr)
            return 1
    print(libs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
