import sys
from pathlib import Path

import pytest
from bench.comparison import cost
from bench.samples import BASELINE
from bench.sides import THIS_PENSTOCK, Contender, PythonBroker, Spent, count_requests, fresh_side, turns
from other_penstock import other_penstock

from penstock.testing.processes import ProcessFailed, Usage


def test_the_side_that_begins_changes_from_round_to_round() -> None:
    assert list(turns("AB", rounds=3, warm_rounds=2)) == [
        *((-2, "A"), (-2, "B"), (-1, "B"), (-1, "A")),
        *((0, "A"), (0, "B"), (1, "B"), (1, "A"), (2, "A"), (2, "B")),
    ]


def test_a_cost_is_divided_by_what_is_known() -> None:
    after = Usage(cpu_seconds=5.0, resident_bytes=1_000_000, resident_bytes_peak=2_000_000)
    spent = Spent(cpu_seconds=2.0, requests=1_000, after=after)
    values = cost(spent, {"messages": 10_000, "bytes": 4e9})
    assert values["cpu_us_per_request"] == 2_000
    assert values["cpu_us_per_message"] == 200
    assert values["cpu_seconds_per_gb"] == 0.5
    assert cost(Spent(cpu_seconds=2.0, requests=None, after=after), {}).keys() == {
        *("cpu_seconds", "resident_mb", "resident_mb_peak"),
    }


def test_requests_of_all_kinds_are_counted() -> None:
    text = (
        "# HELP penstock_requests_total Requests answered.\n"
        'penstock_requests_total{api="Produce",version="9"} 1200.0\n'
        'penstock_requests_total{api="Fetch",version="13"} 34.0\n'
        "penstock_requests_refused_total 7.0\n"
    )
    assert count_requests(text) == 1234
    assert count_requests("") is None


def test_each_side_runs_the_penstock_of_its_own_python(tmp_path: Path) -> None:
    python = other_penstock(tmp_path / "other")
    with (
        fresh_side(Contender(name=BASELINE, python=python), tmp_path / "data") as baseline,
        fresh_side(THIS_PENSTOCK, tmp_path / "data") as this,
    ):
        assert isinstance(baseline.broker, PythonBroker)
        assert isinstance(this.broker, PythonBroker)
        assert [side.broker.command[0] for side in (baseline, this)] == [str(python), sys.executable]
        assert baseline.broker.command[1:3] == this.broker.command[1:3] == ("-m", "penstock.broker")
        with pytest.raises(ProcessFailed, match=f"broker of {tmp_path}/other/src/penstock/broker/__main__.py"):
            baseline.start()
