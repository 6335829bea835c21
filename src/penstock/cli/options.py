"""Options that many commands share, and how their text becomes values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from penstock.client.connection import BOOTSTRAP_DEFAULT, Connection


class OutputFormat(StrEnum):
    """For whom the answer is: a person, or a program."""

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
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="A librdkafka property, such as security.protocol=SSL."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

BOOTSTRAP = BOOTSTRAP_DEFAULT


def connection(bootstrap: str, properties: list[str] | None) -> Connection:
    """What the options --bootstrap and -X say."""
    return Connection(bootstrap=bootstrap, properties=assignments(properties or (), option="-X"))


def assignments(texts: Iterable[str], *, option: str) -> dict[str, str]:
    """`key=value` texts; the value may hold further equals signs."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        pairs[name.strip()] = value
    return pairs
