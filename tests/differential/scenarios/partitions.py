"""CreatePartitions, DescribeTopicPartitions, reassignments, elections and log directories of partitions."""

from __future__ import annotations

from typing import Any

from differential.requests import fill, fill_numbered, missing
from differential.script import Body, Run, Topic, scenarios


def grow(*topics: dict[str, Any], validate_only: bool = False) -> Body:
    return {"topics": list(topics), "timeout": 20_000, "validate_only": validate_only}


def to(topic: Topic, count: int, assignments: list[list[int]] | None = None) -> dict[str, Any]:
    return {
        "name": topic.name,
        "count": count,
        "assignments": None if assignments is None else [{"broker_ids": ids} for ids in assignments],
    }


def grown(run: Run) -> None:
    topic = run.topic(partitions=2)
    run.ask("to four", grow(to(topic, 4)))
    run.await_topic(topic.name, 4)
    run.ask("shape", {"topics": [{"name": topic.name}]}, api="metadata", version=9)


def grown_by_assignment(run: Run) -> None:
    topic, me = run.topic(), run.target.broker_id
    run.ask("one more", grow(to(topic, 2, [[me]])))
    run.await_topic(topic.name, 2)


def grown_wrongly(run: Run) -> None:
    topic, me = run.topic(partitions=3), run.target.broker_id
    cases = {
        "the same": to(topic, 3),
        "fewer": to(topic, 2),
        "zero": to(topic, 0),
        "negative": to(topic, -1),
        "missing": to(missing(run), 4),
        "too few assignments": to(topic, 5, [[me]]),
        "too many assignments": to(topic, 4, [[me], [me]]),
        "no assignments": to(topic, 4, []),
        "unknown broker": to(topic, 4, [[99]]),
        "the same broker twice": to(topic, 4, [[me, me]]),
        "no broker": to(topic, 4, [[]]),
        "another factor": to(topic, 4, [[me, 99]]),
        "two billion": to(topic, 2_000_000_000),
    }
    for label, case in cases.items():
        run.ask(label, grow(case, validate_only=True))


def growth_validated_only(run: Run) -> None:
    topic = run.topic()
    run.ask("good", grow(to(topic, 3), validate_only=True))
    run.ask("shape", {"topics": [{"name": topic.name}]}, api="metadata", version=9)


def grown_twice_in_one_request(run: Run) -> None:
    topic, other = run.topic(), run.topic("b")
    run.ask("response", grow(to(topic, 2), to(topic, 3), to(other, 2)))


def grown_nothing(run: Run) -> None:
    run.ask("response", grow())


# DescribeTopicPartitions


def describe(*topics: Topic, limit: int = 2_000, cursor: dict[str, Any] | None = None) -> Body:
    return {"topics": [{"name": topic.name} for topic in topics], "response_partition_limit": limit, "cursor": cursor}


def described(run: Run) -> None:
    a, b = run.topic("a", partitions=2), run.topic("b")
    run.ask("both", describe(a, b))
    run.ask("other order", describe(b, a))
    run.ask("twice", describe(a, a))


def described_all(run: Run) -> None:
    """Without names all topics are described; a cursor and a limit restrict the response to this scenario's own."""
    first = run.topic("a", partitions=3)
    cursor = {"topic_name": first.name, "partition_index": 0}
    run.ask("two from the cursor", {"topics": [], "response_partition_limit": 2, "cursor": cursor})
    run.ask("one from the cursor", {"topics": [], "response_partition_limit": 1, "cursor": cursor})


def described_missing(run: Run) -> None:
    a = run.topic("a")
    run.ask("alone", describe(missing(run)))
    run.ask("beside another", describe(missing(run), a))
    run.ask("bad name", describe(Topic(name="a/b", topic_id="")))
    run.ask("empty name", describe(Topic(name="", topic_id="")))


def described_in_pages(run: Run) -> None:
    a, b = run.topic("a", partitions=3), run.topic("b", partitions=2)
    run.ask("two of five", describe(a, b, limit=2))
    run.ask("three of five", describe(a, b, limit=3))
    run.ask("four of five", describe(a, b, limit=4))
    run.ask("from a 2", describe(a, b, limit=2, cursor={"topic_name": a.name, "partition_index": 2}))
    run.ask("from b 1", describe(a, b, limit=2, cursor={"topic_name": b.name, "partition_index": 1}))
    run.ask("beyond the last", describe(a, b, cursor={"topic_name": b.name, "partition_index": 9}))
    run.ask("of another topic", describe(b, cursor={"topic_name": a.name, "partition_index": 0}))
    run.ask("negative", describe(a, cursor={"topic_name": a.name, "partition_index": -1}))
    run.ask("limit zero", describe(a, b, limit=0))
    run.ask("limit negative", describe(a, b, limit=-1))


# Reassignments, elections, log directories


def reassigned_to_itself(run: Run) -> None:
    topic, me = run.topic(partitions=2), run.target.broker_id
    run.ask("the same", reassign(topic, (0, [me])))
    run.ask("cancel none", reassign(topic, (0, None)))


def reassigned_wrongly(run: Run) -> None:
    topic, me = run.topic(), run.target.broker_id
    run.ask("unknown broker", reassign(topic, (0, [99])))
    run.ask("and another", reassign(topic, (0, [me, 99])))
    run.ask("twice the same", reassign(topic, (0, [me, me])))
    run.ask("no replicas", reassign(topic, (0, [])))
    run.ask("negative", reassign(topic, (0, [-3])))
    run.ask("unknown partition", reassign(topic, (4, [me])))
    run.ask("unknown topic", reassign(missing(run), (0, [me])))
    run.ask("nothing", {"timeout": 10_000, "topics": []})


def reassign(topic: Topic, *parts: tuple[int, list[int] | None]) -> Body:
    return {
        "timeout": 10_000,
        "topics": [
            {
                "name": topic.name,
                "partitions": [{"partition_index": index, "replicas": replicas} for index, replicas in parts],
            }
        ],
    }


def no_reassignments(run: Run) -> None:
    topic = run.topic()
    run.ask("all", {"timeout": 10_000, "topics": None})
    run.ask("of a topic", {"timeout": 10_000, "topics": [{"name": topic.name, "partition_indexes": [0]}]})
    run.ask("of a missing", {"timeout": 10_000, "topics": [{"name": missing(run).name, "partition_indexes": [0]}]})


def election_not_needed(run: Run) -> None:
    topic = run.topic(partitions=2)
    for kind, label in ((0, "preferred"), (1, "unclean"), (9, "unknown kind")):
        body = {
            "election_type": kind,
            "timeout": 10_000,
            "topic_partitions": [{"topic": topic.name, "partitions": [0, 7]}],
        }
        run.ask(label, body)
    run.ask("missing", {"timeout": 10_000, "topic_partitions": [{"topic": missing(run).name, "partitions": [0]}]})
    run.ask("none", {"timeout": 10_000, "topic_partitions": []})


def election_of_all(run: Run) -> None:
    run.ask("all", {"timeout": 10_000, "topic_partitions": None}, own_only=True)


def log_directories(run: Run) -> None:
    topic = run.topic(partitions=2)
    fill_numbered(run, topic, 2)
    run.ask("of a topic", {"topics": [{"topic": topic.name, "partitions": [0, 1]}]})
    run.ask("of one partition", {"topics": [{"topic": topic.name, "partitions": [1]}]})
    run.ask("of no partition", {"topics": [{"topic": topic.name, "partitions": [8]}]})
    run.ask("of a missing topic", {"topics": [{"topic": missing(run).name, "partitions": [0]}]})
    run.ask("of nothing", {"topics": []})


def log_directories_of_all(run: Run) -> None:
    run.topic(partitions=2)
    response = run.ask("all", {"topics": None}, own_only=True)
    run.record("directories", {"count": len(response["results"])})


def replicas_moved_between_directories(run: Run) -> None:
    topic = run.topic()
    fill(run, topic)
    nowhere = {"path": "/no/such/directory", "topics": [{"name": topic.name, "partitions": [0, 6]}]}
    run.ask("to an unknown directory", {"dirs": [nowhere]})
    found = run.do("describe_log_dirs", 4, {"topics": []})["results"][0]["log_dir"]
    run.ask("to where it is", {"dirs": [{"path": found, "topics": [{"name": topic.name, "partitions": [0]}]}]})
    run.ask(
        "of a missing topic", {"dirs": [{"path": found, "topics": [{"name": missing(run).name, "partitions": [0]}]}]}
    )
    run.ask("a relative path", {"dirs": [{"path": "here", "topics": [{"name": topic.name, "partitions": [0]}]}]})
    run.ask("nothing", {"dirs": []})


def producers_of_a_partition(run: Run) -> None:
    topic = run.topic(partitions=2)
    body = {"topics": [{"name": topic.name, "partition_indexes": [0, 1, 5]}]}
    run.ask("none", body)
    run.ask("of a missing topic", {"topics": [{"name": missing(run).name, "partition_indexes": [0]}]})
    run.ask("nothing", {"topics": []})


def producers_that_wrote(run: Run) -> None:
    from differential.batches import batch

    from .idempotence import producer

    topic, pid = run.topic(), producer(run)
    fill(run, topic, batch(b"a", b"b", producer_id=pid, producer_epoch=0, base_sequence=0))
    fill(run, topic, batch(b"c", producer_id=pid, producer_epoch=0, base_sequence=2))
    run.ask("one", {"topics": [{"name": topic.name, "partition_indexes": [0]}]})


SCENARIOS = (
    *scenarios(
        "partitions",
        "create_partitions",
        (grown, grown_by_assignment, grown_wrongly, growth_validated_only, grown_twice_in_one_request, grown_nothing),
    ),
    *scenarios(
        "partitions",
        "describe_topic_partitions",
        (described, described_all, described_missing, described_in_pages),
    ),
    *scenarios("partitions", "alter_partition_reassignments", (reassigned_to_itself, reassigned_wrongly)),
    *scenarios("partitions", "list_partition_reassignments", (no_reassignments,)),
    *scenarios("partitions", "elect_leaders", (election_not_needed, election_of_all)),
    *scenarios("partitions", "describe_log_dirs", (log_directories, log_directories_of_all)),
    *scenarios("partitions", "alter_replica_log_dirs", (replicas_moved_between_directories,)),
    *scenarios("partitions", "describe_producers", (producers_of_a_partition, producers_that_wrote)),
)
