"""`penstock txn`: list transactions, describe one, find hanging ones and abort them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.cli.confirm import confirm
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
from penstock.cli.output import Number, say, show_done, show_json, show_rows, show_table
from penstock.client.transactions import (
    ANY_DURATION,
    ONGOING_STATES,
    STATES,
    OpenTransaction,
    TransactionInfo,
    Transactions,
)
from penstock.model.clock import SystemClock

app = typer.Typer(
    help="List and describe transactions; find those that hang, and abort them.",
    no_args_is_help=True,
    add_completion=False,
)

SECONDS_MAX = 100 * 366 * 86_400
AGE_SECONDS_DEFAULT = 900.0
"""No transaction may take longer than `transaction.max.timeout.ms`, fifteen minutes by default."""
LIST_COLUMNS = ("transactional_id", Number("producer_id"), "state", Number("coordinator"))
HANGING_COLUMNS = (
    "topic",
    Number("partition"),
    Number("start_offset"),
    Number("producer_id"),
    Number("producer_epoch"),
    "last_write",
    "transactional_id",
    "why",
)


@app.command("list")
def list_(
    states: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="STATE", help="Only those in this state, such as Ongoing; repeatable."),
    ] = None,
    producer_ids: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only of this producer id; repeatable.")
    ] = None,
    longer_than: Annotated[
        float | None, typer.Option("--longer-than", metavar="SECONDS", min=0, help="Only those open for so long.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List transactional ids and the state of their transactions."""
    duration = ANY_DURATION if longer_than is None else millis(longer_than, option="--longer-than")
    found = Transactions(connection(bootstrap, properties)).list(
        states=[known_state(each) for each in states or ()], producer_ids=producer_ids or (), duration_ms_min=duration
    )
    if longer_than is not None:
        # A coordinator also lists ids whose last transaction has ended, by its start time.
        found = tuple(each for each in found if each.state in ONGOING_STATES)
    rows = [(each.transactional_id, each.producer_id, each.state, each.coordinator) for each in found]
    chosen = states or producer_ids or longer_than is not None
    empty = "no transactional id is like that" if chosen else "there are no transactional ids"
    show_rows(output, LIST_COLUMNS, rows, empty=empty)


@app.command()
def describe(
    transactional_id: Annotated[
        str, typer.Argument(metavar="TRANSACTIONAL_ID", help="The producer's transactional.id.")
    ],
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show the producer of a transactional id, when its transaction began, and its partitions."""
    info = Transactions(connection(bootstrap, properties)).describe(transactional_id)
    now_ms = SystemClock().now_ms()
    if output is OutputFormat.JSON:
        show_json(described_json(info, now_ms))
        return
    say(f"transactional id {info.transactional_id}: {info.state}")
    say(f"producer id {info.producer_id}, epoch {info.producer_epoch}, timeout {info.timeout_ms / 1_000:g} s")
    if info.started_ms is not None:
        open_text = f", open for {(now_ms - info.started_ms) / 1_000:.1f} s" if info.is_open else ""
        say(f"last transaction began {time_text(info.started_ms)}{open_text}")
    if info.places:
        show_table(("topic", Number("partition")), info.places)


def described_json(info: TransactionInfo, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": info.transactional_id,
        "state": info.state,
        "producer_id": info.producer_id,
        "producer_epoch": info.producer_epoch,
        "timeout_ms": info.timeout_ms,
        "started_ms": info.started_ms,
        "open_for_ms": now_ms - info.started_ms if info.is_open and info.started_ms is not None else None,
        "partitions": [{"topic": topic, "partition": index} for topic, index in info.places],
    }


@app.command()
def hanging(
    topics: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only in these topics; all if unset.")
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than",
            metavar="SECONDS",
            min=0,
            help="Omit those with a later write; they may just be ending.",
        ),
    ] = AGE_SECONDS_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Find open transactions in partitions that no coordinator will end.

    Readers of committed records stop before such a transaction. `penstock txn abort` ends it.
    """
    client = Transactions(connection(bootstrap, properties))
    now_ms = SystemClock().now_ms()
    found = client.hanging(topics or None, now_ms=now_ms, age_ms_min=millis(older_than, option="--older-than"))
    rows = [
        (
            *each.transaction.place,
            each.transaction.start_offset,
            each.transaction.producer_id,
            each.transaction.producer_epoch,
            time_text(each.transaction.last_timestamp_ms),
            each.transactional_id,
            each.why,
        )
        for each in found
    ]
    show_rows(output, HANGING_COLUMNS, rows, empty=f"no transaction has been hanging for {older_than:g} s")


@app.command()
def abort(
    place: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION", help="Where the transaction is open.")],
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="N", help="The one that began here, if several are open.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also abort one that is open at its coordinator: its commit will lack this partition."
        ),
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Abort a hanging transaction in one partition, so that readers of committed records go on.

    penstock txn abort orders:3
    penstock txn abort orders:3 --start-offset 1200 --yes
    """
    topic, colon, index = place.rpartition(":")
    if not colon or not topic or not index.isascii() or not index.isdigit():
        raise typer.BadParameter(f"{place!r} is not TOPIC:PARTITION", param_hint="TOPIC:PARTITION")
    client = Transactions(connection(bootstrap, properties))
    chosen = choose(client.open([topic]), (topic, int(index)), start_offset)
    if not force and client.judge(chosen) is None:
        raise Failure(
            f"producer {chosen.producer_id} still has this transaction open, and its coordinator will end it",
            "wait for its timeout, or start a producer with its transactional id; --force aborts this part of it alone",
        )
    begun = f"the transaction of producer {chosen.producer_id} from offset {chosen.start_offset} on in {place}"
    confirm(f"abort {begun}?", yes)
    client.abort(chosen)
    facts = {"topic": topic, "partition": int(index), "producer_id": chosen.producer_id}
    show_done(output, f"aborted {begun}", {"aborted": {**facts, "start_offset": chosen.start_offset}})


def choose(found: tuple[OpenTransaction, ...], place: tuple[str, int], start_offset: int | None) -> OpenTransaction:
    """The open transaction to abort; Failure if it is ambiguous."""
    here = [each for each in found if each.place == place]
    if start_offset is not None:
        here = [each for each in here if each.start_offset == start_offset]
    where = f"{place[0]} partition {place[1]}"
    if not here:
        beginning = "" if start_offset is None else f" that began at offset {start_offset}"
        raise Failure(f"no transaction{beginning} is open in {where}", "penstock txn hanging finds those that hang")
    if len(here) > 1:
        offsets = ", ".join(str(each.start_offset) for each in here)
        raise Failure(f"{len(here)} transactions are open in {where}", f"pass --start-offset, one of {offsets}")
    return here[0]


def known_state(text: str) -> str:
    """A state in any case of letters; the broker refuses an unknown one."""
    return next((state for state in STATES if state.lower() == text.lower()), text)


def millis(seconds: float, *, option: str) -> int:
    """A duration in milliseconds; one that is out of range, or not a number, is refused."""
    if not 0 <= seconds <= SECONDS_MAX:
        raise typer.BadParameter(f"{seconds} is not between 0 and {SECONDS_MAX:,} seconds", param_hint=option)
    return int(seconds * 1_000)


def time_text(timestamp_ms: int) -> str:
    """A timestamp in ISO 8601; producers can write numbers that are not a date."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1_000, tz=UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
