"""`penstock queue`: make queues, and look after their dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import sleep
from typing import Annotated, Any

import typer

from penstock.cli.confirm import confirm
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    YesOption,
    connection,
)
from penstock.cli.output import Number, counted, note, progress, show_done, show_rows
from penstock.client.admin import Admin, Resource
from penstock.client.connection import Connection
from penstock.client.dead_letters import DeadLetter
from penstock.client.group_reader import GroupReader
from penstock.client.positions import Beginning, End, PositionRange, resolve
from penstock.client.reader import Reader
from penstock.client.records import Record
from penstock.client.sender import Sender
from penstock.model.clock import SystemClock

app = typer.Typer(help="Make queues, and look after their dead letters.", no_args_is_help=True, add_completion=False)
dlq = typer.Typer(help="List, show and send back dead letters.", no_args_is_help=True, add_completion=False)
app.add_typer(dlq, name="dlq")

BROKER_DEFAULT = -1
DEAD_PREFIX = "dlq."
REDRIVER = "penstock.redrive"
"""The consumer group whose offsets say which dead letters have been sent back."""

REDRIVES_MAX_DEFAULT = 3
SHOWN_DEFAULT = 20
VALUE_BYTES_SHOWN_MAX = 60
LIST_COLUMNS = ("topic", Number("partitions"), Number("letters"))
SHOW_COLUMNS = (
    "letter",
    "from",
    "group",
    Number("deliveries"),
    Number("redriven"),
    "key",
    "value",
    "reason",
)
REDRIVE_COLUMNS = ("letter", "to", "key", Number("redriven"), "outcome")


@app.command()
def create(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The topic's name.")],
    group: Annotated[str, typer.Option("--group", "-g", help="The share group that works on it.")],
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="How many.")] = None,
    dead: Annotated[bool, typer.Option("--dlq/--no-dlq", help="Give it a dead-letter topic, dlq.QUEUE.")] = True,
    consume: Annotated[
        bool, typer.Option("--consume/--keep", help="Remove records once the group has finished them.")
    ] = False,
    deliveries: Annotated[
        int | None, typer.Option("--deliveries", min=1, help="Deliveries before a record is given up.")
    ] = None,
    backoff_ms: Annotated[
        int | None, typer.Option("--backoff-ms", min=0, help="How long a released record waits.")
    ] = None,
    by_key: Annotated[bool, typer.Option("--by-key", help="Keep records of a key in order.")] = False,
    dedupe: Annotated[
        int | None, typer.Option("--dedupe", min=1, help="Remove messages repeated within so many offsets.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Create a topic and configure the share group that works on it, from its first record on.

    penstock queue create jobs --group workers
    penstock queue create mails --group mailers --consume --backoff-ms 1000 --by-key
    """
    admin = Admin(connection(bootstrap, properties))
    configs: dict[str, str] = {"cleanup.policy": "consume", "consume.group": group} if consume else {}
    if dedupe is not None:
        configs["dedupe.window.records"] = str(dedupe)
    wanted = {"share.auto.offset.reset": "earliest"}
    if deliveries is not None:
        wanted["share.delivery.count.limit"] = str(deliveries)
    if backoff_ms is not None:
        wanted["share.retry.backoff.ms"] = str(backoff_ms)
    if by_key:
        wanted["share.order"] = "key"
    letters = f"{DEAD_PREFIX}{queue}"
    admin.create(queue, partitions=partitions or BROKER_DEFAULT, replicas=BROKER_DEFAULT, configs=configs)
    made = admin.described_when_led(queue)
    if dead:
        admin.create(
            letters,
            partitions=len(made.partitions),
            replicas=BROKER_DEFAULT,
            configs={"errors.deadletterqueue.group.enable": "true"},
        )
        wanted["errors.deadletterqueue.topic.name"] = letters
    # Last: a group that exists half is worse than topics that nobody uses yet.
    admin.alter(Resource(kind="group", name=group), put=wanted, remove=())
    facts = {"queue": queue, "group": group, "partitions": len(made.partitions), "dlq": letters if dead else None}
    where = f", dead letters in {letters}" if dead else ""
    show_done(
        output, f"created {queue} with {counted(len(made.partitions), 'partition')} for group {group}{where}", facts
    )


@dlq.command("list")
def list_(
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List the topics of dead letters, and how many each has."""
    admin = Admin(connection(bootstrap, properties))
    rows: list[tuple[object, ...]] = []
    for topic in admin.topics():
        if not topic.name.startswith(DEAD_PREFIX):
            continue
        bounds = admin.bounds(topic.name, [each.partition for each in topic.partitions])
        rows.append((topic.name, len(bounds), sum(held.end - held.start for held in bounds.values())))
    show_rows(output, LIST_COLUMNS, rows, empty="there are no topics of dead letters")


@dlq.command()
def show(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of dead letters.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = SHOWN_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show dead letters: where they are from, why they are there, and what they say."""
    where = connection(bootstrap, properties)
    rows: list[tuple[object, ...]] = []
    for letter in letters_of(where, topic):
        rows.append(
            (
                place_of(letter.record),
                f"{letter.topic}-{letter.partition}@{letter.offset}",
                letter.group,
                letter.deliveries,
                letter.redriven,
                text_of(letter.record.key),
                text_of(letter.record.value),
                letter.reason,
            )
        )
        if len(rows) == count:
            break
    show_rows(output, SHOW_COLUMNS, rows, empty=f"there are no dead letters in {topic}")


@dlq.command()
def redrive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of dead letters.")],
    rate: Annotated[float | None, typer.Option("--rate", min=0.1, help="At most so many in a second.")] = None,
    redrives_max: Annotated[
        int, typer.Option("--redrives-max", min=1, help="Leave those that came back so often already.")
    ] = REDRIVES_MAX_DEFAULT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Send dead letters back to the topics that they are from, those that an earlier run has not sent.

    They go back as new records, with the header `penstock-redriven`, which counts how often. The letters stay; the
    offsets of the group `penstock.redrive` say how far this has come, so that an interrupted run can be repeated.
    """
    where = connection(bootstrap, properties)
    admin = Admin(where)
    admin.describe(topic)
    if dry_run:
        rows = [row_of(letter, redrives_max) for letter in letters_of(where, topic)]
        show_rows(output, REDRIVE_COLUMNS, rows, empty=f"there are no dead letters in {topic}")
        return
    confirm(f"send the dead letters of {topic} back?", yes)
    sender = Sender(where, acks="all", enable_idempotence=True)
    sent = left = 0
    clock = SystemClock()
    begun_s = clock.monotonic()
    with (
        GroupReader(where, [topic], REDRIVER, follow=False, isolation_level="read_committed") as reader,
        progress("sending back", None, unit="letters", show=output is not OutputFormat.JSON) as bar,
    ):
        for batch in reader.batches():
            for letter in dead_letters(batch):
                if outcome_of(letter, redrives_max) != "sent":
                    left += 1
                    continue
                if rate is not None:
                    sleep(max(0.0, begun_s + sent / rate - clock.monotonic()))
                sender.send(letter.topic, letter.record.value, key=letter.record.key, headers=letter.headers_back())
                sent += 1
                bar.advance(sent)
            # Only what has arrived counts as sent back.
            sender.flush()
            reader.mark_read(batch)
    if left:
        note(f"{counted(left, 'letter')} left: `penstock queue dlq redrive {topic} --dry-run` says why")
    show_done(output, f"sent {counted(sent, 'letter')} back", {"topic": topic, "sent": sent, "left": left})


def letters_of(where: Connection, topic: str) -> Iterator[DeadLetter]:
    """All dead letters of a topic."""
    admin = Admin(where)
    partitions = [each.partition for each in admin.describe(topic).partitions]
    spans = resolve(PositionRange(start=Beginning(), stop=End()), admin.bounds(topic, partitions), follow=False)
    with Reader(where, {topic: spans}, isolation_level="read_committed") as reader:
        for batch in reader.batches():
            yield from dead_letters(batch)


def dead_letters(messages: Iterable[Any]) -> Iterator[DeadLetter]:
    for message in messages:
        letter = DeadLetter.of(Record.of(message))
        if letter is not None:
            yield letter


def outcome_of(letter: DeadLetter, redrives_max: int) -> str:
    """What becomes of a letter: sent, or why it is left."""
    if not letter.has_copy:
        return "no copy"
    return "sent" if letter.redriven < redrives_max else "came back too often"


def row_of(letter: DeadLetter, redrives_max: int) -> Sequence[object]:
    outcome = outcome_of(letter, redrives_max)
    return place_of(letter.record), letter.topic, text_of(letter.record.key), letter.redriven, outcome


def place_of(record: Record) -> str:
    return f"{record.partition}@{record.offset}"


def text_of(data: bytes | None) -> str:
    """A key or a value for a table."""
    if data is None:
        return ""
    cut = data[:VALUE_BYTES_SHOWN_MAX].decode(errors="replace")
    return f"{cut}..." if len(data) > VALUE_BYTES_SHOWN_MAX else cut
