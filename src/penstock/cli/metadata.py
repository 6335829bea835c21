"""`penstock metadata`: a cluster's metadata to a file, and from a file into another store."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import OutputFormat, OutputOption, assignments
from penstock.cli.output import counted, note, show_done

if TYPE_CHECKING:
    from penstock.config.broker import BrokerConfig
    from penstock.metadata.export_file import Export, Raise
    from penstock.metadata.store import MetadataStore

DATA_DEFAULT = "penstock-data"
PRIVATE_UMASK = 0o077
SESSION_MS = 30_000

app = typer.Typer(
    help="Move a cluster's metadata to another store, back it up and restore it.",
    no_args_is_help=True,
    add_completion=False,
)

DataOption = Annotated[
    str | None,
    typer.Option("--data", "-d", metavar="DIR", help=f"The first data directory of a broker; {DATA_DEFAULT} if unset."),
]
ZooKeeperOption = Annotated[
    str | None, typer.Option("--zookeeper", metavar="HOST:PORT,.../PATH", help="The store of a cluster in ZooKeeper.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="The broker's settings, which name its store.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the broker, such as those of ZooKeeper's TLS."),
]


@app.callback()
def metadata() -> None:
    """Move a cluster's metadata to another store, back it up and restore it."""


@app.command("export")
def export_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    data: DataOption = None,
    zookeeper: ZooKeeperOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write the metadata of a cluster to a file: topics, partitions, settings, quotas. Records stay where they are.

    Stop the brokers first if the file is to move the cluster. Brokers of `--processes` and of ZooKeeper may run while a
    backup is made.
    """
    import asyncio

    if file.exists() and not force:
        raise Failure(f"{file} exists", "choose another name, or replace it with --force")
    asyncio.run(_export(file, settings_of(data, zookeeper, config, set_), output))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="An exported file.")],
    data: DataOption = None,
    zookeeper: ZooKeeperOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--raise",
            metavar="N",
            min=1,
            help="Raise epochs by N and by one for each minute since the export; 1000 if unset.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Fill an empty store with exported metadata, so that brokers start there with their data directories as they are.

    Leader epochs, partition epochs, the controller epoch and producer ids are raised, so that nothing is assigned again
    that was assigned after the export. A store with a cluster is refused. An interrupted import is repeated with the
    same command; until then no broker starts on that store.
    """
    import asyncio

    asyncio.run(_import(file, settings_of(data, zookeeper, config, set_), epochs, output))


def settings_of(
    data: str | None, zookeeper: str | None, config: Path | None, settings: list[str] | None
) -> BrokerConfig:
    """The settings of a broker that uses the store."""
    from penstock.config.load import ConfigFault, load

    if data is not None and zookeeper is not None:
        raise typer.BadParameter("--data and --zookeeper name two stores: choose one")
    given = assignments(settings or (), option="--set")
    if zookeeper is not None:
        given["zookeeper.connect"] = zookeeper
    elif data is not None:
        given |= {"log.dirs": data, "zookeeper.connect": ""}
    elif config is None:
        given.setdefault("log.dirs", DATA_DEFAULT)
    try:
        return load(file=config, env=os.environ, flags=given)
    except ConfigFault as fault:
        raise Failure(str(fault)) from None


async def _export(file: Path, config: BrokerConfig, output: OutputFormat) -> None:
    from penstock.controller.migration import migrate_topics
    from penstock.metadata.embedded import EmbeddedStore
    from penstock.metadata.export_file import encode
    from penstock.metadata.transfer import export_from, facts_of, topics_in
    from penstock.model.clock import SystemClock

    async with opened(config, to_fill=False) as (store, where):
        if isinstance(store, EmbeddedStore):
            await migrate_topics(store)
        export, running = await export_from(store, now_ms=SystemClock().now_ms())
    os.umask(PRIVATE_UMASK)
    write_file(file, encode(export))
    if running:
        brokers = ", ".join(map(str, running))
        note(f"brokers {brokers} are running: what they change from now on is not in the file")
    show_done(
        output,
        f"exported cluster {export.cluster_id} from {where} to {file}: {counted(topics_in(export), 'topic')}, "
        f"{counted(len(export.nodes), 'node')}",
        {"file": str(file), "store": where, "running": running, **facts_of(export)},
    )


async def _import(file: Path, config: BrokerConfig, epochs: int | None, output: OutputFormat) -> None:
    from penstock.metadata.export_file import EPOCH_RAISE, ExportDamaged, decode, raise_of, raised
    from penstock.metadata.transfer import facts_of, import_into
    from penstock.model.clock import SystemClock, SystemRandomness

    try:
        export = decode(file.read_bytes())
        by = raise_of(export, SystemClock().now_ms(), EPOCH_RAISE if epochs is None else epochs)
        nodes = raised(export, by, SystemRandomness().uuid_bytes().hex())
    except ExportDamaged as damaged:
        raise Failure(f"{file} cannot be imported: {damaged}", "export it again, or take another copy") from None
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from error
    if not config.zookeeper_connect:
        check_logs(config, export)
    os.umask(PRIVATE_UMASK)
    async with opened(config, to_fill=True) as (store, where):
        interrupted = await import_into(store, nodes)
    if interrupted:
        note("an import that was interrupted was started over")
    facts = {
        "file": str(file),
        "store": where,
        "epochs_raised_by": by.epochs,
        "producer_ids_raised_by": by.producer_ids,
    }
    show_done(output, sentence(export, by, where), {**facts, **facts_of(export)})


def sentence(export: Export, by: Raise, where: str) -> str:
    from penstock.metadata.transfer import topics_in

    return (
        f"imported cluster {export.cluster_id} into {where}: {counted(topics_in(export), 'topic')}, "
        f"{counted(len(export.nodes), 'node')}; leader, partition and controller epochs are {by.epochs:,} higher, "
        f"producer ids {by.producer_ids:,}. Start the brokers on their data directories with this store, and no longer "
        "with the former one"
    )


def check_logs(config: BrokerConfig, export: Export) -> None:
    """Refuse directories with logs of another cluster."""
    from penstock.storage.directories import CLUSTER_ID, META_PROPERTIES, read_properties

    for directory in config.data_directories:
        with suppress(FileNotFoundError):
            owner = read_properties(Path(directory, META_PROPERTIES).read_bytes()).get(CLUSTER_ID)
            if owner not in (None, export.cluster_id):
                raise Failure(
                    f"{directory} has logs of cluster {owner}, and the file is of cluster {export.cluster_id}",
                    "name the data directory of a broker of that cluster",
                )


@asynccontextmanager
async def opened(config: BrokerConfig, *, to_fill: bool) -> AsyncGenerator[tuple[MetadataStore, str]]:
    """The store that the settings name, and where it is; failures in words."""
    from penstock.metadata.embedded import StoreDamaged, StoreInUse
    from penstock.metadata.store import OutcomeUnknown, StoreUnavailable
    from penstock.metadata.transfer import TransferRefused
    from penstock.storage.directories import StartRefused

    what = "imported" if to_fill else "exported"
    try:
        store, where = await open_store(config, to_fill=to_fill)
        try:
            yield store, where
        finally:
            await store.close()
    except TransferRefused as refused:
        raise Failure(f"nothing was {what}: {refused}", refused.hint) from None
    except StoreInUse as used:
        raise Failure(f"nothing was {what}: {used}", "stop the broker first") from None
    except (StartRefused, StoreDamaged, StoreUnavailable, OutcomeUnknown, OSError) as error:
        hint = "the import can be repeated" if to_fill else ""
        raise Failure(f"not {what}: {error}", hint) from error


async def open_store(config: BrokerConfig, *, to_fill: bool) -> tuple[MetadataStore, str]:
    """The store in ZooKeeper, in a data directory, or of the supervisor that has it open."""
    from penstock.broker.stores import zookeeper_source
    from penstock.metadata.embedded import FILE_NAME, EmbeddedStore, StoreInUse
    from penstock.metadata.shared import SharedStore, socket_path
    from penstock.metadata.store import StoreUnreachable
    from penstock.model.clock import SystemClock

    if config.zookeeper_connect:
        try:
            source = zookeeper_source(config, config.zookeeper_connect, clock=SystemClock(), log=Silence())
            return await source.open(), str(source)
        except ValueError as error:
            raise Failure(f"{config.zookeeper_connect!r} names no servers: {error}", "use HOST:PORT,.../PATH") from None
    directory = Path(config.data_directories[0])
    file = directory / FILE_NAME
    if to_fill:
        directory.mkdir(parents=True, exist_ok=True)
    elif not file.exists():
        raise Failure(f"there is no {file}", "name a broker's first data directory with --data, or --zookeeper")
    try:
        return await EmbeddedStore.open(directory), str(file)
    except StoreInUse:
        if to_fill:
            raise
        try:
            return await SharedStore.open(socket_path(directory), SESSION_MS), str(file)
        except StoreUnreachable:
            pass
        raise


def write_file(file: Path, text: bytes) -> None:
    """Write it whole or not at all."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Failure(f"cannot write {file}: {error.strerror}") from error


class Silence:
    """The log of a store that a command opens: its failures are the command's own words."""

    def debug(self, event: str, /, **fields: Any) -> None:
        pass

    info = warning = error = exception = debug

    def bind(self, **fields: Any) -> Silence:
        return self
