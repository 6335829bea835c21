"""Describes the machine of a run, without which figures mean nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from bench.client_program import ROOT, librdkafka_version
from penstock.testing.apache_kafka import KAFKA_VERSION, KafkaMissing, find_java


def describe(data_root: Path) -> dict[str, str]:
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{_memory_bytes() / 1e9:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(data_root),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "penstock": f"{importlib.metadata.version('penstock')}, commit {_commit()}, {_record_loops()}",
        "Java": _java(),
        "Apache Kafka": f"{KAFKA_VERSION}, one KRaft node, heap 1 GB, default settings",
        "load program": f"bench/client over librdkafka {librdkafka_version()}, loopback",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _file_system(folder: Path) -> str:
    """The type of the mount that holds the folder: the one with the longest matching mount point."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    holding = [(mount[1], mount[2]) for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else "unknown"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "unknown"
    changed = subprocess.run(
        ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", "src"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() + (" with local changes" if changed.stdout.strip() else "")


def _record_loops() -> str:
    """Whether any module of the package is compiled, judged by its files."""
    compiled = any((ROOT / "src" / "penstock").rglob("*.so"))
    return "compiled record loops" if compiled else "pure Python record loops"


def _java() -> str:
    try:
        done = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True, check=False)
    except KafkaMissing:
        return "none"
    return done.stderr.splitlines()[0] if done.stderr else "unknown"
