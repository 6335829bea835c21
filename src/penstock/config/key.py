"""A setting: one declaration gives its name, type, default, bounds and documentation.

A value is parsed, checked and printed in one way, whether it comes from a file, the environment, the command line or a
request.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from penstock.model.generated_errors import InvalidConfig

Value = bool | int | float | str | tuple[str, ...] | frozenset[str] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
NAME_SIMILARITY_MIN = 0.6

NUMBER_WHOLE = re.compile(r"[+-]?\d+")
DOUBLE_EXPONENT_MIN = 1e-3
DOUBLE_EXPONENT_MAX = 1e7


class Kind(IntEnum):
    """The type of a setting, with its number in the protocol."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


WHOLE_BOUNDS = {Kind.SHORT: 2**15, Kind.INT: 2**31, Kind.LONG: 2**63}


class Mode(Enum):
    """Whether a broker setting is dynamic, and per broker or cluster-wide."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Synonym(NamedTuple):
    """A broker's key that gives a topic's key its default, possibly in another unit."""

    name: str
    factor: int = 1

    def text(self, value: str) -> str:
        return value if self.factor == 1 else str(int(value) * self.factor)


Check = Callable[[str, tuple[str, ...]], None]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Key:
    """One setting. `read` parses its text."""

    name: str
    kind: Kind
    default: Value
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    check: Check | None = None
    mode: Mode = Mode.READ_ONLY
    sensitive: bool = False
    internal: bool = False
    synonyms: tuple[Synonym, ...] = ()
    as_set: bool = False

    @property
    def attribute(self) -> str:
        """Its attribute of the config object: the dotted name with underscores."""
        return attribute_of(self.name)

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return "PENSTOCK_" + self.attribute.upper()

    def read(self, text: str) -> Value:
        """Parse a text; `InvalidConfig` names the key, the value and what is wrong with it."""
        match self.kind:
            case Kind.BOOLEAN:
                return self._boolean(text.strip())
            case Kind.INT | Kind.SHORT | Kind.LONG:
                return self._within(self._whole(text.strip()))
            case Kind.DOUBLE:
                return self._within(self._double(text.strip()))
            case Kind.LIST:
                return self._list(text.strip())
            case Kind.STRING | Kind.CLASS | Kind.PASSWORD:
                return self._one_of(text.strip())

    def refuse(self, value: object, why: str) -> InvalidConfig:
        shown = "[hidden]" if self.sensitive else value
        return InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {why}")

    def _boolean(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise self.refuse(text, "Expected value to be either true or false")
        return text.lower() == "true"

    def _whole(self, text: str) -> int:
        bound = WHOLE_BOUNDS[self.kind]
        # Twenty characters hold every 64-bit number; longer text would only make int() slow.
        if len(text) > 20 or not NUMBER_WHOLE.fullmatch(text) or not -bound <= int(text) < bound:
            raise self.refuse(text, f"Not a number of type {self.kind.name}")
        return int(text)

    def _double(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if number != number or "_" in text:
            raise self.refuse(text, "Not a number of type DOUBLE")
        return number

    def _within(self, number: float) -> float:
        if number == self.also:
            return number
        low, high = self.minimum, self.maximum
        outside = (low is not None and number < low) or (high is not None and number > high)
        if not outside:
            return number
        if self.also is not None:
            why = f"Value must be between {low} and {high} or equal to {self.also}"
        elif low is not None and number < low:
            why = f"Value must be at least {low}"
        else:
            why = f"Value must be no more than {high}"
        raise self.refuse(text_of(number), why)

    def _one_of(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise self.refuse(text, f"String must be one of: {', '.join(self.choices)}")
        return text

    def _list(self, text: str) -> Value:
        items = tuple(item.strip() for item in text.split(",")) if text else ()
        if any(not item for item in items):
            raise InvalidConfig(f"Configuration '{self.name}' values must not be empty.")
        for item in items:
            self._one_of(item)
        if self.check is not None:
            self.check(self.name, items)
        return frozenset(items) if self.as_set else items


def text_of(value: Value) -> str | None:
    """The text that parses to the value; None for no value."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case tuple():
            return ",".join(value)
        case frozenset():
            return ",".join(sorted(value))
        case _:
            return str(value)


def double_text(number: float) -> str:
    """A double in Java's notation, as clients compare it with Kafka's."""
    if number == 0 or DOUBLE_EXPONENT_MIN <= abs(number) < DOUBLE_EXPONENT_MAX:
        return repr(float(number))
    mantissa, _, exponent = f"{number!r}".partition("e")
    if not exponent:
        digits = f"{number:.17e}"
        mantissa, _, exponent = min(
            (f"{number:.{places}e}" for places in range(17) if float(f"{number:.{places}e}") == number),
            default=digits,
            key=len,
        ).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def attribute_of(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def key(
    name: str,
    default: Value,
    kind: Kind,
    *,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    also: int | None = None,
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    mode: Mode = Mode.READ_ONLY,
    sensitive: bool = False,
    internal: bool = False,
    synonyms: tuple[Synonym, ...] = (),
    as_set: bool = False,
) -> Any:
    """Declare a setting as a field of a config dataclass. `also` is one value allowed outside the bounds."""
    declared = Key(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        also=also,
        choices=choices,
        check=check,
        mode=mode,
        sensitive=sensitive or kind is Kind.PASSWORD,
        internal=internal,
        synonyms=synonyms,
        as_set=as_set,
    )
    value = frozenset(default) if as_set and isinstance(default, tuple) else default
    return field(default=value, metadata={"key": declared})


def keys_of(config: type) -> dict[str, Key]:
    """Every setting a config dataclass declares, by name, in the order of declaration."""
    found: dict[str, Key] = {}
    for each in fields(config):
        declared = key_of_field(each)
        if declared is None:
            continue
        assert declared.attribute == each.name, f"{declared.name} is declared as {each.name}"
        assert declared.name not in found, f"{declared.name} is declared twice"
        found[declared.name] = declared
    return found


def key_of_field(each: "Field[Any]") -> Key | None:
    declared = each.metadata.get("key")
    return declared if isinstance(declared, Key) else None


def nearest(name: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """The end of an error message about an unknown name: the nearest known one."""
    close = get_close_matches(name, sorted(known), n=1, cutoff=NAME_SIMILARITY_MIN)
    return f"; did you mean {close[0]}?" if close else ""
