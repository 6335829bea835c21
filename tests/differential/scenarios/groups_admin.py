"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from differential.members import (
    JOIN,
    alone,
    await_state,
    committed,
    consumer_joined,
    group,
    join_body,
    new_member,
    send_join,
    together,
)
from differential.script import Run, scenarios


def describe_unknown(run: Run) -> None:
    """Up to version 5 an unknown group is described as dead."""
    name = group(run)
    run.ask("unknown", {"groups": [name]})
    run.ask("empty name", {"groups": [""]})
    run.ask("nothing", {"groups": []})
    run.ask("permissions", {"groups": [name], "include_authorized_operations": True})


def describe_every_state(run: Run) -> None:
    names = {state: group(run, state) for state in ("stable", "rebalancing", "completing", "left", "offsets")}
    topic = run.topic("t")
    together(run, names["stable"], 2)
    alone(run, names["rebalancing"])
    send_join(new_member(run, names["rebalancing"]))
    await_state(run, names["rebalancing"], "PreparingRebalance")
    alone(run, names["completing"], synced=False)
    member = alone(run, names["left"], "i1")
    run.do("leave_group", 3, {"group_id": names["left"], "members": [{"member_id": member.member_id}]})
    committed(run, names["offsets"], topic, 5)
    for state, name in names.items():
        run.ask(state, {"groups": [name], "include_authorized_operations": state == "stable"})


def describe_several(run: Run) -> None:
    first, second, unknown = group(run), group(run, "h"), group(run, "u")
    alone(run, first, "i1", protocol_type="connect")
    alone(run, second)
    run.ask("response", {"groups": [first, second, unknown, first]})


def describe_a_consumer_group(run: Run) -> None:
    name, topic = group(run), run.topic()
    consumer_joined(run, name, "m1", topic.name)
    run.ask("response", {"groups": [name]})


def listed(run: Run, label: str, **filters: list[str]) -> None:
    run.ask(label, dict(filters), own_only=True)


def list_all(run: Run) -> None:
    stable, offsets_only, left, modern, pending = (group(run, token) for token in ("s", "o", "l", "c", "p"))
    topic = run.topic("t")
    listed(run, "before")
    alone(run, stable)
    committed(run, offsets_only, topic, 5)
    member = alone(run, left, protocol_type="connect")
    run.do("leave_group", 1, {"group_id": left, "member_id": member.member_id})
    consumer_joined(run, modern, "m1", topic.name)
    run.do(*JOIN, join_body(pending))
    listed(run, "after")
    if run.version >= 4:
        for states in (
            ["Stable"],
            ["stable"],
            ["Empty", "Dead"],
            ["STABLE", "EMPTY"],
            ["Nonsense"],
            ["Assigning"],
            [""],
        ):
            listed(run, f"states {states}", states_filter=states)
    if run.version >= 5:
        for types in (["classic"], ["Classic"], ["CONSUMER"], ["classic", "consumer"], ["share"], ["nonsense"], [""]):
            listed(run, f"types {types}", types_filter=types)
        listed(run, "states and types", states_filter=["Stable"], types_filter=["consumer"])


def delete_groups(run: Run) -> None:
    empty, offsets_only, busy, modern, unknown = (group(run, token) for token in ("e", "o", "b", "c", "u"))
    topic = run.topic("t")
    member = alone(run, empty)
    run.do("leave_group", 1, {"group_id": empty, "member_id": member.member_id})
    committed(run, offsets_only, topic, 5)
    alone(run, busy)
    consumer_joined(run, modern, "m1", topic.name)
    run.ask("all", {"groups_names": [empty, offsets_only, busy, modern, unknown, ""]})
    run.ask("again", {"groups_names": [empty, offsets_only]})
    run.ask("nothing", {"groups_names": []})
    run.ask("twice the same", {"groups_names": [unknown, unknown]})
    run.ask("described", {"groups": [empty, offsets_only, busy]}, api="describe_groups", version=5)
    body = {"groups": [{"group_id": offsets_only, "topics": None}]}
    run.ask("offsets", body, api="offset_fetch", version=9)


def delete_a_group_with_a_pending_member(run: Run) -> None:
    name = group(run)
    run.do(*JOIN, join_body(name))
    run.ask("response", {"groups_names": [name]})


SCENARIOS = (
    *scenarios(
        "groups_admin",
        "describe_groups",
        (describe_unknown, describe_every_state, describe_several, describe_a_consumer_group),
    ),
    *scenarios("groups_admin", "list_groups", (list_all,)),
    *scenarios("groups_admin", "delete_groups", (delete_groups, delete_a_group_with_a_pending_member)),
)
