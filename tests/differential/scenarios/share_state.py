"""The APIs of the share coordinator, which the leaders of share partitions use."""

from __future__ import annotations

from typing import Any

from differential.members import NOT_YET
from differential.normal import kafka_form
from differential.script import Body, Run, Topic, scenarios

INITIALIZE, READ, WRITE, SUMMARY = (
    ("initialize_share_group_state", 0),
    ("read_share_group_state", 0),
    ("write_share_group_state", 1),
    ("read_share_group_state_summary", 1),
)
ACKNOWLEDGED, ARCHIVED, AVAILABLE = 2, 4, 0
MANY = 40


def state_body(group: str, topic: Topic | str, *partitions: int, **fields: Any) -> Body:
    topic_id = topic if isinstance(topic, str) else topic.topic_id
    parts = [{"partition": index} | fields for index in partitions or (0,)]
    return {"group_id": group, "topics": [{"topic_id": topic_id, "partitions": parts}]}


def batches(*rows: tuple[int, int, int, int]) -> list[dict[str, int]]:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return [dict(zip(names, row, strict=True)) for row in rows]


def write_body(group: str, topic: Topic | str, **fields: Any) -> Body:
    right: dict[str, Any] = {
        "state_epoch": 0,
        "leader_epoch": 0,
        "start_offset": 0,
        "delivery_complete_count": 0,
        "state_batches": [],
    }
    return state_body(group, topic, **right | fields)


def initialized(run: Run, *, state_epoch: int = 0, start_offset: int = 0) -> tuple[str, Topic]:
    """A group name and a topic with initialized state for partition 0, whose share coordinator is ready."""
    topic, name = run.topic(), run.name("g")
    body = state_body(name, topic, state_epoch=state_epoch, start_offset=start_offset)

    def is_ready() -> bool:
        key = {"key_type": 2, "coordinator_keys": [f"{name}:{kafka_form(topic.topic_id)}:0"]}
        if run.do("find_coordinator", 6, key)["coordinators"][0]["error_code"] != "none":
            return False
        code = run.do(*INITIALIZE, body)["results"][0]["partitions"][0]["error_code"]
        # A new topic is known to the coordinator a moment after it is known to the broker.
        assert code in ("none", "unknown_topic_or_partition", *NOT_YET), code
        return bool(code == "none")

    run.until(f"initialized state of {name}", is_ready)
    return name, topic


def summarized(run: Run, label: str, name: str, topic: Topic) -> None:
    run.ask(label, state_body(name, topic, leader_epoch=-1), api=SUMMARY[0], version=SUMMARY[1])


def state_read(run: Run, label: str, name: str, topic: Topic) -> None:
    """Record the state with neighbours of one state and count merged: a coordinator may merge them later."""
    [partition] = run.do(*READ, state_body(name, topic, leader_epoch=0))["results"][0]["partitions"]
    ranges: list[list[int]] = []
    for each in partition["state_batches"]:
        first, last, what = each["first_offset"], each["last_offset"], [each["delivery_state"], each["delivery_count"]]
        if ranges and ranges[-1][1] == first - 1 and ranges[-1][2:] == what:
            ranges[-1][1] = last
        else:
            ranges.append([first, last, *what])
    run.record(label, {"start_offset": partition["start_offset"], "ranges": ranges})


def initialize(run: Run) -> None:
    name, topic = initialized(run, start_offset=-1)
    summarized(run, "summary", name, topic)
    run.ask("again", state_body(name, topic, state_epoch=0, start_offset=5))
    summarized(run, "summary again", name, topic)
    run.ask("higher epoch", state_body(name, topic, state_epoch=3, start_offset=7))
    summarized(run, "summary of the higher epoch", name, topic)
    run.ask("lower epoch", state_body(name, topic, state_epoch=2, start_offset=9))
    run.ask("negative epoch", state_body(name, topic, state_epoch=-1, start_offset=9))
    run.ask("start -2", state_body(name, topic, state_epoch=4, start_offset=-2))
    summarized(run, "summary at last", name, topic)


def bad_names(run: Run) -> None:
    name, topic = initialized(run)
    run.ask("empty group", state_body("", topic, state_epoch=0, start_offset=0))
    unknown = "00000000-0000-4000-8000-0000000000ff"
    run.tokens.add_topic_id(unknown, "<id of missing>")
    run.ask("unknown topic", state_body(name, unknown, state_epoch=0, start_offset=0))
    run.ask("unknown partition", state_body(name, topic, 99, state_epoch=0, start_offset=0))
    run.ask("negative partition", state_body(name, topic, -1, state_epoch=0, start_offset=0))
    run.ask("nothing", {"group_id": name, "topics": []})


def write(run: Run) -> None:
    """Writes change ranges of the state; neighbours of one state and count are merged."""
    name, topic = initialized(run)
    run.do(*READ, state_body(name, topic, leader_epoch=0))
    rows = (
        ("three ranges", batches((0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 1), (10, 10, ARCHIVED, 5))),
        ("inside a range", batches((6, 7, ACKNOWLEDGED, 2))),
        ("beside a range of its kind", batches((5, 5, ACKNOWLEDGED, 1))),
        ("across ranges", batches((8, 20, AVAILABLE, 2))),
        ("behind a hole", batches((30, 39, AVAILABLE, 1))),
    )
    for label, changed in rows:
        run.ask(label, write_body(name, topic, state_batches=changed, start_offset=-1))
        state_read(run, f"{label}, read", name, topic)
    run.ask("start moves", write_body(name, topic, start_offset=7, delivery_complete_count=2))
    state_read(run, "start moves, read", name, topic)
    summarized(run, "summary", name, topic)
    run.ask("start moves back", write_body(name, topic, start_offset=2))
    state_read(run, "start moves back, read", name, topic)


def write_wrongly(run: Run) -> None:
    name, topic = initialized(run, state_epoch=2)
    run.do(*READ, state_body(name, topic, leader_epoch=5))
    right: dict[str, Any] = {
        "state_epoch": 2,
        "leader_epoch": 5,
        "state_batches": batches((0, 0, ACKNOWLEDGED, 1)),
    }
    cases: dict[str, dict[str, Any]] = {
        "older leader epoch": {"leader_epoch": 4},
        "older state epoch": {"state_epoch": 1},
        "newer state epoch": {"state_epoch": 3},
        "negative state epoch": {"state_epoch": -1},
        "negative leader epoch": {"leader_epoch": -1},
        "both older": {"state_epoch": 1, "leader_epoch": 4},
        "right": {},
        "newer leader epoch": {"leader_epoch": 6},
        "no longer right": {},
    }
    for label, case in cases.items():
        run.ask(label, write_body(name, topic, **right | case))
    run.ask("not initialized", write_body(run.name("u"), topic, **right))
    summarized(run, "summary", name, topic)


def read(run: Run) -> None:
    """A read raises the leader epoch, which fences the leader before."""
    name, topic = initialized(run, start_offset=3)
    run.ask("epoch 5", state_body(name, topic, leader_epoch=5))
    run.ask("epoch 4", state_body(name, topic, leader_epoch=4))
    run.ask("epoch 6", state_body(name, topic, leader_epoch=6))
    run.ask("write of epoch 5", write_body(name, topic, leader_epoch=5), api=WRITE[0], version=WRITE[1])
    summarized(run, "summary", name, topic)
    run.ask("not initialized", state_body(run.name("u"), topic, leader_epoch=0))
    run.ask("not initialized, epoch 1", state_body(run.name("v"), topic, leader_epoch=1))
    run.ask("negative epoch", state_body(name, topic, leader_epoch=-1))


def many_writes(run: Run) -> None:
    """A long row of single changes reads as merged ranges."""
    name, topic = initialized(run)
    for offset in range(0, MANY, 2):
        run.do(*WRITE, write_body(name, topic, state_batches=batches((offset, offset, ACKNOWLEDGED, 1))))
    for offset in range(1, MANY, 2):
        run.do(*WRITE, write_body(name, topic, state_batches=batches((offset, offset, ACKNOWLEDGED, 1))))
    run.ask("read", state_body(name, topic, leader_epoch=0))


def read_summary(run: Run) -> None:
    name, topic = initialized(run, state_epoch=1, start_offset=3)
    run.do(*READ, state_body(name, topic, leader_epoch=2))
    run.do(*WRITE, write_body(name, topic, state_epoch=1, leader_epoch=2, start_offset=8, delivery_complete_count=4))
    run.ask("response", state_body(name, topic, leader_epoch=-1))
    run.ask("with an older leader epoch", state_body(name, topic, leader_epoch=1))
    run.ask("with a newer leader epoch", state_body(name, topic, leader_epoch=9))
    run.ask("not initialized", state_body(run.name("u"), topic, leader_epoch=-1))


def delete(run: Run) -> None:
    name, topic = initialized(run, start_offset=3)
    run.ask("deleted", state_body(name, topic))
    summarized(run, "summary", name, topic)
    run.ask("deleted again", state_body(name, topic))
    run.ask("write", write_body(name, topic), api=WRITE[0], version=WRITE[1])
    run.ask("read", state_body(name, topic, leader_epoch=0), api=READ[0], version=READ[1])
    run.ask("unknown", state_body(run.name("u"), topic))


SCENARIOS = (
    *scenarios("share_state", "initialize_share_group_state", (initialize, bad_names)),
    *scenarios("share_state", "write_share_group_state", (write, write_wrongly)),
    *scenarios("share_state", "read_share_group_state", (read, many_writes)),
    *scenarios("share_state", "read_share_group_state_summary", (read_summary,)),
    *scenarios("share_state", "delete_share_group_state", (delete,)),
)
