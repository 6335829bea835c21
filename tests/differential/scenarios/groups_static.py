"""Static members of classic groups: replaced without a rebalance, and fenced once replaced."""

from __future__ import annotations

from differential.members import (
    BEAT,
    JOIN,
    Member,
    alone,
    await_state,
    beat_body,
    commit_body,
    commit_topic,
    group,
    join_body,
    leave_body,
    new_member,
    protocols,
    rejoin,
    send_join,
    sync,
    sync_body,
)
from differential.script import Run, scenarios

BEATS = {"api": BEAT[0], "version": BEAT[1]}
INSTANCE = "i1"


def static_join(group: str, member_id: str = "", instance: str = INSTANCE, **fields: object) -> dict[str, object]:
    return join_body(group, member_id, group_instance_id=instance, **fields)


def pair(run: Run, name: str, **fields: object) -> tuple[Member, Member]:
    """A static leader and a static follower."""
    leader, follower = alone(run, name, INSTANCE, **fields), new_member(run, name, "i2")
    send_join(follower, **fields)
    rejoin(run, leader, follower, **fields)
    sync(leader, follower)
    return leader, follower


def first_static_member(run: Run) -> None:
    name = group(run)
    run.ask("joins", static_join(name))


def instance_and_member_id_that_do_not_fit(run: Run) -> None:
    name = group(run)
    run.ask("new group, invented id", static_join(name, "invented"))
    member = alone(run, name, INSTANCE)
    run.ask("known instance, invented id", static_join(name, "invented"))
    run.ask("unknown instance, invented id", static_join(name, "invented", "i9"))
    run.ask("unknown instance, known id", static_join(name, member.member_id, "i9"))
    nameless = run.peer()
    nameless.send("join_group", run.version, static_join(name, "", ""))
    nameless.waits("empty instance")


def leader_comes_back(run: Run) -> None:
    """It replaces its former self: same generation, no rebalance, and nothing new to assign."""
    name = group(run)
    leader, follower = pair(run, name)
    back = run.ask("leader", static_join(name))
    follower.peer.ask("follower beats", beat_body(follower), **BEATS)
    leader.peer.ask("former self beats", beat_body(leader), **BEATS)
    leader.peer.ask("former self joins", static_join(name, leader.member_id))
    fresh = Member(peer=run.peer(), group=name, member_id=back["member_id"], generation=2, instance=INSTANCE)
    run.ask("leader syncs", sync_body(fresh), api="sync_group", version=5)
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)


def follower_comes_back(run: Run) -> None:
    name = group(run)
    leader, follower = pair(run, name)
    run.ask("follower", static_join(name, "", "i2"))
    leader.peer.ask("leader beats", beat_body(leader), **BEATS)
    follower.peer.ask("former self beats", beat_body(follower), **BEATS)
    follower.peer.ask("former self syncs", sync_body(follower), api="sync_group", version=5)


def comes_back_with_other_metadata(run: Run) -> None:
    """Other metadata of the same protocol does not change the chosen protocol; another protocol does."""
    name = group(run)
    both = protocols("p1", "p2")
    leader, _ = pair(run, name, protocols=both)
    run.ask("other metadata", static_join(name, "", "i2", protocols=protocols("p1", "p2", metadata=b"other")))
    leader.peer.ask("leader beats", beat_body(leader), **BEATS)
    newer = run.peer()
    newer.send("join_group", run.version, static_join(name, "", "i2", protocols=protocols("p2")))
    newer.waits("without the chosen protocol")
    leader.peer.ask("leader beats again", beat_body(leader), **BEATS)
    send_join(leader, run.version, protocols=both)
    newer.take("follower")
    leader.peer.take("leader")


def comes_back_while_its_former_self_waits_to_join(run: Run) -> None:
    name = group(run)
    leader, follower = pair(run, name)
    newcomer = new_member(run, name, "i3")
    send_join(newcomer)
    await_state(run, name, "PreparingRebalance")
    send_join(follower)
    follower.peer.waits("former self")
    again = run.peer()
    again.send("join_group", run.version, static_join(name, "", "i2"))
    follower.peer.take("former self fenced")
    send_join(leader)
    again.take("follower")
    newcomer.peer.take("newcomer")
    leader.peer.take("leader")


def comes_back_while_its_former_self_waits_to_sync(run: Run) -> None:
    name = group(run)
    leader, follower = alone(run, name, INSTANCE), new_member(run, name, "i2")
    send_join(follower)
    rejoin(run, leader, follower)
    follower.peer.send("sync_group", 5, sync_body(follower))
    follower.peer.waits("former self")
    again = run.peer()
    again.send("join_group", run.version, static_join(name, "", "i2"))
    follower.peer.take("former self fenced")
    send_join(leader)
    again.take("follower")
    leader.peer.take("leader")


def fenced_everywhere(run: Run) -> None:
    """A request with an instance id and another member's id is fenced, in every API."""
    name, topic = group(run), run.topic()
    member = alone(run, name, INSTANCE)
    commit = commit_body(name, commit_topic(topic, (0, 5)), group_instance_id=INSTANCE)
    run.ask("join", static_join(name, "invented"))
    run.ask("sync", sync_body(member, member_id="invented"), api="sync_group", version=5)
    run.ask("heartbeat", beat_body(member, member_id="invented"), **BEATS)
    run.ask("leave", leave_body(name, ("invented", INSTANCE)), api="leave_group", version=5)
    run.ask(
        "commit", commit | {"member_id": "invented", "generation_id_or_member_epoch": 1}, api="offset_commit", version=9
    )
    run.ask("unknown instance syncs", sync_body(member, group_instance_id="i9"), api="sync_group", version=5)
    run.ask("unknown instance beats", beat_body(member, group_instance_id="i9"), **BEATS)
    unknown = commit | {"group_instance_id": "i9", "member_id": member.member_id, "generation_id_or_member_epoch": 1}
    run.ask("unknown instance commits", unknown, api="offset_commit", version=9)
    right = commit | {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    run.ask("right commit", right, api="offset_commit", version=9)
    run.ask("without the instance", beat_body(member, group_instance_id=None), **BEATS)


def static_members_leave(run: Run) -> None:
    name = group(run)
    leader, _ = pair(run, name)
    run.ask("unknown instance", leave_body(name, ("", "i9")))
    run.ask("wrong member id", leave_body(name, ("invented", "i2")))
    run.ask("by instance", leave_body(name, ("", "i2")))
    run.ask("by instance again", leave_body(name, ("", "i2")))
    run.ask("by both", leave_body(name, (leader.member_id, INSTANCE)))
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)


def full_group_and_static_members(run: Run) -> None:
    name = group(run)
    members = [alone(run, name, "i0")]
    for index in range(1, 4):
        newcomer = new_member(run, name, f"i{index}")
        send_join(newcomer)
        rejoin(run, *members, newcomer)
        members.append(newcomer)
        sync(*members)
    run.ask("one too many", static_join(name, "", "i9"))
    run.ask("one that comes back", static_join(name, "", "i3"))


def dynamic_and_static_together(run: Run) -> None:
    name = group(run)
    leader, newcomer = alone(run, name, INSTANCE), new_member(run, name)
    body = join_body(name)
    given = newcomer.peer.do(*JOIN, body)
    newcomer.peer.send("join_group", run.version, body | {"member_id": given["member_id"]})
    await_state(run, name, "PreparingRebalance")
    send_join(leader, run.version)
    newcomer.peer.take("dynamic follower")
    leader.peer.take("static leader")


SCENARIOS = (
    *scenarios(
        "groups_static",
        "join_group",
        (
            first_static_member,
            instance_and_member_id_that_do_not_fit,
            leader_comes_back,
            follower_comes_back,
            comes_back_with_other_metadata,
            comes_back_while_its_former_self_waits_to_join,
            comes_back_while_its_former_self_waits_to_sync,
            fenced_everywhere,
            full_group_and_static_members,
            dynamic_and_static_together,
        ),
        versions=range(5, 99),
    ),
    *scenarios("groups_static", "leave_group", (static_members_leave,), versions=range(3, 99)),
)
