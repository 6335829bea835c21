"""`penstock produce`: send records from the command line, a file or a pipe."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import typer

from penstock.cli.failure import Failure
from penstock.cli.formats import from_json_bytes, headers_from_json
from penstock.cli.offsets import OffsetsParser
from penstock.cli.options import (
    BOOTSTRAP,
    BootstrapOption,
    OutputFormat,
    OutputOption,
    PropertyOption,
    connection,
    require_text,
)
from penstock.cli.output import counted, note, progress, show_json
from penstock.cli.schedule_options import AT_HELP, CRON_HELP, DELAY_HELP, ZONE_HELP, When, schedule_topic, when
from penstock.client.positions import AtTime
from penstock.client.records import Header
from penstock.client.sender import Sender
from penstock.model.clock import SystemClock, SystemRandomness
from penstock.schedules.headers import KEY

LINE_BYTES_MAX = 64 * 1024 * 1024
PROGRESS_EVERY = 1_000
TIMESTAMP_MAX = 2**63 - 1


class Acks(StrEnum):
    """Which replicas must have a record before it counts as sent."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


class Codec(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One record to send; a timestamp of 0 is "now"."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    partition: int = -1
    timestamp_ms: int = 0


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    value: Annotated[
        list[str] | None, typer.Option("--value", "-v", help="A record's value; repeat for more. Else stdin is read.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", exists=True, dir_okay=False, help="Read records from here instead of stdin."),
    ] = None,
    separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="The separator of key and value.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one record instead of each line.")] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Each line is a JSON object as `penstock consume --output json` writes it.")
    ] = False,
    tombstone: Annotated[bool, typer.Option("--tombstone", help="One record with -k and a null value.")] = False,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="TIME", help="@MS, @-1h or @2026-11-01T08:00; now if unset.")
    ] = None,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Which replicas must have a record before it counts as sent.")
    ] = Acks.ALL,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="How batches are compressed.")] = Codec.NONE,
    delay: Annotated[str | None, typer.Option("--delay", metavar="DURATION", help=DELAY_HELP)] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help=AT_HELP)] = None,
    cron: Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help=CRON_HELP)] = None,
    zone: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help=ZONE_HELP)] = None,
    schedule_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The schedule's id, to move or cancel it; random if unset.")
    ] = None,
    via: Annotated[
        str | None, typer.Option("--via", metavar="TOPIC", help="The topic that holds the schedules; found if unset.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Send records: each line of stdin or of a file, or those given with -v.

    penstock produce orders -k c7 -v '{"total": 9.5}' -H source=shop
    penstock produce orders -K : < key-value-lines.txt
    penstock consume orders --output json | penstock produce copy --json
    penstock produce orders -v 'pay now' --delay 10m         by way of the topic that holds schedules of orders
    penstock produce orders -v report --cron '0 9 * * MON' --tz Europe/Berlin --id weekly
    """
    require_text(topic, via or "")
    wanted = when(delay, at, cron, zone)
    if wanted is None and (schedule_id is not None or via is not None):
        raise typer.BadParameter("--id and --via are for --delay, --at and --cron")
    if schedule_id is not None and len(value or ()) != 1:
        raise typer.BadParameter("an id is for one record: give one -v", param_hint="--id")
    check_inputs(value, file, whole=whole, json_lines=json_lines, tombstone=tombstone, key=key, separator=separator)
    pattern = Outgoing(
        value=None,
        key=None if key is None else os.fsencode(key),
        headers=parse_headers(header or ()),
        partition=-1 if partition is None else partition,
        timestamp_ms=parse_timestamp(timestamp),
    )
    where = connection(bootstrap, properties)
    if wanted is not None:
        topic = via or schedule_topic(where, topic)
    sender = Sender(where, acks=acks.value, compression_type=compression.value, linger_ms=5)
    with opened(file) as source:
        if tombstone:
            records: Iterator[Outgoing] = iter((pattern,))
        elif value:
            records = (replace(pattern, value=os.fsencode(each)) for each in value)
        elif json_lines:
            records = (from_json_line(number, line, pattern) for number, line in enumerate(lines(source), start=1))
        elif whole:
            records = iter((replace(pattern, value=read_whole(source)),))
        else:
            records = (split_key(line, separator, pattern, n) for n, line in enumerate(lines(source), start=1))
        if wanted is not None:
            records = scheduled(records, wanted, schedule_id)
        try:
            send_all(sender, topic, records, source)
        except KeyboardInterrupt:
            # Records that were read are sent and counted, so that the user knows where to go on.
            sender.flush()
            report(sender, topic, output)
            raise
    report(sender, topic, output)


def scheduled(records: Iterator[Outgoing], wanted: When, schedule_id: str | None) -> Iterator[Outgoing]:
    """The schedules of some messages."""
    randomness = SystemRandomness()
    for record in records:
        name = randomness.uuid_bytes().hex().encode() if schedule_id is None else os.fsencode(schedule_id)
        yield replace(record, key=name, headers=[*record.headers, (KEY, record.key), *wanted.headers])


def check_inputs(
    value: list[str] | None,
    file: Path | None,
    *,
    whole: bool,
    json_lines: bool,
    tombstone: bool,
    key: str | None,
    separator: str | None,
) -> None:
    """One source of records at a time."""
    if tombstone and key is None:
        raise typer.BadParameter("a tombstone needs the key it deletes: give -k", param_hint="--tombstone")
    given = [bool(value), file is not None, tombstone]
    if sum(given) > 1:
        raise typer.BadParameter("give one of -v, --file and --tombstone")
    if whole and json_lines:
        raise typer.BadParameter("--whole and --json exclude each other")
    if separator is not None and (key is not None or json_lines or whole):
        raise typer.BadParameter("the key comes from -K or from elsewhere, not both", param_hint="--key-separator")
    if separator == "":
        raise typer.BadParameter("the separator is empty", param_hint="--key-separator")


def parse_headers(texts: Sequence[str]) -> tuple[Header, ...]:
    """`name=value`, or `name` alone for a null value. A name may occur more than once."""
    found: list[Header] = []
    for text in texts:
        name, equals, content = text.partition("=")
        if not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
        require_text(name)
        found.append((name, os.fsencode(content) if equals else None))
    return tuple(found)


def parse_timestamp(text: str | None) -> int:
    """Milliseconds; 0 for no timestamp, which the library reads as now."""
    if text is None:
        return 0
    parser = OffsetsParser(SystemClock().now_ms())
    place = parser.position(text if text.startswith("@") else f"@{text}", option="--timestamp")
    assert isinstance(place, AtTime), text
    return place.timestamp_ms


def opened(file: Path | None) -> BinaryIO:
    if file is None:
        # A duplicate, so that closing it leaves the process its stdin.
        if sys.stdin.isatty():
            note("reading records from the terminal, one a line; end with Ctrl-D")
        return cast("BinaryIO", os.fdopen(os.dup(sys.stdin.fileno()), "rb"))
    return file.open("rb")


def read_whole(source: BinaryIO) -> bytes:
    """The whole input as one value; Failure if it is too long."""
    value = source.read(LINE_BYTES_MAX + 1)
    if len(value) > LINE_BYTES_MAX:
        raise Failure(f"the input is longer than {LINE_BYTES_MAX} bytes, the most that one record may have here")
    return value


def lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines without their ends. A line longer than any record is refused before it fills the memory."""
    while line := source.readline(LINE_BYTES_MAX):
        if len(line) == LINE_BYTES_MAX:
            raise Failure(f"a line is longer than {LINE_BYTES_MAX} bytes", "send the file as one record with --whole")
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def split_key(line: bytes, separator: str | None, pattern: Outgoing, number: int) -> Outgoing:
    if separator is None:
        return replace(pattern, value=line)
    key, found, value = line.partition(os.fsencode(separator))
    if not found:
        raise Failure(f"line {number} has no {separator!r}", "every line must be KEY SEPARATOR VALUE with -K")
    return replace(pattern, key=key, value=value)


def from_json_line(number: int, line: bytes, pattern: Outgoing) -> Outgoing:
    """A record from a JSON object; missing fields come from the options, its partition and offset are ignored."""
    try:
        fields: Any = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("not an object")
        known = cast("dict[str, Any]", fields)
        key = from_json_bytes("key", known)
        timestamp_ms = known.get("timestamp", -1)
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or abs(timestamp_ms) > TIMESTAMP_MAX:
            raise ValueError("timestamp is not a number of milliseconds")
        return replace(
            pattern,
            value=from_json_bytes("value", known),
            key=pattern.key if key is None else key,
            headers=(*pattern.headers, *headers_from_json(known.get("headers", []))),
            timestamp_ms=pattern.timestamp_ms or max(0, timestamp_ms),
        )
    except (ValueError, TypeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Failure(
            f"line {number} is not a record: {why}", "see `penstock consume --output json` for the form"
        ) from None


def send_all(sender: Sender, topic: str, records: Iterator[Outgoing], source: BinaryIO) -> None:
    """Send until the input ends; with a progress bar if the input is a file, whose size is known."""
    facts = os.fstat(source.fileno())
    size = facts.st_size if stat.S_ISREG(facts.st_mode) else None
    count = 0
    with progress("sending", size, unit="bytes", show=size is not None) as bar:
        for record in records:
            sender.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            count += 1
            if size is not None and count % PROGRESS_EVERY == 0:
                bar.advance(source.tell(), counted(count, "record"))
        sender.flush()


def report(sender: Sender, topic: str, output: OutputFormat) -> None:
    """Print the partitions and offsets of the records."""
    partitions = [
        {"partition": index, "records": each.count, "first": each.first, "last": each.last}
        for index, each in sorted(sender.delivered.items())
    ]
    count = sum(each.count for each in sender.delivered.values())
    if output is OutputFormat.JSON:
        show_json({"topic": topic, "records": count, "partitions": partitions})
        return
    places = ", ".join(
        f"{each['partition']} at {each['first']}" + (f" to {each['last']}" if each["records"] != 1 else "")
        for each in partitions
        if each["first"] >= 0
    )
    note(f"sent {counted(count, 'record')} to {topic}" + (f": partition {places}" if places else ""))
