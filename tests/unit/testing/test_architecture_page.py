"""ARCHITECTURE.md names modules and packages that exist, names every package, and stays two pages long."""

from __future__ import annotations

import re

from pages import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
BROKER = ROOT / "src" / "penstock"
SPARK = ROOT / "src" / "pyspark_penstock"
PACKAGES = {path.parent.name for path in BROKER.glob("*/__init__.py")}
LINES_MAX = 130


def named_modules() -> set[str]:
    names = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", PAGE))
    return {name for name in names if not (ROOT / name).exists() and not (SPARK / name).exists()}


def exists(name: str) -> bool:
    """Whether it is a module of the broker, or a function in a module of the Spark package."""
    if (BROKER / name.replace(".", "/")).with_suffix(".py").exists():
        return True
    module, _, function = name.rpartition(".")
    source = SPARK / f"{module}.py"
    return source.exists() and f"\ndef {function}(" in source.read_text(encoding="utf-8")


def test_every_module_that_the_page_names_exists() -> None:
    names = named_modules()

    assert len(names) > 30
    assert sorted(name for name in names if not exists(name)) == []


def test_every_package_is_in_the_map() -> None:
    mapped = set(re.findall(r"^\| `([a-z]+)/`", PAGE, re.MULTILINE))

    assert sorted(PACKAGES - mapped) == []
    assert sorted(name for name in mapped if not (BROKER / name).exists() and not (ROOT / name).exists()) == []


def test_the_page_is_at_most_two_pages_long() -> None:
    assert len(PAGE.splitlines()) <= LINES_MAX
