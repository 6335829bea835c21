"""SyncGroup, Heartbeat and LeaveGroup of classic groups."""

from __future__ import annotations

from differential.members import (
    BEAT,
    SYNC,
    alone,
    await_state,
    beat_body,
    group,
    join_body,
    leave_body,
    new_member,
    send_join,
    sync_body,
    together,
)
from differential.script import Run, scenarios

BEATS = {"api": BEAT[0], "version": BEAT[1]}


def leader_alone(run: Run) -> None:
    name = group(run)
    member = alone(run, name, synced=False)
    run.ask("leader", sync_body(member, {member.member_id: b"all of it"}))
    run.ask("once more", sync_body(member, {member.member_id: b"something else"}))
    run.ask("a follower's way", sync_body(member))


def leader_assigns_nothing(run: Run) -> None:
    name = group(run)
    member = alone(run, name, synced=False)
    run.ask("response", sync_body(member))


def assignments_for_unknown_members(run: Run) -> None:
    name = group(run)
    member = alone(run, name, synced=False)
    run.ask("response", sync_body(member, {"stranger": b"his", member.member_id: b"mine"}))
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)


def followers_wait_for_the_leader(run: Run) -> None:
    name = group(run)
    leader, follower = together(run, name, 2, synced=False)
    follower.peer.send("sync_group", run.version, sync_body(follower))
    follower.peer.waits("follower")
    run.ask("leader", sync_body(leader, {leader.member_id: b"1", follower.member_id: b"2"}))
    follower.peer.take("follower after the leader")


def sync_of_unknown_members(run: Run) -> None:
    name = group(run)
    unknown = new_member(run, name)
    unknown.member_id, unknown.generation = "stranger", 1
    run.ask("unknown group", sync_body(unknown))
    run.ask("empty group", sync_body(unknown, group_id=""))
    member = alone(run, name, synced=False)
    run.ask("unknown member", sync_body(unknown))
    run.ask("no member id", sync_body(member, member_id=""))
    for generation in (0, 2, -1):
        run.ask(f"generation {generation}", sync_body(member, generation_id=generation))


def sync_protocols(run: Run) -> None:
    """From version 5 on a sync has the protocol type and name."""
    name = group(run)
    member = alone(run, name, synced=False)
    run.ask("other type", sync_body(member, protocol_type="connect"))
    run.ask("other name", sync_body(member, protocol_name="p9"))
    run.ask("no type", sync_body(member, protocol_type=None))
    run.ask("no name", sync_body(member, protocol_name=None))
    run.ask("right", sync_body(member))
    run.ask("other name when stable", sync_body(member, protocol_name="p9"))


def sync_while_rebalancing(run: Run) -> None:
    name = group(run)
    member, newcomer = alone(run, name), new_member(run, name)
    send_join(newcomer)
    await_state(run, name, "PreparingRebalance")
    run.ask("response", sync_body(member))


def leader_leaves_before_it_syncs(run: Run) -> None:
    name = group(run)
    leader, follower = together(run, name, 2, synced=False)
    follower.peer.send("sync_group", run.version, sync_body(follower))
    follower.peer.waits("follower")
    run.do("leave_group", 1, {"group_id": name, "member_id": leader.member_id})
    follower.peer.take("follower after the leader left")


def new_member_before_the_leader_syncs(run: Run) -> None:
    name = group(run)
    leader, follower = together(run, name, 2, synced=False)
    follower.peer.send("sync_group", run.version, sync_body(follower))
    follower.peer.waits("follower")
    send_join(new_member(run, name))
    follower.peer.take("follower after the newcomer")
    run.ask("leader", sync_body(leader, {leader.member_id: b"1", follower.member_id: b"2"}))


def leader_never_syncs(run: Run) -> None:
    """It is removed after the rebalance timeout, and the others have to rejoin."""
    run.timed()
    name = group(run)
    leader, follower = together(run, name, 2, synced=False, rebalance_timeout=600)
    follower.peer.send("sync_group", run.version, sync_body(follower))
    follower.peer.take("follower")
    leader.peer.ask("leader beats", beat_body(leader), **BEATS)


def large_assignment(run: Run) -> None:
    name = group(run)
    member = alone(run, name, synced=False)
    run.ask("response", sync_body(member, {member.member_id: bytes(1_200_000)}))
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)


# Heartbeat


def heartbeats(run: Run) -> None:
    name = group(run)
    member = alone(run, name, synced=False)
    run.ask("before it synced", beat_body(member))
    run.do(*SYNC, sync_body(member, {member.member_id: b"x"}))
    run.ask("stable", beat_body(member))
    for generation in (0, 2, -1):
        run.ask(f"generation {generation}", beat_body(member, generation_id=generation))
    run.ask("unknown member", beat_body(member, member_id="stranger"))
    run.ask("no member id", beat_body(member, member_id=""))
    send_join(new_member(run, name))
    await_state(run, name, "PreparingRebalance")
    run.ask("rebalancing", beat_body(member))
    run.ask("rebalancing, old generation", beat_body(member, generation_id=0))


def heartbeats_of_unknown_groups(run: Run) -> None:
    name = group(run)
    unknown = new_member(run, name)
    unknown.member_id, unknown.generation = "stranger", 1
    run.ask("unknown group", beat_body(unknown))
    run.ask("empty name", beat_body(unknown, group_id=""))
    member = alone(run, name)
    run.do("leave_group", 1, {"group_id": name, "member_id": member.member_id})
    run.ask("group without members", beat_body(member))


# LeaveGroup


def leaves(run: Run) -> None:
    name = group(run)
    member = alone(run, name)
    run.ask("known", leave_body(name, (member.member_id, None)))
    run.ask("again", leave_body(name, (member.member_id, None)))
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)


def leaves_unknown(run: Run) -> None:
    name = group(run)
    run.ask("unknown group", leave_body(name, ("stranger", None)))
    run.ask("empty name", leave_body("", ("stranger", None)))
    alone(run, name)
    run.ask("unknown member", leave_body(name, ("stranger", None)))
    run.ask("no member id", leave_body(name, ("", None)))


def leaves_and_the_rest_rebalance(run: Run) -> None:
    name = group(run)
    leader, follower = together(run, name, 2)
    run.ask("leader", leave_body(name, (leader.member_id, None)))
    follower.peer.ask("follower beats", beat_body(follower), **BEATS)
    response = follower.peer.ask("follower joins", join_body(name, follower.member_id), api="join_group", version=9)
    assert response["leader"] == follower.member_id


def leaves_while_it_waits(run: Run) -> None:
    """Its join gets a response: it is no longer a member."""
    name = group(run)
    _, newcomer = alone(run, name), new_member(run, name)
    send_join(newcomer)
    await_state(run, name, "PreparingRebalance")
    run.ask("newcomer", leave_body(name, (newcomer.member_id, None)))
    newcomer.peer.take("its join")


def several_leave(run: Run) -> None:
    name = group(run)
    leader, follower = together(run, name, 2)
    run.ask("no members", leave_body(name))
    members = [(leader.member_id, None), ("stranger", None), (leader.member_id, None), (follower.member_id, "nobody")]
    run.ask("four", leave_body(name, *members))
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)


SCENARIOS = (
    *scenarios(
        "groups_sync",
        "sync_group",
        (
            leader_alone,
            leader_assigns_nothing,
            assignments_for_unknown_members,
            followers_wait_for_the_leader,
            sync_of_unknown_members,
            sync_protocols,
            sync_while_rebalancing,
            leader_leaves_before_it_syncs,
            new_member_before_the_leader_syncs,
            leader_never_syncs,
        ),
    ),
    *scenarios("groups_sync", "sync_group", (large_assignment,), versions=range(5, 6)),
    *scenarios("groups_sync", "heartbeat", (heartbeats, heartbeats_of_unknown_groups)),
    *scenarios(
        "groups_sync",
        "leave_group",
        (leaves, leaves_unknown, leaves_and_the_rest_rebalance, leaves_while_it_waits),
    ),
    *scenarios("groups_sync", "leave_group", (several_leave,), versions=range(3, 99)),
)
