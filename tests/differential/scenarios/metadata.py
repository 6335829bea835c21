"""Metadata: topics, their leaders, and requests for missing topics."""

from __future__ import annotations

from typing import Any

from differential.requests import missing
from differential.script import Run, scenarios

BAD_NAMES = ("", ".", "..", "white space", "slash/", "ünïcode", "x" * 250, "colon:")


def body(*topics: dict[str, Any], create: bool = False, **fields: Any) -> dict[str, Any]:
    return {"topics": list(topics), "allow_auto_topic_creation": create} | fields


def named_topic(run: Run) -> None:
    topic = run.topic(partitions=3)
    run.ask("response", body({"name": topic.name}))


def two_topics_one_missing(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("response", body({"name": topic.name}, {"name": missing(run).name}))


def the_same_topic_twice(run: Run) -> None:
    topic = run.topic()
    run.ask("response", body({"name": topic.name}, {"name": topic.name}))


def all_topics(run: Run) -> None:
    """Null means all from version 1 on; in version 0 an empty list does."""
    run.topic("a")
    run.topic("b", partitions=2)
    run.ask("response", body() if run.version == 0 else {"topics": None}, own_only=True)


def no_topics(run: Run) -> None:
    run.ask("response", body(), own_only=True)


def missing_topic_without_creation(run: Run) -> None:
    name = missing(run).name
    run.ask("first", body({"name": name}))
    run.ask("second", body({"name": name}))


def missing_topic_is_created(run: Run) -> None:
    """In the first response it is unknown, a later one has it."""
    name = missing(run, "new").name
    run.ask("first", body({"name": name}, create=True))
    run.await_topic(name, 1)
    run.ask("later", body({"name": name}, create=True))


def bad_names(run: Run) -> None:
    for name in BAD_NAMES:
        label = name if len(name) < 20 else f"{len(name)} letters"
        run.ask(f"{label!r} without creation", body({"name": name}))
        run.ask(f"{label!r} with creation", body({"name": name}, create=True))


def internal_names_are_created_as_internal(run: Run) -> None:
    run.ask("offsets topic without creation", body({"name": "__cluster_metadata"}))


def collision_of_dot_and_underscore(run: Run) -> None:
    topic = run.topic("dot.ted")
    twin = topic.name.replace(".", "_")
    run.tokens.add_name(twin, "twin")
    run.ask("twin with creation", body({"name": twin}, create=True))


def authorized_operations(run: Run) -> None:
    topic = run.topic()
    run.ask("topic", body({"name": topic.name}, include_topic_authorized_operations=True))
    run.ask("cluster", body({"name": topic.name}, include_cluster_authorized_operations=True))


def topic_by_id(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("found", body({"name": None, "topic_id": topic.topic_id}))
    run.ask("missing", body({"name": None, "topic_id": missing(run).topic_id}))
    run.ask("both", body({"name": None, "topic_id": topic.topic_id}, {"name": None, "topic_id": missing(run).topic_id}))


def topic_by_name_and_id(run: Run) -> None:
    a, b = run.topic("a"), run.topic("b")
    run.ask("name and its own id", body({"name": a.name, "topic_id": a.topic_id}))
    run.ask("name and another's id", body({"name": a.name, "topic_id": b.topic_id}))
    run.ask("neither", body({"name": None}))


def one_by_name_another_by_id(run: Run) -> None:
    a, b = run.topic("a"), run.topic("b")
    run.ask("mixed", body({"name": a.name}, {"name": None, "topic_id": b.topic_id}))


def deleted_topic(run: Run) -> None:
    """After deletion the name is unknown; a topic created again has another id."""
    topic = run.topic()
    run.do("delete_topics", 5, {"topic_names": [topic.name], "timeout": 10_000})
    run.await_gone(topic.name)
    run.ask("gone", body({"name": topic.name}))
    again = run.topic()
    run.ask("again", body({"name": again.name}))
    run.record("the id", {"changed": again.topic_id != topic.topic_id})


SCENARIOS = (
    *scenarios(
        "metadata",
        "metadata",
        (
            named_topic,
            two_topics_one_missing,
            the_same_topic_twice,
            all_topics,
            bad_names,
            internal_names_are_created_as_internal,
            collision_of_dot_and_underscore,
            authorized_operations,
            missing_topic_is_created,
        ),
    ),
    *scenarios("metadata", "metadata", (no_topics,), versions=range(1, 99)),
    *scenarios("metadata", "metadata", (missing_topic_without_creation, deleted_topic), versions=range(4, 99)),
    *scenarios(
        "metadata", "metadata", (topic_by_id, topic_by_name_and_id, one_by_name_another_by_id), versions=range(10, 99)
    ),
)
