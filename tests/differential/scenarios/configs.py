"""DescribeConfigs and ListConfigResources."""

from __future__ import annotations

from typing import Any

from differential.requests import missing
from differential.script import Body, Run, scenarios

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SOME_BROKER_KEYS = [
    "auto.create.topics.enable",
    "background.threads",
    "broker.id",
    "compression.type",
    "connections.max.idle.ms",
    "default.replication.factor",
    "delete.topic.enable",
    "fetch.max.bytes",
    "group.initial.rebalance.delay.ms",
    "log.cleaner.delete.retention.ms",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.index.interval.bytes",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "max.connections",
    "max.connections.per.ip",
    "message.max.bytes",
    "min.insync.replicas",
    "node.id",
    "num.io.threads",
    "num.network.threads",
    "num.partitions",
    "offsets.retention.minutes",
    "queued.max.requests",
    "replica.lag.time.max.ms",
    "socket.request.max.bytes",
    "ssl.keystore.password",
    "transaction.max.timeout.ms",
    "unclean.leader.election.enable",
    "zookeeper.connect",
]


def describe(*resources: dict[str, Any], synonyms: bool = False, documentation: bool = False) -> Body:
    return {"resources": list(resources), "include_synonyms": synonyms, "include_documentation": documentation}


def of(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def topic_by_default(run: Run) -> None:
    run.ask("all", describe(of(TOPIC, run.topic(plain=True).name)))


def topic_with_synonyms(run: Run) -> None:
    topic = run.topic(plain=True, segment_bytes="2000000", cleanup_policy="compact")
    run.ask("all", describe(of(TOPIC, topic.name), synonyms=True))


def topic_with_documentation(run: Run) -> None:
    run.ask("two keys", describe(of(TOPIC, run.topic().name, ["retention.ms", "cleanup.policy"]), documentation=True))


def topic_by_keys(run: Run) -> None:
    topic = run.topic(retention_bytes="77")
    run.ask("some", describe(of(TOPIC, topic.name, ["retention.bytes", "segment.bytes", "no.such.key"])))
    run.ask("none", describe(of(TOPIC, topic.name, [])))


def topics_missing(run: Run) -> None:
    topic = run.topic()
    run.ask("alone", describe(of(TOPIC, missing(run).name)))
    run.ask("beside another", describe(of(TOPIC, missing(run).name), of(TOPIC, topic.name, ["retention.ms"])))
    run.ask("empty name", describe(of(TOPIC, "")))
    run.ask("bad name", describe(of(TOPIC, "a/b")))


def the_same_topic_twice(run: Run) -> None:
    topic = run.topic()
    run.ask("response", describe(of(TOPIC, topic.name, ["retention.ms"]), of(TOPIC, topic.name, ["segment.ms"])))


def broker_some_keys(run: Run) -> None:
    me = str(run.target.broker_id)
    run.ask("plain", describe(of(BROKER, me, SOME_BROKER_KEYS)))
    run.ask("with synonyms", describe(of(BROKER, me, SOME_BROKER_KEYS), synonyms=True))


def broker_flags_of_every_key(run: Run) -> None:
    """Whether each setting can change while the broker runs, is secret, and of which type it is."""
    response = run.do("describe_configs", run.version, describe(of(BROKER, str(run.target.broker_id))))
    flags = ("name", "read_only", "is_sensitive", "config_type")
    found = [{flag: config[flag] for flag in flags} for config in response["results"][0]["configs"]]
    run.record("flags", {"configs": sorted(found, key=lambda config: str(config["name"]))})


def broker_default(run: Run) -> None:
    run.ask("all", describe(of(BROKER, "")))
    run.ask("by key", describe(of(BROKER, "", ["log.segment.bytes"]), synonyms=True))


def broker_of_another(run: Run) -> None:
    run.ask("unknown id", describe(of(BROKER, "99")))
    run.ask("no number", describe(of(BROKER, "me")))
    run.ask("negative", describe(of(BROKER, "-1")))


def broker_loggers(run: Run) -> None:
    run.ask("of another", describe(of(BROKER_LOGGER, "99")))
    run.ask("of none", describe(of(BROKER_LOGGER, "")))


def groups_and_client_metrics(run: Run) -> None:
    run.ask("group", describe(of(GROUP, "some-group"), synonyms=True))
    run.ask("group without name", describe(of(GROUP, "")))
    run.ask("client metrics", describe(of(CLIENT_METRICS, "some-metrics"), synonyms=True))
    run.ask("client metrics without name", describe(of(CLIENT_METRICS, "")))


def unknown_resource_types(run: Run) -> None:
    run.ask("kind 0", describe(of(0, "x")))
    run.ask("kind 3", describe(of(3, "x")))
    run.ask("kind 64", describe(of(64, "x")))
    run.ask("kind -1", describe(of(-1, "x")))


def nothing(run: Run) -> None:
    run.ask("response", describe())


# ListConfigResources


def resources_with_configs(run: Run) -> None:
    """From version 1 on the types can be chosen; version 0 has client metrics only."""
    if run.version > 0:
        run.topic()
        run.ask("topics", {"resource_types": [TOPIC]}, own_only=True)
        run.ask("groups", {"resource_types": [GROUP]})
        run.ask("kind 99", {"resource_types": [99]})
        run.ask("kind 0", {"resource_types": [0]})
    run.ask("client metrics", {"resource_types": [CLIENT_METRICS]})


SCENARIOS = (
    *scenarios(
        "configs",
        "describe_configs",
        (
            topic_by_default,
            topic_with_synonyms,
            topic_with_documentation,
            topic_by_keys,
            topics_missing,
            the_same_topic_twice,
            broker_some_keys,
            broker_default,
            broker_of_another,
            broker_loggers,
            groups_and_client_metrics,
            unknown_resource_types,
            nothing,
        ),
    ),
    *scenarios("configs", "describe_configs", (broker_flags_of_every_key,), versions=range(4, 5)),
    *scenarios("configs", "list_config_resources", (resources_with_configs,)),
)
