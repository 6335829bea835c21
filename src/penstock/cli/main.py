"""The tree of commands, and their exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from penstock import __version__
from penstock.cli.failure import Failure
from penstock.cli.streams import abandon_stdout, prepare_streams, stream_fault
from penstock.client.failures import ClientError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
HELP_NAMES = ["-h", "--help"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A command or a group of them: its module, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str

    def load(self, name: str) -> Any:
        """The command itself; only now is its module imported."""
        found = getattr(import_module(self.module), self.attribute)
        app = found
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False, context_settings={"help_option_names": HELP_NAMES})
            app.command()(found)
        command = typer.main.get_command(app)
        command.name = name
        return command


COMMANDS: dict[str, Entry] = {
    "up": Entry(
        module="penstock.cli.serve", attribute="up", summary="Start a broker here, with its data in ./penstock-data."
    ),
    "broker": Entry(
        module="penstock.cli.serve",
        attribute="broker",
        summary="Run a broker as a service: no greeting, JSON logs off a terminal.",
    ),
    "topic": Entry(
        module="penstock.cli.topic",
        attribute="app",
        summary="Create, list, describe, change, grow, shrink, move, truncate and delete topics.",
    ),
    "produce": Entry(
        module="penstock.cli.produce",
        attribute="produce",
        summary="Send records: each line of stdin or of a file, or those given with -v.",
    ),
    "consume": Entry(
        module="penstock.cli.consume",
        attribute="consume",
        summary="Read topics, by default all records, and then stop.",
    ),
    "schedule": Entry(
        module="penstock.cli.schedule",
        attribute="app",
        summary="List schedules, show what became of one, move, cancel, pause and resume them.",
    ),
    "group": Entry(
        module="penstock.cli.group", attribute="app", summary="List, describe, move and delete groups of consumers."
    ),
    "queue": Entry(
        module="penstock.cli.queue",
        attribute="app",
        summary="Make queues, see how far their groups have come, and intervene.",
    ),
    "txn": Entry(
        module="penstock.cli.txn",
        attribute="app",
        summary="List and describe transactions; find those that hang, and abort them.",
    ),
    "cluster": Entry(
        module="penstock.cli.cluster",
        attribute="app",
        summary="Show a cluster's brokers and what partitions lack; upgrade it; even out, empty and remove brokers.",
    ),
    "metadata": Entry(
        module="penstock.cli.metadata",
        attribute="app",
        summary="Move a cluster's metadata to another store, back it up and restore it.",
    ),
    "check": Entry(
        module="penstock.cli.check",
        attribute="check",
        summary="Check a cluster: one line, and an exit code for monitoring.",
    ),
    "config": Entry(
        module="penstock.cli.config",
        attribute="app",
        summary="Show and change the settings of topics, brokers and groups.",
    ),
    "pipeline": Entry(
        module="penstock.cli.pipeline",
        attribute="app",
        summary="Archive topics in tables, replay them, and run declared pipelines, with Spark.",
    ),
    "demo": Entry(
        module="penstock.cli.demo",
        attribute="demo",
        summary="See a broker, orders and a pipeline with Spark live in the terminal.",
    ),
    "dev": Entry(
        module="penstock.cli.dev", attribute="app", summary="Run servers on this machine to develop and play with."
    ),
    "bench": Entry(module="penstock.cli.bench", attribute="app", summary="Measure throughput and latency of a broker."),
    "sim": Entry(
        module="penstock.cli.sim",
        attribute="app",
        summary="Simulate brokers and clients with faults, each run from a seed; no broker needed.",
    ),
    "log": Entry(
        module="penstock.cli.log",
        attribute="app",
        summary="Inspect and verify segment files, turn lost ones into topics; no broker needed.",
    ),
    "explain": Entry(
        module="penstock.cli.explain",
        attribute="explain",
        summary="Explain an error: what it means, whether a retry helps, what to do. Needs no broker.",
    ),
    "version": Entry(
        module="penstock.cli.version",
        attribute="version",
        summary="Show the version, the Python, which record loops are compiled, and librdkafka's version.",
    ),
}
"""In the order in which users need them."""

TAKE_BYTES = frozenset({"up", "broker", "produce", "pipeline", "dev", "log", "metadata"})
"""Commands whose arguments may be any bytes: paths, and values of records."""


class LazyGroup(TyperGroup):
    """Imports only the command that runs: the others are names and summaries."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else TyperCommand(cmd_name, help=entry.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from penstock.cli.options import require_text

        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in COMMANDS:
            command = COMMANDS[name].load(name)
            if name not in TAKE_BYTES:
                require_text(*rest)
        return name, command, rest


app = typer.Typer(
    name="penstock",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """A message queue and event streaming platform that speaks the Kafka protocol."""


def run() -> None:
    """The entry point: failures become one line and a hint on stderr, and exit code 1; Ctrl-C is exit code 130."""
    prepare_streams()
    try:
        try:
            app(prog_name="penstock")
        finally:
            # A full disk is a failure of the command, not an error at interpreter exit after a success.
            sys.stdout.flush()
    except Failure as failed:
        _fail(failed.lines, failed.hint)
    except ClientError as failed:
        _fail((str(failed),), failed.hint or advice_for(failed))
    except BrokenPipeError:
        # The reader of the pipe has exited, such as `head`.
        abandon_stdout()
        sys.exit(EXIT_FAILED)
    except OSError as error:
        abandon_stdout()
        _fail((stream_fault(error),), "")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def advice_for(failed: ClientError) -> str:
    """The advice of `penstock explain` for the error code, if there is one."""
    from penstock.cli.advice import find

    if failed.code is None:
        return ""
    explained = find(str(failed.code))
    if explained is None:
        return ""
    return f"{explained.advice} (penstock explain {explained.name})" if explained.advice else explained.meaning


def _fail(lines: Sequence[str], hint: str) -> NoReturn:
    from penstock.cli.output import complain

    complain(lines, hint)
    sys.exit(EXIT_FAILED)
