"""Write docs/reference/ from the code: settings, metrics, commands, errors, APIs.

    python tools/generate_docs.py            writes the pages
    python tools/generate_docs.py --check    fails and names the pages that are out of date

The requests of the client tests come from docs/reference/api_use.json, which tools/record_api_use.py writes.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

import penstock.api
from penstock.api.registry import Api
from penstock.cli.advice import every
from penstock.cli.main import COMMANDS, app
from penstock.config.broker import ALIASES, BROKER_KEYS
from penstock.config.group_settings import GROUP_KEYS
from penstock.config.key import Key, Mode, text_of
from penstock.config.log import TOPIC_KEYS
from penstock.observe.catalog import METRICS
from penstock.wire.api.table import TABLE
from penstock.wire.own_apis import ENTRIES

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
API_USE = REFERENCE / "api_use.json"
RECORDINGS = ROOT / "tests" / "differential" / "recordings"
NOTICE = "<!-- Written by tools/generate_docs.py: edit the code it comes from instead. -->"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(value) for value in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def page(title: str, *parts: str) -> str:
    return "\n\n".join((NOTICE, f"# {title}", *parts)) + "\n"


def code(text: object) -> str:
    """Text in the style of code; empty text stays empty."""
    return f"`{text}`" if str(text) else ""


# Settings


def configs_page() -> str:
    aliases = ", ".join(f"{code(alias)} is another name of {code(name)}" for alias, name in ALIASES.items())
    return page(
        "Settings",
        "A setting has Kafka's name. It is taken from `--set KEY=VALUE`, else from the environment, else from the file "
        "given with `--config` (TOML or server.properties), else it has its default. Times are in milliseconds and "
        "sizes in bytes unless the name says otherwise. " + aliases + ".",
        "## Of a topic",
        "Set them with `penstock topic create -c`, `penstock topic alter` or any Kafka admin client. A topic that does "
        "not set one has the broker's value of the key in the last column.",
        settings_table(TOPIC_KEYS.values()),
        "## Of a group",
        "Set them with an admin client that supports groups, such as `kafka-configs.sh --entity-type groups`. Those of "
        "share and streams groups wait until there are such groups.",
        settings_table(GROUP_KEYS.values()),
        "## Of a broker",
        "*Change while running*: `no` needs a restart; `broker` can be set for one broker, `cluster` for one or all, "
        "with `penstock config set broker` or any Kafka admin client. Those of replication, share groups and streams "
        "groups have nothing to act on yet: there is one broker, and no such groups.",
        table(
            ("key", "type", "default", "allowed", "change while running", "environment", "meaning"),
            (
                (
                    code(key.name),
                    kind(key),
                    code(shown_default(key)),
                    allowed(key),
                    change(key),
                    code(key.environment),
                    key.doc,
                )
                for key in BROKER_KEYS.values()
                if not key.internal
            ),
        ),
    )


def settings_table(keys: Iterable[Key]) -> str:
    """Settings that a broker's settings give the default of."""
    return table(
        ("key", "type", "default", "allowed", "meaning", "broker's key"),
        (
            (code(key.name), kind(key), code(shown_default(key)), allowed(key), key.doc, synonyms(key))
            for key in keys
            if not key.internal
        ),
    )


def kind(key: Key) -> str:
    return key.kind.name.lower()


def shown_default(key: Key) -> str:
    text = text_of(key.default)
    return "" if text is None else text


def allowed(key: Key) -> str:
    if key.choices:
        return ", ".join(code(choice) for choice in key.choices)
    bounds = []
    if key.minimum is not None:
        bounds.append(f">= {key.minimum}")
    if key.maximum is not None:
        bounds.append(f"<= {key.maximum}")
    also = f" or {key.also}" if key.also is not None else ""
    return ", ".join(bounds) + also


def change(key: Key) -> str:
    return {Mode.READ_ONLY: "no", Mode.PER_BROKER: "broker", Mode.CLUSTER_WIDE: "cluster"}[key.mode]


def synonyms(key: Key) -> str:
    return ", ".join(code(each.name) for each in key.synonyms)


# Metrics


def metrics_page() -> str:
    return page(
        "Metrics",
        "`GET /metrics` at the address in `metrics.listener` returns Prometheus' text format (on request "
        "OpenMetrics, or gzip). Names that begin with `kafka_` are kafka_exporter's and mean the same. Beside these "
        "there are the `process_*` metrics of prometheus_client: memory, processor time, open files, start time.",
        "Histograms count durations in buckets of powers of two, from 32 microseconds to 16.8 seconds.",
        table(
            ("name", "type", "labels", "meaning"),
            ((code(each.name), each.kind, ", ".join(each.labels), each.help) for each in METRICS),
        ),
    )


# Commands


def cli_page() -> str:
    """Every command with its options, from the commands themselves."""
    context = typer.Context(typer.main.get_command(app), info_name="penstock")
    parts = [
        "Exit codes: 0 done, 1 failed (one line says what and where, one what to do), 2 wrong usage. "
        "Commands that talk to a broker find it at `--bootstrap`, else at `PENSTOCK_BOOTSTRAP`, else at "
        "`localhost:9092`. Progress bars and colours are for terminals only."
    ]
    for name, entry in COMMANDS.items():
        for path, command in commands_below(("penstock", name), entry.load(name), context):
            parts += command_parts(path, command)
    return page("Commands", *parts)


def commands_below(path: tuple[str, ...], command: Any, context: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    subcommands: dict[str, Any] | None = getattr(command, "commands", None)
    if subcommands is None:
        yield path, command
        return
    for name, each in subcommands.items():
        yield from commands_below((*path, name), each, context)


def command_parts(path: tuple[str, ...], command: Any) -> list[str]:
    own = [parameter for parameter in command.params if parameter.name != "help"]
    arguments = [parameter for parameter in own if parameter.param_type_name == "argument"]
    options = [parameter for parameter in own if parameter.param_type_name == "option"]
    usage = " ".join([*path, *(["[OPTIONS]"] if options else []), *(argument_text(each) for each in arguments)])
    summary, _, more = inspect.cleandoc(command.help or "").partition("\n\n")
    parts = [f"## {' '.join(path)}", summary, f"    {usage}"]
    if more:
        parts.append("\n".join(f"    {line}" for line in more.splitlines()) if is_example(more) else more)
    rows = [(code(argument_text(each)), each.help or "", "") for each in arguments]
    rows += [(option_text(each), each.help or "", option_default(each)) for each in options]
    if rows:
        parts.append(table(("option", "meaning", "default"), rows))
    return parts


def is_example(text: str) -> bool:
    return text.startswith("penstock ")


def argument_text(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def option_text(parameter: Any) -> str:
    names = ", ".join(code(name) for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag:
        return names
    choices = getattr(parameter.type, "choices", None)
    value = "|".join(str(choice) for choice in choices) if choices else parameter.metavar or parameter.type.name.upper()
    return f"{names} {code(value)}"


def option_default(parameter: Any) -> str:
    variable = f" (environment: {code(parameter.envvar)})" if parameter.envvar else ""
    if parameter.is_flag or parameter.default is None:
        return variable.strip()
    return code(getattr(parameter.default, "value", parameter.default)) + variable


# Errors


def errors_page() -> str:
    return page(
        "Errors",
        "What `penstock explain CODE` says. Codes from -1 up are the protocol's; those from -100 down are librdkafka's "
        "own, which no broker sends. *Retry*: whether the same request may succeed later.",
        table(
            ("code", "name", "retry", "meaning", "what to do"),
            (
                (each.code, code(each.name), "yes" if each.retriable else "no", each.meaning, each.advice)
                for each in every()
            ),
        ),
    )


# APIs


def apis_page() -> str:
    rows = served()
    compared, clients = compared_versions(), client_use()
    absent = [entry.name for key, entry in sorted(TABLE.items()) if key not in rows]
    return page(
        "APIs",
        "The requests that a broker serves, by the handlers' declarations. *Compared* are versions whose responses "
        "tests/differential compares field by field with those recorded from Apache Kafka, and in how many scenarios. "
        "*Clients* are the modules of tests/protocol that sent the request, the creation of their topics "
        "included, with the versions that their clients chose, as counted by the broker's own metrics.",
        table(
            ("key", "API", "versions", "compared", "clients"),
            (
                (
                    key,
                    ENTRIES[key].name,
                    span(list(api.versions)),
                    compared_text(compared.get(ENTRIES[key].module)),
                    clients_text(clients.get(ENTRIES[key].name, {})),
                )
                for key, api in sorted(rows.items())
            ),
        ),
        "Known to the codec and not served: " + (", ".join(absent) or "none") + ".",
    )


def served() -> dict[int, Api]:
    """The rows of every family of handlers.

    The methods that make rows use only other methods of their object, so the objects need no collaborators.
    """
    rows: dict[int, Api] = {}
    for found in pkgutil.iter_modules(penstock.api.__path__):
        module = importlib.import_module(f"penstock.api.{found.name}")
        for _, family in inspect.getmembers(module, inspect.isclass):
            if family.__module__ == module.__name__ and inspect.isfunction(getattr(family, "apis", None)):
                rows.update({api.key: api for api in family.__new__(family).apis()})
    return rows


def compared_versions() -> dict[str, tuple[set[int], int]]:
    """By API: the versions with a recorded response, and the number of scenarios."""
    sys.path.insert(0, str(ROOT / "tests"))
    families: dict[str, tuple[Any, ...]] = importlib.import_module("differential.scenarios").FAMILIES
    found: dict[str, tuple[set[int], int]] = {}
    for family, scenarios in families.items():
        file = RECORDINGS / f"{family}.json"
        recorded: dict[str, list[dict[str, Any]]] = json.loads(file.read_text())["scenarios"] if file.exists() else {}
        for scenario in scenarios:
            versions, count = found.get(scenario.api, (set(), 0))
            seen = {version for response in recorded.get(scenario.name, []) for version in response["versions"]}
            if seen:
                found[scenario.api] = (versions | seen, count + 1)
    return found


def compared_text(found: tuple[set[int], int] | None) -> str:
    if found is None:
        return ""
    versions, count = found
    return f"{span(sorted(versions))} in {count} scenario{'s' if count != 1 else ''}"


def client_use() -> dict[str, dict[str, list[int]]]:
    """By API: module of tests/protocol, and the versions its clients sent."""
    if not API_USE.exists():
        return {}
    use: dict[str, dict[str, list[int]]] = json.loads(API_USE.read_text())
    by_api: dict[str, dict[str, list[int]]] = {}
    for module, apis in use.items():
        for api, versions in apis.items():
            by_api.setdefault(api, {})[module] = versions
    return by_api


def clients_text(modules: dict[str, list[int]]) -> str:
    return ", ".join(f"{name.removeprefix('test_')} {span(versions)}" for name, versions in sorted(modules.items()))


def span(versions: Sequence[int]) -> str:
    """0, 1, 2, 5 as "0-2, 5"."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and version == runs[-1][1] + 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


PAGES = {
    "configs.md": configs_page,
    "metrics.md": metrics_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "apis.md": apis_page,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    check: bool = parser.parse_args(arguments).check
    stale: list[str] = []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python tools/generate_docs.py", file=sys.stderr)
        return 1
    print(f"{'checked' if check else 'written'}: {', '.join(stale) or 'nothing to change'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
