"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from typing import Any

from differential.requests import missing
from differential.script import METADATA, Body, Run, scenarios

from .metadata import BAD_NAMES


def create(*topics: dict[str, Any], validate_only: bool = False) -> Body:
    return {"topics": list(topics), "timeout": 20_000, "validate_only": validate_only}


def new(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def assigned(
    run: Run, name: str, *replicas: list[int] | None, partitions: int = -1, factor: int = -1
) -> dict[str, Any]:
    """Partition by partition; None leaves that index out."""
    return new(name, partitions, factor) | {
        "assignments": [
            {"partition_index": index, "broker_ids": ids} for index, ids in enumerate(replicas) if ids is not None
        ]
    }


def shape(run: Run, label: str, name: str) -> None:
    """Record the partitions of a topic, or its error."""
    run.ask(
        label, {"topics": [{"name": name}], "allow_auto_topic_creation": False}, api="metadata", version=METADATA[1]
    )


def created(run: Run) -> None:
    name = run.name("a")
    run.ask("response", create(new(name, 3)))
    run.await_topic(name, 3)
    shape(run, "shape", name)


def created_with_configs(run: Run) -> None:
    name = run.name("a")
    configs = {"retention_ms": "12345", "cleanup_policy": "compact", "max_message_bytes": "2000"}
    run.ask("response", create(new(name, 1, **configs)))


def created_by_defaults(run: Run) -> None:
    """Minus one requests the broker's defaults."""
    name = run.name("a")
    run.ask("response", create(new(name, -1, -1)))
    run.await_topic(name, 1)
    shape(run, "shape", name)


def validated_only(run: Run) -> None:
    name = run.name("a")
    run.ask("good", create(new(name, 2, retention_ms="5"), validate_only=True))
    run.ask("bad", create(new(name, 0), validate_only=True))
    shape(run, "nothing was created", name)


def existing(run: Run) -> None:
    topic = run.topic()
    run.ask("response", create(new(topic.name)))
    run.ask("validate only", create(new(topic.name), validate_only=True))


def the_same_name_twice(run: Run) -> None:
    name, other = run.name("a"), run.name("b")
    run.ask("response", create(new(name), new(other), new(name, 2)))
    shape(run, "nothing was created of it", name)


def nothing_to_create(run: Run) -> None:
    run.ask("response", create())


def names_that_collide(run: Run) -> None:
    topic = run.topic("dot.ted")
    twin = topic.name.replace(".", "_")
    run.tokens.add_name(twin, "twin")
    run.ask("underscores for dots", create(new(twin)))


def names_that_collide_in_one_request(run: Run) -> None:
    first = run.name("dot.ted")
    second = first.replace("dot.ted", "dot_ted")
    run.tokens.add_name(second, "twin")
    run.ask("response", create(new(first), new(second)))


def bad_names(run: Run) -> None:
    for name in BAD_NAMES:
        label = name if len(name) < 20 else f"{len(name)} letters"
        run.ask(repr(label), create(new(name)))


def longest_name(run: Run) -> None:
    name = (run.name("a") + "." + "x" * 249)[:249]
    run.tokens.add_name(name, "long")
    run.ask("249 letters", create(new(name)))


def internal_names(run: Run) -> None:
    run.ask("cluster metadata", create(new("__cluster_metadata")))


def bad_counts(run: Run) -> None:
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (1, 32767), (0, 0)):
        run.ask(f"{partitions} x {replicas}", create(new(run.name(f"p{partitions}r{replicas}"), partitions, replicas)))


def too_many_partitions(run: Run) -> None:
    run.ask("a million", create(new(run.name("a"), 1_000_000), validate_only=True))
    run.ask("two billion", create(new(run.name("b"), 2_000_000_000), validate_only=True))


def assignments_good(run: Run) -> None:
    me, name = run.target.broker_id, run.name("a")
    run.ask("two partitions", create(assigned(run, name, [me], [me])))
    run.await_topic(name, 2)
    shape(run, "shape", name)


def assignments_bad(run: Run) -> None:
    me = run.target.broker_id
    cases: dict[str, dict[str, Any]] = {
        "unknown broker": assigned(run, run.name("a"), [99]),
        "the same broker twice": assigned(run, run.name("b"), [me, me]),
        "no broker": assigned(run, run.name("c"), []),
        "negative broker": assigned(run, run.name("d"), [-1]),
        "a gap": assigned(run, run.name("e"), [me], None, [me]),
        "not from zero": assigned(run, run.name("f"), None, [me]),
        "and a count": assigned(run, run.name("g"), [me], partitions=1),
        "and a factor": assigned(run, run.name("h"), [me], factor=1),
        "and both": assigned(run, run.name("i"), [me], partitions=1, factor=1),
        "one too many": assigned(run, run.name("j"), [me], [me, 99]),
    }
    for label, topic in cases.items():
        run.ask(label, create(topic, validate_only=True))
    doubled = new(run.name("k"), -1, -1) | {
        "assignments": [{"partition_index": 0, "broker_ids": [me]}, {"partition_index": 0, "broker_ids": [me]}]
    }
    run.ask("an index twice", create(doubled, validate_only=True))


def bad_configs(run: Run) -> None:
    cases: tuple[tuple[str, str | None], ...] = (
        ("no_such_key", "1"),
        ("retention_ms", "abc"),
        ("retention_ms", ""),
        ("retention_ms", "-2"),
        ("retention_ms", "99999999999999999999"),
        ("retention_ms", None),
        ("cleanup_policy", "shred"),
        ("cleanup_policy", "delete,compact"),
        ("cleanup_policy", ""),
        ("compression_type", "rar"),
        ("compression_type", "GZIP"),
        ("message_timestamp_type", "Never"),
        ("min_insync_replicas", "0"),
        ("min_insync_replicas", "5"),
        ("segment_bytes", "13"),
        ("segment_bytes", "1e6"),
        ("segment_ms", "0"),
        ("max_message_bytes", "-1"),
        ("preallocate", "maybe"),
        ("preallocate", "TRUE"),
        ("min_cleanable_dirty_ratio", "2"),
        ("min_cleanable_dirty_ratio", "half"),
        ("min_compaction_lag_ms", "-1"),
        ("max_compaction_lag_ms", "0"),
        ("delete_retention_ms", "-1"),
        ("flush_messages", "0"),
        ("index_interval_bytes", "-1"),
        ("segment_index_bytes", "3"),
        ("unclean_leader_election_enable", "yes"),
        ("message_format_version", "2.0"),
        ("leader_replication_throttled_replicas", "nonsense"),
        ("leader_replication_throttled_replicas", "*"),
        ("leader_replication_throttled_replicas", "0:1,1:2"),
        ("remote_storage_enable", "true"),
        ("compression_gzip_level", "99"),
        ("compression_lz4_level", "0"),
        ("message_timestamp_before_max_ms", "-1"),
        ("retention_bytes", "-5"),
        ("local_retention_ms", "-3"),
        ("file_delete_delay_ms", "-1"),
    )
    for key, value in cases:
        run.ask(f"{key}={value}", create(new(run.name("a"), **{key: value}), validate_only=True))


def configs_that_do_not_fit_together(run: Run) -> None:
    lags = {"min_compaction_lag_ms": "100", "max_compaction_lag_ms": "10"}
    run.ask("lags", create(new(run.name("a"), **lags), validate_only=True))
    local = {"local_retention_ms": "100", "retention_ms": "10"}
    run.ask("local above all", create(new(run.name("a"), **local), validate_only=True))
    twice = new(run.name("a")) | {
        "configs": [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    }
    run.ask("a key twice", create(twice, validate_only=True))
    run.ask("two bad keys", create(new(run.name("a"), no_such="1", retention_ms="x"), validate_only=True))


def good_beside_bad(run: Run) -> None:
    good, bad = run.name("good"), run.name("bad")
    run.ask("response", create(new(good), new(bad, 0)))
    run.await_topic(good, 1)


# DeleteTopics


def delete(run: Run, *names: str) -> Body:
    """Delete by name, in the form of the scenario's version."""
    return {"topic_names": list(names), "topics": [{"name": name} for name in names], "timeout": 20_000}


def delete_ids(*topics: dict[str, Any]) -> Body:
    return {"topics": list(topics), "timeout": 20_000}


def deleted_by_name(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("response", delete(run, topic.name))
    run.await_gone(topic.name)
    run.ask("again", delete(run, topic.name))


def deleted_missing(run: Run) -> None:
    run.ask("response", delete(run, missing(run).name))
    run.ask("good and missing", delete(run, run.topic().name, missing(run).name))


def deleted_twice_in_one_request(run: Run) -> None:
    topic = run.topic()
    run.ask("response", delete(run, topic.name, topic.name))


def deleted_by_bad_name(run: Run) -> None:
    run.ask("empty", delete(run, ""))
    run.ask("slash", delete(run, "a/b"))


def deleted_nothing(run: Run) -> None:
    run.ask("response", delete(run))


def deleted_by_id(run: Run) -> None:
    topic = run.topic()
    run.ask("response", delete_ids({"name": None, "topic_id": topic.topic_id}))
    run.await_gone(topic.name)
    run.ask("again", delete_ids({"name": None, "topic_id": topic.topic_id}))


def deleted_by_missing_id(run: Run) -> None:
    run.ask("response", delete_ids({"name": None, "topic_id": missing(run).topic_id}))


def deleted_by_name_and_id(run: Run) -> None:
    topic, other = run.topic(), run.topic("b")
    run.ask("both", delete_ids({"name": topic.name, "topic_id": topic.topic_id}))
    run.ask("neither", delete_ids({"name": None}))
    run.ask("name here, id there", delete_ids({"name": topic.name}, {"name": None, "topic_id": topic.topic_id}))
    run.ask("two", delete_ids({"name": topic.name}, {"name": None, "topic_id": other.topic_id}))


SCENARIOS = (
    *scenarios(
        "topics",
        "create_topics",
        (
            created,
            created_with_configs,
            created_by_defaults,
            validated_only,
            existing,
            the_same_name_twice,
            nothing_to_create,
            names_that_collide,
            names_that_collide_in_one_request,
            bad_names,
            longest_name,
            internal_names,
            bad_counts,
            too_many_partitions,
            assignments_good,
            assignments_bad,
            bad_configs,
            configs_that_do_not_fit_together,
            good_beside_bad,
        ),
    ),
    *scenarios(
        "topics",
        "delete_topics",
        (deleted_by_name, deleted_missing, deleted_twice_in_one_request, deleted_by_bad_name, deleted_nothing),
    ),
    *scenarios(
        "topics",
        "delete_topics",
        (deleted_by_id, deleted_by_missing_id, deleted_by_name_and_id),
        versions=range(6, 99),
    ),
)
