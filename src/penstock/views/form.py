"""The stored form of a filter: what it means, without the text it was written in.

A form is a node: a list of an operator's name and its operands, of which some are nodes again. A view keeps its form in
the metadata, so that a later version of the SQL parser cannot change what an existing view passes. The meaning of an
operator never changes; a new meaning gets a new name, and a form that has it a new version.

The text is for people. Only `language` reads it, once, when a view is created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from penstock.model.generated_errors import InvalidConfig

FORM_VERSION = 1
NODES_MAX = 1_000
DEPTH_MAX = 64
PATH_PARTS_MAX = 32

Node = list[Any]
"""An operator's name and its operands."""

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "same")
"""All are NULL where an operand is, but for `same`, for which NULL is a value."""

ARITHMETIC = ("+", "-", "*", "/", "div", "%")
CAST_TYPES = ("integer", "double", "string", "boolean", "timestamp")
FUNCTIONS = {
    "lower": (1, 1),
    "upper": (1, 1),
    "length": (1, 1),
    "trim": (1, 1),
    "substring": (2, 3),
    "coalesce": (1, 100),
    "nullif": (2, 2),
    "abs": (1, 1),
    "floor": (1, 1),
    "ceil": (1, 1),
    "concat": (1, 100),
    "contains": (2, 2),
    "starts_with": (2, 2),
    "ends_with": (2, 2),
}
"""How many arguments each takes, at least and at most. All are NULL where an argument is, but for `coalesce`."""

FIELDS = ("key", "value", "timestamp", "partition", "offset")


class FormTooNew(InvalidConfig):
    """A form of a later version of penstock."""


def packed(where: Node) -> dict[str, Any]:
    """A form as the metadata keep it."""
    return {"v": FORM_VERSION, "where": where}


def unpacked(stored: Any) -> Node:
    """The node of a stored form, checked; raises `InvalidConfig` for anything that is none."""
    if not isinstance(stored, Mapping) or "v" not in stored:
        raise InvalidConfig("no form of a filter")
    form = cast("Mapping[str, Any]", stored)
    if form["v"] != FORM_VERSION:
        raise FormTooNew(f"a filter's form of version {form['v']}: this version of penstock knows {FORM_VERSION}")
    node: Node = form.get("where", [])
    check(node)
    return node


def check(node: Any) -> None:
    """Raise `InvalidConfig` unless this is a node that `conditions` can compile."""
    count = 0
    stack: list[tuple[Any, int]] = [(node, 1)]
    while stack:
        here, depth = stack.pop()
        count += 1
        if count > NODES_MAX or depth > DEPTH_MAX:
            raise InvalidConfig(f"a filter of more than {NODES_MAX} parts, or nested more than {DEPTH_MAX} deep")
        stack += ((operand, depth + 1) for operand in operands(here))


def operands(node: Any) -> Iterator[Node]:
    """The operands of a node that are nodes; raises `InvalidConfig` for an operator or operands that do not exist."""
    if node.__class__ is not list or not node or node[0].__class__ is not str:
        raise InvalidConfig(f"no part of a filter: {node!r}")
    operator: str = node[0]
    rest: list[Any] = node[1:]
    match operator, rest:
        case (("key" | "value" | "timestamp" | "partition" | "offset"), []):
            return iter(())
        case "header", [str()]:
            return iter(())
        case "path", [path] if is_path(path):
            return iter(())
        case "literal", [literal] if is_literal(literal):
            return iter(())
        case (("and" | "or"), [_, _, *_]):
            return iter(rest)
        case (("not" | "truth" | "neg"), [_]):
            return iter(rest)
        case "is", [_, (True | False | None)]:
            return iter(rest[:1])
        case "in", [_, literals] if are_literals(literals):
            return iter(rest[:1])
        case "like", [_, str(), (str() | None), bool()]:
            return iter(rest[:1])
        case "match", [_, str()]:
            return iter(rest[:1])
        case "cast", [_, kind] if kind in CAST_TYPES:
            return iter(rest[:1])
        case "call", [name, *arguments] if name in FUNCTIONS and arity_fits(name, len(arguments)):
            return iter(arguments)
        case _, [_, _] if operator in COMPARISONS or operator in ARITHMETIC:
            return iter(rest)
        case _:
            raise InvalidConfig(f"no part of a filter: {operator} of {len(rest)}")


def arity_fits(name: str, count: int) -> bool:
    least, most = FUNCTIONS[name]
    return least <= count <= most


def is_path(path: Any) -> bool:
    """Whether these are the parts of a path: names of members, and indexes of arrays."""
    if path.__class__ is not list or not 0 < len(path) <= PATH_PARTS_MAX:
        return False
    return all(part.__class__ is str or (part.__class__ is int and part >= 0) for part in path)


def are_literals(values: Any) -> bool:
    return values.__class__ is list and bool(values) and all(map(is_literal, values))


def is_literal(value: object) -> bool:
    return value is None or isinstance(value, str | bool | int | float)
