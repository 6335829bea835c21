"""AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

from differential.requests import missing
from differential.script import DESCRIBE_CONFIGS, Body, Run, Topic, scenarios

from .configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, describe, of

SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(*resources: dict[str, Any], validate_only: bool = False) -> Body:
    return {"resources": list(resources), "validate_only": validate_only}


def whole(kind: int, name: str, **values: str | None) -> dict[str, Any]:
    """All configs of a resource, for AlterConfigs."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in values.items()],
    }


def steps(kind: int, name: str, *operations: tuple[str, int, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value} for key, operation, value in operations
        ],
    }


def seen(run: Run, label: str, topic: Topic, until: dict[str, str]) -> None:
    """Record the topic's own configs once the broker has applied the change."""

    def own() -> dict[str, str]:
        found = run.do(*DESCRIBE_CONFIGS, describe(of(TOPIC, topic.name)))["results"][0]["configs"]
        return {item["name"]: item["value"] for item in found if item["config_source"] == 1}

    run.until(f"{topic.name} has {until}", lambda: own() == until)
    run.record(label, dict(sorted(own().items())))


def replaced_whole(run: Run) -> None:
    """Configs that are not named return to their default."""
    topic = run.topic(segment_bytes="2000000")
    run.ask("response", alter(whole(TOPIC, topic.name, retention_ms="5000", cleanup_policy="compact")))
    seen(run, "configs", topic, {"retention.ms": "5000", "cleanup.policy": "compact"})
    run.ask("none", alter(whole(TOPIC, topic.name)))
    seen(run, "no configs", topic, {})


def replaced_whole_validated_only(run: Run) -> None:
    topic = run.topic()
    run.ask("good", alter(whole(TOPIC, topic.name, retention_ms="5"), validate_only=True))
    run.ask("bad", alter(whole(TOPIC, topic.name, retention_ms="x"), validate_only=True))
    seen(run, "configs", topic, {"retention.ms": "-1"})


def replaced_whole_wrongly(run: Run) -> None:
    topic = run.topic()
    run.ask("unknown key", alter(whole(TOPIC, topic.name, no_such_key="1")))
    run.ask("bad value", alter(whole(TOPIC, topic.name, retention_ms="soon")))
    run.ask("null value", alter(whole(TOPIC, topic.name, retention_ms=None)))
    run.ask("missing topic", alter(whole(TOPIC, missing(run).name, retention_ms="1")))
    run.ask("empty topic", alter(whole(TOPIC, "", retention_ms="1")))
    run.ask("bad topic", alter(whole(TOPIC, "a/b", retention_ms="1")))
    run.ask("unknown kind", alter(whole(77, "x", retention_ms="1")))
    run.ask("kind 0", alter(whole(0, "x", retention_ms="1")))
    run.ask("another broker", alter(whole(BROKER, "99", background_threads="3")))
    run.ask("no broker", alter(whole(BROKER, "me", background_threads="3")))
    run.ask("loggers", alter(whole(BROKER_LOGGER, "99", root="INFO")))
    run.ask("nothing", alter())


def replaced_whole_twice_in_one_request(run: Run) -> None:
    """Kafka never responds to this request, so it is sent once."""
    topic = run.topic()
    run.ask("twice", alter(whole(TOPIC, topic.name, retention_ms="1"), whole(TOPIC, topic.name, retention_ms="2")))


def set_and_deleted(run: Run) -> None:
    topic = run.topic()
    run.ask("set two", alter(steps(TOPIC, topic.name, ("retention.ms", SET, "7000"), ("segment.ms", SET, "8000"))))
    seen(run, "two", topic, {"retention.ms": "7000", "segment.ms": "8000"})
    run.ask("delete one", alter(steps(TOPIC, topic.name, ("retention.ms", DELETE, None))))
    seen(run, "one", topic, {"segment.ms": "8000"})
    run.ask("delete one that is not set", alter(steps(TOPIC, topic.name, ("retention.bytes", DELETE, None))))
    run.ask("delete with a value", alter(steps(TOPIC, topic.name, ("segment.ms", DELETE, "8000"))))
    seen(run, "none", topic, {})


def appended_and_subtracted(run: Run) -> None:
    topic = run.topic()
    run.ask("append", alter(steps(TOPIC, topic.name, ("cleanup.policy", APPEND, "compact"))))
    seen(run, "two", topic, {"retention.ms": "-1", "cleanup.policy": "delete,compact"})
    run.ask("append again", alter(steps(TOPIC, topic.name, ("cleanup.policy", APPEND, "compact"))))
    run.ask("subtract", alter(steps(TOPIC, topic.name, ("cleanup.policy", SUBTRACT, "delete"))))
    seen(run, "one", topic, {"retention.ms": "-1", "cleanup.policy": "compact"})
    run.ask("subtract another", alter(steps(TOPIC, topic.name, ("cleanup.policy", SUBTRACT, "delete"))))
    run.ask("append to a number", alter(steps(TOPIC, topic.name, ("retention.ms", APPEND, "5"))))
    run.ask("subtract from a number", alter(steps(TOPIC, topic.name, ("retention.ms", SUBTRACT, "5"))))
    run.ask("append nonsense", alter(steps(TOPIC, topic.name, ("cleanup.policy", APPEND, "shred"))))


def steps_validated_only(run: Run) -> None:
    topic = run.topic()
    run.ask("good", alter(steps(TOPIC, topic.name, ("retention.ms", SET, "1")), validate_only=True))
    run.ask("bad", alter(steps(TOPIC, topic.name, ("retention.ms", SET, "x")), validate_only=True))
    seen(run, "configs", topic, {"retention.ms": "-1"})


def steps_wrongly(run: Run) -> None:
    topic = run.topic()
    cases: dict[str, dict[str, Any]] = {
        "unknown key": steps(TOPIC, topic.name, ("no.such.key", SET, "1")),
        "delete unknown key": steps(TOPIC, topic.name, ("no.such.key", DELETE, None)),
        "bad value": steps(TOPIC, topic.name, ("retention.ms", SET, "soon")),
        "bad bool": steps(TOPIC, topic.name, ("preallocate", SET, "soon")),
        "bad list": steps(TOPIC, topic.name, ("cleanup.policy", SET, "soon")),
        "too low": steps(TOPIC, topic.name, ("min.insync.replicas", SET, "0")),
        "null value": steps(TOPIC, topic.name, ("retention.ms", SET, None)),
        "empty value": steps(TOPIC, topic.name, ("retention.ms", SET, "")),
        "empty key": steps(TOPIC, topic.name, ("", SET, "1")),
        "unknown operation": steps(TOPIC, topic.name, ("retention.ms", 9, "1")),
        "key twice": steps(TOPIC, topic.name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "good and bad": steps(TOPIC, topic.name, ("retention.ms", SET, "1"), ("segment.ms", SET, "x")),
        "no keys": steps(TOPIC, topic.name),
        "missing topic": steps(TOPIC, missing(run).name, ("retention.ms", SET, "1")),
        "empty topic": steps(TOPIC, "", ("retention.ms", SET, "1")),
        "bad topic": steps(TOPIC, "a/b", ("retention.ms", SET, "1")),
        "unknown kind": steps(77, "x", ("retention.ms", SET, "1")),
        "kind 0": steps(0, "x", ("retention.ms", SET, "1")),
        "another broker": steps(BROKER, "99", ("background.threads", SET, "3")),
        "no broker": steps(BROKER, "me", ("background.threads", SET, "3")),
        "group": steps(GROUP, "g", ("no.such.key", SET, "3")),
        "group without name": steps(GROUP, "", ("consumer.session.timeout.ms", SET, "45000")),
        "client metrics": steps(CLIENT_METRICS, "m", ("no.such.key", SET, "3")),
    }
    for label, case in cases.items():
        run.ask(label, alter(case))
    seen(run, "untouched", topic, {"retention.ms": "-1"})


def the_same_topic_twice(run: Run) -> None:
    topic = run.topic()
    first = steps(TOPIC, topic.name, ("retention.ms", SET, "1"))
    run.ask("response", alter(first, steps(TOPIC, topic.name, ("segment.ms", SET, "2"))))


def good_beside_bad(run: Run) -> None:
    a, b = run.topic("a"), run.topic("b")
    run.ask(
        "response", alter(steps(TOPIC, a.name, ("retention.ms", SET, "1")), steps(TOPIC, b.name, ("no.such", SET, "1")))
    )
    seen(run, "a", a, {"retention.ms": "1"})


def no_steps(run: Run) -> None:
    run.ask("response", alter())


def broker_validated_only(run: Run) -> None:
    """Changes of broker configs are only validated, because the broker serves the other scenarios too."""
    me = str(run.target.broker_id)
    for label, key, value in (
        ("dynamic", "log.cleaner.delete.retention.ms", "86400001"),
        ("read only", "node.id", "5"),
        ("unknown", "no.such.key", "5"),
        ("bad value", "message.max.bytes", "many"),
    ):
        run.ask(f"{label}, one broker", alter(steps(BROKER, me, (key, SET, value)), validate_only=True))
        run.ask(f"{label}, all brokers", alter(steps(BROKER, "", (key, SET, value)), validate_only=True))


def levels_of_loggers(run: Run) -> None:
    """The root logger is the only one that two brokers have in common."""
    me = str(run.target.broker_id)
    cases: dict[str, dict[str, Any]] = {
        "set": steps(BROKER_LOGGER, me, ("root", SET, "WARN")),
        "set in small letters": steps(BROKER_LOGGER, me, ("root", SET, "warn")),
        "set to nonsense": steps(BROKER_LOGGER, me, ("root", SET, "LOUD")),
        "set to null": steps(BROKER_LOGGER, me, ("root", SET, None)),
        "set an unknown logger": steps(BROKER_LOGGER, me, ("no.such.logger", SET, "INFO")),
        "delete an unknown logger": steps(BROKER_LOGGER, me, ("no.such.logger", DELETE, None)),
        "delete the root": steps(BROKER_LOGGER, me, ("root", DELETE, None)),
        "append": steps(BROKER_LOGGER, me, ("root", APPEND, "INFO")),
        "subtract": steps(BROKER_LOGGER, me, ("root", SUBTRACT, "INFO")),
        "good and bad": steps(BROKER_LOGGER, me, ("root", SET, "DEBUG"), ("no.such.logger", SET, "INFO")),
        "twice": steps(BROKER_LOGGER, me, ("root", SET, "ERROR"), ("root", SET, "INFO")),
        "of another": steps(BROKER_LOGGER, "99", ("root", SET, "INFO")),
        "of none": steps(BROKER_LOGGER, "", ("root", SET, "INFO")),
        "of no number": steps(BROKER_LOGGER, "me", ("root", SET, "INFO")),
        "no steps": steps(BROKER_LOGGER, me),
    }
    for label, case in cases.items():
        run.ask(label, alter(case))
        run.ask(f"after {label}", describe(of(BROKER_LOGGER, me, ["root"])), api="describe_configs", version=4)
    run.ask("validated only", alter(steps(BROKER_LOGGER, me, ("root", SET, "TRACE")), validate_only=True))
    run.ask("bad, validated only", alter(steps(BROKER_LOGGER, me, ("root", SET, "LOUD")), validate_only=True))
    run.ask("after both", describe(of(BROKER_LOGGER, me, ["root"])), api="describe_configs", version=4)
    run.ask("back", alter(steps(BROKER_LOGGER, me, ("root", SET, "INFO"))))
    loggers = describe(of(BROKER_LOGGER, me, ["root"]), synonyms=True, documentation=True)
    run.ask("with all there is", loggers, api="describe_configs", version=4)
    run.ask("an unknown key", describe(of(BROKER_LOGGER, me, ["no.such.logger"])), api="describe_configs", version=4)


SCENARIOS = (
    *scenarios(
        "configs_change",
        "alter_configs",
        (replaced_whole, replaced_whole_validated_only, replaced_whole_wrongly),
    ),
    *scenarios("configs_change", "alter_configs", (replaced_whole_twice_in_one_request,), versions=range(2, 3)),
    *scenarios(
        "configs_change",
        "incremental_alter_configs",
        (
            set_and_deleted,
            appended_and_subtracted,
            steps_validated_only,
            steps_wrongly,
            the_same_topic_twice,
            good_beside_bad,
            no_steps,
            broker_validated_only,
            levels_of_loggers,
        ),
    ),
)
