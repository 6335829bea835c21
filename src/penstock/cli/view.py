"""`penstock topic view`: create, list and describe filtered views, and test a filter before there is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    connection,
)
from penstock.cli.output import Number, counted, say, show_done, show_json, show_rows, show_table
from penstock.client.admin import Admin, Resource
from penstock.client.positions import BeforeEnd, End, PositionRange, resolve
from penstock.client.reader import Reader
from penstock.client.records import Record
from penstock.model.clock import SystemClock
from penstock.model.printable import printable
from penstock.model.topic import VIEW_FILTER, VIEW_OF

if TYPE_CHECKING:
    from penstock.views.single import Filter, SingleRecord

app = typer.Typer(
    help="Create, list and describe filtered views of topics, and test a filter.",
    no_args_is_help=True,
    add_completion=False,
)

ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="The view's name.")]
WhereOption = Annotated[
    str, typer.Option("--where", "-w", metavar="CONDITION", help='As in SQL\'s WHERE: "value.amount > 100".')
]
BROKER_DEFAULT = -1
SHOWN_MAX = 5
TEXT_SHOWN_MAX = 60
LIST_COLUMNS = ("view", "of", "where")
DESCRIBE_COLUMNS = (Number("partition"), Number("leader"), Number("start"), Number("end"))
PASSES, DOES_NOT = "true", "false"
VERDICTS = {
    PASSES: "pass",
    DOES_NOT: "do not",
    "null": "are NULL, and do not",
    "undefined": "have no value, as an operation does not fit their types, and do not",
}


@app.command()
def create(
    view: ViewArgument,
    of: Annotated[str, typer.Option("--of", metavar="TOPIC", help="The topic whose records it shows.")],
    where: WhereOption,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Create a view: any client reads it as a topic, and gets the records that meet the condition.

    It has its parent's partitions and offsets, and a name, an id and committed offsets of its own.
    """
    filter_of(where)
    admin = Admin(connection(bootstrap, properties))
    admin.create(view, partitions=BROKER_DEFAULT, replicas=BROKER_DEFAULT, configs={VIEW_OF: of, VIEW_FILTER: where})
    made = admin.described_when_led(view)
    facts = {"view": view, "of": of, "where": where, "id": made.topic_id, "partitions": len(made.partitions)}
    show_done(output, f"created {view}, a view of {of} with {counted(len(made.partitions), 'partition')}", facts)


@app.command("list")
def list_(
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List views."""
    admin = Admin(connection(bootstrap, properties))
    rows: list[tuple[object, ...]] = []
    for topic in admin.topics():
        if not topic.internal:
            settings = settings_of(admin, topic.name)
            if settings.get(VIEW_OF):
                rows.append((topic.name, settings[VIEW_OF], settings[VIEW_FILTER]))
    show_rows(output, LIST_COLUMNS, rows, empty="there are no views yet; `penstock topic view create` makes one")


@app.command()
def describe(
    view: ViewArgument,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show a view's parent, its filter, and where its partitions begin and end."""
    admin = Admin(connection(bootstrap, properties))
    found, settings = admin.describe(view), settings_of(admin, view)
    if not settings.get(VIEW_OF):
        raise Failure(f"{view} is a topic and no view", "`penstock topic describe` shows topics")
    led = [each.partition for each in found.partitions if each.leader >= 0]
    bounds = admin.bounds(view, led) if led else {}
    rows: list[tuple[object, ...]] = []
    for each in found.partitions:
        held = bounds.get(each.partition)
        rows.append((each.partition, each.leader, *((None, None) if held is None else (held.start, held.end))))
    if output is OutputFormat.JSON:
        partitions = [dict(zip(DESCRIBE_COLUMNS, row, strict=True)) for row in rows]
        where = settings[VIEW_FILTER]
        facts = {"view": view, "id": found.topic_id, "of": settings[VIEW_OF], "where": where}
        show_json({**facts, "partitions": partitions})
        return
    say(f"{view}  id {found.topic_id}  {counted(len(rows), 'partition')}", f"  of    {settings[VIEW_OF]}")
    say(f"  where {settings[VIEW_FILTER]}")
    show_table(DESCRIBE_COLUMNS, rows)


@app.command("test")
def try_filter(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    where: WhereOption,
    last: Annotated[
        int, typer.Option("--last", "-n", min=1, max=1_000_000, help="Try it on so many records, the newest.")
    ] = 1_000,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Try a filter on the newest records of a topic: what would pass, what is NULL, and what it costs.

    It runs here, and changes nothing. The cost is of this machine, for the filter alone.
    """
    wanted = filter_of(where)
    result = Trial(wanted)
    for record in newest(connection(bootstrap, properties), topic, last):
        result.add(record)
    if output is OutputFormat.JSON:
        show_json({"topic": topic, "where": where, **result.facts()})
        return
    say(*result.lines())


class Trial:
    """What a filter is for some records, with examples."""

    def __init__(self, wanted: Filter) -> None:
        self._filter = wanted
        self._clock = SystemClock()
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[Record]] = {each: [] for each in VERDICTS}
        self._undecodable = 0
        self._seconds = 0.0

    def add(self, record: Record) -> None:
        one = single(record)
        began = self._clock.monotonic()
        verdict = self._filter.verdict(one).value
        self._seconds += self._clock.monotonic() - began
        self._counts[verdict] += 1
        self._undecodable += one.undecodable
        if len(self._examples[verdict]) < SHOWN_MAX:
            self._examples[verdict].append(record)

    @property
    def _microseconds(self) -> float:
        return self._seconds * 1e6 / max(self._counts.total(), 1)

    def facts(self) -> dict[str, Any]:
        return {
            "records": self._counts.total(),
            **{each: self._counts[each] for each in VERDICTS},
            "undecodable": self._undecodable,
            "microseconds_per_record": round(self._microseconds, 3),
            "examples": {
                each: [{"partition": one.partition, "offset": one.offset} for one in self._examples[each]]
                for each in VERDICTS
            },
        }

    def lines(self) -> Iterator[str]:
        total = self._counts.total()
        if not total:
            yield "the topic has no records"
            return
        yield f"{counted(total, 'record')}, {self._microseconds:.2f} microseconds each"
        for verdict, meaning in VERDICTS.items():
            count = self._counts[verdict]
            if count or verdict == PASSES:
                yield f"{count:>10,}  {100 * count / total:5.1f} %  {meaning}"
                for record in self._examples[verdict] if verdict != DOES_NOT else ():
                    yield f"              {record.partition}:{record.offset}  {shown(record)}"
        if self._undecodable:
            yield f"{self._undecodable:>10,}           have a part that is not JSON, or not UTF-8: it is NULL"


def filter_of(text: str) -> Filter:
    """The filter of an option's text; the fault and its place are the error."""
    from penstock.views.language import FilterError
    from penstock.views.single import Filter

    try:
        return Filter(text)
    except FilterError as error:
        raise typer.BadParameter(str(error), param_hint="--where") from None


def single(record: Record) -> SingleRecord:
    from penstock.views.single import SingleRecord

    return SingleRecord(
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp_ms=record.timestamp_ms,
        partition=record.partition,
        offset=record.offset,
    )


def newest(where: Any, topic: str, count: int) -> Iterator[Record]:
    """About so many of the newest records, in equal shares of the partitions."""
    admin = Admin(where)
    partitions = [each.partition for each in admin.describe(topic).partitions]
    share = -(-count // len(partitions))
    wanted = PositionRange(start=BeforeEnd(share), stop=End())
    spans = resolve(wanted, admin.bounds(topic, partitions), follow=False)
    with Reader(where, {topic: spans}, isolation_level="read_committed") as reader:
        for batch in reader.batches():
            yield from map(Record.of, batch)


def settings_of(admin: Admin, topic: str) -> dict[str, str]:
    """The settings that a topic was given."""
    configs = admin.configs(Resource(kind="topic", name=topic))
    return {each.name: each.value or "" for each in configs if not each.default}


def shown(record: Record) -> str:
    """The beginning of a value."""
    text = "no value" if record.value is None else record.value.decode(errors="replace")
    cut = text if len(text) <= TEXT_SHOWN_MAX else f"{text[:TEXT_SHOWN_MAX]}..."
    return printable(cut)
