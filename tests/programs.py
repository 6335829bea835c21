"""The optional programs that some tests need, how to get them, and what a run says about tests that missed one."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tools import sparks
from tools.spark_jars import is_complete, jars_folder

from penstock.testing.apache_kafka import KAFKA_VERSION
from penstock.testing.packet_filter import why_not

ROOT = Path(__file__).parent.parent
KAFKA_JARS = ROOT / ".cache" / f"kafka-{KAFKA_VERSION}" / "libs"

HOW_TO_GET = {
    "kcat": "install kcat (on Debian: apt-get install kcat)",
    "kafka-jars": "run `make kafka` (needs Maven)",
    "javac": "install a JDK (on Debian: apt-get install default-jdk-headless)",
    "gcc": "install a C compiler (on Debian: apt-get install gcc libc6-dev)",
    "librdkafka-headers": "install librdkafka's headers (on Debian: apt-get install librdkafka-dev)",
    "make": "install make",
    "packet-filter": "run as root, with iptables installed (on Debian: apt-get install iptables)",
    "openssl": "install OpenSSL (on Debian: apt-get install openssl)",
    "spark-kafka-jars": "run `make spark-jars` (needs Maven)",
    **{f"pyspark-{version}": "run `make sparks`" for version in sparks.VERSIONS},
}
SKIPPED = "Skipped: "
"""What pytest puts before the reason of a skip."""


@cache
def have(program: str) -> bool:
    if program == "kafka-jars":
        return KAFKA_JARS.is_dir() and any(KAFKA_JARS.glob("kafka-clients-*.jar"))
    if program == "spark-kafka-jars":
        return is_complete(jars_folder(ROOT))
    if program == "packet-filter":
        return why_not() is None
    if program.startswith("pyspark-"):
        return sparks.is_complete(ROOT / ".cache" / program)
    if program == "librdkafka-headers":
        return have("gcc") and _compiles("#include <librdkafka/rdkafka.h>\n")
    return shutil.which(program) is not None


def _compiles(source: str) -> bool:
    tried = subprocess.run(["gcc", "-E", "-x", "c", "-"], input=source.encode(), capture_output=True, check=False)
    return tried.returncode == 0


def missing(program: str) -> str:
    """Why a test is skipped that needs a program."""
    return f"needs {program}: {HOW_TO_GET.get(program, 'not found')}"


def summary_of_skips(reasons: Iterable[str]) -> list[str]:
    """One line for each reason, the most frequent first."""
    counted = Counter(reason.removeprefix(SKIPPED) for reason in reasons)
    return [f"{count} skipped: {reason}" for reason, count in counted.most_common()]
