"""The language of filters: a subset of SQL's WHERE, read into the form of `form`.

sqlglot parses, and every node that it gives is looked up here. What is not in the list is refused with its line and
column, also an argument of a known function that has no meaning here: a filter means what its text says, or nothing.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

from penstock.model.generated_errors import InvalidConfig
from penstock.views.conditions import Condition, Undefined, compiled_pattern, finite, milliseconds
from penstock.views.form import DEPTH_MAX, FUNCTIONS, PATH_PARTS_MAX, Node, arity_fits, check

FILTER_CHARS_MAX = 8_192
TOKENS_MAX = 2_000
MEMBER = "\0"
"""Ends the name of a member while sqlglot parses: it knows nothing of that name then."""

NAMES = frozenset({"key", "value", "headers", "timestamp", "partition", "offset"})

BEFORE_PARENTHESES = frozenset(
    {"AND", "OR", "NOT", "XOR", "IN", "IS", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "ESCAPE"}
) | {*("FROM", "DIV", "DISTINCT", "CAST", "TRY_CAST", "MOD")}
"""Words that a parenthesis may follow, with the names of functions."""
PUNCTUATION = ("", *"()[]{}<>,.:=!|&^~+-*/%?@#")

BOOLEAN, NUMBER, TEXT, ANY = "a condition", "a number", "a text", "any"
"""What an expression is, as far as that is known before there is a record."""

KINDS = {"timestamp": NUMBER, "partition": NUMBER, "offset": NUMBER, "key": TEXT, "value": TEXT}


DIALECT_NOTES = ("safe", "coalesce", "is_null")
"""Arguments in which sqlglot notes what its dialect means by a function; no text asks for them."""


class FilterError(InvalidConfig):
    """A filter that is not in the language, with the place of its first fault."""

    def __init__(self, reason: str, text: str, at: int) -> None:
        before = text[:at]
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        self.reason = reason
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


def parse(text: str) -> Node:
    """The form of a filter's text; raises `FilterError` with the place of what is wrong in it."""
    if len(text) > FILTER_CHARS_MAX:
        raise FilterError(f"{len(text)} characters are more than the {FILTER_CHARS_MAX} of a filter", text, 0)
    if not text.strip():
        raise FilterError("the filter is empty", text, 0)
    if MEMBER in text:
        raise FilterError("a NUL character", text, text.index(MEMBER))
    node = Reader(text).where()
    try:
        check(node)
        # Whatever cannot be compiled is refused now: later, readers of the view would find out.
        Condition(node)
    except (InvalidConfig, ValueError) as error:
        raise FilterError(str(error), text, 0) from None
    return node


@lru_cache(maxsize=1)
def sql() -> ModuleType:
    """sqlglot, imported when the first filter is read: a start does not need it, and it takes a tenth of a second."""
    import sqlglot

    return sqlglot


class Reader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._exp: Any = sql().exp

    def where(self) -> Node:
        """The form of the whole text."""
        try:
            return self._condition(self._parsed())
        except RecursionError:
            raise FilterError(f"nested more than {DEPTH_MAX} deep", self._text, 0) from None

    def _parsed(self) -> Any:
        """sqlglot's tree. The names of a record's parts are names here, although some are keywords of SQL."""
        glot = sql()
        types = glot.tokens.TokenType
        try:
            tokens = glot.tokens.Tokenizer().tokenize(self._text)
        except glot.errors.TokenError:
            quote = max(self._text.rfind("'"), self._text.rfind('"'), 0)
            raise FilterError("a quoted text or name does not end", self._text, quote) from None
        if not tokens:
            raise FilterError("the filter is empty", self._text, 0)
        if len(tokens) > TOKENS_MAX:
            raise FilterError(f"more than {TOKENS_MAX} words", self._text, tokens[TOKENS_MAX].start)
        known = self._callable()
        for before, token, following in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
            if token.token_type == types.SEMICOLON:
                raise FilterError("a filter is one condition, without ';'", self._text, token.start)
            if following is not None and token.text[:1] not in PUNCTUATION:
                # sqlglot tries several meanings of some functions, and of types with brackets, and so takes twice as
                # long for each within another.
                if following.token_type == types.L_PAREN and token.text.upper() not in known:
                    raise FilterError(not_in_language(token.text), self._text, token.start)
                is_part = token.text.lower() in NAMES or token.token_type in (types.IDENTIFIER, types.STRING)
                is_member = before is not None and before.token_type == types.DOT
                if following.token_type == types.L_BRACKET and not is_part and not is_member:
                    raise FilterError(unknown_name(token.text), self._text, token.start)
            if token.token_type in (types.STRING, types.IDENTIFIER, types.STAR) or not token.text.isidentifier():
                continue
            if before is not None and before.token_type == types.DOT:
                # Whatever it is called, it is a member: `value.list[0]` makes no list.
                token.token_type = types.VAR
                token.text += MEMBER
                continue
            if token.text.lower() not in NAMES:
                continue
            is_typed = following is not None and following.token_type == types.STRING
            if not (token.text.lower() == "timestamp" and is_typed):
                token.token_type = types.VAR
        trees: list[Any]
        try:
            trees = glot.parser.Parser().parse_into(self._exp.Condition, tokens, self._text)
        except glot.errors.ParseError as error:
            faults: list[dict[str, Any]] = error.errors or [{}]
            first = faults[0]
            raise FilterError(
                described(first.get("description") or str(error)), self._text, self._fault_at(first)
            ) from None
        except (LookupError, TypeError, ValueError, AttributeError):
            # What sqlglot raises for some texts that are in no language.
            trees = []
        if len(trees) != 1 or trees[0] is None:
            raise FilterError("this is no condition", self._text, 0)
        return trees[0]

    def _callable(self) -> frozenset[str]:
        exp = self._exp
        called = (
            *(exp.Lower, exp.Upper, exp.Length, exp.Trim, exp.Substring, exp.Coalesce, exp.Nullif, exp.Abs, exp.Floor),
            *(exp.Ceil, exp.Concat, exp.Contains, exp.StartsWith, exp.EndsWith, exp.RegexpLike),
        )
        return BEFORE_PARENTHESES.union(*(each.sql_names() for each in called))

    def _fault_at(self, fault: dict[str, Any]) -> int:
        """Where a fault that the parser reports begins: it gives the column of its end."""
        lines = self._text.split("\n")
        line = min(max((fault.get("line") or 1), 1), len(lines))
        begin = sum(len(each) + 1 for each in lines[: line - 1])
        at = begin + (fault.get("col") or 1) - len(fault.get("highlight") or " ")
        return min(max(at, 0), len(self._text))

    def _refusal(self, node: Any, reason: str) -> FilterError:
        starts = [found._meta["start"] for found in node.walk() if found._meta and "start" in found._meta]
        return FilterError(reason, self._text, min(starts, default=0))

    def _condition(self, node: Any) -> Node:
        """A node whose value is a condition."""
        form, kind = self._any(node)
        if kind in (NUMBER, TEXT):
            raise self._refusal(node, f"{kind} is no condition: compare it with something")
        return form if kind == BOOLEAN else ["truth", form]

    def _typed(self, node: Any, wanted: str) -> Node:
        form, kind = self._any(node)
        if kind not in (wanted, ANY):
            raise self._refusal(node, f"{wanted} is needed here, and this is {kind}")
        return form

    def _literal(self, node: Any, what: str) -> str:
        if not isinstance(node, self._exp.Literal) or not node.is_string:
            raise self._refusal(node, f"{what} has to be a text in single quotes")
        return str(node.this)

    def _known(self, node: Any, *names: str) -> None:
        """Refuse arguments that have no meaning here."""
        for name, given in node.args.items():
            if name not in names and given not in (None, False, []):
                raise self._refusal(
                    node, f"{type(node).__name__.lower()} with {name.replace('_', ' ')} is not supported"
                )

    def _any(self, node: Any) -> tuple[Node, str]:
        """The form of a node and what its value is."""
        exp = self._exp
        kind: object = node.__class__
        if kind is exp.Paren:
            self._known(node, "this")
            return self._any(node.this)
        if kind in (exp.And, exp.Or):
            self._known(node, "this", "expression")
            return ["and" if kind is exp.And else "or", *map(self._condition, node.flatten(unnest=False))], BOOLEAN
        if kind is exp.Not:
            return ["not", self._condition(node.this)], BOOLEAN
        if kind is exp.Literal:
            return self._constant(node)
        if kind is exp.Boolean:
            return ["literal", bool(node.this)], BOOLEAN
        if kind is exp.Null:
            return ["literal", None], ANY
        if kind in (exp.Column, exp.Dot, exp.Bracket):
            return self._field(node)
        if kind in (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Escape, exp.RegexpLike):
            return self._predicate(node), BOOLEAN
        if kind in (exp.Cast, exp.TryCast):
            return self._cast(node)
        return self._operator(node)

    def _constant(self, node: Any) -> tuple[Node, str]:
        if node.is_string:
            return ["literal", str(node.this)], TEXT
        try:
            return ["literal", int(node.this)], NUMBER
        except ValueError:
            pass
        try:
            return ["literal", finite(float(node.this))], NUMBER
        except (ValueError, Undefined):
            raise self._refusal(node, f"{node.this} is no number")

    # Parts of a record

    def _field(self, node: Any) -> tuple[Node, str]:
        parts = self._parts(node)
        root = str(parts[0]).lower()
        match root, parts[1:]:
            case (("key" | "value" | "timestamp" | "partition" | "offset"), []):
                return [root], KINDS[root]
            case "value", path if len(path) <= PATH_PARTS_MAX:
                return ["path", path], ANY
            case "value", _:
                raise self._refusal(node, f"a path of more than {PATH_PARTS_MAX} parts")
            case "headers", [str(name)]:
                return ["header", name], TEXT
            case "headers", _:
                raise self._refusal(node, "write headers['name']: the value of the last header of that name")
            case _ if root in NAMES:
                raise self._refusal(node, f"{root} has no parts: only value has, as JSON")
            case _:
                raise self._refusal(node, unknown_name(str(parts[0])))

    def _parts(self, node: Any) -> list[str | int]:
        exp = self._exp
        if isinstance(node, exp.Column):
            if any(not isinstance(part, exp.Identifier) for part in node.parts):
                raise self._refusal(node, "'*' is not supported")
            return [str(part.this).removesuffix(MEMBER) for part in node.parts]
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            return [*self._parts(node.this), str(node.expression.this).removesuffix(MEMBER)]
        if isinstance(node, exp.Bracket):
            # sqlglot keeps the index of its dialect, which counts from 0, beside the node.
            self._known(node, "this", "expressions")
            inner: Any = node.expressions[0] if len(node.expressions) == 1 else None
            if not isinstance(inner, exp.Literal):
                raise self._refusal(node, "in brackets there is one number or one text in single quotes")
            if inner.is_string:
                return [*self._parts(node.this), str(inner.this)]
            if not str(inner.this).isdecimal():
                raise self._refusal(inner, "an index of an array is 0 or greater")
            return [*self._parts(node.this), int(inner.this)]
        raise self._refusal(node, "no part of a record")

    # Predicates

    def _predicate(self, node: Any) -> Node:
        exp = self._exp
        match node:
            case exp.Is():
                form, kind = self._any(node.this)
                if isinstance(node.expression, exp.Null):
                    return ["is", form, None]
                if isinstance(node.expression, exp.Boolean):
                    if kind in (NUMBER, TEXT):
                        raise self._refusal(node, f"{kind} is neither true nor false")
                    return ["is", form if kind == BOOLEAN else ["truth", form], bool(node.expression.this)]
                raise self._refusal(node, "IS is followed by NULL, TRUE or FALSE")
            case exp.In():
                self._known(node, "this", "expressions")
                return self._in(node)
            case exp.Between():
                self._known(node, "this", "low", "high")
                low = self._compared(">=", node, node.this, node.args["low"])
                return ["and", low, self._compared("<=", node, node.this, node.args["high"])]
            case exp.RegexpLike():
                self._known(node, "this", "expression")
                pattern = self._literal(node.expression, "a regular expression")
                try:
                    compiled_pattern(pattern)
                except ValueError as error:
                    raise self._refusal(node.expression, f"no regular expression of RE2: {error}")
                return ["match", self._typed(node.this, TEXT), pattern]
            case _:
                return self._like(node)

    def _in(self, node: Any) -> Node:
        form, kind = self._any(node.this)
        if not node.expressions:
            raise self._refusal(node, "IN needs a list of constants")
        values: list[Any] = []
        for each in node.expressions:
            value, found = self._any(each)
            if value[0] != "literal":
                raise self._refusal(each, "a list of IN has constants only")
            self._check_comparable(each, kind, found)
            values.append(value[1])
        return ["in", form, values]

    def _like(self, node: Any) -> Node:
        exp = self._exp
        escape: str | None = None
        if isinstance(node, exp.Escape):
            escape = self._literal(node.expression, "an escape character")
            if len(escape) != 1:
                raise self._refusal(node.expression, "an escape is one character")
            node = node.this
        if not isinstance(node, exp.Like | exp.ILike):
            raise self._refusal(node, "ESCAPE follows LIKE")
        self._known(node, "this", "expression", "negate")
        pattern = self._literal(node.expression, "a pattern of LIKE")
        like: Node = ["like", self._typed(node.this, TEXT), pattern, escape, isinstance(node, exp.ILike)]
        if escape is not None and pattern.replace(escape * 2, "").endswith(escape):
            raise self._refusal(node.expression, "the pattern ends with its escape character")
        return ["not", like] if node.args.get("negate") else like

    # Operators and functions

    def _operator(self, node: Any) -> tuple[Node, str]:
        exp = self._exp
        kind: object = node.__class__
        compared = {
            exp.EQ: "=",
            exp.NEQ: "<>",
            exp.LT: "<",
            exp.LTE: "<=",
            exp.GT: ">",
            exp.GTE: ">=",
            exp.NullSafeEQ: "same",
        }.get(kind)
        if compared is not None:
            self._known(node, "this", "expression")
            return self._compared(compared, node, node.this, node.expression), BOOLEAN
        if kind is exp.NullSafeNEQ:
            return ["not", self._compared("same", node, node.this, node.expression)], BOOLEAN
        counted = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "div", exp.Mod: "%"}.get(kind)
        if counted is not None:
            return [counted, self._typed(node.this, NUMBER), self._typed(node.expression, NUMBER)], NUMBER
        if kind is exp.Neg:
            form = self._typed(node.this, NUMBER)
            return (["literal", -form[1]] if form[0] == "literal" and form[1] is not None else ["neg", form]), NUMBER
        if kind is exp.DPipe:
            return ["call", "concat", self._typed(node.this, TEXT), self._typed(node.expression, TEXT)], TEXT
        return self._call(node)

    def _compared(self, operator: str, node: Any, left: Any, right: Any) -> Node:
        one, kind = self._any(left)
        other, wanted = self._any(right)
        self._check_comparable(right, kind, wanted)
        if operator not in ("=", "<>", "same") and BOOLEAN in (kind, wanted):
            raise self._refusal(node, "conditions have no order")
        return [operator, one, other]

    def _check_comparable(self, node: Any, kind: str, other: str) -> None:
        if kind != other and ANY not in (kind, other):
            hint = ""
            if {kind, other} == {NUMBER, TEXT}:
                hint = ": write TIMESTAMP '2030-01-01T00:00:00Z' for a time, or use CAST"
            raise self._refusal(node, f"{kind} and {other} cannot be compared{hint}")

    def _call(self, node: Any) -> tuple[Node, str]:
        exp = self._exp
        text, number = TEXT, NUMBER
        shape: dict[Any, tuple[str, tuple[str, ...], str, str]] = {
            exp.Lower: ("lower", ("this",), text, text),
            exp.Upper: ("upper", ("this",), text, text),
            exp.Length: ("length", ("this",), text, number),
            exp.Trim: ("trim", ("this",), text, text),
            exp.Substring: ("substring", ("this", "start", "length"), "", text),
            exp.Coalesce: ("coalesce", ("this", "expressions"), ANY, ANY),
            exp.Nullif: ("nullif", ("this", "expression"), ANY, ANY),
            exp.Abs: ("abs", ("this",), number, number),
            exp.Floor: ("floor", ("this",), number, number),
            exp.Ceil: ("ceil", ("this",), number, number),
            exp.Concat: ("concat", ("expressions",), text, text),
            exp.Contains: ("contains", ("this", "expression"), text, BOOLEAN),
            exp.StartsWith: ("starts_with", ("this", "expression"), text, BOOLEAN),
            exp.EndsWith: ("ends_with", ("this", "expression"), text, BOOLEAN),
        }
        found = shape.get(type(node))
        if found is None:
            what = node.this if isinstance(node, exp.Anonymous) else type(node).__name__
            raise self._refusal(node, not_in_language(str(what)))
        name, arguments, wanted, result = found
        self._known(node, *arguments, *(name for name in DIALECT_NOTES if node.args.get(name) is True))
        given: list[Any] = []
        for argument in arguments:
            value = node.args.get(argument)
            given += value if isinstance(value, list) else [] if value is None else [value]
        if not arity_fits(name, len(given)):
            raise self._refusal(node, f"{name} of {len(given)} arguments")
        if name == "substring":
            forms = [self._typed(given[0], TEXT), *(self._typed(each, NUMBER) for each in given[1:])]
        elif wanted == ANY:
            kinds = [self._any(each) for each in given]
            known = {kind for _, kind in kinds} - {ANY}
            if len(known) > 1:
                raise self._refusal(node, f"the arguments of {name} are {' and '.join(sorted(known))}")
            forms, result = [form for form, _ in kinds], known.pop() if known else ANY
        else:
            forms = [self._typed(each, wanted) for each in given]
        return ["call", name, *forms], result

    def _cast(self, node: Any) -> tuple[Node, str]:
        types = self._exp.DType if hasattr(self._exp, "DType") else self._exp.DataType.Type
        if type(node) is not self._exp.Cast:
            raise self._refusal(node, "there is only CAST: a cast that fails does not match")
        self._known(node, "this", "to", "_type")
        kinds = {
            **dict.fromkeys((types.TINYINT, types.SMALLINT, types.INT, types.BIGINT), ("integer", NUMBER)),
            **dict.fromkeys((types.FLOAT, types.DOUBLE), ("double", NUMBER)),
            **dict.fromkeys((types.TEXT, types.VARCHAR, types.CHAR), ("string", TEXT)),
            types.BOOLEAN: ("boolean", BOOLEAN),
            **dict.fromkeys((types.TIMESTAMP, types.TIMESTAMPTZ), ("timestamp", NUMBER)),
        }
        found = kinds.get(node.args["to"].this)
        if found is None or node.args["to"].expressions:
            raise self._refusal(node, "cast to BIGINT, DOUBLE, VARCHAR, BOOLEAN or TIMESTAMP")
        form, _ = self._any(node.this)
        if found[0] == "timestamp" and form[0] == "literal" and isinstance(form[1], str):
            try:
                return ["literal", milliseconds(form[1])], NUMBER
            except ValueError:
                raise self._refusal(node, f"no time: '{form[1]}'; write it as 2030-01-01T00:00:00Z")
        return ["cast", form, found[0]], found[1]


def unknown_name(name: str) -> str:
    return f"unknown name {name}: there are key, value.<path>, headers['name'], timestamp, partition and offset"


def not_in_language(what: str) -> str:
    return f"{what.lower()} is not in the language of filters; functions: {known_functions()}"


def known_functions() -> str:
    return ", ".join(sorted(["cast", "regexp_like", *FUNCTIONS]))


def described(fault: str) -> str:
    """A fault of the parser without the names of its classes."""
    if fault.startswith("Required keyword"):
        return "something is missing here"
    return fault.split(" for <class", 1)[0].rstrip(".").replace("Invalid expression / ", "").lower()
