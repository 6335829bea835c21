"""A virtual environment with what executors need, made of the packages that are installed here, without a network.

It replaces ``pip install "penstock[executor]" venv-pack`` of the page about clusters.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from pages import ROOT

NOT_NEEDED = shutil.ignore_patterns("__pycache__", "tests", "include", "*.pyx", "*flight*")
"""Parts of packages that make the archive larger and are imported by nothing here."""
OWN = ("penstock", "pyspark_penstock")


def make_environment(folder: Path) -> Path:
    """A virtual environment at ``folder`` whose Python can run the data source's tasks."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in OWN:
        copy(ROOT / "src" / name, packages / name)
    for requirement in required():
        installed = distribution(requirement)
        for top in sorted({Path(file).parts[0] for file in installed.files or () if ".." not in Path(file).parts}):
            if top != "__pycache__":
                copy(Path(str(installed.locate_file(top))), packages / top)
    return folder


def required() -> list[str]:
    """The packages of the extra ``executor``, and what they depend on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, None] = {}
    pending = [*project["dependencies"], *project["optional-dependencies"]["executor"], "venv-pack"]
    while pending:
        requirement = Requirement(pending.pop())
        if requirement.name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[requirement.name] = None
        pending += distribution(requirement.name).requires or ()
    return list(found)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, copy_function=link_or_copy, ignore=NOT_NEEDED, dirs_exist_ok=True)
    elif not target.exists():
        link_or_copy(str(source), str(target))


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
