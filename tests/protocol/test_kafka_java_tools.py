"""Apache Kafka's own tools, from its jars: the Java clients with their default settings.

The Java producer is idempotent and waits for all replicas unless told otherwise.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.apache_kafka import tool_command
from protocol.topics import fresh_name

TIMEOUT = 150.0
TOOLS = "org.apache.kafka.tools"
pytestmark = pytest.mark.needs("kafka-jars")


def tool(main_class: str, *arguments: str, stdin: str = "", status: int = 0) -> str:
    """Run a tool and return what it printed, both streams."""
    # Tools live for a second: the quick compiler and one collector thread spare half of it.
    command = tool_command(main_class, *arguments)
    command[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    done = subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def on(broker: Any) -> tuple[str, str]:
    return "--bootstrap-server", broker.bootstrap


def console_consume(broker: Any, topic: str, count: int, *arguments: str) -> list[str]:
    printed = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *on(broker),
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(count), *arguments),
    )
    return [line for line in printed.splitlines() if not line.startswith(("SLF4J", "Processed", "["))]


def console_produce(broker: Any, topic: str, lines: str, *arguments: str) -> None:
    printed = tool(f"{TOOLS}.ConsoleProducer", *on(broker), "--topic", topic, *arguments, stdin=lines)
    assert "ERROR" not in printed, printed
    assert "Exception" not in printed, printed


def test_the_console_producer_and_consumer_agree(broker: Any, topic: str) -> None:
    lines = [f"line {number}" for number in range(200)]

    console_produce(broker, topic, "\n".join(lines) + "\n")

    assert console_consume(broker, topic, 200) == lines


def test_keys_headers_and_compression_pass_the_console(broker: Any, topic: str) -> None:
    console_produce(
        broker,
        topic,
        "trace:one\tkey\tvalue\n",
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--compression-codec", "zstd"),
    )

    printed = console_consume(
        broker,
        topic,
        1,
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true"),
    )

    assert printed == ["Partition:0\tOffset:0\ttrace:one\tkey\tvalue"]


def test_topics_are_made_described_grown_and_deleted(broker: Any, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)
    topics = f"{TOOLS}.TopicCommand"

    tool(topics, *on(broker), "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1000000")
    tool(topics, *on(broker), "--alter", "--topic", name, "--partitions", "3")

    described = tool(topics, *on(broker), "--describe", "--topic", name)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=1000000" in described
    assert len(re.findall(r"Partition: \d+\tLeader: \d+\tReplicas: \d+\tIsr: \d+", described)) == 3

    tool(topics, *on(broker), "--delete", "--topic", name)
    refused = tool(topics, *on(broker), "--describe", "--topic", name, status=1)
    assert "does not exist" in refused


def test_a_bad_topic_is_refused_in_words(broker: Any, topic: str) -> None:
    refused = tool(f"{TOOLS}.TopicCommand", *on(broker), "--create", "--topic", topic, status=1)

    assert f"Topic '{topic}' already exists" in refused


def test_topic_configs_are_described_and_altered(broker: Any, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    configs = "kafka.admin.ConfigCommand"

    tool(
        configs,
        *on(broker),
        *entity,
        "--alter",
        "--add-config",
        "max.message.bytes=4321,cleanup.policy=[compact,delete]",
    )

    described = tool(configs, *on(broker), *entity, "--describe")
    assert "max.message.bytes=4321 sensitive=false" in described
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=4321" in described
    assert "cleanup.policy=compact,delete" in described


def test_client_quotas_are_set_and_described(broker: Any, request: pytest.FixtureRequest) -> None:
    entity = ("--entity-type", "clients", "--entity-name", fresh_name("client"))
    configs = "kafka.admin.ConfigCommand"

    tool(configs, *on(broker), *entity, "--alter", "--add-config", "producer_byte_rate=1024.0,consumer_byte_rate=2048")

    described = tool(configs, *on(broker), *entity, "--describe")
    assert "producer_byte_rate=1024.0" in described
    assert "consumer_byte_rate=2048.0" in described


def test_the_levels_of_loggers_are_described_and_changed_while_the_broker_runs(broker: Any) -> None:
    configs, entity = "kafka.admin.ConfigCommand", ("--entity-type", "broker-loggers", "--entity-name", "1")

    def level_of_root() -> str:
        found = re.search(
            r"root=(\w+) sensitive=false synonyms=\{\}", tool(configs, *on(broker), *entity, "--describe")
        )
        assert found is not None
        return found[1]

    before = level_of_root()
    tool(configs, *on(broker), *entity, "--alter", "--add-config", "root=WARN")
    changed = level_of_root()
    tool(configs, *on(broker), *entity, "--alter", "--add-config", f"root={before}")
    refused = tool(configs, *on(broker), *entity, "--alter", "--add-config", "nope=INFO", status=1)

    assert (changed, level_of_root()) == ("WARN", before)
    assert "Invalid broker logger(s): nope" in refused


def test_offsets_are_shown_at_both_ends_and_by_time(broker: Any, topic: str) -> None:
    console_produce(broker, topic, "a\nb\nc\n")
    shell = f"{TOOLS}.GetOffsetShell"

    shown = {time: tool(shell, *on(broker), "--topic", topic, "--time", time) for time in ("earliest", "latest", "1")}

    assert f"{topic}:0:0" in shown["earliest"]
    assert f"{topic}:0:3" in shown["latest"]
    assert f"{topic}:0:0" in shown["1"]


def test_records_are_deleted(broker: Any, topic: str, tmp_path: Path) -> None:
    console_produce(broker, topic, "a\nb\nc\n")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}))

    printed = tool(f"{TOOLS}.DeleteRecordsCommand", *on(broker), "--offset-json-file", str(plan))

    assert "low_watermark: 2" in printed
    assert console_consume(broker, topic, 1) == ["c"]


def test_the_performance_producer_is_acknowledged(broker: Any, topic: str) -> None:
    printed = tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--bootstrap-server", broker.bootstrap),
    )

    assert "20000 records sent" in printed
    assert f"{topic}:0:20000" in tool(f"{TOOLS}.GetOffsetShell", *on(broker), "--topic", topic)


def test_the_verifiable_producer_verifies_every_message(broker: Any, topic: str) -> None:
    printed = tool(f"{TOOLS}.VerifiableProducer", *on(broker), "--topic", topic, "--max-messages", "500")

    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    successes = [event for event in events if event["name"] == "producer_send_success"]
    assert [event["offset"] for event in successes] == list(range(500))
    assert events[-1]["acked"] == 500


def test_log_directories_are_described_with_sizes(broker: Any, topic: str) -> None:
    console_produce(broker, topic, "x" * 500 + "\n")

    printed = tool(f"{TOOLS}.LogDirsCommand", *on(broker), "--describe", "--topic-list", topic)

    [described] = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    [directory] = described["brokers"][0]["logDirs"]
    [partition] = directory["partitions"]
    assert directory["error"] is None
    assert (partition["partition"], partition["isFuture"]) == (f"{topic}-0", False)
    assert partition["size"] > 500


def test_the_cluster_its_apis_and_its_features_are_told(broker: Any) -> None:
    cluster = tool(f"{TOOLS}.ClusterTool", "cluster-id", *on(broker))
    apis = tool(f"{TOOLS}.BrokerApiVersionsCommand", *on(broker))
    features = tool(f"{TOOLS}.FeatureCommand", *on(broker), "describe")

    assert re.search(r"Cluster ID: \S{22}", cluster)
    assert broker.bootstrap in apis
    assert "ERROR" not in apis
    assert re.search(r"Produce\(0\): \d+ to \d+ \[usable: \d+\]", apis)
    assert "Exception" not in features


def test_its_segment_reader_reads_the_files(broker: Any, make_topic: Any) -> None:
    if not hasattr(broker, "data"):
        pytest.skip("needs the broker's files")
    topic = make_topic(segment_bytes="1048576")
    lines = [f"line {number} " + "x" * 1000 for number in range(3500)]
    console_produce(broker, topic, "\n".join(lines) + "\n")

    [folder] = Path(broker.data).rglob(f"{topic}-0")
    files = {kind: sorted(map(str, folder.glob(f"*.{kind}"))) for kind in ("log", "index", "timeindex")}
    assert len(files["log"]) > 2
    dump = f"{TOOLS}.DumpLogSegments"
    printed = tool(dump, "--print-data-log", "--deep-iteration", "--files", ",".join(files["log"]))
    indexes = tool(dump, "--index-sanity-check", "--files", ",".join(files["index"][:-1]))

    payloads = re.findall(r"payload: (.*)$", printed, re.MULTILINE)
    assert payloads == lines
    assert "isvalid: false" not in printed
    assert indexes.count("passed sanity check") == len(files["index"]) - 1
    times = tool(dump, "--files", ",".join(files["timeindex"][:-1]))
    for complaint in ("Found timestamp mismatch", "Found out of order timestamp", "Found incorrect"):
        assert complaint not in times
