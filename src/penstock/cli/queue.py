"""`penstock queue`: make queues, see how far their groups have come, and intervene."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli import queue_dlq
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
from penstock.cli.output import Number, counted, note, show_done, show_json, show_rows, show_table
from penstock.cli.queue_dlq import letters_of, place_of, text_of
from penstock.client.admin import Admin, Resource
from penstock.client.connection import Connection
from penstock.client.failures import ClientError
from penstock.client.positions import Bounds, Span
from penstock.client.queues import Queue, Queues
from penstock.client.reader import Reader
from penstock.client.records import Record
from penstock.client.share_groups import ARCHIVING, FINISHED, NON_EMPTY_GROUP, ShareGroups, ShareState
from penstock.client.wire_calls import speaks_plaintext
from penstock.model.clock import SystemClock

app = typer.Typer(
    help="Make queues, see how far their groups have come, and intervene.", no_args_is_help=True, add_completion=False
)
app.add_typer(queue_dlq.app, name="dlq")

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The topic's name.")]
GroupOption = Annotated[
    str | None, typer.Option("--group", "-g", metavar="GROUP", help="The share group, if several work on the topic.")
]
BROKER_DEFAULT = -1
SHOWN_DEFAULT = 20
LETTERS_COUNTED_MAX = 100_000
"""A topic with more dead letters is not read to tell whose they are."""

LIST_COLUMNS = ("queue", "group", "type", Number("members"), Number("lag"))
STATS_COLUMNS = (
    "group",
    Number("partition"),
    Number("start"),
    Number("end"),
    Number("lag"),
    Number("finished"),
    Number("waiting"),
    Number("members"),
    Number("dead_letters"),
)
PEEK_COLUMNS = ("record", "key", "value", Number("deliveries"), "state")
MOVE_COLUMNS = (Number("partition"), Number("start"), Number("new"), Number("unfinished"))
DEAD_LETTERS_KEY = "errors.deadletterqueue.topic.name"
ISOLATION_KEY = "share.isolation.level"
RESET_KEY = "share.auto.offset.reset"


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
    where = connection(bootstrap, properties)
    admin = Admin(where)
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
    letters = f"{queue_dlq.PREFIX}{queue}"
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
    if speaks_plaintext(where):
        begin(ShareGroups(where), queue, group, len(made.partitions))
    facts = {"queue": queue, "group": group, "partitions": len(made.partitions), "dlq": letters if dead else None}
    also = f", dead letters in {letters}" if dead else ""
    show_done(
        output, f"created {queue} with {counted(len(made.partitions), 'partition')} for group {group}{also}", facts
    )


def begin(shares: ShareGroups, queue: str, group: str, partitions: int) -> None:
    """Let the group begin with the first record now, so that it is known before its first member joins."""
    try:
        shares.alter(group, {(queue, index): 0 for index in range(partitions)})
    except ClientError as error:
        # It works on other topics, and begins here when one of its members subscribes.
        if error.code != NON_EMPTY_GROUP:
            raise


@app.command("list")
def list_(
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """List queues: topics with the share groups that work on them, and topics with a consume.group."""
    rows = [
        (each.topic, each.group, each.kind, len(each.members()), each.lag)
        for each in Queues(connection(bootstrap, properties)).all()
    ]
    show_rows(output, LIST_COLUMNS, rows, empty="there are no queues yet; `penstock queue create` makes one")


@app.command()
def stats(
    queue: QueueArgument,
    group: GroupOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show how far the share groups of a queue have come in each partition.

    `start` is the first record that is not finished, `finished` counts those after it that are, and `waiting` those
    whose backoff has not ended, all as of the last acknowledgement that was written. What members hold now is known to
    the leaders alone: their metric penstock_share_records_held says it.
    """
    where = connection(bootstrap, properties)
    admin, shares, now_ms = Admin(where), ShareGroups(where), SystemClock().now_ms()
    found = shared(Queues(where).of(queue, group), queue, group)
    bounds = bounds_of(admin, queue)
    rows: list[tuple[object, ...]] = []
    for each in found:
        states = states_of(shares, each)
        dead = dead_letters_of(where, admin, each)
        for index, held in sorted(bounds.items()):
            progress, state = each.progress.get(index), states.get(index)
            rows.append(
                (
                    each.group,
                    index,
                    None if progress is None else progress.start,
                    held.end,
                    None if progress is None else progress.lag,
                    None if state is None else state.finished,
                    None if state is None else state.waiting(now_ms),
                    len(each.members(index)),
                    None if dead is None else dead[index],
                )
            )
    show_rows(output, STATS_COLUMNS, rows, empty=f"{queue} has no partitions")


@app.command()
def peek(
    queue: QueueArgument,
    group: GroupOption = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = SHOWN_DEFAULT,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only these; repeat for more.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Show the next records that a share group has not finished, without taking them from anybody.

    They are read as by a consumer without a group: none is locked, and none has one attempt less. A record that a
    member holds is shown too, since only its leader knows who holds it; the attempt under way is not counted.
    """
    where = connection(bootstrap, properties)
    admin, shares, now_ms = Admin(where), ShareGroups(where), SystemClock().now_ms()
    one = the_shared(Queues(where).of(queue, group), queue, group)
    bounds, states, settings = bounds_of(admin, queue), states_of(shares, one), group_settings(admin, one.group)
    spans = [
        Span(partition=index, start=max(start, held.start), stop=held.end)
        for index, held in sorted(bounds.items())
        if (not partitions or index in partitions)
        and (start := first_offset(one, index, held, settings.get(RESET_KEY, ""))) is not None
    ]
    missing = sorted(set(partitions or ()) - bounds.keys())
    if missing:
        raise Failure(f"{queue} has no partition {missing[0]}", f"it has {counted(len(bounds), 'partition')}")
    found: list[Record] = []
    isolation = settings.get(ISOLATION_KEY, "read_uncommitted")
    with Reader(where, {queue: spans}, isolation_level=isolation) as reader:
        for batch in reader.batches():
            found += (record for record in map(Record.of, batch) if not is_finished(states, record))
            if len(found) >= count:
                break
    found = sorted(found, key=lambda each: (each.partition, each.offset))[:count]
    rows = [peek_row(states.get(each.partition), each, now_ms) for each in found]
    show_rows(output, PEEK_COLUMNS, rows, empty=f"group {one.group} has finished all of {queue}")


@app.command()
def release(
    queue: QueueArgument,
    group: GroupOption = None,
    members: Annotated[
        list[str] | None,
        typer.Option("--member", "-m", metavar="MEMBER", help="Release what this member holds; repeat for more."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Let the group begin again at its start offset, without its backoffs.")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Give back what members hold, or what waits for the end of its backoff.

    --member ends a member's sessions at all brokers, which release what it holds, of any topic, and removes it from the
    group. It is for one that has vanished, or hangs, before its locks expire; one that works loses its records to
    others, and joins again.

    Kafka's protocol cannot end a single backoff. --restart makes the group begin again at the start offset of each
    partition, while it has no members: it forgets backoffs and counts of deliveries, and also what is finished after
    the start offset, which is delivered once more.

    penstock queue release jobs --member 0d8f2c1e-...   (`penstock group describe workers` shows them)
    penstock queue release jobs --restart
    """
    if bool(members) == restart:
        raise typer.BadParameter("say either --member or --restart")
    where = connection(bootstrap, properties)
    shares = ShareGroups(where)
    one = the_shared(Queues(where).of(queue, group), queue, group)
    if restart:
        refuse_members("restart", one)
        begin_again(shares, one, yes=yes, output=output)
        return
    confirm(f"end {', '.join(members or ())} and release what they hold?", yes)
    unknown = [each for each in members or () if not shares.end_member(one.group, each)]
    if unknown:
        known = ", ".join(str(each) for each in one.group_members)
        raise Failure(
            f"group {one.group} has no member {unknown[0]}, and no broker a session of it",
            f"its members are {known}" if known else "it has no members, so nothing is held for long",
        )
    show_done(
        output,
        f"released what {counted(len(members or ()), 'member')} of group {one.group} held",
        {"queue": queue, "group": one.group, "released": members},
    )


@app.command()
def purge(
    queue: QueueArgument,
    group: GroupOption = None,
    yes: YesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Move a share group without members to the end of a queue: it gets none of the records that are there now.

    The records stay in the topic, for other groups and readers; `penstock topic truncate` removes them.
    """
    where = connection(bootstrap, properties)
    admin, shares = Admin(where), ShareGroups(where)
    one = the_shared(Queues(where).of(queue, group), queue, group)
    refuse_members("purge", one)
    ends = {index: held.end for index, held in bounds_of(admin, queue).items()}
    records = "the records" if one.lag is None else counted(one.lag, "record")
    move(
        shares,
        one,
        ends,
        question=f"give up {records} of {queue} for group {one.group}?",
        outcome=f"group {one.group} is at the end of {queue}",
        yes=yes,
        output=output,
    )


def begin_again(shares: ShareGroups, one: Queue, *, yes: bool, output: OutputFormat) -> None:
    """Restart a group at its start offsets."""
    finished = sum(each.finished for each in states_of(shares, one).values())
    again = f"; it gets {counted(finished, 'finished record')} again" if finished else ""
    move(
        shares,
        one,
        {index: each.start for index, each in one.progress.items()},
        question=f"let group {one.group} begin again at its start offsets in {one.topic}{again}?",
        outcome=f"group {one.group} begins again at its start offsets in {one.topic}",
        yes=yes,
        output=output,
    )


def move(
    shares: ShareGroups,
    one: Queue,
    offsets: Mapping[int, int],
    *,
    question: str,
    outcome: str,
    yes: bool,
    output: OutputFormat,
) -> None:
    """Show the moves, and apply them after a confirmation."""
    rows: list[tuple[object, ...]] = []
    for index, offset in sorted(offsets.items()):
        progress = one.progress.get(index)
        start, lag = (None, None) if progress is None else (progress.start, progress.lag)
        rows.append((index, start, offset, lag))
    if output is OutputFormat.TABLE:
        show_table(MOVE_COLUMNS, rows)
    confirm(question, yes)
    try:
        shares.alter(one.group, {(one.topic, index): offset for index, offset in offsets.items()})
    except ClientError as error:
        if error.code == NON_EMPTY_GROUP:
            error.hint = "a member has joined meanwhile: stop the workers first"
        raise
    if output is OutputFormat.JSON:
        partitions = [dict(zip(MOVE_COLUMNS, row, strict=True)) for row in rows]
        show_json({"queue": one.topic, "group": one.group, "partitions": partitions})
    else:
        show_done(output, outcome, {})


def refuse_members(doing: str, one: Queue) -> None:
    """The offsets of a share group with members cannot be altered."""
    if one.group_members:
        named = "; ".join(str(each) for each in one.group_members)
        raise Failure(
            f"cannot {doing} {one.topic}: group {one.group} has {counted(len(one.group_members), 'member')}: {named}",
            "stop them first, or wait until their sessions end; "
            f"`penstock queue release {one.topic} --group {one.group} --member MEMBER` ends one that has vanished",
        )


def shared(found: Iterable[Queue], queue: str, group: str | None) -> list[Queue]:
    """The share groups among these; an error with words without one."""
    groups = list(found)
    shares = [each for each in groups if each.is_shared]
    if shares:
        return shares
    if groups:
        name = groups[0].group
        raise Failure(
            f"{name}, which works on {queue}, is no share group", f"`penstock group describe {name}` shows it"
        )
    which = "no share group works" if group is None else f"share group {group} does not work"
    raise Failure(f"{which} on {queue}", "`penstock queue list` shows the queues, `penstock queue create` makes one")


def the_shared(found: Iterable[Queue], queue: str, group: str | None) -> Queue:
    """The one share group of a queue."""
    shares = shared(found, queue, group)
    if len(shares) > 1:
        names = ", ".join(each.group for each in shares)
        raise Failure(f"{queue} has {len(shares)} share groups: {names}", "say --group GROUP")
    return shares[0]


def states_of(shares: ShareGroups, one: Queue) -> dict[int, ShareState]:
    """What is written of the records of a queue's partitions."""
    progress = {(one.topic, index): each for index, each in one.progress.items()}
    return {index: state for (_, index), state in shares.states(one.group, progress).items()}


def bounds_of(admin: Admin, queue: str) -> dict[int, Bounds]:
    return admin.bounds(queue, [each.partition for each in admin.describe(queue).partitions])


def group_settings(admin: Admin, group: str) -> dict[str, str]:
    return {each.name: each.value or "" for each in admin.configs(Resource(kind="group", name=group))}


def first_offset(one: Queue, partition: int, held: Bounds, reset: str) -> int | None:
    """Where a group is in a partition, or would begin; None where it has nothing to do yet."""
    progress = one.progress.get(partition)
    if progress is not None:
        return progress.start
    if reset == "earliest":
        return held.start
    note(f"partition {partition} is not begun: {RESET_KEY} is {reset}")
    return None


def is_finished(states: Mapping[int, ShareState], record: Record) -> bool:
    known = states[record.partition].of(record.offset) if record.partition in states else None
    return known is not None and known.delivery_state in FINISHED


def peek_row(state: ShareState | None, record: Record, now_ms: int) -> tuple[object, ...]:
    known = None if state is None else state.of(record.offset)
    deliveries = 0 if known is None else known.delivery_count
    what = "unfinished"
    if known is not None and known.delivery_state == ARCHIVING:
        what = "becomes a dead letter"
    elif known is not None and known.not_before_ms > now_ms:
        until = datetime.fromtimestamp(known.not_before_ms / 1000, UTC)
        what = f"waits until {until.isoformat(timespec='seconds')}"
    return place_of(record), text_of(record.key), text_of(record.value), deliveries, what


def dead_letters_of(where: Connection, admin: Admin, one: Queue) -> Counter[int] | None:
    """The group's dead letters of each partition of the queue, those of it that are still there; None if unknown."""
    topic = group_settings(admin, one.group).get(DEAD_LETTERS_KEY, "")
    if not topic:
        return Counter()
    try:
        held = bounds_of(admin, topic)
    except ClientError as error:
        note(f"the dead letters of group {one.group} are not counted: {error}")
        return None
    if sum(each.end - each.start for each in held.values()) > LETTERS_COUNTED_MAX:
        note(f"{topic} has more than {LETTERS_COUNTED_MAX:,} letters, which are not counted by partition")
        return None
    return Counter(
        letter.partition
        for letter in letters_of(where, topic)
        if letter.topic == one.topic and letter.group == one.group
    )
