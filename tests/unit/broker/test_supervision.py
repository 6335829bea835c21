import asyncio
import io
import json
import os
import sys
from collections.abc import Callable

import pytest

from penstock.broker.child_output import LINE_BYTES_MAX, Lines, OneLog
from penstock.broker.restarts import RESTART_S_MAX, STEADY_S, FirstStart, Restarts
from penstock.broker.supervisor import ChildBroker, Supervisor
from penstock.observe.log import logger

PATIENCE_S = 60.0


def test_a_broker_that_fails_again_waits_twice_as_long_up_to_a_bound() -> None:
    restarts = Restarts()

    waits = [restarts.ended(lived_s=1.0) for _ in range(200)]

    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == RESTART_S_MAX


def test_a_broker_that_ran_for_long_starts_again_soon() -> None:
    restarts = Restarts()
    for _ in range(10):
        restarts.ended(lived_s=1.0)

    assert restarts.ended(lived_s=STEADY_S) == 0.5


def test_starting_is_given_up_when_every_broker_failed() -> None:
    first = FirstStart(2)

    assert not first.failed(1, wrong_settings=False)
    assert not first.failed(1, wrong_settings=False)
    assert first.failed(2, wrong_settings=False)


def test_starting_is_given_up_at_once_when_settings_are_wrong() -> None:
    assert FirstStart(2).failed(1, wrong_settings=True)


def test_a_broker_that_serves_is_not_given_up_for_one_that_does_not() -> None:
    first = FirstStart(2)
    first.ready()

    assert not first.failed(1, wrong_settings=True)
    assert not first.failed(2, wrong_settings=False)


def test_output_is_cut_into_lines_of_bounded_length() -> None:
    lines = Lines()

    assert lines.feed(b"a\nb") == [b"a"]
    assert lines.feed(b"c\n") == [b"bc"]
    assert [len(line) for line in lines.feed(b"x" * (LINE_BYTES_MAX + 1))] == [LINE_BYTES_MAX + 1]
    assert lines.feed(b"end") == []
    assert lines.last() == [b"end"]
    assert lines.last() == []


def test_text_has_aligned_prefixes() -> None:
    out = io.StringIO()
    log = OneLog(out, [1, 10], text=True)

    log.write("mine\n")
    log.write_line(1, "one")
    log.write_line(10, "ten")

    assert out.getvalue().splitlines() == ["supervisor | mine", "broker 1   | one", "broker 10  | ten"]


def test_json_stays_json_and_other_output_is_marked() -> None:
    out = io.StringIO()
    log = OneLog(out, [1], text=False)

    log.write('{"event": "mine"}\n')
    log.write_line(1, '{"event": "ready"}')
    log.write_line(1, "Traceback")

    mine, ready, other = out.getvalue().splitlines()
    assert json.loads(mine) == {"event": "mine"}
    assert json.loads(ready) == {"broker": 1, "event": "ready"}
    assert other == "broker 1   | Traceback"


CHILD = """
import os, signal, sys
fd = int(sys.argv[sys.argv.index("--supervisor-fd") + 1])
kind = sys.argv[1]
if kind == "refuses":
    sys.exit(1)
# One that ends by itself must not be interrupted at it: its line makes the supervisor stop.
signal.signal(signal.SIGTERM, signal.SIG_IGN if kind == "ends" else lambda *_: sys.exit(0))
os.write(fd, b"ready\\n")
print(kind, "is ready", flush=True)
if kind == "ends":
    sys.exit(0)
signal.pause()
"""


def supervise(kinds: list[str], enough: Callable[[list[str]], bool], command: tuple[str, ...] | None = None) -> int:
    """Supervise programs instead of brokers until their output is as wanted; the exit status."""

    async def run() -> int:
        stop = asyncio.Event()
        lines: list[str] = []

        def write_line(broker_id: int, line: str) -> None:
            lines.append(f"{broker_id} {line}")
            if enough(lines):
                stop.set()

        brokers = [
            ChildBroker(broker_id=number, endpoints=(), arguments=(kind,)) for number, kind in enumerate(kinds, start=1)
        ]
        supervisor = Supervisor(
            brokers,
            environment=os.environ,
            write_line=write_line,
            log=logger("supervisor"),
            command=(sys.executable, "-c", CHILD) if command is None else command,
        )
        return await asyncio.wait_for(supervisor.run(stop), PATIENCE_S)

    return asyncio.run(run())


def test_programs_are_stopped_together() -> None:
    assert supervise(["serves", "serves"], lambda lines: len(lines) == 2) == 0


def test_a_program_that_ends_is_started_again() -> None:
    assert supervise(["serves", "ends"], lambda lines: lines.count("2 ends is ready") == 2) == 0


def test_the_supervisor_ends_where_none_can_start() -> None:
    assert supervise(["refuses", "refuses"], lambda _: False) == 1


def test_a_program_that_cannot_even_be_run_is_a_start_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert supervise(["serves"], lambda _: False, command=("/nowhere/at/all",)) == 1
    assert "broker_not_started" in capsys.readouterr().out
