"""Dead letters: what goes there, with which headers, when it counts, and what happens where it cannot go."""

from __future__ import annotations

import pytest
from tests.unit.partition.rig import NOW_MS, records, topic
from tests.unit.shares.share_leader_rig import GROUP, Leader, runs, written

from penstock.config.broker import BrokerConfig
from penstock.config.group_settings import check_group_configs
from penstock.model.generated_errors import InvalidConfig
from penstock.model.ids import Offset
from penstock.model.topic import PartitionState, TopicState
from penstock.shares.letters import COPY_BYTES_MAX, EXCEEDED, REJECTED
from penstock.shares.persister import ACKNOWLEDGED, ARCHIVED, ARCHIVING, StateBatch
from penstock.shares.share_partition import ACCEPT, GAP, REJECT, RELEASE
from penstock.wire.api import produce as produce_api
from penstock.wire.records import Record, build_batch, decode_records

DEAD = "dlq.orders"
SETTINGS = {"errors.deadletterqueue.topic.name": DEAD, "share.delivery.count.limit": "2"}
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
SECOND_MS = 1_000


def dead_topic(partitions: int = 1, **configs: str) -> TopicState:
    return topic(
        DEAD, partitions, number=2, configs={**ENABLED, **{k.replace("_", "."): v for k, v in configs.items()}}
    )


def leader(dead: TopicState | None, *sizes: int, **settings: str) -> Leader:
    """A leader of a topic with batches of so many records, and perhaps of its dead letters."""
    made = Leader(
        topic(),
        *(() if dead is None else (dead,)),
        settings={**SETTINGS, **{k.replace("_", "."): v for k, v in settings.items()}},
    )
    at = 0
    for size in sizes:
        batch = [
            Record(index, NOW_MS, b"key %d" % (at + index), b"value %d" % (at + index), [("h", b"x")])
            for index in range(size)
        ]
        made.rig.append(made.rig.replica(), build_batch(batch))
        at += size
    return made


def letters(made: Leader, partition: int = 0) -> list[Record]:
    return records(made.rig.replica(DEAD, partition))


def origin(record: Record) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in record.headers}


@runs
async def test_a_rejected_record_is_copied_once_its_end_is_written_and_archived_after_that() -> None:
    made = leader(dead_topic(), 3)
    assert made.fetch() == [(0, 2, 1)]

    made.say(REJECT, 1)
    made.say(GAP, 2)
    made.say(ACCEPT, 0)
    await made.settle()

    [letter] = letters(made)
    assert (letter.key, letter.value) == (b"key 1", b"value 1")
    assert origin(letter) == {
        "h": b"x",
        "topic": b"orders",
        "partition": b"0",
        "offset": b"1",
        "group": GROUP.encode(),
        "delivery.count": b"1",
        "message": REJECTED.encode(),
    }
    assert (1, ARCHIVING) in written(made.coordinator)
    assert (1, ARCHIVED) not in written(made.coordinator), "the start passes it instead"
    assert made.coordinator.start == 3


@runs
async def test_a_record_that_is_delivered_too_often_is_a_dead_letter_whether_released_or_expired() -> None:
    made = leader(dead_topic(), 1, 1)
    assert made.fetch() == [(0, 1, 1)]
    made.say(RELEASE, 0, 1)
    assert made.fetch() == [(0, 0, 2), (1, 1, 2)]
    made.say(RELEASE, 0)

    await made.pass_ms(31 * SECOND_MS)

    assert [(each.value, origin(each)["delivery.count"]) for each in letters(made)] == [
        (b"value 0", b"2"),
        (b"value 1", b"2"),
    ]
    assert {origin(each)["message"] for each in letters(made)} == {EXCEEDED.encode()}
    assert (made.led.delivered, made.led.redelivered, made.led.expired) == (4, 2, 1), "for the metrics"
    assert made.dead_letters.copied == 2
    assert made.coordinator.start == 2
    assert made.fetch() == []


@runs
async def test_without_its_topic_a_record_waits_and_is_neither_lost_nor_delivered_again() -> None:
    made = leader(None, 2)
    made.fetch()

    made.say(REJECT, 0)
    made.say(ACCEPT, 1)
    await made.settle()
    await made.pass_ms(5 * SECOND_MS)

    assert made.fetch() == []
    assert made.coordinator.start == 0
    [warning] = made.rig.notes.named("dead_letters_not_copied")
    assert "does not exist" in warning["reason"]
    closed = topic(DEAD, number=2)
    made.image.topics[DEAD] = closed
    made.rig.change(None, closed)
    await made.pass_ms(60 * SECOND_MS)
    assert letters(made) == []
    made.image.topics[DEAD] = dead_topic()
    await made.pass_ms(60 * SECOND_MS)
    assert [each.value for each in letters(made)] == [b"value 0"]
    assert made.coordinator.start == 2
    assert len(made.rig.notes.named("dead_letters_not_copied")) == 1


@runs
async def test_a_new_leader_copies_what_the_last_one_did_not() -> None:
    made = leader(dead_topic(), 3)
    made.coordinator.start = made.rig.replica().offsets.log_start
    made.coordinator.batches = {
        0: StateBatch(0, 0, ACKNOWLEDGED, 1),
        1: StateBatch(1, 1, ARCHIVING, 2),
    }

    made.share()
    await made.settle()

    assert [each.value for each in letters(made)] == [b"value 1"]
    assert made.coordinator.start == 2
    assert made.fetch() == [(2, 2, 1)]


@runs
async def test_a_topic_on_another_broker_gets_letters_until_it_has_confirmed_them() -> None:
    away = PartitionState(index=0, leader=2, leader_epoch=0, replicas=(2,), isr=(2,))
    dead = TopicState(name=DEAD, topic_id=topic(number=2).topic_id, configs=ENABLED, partitions=(away,))
    made = leader(dead, 1)
    made.fetch()
    made.say(REJECT, 0)
    await made.settle()

    [(broker, request, answer)] = made.peers.asked
    answer.resolve(answered(3))
    await made.settle()
    await made.pass_ms(2 * SECOND_MS)
    _, again, second = made.peers.asked[1]
    assert made.coordinator.start == 0
    second.resolve(answered(0))
    await made.settle()

    assert (broker, request.acks) == (2, -1)
    [data] = again.topic_data[0].partition_data
    assert data.records is not None
    [letter] = decode_records(data.records)
    assert letter.value == b"value 0"
    assert made.coordinator.start == 1


def answered(code: int) -> produce_api.Response:
    done = produce_api.PartitionProduceResponse(index=0, error_code=code)
    return produce_api.Response(responses=[produce_api.TopicProduceResponse(partition_responses=[done])])


@runs
async def test_what_is_too_large_with_its_headers_leaves_its_whereabouts() -> None:
    made = leader(dead_topic(max_message_bytes="700"))
    sizes = (300, 300, 650)
    batch = [Record(at, NOW_MS, None, b"v" * size) for at, size in enumerate(sizes)]
    made.rig.append(made.rig.replica(), build_batch(batch))
    made.fetch()

    made.say(REJECT, 0, 2)
    await made.settle()

    assert [(len(each.value or b""), origin(each)["offset"]) for each in letters(made)] == [
        (300, b"0"),
        (300, b"1"),
        (0, b"2"),
    ]
    assert made.coordinator.start == 3


@runs
async def test_many_letters_go_in_batches_of_bounded_size_to_the_partition_of_the_same_number() -> None:
    made = Leader(
        topic("orders", 3), dead_topic(2), settings={**SETTINGS, "errors.deadletterqueue.copy.record.enable": "true"}
    )
    big = b"v" * (COPY_BYTES_MAX // 2)
    for _ in range(5):
        made.rig.append(made.rig.replica(), build_batch([Record(0, NOW_MS, None, big)]))
    while made.fetch():
        pass

    made.say(REJECT, 0, 4)
    await made.settle()

    assert [origin(each)["offset"] for each in letters(made, 0)] == [b"0", b"1", b"2", b"3", b"4"]
    batches = list(made.rig.replica(DEAD).log.view().batches(Offset(0)))
    assert [each.record_count for each in batches] == [2, 2, 1]
    assert letters(made, 1) == []
    assert made.coordinator.start == 5


@runs
async def test_letters_without_copies_tell_only_where_their_records_are() -> None:
    made = leader(dead_topic(), 1, errors_deadletterqueue_copy_record_enable="false")
    made.fetch()

    made.say(REJECT, 0)
    await made.settle()

    [letter] = letters(made)
    assert (letter.key, letter.value) == (None, None)
    assert (origin(letter)["offset"], "h" in origin(letter)) == (b"0", False)


@runs
async def test_a_group_that_reads_its_dead_letters_does_not_feed_them() -> None:
    made = leader(dead_topic(), 1)
    made.rig.append(made.rig.replica(DEAD), build_batch([Record(0, NOW_MS, None, b"dead")]))
    made.fetch(topic=DEAD)

    made.say(REJECT, 0, topic=DEAD)
    await made.settle()

    assert len(letters(made)) == 1
    assert made.rig.notes.named("dead_letters_dropped")


def test_the_name_of_a_dead_letter_topic_begins_with_the_prefix() -> None:
    check_group_configs({"errors.deadletterqueue.topic.name": "dlq.x"}, BrokerConfig())
    check_group_configs({"errors.deadletterqueue.topic.name": ""}, BrokerConfig())
    with pytest.raises(InvalidConfig, match="prefix"):
        check_group_configs({"errors.deadletterqueue.topic.name": "orders"}, BrokerConfig())
