"""Delayed, scheduled and recurring messages with unmodified clients, and with a broker that is killed."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from protocol.clients import abilities as can
from protocol.clients.abilities import Record
from protocol.clients.library import with_every_client
from protocol.topics import attempts, create_topic, fresh_name
from protocol.under_test import Broker
from soak_time import kills

pytestmark = [pytest.mark.xdist_group("schedules"), pytest.mark.penstock_only]

KILLS = kills(few=4)
INVALID_RECORD = 87
TOMBSTONES = (None, b"", b"null")
"""As clients show them."""
DELIVER_AT = "penstock-deliver-at"
DELAY = "penstock-delay-ms"
CRON = "penstock-cron"
DUE = "penstock-due-ms"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def iso_of(at_ms: int) -> bytes:
    """A time in the basic format of ISO 8601: the Java tools print headers with colons between names and values."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y%m%dT%H%M%S}.{at_ms % 1000:03}Z".encode()


def schedule_topics(bootstrap: str, name: str, *, partitions: int = 1, **configs: str) -> tuple[str, str]:
    """A target topic and the topic of schedules for it."""
    target = fresh_name(name)
    create_topic(bootstrap, target, partitions=partitions)
    named = {key.replace("_", "."): value for key, value in configs.items()}
    create_topic(bootstrap, f"{target}-later", configs={"schedule.target": target, **named})
    return target, f"{target}-later"


def producer(bootstrap: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})


def write(to: Producer, topic: str, key: str, value: str | None, **headers: str | int) -> int:
    """Produce one record and return its offset; raises the broker's refusal."""
    found: list[Message] = []

    def delivered(error: Any, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        found.append(message)

    named = [(name.replace("_", "-"), str(text)) for name, text in headers.items()]
    to.produce(topic, key=key, value=value, headers=named, on_delivery=delivered)
    to.flush(30)
    offset = found[0].offset()
    assert offset is not None
    return offset


class Readers:
    """Reads all records of a topic, uncommitted ones too."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_uncommitted", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        self.found: list[Message] = []

    def until(self, fact: Any, what: str) -> list[Message]:
        for _ in attempts(what=what, pause_seconds=0.0):
            if fact(self.found):
                return self.found
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.found.append(message)
        raise AssertionError

    def close(self) -> None:
        self._consumer.close()


def due_of(message: Message) -> int:
    return int(dict(message.headers() or [])[DUE])


@with_every_client(can.Produces, can.Consumes)
def test_every_client_schedules_and_reads_what_is_due_and_what_is_pending(client: Any, broker: Broker) -> None:
    target, later = schedule_topics(broker.bootstrap, "story")
    at = now_ms() + 300

    # One at a time: kcat gives all records of a run the same headers.
    for key, value, header in (
        (b"id-1", b"past", (DELIVER_AT, b"1000")),
        (b"id-2", b"iso", (DELIVER_AT, iso_of(at))),
        (b"id-3", b"delay", (DELAY, b"600")),
    ):
        client.produce(later, [Record(key=key, value=value, headers=(header, ("trace", b"x")))])

    # Some clients read to the end of what is there.
    for topic, count in ((target, 3), (later, 6)):
        reader = Readers(broker.bootstrap, topic)
        reader.until(lambda found, count=count: len(found) == count, f"{count} records in {topic}")
        reader.close()
    found = client.consume(target, 3)
    assert [(each.key, each.value) for each in found] == [(b"id-1", b"past"), (b"id-2", b"iso"), (b"id-3", b"delay")]
    assert all(each.headers[0] == ("trace", b"x") and each.headers[1][0] == DUE for each in found)
    assert int(found[1].headers[1][1]) == at <= now_ms()
    # Fires and closes lie between these, and every client passes over them.
    records = client.consume(later, 6)
    assert {each.key for each in records if each.value in TOMBSTONES} == {b"id-1", b"id-2", b"id-3"}


def test_records_that_are_no_schedules_are_refused(broker: Broker) -> None:
    _, later = schedule_topics(broker.bootstrap, "refused")
    to = producer(broker.bootstrap)
    for headers in (
        {},
        {"penstock_deliver_at": "tomorrow"},
        {"penstock_deliver_at": "1000", "penstock_delay_ms": "5"},
        {"penstock_cron": "61 * * * *"},
        {"penstock_cron": "0 9 * * MON", "penstock_tz": "Europe/Atlantis"},
        {"penstock_delay_ms": "-1"},
    ):
        with pytest.raises(KafkaException) as refused:
            write(to, later, "key", "value", **headers)
        assert refused.value.args[0].code() == INVALID_RECORD


def test_topics_of_schedules_keep_their_target_policy_and_partitions(broker: Broker) -> None:
    target, later = schedule_topics(broker.bootstrap, "kept")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def refused(futures: dict[Any, Any]) -> str:
        with pytest.raises(KafkaException) as error:
            next(iter(futures.values())).result()
        return str(error.value)

    def change(name: str, value: str) -> str:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        return refused(admin.incremental_alter_configs([ConfigResource("topic", later, incremental_configs=[entry])]))

    assert "never changed" in change("schedule.target", later)
    assert "cleanup.policy" in change("cleanup.policy", "delete")
    assert "schedules" in refused(admin.create_partitions([NewPartitions(later, 2)]))
    for name, config in (
        ("missing", {"schedule.target": "no-such-topic"}),
        ("chained", {"schedule.target": later}),
        ("deleted", {"schedule.target": target, "cleanup.policy": "compact,delete"}),
    ):
        assert "schedule.target" in refused(admin.create_topics([NewTopic(fresh_name(name), 1, config=config)]))


def test_an_upsert_moves_a_tombstone_cancels_and_a_pause_holds(broker: Broker) -> None:
    target, later = schedule_topics(broker.bootstrap, "moved")
    to = producer(broker.bootstrap)
    soon = now_ms() + 60_000
    for key in ("moved", "cancelled", "held"):
        write(to, later, key, "before", penstock_deliver_at=soon)
    write(to, later, "moved", "after", penstock_deliver_at=1_000, penstock_key="other")
    write(to, later, "cancelled", None)
    write(to, later, "held", "never", penstock_deliver_at=1_000, penstock_paused="true")
    write(to, later, "last", "done", penstock_deliver_at=1_001)

    reader = Readers(broker.bootstrap, target)
    found = reader.until(lambda found: any(each.value() == b"done" for each in found), "the last message")
    reader.close()

    assert [(each.key(), each.value()) for each in found] == [(b"other", b"after"), (b"last", b"done")]


def test_a_transaction_schedules_when_it_is_committed_and_not_when_it_is_aborted(broker: Broker) -> None:
    target, later = schedule_topics(broker.bootstrap, "txn")
    plain = producer(broker.bootstrap)
    to = producer(broker.bootstrap, **{"transactional.id": fresh_name("txn")})
    to.init_transactions()

    to.begin_transaction()
    to.produce(later, key="a", value="aborted", headers=[(DELIVER_AT, "1000")])
    to.flush(30)
    write(plain, later, "first", "prompt", penstock_deliver_at=1_000)
    reader = Readers(broker.bootstrap, target)
    assert [each.value() for each in reader.until(len, "the prompt message")] == [b"prompt"]
    to.abort_transaction()
    to.begin_transaction()
    to.produce(later, key="a", value="committed", headers=[(DELIVER_AT, "1000")])
    to.commit_transaction()

    found = reader.until(lambda found: len(found) == 2, "the committed message")
    reader.close()
    assert [each.value() for each in found] == [b"prompt", b"committed"]


@pytest.mark.parametrize("misfire", ["once", "skip", "all"])
def test_a_recurring_schedule_makes_up_for_missed_times_as_it_says(broker: Broker, misfire: str) -> None:
    target, later = schedule_topics(broker.bootstrap, "cron", schedule_misfire=misfire)
    to = producer(broker.bootstrap)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    headers = [(CRON, "0 * * * *")]
    begun = int((hour - timedelta(hours=3, minutes=30)).timestamp() * 1000)
    to.produce(later, key="hourly", value="tick", headers=headers, timestamp=begun)
    to.flush(30)
    following = Readers(broker.bootstrap, later)
    pending = following.until(lambda found: len(found) == 2, "the next time of the schedule")[-1]
    following.close()

    assert pending.key() == b"hourly"
    assert pending.value() == b"tick"
    write(to, later, "last", "done", penstock_deliver_at=now_ms())
    reader = Readers(broker.bootstrap, target)
    found = reader.until(lambda found: any(each.value() == b"done" for each in found), "the last message")
    reader.close()
    missed = [int((hour - timedelta(hours=ago)).timestamp() * 1000) for ago in (3, 2, 1, 0)]
    ticks = [due_of(each) for each in found if each.value() == b"tick"]
    assert ticks == {"once": missed[:1], "skip": [], "all": missed}[misfire]


def test_a_message_that_the_target_refuses_does_not_hold_up_the_others(broker: Broker) -> None:
    target = fresh_name("strict")
    create_topic(broker.bootstrap, target, configs={"max.message.bytes": "2000"})
    create_topic(broker.bootstrap, f"{target}-later", configs={"schedule.target": target})
    to = producer(broker.bootstrap)
    for number in range(20):
        to.produce(
            f"{target}-later",
            key=str(number),
            value=b"x" * (5_000 if number == 7 else 50),
            headers=[(DELIVER_AT, str(1_000 + number))],
        )
    to.flush(30)

    reader = Readers(broker.bootstrap, target)
    found = reader.until(lambda found: len(found) == 19, "all but one")
    reader.close()

    assert [int(each.key() or b"") for each in found] == [number for number in range(20) if number != 7]


def test_a_deleted_target_is_waited_for_and_the_next_one_of_its_name_is_served(broker: Broker) -> None:
    target, later = schedule_topics(broker.bootstrap, "again", partitions=2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    to = producer(broker.bootstrap)
    write(to, later, "first", "1", penstock_deliver_at=1_000)
    reader = Readers(broker.bootstrap, target, 2)
    reader.until(len, "the first message")
    reader.close()
    admin.delete_topics([target])[target].result()
    write(to, later, "second", "2", penstock_deliver_at=1_000)

    create_topic(broker.bootstrap, target)

    reader = Readers(broker.bootstrap, target)
    found = reader.until(len, "the second message")
    reader.close()
    assert [each.value() for each in found] == [b"2"]


@pytest.mark.timeout(300 + 30 * KILLS)
def test_a_broker_that_is_killed_delivers_every_schedule_once(start_broker: Any) -> None:
    """Schedules fire, move and are cancelled while the broker is killed again and again."""
    broker = start_broker()
    target, later = schedule_topics(broker.bootstrap, "killed", partitions=3)
    rng = random.Random(5)
    each_life = 400
    owed: dict[str, str] = {}
    cancelled: set[str] = set()
    values = 0
    to = producer(broker.bootstrap, **{"enable.idempotence": True, "log_level": 0})

    def schedule(key: str, value: str | None, due_ms: int) -> None:
        headers = [] if value is None else [(DELIVER_AT, str(due_ms))]
        to.produce(later, key=key, value=value, headers=headers)

    for life in range(KILLS):
        for number in range(each_life):
            values += 1
            key = f"{life}-{number}"
            owed[key] = str(values)
            schedule(key, str(values), now_ms() + rng.randrange(1_500))
        far = [f"far-{life}-{number}" for number in range(60)]
        for key in far:
            schedule(key, "far", now_ms() + 3_600_000)
        to.flush(30)
        for at, key in enumerate(far):
            if at % 2:
                values += 1
                owed[key] = str(values)
                schedule(key, str(values), now_ms() + rng.randrange(500))
            else:
                cancelled.add(key)
                schedule(key, None, 0)
        to.flush(30)
        if life % 2:
            # In the middle of what is due; otherwise as soon as it is written.
            reader = Readers(broker.bootstrap, target, 3)
            reader.until(lambda found, life=life: len(found) > each_life * life, "some messages")
            reader.close()
        broker.kill()
        broker.start()

    write(to, later, "end", "end", penstock_deliver_at=now_ms() + 3_000)
    reader = Readers(broker.bootstrap, target, 3)
    wanted = len(owed) + 1
    found = reader.until(lambda found: len(found) >= wanted, f"{wanted} messages")
    reader.close()

    counts = Counter((each.key() or b"").decode() for each in found)
    assert set(counts) == {*owed, "end"}
    assert set(counts.values()) == {1}
    assert all((each.value() or b"").decode() == owed.get((each.key() or b"").decode(), "end") for each in found)
    assert not cancelled & set(counts)
    assert "schedules_failed" not in json.dumps(broker.log.read_text())
