"""Loads a `BrokerConfig` from a file, the environment and flags: flags win over the environment, that over the file.

An unknown key is refused, and the nearest known one suggested; every error names the source, the key, the value and
what is allowed.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from penstock.config.broker import ALIASES, BROKER_KEYS, BrokerConfig
from penstock.config.foreign import guards, unused
from penstock.config.key import nearest
from penstock.model.generated_errors import InvalidConfig

ENVIRONMENT_PREFIX = "PENSTOCK_"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
WHITE = " \t\f"
FOUR_DIGITS = re.compile("[0-9A-Fa-f]{4}")


class ConfigFault(Exception):
    """A configuration is invalid; the message is for its author."""


def load(*, file: Path | None, env: Mapping[str, str], flags: Mapping[str, str]) -> BrokerConfig:
    """Load the config; its `warnings` list keys that were accepted without effect."""
    given: dict[str, str] = {}
    warnings: list[str] = []
    sources: list[tuple[str, Mapping[str, str]]] = []
    if file is not None:
        sources.append((str(file), read_file(file)))
    sources.append(("the environment", read_environment(env, warnings)))
    sources.append(("the command line", flags))
    for place, settings in sources:
        for written, text in settings.items():
            name = ALIASES.get(written, written)
            if accept(name, place, warnings):
                check_value(name, text, place)
                given[name] = text
    try:
        return BrokerConfig.from_settings(given, warnings=tuple(warnings))
    except InvalidConfig as fault:
        raise ConfigFault(str(fault)) from None


def accept(name: str, place: str, warnings: list[str]) -> bool:
    """Whether a name is a setting. A Kafka key without effect here becomes a warning; any other name raises."""
    if name in BROKER_KEYS:
        return True
    if unused(name):
        warnings.append(f"{place}: {name} has no effect in penstock")
        return False
    if guards(name):
        raise ConfigFault(
            f"{place}: {name} is not supported yet. It protects something, so penstock does not start without it: "
            "remove the key once you know that you can do without"
        )
    raise ConfigFault(f"{place}: unknown key {name}{nearest(name, BROKER_KEYS)}")


def check_value(name: str, text: str, place: str) -> None:
    if "\0" in text:
        raise ConfigFault(f"{place}: the value of {name} has a zero byte")
    try:
        BROKER_KEYS[name].read(text)
    except InvalidConfig as fault:
        raise ConfigFault(f"{place}: {fault}") from None


def read_environment(env: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """Settings named PENSTOCK_LOG_RETENTION_MS and the like.

    Other programs may have variables with that prefix, so an unknown one is only a warning.
    """
    names = {declared.environment: name for name, declared in BROKER_KEYS.items()}
    names |= {ENVIRONMENT_PREFIX + alias.upper().replace(".", "_"): name for alias, name in ALIASES.items()}
    found: dict[str, str] = {}
    for variable in sorted(env):
        if variable in names:
            found[names[variable]] = env[variable]
        elif variable.startswith(ENVIRONMENT_PREFIX):
            warnings.append(f"the environment: {variable} is no setting{nearest(variable, names)}")
    return found


def read_file(file: Path) -> dict[str, str]:
    """The settings in a TOML file, or in Java's format if the name ends in `.properties`."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigFault(f"{file}: cannot be read: {fault}") from None
    if file.suffix == ".properties":
        try:
            return dict(read_properties(text))
        except ConfigFault as fault:
            raise ConfigFault(f"{file}: {fault}") from None
    return read_toml(file, text)


def read_toml(file: Path, text: str) -> dict[str, str]:
    import tomllib  # takes longer to import than most starts need it

    try:
        return dict(flatten(file, "", tomllib.loads(text)))
    except RecursionError:
        raise ConfigFault(f"{file}: its tables or lists are nested too deeply") from None
    except ValueError as fault:
        # Numbers with thousands of digits too, which the parser leaves to int().
        raise ConfigFault(f"{file}: not TOML: {fault}") from None


def flatten(file: Path, prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Dotted names from nested tables: `[log.retention] ms = 1`, `log.retention.ms = 1`, `"log.retention.ms" = 1`."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        match value:
            case dict():
                yield from flatten(file, f"{path}.", cast("Mapping[str, Any]", value))
            case bool():
                yield path, "true" if value else "false"
            case str() | int() | float():
                yield path, str(value)
            case list():
                items = cast("list[object]", value)
                if any(isinstance(item, dict | list) for item in items):
                    raise ConfigFault(f"{file}: {path} has a list of lists or tables, which no setting takes")
                yield path, ",".join(str(item) for item in items)
            case _:
                raise ConfigFault(f"{file}: {path} has a {type(value).__name__}, which no setting takes")


def read_properties(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of Java's properties format: comments, continued lines, escapes, `=`, `:` or space between."""
    for line in logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=:" + WHITE:
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(WHITE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(WHITE)
        yield unescape(line[:end]), unescape(rest)


def logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(WHITE)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "u":
            digits = text[at + 2 : at + 6]
            if not FOUR_DIGITS.fullmatch(digits):
                raise ConfigFault(f"\\u{digits} is not \\u and four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            out.append(ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    try:
        # Java writes a character beyond 16 bits as two of them.
        return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigFault(f"{text} has half of a character, a lone \\ud800 to \\udfff") from None
