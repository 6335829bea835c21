"""`penstock explain`: what an error code means and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import OutputFormat, OutputOption
from penstock.cli.output import Number, say, show_json, show_rows

NEAREST_MAX = 3


def explain(
    error: Annotated[
        str,
        typer.Argument(metavar="CODE|NAME", help="Such as 6, NOT_LEADER_OR_FOLLOWER, or librdkafka's _MSG_TIMED_OUT."),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="List every error instead.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Explain an error: what it means, whether a retry helps, what to do. Needs no broker.

    Codes below 0 go after a double dash: `penstock explain -- -1`.
    """
    from penstock.cli.advice import every, find

    if everything:
        rows = [(each.code, each.name, each.retriable, each.meaning) for each in every()]
        show_rows(output, (Number("code"), "name", "retriable", "meaning"), rows, empty="")
        return
    if not error:
        raise typer.BadParameter("say which error, or --all", param_hint="CODE|NAME")
    if error == "0" or error.upper() in ("NONE", "NO_ERROR"):
        raise Failure("0 is not an error: the request succeeded")
    found = find(error)
    if found is None:
        close = nearest_names(error, [each.name for each in every()])
        hint = f"did you mean {', '.join(close)}?" if close else "`penstock explain --all` lists all errors"
        raise Failure(f"no error {error!r}", hint)
    if output is OutputFormat.JSON:
        show_json(asdict(found))
        return
    say(f"{found.code} {found.name}", found.meaning)
    say("A retry can help." if found.retriable else "A retry alone does not help.")
    if found.advice:
        say("", found.advice)


def nearest_names(text: str, names: Sequence[str]) -> list[str]:
    """Names that begin like the text, or are spelled like it."""
    wanted = text.upper().replace("-", "_")
    by_start = {name[: len(wanted) + 1]: name for name in reversed(names)}
    found = [by_start[start] for start in get_close_matches(wanted, by_start, n=NEAREST_MAX, cutoff=0.75)]
    return found or get_close_matches(wanted, names, n=NEAREST_MAX)
