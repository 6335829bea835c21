from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.demo import DRAIN_SECONDS_MAX, View, last_log_line, summary
from penstock.cli.options import OutputFormat
from pyspark_penstock.pipelines.registry import QueryProgress
from pyspark_penstock.pipelines.running import StopRequest, new_state

SECONDS = 10.0


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


class Rig:
    """A view of a shop that has sent a hundred orders."""

    def __init__(self, tmp_path: Path, seconds: float | None = SECONDS) -> None:
        self.clock = FakeClock()
        self.request = StopRequest()
        self.closed = 0
        self.windowed = 0
        self.table_rows = 0
        shop: Any = SimpleNamespace(sent=100, close=self._close)
        filled: Any = SimpleNamespace(counts=lambda: {"10:00:00": self.windowed})
        clock: Any = self.clock
        self.view = View(shop, filled, tmp_path, self.request, seconds, OutputFormat.JSON, clock)

    def _close(self) -> None:
        self.closed += 1

    def look(self, at: float) -> bool:
        """Whether the view stops the pipeline at this moment."""
        self.clock.now = at
        state = new_state("demo", "demo", "orders", "")
        queries = (QueryProgress(query="demo.table", rows=self.table_rows),)
        self.view(type(state)(**{**{name: getattr(state, name) for name in state.__slots__}, "queries": queries}))
        return self.request.wanted


@pytest.mark.parametrize("by_signal", [True, False])
def test_the_pipeline_ends_when_it_has_every_order_that_was_sent(tmp_path: Path, by_signal: bool) -> None:
    rig = Rig(tmp_path, None if by_signal else SECONDS)
    assert not rig.look(1)
    rig.request.wanted = by_signal

    assert not rig.look(SECONDS)
    rig.windowed = 100
    assert not rig.look(SECONDS + 1)
    rig.table_rows = 100
    assert rig.look(SECONDS + 2)
    assert rig.closed == 1


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert not rig.look(SECONDS)
    rig.request.wanted = True

    assert rig.look(SECONDS + 1)


def test_orders_that_take_too_long_are_not_waited_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert not rig.look(SECONDS)

    assert not rig.look(SECONDS + DRAIN_SECONDS_MAX - 1)
    assert rig.look(SECONDS + DRAIN_SECONDS_MAX)


def test_the_summary_counts_orders_that_are_not_processed_yet() -> None:
    done = summary({"sent": 1_500, "windowed": 1_500, "windows": 3, "table_rows": 1_500})
    cut = summary({"sent": 1_500, "windowed": 1_400, "windows": 1, "table_rows": 1_500})

    assert done == "1,500 orders sent, all counted in 3 windows of 10 s, all in the table; all of it is removed"
    assert cut == (
        "1,500 orders sent, 1,400 counted in 1 window of 10 s, all in the table; the rest was on its way when the "
        "pipeline was stopped; all of it is removed"
    )


def test_the_summary_of_a_cluster_says_that_no_order_is_lost_or_doubled_only_if_so() -> None:
    facts = {"sent": 90, "windowed": 90, "windows": 1, "table_rows": 90, "doubled": 0, "loss": {"broker": 2}}

    assert summary(facts) == (
        "90 orders sent, all counted in 1 window of 10 s, all in the table; broker 2 was killed meanwhile, and no "
        "order is lost or doubled; all of it is removed"
    )
    assert "no order is lost" not in summary({**facts, "windowed": 91})
    assert "no order is lost" not in summary({**facts, "loss": None})
    assert "broker 2 was killed meanwhile; the rest was on its way" in summary({**facts, "table_rows": 80})
    assert "; 3 orders doubled in the table" in summary({**facts, "table_rows": 93, "doubled": 3})


def test_a_demo_of_a_cluster_does_not_end_before_the_lost_broker_is_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    loss: Any = SimpleNamespace(is_over=False, news=["kill -9 1"])
    rig.view.loss = loss
    rig.look(SECONDS + 1)
    assert rig.closed == 0

    loss.is_over = True
    rig.look(SECONDS + 2)
    assert rig.closed == 1


def test_the_last_line_of_a_long_log_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("x" * 100_000 + "\nno space left\n")

    assert last_log_line(log) == "Spark's last log line: no space left"
    log.write_text("")
    assert last_log_line(log) == ""
