"""`penstock demo`: brokers, a shop that sends orders and a Spark pipeline, live, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.background import Background
from penstock.cli.failure import failure_in_lines
from penstock.cli.options import OutputFormat, OutputOption
from penstock.cli.output import counted, note, show_done
from penstock.cli.pipeline import DEEP_STACKS, need_spark, total_lag
from penstock.cli.streams import stderr_to
from penstock.client.admin import Admin
from penstock.client.connection import Connection, parse_addresses
from penstock.client.positions import Beginning, PositionRange, resolve
from penstock.client.reader import Reader
from penstock.client.sender import Sender
from penstock.model.clock import Clock, SystemClock

if TYPE_CHECKING:
    from penstock.cli.demo_cluster import BrokerLoss
    from pyspark_penstock.pipelines.registry import PipelineState
    from pyspark_penstock.pipelines.running import StopRequest
    from pyspark_penstock.pipelines.spec import PipelineSpec

ORDERS = "orders"
WINDOWS = "orders-per-window"
PARTITIONS = 2
BROKERS_MAX = 9
REPLICAS_MAX = 3
WINDOW_SECONDS = 10
WINDOWS_SQL = """
SELECT date_format(window.start, 'HH:mm:ss') AS start, count(*) AS orders, sum(amount) AS amount
FROM orders GROUP BY window(ordered_at, '10 seconds')
"""
WATERMARK = "5 seconds"
WATERMARK_OF_CLUSTER = "2 minutes"
"""Orders for a partition without a leader come late, and must still be counted."""
WINDOWS_SHOWN = 6
BAR_WIDTH = 30
TICK_SECONDS = 0.1
LINE_SECONDS = 2.0
DRAIN_SECONDS_MAX = 60.0
"""How long the end waits for orders that are sent and not yet counted."""
SPARK_LOG = "spark.log"
LAST_LINE_BYTES_MAX = 4_096
CUSTOMERS = ("ada", "bob", "cyd", "dee", "eve")
PRODUCTS = ("apple", "bread", "cheese", "dates", "eggs")


def demo(
    seconds: Annotated[float | None, typer.Option("--seconds", min=1, help="End after this time; else Ctrl-C.")] = None,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Orders a second.")] = 500,
    brokers: Annotated[
        int, typer.Option("--brokers", "-n", min=1, max=BROKERS_MAX, help="With 3 or more, one of them is killed.")
    ] = 1,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """See a broker, orders and a pipeline with Spark live in the terminal.

    With `--brokers 3` it is a cluster on ZooKeeper: the demo kills the leader of a partition, shows that another broker
    takes over, starts it again, and counts at the end that no order is lost or doubled.

    Everything is in a temporary folder and removed at the end; the next demo removes the folder of a killed one.
    """
    need_spark()
    from penstock.cli.demo_cluster import BROKERS_MIN, BrokerLoss, demo_cluster, need_cluster
    from penstock.cli.dev_cluster import Interrupted

    if 1 < brokers < BROKERS_MIN:
        raise typer.BadParameter(f"{brokers} is not 1 and not {BROKERS_MIN} or more", param_hint="--brokers")
    if brokers > 1:
        need_cluster()
    from penstock.cli.demo_folder import make_folder, remove_leftovers
    from penstock.testing.broker_process import PenstockProcess
    from pyspark_penstock.pipelines.registry import Registry
    from pyspark_penstock.pipelines.running import (
        PipelineFailed,
        Watch,
        end_session,
        new_state,
        run_to_end,
        stopped_by_signals,
    )
    from pyspark_penstock.pipelines.spec_run import start_pipeline
    from pyspark_penstock.session import local_session

    for left in remove_leftovers():
        note(f"removed {left} of a demo that was killed")
    with ExitStack() as undo:
        request = undo.enter_context(stopped_by_signals())
        folder = make_folder()
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        servers = "a broker" if brokers == 1 else f"ZooKeeper, {brokers} brokers"
        note(f"starting {servers} and Spark; Ctrl-C ends it all")
        cluster = None if brokers == 1 else demo_cluster(folder, brokers)
        try:
            if cluster is None:
                bootstrap = undo.enter_context(PenstockProcess(within=folder)).bootstrap
            else:
                bootstrap = undo.enter_context(cluster).bootstrap
        except Interrupted:
            note("stopped before it began; all of it is removed")
            return
        # A cluster has handled the signals while it started.
        request.listen()
        request.wanted = request.wanted or (cluster is not None and cluster.wait(0))
        where = Connection(bootstrap=bootstrap)
        for topic in (ORDERS, WINDOWS):
            Admin(where).create(topic, partitions=PARTITIONS, replicas=min(brokers, REPLICAS_MAX), configs={})
            Admin(where).described_when_led(topic)
        with request.while_spark_starts(), stderr_to(folder / SPARK_LOG):
            spark = local_session("penstock-demo", conf=spark_conf(folder))
        undo.callback(end_session, spark)
        if request.wanted:
            note("stopped before it began; all of it is removed")
            return
        spec = demo_spec(folder, WATERMARK if cluster is None else WATERMARK_OF_CLUSTER)
        checkpoint = str(folder / "checkpoint")
        start = partial(start_pipeline, spark, spec, bootstrap=bootstrap, checkpoint=checkpoint)
        queries = start()
        shop = undo.enter_context(Shop(where, rate))
        filled = undo.enter_context(FilledWindows(where))
        watch = Watch(Registry(folder / "state"), new_state(spec.name, "demo", "orders", str(folder)))
        loss = None
        if cluster is not None:
            loss = undo.enter_context(BrokerLoss(cluster, ORDERS, lambda: bool(filled.counts())))
        view = undo.enter_context(View(shop, filled, folder / "table", request, seconds, output, loss=loss))
        try:
            last = run_to_end(queries, watch, request, on_progress=view, restart=start)
        except PipelineFailed as failed:
            raise failure_in_lines(failed, last_log_line(folder / SPARK_LOG)) from None
        facts = figures(last, shop, filled, folder / "table")
        ports = [port for _, port in parse_addresses(bootstrap)]
        facts |= {"port": ports[0], "ports": ports, "folder": str(folder)}
        if loss is not None:
            facts |= {"doubled": doubled_orders(folder / "table"), "loss": loss.loss and asdict(loss.loss)}
    show_done(output, summary(facts), facts)


def summary(facts: Mapping[str, Any]) -> str:
    """The demo in a sentence. An order that is not counted yet must not look like a lost one."""
    sent, windows = facts["sent"], counted(facts["windows"], "window")

    def share(done: int) -> str:
        return "all" if done == sent else f"{done:,}"

    sentence = (
        f"{counted(sent, 'order')} sent, {share(facts['windowed'])} counted in {windows} of {WINDOW_SECONDS} s, "
        f"{share(facts['table_rows'])} in the table"
    )
    doubled, killed = facts.get("doubled"), facts.get("loss")
    if killed:
        sentence += f"; broker {killed['broker']} was killed meanwhile"
    if min(facts["windowed"], facts["table_rows"]) < sent:
        sentence += "; the rest was on its way when the pipeline was stopped"
    elif killed and (facts["windowed"], facts["table_rows"], doubled) == (sent, sent, 0):
        sentence += ", and no order is lost or doubled"
    if doubled:
        sentence += f"; {counted(doubled, 'order')} doubled in the table"
    return f"{sentence}; all of it is removed"


def lag_text(lag: int | None) -> str:
    """The lag as text; it is unknown before the first batch."""
    return "-" if lag is None else f"{lag:,}"


def last_log_line(log: Path) -> str:
    """The last line of Spark's log, for a demo that failed: its folder is removed."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LAST_LINE_BYTES_MAX))
        lines = file.read().decode(errors="replace").splitlines()
    return f"Spark's last log line: {lines[-1]}" if lines else ""


def spark_conf(folder: Path) -> dict[str, str]:
    """Settings that keep all files of Spark and its JVM in the folder."""
    return {
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} -XX:-UsePerfData {DEEP_STACKS}",
    }


def demo_spec(folder: Path, watermark: str = WATERMARK) -> PipelineSpec:
    """The declared pipeline of the demo."""
    from pyspark_penstock.pipelines.spec import parse_spec

    schema = "id BIGINT, customer STRING, product STRING, amount DOUBLE, ordered_at TIMESTAMP"
    found = {
        "pipeline": {"name": "demo", "trigger": "1s"},
        "sources": {"orders": {"topic": ORDERS, "schema": schema, "event_time": "ordered_at", "watermark": watermark}},
        "steps": {"windows": {"sql": WINDOWS_SQL}},
        "sinks": {
            "windows": {"from": "windows", "topic": WINDOWS, "key": "start", "mode": "update"},
            "table": {"from": "orders", "table": str(folder / "table"), "partition_by": ["product"]},
        },
    }
    return parse_spec(found, folder=folder)


def figures(state: PipelineState, shop: Shop, filled: FilledWindows, table: Path) -> dict[str, Any]:
    windows = filled.counts()
    return {
        "sent": shop.sent,
        "windows": len(windows),
        "windowed": sum(windows.values()),
        "batches": sum(each.batches for each in state.queries),
        "rows_per_second": round(sum(each.rows_per_second for each in state.queries)),
        "lag": total_lag(state),
        "table_rows": next((each.rows for each in state.queries if each.query.endswith(".table")), 0),
        "table_files": sum(1 for _ in table.glob("product=*/*.parquet")),
    }


def doubled_orders(table: Path) -> int:
    """The number of rows in the table whose order is in it already."""
    parquet: Any = import_module("pyarrow.parquet")
    ids: list[int] = []
    for file in table.glob("product=*/*.parquet"):
        ids += parquet.ParquetFile(file).read(["id"]).column("id").to_pylist()
    return len(ids) - len(set(ids))


class Shop(Background):
    """Sends orders at a rate; some are a few seconds late."""

    def __init__(self, where: Connection, rate: int, clock: Clock | None = None) -> None:
        super().__init__("shop")
        # A retry after the loss of a broker must not send an order twice.
        self._sender = Sender(where, linger_ms=5, enable_idempotence=True)
        self._rate = rate
        self._clock = clock or SystemClock()
        self.sent = 0

    def _run(self) -> None:
        began = self._clock.monotonic()
        while not self._stop.wait(TICK_SECONDS):
            due = int((self._clock.monotonic() - began) * self._rate)
            while self.sent < due:
                self._send(self.sent)
                self.sent += 1
        self._sender.flush()

    def _send(self, number: int) -> None:
        late_ms = 3_000 if number % 25 == 24 else 0
        moment = datetime.fromtimestamp((self._clock.now_ms() - late_ms) / 1000, UTC)
        customer = CUSTOMERS[number % len(CUSTOMERS)]
        order = {
            "id": number,
            "customer": customer,
            "product": PRODUCTS[number * number % len(PRODUCTS)],
            "amount": 1 + number % 97 / 4,
            "ordered_at": moment.isoformat(),
        }
        self._sender.send(ORDERS, json.dumps(order).encode(), key=customer.encode())


class FilledWindows(Background):
    """Reads the pipeline's output: the orders of each window so far."""

    def __init__(self, where: Connection) -> None:
        super().__init__("windows")
        bounds = Admin(where).bounds(WINDOWS, range(PARTITIONS))
        self._reader = Reader(where, {WINDOWS: resolve(PositionRange(start=Beginning()), bounds, follow=True)})
        self._counts: dict[str, int] = {}

    def _run(self) -> None:
        with self._reader as reader:
            for batch in reader.batches():
                for message in batch:
                    found = json.loads(message.value())
                    self._counts[found["start"]] = found["orders"]
                if self._stop.is_set():
                    return

    def counts(self) -> dict[str, int]:
        return dict(sorted(self._counts.copy().items()))


@dataclass(slots=True)
class View:
    """Shows the progress: a live table on a terminal, a line at intervals elsewhere."""

    shop: Shop
    filled: FilledWindows
    table: Path
    request: StopRequest
    seconds: float | None
    output: OutputFormat
    clock: Clock = field(default_factory=SystemClock)
    loss: BrokerLoss | None = None
    _began: float = 0.0
    _line_at: float = 0.0
    _live: Any = None
    _draining_since: float | None = None
    _news_shown: int = 0
    _sent: deque[tuple[float, int]] = field(default_factory=lambda: deque[tuple[float, int]](maxlen=8))

    def __enter__(self) -> View:
        self._began = self._line_at = self.clock.monotonic()
        if sys.stdout.isatty() and self.output is OutputFormat.TABLE:
            from rich.live import Live

            self._live = Live(refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, state: PipelineState) -> None:
        now = self.clock.monotonic()
        facts = figures(state, self.shop, self.filled, self.table)
        self._end_in_order(now, facts)
        self._sent.append((now, self.shop.sent))
        self._show_news()
        if self._live is not None:
            self._live.update(self._drawn(facts))
        elif now - self._line_at >= LINE_SECONDS:
            self._line_at = now
            note(
                f"sent {facts['sent']:,} ({self._rate():,.0f}/s), processed {facts['rows_per_second']:,}/s, "
                f"lag {lag_text(facts['lag'])}, windows {facts['windows']}, table {facts['table_rows']:,} rows"
            )

    def _show_news(self) -> None:
        if self.loss is not None and self._live is None:
            for line in self.loss.news[self._news_shown :]:
                self._news_shown += 1
                note(line)

    def _end_in_order(self, now: float, facts: dict[str, Any]) -> None:
        """At the end of the time or with Ctrl-C, stop the shop first, and the pipeline when it has all orders.

        Ctrl-C once more, or orders that take too long, end it at once.
        """
        if self._draining_since is None:
            is_shown = self.loss is None or self.loss.is_over
            due = self.seconds is not None and now - self._began >= self.seconds and is_shown
            if not (due or self.request.wanted):
                return
            self.request.wanted = False
            self._draining_since = now
            self.shop.close()
            self._show_news()
            note("no more orders; waiting for those on their way, Ctrl-C ends it at once")
            return
        arrived = min(facts["windowed"], facts["table_rows"]) >= self.shop.sent
        if arrived or now - self._draining_since >= DRAIN_SECONDS_MAX:
            self.request.wanted = True

    def _rate(self) -> float:
        (then, before), (now, after) = self._sent[0], self._sent[-1]
        return (after - before) / (now - then) if now > then else 0.0

    def _drawn(self, facts: dict[str, Any]) -> Any:
        from rich.console import Group
        from rich.table import Table

        drawn = Table.grid(padding=(0, 2))
        drawn.add_row("[bold]orders sent", f"{facts['sent']:,}", f"{self._rate():,.0f}/s")
        drawn.add_row("[bold]processed", f"{facts['batches']} batches", f"{facts['rows_per_second']:,}/s")
        drawn.add_row("[bold]lag", f"{lag_text(facts['lag'])} records", "")
        drawn.add_row("[bold]table", f"{facts['table_rows']:,} rows", f"{facts['table_files']} files")
        windows = self.filled.counts()
        most = max(windows.values(), default=1)
        for start, count in list(windows.items())[-WINDOWS_SHOWN:]:
            bar = "█" * max(1, round(BAR_WIDTH * count / most))
            drawn.add_row(f"[cyan]{start}", f"{count:,} orders", f"[green]{bar}")
        return drawn if self.loss is None else Group(drawn, self.loss.drawn())
