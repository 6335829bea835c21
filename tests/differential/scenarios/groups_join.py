"""JoinGroup of classic groups: which members are accepted, who leads, which protocol is chosen, when a join waits."""

from __future__ import annotations

import time

from differential.members import (
    JOIN,
    alone,
    await_state,
    beat_body,
    group,
    join_body,
    new_member,
    protocols,
    send_join,
    sync,
    sync_body,
    together,
)
from differential.script import Run, scenarios


def first_member(run: Run) -> None:
    name = group(run)
    first = run.ask("without an id", join_body(name, reason="to see"))
    if run.version >= 4:
        run.ask("with the id it got", join_body(name, first["member_id"]))


def invented_member_id(run: Run) -> None:
    name = group(run)
    run.ask("new group", join_body(name, "invented"))
    alone(run, name)
    run.ask("group with a member", join_body(name, "invented"))


def empty_group_id(run: Run) -> None:
    group(run)
    run.ask("response", join_body(""))


def session_timeouts(run: Run) -> None:
    name = group(run)
    for timeout in (99, 1_800_001, 0, -1):
        run.ask(f"{timeout} ms", join_body(name, session_timeout=timeout))


def invalid_rebalance_timeouts(run: Run) -> None:
    name = group(run)
    run.ask("zero", join_body(name, rebalance_timeout=0))
    run.ask("negative", join_body(name, rebalance_timeout=-5))


def protocols_missing(run: Run) -> None:
    name = group(run)
    run.ask("no protocols", join_body(name, protocols=[]))
    run.ask("no type", join_body(name, protocol_type=""))
    run.ask("neither", join_body(name, protocol_type="", protocols=[]))
    run.ask("name of a protocol empty", join_body(name, protocols=protocols("")))


def protocols_that_do_not_fit(run: Run) -> None:
    name = group(run)
    member = alone(run, name)
    run.ask("other type", join_body(name, protocol_type="connect"))
    run.ask("other protocols", join_body(name, protocols=protocols("p8", "p9")))
    run.ask("none", join_body(name, protocols=[]))
    run.ask("the member itself, other type", join_body(name, member.member_id, protocol_type="connect"))


def second_member(run: Run) -> None:
    """The new member waits, the other learns of the rebalance by its heartbeat, and both get the new generation."""
    name = group(run)
    member, newcomer = alone(run, name), new_member(run, name)
    send_join(newcomer, run.version, protocols=protocols(metadata=b"new"))
    newcomer.peer.waits("newcomer")
    member.peer.ask("heartbeat", beat_body(member), api="heartbeat", version=4)
    send_join(member, run.version)
    newcomer.took(newcomer.peer.take("follower"))
    member.peer.take("leader")


def chosen_protocol(run: Run) -> None:
    """The protocol that all members support and most prefer."""
    name = group(run)
    member, newcomer = alone(run, name, protocols=protocols("p1", "p2", "p3")), new_member(run, name)
    send_join(newcomer, run.version, protocols=protocols("p4", "p3", "p2"))
    await_state(run, name, "PreparingRebalance")
    send_join(member, run.version, protocols=protocols("p1", "p2", "p3"))
    newcomer.took(newcomer.peer.take("follower"))
    member.peer.take("leader")


def follower_again_in_a_stable_group(run: Run) -> None:
    name = group(run)
    leader, follower = together(run, name, 2)
    follower.peer.ask("same protocols", join_body(name, follower.member_id))
    leader.peer.ask("still stable", beat_body(leader), api="heartbeat", version=4)
    send_join(follower, run.version, protocols=protocols(metadata=b"other"))
    follower.peer.waits("other metadata")
    leader.peer.ask("rebalancing", beat_body(leader), api="heartbeat", version=4)
    send_join(leader, run.version)
    follower.peer.take("follower")
    leader.peer.take("leader")


def leader_again_in_a_stable_group(run: Run) -> None:
    name = group(run)
    leader, follower = together(run, name, 2)
    send_join(leader, run.version)
    leader.peer.waits("leader waits")
    follower.peer.ask("follower beats", beat_body(follower), api="heartbeat", version=4)
    send_join(follower, run.version)
    follower.peer.take("follower")
    leader.peer.take("leader")


def again_before_syncing(run: Run) -> None:
    """A join whose response was lost gets another one with the same generation."""
    name = group(run)
    leader, follower = together(run, name, 2, synced=False)
    follower.peer.ask("follower", join_body(name, follower.member_id))
    leader.peer.ask("leader", join_body(name, leader.member_id))
    follower.peer.send(
        "join_group", run.version, join_body(name, follower.member_id, protocols=protocols(metadata=b"x"))
    )
    follower.peer.waits("follower with other metadata")
    send_join(leader, run.version)
    follower.peer.take("follower after all")
    leader.peer.take("leader after all")


def again_while_waiting(run: Run) -> None:
    """A member that joins again on another connection gets its response there."""
    name = group(run)
    member, newcomer = alone(run, name), new_member(run, name)
    send_join(newcomer)
    await_state(run, name, "PreparingRebalance")
    second = run.peer()
    second.send("join_group", run.version, join_body(name, newcomer.member_id))
    second.waits("second join waits")
    send_join(member, run.version)
    second.take("second join")
    member.peer.take("leader")


def full_group(run: Run) -> None:
    name = group(run)
    members = together(run, name, 4)
    run.ask("one too many", join_body(name))
    members[3].peer.ask("a follower again", join_body(name, members[3].member_id))


def group_that_became_empty(run: Run) -> None:
    name = group(run)
    member = alone(run, name)
    run.do("leave_group", 1, {"group_id": name, "member_id": member.member_id})
    run.ask("by the id it had", join_body(name, member.member_id))
    first = run.ask("once again, with another type", join_body(name, protocol_type="connect"))
    if run.version >= 4:
        run.ask("once again, with the id it got", join_body(name, first["member_id"], protocol_type="connect"))


def member_that_does_not_rejoin(run: Run) -> None:
    """It is removed after its rebalance timeout, which below version 1 is its session timeout."""
    run.timed()
    name = group(run)
    short = {"session_timeout": 500, "rebalance_timeout": 500}
    silent, newcomer = alone(run, name, **short), new_member(run, name)
    send_join(newcomer, run.version, **short)
    response = newcomer.took(newcomer.peer.take("newcomer"))
    assert response["leader"] == newcomer.member_id, response
    silent.peer.ask("silent one beats", beat_body(silent), api="heartbeat", version=4)


def expired_session(run: Run) -> None:
    run.timed()
    name = group(run)
    member = alone(run, name, session_timeout=200)
    await_state(run, name, "Empty")
    run.ask("joins by its old id", join_body(name, member.member_id))


def expired_pending_id(run: Run) -> None:
    run.timed()
    name = group(run)
    given = run.do(JOIN[0], run.version, join_body(name, session_timeout=200))
    alone(run, name)

    run.tokens.member_id(given["member_id"])
    time.sleep(0.6)
    run.ask("response", join_body(name, given["member_id"]))


def pending_member(run: Run) -> None:
    """Requests with an assigned member id that has not joined yet."""
    name = group(run)
    given = run.ask("id", join_body(name))
    member = new_member(run, name)
    member.member_id, member.generation = given["member_id"], 0
    run.ask("beats", beat_body(member), api="heartbeat", version=4)
    run.ask("syncs", sync_body(member), api="sync_group", version=5)
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)
    body = {"group_id": name, "members": [{"member_id": member.member_id}]}
    run.ask("leaves", body, api="leave_group", version=5)
    run.ask("joins all the same", join_body(name, member.member_id))


def pending_member_and_a_rebalance(run: Run) -> None:
    """A rebalance waits for members with pending ids, until those expire."""
    run.timed()
    name = group(run)
    run.do(*JOIN, join_body(name, session_timeout=600))
    member = new_member(run, name)
    send_join(member, run.version)
    member.took(member.peer.take("response"))
    sync(member)


def large_metadata(run: Run) -> None:
    name = group(run)
    first = run.do(*JOIN, join_body(name))
    body = join_body(name, first["member_id"], protocols=protocols(metadata=bytes(1_200_000)))
    member = new_member(run, name)
    run.tokens.member_id(first["member_id"])
    member.peer.send("join_group", run.version, body)
    response = member.took(member.peer.receive())
    run.record("response", {"error_code": response["error_code"], "members": len(response["members"])})
    member.peer.ask("sync", sync_body(member, {member.member_id: b"x"}), api="sync_group", version=5)


SCENARIOS = (
    *scenarios(
        "groups_join",
        "join_group",
        (
            first_member,
            invented_member_id,
            empty_group_id,
            session_timeouts,
            protocols_missing,
            protocols_that_do_not_fit,
            second_member,
            chosen_protocol,
            follower_again_in_a_stable_group,
            leader_again_in_a_stable_group,
            again_before_syncing,
            again_while_waiting,
            full_group,
            group_that_became_empty,
            member_that_does_not_rejoin,
            expired_session,
        ),
    ),
    *scenarios(
        "groups_join",
        "join_group",
        (
            invalid_rebalance_timeouts,
            expired_pending_id,
            pending_member,
            pending_member_and_a_rebalance,
        ),
        versions=range(4, 99),
    ),
    *scenarios("groups_join", "join_group", (large_metadata,), versions=range(9, 10)),
)
