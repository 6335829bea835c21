"""`penstock up` and `penstock broker`: become the broker process."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import CLIENT_VARIABLES, assignments
from penstock.cli.output import note
from penstock.client.connection import parse_address

LISTEN_DEFAULT = "localhost:9092"
DATA_DEFAULT = "penstock-data"
PRIVATE_MODE = 0o700

ListenOption = Annotated[
    str | None, typer.Option("--listen", "-l", metavar="HOST:PORT", help=f"Where to listen; {LISTEN_DEFAULT} if unset.")
]
DataOption = Annotated[str | None, typer.Option("--data", "-d", metavar="DIR", help="Where the data is kept.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", exists=True, dir_okay=False, help="TOML or server.properties."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting; overrides file and environment."),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure-listen", help="Allow an address that other machines reach without authentication.")
]
LogLevelOption = Annotated[
    str | None,
    typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error; the setting log.level."),
]
LogFormatOption = Annotated[
    str | None, typer.Option("--log-format", metavar="FORMAT", help="auto, text or json; the setting log.format.")
]
ZooKeeperOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT,.../PATH",
        help="ZooKeeper's servers, and the path below which the cluster's metadata is; the setting zookeeper.connect.",
    ),
]
NodeIdOption = Annotated[
    int | None, typer.Option("--node-id", metavar="ID", min=0, help="The broker's id; the setting node.id.")
]
ProcessesOption = Annotated[
    int,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        help="Run N brokers, each a process, with ids and ports from the first one's on: a cluster on one host.",
    ),
]


def up(
    listen: ListenOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    insecure_listen: InsecureOption = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    processes: ProcessesOption = 1,
) -> None:
    """Start a broker here, with its data in ./penstock-data.

    Stop it with Ctrl-C: it closes its logs, so that the next start is fast.
    """
    where = data
    if where is None and config is None:
        where = DATA_DEFAULT
    arguments = broker_arguments(listen, where, config, set_, insecure_listen)
    arguments += [*log_arguments(log_level, log_format), *processes_arguments(processes)]
    if where is not None:
        make_data_directory(Path(where))
    if listen is not None or config is None:
        place = listen or LISTEN_DEFAULT
        check_port_free(place)
        what = "starting" if processes == 1 else f"starting {processes} brokers, the first"
        stops = "Ctrl-C stops it" if processes == 1 else "Ctrl-C stops them"
        note(f"{what} on {place}, data in {where or 'the configured directories'}; {stops}")
    become_broker(arguments)


def broker(
    listen: ListenOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    insecure_listen: InsecureOption = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    processes: ProcessesOption = 1,
    zookeeper: ZooKeeperOption = None,
    node_id: NodeIdOption = None,
) -> None:
    """Run a broker as a service: no greeting, JSON logs off a terminal."""
    arguments = broker_arguments(listen, data, config, set_, insecure_listen)
    if zookeeper is not None:
        arguments += ["--zookeeper", zookeeper]
    if node_id is not None:
        arguments += ["--set", f"node.id={node_id}"]
    become_broker([*arguments, *log_arguments(log_level, log_format), *processes_arguments(processes)])


def broker_arguments(
    listen: str | None, data: str | None, config: Path | None, settings: list[str] | None, insecure_listen: bool
) -> list[str]:
    """The equivalent flags of `python -m penstock.broker`."""
    arguments: list[str] = []
    if listen is not None:
        arguments += ["--listen", listen]
    if data is not None:
        if not data or "," in data or data != data.strip():
            hint = "say --set log.dirs=DIR,DIR for several"
            raise typer.BadParameter(f"{data!r} is not one directory: {hint}", param_hint="--data")
        arguments += ["--data", data]
    if config is not None:
        arguments += ["--config", str(config)]
    for name, value in assignments(settings or (), option="--set").items():
        arguments += ["--set", f"{name}={value}"]
    if insecure_listen:
        arguments.append("--insecure-listen")
    return arguments


def log_arguments(level: str | None, log_format: str | None) -> list[str]:
    """The options as settings, which the broker checks."""
    given = {"log.level": level, "log.format": log_format}
    return [part for name, value in given.items() if value is not None for part in ("--set", f"{name}={value}")]


def processes_arguments(processes: int) -> list[str]:
    return [] if processes == 1 else ["--processes", str(processes)]


def make_data_directory(data: Path) -> None:
    """Create the data directory, so that the first start needs no preparation."""
    try:
        data.mkdir(PRIVATE_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(
            f"cannot create the data directory {data}: {error.strerror}", "choose another one with --data DIR"
        ) from error
    if not os.access(data, os.W_OK | os.X_OK):
        raise Failure(f"cannot write to the data directory {data}", "choose another one with --data DIR")


def check_port_free(listen: str, *, option: str = "--listen") -> None:
    """Fail with one line if the port is in use, before the broker starts; `option` is where the user chose it."""
    host, port = parse_address(listen)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise Failure(f"{host} is not an address of this machine: {error.strerror}", "see --listen") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            other = f"{host}:{port + 1}" if option == "--listen" else "PORT"
            raise Failure(
                f"cannot listen on {listen}: {(error.strerror or str(error)).lower()}",
                f"another broker may run there; choose another port with {option} {other}",
            ) from error


def become_broker(arguments: list[str]) -> None:
    """Replace this process, so that the broker holds none of the command line's code and gets its signals itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {name: value for name, value in os.environ.items() if name not in CLIENT_VARIABLES}
    os.execve(sys.executable, [sys.executable, "-m", "penstock.broker", *arguments], environment)
