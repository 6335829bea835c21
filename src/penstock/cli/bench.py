"""`penstock bench`: measures throughput and latency of a broker from this machine."""

from __future__ import annotations

import os
import struct
import sys
from threading import Thread
from time import sleep
from typing import Annotated, Any

import typer

from penstock.cli.failure import Failure
from penstock.cli.measure import Latencies, Outcome, rate_text
from penstock.cli.options import BOOTSTRAP, BootstrapOption, OutputFormat, OutputOption, PropertyOption, connection
from penstock.cli.output import progress, say, show_json
from penstock.cli.produce import Acks, Codec
from penstock.client.admin import Admin
from penstock.client.connection import Connection
from penstock.client.positions import Beginning, End, PositionRange, resolve
from penstock.client.reader import Reader
from penstock.client.sender import Sender
from penstock.model.clock import SystemClock

app = typer.Typer(help="Measure throughput and latency of a broker.", no_args_is_help=True, add_completion=False)

PAYLOADS = 64
PROGRESS_EVERY = 5_000
QUEUE_RECORDS_MAX = 200_000
QUEUE_KBYTES_MAX = 128 * 1024
STAMP = struct.Struct("<d")
TICK_SECONDS = 0.001
DRAIN_SECONDS_MAX = 10.0
SWITCH_SECONDS = 0.0002
"""The interpreter's switch interval: the default would be most of the measured latency."""

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Created if it does not exist.")]
MessagesOption = Annotated[int, typer.Option("--messages", "-n", min=1, help="How many records.")]
SizeOption = Annotated[int, typer.Option("--size", "-s", min=8, help="Bytes of each record's value.")]
AcksOption = Annotated[Acks, typer.Option("--acks", help="Which replicas must have a record before it counts as sent.")]
LingerOption = Annotated[float, typer.Option("--linger-ms", min=0, help="How long a batch may wait for more records.")]
BatchOption = Annotated[int, typer.Option("--batch-bytes", min=1, help="How large a batch may become.")]
CodecOption = Annotated[Codec, typer.Option("--compression", "-z", help="How batches are compressed.")]
IdempotentOption = Annotated[bool, typer.Option("--idempotent", help="No duplicates, order kept; needs acks=all.")]
PartitionsOption = Annotated[int, typer.Option("--partitions", "-p", min=1, help="Of the topic, if it is created.")]


@app.command()
def produce(
    topic: TopicArgument,
    messages: MessagesOption = 1_000_000,
    size: SizeOption = 100,
    acks: AcksOption = Acks.LEADER,
    linger_ms: LingerOption = 5,
    batch_bytes: BatchOption = 1_000_000,
    compression: CodecOption = Codec.NONE,
    idempotent: IdempotentOption = False,
    partitions: PartitionsOption = 1,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Send records as fast as possible. The latency is from the call that sends a record to its acknowledgement."""
    where = connection(bootstrap, properties)
    make_topic(Admin(where), topic, partitions)
    latencies = Latencies()
    sender = Sender(
        where,
        watch=latencies.add,
        acks="all" if idempotent else acks.value,
        linger_ms=linger_ms,
        batch_size=batch_bytes,
        batch_num_messages=1_000_000,
        compression_type=compression.value,
        enable_idempotence=idempotent,
        queue_buffering_max_messages=QUEUE_RECORDS_MAX,
        queue_buffering_max_kbytes=QUEUE_KBYTES_MAX,
    )
    payloads = random_payloads(size)
    clock = SystemClock()
    began = clock.monotonic()
    with progress("sending", messages) as bar:
        for number in range(messages):
            sender.send(topic, payloads[number % PAYLOADS])
            if number % PROGRESS_EVERY == 0:
                done = number - sender.waiting
                bar.advance(done, rate_text(done, done * size, clock.monotonic() - began))
        sender.flush()
    seconds = clock.monotonic() - began
    size_all = messages * size
    shown = latencies.millis()
    show(
        output,
        Outcome(work="produce", topic=topic, records=messages, bytes=size_all, seconds=seconds, latency_ms=shown),
    )


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    messages: Annotated[
        int | None, typer.Option("--messages", "-n", min=1, help="Stop there; else at the end.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Read records from the beginning as fast as possible. The clock starts with the first one."""
    where = connection(bootstrap, properties)
    admin = Admin(where)
    indexes = [each.partition for each in admin.describe(topic).partitions]
    spans = resolve(PositionRange(start=Beginning()), admin.bounds(topic, indexes), follow=False)
    there = sum((span.stop or 0) - span.start for span in spans)
    wanted = there if messages is None else messages
    if not there:
        raise Failure(f"topic {topic} is empty", f"fill it first: penstock bench produce {topic}")
    clock = SystemClock()
    records = size = 0
    began: float | None = None
    settings: dict[str, Any] = {"fetch_message_max_bytes": 1 << 20, "queued_max_messages_kbytes": QUEUE_KBYTES_MAX}
    with Reader(where, {topic: spans}, **settings) as reader, progress("reading", wanted) as bar:
        for batch in reader.batches():
            if batch and began is None:
                began = clock.monotonic()
            records += len(batch)
            size += sum(len(message) for message in batch)
            bar.advance(records, rate_text(records, size, clock.monotonic() - (began or clock.monotonic())))
            if records >= wanted:
                break
    seconds = clock.monotonic() - (began or clock.monotonic())
    show(output, Outcome(work="consume", topic=topic, records=records, bytes=size, seconds=seconds, latency_ms={}))


@app.command()
def latency(
    topic: TopicArgument,
    rate: Annotated[int, typer.Option("--rate", "-r", min=1, help="Records per second.")] = 1_000,
    seconds: Annotated[int, typer.Option("--seconds", "-t", min=1, help="For how long.")] = 10,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Seconds before that do not count.")] = 2,
    size: SizeOption = 100,
    acks: AcksOption = Acks.LEADER,
    linger_ms: LingerOption = 0,
    partitions: PartitionsOption = 1,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Send at a steady rate and read at the same time: the latency is from when a record was due to when it is read.

    Counting from when it was due, and not from when it was sent, includes the delay of records behind a stall.
    """
    where = connection(bootstrap, properties)
    admin = Admin(where)
    make_topic(admin, topic, partitions)
    indexes = [each.partition for each in admin.describe(topic).partitions]
    spans = resolve(PositionRange(start=End()), admin.bounds(topic, indexes), follow=True)
    sys.setswitchinterval(SWITCH_SECONDS)
    with Reader(where, {topic: spans}, fetch_wait_max_ms=500) as reader:
        count = rate * (warmup + seconds)
        pacer = Pacer(where, topic, rate=rate, count=count, size=size, acks=acks, linger_ms=linger_ms)
        outcome = read_latencies(reader, pacer, topic, skip=rate * warmup)
    show(output, outcome)


class Pacer:
    """Sends records on a schedule, in a thread; each carries its due time."""

    def __init__(
        self, where: Connection, topic: str, *, rate: int, count: int, size: int, acks: Acks, linger_ms: float
    ) -> None:
        self.count = count
        self.size = size
        self._topic = topic
        self._rate = rate
        self._sender = Sender(where, acks=acks.value, linger_ms=linger_ms)
        self._clock = SystemClock()
        self._thread = Thread(target=self._run, name="pacer", daemon=True)
        self.failed: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._send_on_time()
            self._sender.flush()
        except Exception as error:
            self.failed = error

    def _send_on_time(self) -> None:
        padding = bytes(self.size - STAMP.size)
        began = self._clock.monotonic()
        for number in range(self.count):
            due = began + number / self._rate
            while (early := due - self._clock.monotonic()) > 0:
                sleep(min(early, TICK_SECONDS))
            self._sender.send(self._topic, STAMP.pack(due) + padding)


def read_latencies(reader: Reader, pacer: Pacer, topic: str, *, skip: int) -> Outcome:
    """Read all records that the pacer sends; the first `skip` records are warm-up and do not count."""
    clock = SystemClock()
    latencies = Latencies()
    began = last = clock.monotonic()
    seen = 0
    pacer.start()
    with progress("measuring", pacer.count) as bar:
        for batch in reader.batches():
            now = clock.monotonic()
            for message in batch:
                if len(message) != pacer.size:
                    continue  # another producer's
                seen += 1
                if seen > skip:
                    latencies.add(now - STAMP.unpack_from(message.value())[0])
            if batch:
                last = now
                began = now if seen <= skip else began
            bar.advance(seen)
            if seen >= pacer.count:
                break
            if pacer.failed is not None:
                raise pacer.failed
            if not pacer.alive and now - last > DRAIN_SECONDS_MAX:
                raise Failure(f"only {seen} of {pacer.count} records came back", "is the topic being truncated?")
    return Outcome(
        work="latency",
        topic=topic,
        records=len(latencies),
        bytes=len(latencies) * pacer.size,
        seconds=last - began,
        latency_ms=latencies.millis(),
    )


def make_topic(admin: Admin, topic: str, partitions: int) -> None:
    if all(each.name != topic for each in admin.topics()):
        admin.create(topic, partitions=partitions, replicas=-1, configs={})
        admin.described_when_led(topic)


def random_payloads(size: int) -> list[bytes]:
    """Random capital letters, as Kafka's own load tool sends, which compress like text."""
    return [bytes(65 + byte % 26 for byte in os.urandom(size)) for _ in range(PAYLOADS)]


def show(output: OutputFormat, outcome: Outcome) -> None:
    if output is OutputFormat.JSON:
        show_json(outcome.facts())
    else:
        say(*outcome.sentence().splitlines())
