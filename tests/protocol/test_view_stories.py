"""Filtered views, read by unmodified clients: what they get, that they reach the end, and that groups lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.clients import abilities as can
from protocol.clients.abilities import Record, RefusedError
from protocol.clients.confluent import Confluent
from protocol.clients.java import TOOLS, tool
from protocol.clients.kafka_python import FORGETS_SOCKETS
from protocol.clients.kcat import kcat
from protocol.clients.library import with_every_client
from protocol.topics import attempts, create_topic, fresh_name

BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": "400"}
"""kafka-python asks for the metadata of its topics a tenth of a second after it began to join, and assigns nothing to
itself, and may do so for good, if it has joined by then."""

pytestmark = [pytest.mark.xdist_group("view-stories"), pytest.mark.penstock_only]

BOTH_LEVELS = ("read_committed", "read_uncommitted")
END_SECONDS_MAX = 60.0

MakeView = Callable[[str, str], str]


@pytest.fixture
def make_view(broker: Any) -> MakeView:
    def make(parent: str, where: str) -> str:
        name = fresh_name(f"{parent}-view")
        create_topic(broker.bootstrap, name, configs={"view.of": parent, "view.filter": where})
        return name

    return make


def order(number: int) -> bytes:
    return json.dumps({"n": number, "country": "EU" if number % 10 == 3 else "US", "pad": "x" * 100}).encode()


def numbers(records: Sequence[Record]) -> list[int]:
    return [json.loads(record.value or b"")["n"] for record in records]


def fill(broker: Any, topic: str, first: int, count: int, **delivery: Any) -> None:
    records = [Record(value=order(number), key=b"%d" % number) for number in range(first, first + count)]
    Confluent(broker.bootstrap).produce(topic, records, can.Delivery(**delivery))


def transactions(broker: Any, topic: str) -> dict[str, list[int]]:
    """Committed and aborted transactions between others; what readers of each level get of the view."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh_name("txn"), "linger.ms": 1})
    producer.init_transactions(60)
    seen: dict[str, list[int]] = {level: [] for level in BOTH_LEVELS}
    for step in range(8):
        aborts = step % 3 == 1
        producer.begin_transaction()
        for number in range(step * 25, step * 25 + 25):
            producer.produce(topic, order(number))
            if number % 10 == 3:
                for level in BOTH_LEVELS[aborts:]:
                    seen[level].append(number)
        producer.flush()
        (producer.abort_transaction if aborts else producer.commit_transaction)(60)
    return seen


@pytest.mark.parametrize("level", BOTH_LEVELS)
@with_every_client(can.Seeks)
def test_a_reader_gets_what_matches_and_reaches_the_end(
    client: Any, level: can.Isolation, broker: Any, topic: str, make_view: MakeView
) -> None:
    """Some batches have matches, long runs have none, and transactions are aborted between them."""
    view = make_view(topic, "value.country = 'EU'")
    matching = transactions(broker, topic)[level]
    fill(broker, topic, 1000, 300, codec="lz4", batch_bytes=2_000)
    matching += [number for number in range(1000, 1300) if number % 10 == 3]
    fill(broker, topic, 2004, 9)

    for start in (0, 1, 40, 250):
        with client.reader(view, start=start, isolation=level) as reader:
            # It goes on until its position is the end of the partition.
            found = reader.read(1)
            assert numbers(found) == [number for number in matching if number in numbers(found)]
            if start == 0:
                assert numbers(found) == matching
                assert reader.bounds() == (0, 8 * 26 + 309)
                at = found[10].timestamp_ms
                if at is not None:
                    assert reader.find(at) is not None


@with_every_client(can.Consumes)
def test_records_keep_their_offsets_keys_and_times(client: Any, broker: Any, topic: str, make_view: MakeView) -> None:
    view = make_view(topic, "value.country = 'EU'")
    fill(broker, topic, 0, 100, codec="zstd")

    found = client.consume(view, 10)

    of_topic = Confluent(broker.bootstrap).consume(topic, 100)
    assert [(each.offset, each.key, each.value) for each in found] == [
        (each.offset, each.key, each.value) for each in of_topic if json.loads(each.value or b"")["country"] == "EU"
    ]
    assert len(found) == 10


Poll = Callable[[Any, str, str, int], list[int]]
"""Reads a view in a group, from the committed offset or the end, for so many matches, and commits at its end."""


def confluent_in_group(broker: Any, group: str, view: str, matches: int) -> list[int]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "latest"}
    found: list[int] = []
    with closing(Consumer({**settings, "auto.commit.interval.ms": 100})) as consumer:
        consumer.subscribe([view])
        for _ in attempts(what=f"{matches} matches and a commit", seconds_max=END_SECONDS_MAX, pause_seconds=0):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value() or b"")["n"])
            if len(found) >= matches and at_end(broker, group, view):
                return found
    raise AssertionError


def polled_in_group(consumer: Any, broker: Any, group: str, view: str, matches: int) -> list[int]:
    found: list[int] = []
    for _ in attempts(what=f"{matches} matches and a commit", seconds_max=END_SECONDS_MAX, pause_seconds=0):
        for records in consumer.poll(timeout_ms=100, max_records=None).values():
            found += [json.loads(record.value)["n"] for record in records]
        consumer.commit()
        if len(found) >= matches and at_end(broker, group, view):
            return found
    raise AssertionError


def kafka_python_in_group(broker: Any, group: str, view: str, matches: int) -> list[int]:
    import kafka

    settings = {"bootstrap_servers": broker.bootstrap, "group_id": group, "auto_offset_reset": "latest"}
    with closing(kafka.KafkaConsumer(view, enable_auto_commit=False, **settings)) as consumer:
        return polled_in_group(consumer, broker, group, view, matches)


def aiokafka_in_group(broker: Any, group: str, view: str, matches: int) -> list[int]:
    from protocol.clients.aiokafka import AIOKafkaConsumer, blocking

    settings = {"bootstrap_servers": broker.bootstrap, "group_id": group, "auto_offset_reset": "latest"}
    with blocking(lambda: AIOKafkaConsumer(view, enable_auto_commit=False, **settings)) as consumer:
        return polled_in_group(consumer, broker, group, view, matches)


def kcat_in_group(broker: Any, group: str, view: str, matches: int) -> list[int]:
    """It ends, and commits, when its position is the end."""
    printed = kcat(broker.bootstrap, "-q", "-e", "-X", "auto.offset.reset=latest", "-G", group, view)
    return [json.loads(line)["n"] for line in printed.splitlines()]


def java_in_group(broker: Any, group: str, view: str, matches: int) -> list[int]:
    what = ("--bootstrap-server", broker.bootstrap, "--topic", view, "--group", group, "--timeout-ms", "8000")
    quick = ("--command-property", "auto.commit.interval.ms=100", "--command-property", "auto.offset.reset=latest")
    printed = tool(f"{TOOLS}.consumer.ConsoleConsumer", *what, *quick)
    return [json.loads(line)["n"] for line in printed.splitlines() if line.startswith("{")]


IN_GROUPS = [
    pytest.param(confluent_in_group, id="confluent"),
    pytest.param(kafka_python_in_group, id="kafka_python", marks=FORGETS_SOCKETS),
    pytest.param(aiokafka_in_group, id="aiokafka"),
    pytest.param(kcat_in_group, id="kcat", marks=pytest.mark.needs("kcat")),
    pytest.param(java_in_group, id="java", marks=pytest.mark.needs("kafka-jars")),
]


def at_end(broker: Any, group: str, view: str) -> bool:
    """Whether the group's lag is zero."""
    with Confluent(broker.bootstrap).reader(view) as reader:
        end = reader.bounds()[1]
    committed = Confluent(broker.bootstrap).committed(group, (view, 0))
    return committed is not None and committed[0] == end


@pytest.mark.parametrize("read", IN_GROUPS)
def test_a_group_that_never_matched_loses_nothing_over_a_restart(
    read: Poll, broker: Any, topic: str, group: str, make_view: MakeView
) -> None:
    """Its position and its commits go on with the log, although `latest` is where it would begin without them."""
    view = make_view(topic, "value.country = 'EU'")
    fill(broker, topic, 0, 3)
    Confluent(broker.bootstrap).commit_offset(group, (view, 0), 0, "")
    assert read(broker, group, view, 0) == []
    assert at_end(broker, group, view)

    # Nothing reads while a match comes, in one batch with what does not match on both sides.
    fill(broker, topic, 4, 16, linger_ms=50)

    assert read(broker, group, view, 1) == [13]
    assert at_end(broker, group, view)


def test_a_view_is_read_only_and_lives_no_longer_than_its_parent(broker: Any, topic: str, make_view: MakeView) -> None:
    view = make_view(topic, "value.country = 'EU'")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    with pytest.raises(RefusedError) as refused:
        Confluent(broker.bootstrap).produce(view, [Record(value=order(3))])
    assert refused.value.code == 17, "INVALID_TOPIC_EXCEPTION"

    with pytest.raises(KafkaException):
        admin.delete_topics([topic])[topic].result(60)
    admin.delete_topics([view])[view].result(60)
    admin.delete_topics([topic])[topic].result(60)
    assert not {view, topic} & set(admin.list_topics(timeout=60).topics)


def test_a_bad_filter_is_refused_with_its_place(broker: Any, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    bad = NewTopic("bad", config={"view.of": topic, "view.filter": "value.country = 'EU'\nAND nonsense(value.n)"})

    with pytest.raises(KafkaException, match="line 2, column 5: nonsense is not in the language"):
        admin.create_topics([bad])["bad"].result(60)


def test_views_survive_a_restart_and_grow_with_their_parent(start_broker: Any) -> None:
    broker = start_broker()
    topic, view = fresh_name("orders"), fresh_name("view")
    create_topic(broker.bootstrap, topic)
    create_topic(broker.bootstrap, view, configs={"view.of": topic, "view.filter": "value.country = 'EU'"})
    fill(broker, topic, 0, 20)

    broker.restart()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    from confluent_kafka.admin import NewPartitions

    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)

    assert numbers(Confluent(broker.bootstrap).consume(view, 2)) == [3, 13]
    found = admin.list_topics(view, timeout=60).topics[view]
    assert len(found.partitions) == 2
    with Confluent(broker.bootstrap).reader(view, partition=1) as reader:
        assert reader.read(0) == []


def test_the_command_line_makes_tries_and_shows_views(broker: Any, topic: str) -> None:
    fill(broker, topic, 0, 40)
    Confluent(broker.bootstrap).produce(topic, [Record(value=b"no json"), Record(value=b'{"n": "text"}')])
    view, where = fresh_name("cli-view"), "value.country = 'EU' AND value.n > 5"

    made = cli(broker, "topic", "view", "create", view, "--of", topic, "--where", where, "-o", "json")
    assert (made["of"], made["partitions"]) == (topic, 1)
    assert {"view": view, "of": topic, "where": where} in cli(broker, "topic", "view", "list", "-o", "json")
    assert cli(broker, "topic", "view", "describe", view, "-o", "json")["partitions"][0]["end"] == 42

    tried = cli(broker, "topic", "view", "test", topic, "--where", "value.n > 5", "-o", "json")
    assert [tried[each] for each in ("records", "true", "false", "null", "undefined", "undecodable")] == [
        42,
        34,
        6,
        1,
        1,
        1,
    ]
    assert tried["examples"]["undefined"] == [{"partition": 0, "offset": 41}]

    for source in ((view,), (topic, "--where", where)):
        shown = run_cli(broker, "consume", *source).stdout.splitlines()
        assert [json.loads(line)["n"] for line in shown] == [13, 23, 33]
    shown = run_cli(broker, "consume", topic, "--where", where, "-n", "2").stdout.splitlines()
    assert [json.loads(line)["n"] for line in shown] == [13, 23]
    refused = run_cli(broker, "consume", topic, "--where", "value.n >")
    assert "line 1, column 9" in " ".join(refused.stderr.replace("│", " ").split())


def run_cli(broker: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from penstock.cli.main import run; run()", *arguments, "-b", broker.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def cli(broker: Any, *arguments: str) -> Any:
    done = run_cli(broker, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_a_view_costs_is_in_the_metrics(start_broker: Any) -> None:
    broker = start_broker(settings={"metrics.listener": "127.0.0.1:0"})
    topic, view = fresh_name("orders"), fresh_name("view")
    create_topic(broker.bootstrap, topic)
    create_topic(broker.bootstrap, view, configs={"view.of": topic, "view.filter": "value.country = 'EU'"})
    fill(broker, topic, 0, 20)
    assert numbers(Confluent(broker.bootstrap).consume(view, 2)) == [3, 13]

    [started] = [json.loads(line) for line in broker.log.read_text().splitlines() if "metrics_listening" in line]
    with urllib.request.urlopen(f"http://127.0.0.1:{started['port']}/metrics") as page:
        lines = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if line[0] != "#")

    assert float(lines[f'penstock_view_records_total{{view="{view}"}}']) == 20
    assert float(lines[f'penstock_view_records_passed_total{{view="{view}"}}']) == 2
    assert 0 < float(lines[f'penstock_view_seconds_total{{view="{view}"}}']) < 10
