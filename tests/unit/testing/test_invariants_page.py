"""docs/invariants.md: every number once, and every module, function, test and ablation that it names exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pages import ROOT
from penstock.testing.model.ablations import ABLATIONS

PAGE = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src"
TESTS = ROOT / "tests"
INVARIANTS = 32
"""Of a cluster, by number."""
NUMBER = re.compile(r"[A-Z]+\d+[a-z]?")


def rows(section: str = "") -> Iterator[list[str]]:
    """The cells of each row below a heading, or of all."""
    text = PAGE if not section else PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| ") and (NUMBER.fullmatch(cells[0]) or cells[0].isdigit()):
            yield cells


def numbered() -> Iterator[list[str]]:
    """The rows that say where an invariant is kept."""
    return (cells for cells in rows() if NUMBER.fullmatch(cells[0]))


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a module defines: functions, classes and their members, constants, attributes of `self`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef():
                found |= {node.name, *(f"{node.name}.{member}" for each in node.body for member in _members(each))}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def _members(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


@cache
def modules() -> tuple[tuple[str, Path], ...]:
    """The dotted name of every module and package with its file."""
    return tuple(
        (".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"), path)
        for path in SOURCE.rglob("*.py")
    )


def is_code(name: str) -> bool:
    """Whether it is a module, or a name in the module before it, or in any."""
    dotted = name.replace("/", ".")
    for module, path in modules():
        whole = f".{module}"
        if whole.endswith(f".{dotted}") or dotted in names_in(path):
            return True
        parts = dotted.split(".")
        for at in range(1, len(parts)):
            if whole.endswith(f".{'.'.join(parts[:at])}") and ".".join(parts[at:]) in names_in(path):
                return True
    return False


@cache
def defined_below(end: str) -> frozenset[str]:
    """The tests in the files below `tests` whose paths end so."""
    paths = [path for path in TESTS.rglob("*.py") if str(path).endswith(end)]
    return frozenset(
        name
        for path in paths
        for name in re.findall(r"^(?:async )?(?:def |class )?(\w+)", _dedented(path), re.MULTILINE)
    )


def _dedented(path: Path) -> str:
    return re.sub(r"^ +", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_number_is_given_once() -> None:
    counts = Counter(cells[0] for cells in numbered())

    assert len(counts) > 200
    assert [number for number, count in counts.items() if count > 1] == []
    assert {len(cells) for cells in numbered()} == {4}


def test_every_invariant_is_kept_in_code_that_exists() -> None:
    missing = [(cells[0], name) for cells in numbered() for name in quoted(cells[2]) if not is_code(name)]

    assert missing == []


def test_every_invariant_is_guarded_by_tests_that_exist() -> None:
    missing: list[tuple[str, str]] = []
    for number, *_, guards in numbered():
        end = ".py"
        for name in quoted(guards):
            if name.endswith(".py"):
                end = f"/{name.removeprefix('../')}"
                known = bool(defined_below(end))
            else:
                begin = name.partition("*")[0].removesuffix("...")
                is_test = begin.startswith(("test_", "Test"))
                known = not is_test or any(each.startswith(begin) for each in defined_below(end))
            if not known:
                missing.append((number, name))

    assert missing == []


def test_every_ablation_of_the_model_has_a_row() -> None:
    named = {name for cells in rows("Replication") for name in quoted(cells[3])}

    assert set(ABLATIONS) - named == set()


def test_every_numbered_invariant_of_a_cluster_has_rows() -> None:
    known = {cells[0] for cells in numbered()}
    found = {int(cells[0]): cells[2].split(", ") for cells in rows("Clusters by number")}

    assert sorted(found) == list(range(1, INVARIANTS + 1))
    assert {row for each in found.values() for row in each} - known == set()
