"""Every command with hostile arguments: it exits with a message and an exit code, never with a traceback."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.cli import main
from penstock.cli.main import COMMANDS
from penstock.testing.processes import free_port

STARTS_SOMETHING = {"up", "broker", "demo", "dev", "pipeline"}
"""These become a server or start Spark once their arguments are good."""
WORKS_LONG = {"sim run", "sim replay"}
"""These simulate clusters for as long as they are told to, once their arguments are good."""
HOSTILE = [
    *("", " ", "-1", "0", "1", "9" * 20, "9" * 5_000, "1e309", "nan", "inf", "-inf"),
    *("é", "٣", "\udcff", "a\udcff=b", "\x1b[2J", "a\nb", "a" * 300, "=", "a=b", "a=@/nowhere", "@/nowhere", "@", ":"),
    *("1:2", "a:b", "a:0", "a,b", "@-1h", "@-" + "9" * 400 + "w", "@0001-01-01", "@9999-12-31T23:59:59-14:00"),
    *(
        "%v",
        "%",
        "\\",
        "\\x",
        "\\x1",
        "{}",
        "[",
        "json",
        "table",
        "topic",
        "broker",
        "earliest",
        "/dev/null",
        "/nowhere",
    ),
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some commands make files where a text, taken for a relative path, says."""
    monkeypatch.chdir(tmp_path)


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from leaves(child, (*path, name))


LEAVES = {
    " ".join(path): (path, command)
    for name, entry in COMMANDS.items()
    if name not in STARTS_SOMETHING
    for path, command in leaves(entry.load(name), (name,))
}


@st.composite
def command_lines(draw: st.DrawFn, path: tuple[str, ...], command: Any) -> list[str]:
    """Arguments for a command: all it needs, and some of its options, each with a hostile value."""
    words = list(path)
    hostile = st.sampled_from(HOSTILE)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            words += [draw(hostile)]
        elif parameter.name not in ("help", "bootstrap") and draw(st.integers(0, 3)) == 0:
            option = draw(st.sampled_from(parameter.opts))
            words += [option] if parameter.is_flag else [option, draw(hostile)]
    return words


def free_texts(command: Any) -> list[Any]:
    """The parameters of a command that take any text, without those that all commands share."""
    shared = ("help", "bootstrap", "output", "properties")
    return [each for each in command.params if each.type.name in ("str", "float") and each.name not in shared]


def one_at_a_time(path: tuple[str, ...], command: Any) -> Iterator[list[str]]:
    """Each hostile text as each parameter, with harmless texts for the other required ones."""
    for hostile in free_texts(command):
        for text in HOSTILE:
            words = list(path)
            for parameter in command.params:
                value = text if parameter is hostile else "0"
                if parameter.param_type_name == "argument":
                    words += [value]
                elif parameter is hostile or parameter.required:
                    words += [f"{max(parameter.opts, key=len)}={value}"]
            yield words


def check_end(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Run a command without a broker: it ends with an exit code of ours."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("PENSTOCK_ZOOKEEPER_CONNECTION_TIMEOUT_MS", "20")
    monkeypatch.setattr(sys, "argv", ["penstock", *words])
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    out, err = io.StringIO(), io.StringIO()

    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main.run()

    assert ended.value.code in (0, 1, 2), words
    assert "Traceback" not in err.getvalue()


@pytest.mark.parametrize("name", [name for name, (_, command) in LEAVES.items() if free_texts(command)])
def test_no_hostile_text_causes_a_traceback(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for words in one_at_a_time(*LEAVES[name]):
        check_end(monkeypatch, words)


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in WORKS_LONG])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_mixture_of_hostile_options_causes_a_traceback(
    monkeypatch: pytest.MonkeyPatch, name: str, data: st.DataObject
) -> None:
    check_end(monkeypatch, data.draw(command_lines(*LEAVES[name])))
