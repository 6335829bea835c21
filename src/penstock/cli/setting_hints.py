"""Hints for a setting that a broker refused: the nearest name, or where it can be set."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from penstock.cli.failure import Failure
from penstock.client.admin import ConfigValue
from penstock.client.failures import ClientError

INVALID_CONFIG = 40
INVALID_REQUEST = 42
AT_START = "{} is read at the start: change the broker's file, environment or --set, and start it again"


def require_settings(
    names: Iterable[str], known: Sequence[ConfigValue], owner: str, *, to_change: bool = False
) -> None:
    """Refuse an unknown setting, with the nearest known name."""
    there = {each.name: each for each in known}
    for name in names:
        if to_change and name in there and there[name].read_only:
            raise Failure(f"{name} of {owner} cannot be changed while the broker runs", AT_START.format(name))
        if name not in there:
            meant = nearest_setting(name, there)
            raise Failure(
                f"{owner} has no setting {name}", meant or f"`penstock config describe {owner} --all` has all"
            )


@contextmanager
def setting_hints(known: Callable[[], Sequence[ConfigValue]], names: Iterable[str]) -> Generator[None]:
    """Add a hint to a refusal of settings. `known` lists the settings and is called only then."""
    try:
        yield
    except ClientError as error:
        if error.code in (INVALID_CONFIG, INVALID_REQUEST):
            error.hint = hint_for(known(), names)
        raise


def hint_for(known: Sequence[ConfigValue], names: Iterable[str]) -> str:
    """The problem of the first wrong name; if all names are right, a value is wrong."""
    there = {each.name: each for each in known}
    for name in names:
        if name not in there:
            return nearest_setting(name, there)
        if there[name].read_only:
            return AT_START.format(name)
    return "the name is right and the value is not: the message says what is allowed"


def nearest_setting(name: str, known: Mapping[str, object]) -> str:
    """A hint with the nearest name; empty if none is near."""
    from penstock.config.key import nearest  # a command that succeeds does without

    return nearest(name, known).removeprefix("; ")
