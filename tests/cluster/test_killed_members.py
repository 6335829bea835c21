"""The history of members that were killed says what they printed, and no more than they know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.killed_members import accepted_or_dead, history_of
from penstock.testing.histories.deliveries import Acknowledged, Acknowledgement, Deliveries, Delivery, End

JOB = {"partition": 0, "offset": 7}


def delivered(at: float, count: int) -> dict[str, Any]:
    return {"event": "delivered", "at": at, "value": 70, "count": count, "sent_at": at - 0.5, **JOB}


def said(event: str, at: float, kind: str) -> dict[str, Any]:
    return {"event": event, "at": at, "records": [{**JOB, "kind": kind}]}


def log_of(folder: Path, *lines: dict[str, Any], cut_off: str = "") -> Path:
    log = folder / "java-0"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)
    return log


ACCEPT, RELEASE, REJECT = Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.REJECT


def delivery(at: float, count: int, sent_at: float) -> Delivery:
    return Delivery(member="java-0", key="0", offset=7, value=70, count=count, sent_at=sent_at, at=at)


def acknowledgement(kind: Acknowledgement, sent_at: float, at: float | None) -> Acknowledged:
    return Acknowledged(member="java-0", key="0", offset=7, kind=kind, sent_at=sent_at, at=at)


def test_a_confirmed_acknowledgement_shows_that_its_delivery_was_valid(tmp_path: Path) -> None:
    lines = (delivered(2.0, 1), said("acknowledges", 3.0, "accept"), said("acknowledged", 4.0, "accept"))

    history = history_of([log_of(tmp_path, *lines)])

    assert history.delivered == [delivery(2.0, 1, sent_at=1.5)]
    assert history.acknowledged == [acknowledgement(ACCEPT, 3.0, 4.0)]


def test_of_an_acknowledgement_without_a_response_the_outcome_is_unknown_also_after_another_one(tmp_path: Path) -> None:
    first = (delivered(2.0, 1), said("acknowledges", 3.0, "accept"))
    second = (delivered(5.0, 2), said("acknowledges", 6.0, "release"), said("acknowledged", 7.0, "release"))

    history = history_of([log_of(tmp_path, *first, *second)])

    assert history.delivered == [delivery(2.0, 1, sent_at=0.0), delivery(5.0, 2, sent_at=4.5)]
    assert history.acknowledged == [
        acknowledgement(ACCEPT, 3.0, None),
        acknowledgement(RELEASE, 6.0, 7.0),
    ]


def test_a_line_that_a_kill_cut_off_and_other_output_count_for_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path, delivered(2.0, 1), cut_off='[WARN] no broker\n{"event": "acknow')

    history = history_of([log])

    assert history.delivered == [delivery(2.0, 1, sent_at=0.0)]
    assert history.acknowledged == []


@pytest.mark.parametrize(
    ("acknowledged", "dead", "wrong"),
    [
        ([(ACCEPT, 3.0)], False, []),
        ([(ACCEPT, None)], False, []),
        ([(RELEASE, 3.0), (REJECT, 5.0)], True, []),
        ([(ACCEPT, None), (REJECT, 5.0)], True, []),
        ([(RELEASE, 3.0)], False, ["is neither accepted nor dead"]),
        ([(REJECT, None)], False, ["is neither accepted nor dead"]),
        ([(ACCEPT, 3.0)], True, ["was accepted, and is dead"]),
        ([(ACCEPT, 3.0), (ACCEPT, 5.0)], False, ["was finished 2 times"]),
        ([(ACCEPT, 3.0), (REJECT, 5.0)], True, ["was accepted, and is dead", "was finished 2 times"]),
    ],
)
def test_each_record_is_accepted_once_or_dead(
    acknowledged: list[tuple[Acknowledgement, float | None]], dead: bool, wrong: list[str]
) -> None:
    history = Deliveries(acknowledged=[acknowledgement(kind, 2.0, at) for kind, at in acknowledged])
    place = ("0", 7)

    found = accepted_or_dead(history, End(log={place: 70}, dead={place: 1} if dead else {}))

    assert found == [f"{place} {what}" for what in wrong]
