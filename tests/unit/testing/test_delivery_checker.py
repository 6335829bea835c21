"""The checker of share groups: a valid history has no anomaly, and each kind of anomaly is found."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.testing.histories.deliveries import (
    Acknowledged,
    Acknowledgement,
    Deliveries,
    Delivery,
    End,
    Fault,
    Gone,
    Rules,
    Start,
    check_deliveries,
    faults_of,
)

KEY = "jobs/0"
RULES = Rules(deliveries_max=3, lock_s=10.0, held_max=3)
BY_KEY = dataclasses.replace(RULES, by_key=True)
BACKOFF = dataclasses.replace(RULES, backoff_s=lambda count: 2.0 * count)
ACCEPT, RELEASE, REJECT = Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.REJECT


def delivery(member: str, offset: int, at: float, count: int = 1, **fields: Any) -> Delivery:
    """A delivery whose request was sent a tenth of a second before."""
    given: dict[str, Any] = {"sent_at": at - 0.1, "epoch": 1, "value": offset + 100}
    return Delivery(member=member, key=KEY, offset=offset, count=count, at=at, **given | fields)


def ack(member: str, offset: int, kind: Acknowledgement, sent_at: float, **fields: Any) -> Acknowledged:
    """A confirmed acknowledgement, or with `at=None` one without a response."""
    given: dict[str, Any] = {"at": sent_at + 0.1, "epoch": 1}
    return Acknowledged(member=member, key=KEY, offset=offset, kind=kind, sent_at=sent_at, **given | fields)


def found(
    delivered: list[Delivery],
    acknowledged: list[Acknowledged],
    *,
    rules: Rules = RULES,
    records: int = 1,
    dead: dict[int, int] | None = None,
    **history: Any,
) -> set[Fault]:
    end = End(
        log={(KEY, offset): offset + 100 for offset in range(records)},
        dead=None if dead is None else {(KEY, offset): count for offset, count in dead.items()},
    )
    return faults_of(
        check_deliveries(Deliveries(delivered=delivered, acknowledged=acknowledged, **history), rules, end)
    )


def test_a_valid_history_has_no_anomaly() -> None:
    """Accept, release and redelivery, expiry and a late accept, a leader that forgets a count, a dead letter."""
    delivered = [
        delivery("a", 0, 1.0),
        delivery("a", 1, 1.0),
        delivery("b", 1, 2.0, 2),
        delivery("a", 2, 1.0),
        delivery("b", 2, 12.0, 2),
        delivery("b", 3, 20.0),
        delivery("a", 3, 21.0, 1, epoch=2),
        delivery("a", 4, 30.0),
        delivery("b", 4, 31.0, 2),
        delivery("a", 4, 32.0, 3),
    ]
    acknowledged = [
        ack("a", 0, ACCEPT, 1.5),
        ack("a", 1, RELEASE, 1.5),
        ack("b", 1, ACCEPT, 2.5),
        ack("b", 2, ACCEPT, 12.5),
        ack("a", 2, ACCEPT, 13.0),
        ack("b", 3, ACCEPT, 20.5, at=None),
        ack("a", 3, ACCEPT, 21.5, epoch=2),
        ack("a", 4, RELEASE, 30.5),
        ack("b", 4, RELEASE, 31.5),
        ack("a", 4, RELEASE, 32.5),
    ]
    starts = [Start(key=KEY, offset=0, sent_at=0.0, at=0.1), Start(key=KEY, offset=3, sent_at=14.0, at=14.1)]

    assert found(delivered, acknowledged, records=5, starts=starts) == set()
    assert found(delivered, acknowledged, records=5, starts=starts, dead={4: 1}) == set()


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_a_finished_record_is_not_delivered(kind: Acknowledgement) -> None:
    finished = [ack("a", 0, kind, 1.5)]
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 2.0, 2)], finished) == {Fault.FINISHED_DELIVERED}
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 2.0, 1, epoch=2)], finished) == {Fault.FINISHED_DELIVERED}
    unconfirmed = [ack("a", 0, kind, 1.5, at=None)]
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 2.0, 2)], unconfirmed) == set()
    altered = {KEY: [1.7]}
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 2.0, 1)], finished, altered=altered) == set()


def test_a_record_has_one_holder() -> None:
    both = [delivery("a", 0, 1.0), delivery("b", 0, 5.0, 2)]
    accepted = [ack("b", 0, ACCEPT, 20.0, at=None)]
    assert found(both, accepted) == {Fault.TWO_HOLDERS}
    assert found(both, accepted, gone=[Gone(member="a", key=KEY, at=1.5)]) == set()
    assert found([both[0], delivery("b", 0, 11.0, 2)], accepted) == set(), "the lock is over"
    assert found([both[0], delivery("b", 0, 5.0, 1, epoch=2)], accepted) == set(), "another leader"
    assert found(both, [*accepted, ack("a", 0, RELEASE, 3.0, at=None)]) == set(), "it may have been released"


def test_only_the_holder_acknowledges() -> None:
    assert found([delivery("a", 0, 1.0)], [ack("b", 0, ACCEPT, 2.0)]) == {Fault.FOREIGN_ACKNOWLEDGEMENT}
    assert found([delivery("a", 0, 1.0)], [ack("b", 0, ACCEPT, 2.0, at=None)]) == set()


def test_counts_rise_with_each_delivery_of_a_leader_up_to_the_limit() -> None:
    accepted = [ack("b", 0, ACCEPT, 30.0, at=None)]
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 12.0, 1)], accepted) == {Fault.COUNT_REPEATED}
    assert found([delivery("a", 0, 1.0, 2), delivery("b", 0, 12.0, 1)], accepted) == {Fault.COUNT_REPEATED}
    assert found([delivery("a", 0, 1.0, 4)], accepted) == {Fault.COUNT_ABOVE_LIMIT}


def test_no_record_is_lost() -> None:
    assert found([], []) == {Fault.LOST}
    assert found([delivery("a", 0, 1.0)], [ack("a", 0, RELEASE, 2.0)]) == {Fault.LOST}
    assert found([delivery("a", 0, 1.0)], [ack("a", 0, ACCEPT, 2.0, at=None)]) == set(), "it may be accepted"
    assert found([delivery("a", 0, 1.0, 3)], []) == set(), "its deliveries are used up"
    assert found([delivery("a", 0, 1.0)], [], unheard={KEY: 2}) == set(), "they may be used up"
    assert found([delivery("a", 0, 1.0, 3)], [], dead={}) == {Fault.LOST}, "with a topic of dead letters it is not"


def test_dead_letters_were_rejected_or_at_their_limit() -> None:
    first = [delivery("a", 0, 1.0)]
    assert found(first, [ack("a", 0, REJECT, 1.5)], dead={0: 1}) == set()
    assert found(first, [ack("a", 0, REJECT, 1.5)], dead={}) == {Fault.LOST}
    assert found(first, [ack("a", 0, RELEASE, 1.5)], dead={0: 1}) == {Fault.DEAD_TOO_EARLY}
    used_up = [delivery("a", 0, 1.0, 3)]
    assert found(used_up, [ack("a", 0, ACCEPT, 1.5)], dead={0: 1}) == {Fault.DEAD_AND_ACCEPTED}


def test_only_what_is_in_the_log_is_delivered() -> None:
    accepted = [ack("a", 0, ACCEPT, 2.0)]
    assert found([delivery("a", 0, 1.0, value=7)], accepted) == {Fault.NOT_IN_LOG}
    assert found([delivery("a", 0, 1.0), delivery("a", 5, 1.0)], accepted) == {Fault.NOT_IN_LOG}


def test_held_records_are_bounded() -> None:
    held = [delivery("a", offset, 1.0) for offset in range(4)]
    acks = [ack("a", offset, ACCEPT, 2.0) for offset in range(4)]
    assert found(held, acks, records=4) == {Fault.TOO_MANY_HELD}
    assert found(held[:3], acks[:3], records=3) == set()


def test_the_start_moves_forward_over_finished_records() -> None:
    moved = [Start(key=KEY, offset=1, sent_at=2.0, at=2.1)]
    back = [*moved, Start(key=KEY, offset=0, sent_at=3.0, at=3.1)]
    first = [delivery("a", 0, 1.0)]
    assert found(first, [ack("a", 0, ACCEPT, 1.5)], starts=moved) == set()
    assert found(first, [ack("a", 0, ACCEPT, 1.5)], starts=back) == {Fault.START_BACK}
    assert found(first, [ack("a", 0, ACCEPT, 9.0)], starts=moved) == {Fault.START_TOO_FAR}


def test_records_of_a_key_are_delivered_in_order() -> None:
    def keyed(*deliveries: Delivery) -> list[Delivery]:
        return [dataclasses.replace(each, record_key=b"k") for each in deliveries]

    done = [ack("a", 0, ACCEPT, 5.0), ack("b", 1, ACCEPT, 8.0)]
    together = keyed(delivery("a", 0, 1.0), delivery("a", 1, 1.0), delivery("b", 1, 6.0, 2))
    assert found(together, [*done, ack("a", 1, RELEASE, 5.0)], rules=BY_KEY, records=2) == set()
    apart = keyed(delivery("a", 0, 1.0), delivery("b", 1, 2.0))
    assert found(apart, done, rules=BY_KEY, records=2) == {Fault.KEY_ORDER}
    unheard = {("b", KEY): 1.5}
    assert found(apart, done, rules=BY_KEY, records=2, unheard_since=unheard) == set(), "b may hold the first"
    later = keyed(delivery("a", 0, 1.0), delivery("b", 1, 6.0))
    assert found(later, done, rules=BY_KEY, records=2) == set()


def test_a_released_record_waits_for_its_backoff() -> None:
    acks = [ack("a", 0, RELEASE, 2.0), ack("b", 0, ACCEPT, 9.0)]
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 3.9, 2)], acks, rules=BACKOFF) == {Fault.TOO_SOON}
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 4.0, 2)], acks, rules=BACKOFF) == set()
    assert found([delivery("a", 0, 1.0), delivery("b", 0, 3.9, 2)], acks) == set()
