"""What the commands write to a terminal: control characters in names and records of clients are escaped."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from protocol.group_members import await_assignment
from protocol.test_cli import COMMAND_SECONDS_MAX, PENSTOCK, Cli
from protocol.topics import fresh_name

EVIL = "evil\x1b[2J\x1b]0;owned\x07\x9b31m\n"
SHOWN = "evil\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\n"
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def cli(broker: Any) -> Cli:
    return Cli(broker.bootstrap)


class OnTerminal:
    """A command whose stdout and stderr, and stdin unless it is given one, are a terminal."""

    def __init__(self, cli: Cli, *arguments: str, stdin: IO[str] | None = None, **environment: str) -> None:
        self._mine, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*PENSTOCK, *arguments],
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            env={**cli.environment, "TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = b""

    def read_until(self, wanted: bytes) -> None:
        while wanted not in self.seen:
            part = self._read()
            assert part, f"ended before {wanted!r}: {self.seen!r}"

    def read_all(self) -> bytes:
        while self._read():
            pass
        assert self.process.wait(COMMAND_SECONDS_MAX) == 0, self.seen
        return self.seen

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._mine)

    def _read(self) -> bytes:
        # Linux returns EIO once no process has the terminal open any more.
        with contextlib.suppress(OSError):
            part = os.read(self._mine, 65_536)
            self.seen += part
            return part
        return b""


@contextlib.contextmanager
def on_terminal(cli: Cli, *arguments: str, stdin: IO[str] | None = None, **environment: str) -> Iterator[OnTerminal]:
    terminal = OnTerminal(cli, *arguments, stdin=stdin, **environment)
    try:
        yield terminal
    finally:
        terminal.close()


def shown(cli: Cli, *arguments: str, **environment: str) -> str:
    with on_terminal(cli, *arguments, **environment) as terminal:
        return terminal.read_all().decode()


@pytest.fixture
def topic(make_topic: Any) -> str:
    name: str = make_topic(partitions=1)
    return name


def test_records_are_escaped_on_a_terminal_and_raw_in_a_pipe(cli: Cli, broker: Any, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"\x1b[2J\xff two\nlines", key=EVIL.encode(), headers=[("h\x1b", b"\x07")])
    assert producer.flush(SECONDS_MAX) == 0
    form = ("-f", "%k|%v|%h\\n")

    seen = shown(cli, "consume", topic, *form)

    assert seen == f"{SHOWN[:-2]}\r\n|\\x1b[2J\\xff two\r\nlines|h\\x1b=\\x07\r\n"
    piped = subprocess.run([*PENSTOCK, "consume", topic, *form], env=cli.environment, capture_output=True, check=True)
    assert piped.stdout == EVIL.encode() + b"|\x1b[2J\xff two\nlines|h\x1b=\x07\n"
    for output in ("json", "table"):
        assert shown(cli, "consume", topic, "--output", output).replace("\r\n", "").isprintable()
    assert json.loads(shown(cli, "consume", topic, "--output", "json"))["key"] == EVIL


def test_names_of_groups_members_and_clients_are_escaped(cli: Cli, broker: Any, topic: str) -> None:
    group = fresh_name("group") + EVIL
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": EVIL}
    member = Consumer({**settings, "group.instance.id": EVIL})
    member.subscribe([topic])
    try:
        await_assignment(member)
        member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        for command in (("group", "list"), ("group", "describe", group)):
            seen = shown(cli, *command, NO_COLOR="1")
            assert SHOWN in seen
            assert "".join(seen.splitlines()).isprintable()
            assert any(EVIL in text for text in strings(json.loads(shown(cli, *command, "-o", "json"))))
        refused = cli.error("group", "delete", group, "--yes")
        assert "".join(refused.splitlines()).isprintable()
        assert len(refused.splitlines()) == 2
    finally:
        member.close()


def test_transactional_ids_are_escaped(cli: Cli, broker: Any) -> None:
    name = fresh_name("txn") + EVIL
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS_MAX)

    for command in (("txn", "list"), ("txn", "describe", name)):
        seen = shown(cli, *command, NO_COLOR="1")
        assert SHOWN in seen
        assert "".join(seen.splitlines()).isprintable()
    assert "".join(cli.error("txn", "describe", f"no{EVIL}").splitlines()).isprintable()


def test_segments_are_dumped_without_control_characters(cli: Cli, broker: Any, topic: str) -> None:
    if not hasattr(broker, "data"):
        pytest.skip("the files of this broker are not here")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, EVIL.encode(), headers=[("h\x9b", b"")])
    assert producer.flush(SECONDS_MAX) == 0
    directory = next(broker.data.rglob(f"{topic}-0"))

    for output in ("table", "json"):
        seen = shown(cli, "log", "dump", str(directory), "--records", "-o", output)
        assert "".join(seen.splitlines()).isprintable()


def strings(value: Any) -> Iterator[str]:
    """Every text in a JSON document."""
    match value:
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)
        case str():
            yield value
        case _:
            pass


def test_colour_needs_a_terminal_without_no_color(cli: Cli, topic: str) -> None:
    assert "\x1b[" in shown(cli, "topic", "list")
    assert "\x1b[" not in shown(cli, "topic", "list", NO_COLOR="1")
    assert "\x1b[" not in shown(cli, "topic", "list", TERM="dumb")


def test_ctrl_c_ends_following_and_cuts_everything_else_short(cli: Cli, topic: str) -> None:
    cli.out("produce", topic, *(part for _ in range(4) for part in ("-v", "x" * 60_000)))

    with on_terminal(cli, "consume", topic, "-F", "-o", "beginning") as follow:
        follow.read_until(b"xxx")
        follow.process.send_signal(signal.SIGINT)
        assert follow.process.wait(COMMAND_SECONDS_MAX) == 0
    # The pipe is too small for all of it, so the command is still at work when it is interrupted.
    with subprocess.Popen([*PENSTOCK, "consume", topic], stdout=subprocess.PIPE, env=cli.environment) as bounded:
        assert bounded.stdout is not None
        assert bounded.stdout.read(1) == b"x"
        bounded.send_signal(signal.SIGINT)
        assert bounded.wait(COMMAND_SECONDS_MAX) == 130
    with on_terminal(cli, "produce", topic) as produce:
        produce.read_until(b"one a line")
        produce.process.send_signal(signal.SIGINT)
        assert produce.process.wait(COMMAND_SECONDS_MAX) == 130


def test_a_bar_shows_how_much_of_a_file_is_sent(cli: Cli, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("line\n" * 3_000)

    with path.open() as file, on_terminal(cli, "produce", topic, stdin=file) as terminal:
        seen = terminal.read_all()

    assert b"sending" in seen
    assert b"sent 3,000 records" in seen
