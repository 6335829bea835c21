"""What a broker asks of a machine goes through the parts it is given, so that a simulation can own all of it.

These tests read the source of every module that a broker imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent.parent
BROKER = "penstock.broker.wiring"

MODULES = frozenset({"random", "secrets", "select", "selectors", "socket", "ssl", "subprocess", "time", "uuid"})
"""Modules of time, randomness, sockets and processes: importing one is using it."""

CALLS = frozenset(
    {
        "asyncio.create_subprocess_exec",
        "asyncio.open_connection",
        "asyncio.start_server",
        "asyncio.to_thread",
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.ThreadPoolExecutor",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "threading.Thread",
        "threading.Timer",
        "hash",
        "id",
        "open",
    }
)
OS_ALLOWED = frozenset({"os.environ", "os.path", "os.strerror"})

ALLOWED = {
    "penstock.model.clock": {"random", "time", "uuid"},
    "penstock.model.threads": {"concurrent.futures.ThreadPoolExecutor"},
    "penstock.observe.http": {"asyncio.start_server"},
    "penstock.storage.disk": {"open", "os", "time"},
}
"""Where each of these is used: the parts that a simulation replaces, and the HTTP pages, which it does not start."""

REAL = (
    "penstock.broker.process",
    "penstock.metadata.embedded",
    "penstock.metadata.shared",
    "penstock.net.sockets",
    "penstock.observe.log_queue",
)
"""Parts of the operating system that only a process gives to its broker."""

ORDERLESS = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
"""Calls whose result does not depend on the order of their argument."""


def file_of(module: str) -> Path | None:
    path = SOURCE.joinpath(*module.split("."))
    return next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every name that an import binds, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.asname or each.name.partition(".")[0], each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


@cache
def modules_of_a_broker() -> dict[str, ast.Module]:
    """Every module of penstock that a broker imports, directly or not."""
    found: dict[str, ast.Module] = {}
    waiting = [BROKER]
    while waiting:
        module = waiting.pop()
        file = file_of(module)
        if file is None or module in found:
            continue
        found[module] = ast.parse(file.read_text())
        for _, target in imports(found[module]):
            if target.startswith("penstock."):
                waiting += [target, target.rpartition(".")[0]]
    return found


def uses(tree: ast.Module) -> set[str]:
    """What a module uses of the machine: modules and functions."""
    bound = dict(imports(tree))
    found = {target.partition(".")[0] for target in bound.values()} & MODULES
    for node in ast.walk(tree):
        name = dotted(node, bound)
        if name in CALLS:
            found.add(name)
        elif name.startswith("os.") and not any(f"{name}.".startswith(f"{each}.") for each in OS_ALLOWED):
            found.add("os")
        elif (
            isinstance(node, ast.Call) and ast.unparse(node.func).endswith("run_in_executor") and is_none(node.args[0])
        ):
            found.add("the default executor")
    return found


def dotted(node: ast.AST, bound: dict[str, str]) -> str:
    """The full name of what an expression names; empty where it is no name."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, node.id) if isinstance(node.ctx, ast.Load) else ""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, bound)
        return f"{before}.{node.attr}" if before else ""
    return ""


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def test_a_broker_uses_the_machine_through_what_it_is_given() -> None:
    found = {module: found for module, tree in modules_of_a_broker().items() if (found := uses(tree))}

    assert found == ALLOWED


@pytest.mark.parametrize("module", REAL)
def test_a_broker_does_not_choose_the_real_parts_itself(module: str) -> None:
    assert file_of(module) is not None
    assert module not in modules_of_a_broker()


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("import time\ntime.sleep(1)", {"time"}),
        ("from random import randrange", {"random"}),
        ("import os\nos.urandom(8)", {"os"}),
        ("import os\nos.path.dirname('/a')", set[str]()),
        ("import asyncio\nasync def f(): await asyncio.to_thread(print)", {"asyncio.to_thread"}),
        ("from concurrent import futures\nfutures.ThreadPoolExecutor(1)", {"concurrent.futures.ThreadPoolExecutor"}),
        ("from threading import Thread as T\nT()", {"threading.Thread"}),
        ("def f(loop): loop.run_in_executor(None, print)", {"the default executor"}),
        ("sorted([], key=id)", {"id"}),
    ],
)
def test_a_use_of_the_machine_is_found(source: str, used: set[str]) -> None:
    assert uses(ast.parse(source)) == used


# The order of a set of strings, bytes or objects differs from one process to the next.


def is_set_type(annotation: ast.expr | None) -> bool:
    """Whether a type is a set whose order depends on the process; that of small numbers does not."""
    text = "" if annotation is None else ast.unparse(annotation)
    return text.startswith(("set[", "frozenset[")) and text not in ("set[int]", "frozenset[int]")


def is_set(node: ast.expr, names: set[str]) -> bool:
    match node:
        case ast.SetComp() | ast.Set():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case _:
            return ast.unparse(node) in names


def names_of_sets(scope: ast.AST) -> set[str]:
    """Variables, attributes and parameters that are declared or assigned as sets."""
    names: set[str] = set()
    for node in ast.walk(scope):
        match node:
            case ast.AnnAssign() if is_set_type(node.annotation):
                names.add(ast.unparse(node.target))
            case ast.arg() if is_set_type(node.annotation):
                names.add(node.arg)
            case ast.Assign(targets=[target]) if is_set(node.value, set()):
                names.add(ast.unparse(target))
    return names


def walks_over_sets(tree: ast.Module) -> Iterator[str]:
    """Loops and conversions that take a set in its own order."""
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        names = names_of_sets(scope)
        if isinstance(scope, ast.ClassDef):
            names = {name for name in names if name.startswith("self.")}
        for walked in walks(scope):
            if is_set(walked, names):
                yield ast.unparse(walked)


def walks(scope: ast.AST) -> Iterator[ast.expr]:
    """What is walked over in a scope so that its order counts."""
    orderless = {
        argument
        for node in ast.walk(scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDERLESS
        for argument in node.args
    }
    for node in ast.walk(scope):
        match node:
            case ast.For():
                yield node.iter
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() if node not in orderless:
                yield from (each.iter for each in node.generators)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "iter" | "enumerate")) if node not in orderless:
                yield from node.args
            case ast.Starred():
                yield node.value


def test_no_order_of_a_set_is_visible_in_what_a_broker_does() -> None:
    found = {module: found for module, tree in modules_of_a_broker().items() if (found := [*walks_over_sets(tree)])}

    assert found == {}


@pytest.mark.parametrize(
    ("source", "walked"),
    [
        ("def f(names: set[str]):\n for name in names: print(name)", ["names"]),
        ("def f(names: set[str]):\n for name in sorted(names): print(name)", []),
        ("def f(names: set[int]):\n for name in names: print(name)", []),
        ("def f(a):\n b = {x for x in a}\n return list(b)", ["b"]),
        ("def f(a):\n return sum(x for x in set(a))", []),
        (
            "class A:\n def f(self): self._x: set[object] = set()\n def g(self): return [x for x in self._x]",
            ["self._x"],
        ),
    ],
)
def test_a_walk_over_a_set_is_found(source: str, walked: list[str]) -> None:
    assert [*walks_over_sets(ast.parse(source))] == walked
