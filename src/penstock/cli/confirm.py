"""Asks before something is done that cannot be undone, or takes long."""

from __future__ import annotations

import sys

import typer

from penstock.cli.failure import Failure
from penstock.model.printable import printable


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation; without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"not done: {question}", "say --yes to do it without being asked")
    typer.confirm(printable(question), abort=True)
