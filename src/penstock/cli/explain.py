"""`penstock explain`: what an error code means and what to do."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import OutputFormat, OutputOption
from penstock.cli.output import say, show_json


def explain(
    error: Annotated[
        str,
        typer.Argument(metavar="CODE|NAME", help="Such as 6, NOT_LEADER_OR_FOLLOWER, or librdkafka's _MSG_TIMED_OUT."),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Explain an error: what it means, whether a retry helps, what to do. Needs no broker.

    Codes below 0 go after a double dash: `penstock explain -- -1`.
    """
    from penstock.cli.advice import every, find

    if error == "0" or error.upper() in ("NONE", "NO_ERROR"):
        raise Failure("0 is no error: the request succeeded")
    found = find(error)
    if found is None:
        close = get_close_matches(error.upper(), [each.name for each in every()], n=3)
        raise Failure(
            f"no error {error!r}", f"did you mean {', '.join(close)}?" if close else "see docs/reference/errors.md"
        )
    if output is OutputFormat.JSON:
        show_json(asdict(found))
        return
    say(f"{found.code} {found.name}", found.meaning)
    say("A retry can help." if found.retriable else "A retry alone does not help.")
    if found.advice:
        say("", found.advice)
