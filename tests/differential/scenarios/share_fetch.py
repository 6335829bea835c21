"""ShareFetch: sessions, acquisition, delivery counts, and the acknowledgements that it carries."""

from __future__ import annotations

from typing import Any

from differential.batches import batch
from differential.requests import delete_before, fill, fill_numbered, missing
from differential.script import Run, Topic, scenarios
from differential.shares import (
    ACCEPT,
    ACKNOWLEDGE,
    AWAITS,
    AWAITS_NONE,
    BATCH_OPTIMIZED,
    CLOSES,
    GAP,
    OPENS,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    RENEW,
    ShareReader,
    ack,
    part,
    share_ack_body,
    share_fetch_body,
    share_group,
    share_joined,
    share_reader,
    share_topic,
)
from differential.transactions import ledger, transactor


def filled(run: Run, count: int = 1, **fields: Any) -> tuple[Topic, ShareReader]:
    """A topic of so many batches of three records, and the only member of a group that reads it."""
    topic = run.topic()
    fill_numbered(run, topic, count)
    return topic, share_reader(run, share_group(run, **fields), topic)


# Sessions


def first_fetches(run: Run) -> None:
    topic, reader = filled(run)
    reader.open("opens")
    reader.fetch("nothing new")
    fill(run, topic, batch(b"late", b"later"))
    reader.fetch("new records")
    reader.epoch = CLOSES
    reader.fetch("closes")
    reader.epoch = OPENS
    reader.open("opens again")


def wrong_session_epochs(run: Run) -> None:
    topic, reader = filled(run)
    wanted = share_topic(topic, 0)
    run.ask("no session", share_fetch_body(reader.group, "m1", 1, wanted))
    run.ask("closes no session", share_fetch_body(reader.group, "m1", CLOSES))
    run.ask("epoch -2", share_fetch_body(reader.group, "m1", -2, wanted))
    reader.opened()
    for epoch in (3, 0, 1, 1, 2, -2, 3):
        label = f"epoch {epoch}"
        while label in run.responses:
            label += " again"
        reader.peer.ask(label, share_fetch_body(reader.group, "m1", epoch, wanted))


def sessions_of_other_connections(run: Run) -> None:
    topic, reader = filled(run)
    reader.opened()
    run.ask("next epoch on another connection", share_fetch_body(reader.group, "m1", 1, share_topic(topic, 0)))
    other = share_reader(run, reader.group, topic, "m2", joins=False)
    other.fetch("another member opens", share_topic(topic, 0))


def bad_names(run: Run) -> None:
    topic, reader = filled(run)
    wanted = share_topic(topic, 0)
    run.ask("no group", share_fetch_body(None, "m1", OPENS, wanted))
    run.ask("no member", share_fetch_body(reader.group, None, OPENS, wanted))
    run.ask("empty member", share_fetch_body(reader.group, "", OPENS, wanted))
    run.ask("long member", share_fetch_body(reader.group, "m" * 37, OPENS, wanted))


def partitions_of_a_session(run: Run) -> None:
    topic = run.topic(partitions=2)
    for index in (0, 1):
        fill_numbered(run, topic, 1, partition=index)
    name = share_group(run)
    reader = share_reader(run, name, topic, partitions=2)
    reader.open("one partition", 1)
    reader.fetch("the other too", share_topic(topic, 0), **AWAITS)
    forgotten = [{"topic_id": topic.topic_id, "partitions": [0]}]
    fill(run, topic, batch(b"a"), partition=0)
    fill(run, topic, batch(b"b"), partition=1)
    reader.fetch("without it", forgotten_topics_data=forgotten)
    reader.fetch("nothing left")
    reader.fetch("with it again", share_topic(topic, 0))
    reader.fetch(
        "forgets an unknown one", forgotten_topics_data=[{"topic_id": missing(run).topic_id, "partitions": [7]}]
    )


def unknown_partitions(run: Run) -> None:
    topic, reader = filled(run)
    reader.opened()
    reader.fetch("unknown partition", share_topic(topic, 9))
    reader.fetch("still unknown")
    fill(run, topic, batch(b"late"))
    reader.fetch("a known one besides")
    other = share_reader(run, reader.group, topic, "m2", joins=False)
    other.fetch("opens with an unknown partition", share_topic(topic, 9))


def unknown_topics(run: Run) -> None:
    topic, reader = filled(run)
    reader.opened()
    reader.fetch("unknown topic", share_topic(missing(run), 0))
    reader.fetch("still unknown")
    other = share_reader(run, reader.group, topic, "m2", joins=False)
    other.fetch("opens with an unknown topic", share_topic(missing(run), 0))


def fetch_sizes(run: Run) -> None:
    topic, reader = filled(run, 2)
    wanted = share_topic(topic, 0)
    reader.open("opens", max_records=1, batch_size=1)
    for label, fields in {
        "no records": {"max_records": 0},
        "negative records": {"max_records": -1},
        "no bytes": {"max_bytes": 0},
    }.items():
        reader.peer.ask(label, share_fetch_body(reader.group, "m1", reader.epoch, wanted, **fields))
        reader.epoch += run.responses[label]["error_code"] == "none"


# What is acquired


def record_limits(run: Run) -> None:
    """By batches: as many whole batches as the limit needs."""
    _, reader = filled(run, 6)
    reader.open("one record", max_records=1, batch_size=1)
    reader.fetch("four records", max_records=4, batch_size=4)
    reader.fetch("batches of one", max_records=4, batch_size=1)
    reader.fetch("the rest", max_records=100, batch_size=2)


def strict_record_limits(run: Run) -> None:
    topic = run.topic()
    fill(run, topic, batch(*(f"v{index}".encode() for index in range(10))))
    fill_numbered(run, topic, 2)
    reader = share_reader(run, share_group(run), topic)
    reader.open("one record", max_records=1, share_acquire_mode=RECORD_LIMIT)
    reader.fetch("four records", max_records=4, share_acquire_mode=RECORD_LIMIT)
    reader.fetch("past the end of the batch", max_records=6, batch_size=2, share_acquire_mode=RECORD_LIMIT)
    reader.fetch("by batches", max_records=1, share_acquire_mode=BATCH_OPTIMIZED)
    reader.fetch("unknown mode", max_records=1, share_acquire_mode=7)


def members_share_a_partition(run: Run) -> None:
    topic, first = filled(run, 4)
    first.open("first", max_records=3)
    share_joined(run, first.group, "m2", topic)
    second = share_reader(run, first.group, topic, "m2", joins=False)
    second.open("second", max_records=3)
    first.fetch("first again", share_topic(topic, part(0, ack(0, 2))), max_records=3)
    second.fetch("second releases", share_topic(topic, part(0, ack(3, 5, RELEASE))), max_records=0)
    first.fetch("first has what is released", **AWAITS, max_records=3)


def offset_resets(run: Run) -> None:
    topic = run.topic()
    fill_numbered(run, topic, 2)
    latest, by_time = run.name("latest"), share_group(run, "by-time", share_auto_offset_reset="by_duration:PT1H")
    reader = share_reader(run, latest, topic)
    reader.fetch("latest opens", share_topic(topic, 0), **AWAITS_NONE)
    fill(run, topic, batch(b"new"))
    reader.fetch("latest", **AWAITS)
    reader = share_reader(run, by_time, topic)
    reader.fetch("old records", share_topic(topic, 0), **AWAITS_NONE)


def start_of_the_log_moves(run: Run) -> None:
    topic, reader = filled(run, 4)
    reader.open("three of twelve", max_records=3)
    delete_before(run, topic, 7)
    reader.fetch("behind the new start")
    reader.fetch("late acknowledgement", share_topic(topic, part(0, ack(0, 2))))
    reader.fetch("nothing left")


def aborted_transactions(run: Run) -> None:
    """Control records are acquired as gaps are, and under read_committed aborted records are not handed out."""
    who, topic = transactor(run), ledger(run)
    who.wrote(topic)
    who.end(commit=False)
    who.init()
    who.add(topic)
    who.write(topic, b"committed", b"too")
    who.end(commit=True)
    fill(run, topic, batch(b"plain"))
    everything, committed = (
        share_group(run, "all"),
        share_group(run, "committed", share_isolation_level="read_committed"),
    )
    reader = share_reader(run, everything, topic)
    reader.open("everything")
    reader = share_reader(run, committed, topic)
    reader.open("committed")
    reader.fetch("nothing left", share_topic(topic, part(0, ack(0, 8))))


def open_transactions(run: Run) -> None:
    who, topic = transactor(run), ledger(run)
    fill(run, topic, batch(b"before"))
    who.init()
    who.add(topic)
    who.write(topic, b"open")
    fill(run, topic, batch(b"behind"))
    reader = share_reader(run, share_group(run, share_isolation_level="read_committed"), topic)
    reader.open("up to the open transaction")
    reader.fetch("nothing more")
    who.end(commit=True)
    reader.fetch("when it is committed", **AWAITS)


def locks_of_a_partition(run: Run) -> None:
    topic = run.topic()
    for start in range(0, 300, 50):
        fill(run, topic, batch(*(f"v{start + index}".encode() for index in range(50))))
    reader = share_reader(run, share_group(run, share_partition_max_record_locks="100"), topic)
    reader.open("as many as may be held")
    reader.fetch("no more")
    reader.fetch("as many as were finished", share_topic(topic, part(0, ack(0, 49))), **AWAITS)


# Delivery counts


def released_and_fetched(reader: ShareReader, label: str, response: dict[str, Any]) -> dict[str, Any]:
    """Release what the response acquired, wait until that is written, and record the next fetch."""
    acquired = response["responses"][0]["partitions"][0]["acquired_records"]
    reader.acknowledged(*(ack(item["first_offset"], item["last_offset"], RELEASE) for item in acquired))
    return reader.fetch(label)


def released_until_archived(run: Run) -> None:
    """Near the limit fewer records go out together, so that a bad one does not archive its neighbours."""
    topic = run.topic()
    fill(run, topic, batch(*(f"v{index}".encode() for index in range(6))))
    reader = share_reader(run, share_group(run), topic)
    response = reader.open("fetch 1")
    for count in range(2, 13):
        response = released_and_fetched(reader, f"fetch {count}", response)


def limit_of_two(run: Run) -> None:
    _, reader = filled(run, share_delivery_count_limit="2")
    response = released_and_fetched(reader, "fetch 2", reader.open("fetch 1"))
    released_and_fetched(reader, "nothing left", response)


# Acknowledgements in fetches


def acknowledgements_of_all_kinds(run: Run) -> None:
    topic, reader = filled(run, 2)
    reader.open("six records")
    kinds = ack(0, 5, ACCEPT, RELEASE, REJECT, GAP, ACCEPT, RELEASE)
    reader.fetch("one of each", share_topic(topic, part(0, kinds)), max_records=0)
    reader.fetch("the released ones", **AWAITS)
    reader.fetch("accepts them", share_topic(topic, part(0, ack(1), ack(5))))
    reader.fetch("nothing left")


def wrong_acknowledgements(run: Run) -> None:
    topic, reader = filled(run, 3)
    reader.open("three records", max_records=3)
    cases = {
        "unknown type": [ack(0, 2, 5)],
        "negative type": [ack(0, 2, -1)],
        "no types": [{"first_offset": 0, "last_offset": 2, "acknowledge_types": []}],
        "too few types": [ack(0, 2, ACCEPT, ACCEPT)],
        "too many types": [ack(0, 2, ACCEPT, ACCEPT, ACCEPT, ACCEPT)],
        "backwards": [ack(2, 0)],
        "overlapping": [ack(0, 1), ack(1, 2)],
        "not in order": [ack(2), ack(0, 1)],
        "not acquired": [ack(3, 5)],
        "beyond the end": [ack(7, 20)],
        "half of it acquired": [ack(1, 4)],
        "renewal": [ack(0, 2, RENEW)],
    }
    for label, acks in cases.items():
        reader.fetch(label, share_topic(topic, part(0, *acks)), max_records=0 if label != "renewal" else 1)
        if run.responses[label]["error_code"] != "none":
            reader.epoch -= 1
    reader.fetch("right", share_topic(topic, part(0, ack(0, 2))), max_records=3)


def acknowledgements_when_opening(run: Run) -> None:
    topic, reader = filled(run)
    reader.fetch("opens with one", share_topic(topic, part(0, ack(0, 2))))
    reader.epoch = OPENS
    reader.open("opens")
    reader.epoch = CLOSES
    reader.fetch("closes with one", share_topic(topic, part(0, ack(0))))
    reader.epoch = OPENS
    reader.open("the rest")


def renewals(run: Run) -> None:
    topic, reader = filled(run, 2)
    reader.open("three records", max_records=3)
    renew = share_topic(topic, part(0, ack(0, 2, RENEW)))
    no_fetch = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait": 0}
    reader.fetch("without the flag", renew)
    reader.epoch -= run.responses["without the flag"]["error_code"] != "none"
    reader.fetch("renews and fetches", renew, is_renew_ack=True)
    reader.epoch -= run.responses["renews and fetches"]["error_code"] != "none"
    reader.fetch("renews", renew, is_renew_ack=True, **no_fetch)
    reader.epoch -= run.responses["renews"]["error_code"] != "none"
    both = share_topic(topic, part(0, ack(0), ack(1, 2, RENEW)))
    reader.fetch("accepts and renews", both, is_renew_ack=True, **no_fetch)
    reader.epoch -= run.responses["accepts and renews"]["error_code"] != "none"
    reader.fetch("goes on", share_topic(topic, part(0, ack(1, 2))))


def locks_expire(run: Run) -> None:
    run.timed()
    topic, reader = filled(run, share_record_lock_duration_ms="1000")
    reader.open("three records")
    reader.fetch("comes again", **AWAITS)
    reader.fetch("late and in time", share_topic(topic, part(0, ack(0, 2))))
    reader.fetch("nothing left")


def members_that_go_release(run: Run) -> None:
    """A member that leaves, or whose session or connection closes, holds nothing any more."""
    topic, reader = filled(run)
    reader.opened()
    closed = run.do(*ACKNOWLEDGE, share_ack_body(reader.group, "m1", CLOSES))
    assert closed["error_code"] == "none", closed
    second = share_reader(run, reader.group, topic, "m2", joins=False)
    second.open("after a session closed")
    second.peer.close()
    third = share_reader(run, reader.group, topic, "m3", joins=False)
    third.open("after a connection closed")


SCENARIOS = (
    *scenarios(
        "share_fetch",
        "share_fetch",
        (
            first_fetches,
            wrong_session_epochs,
            sessions_of_other_connections,
            bad_names,
            partitions_of_a_session,
            unknown_partitions,
            unknown_topics,
            fetch_sizes,
            record_limits,
            members_share_a_partition,
            offset_resets,
            start_of_the_log_moves,
            aborted_transactions,
            open_transactions,
            locks_of_a_partition,
            released_until_archived,
            limit_of_two,
            acknowledgements_of_all_kinds,
            wrong_acknowledgements,
            acknowledgements_when_opening,
            locks_expire,
            members_that_go_release,
        ),
    ),
    *scenarios("share_fetch", "share_fetch", (strict_record_limits, renewals), versions=range(2, 99)),
)
