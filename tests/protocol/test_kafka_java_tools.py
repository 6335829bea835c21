"""The command lines of Apache Kafka's own tools, from its jars."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.coordinator.runtime import partition_of
from penstock.model.cluster_versions import FEATURE, SUPPORTED
from protocol.clients.confluent import Confluent
from protocol.clients.java import TOOLS, console_consume, console_produce, on, tool
from protocol.topics import fresh_name, wait_until

pytestmark = pytest.mark.needs("kafka-jars")
SECONDS_MAX = 60.0
READ_MS = (5_000, 30_000)
"""How long a tool waits for one more record: it ends only by that, and a slow machine needs more than the first."""
STATE_PARTITIONS = 50
COMPLETE_COMMIT = 4


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


def test_creating_an_existing_topic_fails_with_a_message(broker: Any, topic: str) -> None:
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
    console_produce(broker.bootstrap, topic, "a\nb\nc\n")
    shell = f"{TOOLS}.GetOffsetShell"

    shown = {time: tool(shell, *on(broker), "--topic", topic, "--time", time) for time in ("earliest", "latest", "1")}

    assert f"{topic}:0:0" in shown["earliest"]
    assert f"{topic}:0:3" in shown["latest"]
    assert f"{topic}:0:0" in shown["1"]


def test_records_are_deleted(broker: Any, topic: str, tmp_path: Path) -> None:
    console_produce(broker.bootstrap, topic, "a\nb\nc\n")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}))

    printed = tool(f"{TOOLS}.DeleteRecordsCommand", *on(broker), "--offset-json-file", str(plan))

    assert "low_watermark: 2" in printed
    assert console_consume(broker.bootstrap, topic, 1, "--partition", "0", "--offset", "earliest") == ["c"]


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
    console_produce(broker.bootstrap, topic, "x" * 500 + "\n")

    printed = tool(f"{TOOLS}.LogDirsCommand", *on(broker), "--describe", "--topic-list", topic)

    [described] = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    [directory] = described["brokers"][0]["logDirs"]
    [partition] = directory["partitions"]
    assert directory["error"] is None
    assert (partition["partition"], partition["isFuture"]) == (f"{topic}-0", False)
    assert partition["size"] > 500


def test_tools_show_the_cluster_id_apis_and_features(broker: Any) -> None:
    cluster = tool(f"{TOOLS}.ClusterTool", "cluster-id", *on(broker))
    apis = tool(f"{TOOLS}.BrokerApiVersionsCommand", *on(broker))
    features = tool(f"{TOOLS}.FeatureCommand", *on(broker), "describe")

    assert re.search(r"Cluster ID: \S{22}", cluster)
    assert broker.bootstrap in apis
    assert "ERROR" not in apis
    assert re.search(r"Produce\(0\): \d+ to \d+ \[usable: \d+\]", apis)
    assert "Exception" not in features


def test_its_feature_tool_changes_the_version_of_the_cluster_and_says_why_not(broker: Any) -> None:
    if not hasattr(broker, "data"):
        pytest.skip("Kafka's own versions are other ones")
    command = f"{TOOLS}.FeatureCommand"
    latest = SUPPORTED.highest

    described = tool(command, *on(broker), "describe")
    same = tool(command, *on(broker), "upgrade", "--feature", f"{FEATURE}={latest}")
    with pytest.raises(AssertionError, match=f"There is no way back to before {latest}"):
        tool(command, *on(broker), "downgrade", "--feature", f"{FEATURE}=1")
    with pytest.raises(AssertionError, match=f"The controller supports versions 1 to {latest}"):
        tool(command, *on(broker), "disable", "--feature", FEATURE)

    assert re.search(
        rf"{FEATURE}\s+SupportedMinVersion: 1\s+SupportedMaxVersion: {latest}\s+FinalizedVersionLevel: {latest}\s",
        described,
    )
    assert f"{FEATURE} was upgraded to {latest}" in same


def test_its_segment_reader_reads_the_files(broker: Any, make_topic: Any) -> None:
    if not hasattr(broker, "data"):
        pytest.skip("needs the broker's files")
    topic = make_topic(segment_bytes="1048576")
    lines = [f"line {number} " + "x" * 1000 for number in range(3500)]
    console_produce(broker.bootstrap, topic, "\n".join(lines) + "\n")

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


def test_kafkas_tools_write_show_and_read_transactions(broker: Any, topic: str) -> None:
    name = fresh_name("java")
    sent = tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "600", "--record-size", "100", "--throughput", "300"),
        *("--bootstrap-server", broker.bootstrap, "--transactional-id", name, "--transaction-duration-ms", "50"),
    )
    assert "600 records sent" in sent

    def described() -> list[str]:
        shown = tool(f"{TOOLS}.TransactionsCommand", *on(broker), "describe", "--transactional-id", name)
        return shown.splitlines()[-1].split()[2:5]

    # The response to a commit precedes its markers.
    wait_until(lambda: described()[2] == "CompleteCommit", what="the last commit", seconds_max=SECONDS_MAX)
    producer_id, epoch, _ = described()
    assert int(epoch) >= 3, "each transaction has an epoch of its own"

    mine = kept_about(broker, name)
    assert mine[-1]["version"] == 1
    assert mine[-1]["data"]["producerId"] == int(producer_id)
    assert mine[-1]["data"]["producerEpoch"] == int(epoch)
    assert mine[-1]["data"]["clientTransactionVersion"] == 2
    statuses = [value["data"]["transactionStatus"] for value in mine]
    assert statuses[:4] == [0, 1, 2, 4], "Empty, Ongoing, PrepareCommit, CompleteCommit"
    with Confluent(broker.bootstrap).reader(topic, isolation="read_committed") as reader:
        assert len(reader.read(600)) == 600


def kept_about(broker: Any, name: str) -> list[dict[str, Any]]:
    """What Kafka's formatter shows of a transactional id in the log of its coordinator, up to a completed commit."""
    for wait_ms in READ_MS:
        records = tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *(*on(broker), "--topic", "__transaction_state", "--partition", str(partition_of(name, STATE_PARTITIONS))),
            *("--offset", "earliest", "--timeout-ms", str(wait_ms)),
            *("--formatter", f"{TOOLS}.consumer.TransactionLogMessageFormatter"),
        )
        # The tool prints one value after another, without anything between them.
        shown = records[max(records.find("{"), 0) : records.rfind("}") + 1]
        values = json.loads("[" + shown.replace('}{"key"', '},{"key"') + "]")
        mine = [line["value"] for line in values if line["key"]["data"]["transactionalId"] == name]
        if mine and mine[-1]["data"]["transactionStatus"] == COMPLETE_COMMIT:
            break
    return mine
