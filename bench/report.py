"""RESULTS.md from the figures of a run."""

from __future__ import annotations

from bench.samples import CEILING, Results, Spread
from bench.targets import CEILING_ROWS, ROWS, Finding, Row, find

HEAD = """# Results of the benchmark

penstock and Apache Kafka under the same load on the same machine, alternating in one run. Written by the benchmark
itself; do not edit. Timings of a shared machine scatter, so the ratios within one run are what counts; the figures in
brackets are the lowest and the highest round.
"""

CEILINGS = """## What the load program can do

Without a broker worth the name: librdkafka's own mock broker, in memory, takes what the same program produces. For the
latency a small program in C speaks just enough of the protocol to hand each batch to the reader that waits for it, out
of memory and unchecked, so that what is left is librdkafka's time and the machine's; without librdkafka, two bare
sockets and a process between them. A broker that comes near these is bounded by the program or by the machine, and no
longer by itself.
"""

METHOD = """## How

- One partition, one broker, loopback, default settings on both sides; a fresh topic for each work and round.
- Both brokers run during the whole comparison; the works alternate between them, and so does who begins.
- Before every work: `sync`, so that nobody pays for the dirty pages of the work before; and whatever memory is free is
  filled with pages of a file, so that nobody pays for memory that the host of a virtual machine has yet to give.
- Warm rounds come first and are not counted: one for each work, four for one-record requests, none for Java's tools,
  which are new processes each time.
- Figures are medians of the counted rounds: seven where librdkafka sends or reads as fast as it can, which takes a
  second or two and scatters most; two for Java's tools, one where the row has no brackets, else three.
- Broker CPU is the time on processors of the broker's process tree around a work, in user and in kernel mode, from the
  clocks of the processes, per 10^9 bytes of payload.
- librdkafka: linger.ms=5, batch.size=1000000, queue.buffering.max.messages=500000; fetch.message.max.bytes=4000000,
  queued.min.messages=1000000; latency works with linger.ms=0. 5 million messages of 100 B, 1.5 million of 1 KB.
- Two producers are two processes that share the messages, two consumers are two that read all of them; the slower one's
  clock counts. One librdkafka alone is often slower than the broker, and then the work measures librdkafka.
- One-record requests are raw Produce requests (version 9) over sockets, each answer checked.
- End to end: one process sends and reads with one monotonic clock; the first second is not counted.
- What the load program can do is measured with the same sizes and warm rounds, a new broker in memory for each round.
  The relay is a process that only receives and sends; the messages are paced and timed as end to end, without
  librdkafka.
- Commits are raw OffsetCommit requests (version 7) of groups without members, each answer checked. Heartbeats come
  from one raw connection for each group. Consumers of the assignment are confluent-kafka's, with default settings;
  the time runs from the last one's subscription until each owns its tenth. Loading runs from the start of the process
  until every group answers.
- Transactions are one producer's, one after the other, over a raw connection (Produce 12, EndTxn 5, each answer
  checked; what is refused because the transaction before is not complete is sent again after a millisecond). Their
  plain counterpart sends the same batches and waits for them, without a transaction. The topic that is half aborted has
  transactions of 2,000 records, every second one aborted; librdkafka reads it five times to a round, and only what is
  committed is counted.
  Ids are opened over 50 raw connections, the coordinator having answered once before.
- Java's tools run with their default settings (idempotent, acks=all), and so do their transactions, which end by time.
- Spark: one session, local[2], `spark.python.unix.domain.socket.enabled`; our source on penstock and Spark's own Kafka
  connector on Apache Kafka in turn, with three warm rounds each. A batch read is `sum(length(value))` over all columns
  there are; a stream is AvailableNow into the noop sink, its time that of the triggers; the latency is from the
  acknowledgement of one record until `foreachBatch` has counted it. Memory is the peak of Spark's Python workers.
  Typed JSON is an aggregate over every field of eight; on Apache Kafka it is `from_json` over Spark's connector.
- Three brokers of each kind run one after the other, on a fresh topic with three replicas and acks=all; the time of
  ZooKeeper is not counted. A follower that catches up was stopped while the leader's log grew by a gigabyte; its
  own log's size says when the copy begins and ends, and 500 records a second with acks=all on another topic are timed
  before and meanwhile. The plain copy sends the leader's log to a process that writes it to a file.
- A topic with four partitions moves from one broker to another and, throttled to 100 MB/s, on to the third; a move
  lasts from AlterPartitionReassignments until ListPartitionReassignments has nothing more. The same producer is timed
  beside it, and the plain copy is of the same segments.
- `--processes 2` and one process get the same two load programs with four connections each, on two topics, of which
  each process leads one.
- Ready means that Metadata names the broker. Storage format (Apache Kafka) is not counted.
- A ratio is penstock over Apache Kafka, except where the target says otherwise.
"""


def render(results: Results) -> str:
    findings = [finding for row in ROWS if (finding := find(row, results)) and (finding.kafka or finding.penstock)]
    parts = [
        HEAD,
        _summary(findings),
        _table(findings),
        _notes(results),
        _ceilings(results),
        where(results),
        METHOD,
        _reproduce(results),
    ]
    return "\n".join(part for part in parts if part)


def _summary(findings: list[Finding]) -> str:
    judged = [finding for finding in findings if finding.reached is not None]
    missed = [finding.row.title for finding in judged if not finding.reached]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets reached."
    if missed:
        text += " Missed: " + "; ".join(missed) + "."
    return text + "\n"


def _table(findings: list[Finding]) -> str:
    lines = [
        "| work | unit | Apache Kafka | penstock | ratio | target | reached |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    for finding in findings:
        row = finding.row
        cells = [
            row.title,
            row.unit,
            figure(row, finding.kafka),
            figure(row, finding.penstock),
            "-" if finding.ratio is None else f"{finding.ratio:.2f}x",
            row.target or "-",
            {None: "-", True: "yes", False: "**no**"}[finding.reached],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ceilings(results: Results) -> str:
    lines = [
        f"| {row.title} | {row.unit} | {figure(row, spread)} |"
        for row in CEILING_ROWS
        if (spread := results.spread(row.work, CEILING, row.metric))
    ]
    if not lines:
        return ""
    return "\n".join([CEILINGS, "| work | unit | figure |", "|---|---|---:|", *lines]) + "\n"


def figure(row: Row, spread: Spread | None) -> str:
    if spread is None:
        return "-"
    median, lowest, highest = (
        f"{value * row.scale:,.{row.digits}f}" for value in (spread.median, spread.lowest, spread.highest)
    )
    return median if spread.rounds == 1 else f"{median} ({lowest}..{highest})"


def _notes(results: Results) -> str:
    if results.complete:
        return ""
    return "**A try**: a part of the works, or small sizes, or cut short. Its figures prove nothing.\n"


def where(results: Results) -> str:
    lines = ["## Where and when", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in results.machine.items()]
    lines.append(f"| when | {results.began}, {results.seconds / 60:.1f} minutes in all |")
    return "\n".join(lines) + "\n"


def _reproduce(results: Results) -> str:
    kind = "the whole benchmark" if results.complete else "a part of the benchmark, or small sizes"
    if "\n" in results.command:
        kind += ", some works to a run"
    return f"## Again\n\n    {results.command}\n\nThis was {kind}. Raw figures: .cache/bench/.\n"
