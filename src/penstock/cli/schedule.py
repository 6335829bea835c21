"""`penstock schedule`: list schedules, show what became of one, move, cancel, pause and resume them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli.failure import Failure
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    connection,
    require_text,
)
from penstock.cli.output import Number, counted, note, show_done, show_rows
from penstock.cli.schedule_options import AT_HELP, CRON_HELP, DELAY_HELP, ZONE_HELP, target_of, when
from penstock.client.admin import Admin, Resource
from penstock.client.connection import Connection
from penstock.client.positions import Span
from penstock.client.reader import Reader
from penstock.client.records import Header, Record
from penstock.client.sender import Sender
from penstock.client.wire_calls import WireCalls, refuse
from penstock.config.log import SCHEDULE_TARGET
from penstock.model.batch import BatchHeader
from penstock.schedules.headers import AFTER, CRON, DELAY, DELIVER_AT, FIRED_BY, PAUSED, ZONE, BadSchedule, read
from penstock.wire import records as wire
from penstock.wire.api import fetch
from penstock.wire.schedule_records import Close, Fire, Outcome, parse

app = typer.Typer(
    help="List schedules, show what became of one, move, cancel, pause and resume them.",
    no_args_is_help=True,
    add_completion=False,
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of schedules.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The schedule: the key of its record.")]
FETCH_VERSION = 12
FETCH_BYTES_MAX = 8 * 1024 * 1024
READ_COMMITTED = 1
OFFSET_OUT_OF_RANGE = 1
TIMES = frozenset({DELIVER_AT, DELAY, CRON, ZONE, AFTER, FIRED_BY, PAUSED})
"""Headers that a move replaces."""
SCHEDULE_PAUSED = "schedule.paused"
NO_FIRE = b"-1"
"""As the fire of a record that the broker wrote: nothing was delivered."""


@app.command("list")
def list_(
    topic: TopicArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, those due first.")] = 100,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List schedules, those due first first."""
    where = connection(bootstrap, properties)
    target = require_schedules(where, topic)
    found = sorted(pending(where, topic).values(), key=lambda record: (due_of(record) is None, due_of(record) or 0))
    rows = [
        (text_of(each.key), time_text(due_of(each)), repeats(each), each.partition, each.offset)
        for each in found[:limit]
    ]
    columns = ("id", "due", "repeats", Number("partition"), Number("offset"))
    show_rows(output, columns, rows, empty=f"{topic} has no schedules for {target}")
    if len(found) > limit and output is OutputFormat.TABLE:
        note(f"{counted(len(found) - limit, 'more schedule')}: see -n")


@app.command()
def show(
    topic: TopicArgument,
    schedule: IdArgument,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show what became of a schedule: its records, and the deliveries that were made of them.

    A change that comes after the delivery has begun is too late, which a producer is not told. Compaction removes what
    is long over.
    """
    where = connection(bootstrap, properties)
    require_schedules(where, topic)
    rows = history_of(where, topic, os.fsencode(schedule))
    if not rows:
        raise Failure(f"{topic} has no record of a schedule {schedule!r}", f"penstock schedule list {topic}")
    columns = ("time", "event", "due", Number("partition"), Number("offset"))
    show_rows(output, columns, rows, empty="")


@app.command()
def cancel(
    topic: TopicArgument,
    schedule: IdArgument,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Cancel a schedule."""
    where = connection(bootstrap, properties)
    found = the_schedule(where, topic, schedule)
    write(where, topic, found, None, ())
    show_done(output, f"cancelled {schedule} in {topic}", {"topic": topic, "id": schedule, "cancelled": True})


@app.command()
def move(
    topic: TopicArgument,
    schedule: IdArgument,
    delay: Annotated[str | None, typer.Option("--delay", metavar="DURATION", help=DELAY_HELP)] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help=AT_HELP)] = None,
    cron: Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help=CRON_HELP)] = None,
    zone: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help=ZONE_HELP)] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Give a schedule another time."""
    wanted = when(delay, at, cron, zone)
    if wanted is None:
        raise typer.BadParameter("give the new time: --delay, --at or --cron")
    where = connection(bootstrap, properties)
    found = the_schedule(where, topic, schedule)
    kept = [each for each in found.headers if each[0] not in TIMES]
    write(where, topic, found, found.value, [*kept, *wanted.headers])
    show_done(output, f"moved {schedule} in {topic}", {"topic": topic, "id": schedule, "moved": True})


@app.command()
def pause(
    topic: TopicArgument,
    schedule: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this schedule.")] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Deliver nothing of a topic, or of one schedule, until it is resumed."""
    hold(connection(bootstrap, properties), topic, schedule, output, paused=True)


@app.command()
def resume(
    topic: TopicArgument,
    schedule: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this schedule.")] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Deliver again, beginning with what is late; a recurring schedule goes on with its next time."""
    hold(connection(bootstrap, properties), topic, schedule, output, paused=False)


def hold(where: Connection, topic: str, schedule: str | None, output: OutputFormat, *, paused: bool) -> None:
    done = "paused" if paused else "resumed"
    if schedule is None:
        require_schedules(where, topic)
        target = Resource(kind="topic", name=topic)
        if paused:
            Admin(where).alter(target, put={SCHEDULE_PAUSED: "true"}, remove=())
        else:
            Admin(where).alter(target, put={}, remove=[SCHEDULE_PAUSED])
        show_done(output, f"{done} {topic}", {"topic": topic, done: True})
        return
    found = the_schedule(where, topic, schedule)
    kept = [each for each in found.headers if each[0] not in (PAUSED, FIRED_BY)]
    recurs = any(name == CRON for name, _ in kept)
    if recurs:
        # It counts from the time of this record.
        kept = [each for each in kept if each[0] != AFTER]
    elif any(name == DELAY for name, _ in kept):
        # The delay counts from the time of the record that had it.
        due = read(found.key or b"", [each for each in kept if each[0] != PAUSED], found.timestamp_ms).due_ms
        kept = [*(each for each in kept if each[0] != DELAY), (DELIVER_AT, b"%d" % (due or 0))]
    write(where, topic, found, found.value, [*kept, *([(PAUSED, b"true")] if paused else [])])
    show_done(output, f"{done} {schedule} in {topic}", {"topic": topic, "id": schedule, done: True})


def write(where: Connection, topic: str, found: Record, value: bytes | None, headers: list[Header] | tuple[()]) -> None:
    """Replace the record of a schedule, in its partition."""
    sender = Sender(where, acks="all")
    sender.send(topic, value, key=found.key, partition=found.partition, headers=headers)
    sender.flush()


def require_schedules(where: Connection, topic: str) -> str:
    """The target of a topic of schedules; Failure for any other topic."""
    require_text(topic)
    target = target_of(Admin(where), topic)
    if not target:
        raise Failure(
            f"{topic} holds no schedules: it has no {SCHEDULE_TARGET}",
            f"penstock topic create {topic}-later --config {SCHEDULE_TARGET}={topic} makes a topic of them",
        )
    return target


def the_schedule(where: Connection, topic: str, schedule: str) -> Record:
    require_schedules(where, topic)
    found = pending(where, topic).get(os.fsencode(schedule))
    if found is None:
        raise Failure(f"{topic} has no schedule {schedule!r}", f"penstock schedule list {topic}")
    return found


def pending(where: Connection, topic: str) -> dict[bytes, Record]:
    """The last record of each schedule."""
    admin = Admin(where)
    partitions = [each.partition for each in admin.describe(topic).partitions]
    bounds = admin.bounds(topic, partitions)
    spans = [Span(partition=index, start=each.start, stop=each.end) for index, each in bounds.items()]
    found: dict[bytes, Record] = {}
    with Reader(where, {topic: spans}, isolation_level="read_committed") as reader:
        for batch in reader.batches():
            for message in batch:
                record = Record.of(message)
                if record.value is None:
                    found.pop(record.key or b"", None)
                else:
                    found[record.key or b""] = record
    return found


def due_of(record: Record) -> int | None:
    try:
        return read(record.key or b"", record.headers, record.timestamp_ms).due_ms
    except BadSchedule:
        return None


def repeats(record: Record) -> str:
    texts = {name: text_of(value) for name, value in record.headers}
    return "" if CRON not in texts else f"{texts[CRON]} {texts.get(ZONE, 'UTC')}"


def text_of(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="backslashreplace")


def time_text(at_ms: int | None) -> str:
    if at_ms is None:
        return "paused"
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


Row = tuple[str, str, str, int, int]


def history_of(where: Connection, topic: str, key: bytes) -> list[Row]:
    """What became of a schedule, in the order of its partition's log."""
    rows: list[Row] = []
    with WireCalls(where) as calls:
        view = calls.cluster([topic])
        for each in view.leaders:
            if each.leader in view.brokers:
                log = raw_batches(calls, view.brokers[each.leader], topic, each.partition)
                rows += rows_of(log, key, each.partition)
    return rows


def raw_batches(
    calls: WireCalls, address: tuple[str, int], topic: str, partition: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every committed batch of a partition, control batches too, which librdkafka does not show."""
    offset, doing = 0, f"cannot read {topic}-{partition}"
    while True:
        wanted = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
        request = fetch.Request(
            isolation_level=READ_COMMITTED, topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])]
        )
        response: fetch.Response = calls.ask(doing, address, fetch, FETCH_VERSION, request)
        refuse(doing, response.error_code)
        [found] = response.responses[0].partitions
        if found.error_code == OFFSET_OUT_OF_RANGE and offset < found.log_start_offset:
            offset = found.log_start_offset
            continue
        refuse(doing, found.error_code)
        aborted = {(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()}
        data = bytes(found.records or b"")
        before = offset
        for position, header in wire.iter_batches(data):
            is_aborted = any(
                header.producer_id == producer and header.base_offset >= first for producer, first in aborted
            )
            if header.is_control and header.producer_id >= 0:
                aborted = {each for each in aborted if each[0] != header.producer_id or each[1] > header.base_offset}
            elif not is_aborted and header.next_offset > offset:
                yield header, data[position : position + header.size]
            offset = max(offset, header.next_offset)
        if offset == before:
            return


OUTCOMES = {
    Outcome.DELIVERED: "delivered",
    Outcome.REFUSED: "refused by the target",
    Outcome.RELEASED: "not delivered, to be fired again",
}


def rows_of(log: Iterator[tuple[BatchHeader, bytes]], key: bytes, partition: int) -> list[Row]:
    rows: list[Row] = []
    written: set[int] = set()
    fired: dict[tuple[int, int], list[int]] = {}
    last = -1
    last_fired = False
    for header, data in log:
        if header.is_control:
            for found in parse(wire.decode_records(data)[0]) if header.record_count else ():
                if isinstance(found, Fire):
                    dues = [each.due_ms for each in found.named if each.offset in written]
                    if dues:
                        fired[header.base_offset, found.partition] = dues
                        last_fired = last_fired or any(each.offset == last for each in found.named)
                        at = time_text(found.fired_ms)
                        rows += (
                            (at, f"fired to partition {found.partition}", time_text(due), partition, header.base_offset)
                            for due in dues
                        )
                elif (found.fire, found.partition) in fired:
                    rows.append(closed_row(found, header, partition))
            continue
        for record in wire.decode_records(data):
            if record.key != key:
                continue
            fire = next((value for name, value in record.headers if name == FIRED_BY), None)
            by_broker = fire is not None
            skipped = "skipped, " if fire == NO_FIRE else ""
            late = ", too late: it was fired already" if last_fired and not by_broker else ""
            at = time_text(record.timestamp_ms)
            if record.value is None:
                event = f"{skipped}done" if by_broker else f"cancelled{late}"
                rows.append((at, event, "", partition, record.offset))
            else:
                event = f"{skipped}goes on" if by_broker else f"scheduled{late}"
                try:
                    due = time_text(read(key, record.headers, record.timestamp_ms).due_ms)
                except BadSchedule:
                    due = ""
                rows.append((at, event, due, partition, record.offset))
                written.add(record.offset)
            last, last_fired = record.offset, False
    return rows


def closed_row(close: Close, header: BatchHeader, partition: int) -> Row:
    return time_text(header.max_timestamp), OUTCOMES[close.outcome], "", partition, header.base_offset
