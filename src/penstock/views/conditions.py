"""Compiles the form of a filter into functions of a record.

SQL's logic has three values: True, False and NULL, which is None here. A record passes where the filter is True, and
nowhere else. An operation on values of types that it is not defined for has no value: the record does not match.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import re2

from penstock.model.generated_errors import InvalidConfig
from penstock.views import form
from penstock.views.form import Node
from penstock.views.needles import Needles, needles_of
from penstock.views.paths import Documents
from penstock.views.rows import Parts

RE2: Any = re2
"""The module has no types."""

PATTERN_MEMORY_BYTES_MAX = 1 << 20
NODES_USUAL = 16
"""A filter of more is looked at with in threads, for all but a few bytes."""
INSTRUCTIONS_PER_NODE = 8
"""Of a compiled regular expression, that count as much as a node of a filter."""
INTEGER_BITS_MAX = 1_024
"""Of a whole number that a filter computes; a double has a range like that."""
TEXT_CHARS_MAX = 1 << 20
"""Of a text that a filter makes by joining others."""

INTEGER = re.compile(r"\s*[+-]?[0-9]{1,30}\s*", re.ASCII)
DOUBLE = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)

Value = Callable[[Parts], Any]
"""The value of an expression for the record that a row is at."""


class Undefined(Exception):
    """An operation on values that it is not defined for."""


FAILURES = (Undefined, ArithmeticError, ValueError, RecursionError)
"""How the evaluation of a filter may fail for a record."""


class Condition:
    """A compiled filter."""

    __slots__ = ("heaviness", "matches", "needles", "paths")

    def __init__(self, where: Node) -> None:
        """`where` is a form that `form.check` has passed."""
        self.paths = [node[1] for node in each_node(where) if node[0] == "path"]
        compiler = Compiler(Documents(self.paths))
        self.matches: Value = compiler.match(where)
        """True exactly where the filter is: other values are not told apart. May raise any of `FAILURES`."""
        self.needles: Needles | None = needles_of(where)
        self.heaviness = max(1, sum(map(weight_of, each_node(where))) // NODES_USUAL)
        """How many times the work of a usual filter a record may be."""


def compiled(stored: object) -> Condition:
    """The condition of a stored form; raises `InvalidConfig` where it is none."""
    return Condition(form.unpacked(stored))


def each_node(node: Node) -> list[Node]:
    found = [node]
    for here in found:
        found += form.operands(here)
    return found


def weight_of(node: Node) -> int:
    """The work of one node. RE2 may need a step for each instruction of a pattern at each character."""
    match node:
        case ["match", _, pattern]:
            return 1 + int(compiled_pattern(pattern).programsize) // INSTRUCTIONS_PER_NODE
        case ["like", _, pattern, _, _]:
            return 1 + len(pattern) // INSTRUCTIONS_PER_NODE
        case _:
            return 1


def compiled_pattern(pattern: str) -> Any:
    """A regular expression in RE2's syntax, which takes time linear in the text; ValueError if it is none."""
    options = RE2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        return RE2.compile(pattern, options)
    except RE2.error as error:
        reason = error.args[0] if error.args else "cannot be compiled"
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


def milliseconds(text: str) -> int:
    """The milliseconds since the epoch of a time in ISO 8601, in UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


class Compiler:
    """Compiles the nodes of one filter."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def match(self, node: Node) -> Value:
        """A function that is True where a condition is. NULL and False need not be told apart, so it stops earlier."""
        match node:
            case ["and", *parts]:
                return every([self.match(part) for part in parts])
            case ["or", *parts]:
                return some([self.match(part) for part in parts])
            case _:
                return self.value(node)

    def value(self, node: Node) -> Value:
        """A function with the value of a node."""
        match node:
            case ["key"]:
                return lambda row: row.key()
            case ["value"]:
                return lambda row: row.value()
            case ["timestamp"]:
                return operator.attrgetter("timestamp")
            case ["partition"]:
                return operator.attrgetter("partition")
            case ["offset"]:
                return operator.attrgetter("offset")
            case ["header", name]:
                return lambda row: row.header(name)
            case ["path", path]:
                return self._documents.getter(path)
            case ["literal", literal]:
                return lambda _: literal
            case ["and", *parts]:
                return conjunction([self.value(part) for part in parts])
            case ["or", *parts]:
                return disjunction([self.value(part) for part in parts])
            case ["not", part]:
                return negation(self.value(part))
            case ["truth", part]:
                return truth(self.value(part))
            case ["is", part, wanted]:
                value = self.value(part)
                return lambda row: value(row) is wanted
            case ["in", part, literals]:
                return membership(self.value(part), literals)
            case ["like", part, pattern, escape, insensitive]:
                return like(self.value(part), pattern, escape, insensitive=insensitive)
            case ["match", part, pattern]:
                return on_text(self.value(part), compiled_pattern(pattern).search, is_found=True)
            case ["neg", part]:
                value = self.value(part)
                return lambda row: None if (found := value(row)) is None else -number(found)
            case ["cast", part, kind]:
                return cast_to(self.value(part), CASTS[kind])
            case ["call", name, *arguments]:
                return call(name, [self.value(each) for each in arguments])
            case [("=" | "<>" | "<" | "<=" | ">" | ">=") as name, left, ["literal", literal]] if literal is not None:
                return compared_with(COMPARED[name], self.value(left), literal)
            case [("=" | "<>" | "<" | "<=" | ">" | ">=") as name, left, right]:
                return compared(COMPARED[name], self.value(left), self.value(right))
            case ["same", left, right]:
                return same(self.value(left), self.value(right))
            case [("+" | "-" | "*" | "/" | "div" | "%") as name, left, right]:
                return counted(COUNTED[name], self.value(left), self.value(right))
            case _:
                raise InvalidConfig(f"no part of a filter: {node[0]}")


# Logic


def every(parts: Sequence[Value]) -> Value:
    if len(parts) == 2:
        one, two = parts
        return lambda row: one(row) is True and two(row) is True
    return lambda row: all(part(row) is True for part in parts)


def some(parts: Sequence[Value]) -> Value:
    if len(parts) == 2:
        one, two = parts
        return lambda row: one(row) is True or two(row) is True
    return lambda row: any(part(row) is True for part in parts)


def conjunction(parts: Sequence[Value]) -> Value:
    def value(row: Parts) -> bool | None:
        verdict: bool | None = True
        for part in parts:
            found = part(row)
            if found is False:
                return False
            if found is None:
                verdict = None
        return verdict

    return value


def disjunction(parts: Sequence[Value]) -> Value:
    def value(row: Parts) -> bool | None:
        verdict: bool | None = False
        for part in parts:
            found = part(row)
            if found is True:
                return True
            if found is None:
                verdict = None
        return verdict

    return value


def negation(part: Value) -> Value:
    return lambda row: None if (found := part(row)) is None else not found


def truth(part: Value) -> Value:
    """A value that has to be true, false or NULL to be a condition."""

    def value(row: Parts) -> bool | None:
        found = part(row)
        if found is None or found is True or found is False:
            return found
        raise Undefined("neither true nor false")

    return value


# Comparison

COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBERS = (int, float)


def comparable(one: object, other: object, *, ordered: bool = True) -> bool:
    """Whether two values that are not NULL can be compared: both texts, both numbers, or both true or false."""
    kind, kind_of_other = type(one), type(other)
    if kind is bool:
        return kind_of_other is bool and not ordered
    if kind is str:
        return kind_of_other is str
    return kind in NUMBERS and kind_of_other in NUMBERS


def compared_with(compare: Callable[[Any, Any], Any], left: Value, literal: object) -> Value:
    """A comparison with a constant, which most are."""
    kind = type(literal)
    if kind is int or kind is float:

        def of_number(row: Parts) -> Any:
            found = left(row)
            if type(found) is int or type(found) is float:
                return compare(found, literal)
            if found is None:
                return None
            raise Undefined("a number is needed")

        return of_number
    if kind is bool and compare not in (operator.eq, operator.ne):
        return compared(compare, left, lambda _: literal)

    def of_kind(row: Parts) -> Any:
        found = left(row)
        if type(found) is kind:
            return compare(found, literal)
        if found is None:
            return None
        raise Undefined("another type is needed")

    return of_kind


def compared(compare: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    ordered = compare not in (operator.eq, operator.ne)

    def value(row: Parts) -> Any:
        one = left(row)
        if one is None:
            return None
        other = right(row)
        if other is None:
            return None
        if not comparable(one, other, ordered=ordered):
            raise Undefined("values of these types cannot be compared")
        return compare(one, other)

    return value


def same(left: Value, right: Value) -> Value:
    """IS NOT DISTINCT FROM: an equality in which NULL equals NULL."""

    def value(row: Parts) -> bool:
        one, other = left(row), right(row)
        if one is None or other is None:
            return one is other
        if not comparable(one, other, ordered=False):
            raise Undefined("values of these types cannot be compared")
        return bool(one == other)

    return value


def membership(part: Value, literals: Sequence[Any]) -> Value:
    by_kind: dict[type, frozenset[Any]] = {
        bool: frozenset(each for each in literals if type(each) is bool),
        str: frozenset(each for each in literals if type(each) is str),
    }
    by_kind[int] = by_kind[float] = frozenset(each for each in literals if type(each) in NUMBERS)
    otherwise = None if any(each is None for each in literals) else False

    def value(row: Parts) -> bool | None:
        found: object = part(row)
        if found is None:
            return None
        wanted = by_kind.get(type(found))
        if not wanted and (wanted is None or otherwise is False):
            raise Undefined("no value of the list is of this type")
        return True if found in wanted else otherwise

    return value


# Text


def text(value: Any) -> str:
    if type(value) is not str:
        raise Undefined("a text is needed")
    return value


def on_text(part: Value, found_in: Callable[[str], Any], *, is_found: bool = False) -> Value:
    """A function of a text that is not NULL; with `is_found`, whether it finds anything."""

    def value(row: Parts) -> Any:
        found = part(row)
        if found is None:
            return None
        if type(found) is not str:
            raise Undefined("a text is needed")
        result = found_in(found)
        return result is not None if is_found else result

    return value


def like(part: Value, pattern: str, escape: str | None, *, insensitive: bool) -> Value:
    pieces = like_pieces(pattern, escape)
    wild = [piece is not None and piece == "" for piece in pieces]
    texts = [piece for piece in pieces if piece]
    if not insensitive and None not in pieces and len(texts) <= 1:
        # At most one text, with '%' before it, behind it, or both.
        wanted = texts[0] if texts else ""
        before, behind = bool(wild) and wild[0], bool(wild) and wild[-1]
        if before and behind:
            return on_text(part, lambda found: wanted in found)
        if before:
            return on_text(part, lambda found: found.endswith(wanted))
        if behind:
            return on_text(part, lambda found: found.startswith(wanted))
        return on_text(part, lambda found: found == wanted)
    if not insensitive and None not in pieces:
        return on_text(part, partial(has_in_order, cast("list[str]", pieces)))
    regular = "".join("." if piece is None else ".*" if piece == "" else RE2.escape(piece) for piece in pieces)
    flags = "(?is)" if insensitive else "(?s)"
    return on_text(part, compiled_pattern(f"{flags}^(?:{regular})$").search, is_found=True)


def has_in_order(pieces: Sequence[str], found: str) -> bool:
    """Whether a text matches these, of which an empty one is '%': each is taken where it comes first.

    A regular expression of many '%' may need a step for each of them at each character.
    """
    start, end = 0, len(found)
    if pieces[0]:
        if not found.startswith(pieces[0]):
            return False
        start = len(pieces[0])
    if pieces[-1]:
        end -= len(pieces[-1])
        if end < start or not found.endswith(pieces[-1]):
            return False
    for piece in pieces[1:-1]:
        at = found.find(piece, start, end)
        if at < 0:
            return False
        start = at + len(piece)
    return True


def like_pieces(pattern: str, escape: str | None) -> list[str | None]:
    """The parts of a pattern of LIKE: texts, an empty one for '%', and None for '_'."""
    pieces: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            piece: str | None = next(characters, "")
        elif character == "%":
            piece = ""
        elif character == "_":
            piece = None
        else:
            piece = character
        if piece and pieces and pieces[-1]:
            pieces[-1] += piece
        elif piece != "" or not pieces or pieces[-1] != "":
            pieces.append(piece)
    return pieces


# Numbers


def number(value: Any) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise Undefined("a number is needed")


def finite(value: int | float) -> int | float:
    if type(value) is int:
        if value.bit_length() > INTEGER_BITS_MAX:
            raise Undefined("too large a number")
    elif not math.isfinite(value):
        raise Undefined("not finite")
    return value


def divided(one: int | float, other: int | float) -> float:
    return one / other


def divided_whole(one: int | float, other: int | float) -> int:
    """The quotient without its fraction, toward zero as in SQL."""
    if type(one) is int and type(other) is int:
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) == (other < 0) else -quotient
    return math.trunc(one / other)


def remainder(one: int | float, other: int | float) -> int | float:
    """With the sign of the dividend, as in SQL."""
    if type(one) is int and type(other) is int:
        return one - other * divided_whole(one, other)
    return math.fmod(one, other)


COUNTED: dict[str, Callable[[Any, Any], int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divided,
    "div": divided_whole,
    "%": remainder,
}


def counted(count: Callable[[Any, Any], int | float], left: Value, right: Value) -> Value:
    def value(row: Parts) -> Any:
        one = left(row)
        if one is None:
            return None
        other = right(row)
        if other is None:
            return None
        return finite(count(number(one), number(other)))

    return value


# Casts and functions


def to_integer(value: Any) -> int:
    if type(value) is str:
        if not INTEGER.fullmatch(value):
            raise Undefined("no whole number")
        return int(value)
    return math.trunc(number(value))


def to_double(value: Any) -> float:
    if type(value) is str and not DOUBLE.fullmatch(value):
        raise Undefined("no number")
    return float(finite(float(value if type(value) is str else number(value))))


def to_string(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    return value if type(value) is str else str(number(value))


def to_boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise Undefined("neither true nor false")


def to_timestamp(value: Any) -> int:
    return milliseconds(value) if type(value) is str else math.trunc(number(value))


CASTS: dict[str, Callable[[Any], Any]] = {
    "integer": to_integer,
    "double": to_double,
    "string": to_string,
    "boolean": to_boolean,
    "timestamp": to_timestamp,
}


def cast_to(part: Value, convert: Callable[[Any], Any]) -> Value:
    return lambda row: None if (found := part(row)) is None else convert(found)


def substring(value: str, start: int | float, length: int | float | None = None) -> str:
    """From a position on that counts from 1; places before the text count too, as in SQL."""
    begin = math.trunc(start) - 1
    if length is None:
        return value[max(begin, 0) :]
    if length < 0:
        raise Undefined("a negative length")
    return value[max(begin, 0) : max(begin + math.trunc(length), 0)]


def joined(arguments: Sequence[Value]) -> Value:
    """The texts of all arguments as one. Of what is too long, no more is in memory than the longest is."""

    def value(row: Parts) -> str | None:
        texts: list[str] = []
        left, are_texts = TEXT_CHARS_MAX, True
        for argument in arguments:
            found = argument(row)
            if found is None:
                return None
            if type(found) is not str:
                are_texts = False
                continue
            left -= len(found)
            if left >= 0:
                texts.append(found)
        if not are_texts:
            raise Undefined("a text is needed")
        if left < 0:
            raise Undefined(f"a text of more than {TEXT_CHARS_MAX} characters")
        return "".join(texts)

    return value


def trimmed(value: str) -> str:
    return value.strip(" ")


TEXT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "trim": trimmed,
    "contains": operator.contains,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
}
NUMBER_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"abs": abs, "floor": math.floor, "ceil": math.ceil}


def call(name: str, arguments: Sequence[Value]) -> Value:
    """A call of a function: NULL where an argument is, but for coalesce and nullif."""
    if name == "coalesce":

        def first(row: Parts) -> Any:
            for argument in arguments:
                found = argument(row)
                if found is not None:
                    return found
            return None

        return first
    if name == "concat":
        return joined(arguments)
    if name == "nullif":
        one, other = arguments
        equal = same(one, other)
        return lambda row: None if (found := one(row)) is None or equal(row) else found
    if name == "substring":

        def part_of(value: Any, start: Any, length: Any = None) -> str:
            return substring(text(value), number(start), None if length is None else number(length))

        return applied(part_of, arguments)
    if name in NUMBER_FUNCTIONS:
        of_number = NUMBER_FUNCTIONS[name]

        def result_of(value: Any) -> Any:
            return of_number(number(value))

        return applied(result_of, arguments)
    of_texts = TEXT_FUNCTIONS[name]
    return applied(lambda *values: of_texts(*map(text, values)), arguments)


def applied(function: Callable[..., Any], arguments: Sequence[Value]) -> Value:
    def value(row: Parts) -> Any:
        values = [argument(row) for argument in arguments]
        return None if None in values else function(*values)

    return value
