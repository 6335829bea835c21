"""Install other versions of PySpark beside the one of .venv, for the tests of them, into .cache/pyspark-<version>.

Running it again does nothing: a folder appears complete, by one rename, or not at all.

    python tools/sparks.py            install what is missing, print the folders
    python tools/sparks.py --check    only report missing versions (exit status 1 if there are any)
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSIONS = ("4.0.5", "4.1.4", "4.3.0")
"""One of each minor version that is supported, besides the one that .venv has."""
INSTALL_SECONDS_MAX = 900
OUTPUT_LINES_SHOWN = 25


class InstallFailed(Exception):
    """A version could not be installed; the message says what to do."""


def spark_folder(root: Path, version: str) -> Path:
    return root / ".cache" / f"pyspark-{version}"


def is_complete(folder: Path) -> bool:
    return (folder / "pyspark" / "jars").is_dir()


def install(folder: Path, version: str) -> None:
    """Fill the folder, or leave it unchanged."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="install-") as scratch:
        filled = Path(scratch) / "packages"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_pip([*command, "--no-deps", "--no-compile", "--target", str(filled), f"pyspark=={version}"])
        if not is_complete(filled):
            raise InstallFailed(f"pip succeeded, but {filled} has no pyspark/jars")
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(filled, folder)


def run_pip(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise InstallFailed(f"pip did not end within {INSTALL_SECONDS_MAX} s: is its index reachable?") from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-OUTPUT_LINES_SHOWN:])
        raise InstallFailed(f"pip failed with status {done.returncode}:\n{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Install other versions of PySpark into .cache/")
    parser.add_argument("--check", action="store_true", help="only say which are missing")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    status = 0
    for version in VERSIONS:
        folder = spark_folder(root, version)
        if not is_complete(folder):
            if options.check:
                print(f"missing: {folder}")
                status = 1
                continue
            try:
                install(folder, version)
            except InstallFailed as failure:
                print(f"sparks: {failure}", file=sys.stderr)
                return 1
        print(folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
