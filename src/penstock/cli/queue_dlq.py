"""`penstock queue dlq`: list, show and send back dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import sleep
from typing import Annotated, Any

import typer

from penstock.cli.confirm import confirm
from penstock.cli.consume import Passes, passing
from penstock.cli.failure import Failure
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    YesOption,
    connection,
)
from penstock.cli.output import Number, counted, note, progress, say, show_json, show_rows, show_table
from penstock.client.admin import Admin
from penstock.client.connection import Connection
from penstock.client.dead_letters import DeadLetter, Redriven
from penstock.client.group_reader import GroupReader
from penstock.client.groups import Groups, Place
from penstock.client.positions import Beginning, End, PositionRange, resolve
from penstock.client.reader import Reader
from penstock.client.records import Record
from penstock.client.sender import Sender
from penstock.model.clock import SystemClock

app = typer.Typer(help="List, show and send back dead letters.", no_args_is_help=True, add_completion=False)

PREFIX = "dlq."
REDRIVER = "penstock.redrive"
"""The consumer group whose offsets say which dead letters have been sent back."""

REDRIVES_MAX_DEFAULT = 3
SHOWN_DEFAULT = 20
TEXT_BYTES_SHOWN_MAX = 60
SENT, FILTERED = "sent", "does not meet the condition"
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
PROGRESS_COLUMNS = (Number("partition"), Number("sent"), Number("left"), Number("filtered"))


@app.command("list")
def list_(
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List the topics of dead letters, and how many each has."""
    admin = Admin(connection(bootstrap, properties))
    rows: list[tuple[object, ...]] = []
    for topic in admin.topics():
        if not topic.name.startswith(PREFIX):
            continue
        bounds = admin.bounds(topic.name, [each.partition for each in topic.partitions])
        rows.append((topic.name, len(bounds), sum(held.end - held.start for held in bounds.values())))
    show_rows(output, LIST_COLUMNS, rows, empty="there are no topics of dead letters")


@app.command()
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


@app.command()
def redrive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of dead letters.")],
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="CONDITION", help='Only these, as in SQL\'s WHERE: "value.n > 100".'),
    ] = None,
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
    Letters that do not meet the condition of --where wait for another run.

    penstock queue dlq redrive dlq.jobs --dry-run
    penstock queue dlq redrive dlq.jobs --where "value.customer = 7" --rate 10
    """
    passes = None if where is None else passing(where)
    cluster = connection(bootstrap, properties)
    admin = Admin(cluster)
    bounds = admin.bounds(topic, [each.partition for each in admin.describe(topic).partitions])
    before = redriven_before(Groups(cluster), topic)
    if dry_run:
        rows = [
            row_of(letter, outcome_of(letter, redrives_max, passes))
            for letter in letters_of(cluster, topic)
            if not is_redriven(before, letter.record)
        ]
        show_rows(output, REDRIVE_COLUMNS, rows, empty=f"there are no dead letters in {topic} that wait for this")
        return
    confirm(f"send the dead letters of {topic}{'' if where is None else f' where {where}'} back?", yes)
    counts: dict[int, Counter[str]] = {index: Counter() for index in bounds}
    letters = sum(
        held.end - max(held.start, before[index].position if index in before else 0) for index, held in bounds.items()
    )
    with (
        GroupReader(cluster, [topic], REDRIVER, follow=False, isolation_level="read_committed") as reader,
        progress("sending back", letters, unit="letters", show=output is not OutputFormat.JSON) as bar,
    ):
        run = Run(reader, Sender(cluster, acks="all", enable_idempotence=True), rate, redrives_max, passes)
        for batch in reader.batches():
            run.send_back(batch, counts)
            bar.advance(run.looked_at, f"{run.sent} sent")
    show_redriven(output, topic, counts)


class Run:
    """Sends letters back, and commits which."""

    def __init__(
        self, reader: GroupReader, sender: Sender, rate: float | None, redrives_max: int, passes: Passes | None
    ) -> None:
        self._reader = reader
        self._sender = sender
        self._rate = rate
        self._redrives_max = redrives_max
        self._passes = passes
        self._clock = SystemClock()
        self._begun_s = self._clock.monotonic()
        self._done: dict[Place, Redriven] = {}
        self.looked_at = 0
        self.sent = 0

    def send_back(self, batch: Sequence[Any], counts: Mapping[int, Counter[str]]) -> None:
        assigned = self._reader.assigned or frozenset[Place]()
        self._done = {place: each for place, each in self._done.items() if place in assigned}
        full: Place | None = None
        touched: set[Place] = set()
        for message in batch:
            place = message.topic(), message.partition()
            if place not in assigned:
                continue
            done = self._done_of(place, message.offset())
            if done.is_full:
                full = place
                break
            touched.add(place)
            self.looked_at += 1
            letter = DeadLetter.of(Record.of(message))
            if letter is None or done.has(message.offset()):
                done.done(message.offset())
                continue
            outcome = outcome_of(letter, self._redrives_max, self._passes)
            if outcome == FILTERED:
                counts[message.partition()]["filtered"] += 1
                done.leave(message.offset())
                continue
            if outcome == SENT:
                self._send(letter)
            counts[message.partition()]["sent" if outcome == SENT else "left"] += 1
            done.done(message.offset())
        # Only what has arrived counts as sent back.
        self._sender.flush()
        if touched:
            self._reader.commit({place: (self._done[place].position, self._done[place].note) for place in touched})
        if full is not None:
            raise Failure(
                f"partition {full[1]} of {full[0]} has more letters that wait between others than can be noted",
                f"send those from offset {self._done[full].position} on back first, with a wider condition",
            )

    def _send(self, letter: DeadLetter) -> None:
        if self._rate is not None:
            sleep(max(0.0, self._begun_s + self.sent / self._rate - self._clock.monotonic()))
        record = letter.record
        self._sender.send(letter.topic, record.value, key=record.key, headers=letter.headers_back())
        self.sent += 1

    def _done_of(self, place: Place, offset: int) -> Redriven:
        """What earlier runs and this one have dealt with in a partition whose next letter is at an offset."""
        if place not in self._done:
            position, noted = self._reader.committed(place)
            self._done[place] = Redriven(offset if position is None else position, noted)
        return self._done[place]


def show_redriven(output: OutputFormat, topic: str, counts: Mapping[int, Counter[str]]) -> None:
    """What became of the letters of each partition, and of all."""
    rows = [(index, found["sent"], found["left"], found["filtered"]) for index, found in sorted(counts.items())]
    sent, left, filtered = (sum(found[name] for found in counts.values()) for name in ("sent", "left", "filtered"))
    if output is OutputFormat.JSON:
        partitions = [dict(zip(PROGRESS_COLUMNS, row, strict=True)) for row in rows]
        show_json({"topic": topic, "sent": sent, "left": left, "filtered": filtered, "partitions": partitions})
        return
    show_table(PROGRESS_COLUMNS, rows)
    if left:
        note(f"{counted(left, 'letter')} left: they came back too often, or have no copy of their record")
    if filtered:
        note(f"{counted(filtered, 'letter')} did not meet the condition, and wait for another run")
    say(f"sent {counted(sent, 'letter')} back")


def redriven_before(groups: Groups, topic: str) -> dict[int, Redriven]:
    """What earlier runs have dealt with, by partition."""
    if all(each.name != REDRIVER for each in groups.list()):
        return {}
    noted = groups.noted(REDRIVER)
    return {index: Redriven(*found) for (name, index), found in noted.items() if name == topic}


def is_redriven(before: Mapping[int, Redriven], record: Record) -> bool:
    return record.partition in before and before[record.partition].has(record.offset)


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


def outcome_of(letter: DeadLetter, redrives_max: int, passes: Passes | None = None) -> str:
    """What becomes of a letter: sent, or why it is left."""
    if passes is not None and not passes(letter.record):
        return FILTERED
    if not letter.has_copy:
        return "no copy"
    return SENT if letter.redriven < redrives_max else "came back too often"


def row_of(letter: DeadLetter, outcome: str) -> Sequence[object]:
    return place_of(letter.record), letter.topic, text_of(letter.record.key), letter.redriven, outcome


def place_of(record: Record) -> str:
    return f"{record.partition}@{record.offset}"


def text_of(data: bytes | None) -> str:
    """A key or a value for a table."""
    if data is None:
        return ""
    cut = data[:TEXT_BYTES_SHOWN_MAX].decode(errors="replace")
    return f"{cut}..." if len(data) > TEXT_BYTES_SHOWN_MAX else cut
