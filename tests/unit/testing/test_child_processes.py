import os
import select
import socket
import sys
from pathlib import Path

import pytest

from penstock.testing.probe import api_versions, has_brokers, speaks_kafka
from penstock.testing.processes import (
    PORT_END,
    PORT_MIN,
    WORKER_VARIABLE,
    WORKERS_VARIABLE,
    Child,
    ProcessFailed,
    free_port,
    free_ports,
    own_ports,
    port_responds,
    process_tree,
    usage,
)

PATIENCE_SECONDS = 120.0
FOREVER = "import signal; print('up', flush=True); signal.pause()"
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


def start(program: str, folder: Path) -> Child:
    child = Child([sys.executable, "-c", program], log=folder / "log")
    child.wait_until(lambda: "up" in child.tail(), what="first line", seconds_max=PATIENCE_SECONDS)
    return child


def test_free_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(PORT_MIN <= port < PORT_END for port in ports)


def test_test_workers_side_by_side_draw_from_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKERS_VARIABLE, "3")
    drawn: list[range] = []
    for number in range(3):
        monkeypatch.setenv(WORKER_VARIABLE, f"gw{number}")
        drawn.append(own_ports())
        assert set(free_ports(20)) <= set(drawn[-1])

    assert len(set().union(*drawn)) == sum(map(len, drawn))
    assert PORT_MIN <= min(drawn[0]) < max(drawn[-1]) < PORT_END


def test_a_port_responds_only_while_something_listens() -> None:
    port = free_port()
    assert not port_responds(port)
    with socket.create_server(("127.0.0.1", port)):
        assert port_responds(port, timeout_seconds=PATIENCE_SECONDS)


def test_a_stopped_child_is_gone_and_its_status_is_the_signal(tmp_path: Path) -> None:
    child = start(FOREVER, tmp_path)
    assert child.stop() == -15
    assert not child.alive


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    child = start(DEAF, tmp_path)
    assert child.stop(seconds_max=0.05) == -9


def test_a_kill_reaches_the_children_of_the_child(tmp_path: Path) -> None:
    grandchild = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {FOREVER!r}]).wait()"
    child = start(grandchild, tmp_path)
    tree = process_tree(child.pid)
    assert len(tree) == 2
    grandchild_ends = os.pidfd_open(tree[1])
    try:
        child.kill()
        assert select.select([grandchild_ends], [], [], PATIENCE_SECONDS)[0]
    finally:
        os.close(grandchild_ends)


def test_a_child_that_ends_before_it_is_ready_shows_its_last_output(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", "import sys; sys.exit('no disk')"], log=tmp_path / "log")
    with pytest.raises(ProcessFailed, match=r"status 1 before readiness\nno disk"):
        child.wait_until(lambda: False, what="readiness", seconds_max=PATIENCE_SECONDS)


def test_a_child_that_is_never_ready_is_a_failure_with_the_time_waited(tmp_path: Path) -> None:
    with start(FOREVER, tmp_path) as child, pytest.raises(ProcessFailed, match=r"no answer within 0\.02 s"):
        child.wait_until(lambda: False, what="answer", seconds_max=0.02)


def test_leaving_the_context_stops_the_child(tmp_path: Path) -> None:
    with start(FOREVER, tmp_path) as child:
        assert child.alive
    assert not child.alive


def test_usage_counts_the_work_of_a_child_that_has_ended(tmp_path: Path) -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])\n" + FOREVER
    with start(parent, tmp_path) as child:
        used = usage(child.pid)
    # Of those that have ended, /proc counts whole ticks.
    assert used.cpu_seconds >= 0.25
    assert 1_000_000 < used.resident_bytes <= used.resident_bytes_peak


def test_usage_counts_the_work_of_a_living_process_to_the_last_microsecond(tmp_path: Path) -> None:
    spin = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.005: pass\n"
    with start(spin + "print(f'{time.process_time():.6f}', flush=True)\n" + FOREVER, tmp_path) as child:
        assert usage(child.pid).cpu_seconds >= float(child.tail().split()[0])


def test_usage_of_a_process_that_is_gone_is_an_error(tmp_path: Path) -> None:
    child = start(FOREVER, tmp_path)
    child.kill()
    with pytest.raises(FileNotFoundError):
        usage(child.pid)


def test_the_environment_of_a_child_is_added_to_ours(tmp_path: Path) -> None:
    program = "import os; print(os.environ['PENSTOCK_WORD'], os.environ['PATH'] != '')"
    child = Child([sys.executable, "-c", program], log=tmp_path / "log", environment={"PENSTOCK_WORD": "sluice"})
    assert child.wait(PATIENCE_SECONDS) == 0
    assert child.tail() == "sluice True"
    assert "PENSTOCK_WORD" not in os.environ


def test_nothing_speaks_kafka_on_a_closed_port() -> None:
    port = free_port()
    assert not speaks_kafka("127.0.0.1", port)
    assert not has_brokers("127.0.0.1", port)
    assert api_versions("127.0.0.1", port) == {}
