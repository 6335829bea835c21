"""`penstock dev`: servers to play with on this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from pathlib import Path
from threading import Event
from typing import Annotated, TextIO

import typer

from penstock.cli.dev_cluster import DevCluster, Interrupted, ended_within, live_brokers, prepare
from penstock.cli.dev_state import (
    Process,
    Server,
    locked,
    read_state,
    request_restart,
    running_state,
)
from penstock.cli.dev_view import Snapshot
from penstock.cli.failure import Failure
from penstock.cli.options import CLIENT_VARIABLES, OutputFormat, OutputOption, assignments
from penstock.cli.output import note, say, show_done, show_json
from penstock.cli.serve import SetOption, check_port_free, make_data_directory
from penstock.testing.processes import LOOPBACK, Deadline, port_responds
from penstock.testing.zookeeper import ZooKeeperMissing, server_command

ZOOKEEPER_PORT = 2181
ZOOKEEPER_DATA = "zookeeper-data"
CLUSTER_PORT = 9092
CLUSTER_DATA = "penstock-cluster"
BROKERS_MAX = 9
ENSEMBLES = (1, 3)
TICK_SECONDS = 0.2
DRAW_TICKS = 5
"""A picture a second: each costs a request to a broker and one to each ZooKeeper."""
RESTART_SECONDS_MAX = 120.0
KILL_SECONDS_MAX = 10.0
POLL_SECONDS = 0.1
LINES_DEFAULT = 20

ClusterDataOption = Annotated[
    Path, typer.Option("--data", "-d", metavar="DIR", file_okay=False, help="The directory of the cluster.")
]
BrokerArgument = Annotated[int, typer.Argument(metavar="BROKER", help="The broker's id.")]

app = typer.Typer(no_args_is_help=True, help="Run servers on this machine to develop and play with.")


@app.callback()
def dev() -> None:
    """Run servers on this machine to develop and play with."""


@app.command()
def zookeeper(
    port: Annotated[
        int, typer.Option("--port", "-p", min=1, max=65535, help="Where clients connect.")
    ] = ZOOKEEPER_PORT,
    data: Annotated[
        Path, typer.Option("--data", "-d", metavar="DIR", file_okay=False, help="Where its data is kept.")
    ] = Path(ZOOKEEPER_DATA),
) -> None:
    """Run one ZooKeeper in the foreground, on the loopback address. Ctrl-C stops it; its data stays.

    It runs in the process that was started: a signal to its id reaches it.
    """
    if port_responds(port):
        raise Failure(f"something listens on {LOOPBACK}:{port} already", "choose another port with --port")
    try:
        command = server_command(data, port=port)
    except ZooKeeperMissing as missing:
        raise Failure(str(missing)) from None
    except OSError as error:
        raise Failure(f"cannot use {data}: {error.strerror}", "choose another directory with --data") from error
    note(f"ZooKeeper on {LOOPBACK}:{port}, data in {data}; Ctrl-C stops it")
    os.execv(command[0], command)


@app.command()
def up(
    brokers: Annotated[
        int, typer.Option("--brokers", "-n", min=1, max=BROKERS_MAX, help="How many, with ids from 1 on.")
    ] = 3,
    zookeepers: Annotated[int, typer.Option("--zookeepers", help="ZooKeeper servers: 1 or 3.")] = 1,
    port: Annotated[
        int, typer.Option("--port", "-p", min=1, max=65535, help="Of broker 1; the others have the ports after it.")
    ] = CLUSTER_PORT,
    data: Annotated[
        Path, typer.Option("--data", "-d", metavar="DIR", file_okay=False, help="Where all data and logs are kept.")
    ] = Path(CLUSTER_DATA),
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove the data of an earlier cluster there first.")] = False,
    set_: SetOption = None,
) -> None:
    """Run a cluster here: real ZooKeeper and several brokers, until Ctrl-C. Its data stays.

    Topics have three replicas by default, and acks=all waits for two. The other commands of `dev` show the cluster,
    and kill, pause, resume and restart its brokers.
    """
    if zookeepers not in ENSEMBLES:
        raise typer.BadParameter(f"{zookeepers} is not 1 or 3", param_hint="--zookeepers")
    if port + brokers - 1 > 65535:
        raise typer.BadParameter(f"there are no {brokers} ports from {port} on", param_hint="--port")
    settings = assignments(set_ or (), option="--set")
    for name in CLIENT_VARIABLES:
        # A broker would take them for settings.
        os.environ.pop(name, None)
    make_data_directory(data)
    with locked(data):
        prepare(data, brokers=brokers, zookeepers=zookeepers, fresh=fresh, on_step=note)
        for each in range(port, port + brokers):
            check_port_free(f"{LOOPBACK}:{each}", option="--port")
        news = News()
        cluster = DevCluster(
            data, brokers=brokers, zookeepers=zookeepers, port=port, settings=settings, on_step=news.add
        )
        try:
            with cluster:
                run_until_stopped(cluster, news)
        except Interrupted:
            note("stopped before it was up")
            return
    say(f"stopped; its data is in {data}")


class News:
    """What happens to the cluster: lines on stderr, or a line of the live table while there is one."""

    def __init__(self) -> None:
        self.is_drawn = False
        self.last = ""

    def add(self, text: str) -> None:
        self.last = text
        if not self.is_drawn:
            note(text)


def run_until_stopped(cluster: DevCluster, news: News) -> None:
    """Show the cluster and do what is requested of it, until a signal."""
    data = cluster.data
    if not sys.stdout.isatty():
        Snapshot.take(data, cluster.state()).show()
        note(f"ready; Ctrl-C stops it, `penstock dev status --data {data}` shows it")
        sys.stdout.flush()
        while not cluster.wait(TICK_SECONDS):
            cluster.tick()
        return
    from rich.live import Live

    where = "" if data == Path(CLUSTER_DATA) else f" --data {data}"
    hints = f"penstock dev kill|pause|resume|restart BROKER{where}   penstock dev logs -f{where}   Ctrl-C stops all"
    news.last, news.is_drawn = "", True
    try:
        with Live(Snapshot.take(data, cluster.state()).drawn(hints), auto_refresh=False) as live:
            ticks = 0
            while not cluster.wait(TICK_SECONDS):
                cluster.tick()
                ticks += 1
                if ticks % DRAW_TICKS == 0:
                    live.update(Snapshot.take(data, cluster.state()).drawn(hints, news.last), refresh=True)
    finally:
        news.is_drawn = False


@app.command()
def status(data: ClusterDataOption = Path(CLUSTER_DATA), output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the servers of a cluster: their processes, the controller, leaders and in-sync replicas."""
    found = read_state(data)
    if found is None:
        raise Failure(f"there is no cluster in {data}", f"`penstock dev up --data {data}` starts one")
    snapshot = Snapshot.take(data, found)
    if output is OutputFormat.JSON:
        show_json(snapshot.json())
        return
    snapshot.show()
    if not found.is_up:
        note(f"`dev up` does not run; `penstock dev up --data {data}` starts the cluster on its data")


@app.command()
def kill(
    broker: BrokerArgument, data: ClusterDataOption = Path(CLUSTER_DATA), output: OutputOption = OutputFormat.TABLE
) -> None:
    """End a broker at once with SIGKILL, as a crash does. `restart` starts it again."""
    process = process_of(running_state(data).broker(broker))
    process.send_signal(signal.SIGKILL)
    if not ended_within([process], KILL_SECONDS_MAX):
        raise Failure(f"process {process.pid} of broker {broker} has not ended")
    show_done(output, f"killed broker {broker} (process {process.pid})", {"broker": broker, "killed": process.pid})


@app.command()
def pause(
    broker: BrokerArgument, data: ClusterDataOption = Path(CLUSTER_DATA), output: OutputOption = OutputFormat.TABLE
) -> None:
    """Pause a broker with SIGSTOP: its connections stay open, and it does not respond."""
    process = process_of(running_state(data).broker(broker))
    process.send_signal(signal.SIGSTOP)
    show_done(output, f"paused broker {broker} (process {process.pid})", {"broker": broker, "paused": process.pid})


@app.command()
def resume(
    broker: BrokerArgument, data: ClusterDataOption = Path(CLUSTER_DATA), output: OutputOption = OutputFormat.TABLE
) -> None:
    """Let a paused broker go on."""
    process = process_of(running_state(data).broker(broker))
    process.send_signal(signal.SIGCONT)
    show_done(output, f"resumed broker {broker} (process {process.pid})", {"broker": broker, "resumed": process.pid})


@app.command()
def restart(
    broker: BrokerArgument, data: ClusterDataOption = Path(CLUSTER_DATA), output: OutputOption = OutputFormat.TABLE
) -> None:
    """Stop a broker cleanly, if it runs, and start it on its data; return when it is live."""
    before = running_state(data).broker(broker).process
    request_restart(data, broker)
    deadline, poll = Deadline(RESTART_SECONDS_MAX), Event()
    while True:
        now = running_state(data).broker(broker)
        # It listens once it is admitted; the others may still see the session of its former life.
        if now.state() is not None and now.process != before and broker in live_brokers([now]):
            break
        if deadline.passed:
            raise Failure(
                f"broker {broker} is not live after {RESTART_SECONDS_MAX:g} s",
                f"`penstock dev logs {broker} --data {data}` shows what it does",
            )
        poll.wait(POLL_SECONDS)
    pid = process_of(now).pid
    show_done(output, f"restarted broker {broker} (process {pid})", {"broker": broker, "pid": pid})


@app.command()
def logs(
    broker: Annotated[int | None, typer.Argument(metavar="[BROKER]", help="Only of this broker.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until Ctrl-C.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="So many of the last lines of each broker.")
    ] = LINES_DEFAULT,
    data: ClusterDataOption = Path(CLUSTER_DATA),
) -> None:
    """Show the last lines of the brokers' logs."""
    found = read_state(data)
    if found is None:
        raise Failure(f"there is no cluster in {data}", f"`penstock dev up --data {data}` starts one")
    shown = found.brokers if broker is None else (found.broker(broker),)
    files = [(each.number, open_log(each)) for each in shown]
    for number, file in files:
        say(*(f"{number} | {line.rstrip()}" for line in deque(file, maxlen=lines)))
    poll = Event()
    while follow:
        for number, file in files:
            say(*(f"{number} | {line.rstrip()}" for line in file))
        sys.stdout.flush()
        poll.wait(POLL_SECONDS)


def open_log(server: Server) -> TextIO:
    try:
        return open(server.log, encoding="utf-8", errors="replace")
    except OSError as error:
        raise Failure(f"cannot read {server.log}: {(error.strerror or str(error)).lower()}") from None


def process_of(server: Server) -> Process:
    """The process of a broker; Failure if it has none."""
    if server.process is None or server.state() is None:
        raise Failure(f"broker {server.number} does not run", f"`penstock dev restart {server.number}` starts it")
    return server.process
