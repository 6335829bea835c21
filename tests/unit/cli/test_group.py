from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.failure import Failure
from penstock.cli.group import read_csv, refuse_live_members
from penstock.cli.group_report import make_report
from penstock.cli.main import app
from penstock.client.groups import GroupInfo, GroupMember
from penstock.client.positions import At, Bounds

RUNNER = CliRunner()
READER = GroupMember(member_id="m-1", client_id="billing", host="10.0.0.7", instance_id=None, places=(("orders", 0),))
IDLE = GroupMember(member_id="m-2", client_id="spare", host="10.0.0.8", instance_id="i", places=())
GROUP = GroupInfo(name="g", kind="classic", state="stable", assignor="range", coordinator=1, members=(READER, IDLE))


def held(start: int, end: int) -> Bounds:
    return Bounds(start=start, end=end, by_time={})


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "seek", "g"],
        ["group", "seek", "g", "--to", "earliest", "--by", "1"],
        ["group", "seek", "g", "--to", "sometime"],
        ["group", "seek", "g", "--csv", "f.csv", "--topic", "t"],
        ["group", "seek", "g", "--by", "x"],
        ["group", "describe"],
        ["group", "describe", "g", "--watch", "--interval", "0"],
        ["group", "delete"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_two_before_any_request(arguments: list[str]) -> None:
    assert RUNNER.invoke(app, arguments).exit_code == 2


def test_a_csv_gives_an_offset_to_each_partition(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text('topic,partition,offset\n# a comment\n\norders,0,5\n"orders", 1 ,6\n')

    assert read_csv(path) == {("orders", 0): At(5), ("orders", 1): At(6)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("orders,0\n", "line 1: 'orders,0' is not topic,partition,offset"),
        ("orders,0,1\norders,one,2\n", "line 2"),
        ("orders,0,-1\n", "line 1"),
        (",0,1\n", "line 1"),
        ("orders,0,1\norders,0,2\n", "line 2: orders partition 0 stands there twice"),
        ("# nothing\n", "names no partition"),
    ],
)
def test_a_bad_csv_is_refused_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(text)

    with pytest.raises(Failure, match=complaint):
        read_csv(path)


def test_a_missing_csv_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot read"):
        read_csv(tmp_path / "missing.csv")


def test_live_members_are_named_in_the_refusal() -> None:
    with pytest.raises(Failure) as refused:
        refuse_live_members("cannot move group g", GROUP)

    assert str(refused.value) == (
        "cannot move group g: it has 2 live members: "
        "m-1 (client billing, host 10.0.0.7); m-2 (client spare, host 10.0.0.8)"
    )
    refuse_live_members("no members", None)


def test_a_report_shows_lag_owner_and_speed() -> None:
    places = {("orders", 0): held(0, 100), ("orders", 1): held(50, 60), ("orders", 2): held(0, 9)}
    earlier = make_report(GROUP, {("orders", 0): 40}, places, now_ms=1_000, earlier=None)

    report = make_report(GROUP, {("orders", 0): 70, ("orders", 1): 10}, places, now_ms=3_000, earlier=earlier)

    assert report.rows(with_rate=True) == [
        ("orders", 0, 70, 0, 100, 30, "m-1", "billing", "10.0.0.7", 15.0),
        ("orders", 1, 10, 50, 60, 10, None, None, None, None),
        ("orders", 2, None, 0, 9, None, None, None, None, None),
    ]
    assert report.lag == 40
    assert report.heading() == [
        "g  classic  stable  assignor range  2 members  lag 40",
        "  m-2 (client spare, host 10.0.0.8) reads nothing",
    ]
    assert report.as_json()["members"][1]["instance"] == "i"
