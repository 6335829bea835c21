"""ShareAcknowledge: what each kind of acknowledgement does, and what is refused."""

from __future__ import annotations

from typing import Any

from differential.batches import batch
from differential.requests import delete_before, fill, fill_numbered, missing
from differential.script import Run, scenarios
from differential.shares import (
    ACCEPT,
    AWAITS,
    BEAT,
    CLOSES,
    GAP,
    LEAVES,
    OPENS,
    REJECT,
    RELEASE,
    RENEW,
    ack,
    part,
    share_ack_body,
    share_beat,
    share_group,
    share_reader,
    share_topic,
)

from .share_fetch import filled


def accepted(run: Run) -> None:
    _, reader = filled(run, 2)
    reader.opened()
    reader.acknowledge("one", ack(0))
    reader.acknowledge("the rest of its batch", ack(1, 2))
    reader.acknowledge("a whole batch", ack(3, 5))
    reader.acknowledge("once more", ack(3, 5))
    reader.fetch_latest("nothing left")


def all_kinds(run: Run) -> None:
    _, reader = filled(run, 2)
    reader.opened()
    reader.acknowledge("one of each", ack(0, 5, ACCEPT, RELEASE, REJECT, GAP, ACCEPT, RELEASE))
    reader.fetch_latest("the released ones")
    reader.acknowledge("with one type", ack(1, 1, REJECT), ack(5, 5, RELEASE))
    reader.fetch_latest("the last one")
    reader.acknowledge("no batches")


def wrong_batches(run: Run) -> None:
    _, reader = filled(run, 3)
    reader.opened(max_records=3)
    cases: dict[str, list[dict[str, Any]]] = {
        "unknown type": [ack(0, 2, 5)],
        "negative type": [ack(0, 2, -1)],
        "no types": [{"first_offset": 0, "last_offset": 2, "acknowledge_types": []}],
        "too few types": [ack(0, 2, ACCEPT, ACCEPT)],
        "too many types": [ack(0, 2, ACCEPT, ACCEPT, ACCEPT, ACCEPT)],
        "backwards": [ack(2, 0)],
        "overlapping": [ack(0, 1), ack(1, 2)],
        "not in order": [ack(2), ack(0, 1)],
        "not acquired": [ack(3, 5)],
        "half of it acquired": [ack(1, 4)],
        "one right, one wrong": [ack(0), ack(7)],
    }
    for label, acks in cases.items():
        reader.acknowledge(label, *acks)
        reader.epoch -= run.responses[label]["error_code"] != "none"
    reader.acknowledge("right", ack(0, 2))


def by_others(run: Run) -> None:
    """Only the member that holds a record may acknowledge it, and all of a request is rolled back."""
    topic, first = filled(run, 2)
    first.opened(max_records=3)
    second = share_reader(run, first.group, topic, "m2", joins=False)
    second.opened(max_records=3)
    second.acknowledge("of the first member", ack(0, 2))
    second.acknowledge("its own and another's", ack(3, 5), ack(0, 2))
    second.acknowledge("across both", ack(0, 5))
    first.acknowledge("the first member", ack(0, 2))
    second.acknowledge("the second member", ack(3, 5))


def sessions(run: Run) -> None:
    topic, reader = filled(run)
    wanted = share_topic(topic, part(0, ack(0)))
    run.ask("no session", share_ack_body(reader.group, "m1", 1, wanted))
    run.ask("epoch 0", share_ack_body(reader.group, "m1", OPENS, wanted))
    run.ask("closes no session", share_ack_body(reader.group, "m1", CLOSES, wanted))
    run.ask("no group", share_ack_body(None, "m1", 1, wanted))
    run.ask("no member", share_ack_body(reader.group, None, 1, wanted))
    run.ask("empty member", share_ack_body(reader.group, "", 1, wanted))
    reader.opened()
    reader.peer.ask("epoch ahead", share_ack_body(reader.group, "m1", 3, wanted))
    reader.peer.ask("epoch 0 again", share_ack_body(reader.group, "m1", OPENS, wanted))
    reader.peer.ask("right", share_ack_body(reader.group, "m1", 1, wanted))
    reader.peer.ask("the same again", share_ack_body(reader.group, "m1", 1, wanted))
    reader.peer.ask("nothing", share_ack_body(reader.group, "m1", 2))
    reader.peer.ask("closes with one", share_ack_body(reader.group, "m1", CLOSES, share_topic(topic, part(0, ack(1)))))
    reader.epoch = OPENS
    reader.fetch_latest("what it held", share_topic(topic, 0), **AWAITS)


def several_partitions(run: Run) -> None:
    topic = run.topic(partitions=3)
    for index in range(3):
        fill_numbered(run, topic, 1, partition=index)
    reader = share_reader(run, share_group(run), topic, partitions=3)
    reader.opened(0)
    reader.fetch_latest("of another partition", share_topic(topic, 1), **AWAITS)
    parts = share_topic(topic, part(0, ack(0, 2)), part(1, ack(0), ack(2, 2, RELEASE)), part(2, ack(0)))
    reader.peer.ask("three partitions", share_ack_body(reader.group, "m1", reader.moved(), parts))
    unknown = share_topic(topic, part(1, ack(1)), part(9, ack(0)))
    reader.peer.ask("unknown partition", share_ack_body(reader.group, "m1", reader.moved(), unknown))
    reader.fetch_latest("what is left", **AWAITS)


def unknown_topic(run: Run) -> None:
    topic, reader = filled(run)
    reader.opened()
    both = (share_topic(missing(run), part(0, ack(0))), share_topic(topic, part(0, ack(0))))
    reader.peer.ask("besides a known one", share_ack_body(reader.group, "m1", reader.moved(), *both))


def members_that_leave(run: Run) -> None:
    """What a member held when it left is released; its session ends with its membership."""
    _, reader = filled(run)
    reader.opened()
    run.do(*BEAT, share_beat(reader.group, "m1", LEAVES))
    reader.acknowledge("after it left", ack(0))


def below_the_start(run: Run) -> None:
    """Offsets that the group has finished, and offsets below the start of the log."""
    topic, reader = filled(run, 3)
    reader.opened()
    reader.acknowledge("first batch", ack(0, 2))
    reader.acknowledge("first batch again", ack(0, 2))
    reader.acknowledge("one of it", ack(1))
    delete_before(run, topic, 5)
    reader.acknowledge("deleted ones", ack(3, 4))
    reader.acknowledge("across the start", ack(4, 6))
    reader.acknowledge("the rest", ack(5, 8))
    reader.fetch_latest("nothing left")


def dead_locks(run: Run) -> None:
    run.timed()
    topic, reader = filled(run, share_record_lock_duration_ms="1000")
    reader.opened()
    second = share_reader(run, reader.group, topic, "m2", joins=False)
    second.open_latest("another member has it")
    reader.acknowledge("too late", ack(0, 2))
    second.acknowledge("in time", ack(0, 2))


def renewals(run: Run) -> None:
    _, reader = filled(run)
    reader.opened()
    renew = ack(0, 2, RENEW)
    reader.acknowledge("without the flag", renew)
    reader.epoch -= run.responses["without the flag"]["error_code"] != "none"
    reader.acknowledge("with the flag", renew, is_renew_ack=True)
    reader.acknowledge("the flag alone", is_renew_ack=True)
    reader.acknowledge("accepts", ack(0, 2))
    reader.acknowledge("renews what is finished", renew, is_renew_ack=True)


def renewed_locks_hold(run: Run) -> None:
    """A renewed lock lasts from its renewal on."""
    run.timed()
    topic, reader = filled(run, share_record_lock_duration_ms="2000")
    reader.opened()
    second = share_reader(run, reader.group, topic, "m2", joins=False)
    second.fetch_latest("for another", share_topic(topic, 0), max_wait=1_500, min_bytes=1)
    reader.acknowledge("renews", ack(0, 2, RENEW), is_renew_ack=True)
    second.fetch_latest("still for another", max_wait=1_000, min_bytes=1)
    reader.acknowledge("in time", ack(0, 2))


def renewals_disabled(run: Run) -> None:
    _, reader = filled(run, share_renew_acknowledge_enable="false")
    reader.opened()
    reader.acknowledge("refused", ack(0, 2, RENEW), is_renew_ack=True)
    reader.epoch -= run.responses["refused"]["error_code"] != "none"
    reader.acknowledge("accepted", ack(0, 2))


def offsets_move_on(run: Run) -> None:
    """The start of the group moves over what is finished, in order, and is shown with the lag."""
    topic, reader = filled(run, 2)
    reader.opened()
    described = {"groups": [{"group_id": reader.group, "topics": [{"topic_name": topic.name, "partitions": [0]}]}]}

    def look(label: str) -> None:
        run.ask(label, described, api="describe_share_group_offsets", version=1)

    look("held")
    reader.acknowledge("the second", ack(1))
    look("one finished")
    reader.acknowledge("the first", ack(0))
    look("two finished")
    reader.acknowledge("rejects the rest", ack(2, 5, REJECT))
    look("all finished")
    fill(run, topic, batch(b"late"))
    look("one more")


SCENARIOS = (
    *scenarios(
        "share_acknowledge",
        "share_acknowledge",
        (
            accepted,
            all_kinds,
            wrong_batches,
            by_others,
            sessions,
            several_partitions,
            unknown_topic,
            members_that_leave,
            below_the_start,
            dead_locks,
            offsets_move_on,
        ),
    ),
    *scenarios(
        "share_acknowledge",
        "share_acknowledge",
        (renewals, renewed_locks_hold, renewals_disabled),
        versions=range(2, 99),
    ),
)
