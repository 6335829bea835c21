"""Members and rebalance tables of classic groups: copies are independent, and a change costs what it changes."""

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from tests.unit.groups.rig import DELAY_MS, Client, Rig

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Ticket
from penstock.groups.classic.members import Member, Members
from penstock.groups.classic.rebalance import Rebalance
from penstock.groups.draft import Draft


def member(name: str, *, instance: str | None = None, ticket: int | None = None, protocol: str = "range") -> Member:
    return Member(
        member_id=name,
        group_instance_id=instance,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1_000,
        session_timeout_ms=1_000,
        protocols=((protocol, b""),),
        join_ticket=None if ticket is None else Ticket(ticket),
    )


def contents(members: Members) -> object:
    """All that a table of members says."""
    names = ("range", "sticky")
    return (
        list(members),
        members.leader,
        members.waiting_to_join,
        [members.static_id(instance) for instance in ("i", "j")],
        [members.supports(((name, b""),)) for name in names],
    )


CHANGES: list[Callable[[Members], object]] = [
    lambda members: members.add(member("d", instance="j", ticket=4)),
    lambda members: members.remove("a"),
    lambda members: members.remove("b"),
    lambda members: members.put(member("c", ticket=9)),
    lambda members: members.put(member("a", protocol="sticky")),
    lambda members: members.replace("b", member("e", instance="i", ticket=5)),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_and_its_original_change_without_each_other(change: Callable[[Members], object]) -> None:
    for changes_the_copy in (True, False):
        original = Members([member("a", ticket=1), member("b", instance="i", ticket=2), member("c")])
        before = contents(original)
        copied = original.copy()
        changed, kept = (copied, original) if changes_the_copy else (original, copied)

        change(changed)

        assert contents(kept) == before
        assert contents(changed) != before
        assert changed.waiting_to_join == sum(each.join_ticket is not None for each in changed)
        change(kept)
        assert contents(kept) == contents(changed)


def test_reservations_and_missing_syncs_of_a_copy_are_its_own() -> None:
    table = Rebalance("g", BrokerConfig(), state_ms=0)
    draft = Draft(now_ms=0)
    table.reserve("p", 1)
    for name in ("a", "b"):
        table.add(member(name, ticket=1), "consumer", 1_000, draft)
    table.complete_join(draft)
    assert (table.unsynced, set(table.pending)) == ({"a", "b"}, {"p"})

    copied = table.copy()
    copied.synced(copied.members["a"], draft)
    copied.remove("p", draft)
    copied.reserve("q", 2)
    assert (table.unsynced, set(table.pending)) == ({"a", "b"}, {"p"})
    assert (copied.unsynced, set(copied.pending)) == ({"b"}, {"q"})

    table.remove("b", draft)
    table.synced(table.members["a"], draft)
    assert (table.unsynced, copied.unsynced) == (set(), {"b"})


def calls_of(work: Callable[[], object]) -> int:
    """How many functions the work calls, and elements its generators yield; not those that garbage collection calls."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_a_join_and_a_leave_cost_the_same_in_a_small_and_in_a_large_group() -> None:
    costs: list[list[int]] = []
    for size in (10, 500):
        rig = Rig()
        clients = [Client(rig, session_ms=1_000_000).join() for _ in range(size)]
        late, second = Client(rig, session_ms=1_000_000), Client(rig, session_ms=1_000_000)
        joined = calls_of(late.join)
        rig.pass_ms(3 * DELAY_MS)
        assert rig.state() == "CompletingRebalance"
        # The first member that comes or goes starts a rebalance, which concerns every member.
        second.join()
        rejoined = calls_of(clients[3].join)
        left = calls_of(clients[5].leave)
        assert rig.state() == "PreparingRebalance"
        costs.append([joined, rejoined, left])

    assert costs[0] == costs[1]
