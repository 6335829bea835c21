"""Options that many commands share, and how their text becomes values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import Failure
from penstock.client.connection import BOOTSTRAP_DEFAULT, Connection
from penstock.model.printable import printable

PROPERTIES_VARIABLE = "PENSTOCK_CLIENT_PROPERTIES"
"""Names a file of librdkafka properties that every command reads first."""
CLIENT_VARIABLES = frozenset({"PENSTOCK_BOOTSTRAP", "PENSTOCK_STATE_DIR", PROPERTIES_VARIABLE})
"""Variables of the commands; a broker reads every other PENSTOCK_ variable as a setting."""
FILE_MARK = "@"


class OutputFormat(StrEnum):
    """Output for a person, or for a program."""

    TABLE = "table"
    JSON = "json"


BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", envvar="PENSTOCK_BOOTSTRAP", metavar="HOST:PORT,...", help="Where the brokers are."
    ),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="A table to read, or JSON to process.")]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-X",
        metavar="KEY=VALUE|KEY=@FILE|@FILE",
        help="A librdkafka property, such as security.protocol=SSL; KEY=@FILE reads its value from a file, @FILE "
        f"reads KEY=VALUE lines, as the file in {PROPERTIES_VARIABLE} has them: other users see the command line.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

BOOTSTRAP = BOOTSTRAP_DEFAULT


def require_text(*texts: str) -> None:
    """Refuse arguments that are not UTF-8: no name can have them, and librdkafka's binding crashes on some."""
    for text in texts:
        if not is_text(text):
            raise typer.BadParameter(f"{printable(text)} is not UTF-8 text")


def is_text(text: str) -> bool:
    """Whether a text has an encoding: Python keeps foreign bytes of arguments as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def connection(bootstrap: str, properties: list[str] | None) -> Connection:
    """The connection that --bootstrap and -X describe."""
    require_text(bootstrap, *(properties or ()))
    return Connection(bootstrap=bootstrap, properties=client_properties(properties or ()))


def client_properties(texts: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """librdkafka's properties, a later one wins: the file of the environment, then each -X in order.

    A password belongs in a file, or comes through a pipe (`-X sasl.password=@/dev/stdin`): any user of the machine can
    read the arguments of a process. A value that begins with @ is written @@.
    """
    found: dict[str, str] = {}
    named = environment.get(PROPERTIES_VARIABLE)
    if named:
        found |= read_properties_file(named, option=PROPERTIES_VARIABLE)
    for text in texts:
        if text.startswith(FILE_MARK):
            found |= read_properties_file(text.removeprefix(FILE_MARK), option="-X")
            continue
        for name, value in assignments([text], option="-X").items():
            found[name] = value_or_file(value, option=f"-X {name}")
    return found


def value_or_file(text: str, *, option: str) -> str:
    """The text itself, or for @FILE the content of the file without its last line end; @@ stands for one @."""
    if not text.startswith(FILE_MARK):
        return text
    if text.startswith(FILE_MARK * 2):
        return text.removeprefix(FILE_MARK)
    return read_text(text.removeprefix(FILE_MARK), option=option).removesuffix("\n").removesuffix("\r")


def read_properties_file(path: str, *, option: str) -> dict[str, str]:
    """Lines of KEY=VALUE; empty ones and comments (#) are skipped."""
    lines = (line.strip() for line in read_text(path, option=option).splitlines())
    wanted = [line for line in lines if line and not line.startswith("#")]
    return {name: value.strip() for name, value in assignments(wanted, option=f"{option} {path}", secret=True).items()}


def read_text(path: str, *, option: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Failure(f"{option}: cannot read {path}: {reason}") from None


def assignments(texts: Iterable[str], *, option: str, secret: bool = False) -> dict[str, str]:
    """`key=value` texts; the value may hold further equals signs. A `secret` text is not repeated in the error."""
    pairs: dict[str, str] = {}
    for number, text in enumerate(texts, start=1):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            shown = f"entry {number}" if secret else repr(text)
            raise typer.BadParameter(f"{shown} is not KEY=VALUE", param_hint=option)
        pairs[name.strip()] = value
    return pairs
