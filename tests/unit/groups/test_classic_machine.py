"""Classic groups under random joins, syncs, heartbeats, leaves, commits, time, and a log that is not to be relied on.

The log refuses, commits late, and loses what was appended and not committed when its broker dies or leads no longer.
"""

from collections.abc import Hashable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.groups.rig import Rig, as_recorded, subscription

from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.members import Member
from penstock.groups.classic.rebalance import JoinDeadline, SessionEnd, SyncDeadline
from penstock.groups.commands import (
    ALL_COMMITTED,
    CommitEntry,
    CommitOffsets,
    DeleteGroups,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncReply,
)
from penstock.groups.events import ClassicGroupSaved, OffsetCommitted
from penstock.groups.shard import GroupShard
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, MemberIdRequired

GROUPS = ("g", "g", "g", "h")
PROTOCOLS = st.sampled_from(
    [
        (("range", subscription("t")),),
        (("range", subscription("t", "v")),),
        (("range", subscription("t")), ("sticky", subscription("t", "u"))),
        (("sticky", subscription("u")), ("range", subscription("u"))),
        (("roundrobin", b"opaque"),),
    ]
)
INSTANCES = st.sampled_from([None, None, None, "i1", "i2"])


def classic_groups(shard: GroupShard) -> dict[str, ClassicGroup]:
    return {name: group for name, group in shard._groups.items() if isinstance(group, ClassicGroup)}


def identity(member: Member) -> str:
    """The identity of a member: the instance id of a static one, else the member id."""
    return member.group_instance_id or member.member_id


class Groups(RuleBasedStateMachine):
    """Clients that send any request at any time, with any id and generation that they ever received."""

    @initialize(max_size=st.sampled_from([2, 4, 100, 100]))
    def start(self, max_size: int) -> None:
        self.rig = Rig({"group.max.size": str(max_size)})
        self.member_ids: list[tuple[str, str | None]] = [("stranger", None), ("", None)]
        self.commands: dict[int, GroupCommand] = {}
        self.assignment: dict[tuple[str, int], set[bytes]] = {}
        """The assignments that the leader of each generation sent; each names its member."""
        self.checked = 0

    def ask(self, command: GroupCommand) -> int:
        ticket = self.rig.send(command)
        self.commands[ticket] = command
        self.hear()
        return ticket

    def hear(self) -> None:
        """Check every response since the last check."""
        for ticket, reply in list(self.rig.replies.items())[self.checked :]:
            self.checked += 1
            command = self.commands.get(ticket)
            if isinstance(reply, JoinReply) and isinstance(command, JoinGroup) and reply.member_id:
                self.member_ids.append((reply.member_id, command.group_instance_id))
                if reply.error is None:
                    assert reply.members == () or reply.leader == reply.member_id, (
                        "only the leader gets the list of members"
                    )
            if isinstance(reply, SyncReply) and isinstance(command, SyncGroup):
                whose = command.group_instance_id or command.member_id
                assert reply.assignment in (b"", f"{command.generation}:{whose}".encode()), (
                    "the assignment of another member"
                )
                assert not reply.assignment or reply.assignment in self.assignment[command.group, command.generation]
                assert not reply.assignment or self.is_committed(command, reply), "a crash could undo this assignment"
            if reply is ALL_COMMITTED:
                assert isinstance(command, CommitOffsets)
                [entry] = command.entries
                assert any(
                    isinstance(event, OffsetCommitted)
                    and (event.group, event.partition, event.offset) == (command.group, entry.partition, entry.offset)
                    for event in self.rig.log[: self.rig.committed]
                ), "a crash could undo this commit"

    def is_committed(self, command: SyncGroup, reply: SyncReply) -> bool:
        return any(
            isinstance(event, ClassicGroupSaved)
            and (event.group, event.value.generation) == (command.group, command.generation)
            and any(member.assignment == reply.assignment for member in event.value.members)
            for event in self.rig.log[: self.rig.committed]
        )

    def any_member(self, group: str, data: st.DataObject) -> tuple[str, str | None]:
        """Any id that was given out, preferably a current one."""
        members = [(member.member_id, member.group_instance_id) for member in self.members(group)]
        return data.draw(st.sampled_from(members or self.member_ids) | st.sampled_from(self.member_ids))

    # Requests of clients

    @rule(
        group=st.sampled_from(GROUPS),
        data=st.data(),
        version=st.sampled_from([0, 3, 4, 8, 9]),
        protocols=PROTOCOLS,
        session_ms=st.sampled_from([6000, 10_000, 40_000]),
        rebalance_ms=st.sampled_from([5000, 20_000, 60_000]),
    )
    def join(
        self,
        group: str,
        data: st.DataObject,
        version: int,
        protocols: tuple[tuple[str, bytes], ...],
        session_ms: int,
        rebalance_ms: int,
    ) -> None:
        if data.draw(st.integers(0, 3)):
            member_id, instance = "", data.draw(INSTANCES)
        else:
            member_id, instance = self.any_member(group, data)
        ticket = self.ask(
            joining := JoinGroup(
                group=group,
                member_id=member_id,
                group_instance_id=instance,
                client_id="c",
                client_host="/h",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type="consumer",
                protocols=protocols,
                version=version,
            )
        )
        reply = self.rig.replies.get(ticket)
        if isinstance(reply, JoinReply) and reply.error is MemberIdRequired and data.draw(st.integers(0, 3)):
            self.ask(replace(joining, member_id=reply.member_id))

    @rule(group=st.sampled_from(GROUPS), data=st.data(), version=st.sampled_from([3, 9]), count=st.integers(2, 4))
    def newcomers_join(self, group: str, data: st.DataObject, version: int, count: int) -> None:
        for _ in range(count):
            self.join(
                group=group,
                data=data,
                version=version,
                protocols=(("range", subscription("t")),),
                session_ms=10_000,
                rebalance_ms=20_000,
            )

    @rule(group=st.sampled_from(GROUPS))
    def everybody_joins_again(self, group: str) -> None:
        for member in self.members(group):
            if member.join_ticket is None:
                self.ask(
                    JoinGroup(
                        group=group,
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        client_id="c",
                        client_host="/h",
                        session_timeout_ms=member.session_timeout_ms,
                        rebalance_timeout_ms=member.rebalance_timeout_ms,
                        protocol_type="consumer",
                        protocols=member.protocols,
                        version=9,
                    )
                )

    @rule(data=st.data(), group=st.sampled_from(GROUPS))
    def members_sync(self, data: st.DataObject, group: str) -> None:
        """Some clients sync, in any order; a leader's assignments name their members."""
        for member in data.draw(st.permutations(self.members(group)))[data.draw(st.integers(0, 1)) :]:
            found = classic_groups(self.rig.shard)[group]
            generation = found.rebalance.generation - (data.draw(st.integers(0, 9)) == 0)
            assignment = {
                other.member_id: f"{generation}:{identity(other)}".encode() for other in found.rebalance.members
            }
            leads = (
                member.member_id == found.rebalance.members.leader
                and found.rebalance.state.value == "CompletingRebalance"
            )
            if leads and generation == found.rebalance.generation:
                self.assignment.setdefault((group, generation), set()).update(assignment.values())
            self.ask(
                SyncGroup(
                    group=group,
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    generation=generation,
                    protocol_type=None,
                    protocol=None,
                    assignments=tuple(assignment.items()),
                )
            )

    @rule(data=st.data(), group=st.sampled_from(GROUPS), late=st.booleans())
    def heartbeat(self, data: st.DataObject, group: str, late: bool) -> None:
        member_id, instance = self.any_member(group, data)
        found = classic_groups(self.rig.shard).get(group)
        generation = found.rebalance.generation - late if found else 0
        self.ask(Heartbeat(group=group, member_id=member_id, group_instance_id=instance, generation=generation))

    @rule(data=st.data(), group=st.sampled_from(GROUPS), count=st.integers(1, 3))
    def leave(self, data: st.DataObject, group: str, count: int) -> None:
        leaving = [self.any_member(group, data) for _ in range(count)]
        self.ask(
            LeaveGroup(
                group=group,
                members=tuple(LeavingMember(member_id=member_id, group_instance_id=one) for member_id, one in leaving),
            )
        )

    @rule(data=st.data(), group=st.sampled_from(GROUPS), partition=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, data: st.DataObject, group: str, partition: int, offset: int) -> None:
        member_id, instance = self.any_member(group, data)
        found = classic_groups(self.rig.shard).get(group)
        generation = -1 if member_id == "" or found is None else found.rebalance.generation
        self.ask(
            CommitOffsets(
                group=group,
                member_id=member_id,
                group_instance_id=instance,
                generation=generation,
                entries=(CommitEntry("t", partition, offset),),
                version=9,
            )
        )

    # Time and faults

    @rule(group=st.sampled_from(GROUPS), data=st.data(), refuses=st.sampled_from([False, False, True]))
    def a_generation_begins_and_settles(self, group: str, data: st.DataObject, refuses: bool) -> None:
        """The append of the assignment may also be refused."""
        self.everybody_joins_again(group)
        self.time_passes(3000)
        before, self.rig.refusing = self.rig.refusing, CoordinatorNotAvailable() if refuses else self.rig.refusing
        self.members_sync(data, group)
        self.what_the_groups_came_to_is_written()
        self.rig.refusing = before

    @rule(duration_ms=st.sampled_from([1, 1000, 3000, 3000, 3000, 5000, 6000, 10_000, 61_000, 300_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.rig.pass_ms(duration_ms)
        self.hear()

    @rule(group=st.sampled_from(GROUPS))
    @precondition(lambda self: self.rig.tickets % 8 == 7)
    def delete(self, group: str) -> None:
        self.ask(DeleteGroups(groups=(group,)))

    @rule(refuses=st.sampled_from([True, False, False]))
    @precondition(lambda self: self.rig.tickets > 8)
    def the_log_refuses(self, refuses: bool) -> None:
        self.rig.refusing = CoordinatorNotAvailable() if refuses else None

    @rule(holds=st.sampled_from([True, True, False]))
    @precondition(lambda self: self.rig.tickets > 4)
    def the_log_commits_late(self, holds: bool) -> None:
        self.rig.holding = holds
        if not holds:
            self.rig.commit()
        self.hear()

    @rule()
    @precondition(lambda self: self.rig.held)
    def the_log_commits(self) -> None:
        self.rig.commit()
        self.hear()

    @rule()
    @precondition(lambda self: self.rig.tickets % 8 == 5)
    def the_broker_restarts(self) -> None:
        self.rig.restart()
        self.hear()

    @rule(data=st.data(), moves=st.booleans())
    @precondition(lambda self: self.rig.tickets % 8 == 3)
    def what_was_not_committed_is_lost(self, data: st.DataObject, moves: bool) -> None:
        """Uncommitted events survive in part: the broker died, or another broker leads."""
        survives = data.draw(st.integers(0, len(self.rig.log) - self.rig.committed))
        if moves:
            self.rig.lose_leadership(survives)
        else:
            self.rig.crash(survives)
        self.hear()

    # Invariants

    def members(self, group: str) -> list[Member]:
        found = classic_groups(self.rig.shard).get(group)
        return [*found.rebalance.members] if found else []

    @invariant()
    def every_request_has_a_response_or_waits_once(self) -> None:
        waiting = [
            ticket
            for group in classic_groups(self.rig.shard).values()
            for member in group.rebalance.members
            for ticket in (member.join_ticket, member.sync_ticket)
            if ticket is not None
        ]
        held = [response.ticket for step in self.rig.held for response in step.responses]
        places = [*waiting, *held, *self.rig.replies, *self.rig.dropped]
        assert sorted(places) == list(range(1, self.rig.tickets + 1))

    @invariant()
    def every_timer_has_something_to_ring_for(self) -> None:
        due: set[Hashable] = set()
        for name, group in classic_groups(self.rig.shard).items():
            due |= {SessionEnd(name, member_id) for member_id in group.rebalance.pending}
            due |= {SessionEnd(name, member.member_id) for member in group.rebalance.members}
            if group.rebalance.state.value == "PreparingRebalance":
                due.add(JoinDeadline(name))
                assert JoinDeadline(name) in self.rig.timers, "a rebalance has an end"
            if group.rebalance.unsynced:
                due.add(SyncDeadline(name))
                assert SyncDeadline(name) in self.rig.timers, "members have to sync in time"
            for member in group.rebalance.members:
                watched = SessionEnd(name, member.member_id) in self.rig.timers
                assert watched or (member.awaits and not member.is_new), "a session has a timer"
                assert not watched or self.rig.timers[SessionEnd(name, member.member_id)] == member.session.timer_ms
        assert self.rig.membership_timers <= due

    @invariant()
    def what_the_groups_came_to_is_written(self) -> None:
        replayed = self.rig.new_shard()
        for event in self.rig.log:
            replayed.apply(as_recorded(event))
        live, after = classic_groups(self.rig.shard), classic_groups(replayed)
        for name, group in live.items():
            if group.rebalance.state.value == "Stable":
                assert after[name].rebalance.saved() == group.rebalance.saved()
                assert after[name].rebalance.subscribed == group.rebalance.subscribed
            if group.rebalance.state.value == "Empty" and name in after and self.rig.refusing is None:
                assert after[name].rebalance.generation <= group.rebalance.generation
        assert list(self.rig.shard.committed()) == list(replayed.committed())

    @invariant()
    def a_stable_group_has_work_of_its_own_generation_only(self) -> None:
        for name, group in classic_groups(self.rig.shard).items():
            if group.rebalance.state.value == "Stable":
                for member in group.rebalance.members:
                    if member.assignment:
                        generation, _, _ = member.assignment.partition(b":")
                        assert int(generation) == group.rebalance.generation, (
                            f"{name} works on what {generation!r} gave it"
                        )

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        """A rebalancing group makes progress without requests: it has a timer."""
        for name, group in classic_groups(self.rig.shard).items():
            if group.rebalance.state.value == "CompletingRebalance":
                assert SyncDeadline(name) in self.rig.timers or not group.rebalance.unsynced

    def teardown(self) -> None:
        """Without requests, every group becomes empty, every request gets a response, and no timer is left."""
        if not hasattr(self, "rig"):
            return
        self.rig.refusing, self.rig.holding = None, False
        self.rig.commit()
        self.rig.pass_ms(1_200_000)
        self.hear()
        for group in classic_groups(self.rig.shard).values():
            assert group.empty
        assert self.rig.membership_timers == set()
        assert set(self.rig.replies) | self.rig.dropped == set(range(1, self.rig.tickets + 1))
        assert not any(isinstance(reply, BrokerError) and reply.code == -1 for reply in self.rig.replies.values())


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
