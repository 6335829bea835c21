"""`penstock log adopt`: turns logs that the metadata does not know into topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import OutputFormat, OutputOption, assignments
from penstock.cli.output import counted, show_done, show_rows

if TYPE_CHECKING:
    from penstock.controller.adoption import Adoption, OrphanTopic
    from penstock.model.topic import TopicState

DATA = Path("penstock-data")


def adopt(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="The topic to adopt; without one, list all.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", metavar="DIR", help="A log directory; repeat for more, the one with the metadata first."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="The topic's new name.")] = None,
    topic_id: Annotated[
        str | None, typer.Option("--id", metavar="HEX", help="The topic id, if several topics had the name.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Partitions, if the last ones never had a record.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; repeat for more.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Set aside the logs of the topic that has the name now.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Turn logs that were set aside, or whose metadata is lost, into a topic. The broker must be stopped."""
    import asyncio

    paths = [DATA] if data is None else data
    for path in paths:
        if not path.is_dir():
            raise Failure(f"{path} is not a directory", "name the broker's log directories with --data DIR")
    configs = assignments(config or (), option="--config")
    asyncio.run(_run([path.absolute() for path in paths], topic, topic_id, name, partitions, configs, replace, output))


async def _run(
    paths: list[Path],
    topic: str | None,
    topic_id: str | None,
    name: str | None,
    partitions: int | None,
    configs: dict[str, str],
    replace: bool,
    output: OutputFormat,
) -> None:
    from penstock.controller.adoption import Adoption, AdoptionRefused, DataDirectories, read_image
    from penstock.controller.migration import migrate_topics
    from penstock.metadata.embedded import FILE_NAME, EmbeddedStore, StoreDamaged, StoreInUse
    from penstock.metadata.image import MetadataImage
    from penstock.metadata.store import StoreUnavailable
    from penstock.model.errors import BrokerError
    from penstock.storage.disk import RealDisk

    directories = DataDirectories([str(path) for path in paths], RealDisk())
    try:
        with directories.locked():
            if topic is None and not (paths[0] / FILE_NAME).exists():
                show_orphans(directories.orphans(MetadataImage()), output)
                return
            store = await EmbeddedStore.open(paths[0])
            try:
                await migrate_topics(store)
                orphans = directories.orphans(await read_image(store))
                if topic is None:
                    show_orphans(orphans, output)
                    return
                orphan = chosen(orphans, topic, topic_id)
                adoption = Adoption(
                    orphan=orphan, name=name or topic, partitions=partitions, configs=configs, replace=replace
                )
                adopted = await _adopt(store, directories, adoption)
            finally:
                await store.close()
    except AdoptionRefused as refused:
        raise Failure(str(refused), refused.hint) from None
    except (StoreInUse, StoreDamaged, StoreUnavailable, BrokerError, OSError) as error:
        raise Failure(
            f"nothing was adopted: {error}", "stop the broker first, and see `penstock log adopt -h`"
        ) from error
    show_adopted(adoption, adopted, output)


async def _adopt(store: Any, directories: Any, adoption: Adoption) -> TopicState:
    from penstock.controller.adoption import AdoptionRefused, adopt
    from penstock.controller.membership import bootstrap_cluster
    from penstock.model.clock import SystemRandomness

    broker_id, cluster_id = directories.broker_id(), directories.cluster_id()
    if broker_id is None or cluster_id is None:
        raise AdoptionRefused("no directory names its broker", "start the broker once, and stop it")
    await bootstrap_cluster(store, lambda: cluster_id)
    return await adopt(store, directories, adoption, broker_id=broker_id, randomness=SystemRandomness())


def chosen(orphans: list[OrphanTopic], topic: str, topic_id: str | None) -> OrphanTopic:
    found = [each for each in orphans if each.name == topic and topic_id in (None, each.topic_id.hex())]
    if not found:
        raise Failure(f"no log of a topic {topic} is set aside here", "`penstock log adopt` without a topic lists them")
    if len(found) > 1:
        ids = ", ".join(each.topic_id.hex() for each in found)
        raise Failure(f"{len(found)} topics had the name {topic}: {ids}", "choose one with --id")
    return found[0]


def show_orphans(orphans: list[OrphanTopic], output: OutputFormat) -> None:
    rows = [
        (orphan.name, log.tp.partition, orphan.topic_id.hex(), log.reason.value, log.path)
        for orphan in orphans
        for _, log in sorted(orphan.logs.items())
    ]
    columns = ("topic", "partition", "topic_id", "reason", "path")
    show_rows(output, columns, rows, empty="the metadata knows every log, and none is set aside")


def show_adopted(adoption: Adoption, topic: TopicState, output: OutputFormat) -> None:
    settings = ", ".join(f"{key}={value}" for key, value in topic.configs.items())
    facts = {
        "topic": topic.name,
        "topic_id": topic.topic_id.hex(),
        "partitions": len(topic.partitions),
        "logs": sorted(adoption.orphan.logs),
        "configs": dict(topic.configs),
    }
    show_done(
        output,
        f"adopted {counted(len(adoption.orphan.logs), 'log')} as topic {topic.name}, which has "
        f"{counted(len(topic.partitions), 'partition')} and {settings}; the next start of the broker serves it",
        facts,
    )
