"""Groups of the consumer protocol: ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

from differential.members import (
    CONSUMER_BEAT,
    alone,
    assignment,
    committed,
    consumer_body,
    consumer_join,
    consumer_joined,
    coordinated_topic,
    group,
    new_member,
    owned,
    protocols,
    send_join,
    subscription,
)
from differential.requests import missing
from differential.script import Run, Topic, scenarios

DESCRIBED = {"api": "consumer_group_describe", "version": 1}
LEAVE, LEAVE_STATIC = -1, -2


def described(run: Run, label: str, name: str) -> None:
    run.ask(label, {"group_ids": [name]}, **DESCRIBED)


def beat_until_assigned(run: Run, name: str, member_id: str, epoch: int, count: int, topic: Topic) -> int:
    """Heartbeat as a well-behaved member until it owns `count` partitions; returns its epoch."""
    mine: list[int] = []

    def has_all() -> bool:
        nonlocal epoch, mine
        response = run.do(*CONSUMER_BEAT, consumer_body(name, member_id, epoch, topic_partitions=owned(topic, *mine)))
        assert response["error_code"] == "none", response
        epoch = response["member_epoch"]
        if response["assignment"] is not None:
            mine = [index for part in response["assignment"]["topic_partitions"] for index in part["partitions"]]
        return len(mine) == count

    run.until(f"{count} partitions of {member_id}", has_all)
    return epoch


def first_member(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run, partitions=3)
    first = run.ask("joins", consumer_join(name, "m1", topic.name))
    epoch = first["member_epoch"]
    run.ask("beats", consumer_body(name, "m1", epoch))
    run.ask("owns it", consumer_body(name, "m1", epoch, topic_partitions=owned(topic, 0, 1, 2)))
    run.ask("owns it still", consumer_body(name, "m1", epoch))
    run.ask("says everything again", consumer_join(name, "m1", topic.name) | {"member_epoch": epoch})
    described(run, "described", name)
    run.ask("leaves", consumer_body(name, "m1", LEAVE))
    described(run, "described when it left", name)
    run.ask("leaves again", consumer_body(name, "m1", LEAVE))
    run.ask("beats when it left", consumer_body(name, "m1", epoch))


def member_id_of_the_server(run: Run) -> None:
    """In version 0 the coordinator assigns the member id, later the client generates it."""
    name, topic = group(run), coordinated_topic(run)
    run.ask("no id", consumer_join(name, "", topic.name))


def invalid_fields(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run)
    right = consumer_join(name, "m1", topic.name)
    cases: dict[str, dict[str, Any]] = {
        "empty group": {"group_id": ""},
        "blank group": {"group_id": "  "},
        "no rebalance timeout": {"rebalance_timeout": -1},
        "rebalance timeout 0": {"rebalance_timeout": 0},
        "no subscription": {"subscribed_topic_names": None},
        "partitions already": {"topic_partitions": owned(topic, 0)},
        "partitions null": {"topic_partitions": None},
        "empty instance": {"instance_id": ""},
        "empty rack": {"rack_id": ""},
        "unknown assignor": {"server_assignor": "nonsense"},
        "epoch -3": {"member_epoch": -3},
        "no id": {"member_id": "", "member_epoch": 5},
        "static leave without an instance": {"member_epoch": -2},
    }
    for label, case in cases.items():
        run.ask(label, right | case)
    run.ask("leaves an unknown group", consumer_body(name, "m1", LEAVE))
    run.ask("heartbeat in an unknown group", consumer_body(name, "m1", 4))


def unusual_subscriptions(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run)
    run.ask("nothing", consumer_join(name, "m1"))
    run.ask("unknown topic", consumer_join(group(run, "h"), "m1", missing(run).name))
    run.ask("twice", consumer_join(group(run, "i"), "m1", topic.name, topic.name))
    run.ask("bad name", consumer_join(group(run, "j"), "m1", "a/b", topic.name))


def wrong_epochs(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run, partitions=2)
    epoch = consumer_joined(run, name, "m1", topic.name)
    run.ask("newer", consumer_body(name, "m1", epoch + 5))
    run.ask("one older", consumer_body(name, "m1", epoch - 1, topic_partitions=owned(topic, 0, 1)))
    run.ask("one older, owns nothing", consumer_body(name, "m1", epoch - 1, topic_partitions=[]))
    run.ask(
        "one older, owns what it should not", consumer_body(name, "m1", epoch - 1, topic_partitions=owned(topic, 7))
    )
    run.ask("joins again", consumer_join(name, "m1", topic.name))
    run.ask("unknown member", consumer_body(name, "stranger", epoch))


def second_member(run: Run) -> None:
    """Partitions move in steps: the old owner is asked to revoke, revokes, and the new one is assigned."""
    name, topic = group(run), coordinated_topic(run, partitions=4)
    first = consumer_joined(run, name, "m1", topic.name)
    run.do(*CONSUMER_BEAT, consumer_body(name, "m1", first, topic_partitions=owned(topic, 0, 1, 2, 3)))
    second = run.ask("second joins", consumer_join(name, "m2", topic.name))["member_epoch"]
    described(run, "described", name)
    run.ask("first learns of it", consumer_body(name, "m1", first))
    run.ask("second waits", consumer_body(name, "m2", second))
    described(run, "described while it revokes", name)
    run.ask("first let go", consumer_body(name, "m1", first, topic_partitions=owned(topic, 0, 1)))
    run.ask("second is given", consumer_body(name, "m2", second))
    described(run, "described at last", name)


def first_leaves(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run, partitions=4)
    consumer_joined(run, name, "m1", topic.name)
    second = consumer_joined(run, name, "m2", topic.name)
    run.ask("first leaves", consumer_body(name, "m1", LEAVE))
    run.ask("second is given all", consumer_body(name, "m2", second))
    described(run, "described", name)


def member_that_does_not_revoke(run: Run) -> None:
    """A member that does not revoke its partitions is removed after its rebalance timeout."""
    run.timed()
    name, topic = group(run), coordinated_topic(run, partitions=2)
    first = consumer_joined(run, name, "m1", topic.name, rebalance_timeout=500)
    run.do(*CONSUMER_BEAT, consumer_body(name, "m1", first, topic_partitions=owned(topic, 0, 1)))
    second = consumer_joined(run, name, "m2", topic.name)
    run.ask("first learns of it", consumer_body(name, "m1", first))
    beat_until_assigned(run, name, "m2", second, 2, topic)
    run.ask("first is out", consumer_body(name, "m1", first))


def range_assignor(run: Run) -> None:
    name, topic, other = group(run), coordinated_topic(run, partitions=3), coordinated_topic(run, "b", partitions=3)
    run.ask("first", consumer_join(name, "m1", topic.name, other.name, server_assignor="range"))
    run.ask("second", consumer_join(name, "m2", topic.name, other.name, server_assignor="range"))
    described(run, "described", name)
    consumer_joined(run, name, "m3", topic.name, server_assignor="uniform")
    described(run, "one wants another", name)


def subscription_changes(run: Run) -> None:
    name, topic, other = group(run), coordinated_topic(run), coordinated_topic(run, "b", partitions=2)
    epoch = consumer_joined(run, name, "m1", topic.name)
    run.do(*CONSUMER_BEAT, consumer_body(name, "m1", epoch, topic_partitions=owned(topic, 0)))
    changed = consumer_body(name, "m1", epoch, subscribed_topic_names=[other.name])
    epoch = run.ask("other topic", changed)["member_epoch"]
    run.ask("let go", consumer_body(name, "m1", epoch, topic_partitions=[]))
    described(run, "described", name)


def topic_appears_and_grows(run: Run) -> None:
    name = group(run)
    late = run.name("late")
    epoch = consumer_joined(run, name, "m1", late)
    topic = run.topic("late")
    epoch = beat_until_assigned(run, name, "m1", epoch, 1, topic)
    grown = {"topics": [{"name": late, "count": 3, "assignments": None}], "timeout": 10_000}
    run.do("create_partitions", 1, grown)
    beat_until_assigned(run, name, "m1", epoch, 3, topic)
    described(run, "described", name)


def topic_is_deleted(run: Run) -> None:
    name, topic, other = group(run), coordinated_topic(run), coordinated_topic(run, "b")
    epoch = consumer_joined(run, name, "m1", topic.name, other.name)
    run.do("delete_topics", 3, {"topic_names": [topic.name], "timeout": 10_000})
    run.await_gone(topic.name)

    def is_told() -> Any:
        response = run.do(*CONSUMER_BEAT, consumer_body(name, "m1", epoch))
        return response["assignment"]

    run.until("an assignment without the topic", is_told)
    described(run, "described", name)


def full_group(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run)
    for index in range(4):
        consumer_joined(run, name, f"m{index}", topic.name)
    run.ask("one too many", consumer_join(name, "m9", topic.name))


def regular_expressions(run: Run) -> None:
    name, topic, other = group(run), coordinated_topic(run, "alpha"), coordinated_topic(run, "beta")
    stem = topic.name.removesuffix("alpha")
    pattern = stem.replace(".", r"\.") + "(alpha|gamma)"
    run.tokens.add_name(pattern, "pattern")
    both = stem.replace(".", r"\.") + ".*"
    run.tokens.add_name(both, "both")
    joining = consumer_join(name, "m1", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    epoch = run.do("consumer_group_heartbeat", 1, joining)["member_epoch"]
    epoch = beat_until_assigned(run, name, "m1", epoch, 1, topic)
    described(run, "described", name)
    run.ask("changes it", consumer_body(name, "m1", epoch, subscribed_topic_regex=both))
    epoch = beat_until_assigned(run, name, "m1", epoch, 2, other)
    described(run, "described again", name)
    run.ask(
        "gives it up", consumer_body(name, "m1", epoch, subscribed_topic_regex="", subscribed_topic_names=[other.name])
    )


def bad_regular_expressions(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run)
    for label, pattern in (("unbalanced", "(a"), ("lookahead", "a(?=b)"), ("backreference", r"(a)\1"), ("nothing", "")):
        body = consumer_join(name, "m1", subscribed_topic_names=None, subscribed_topic_regex=pattern)
        run.ask(label, body)
    run.ask("names and a pattern", consumer_join(name, "m1", topic.name, subscribed_topic_regex="nothing-like-it.*"))


# Static members


def static_member_comes_back(run: Run) -> None:
    """It leaves temporarily with epoch -2, and gets its partitions back when it returns."""
    name, topic = group(run), coordinated_topic(run, partitions=2)
    static = {"instance_id": "i1"}
    epoch = run.ask("joins", consumer_join(name, "m1", topic.name, **static))["member_epoch"]
    run.ask("its instance is taken", consumer_join(name, "m2", topic.name, **static))
    run.ask("goes for a while", consumer_body(name, "m1", LEAVE_STATIC, **static))
    described(run, "described while it is away", name)
    run.ask("beats while it is away", consumer_body(name, "m1", epoch, **static))
    run.ask("comes back", consumer_join(name, "m3", topic.name, **static))
    run.ask("former self beats", consumer_body(name, "m1", epoch, **static))
    described(run, "described", name)
    run.ask("leaves for good", consumer_body(name, "m3", LEAVE, **static))
    described(run, "described when it left", name)


def static_member_errors(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run)
    epoch = consumer_joined(run, name, "m1", topic.name, instance_id="i1")
    run.ask("unknown instance", consumer_body(name, "m1", epoch, instance_id="i9"))
    run.ask("other member's instance", consumer_body(name, "m9", epoch, instance_id="i1"))
    run.ask("without its instance", consumer_body(name, "m1", epoch))
    run.ask("unknown instance goes", consumer_body(name, "m1", LEAVE_STATIC, instance_id="i9"))
    run.ask("wrong member goes", consumer_body(name, "m9", LEAVE_STATIC, instance_id="i1"))


# From one protocol to the other


def classic_group_is_upgraded(run: Run) -> None:
    """A member of the consumer protocol joins a classic group of consumers, which is upgraded with its members."""
    name, topic = group(run), coordinated_topic(run, partitions=2)
    metadata = protocols("range", metadata=subscription(topic.name))
    member = alone(run, name, synced=False, protocols=metadata)
    given = {member.member_id: assignment({topic.name: [0, 1]})}
    body = member.who(assignments=[{"member_id": who, "assignment": what} for who, what in given.items()])
    member.peer.do("sync_group", 4, body)
    run.ask("new member", consumer_join(name, "m1", topic.name))
    described(run, "described", name)
    member.peer.ask("classic member beats", member.who(), api="heartbeat", version=4)
    run.ask("listed", {}, api="list_groups", version=5, own_only=True)
    classic = run.do("describe_groups", 5, {"groups": [name]})["groups"][0]
    run.record("described as classic", {"group_state": classic["group_state"]})


def classic_groups_that_cannot_be_upgraded(run: Run) -> None:
    topic = coordinated_topic(run)
    connect, unreadable, unsynced = group(run, "k"), group(run, "r"), group(run, "s")
    alone(run, connect, protocol_type="connect")
    run.ask("of another type", consumer_join(connect, "m1", topic.name))
    alone(run, unreadable)
    run.ask("with unreadable metadata", consumer_join(unreadable, "m1", topic.name))
    alone(run, unsynced, synced=False, protocols=protocols("range", metadata=subscription(topic.name)))
    # The order of random ids decides which member gets the one partition.
    response = run.do("consumer_group_heartbeat", run.version, consumer_join(unsynced, "m1", topic.name))
    run.record("before it synced", {field: response[field] for field in ("error_code", "member_epoch")})


def empty_classic_group_becomes_new(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run)
    committed(run, name, topic, 5)
    run.ask("joins", consumer_join(name, "m1", topic.name))
    run.ask("offsets", {"groups": [{"group_id": name, "topics": None}]}, api="offset_fetch", version=9)
    run.ask("listed", {}, api="list_groups", version=5, own_only=True)


def empty_new_group_becomes_classic(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run)
    consumer_joined(run, name, "m1", topic.name)
    run.do(*CONSUMER_BEAT, consumer_body(name, "m1", LEAVE))
    alone(run, name)
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)
    run.ask("described as new", {"group_ids": [name]}, **DESCRIBED)


def classic_member_of_a_new_group(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run, partitions=2)
    epoch = consumer_joined(run, name, "m1", topic.name)
    run.do(*CONSUMER_BEAT, consumer_body(name, "m1", epoch, topic_partitions=owned(topic, 0, 1)))
    member = new_member(run, name)
    body = {"group_id": name, "session_timeout": 30_000, "rebalance_timeout": 30_000, "protocol_type": "consumer"}
    unreadable = body | {"protocols": protocols("range")}
    member.peer.ask("unreadable metadata", unreadable, api="join_group", version=9)
    other = body | {"protocol_type": "connect", "protocols": protocols("range")}
    member.peer.ask("another type", other, api="join_group", version=9)
    send_join(member, protocols=protocols("range", metadata=subscription(topic.name)))
    response = member.peer.receive()
    run.tokens.member_id(response["member_id"])
    shown = {key: response[key] for key in ("error_code", "generation_id", "protocol_name", "protocol_type", "members")}
    run.record("joins", shown | {"leads": response["leader"] == response["member_id"]})
    member.took(response)
    described(run, "described", name)
    run.ask("first learns of it", consumer_body(name, "m1", epoch))
    member.peer.ask("classic member beats", member.who(), api="heartbeat", version=4)
    run.ask("first let go", consumer_body(name, "m1", epoch, topic_partitions=owned(topic, 0)))
    member.peer.ask("classic member syncs", member.who(assignments=[]), api="sync_group", version=4)


# ConsumerGroupDescribe


def describe_unknown(run: Run) -> None:
    name, classic = group(run), group(run, "c")
    alone(run, classic)
    run.ask("unknown", {"group_ids": [name]})
    run.ask("empty name", {"group_ids": [""]})
    run.ask("classic", {"group_ids": [classic]})
    run.ask("nothing", {"group_ids": []})


def describe_several(run: Run) -> None:
    name, topic = group(run), coordinated_topic(run, partitions=2)
    consumer_joined(run, name, "m1", topic.name, rack_id="r1", instance_id="i1")
    unknown = group(run, "u")
    run.ask("response", {"group_ids": [name, unknown, name], "include_authorized_operations": True})


SCENARIOS = (
    *scenarios(
        "groups_consumer",
        "consumer_group_heartbeat",
        (
            first_member,
            member_id_of_the_server,
            invalid_fields,
            unusual_subscriptions,
            wrong_epochs,
            second_member,
            first_leaves,
            member_that_does_not_revoke,
            range_assignor,
            subscription_changes,
            topic_appears_and_grows,
            topic_is_deleted,
            full_group,
            static_member_comes_back,
            static_member_errors,
            classic_group_is_upgraded,
            classic_groups_that_cannot_be_upgraded,
            empty_classic_group_becomes_new,
            empty_new_group_becomes_classic,
            classic_member_of_a_new_group,
        ),
    ),
    *scenarios(
        "groups_consumer",
        "consumer_group_heartbeat",
        (regular_expressions, bad_regular_expressions),
        versions=range(1, 99),
    ),
    *scenarios("groups_consumer", "consumer_group_describe", (describe_unknown, describe_several)),
)
