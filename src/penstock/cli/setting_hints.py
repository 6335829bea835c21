"""What to do about a setting that a broker refused: the name that was meant, or the place where it can be set."""

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
    """Refuse a name that is no setting of its owner, with the nearest that is."""
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
    """Give a refusal of settings the hint that helps. `known` is asked only then for those there are."""
    try:
        yield
    except ClientError as error:
        if error.code in (INVALID_CONFIG, INVALID_REQUEST):
            error.hint = hint_for(known(), names)
        raise


def hint_for(known: Sequence[ConfigValue], names: Iterable[str]) -> str:
    """What is wrong with the first name that is; else it is a value."""
    there = {each.name: each for each in known}
    for name in names:
        if name not in there:
            return nearest_setting(name, there)
        if there[name].read_only:
            return AT_START.format(name)
    return "the name is right and the value is not: the message says what is allowed"


def nearest_setting(name: str, known: Mapping[str, object]) -> str:
    """A question about the nearest name; empty where none is near."""
    from penstock.config.key import nearest  # a command that succeeds does without

    return nearest(name, known).removeprefix("; ")
