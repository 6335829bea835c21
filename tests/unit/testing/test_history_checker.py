"""The checker finds each anomaly in a history that has it, and none in a valid history."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.testing.histories import (
    KAFKA_ALLOWS,
    CommittedOffset,
    Event,
    HistoryError,
    Kind,
    LastStable,
    Moved,
    Operation,
    Outcome,
    PartitionEnd,
    Poll,
    Replica,
    Send,
    check,
    forbidden,
    parse,
    to_line,
)
from penstock.testing.histories.cycles import cycles

GOOD = """
{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0], ["send", "t/1", 1, 0]]}
{"process": 2, "outcome": "fail", "ops": [["send", "t/0", 2, 2], ["poll", {"t/0": [[0, 1]]}]]}
{"process": 3, "outcome": "unknown", "ops": [["send", "t/0", 3, null]]}
{"process": 4, "outcome": "unknown", "ops": [["send", "t/0", 4, 5], ["send", "t/1", 4, null]]}
{"process": 2, "moved": ["t/0"]}
{"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [5, 4]]}]]}
{"process": 9, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [5, 4]], "t/1": [[0, 1], [3, 4]]}]]}
{"group": "g", "key": "t/0", "committed": 1}
{"group": "g", "key": "t/0", "committed": 6}
{"key": "t/0", "last_stable": 2}
{"key": "t/0", "last_stable": 7}
{"key": "t/0", "end": 7, "last_stable": 7}
{"replica": 1, "key": "t/0", "high_watermark": 7, "values": [[0, 1], [5, 4]]}
{"replica": 2, "key": "t/0", "high_watermark": 4, "values": [[0, 1]]}
"""

BAD: list[tuple[str, Kind, str]] = [
    (
        "two readers see two values at one offset",
        Kind.INCONSISTENT_OFFSETS,
        """{"process": 1, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1]]}]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 2]]}]]}""",
    ),
    (
        "an acknowledgement and a reader name two values at one offset",
        Kind.INCONSISTENT_OFFSETS,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 2], [1, 1]]}]]}""",
    ),
    (
        "a value of an aborted transaction is read",
        Kind.ABORTED_READ,
        """{"process": 1, "outcome": "fail", "ops": [["send", "t/0", 1, 0]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1]]}]]}""",
    ),
    (
        "a transaction reads what itself has sent",
        Kind.PRECOMMITTED_READ,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0], ["poll", {"t/0": [[0, 1]]}]]}""",
    ),
    (
        "a transaction that will abort reads what itself has sent",
        Kind.PRECOMMITTED_READ,
        """{"process": 1, "outcome": "fail", "ops": [["send", "t/0", 1, 0], ["poll", {"t/0": [[0, 1]]}]]}""",
    ),
    (
        "an acknowledged value is passed over by all readers",
        Kind.LOST_WRITE,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0]]}
           {"process": 1, "outcome": "ok", "ops": [["send", "t/0", 2, 1]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[1, 2]]}]]}""",
    ),
    (
        "a transaction of unknown outcome is torn: one half is seen, the other is lost",
        Kind.LOST_WRITE,
        """{"process": 1, "outcome": "unknown", "ops": [["send", "t/0", 1, 0], ["send", "t/1", 1, 0]]}
           {"process": 3, "outcome": "ok", "ops": [["send", "t/1", 3, 1]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1]], "t/1": [[1, 3]]}]]}""",
    ),
    (
        "a value stands twice",
        Kind.DUPLICATE,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [1, 1]]}]]}""",
    ),
    (
        "a value stands elsewhere than it was acknowledged",
        Kind.DUPLICATE,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[1, 1]]}]]}""",
    ),
    (
        "a poll leaves out a value",
        Kind.POLL_SKIP,
        """{"process": 1, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [1, 2], [2, 3]]}]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [2, 3]]}]]}""",
    ),
    (
        "the next poll begins too late",
        Kind.POLL_SKIP,
        """{"process": 1, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [1, 2], [2, 3]]}]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1]]}]]}
           {"process": 2, "moved": ["t/1"]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[2, 3]]}]]}""",
    ),
    (
        "a poll goes backwards",
        Kind.NONMONOTONIC_POLL,
        """{"process": 1, "outcome": "ok", "ops": [["poll", {"t/0": [[1, 2], [0, 1]]}]]}""",
    ),
    (
        "the next poll begins too early",
        Kind.NONMONOTONIC_POLL,
        """{"process": 1, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [1, 2]]}]]}
           {"process": 1, "outcome": "fail", "ops": [["poll", {"t/0": [[1, 2]]}]]}""",
    ),
    (
        "another operation's value is inside a transaction",
        Kind.SEND_SKIP,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0], ["send", "t/0", 3, 2]]}
           {"process": 2, "outcome": "ok", "ops": [["send", "t/0", 2, 1]]}
           {"process": 3, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [1, 2], [2, 3]]}]]}""",
    ),
    (
        "two sends of a process stand in the wrong order",
        Kind.NONMONOTONIC_SEND,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 1]]}
           {"process": 1, "outcome": "ok", "ops": [["send", "t/0", 2, 0]]}
           {"process": 3, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 2], [1, 1]]}]]}""",
    ),
    (
        "two sends of a transaction stand in the wrong order",
        Kind.NONMONOTONIC_SEND,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 1], ["send", "t/0", 2, 0]]}
           {"process": 3, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 2], [1, 1]]}]]}""",
    ),
    (
        "an acknowledged value at the end is never read",
        Kind.UNSEEN,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 7]]}""",
    ),
    (
        "a transaction of unknown outcome is torn: one half is seen, the other never was",
        Kind.UNSEEN,
        """{"process": 1, "outcome": "unknown", "ops": [["send", "t/0", 1, null], ["send", "t/1", 1, null]]}
           {"process": 2, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1]]}]]}""",
    ),
    (
        "two transactions lie in two orders in two partitions",
        Kind.G0,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0], ["send", "t/1", 1, 1]]}
           {"process": 2, "outcome": "ok", "ops": [["send", "t/0", 2, 1], ["send", "t/1", 2, 0]]}
           {"process": 3, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [1, 2]], "t/1": [[0, 2], [1, 1]]}]]}""",
    ),
    (
        "two transactions have seen each other",
        Kind.G1C,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0], ["poll", {"t/1": [[0, 2]]}]]}
           {"process": 2, "outcome": "ok", "ops": [["send", "t/1", 2, 0], ["poll", {"t/0": [[0, 1]]}]]}""",
    ),
    (
        "a transaction has seen what was written after it",
        Kind.G1C_WITH_WRITES,
        """{"process": 1, "outcome": "ok", "ops": [["send", "t/0", 1, 0], ["poll", {"t/1": [[0, 2]]}]]}
           {"process": 2, "outcome": "ok", "ops": [["send", "t/1", 2, 0], ["send", "t/0", 2, 1]]}
           {"process": 3, "outcome": "ok", "ops": [["poll", {"t/0": [[0, 1], [1, 2]]}]]}""",
    ),
    (
        "a committed offset goes back",
        Kind.COMMITTED_OFFSET_BACK,
        """{"group": "g", "key": "t/0", "committed": 5}
           {"group": "g", "key": "t/0", "committed": 4}""",
    ),
    (
        "a last stable offset goes back",
        Kind.LAST_STABLE_BACK,
        """{"key": "t/0", "last_stable": 5}
           {"key": "t/0", "last_stable": 4}""",
    ),
    (
        "a last stable offset is stuck",
        Kind.LAST_STABLE_STUCK,
        """{"key": "t/0", "end": 9, "last_stable": 4}""",
    ),
    (
        "two replicas hold different values",
        Kind.REPLICAS_DIFFER,
        """{"replica": 1, "key": "t/0", "high_watermark": 2, "values": [[0, 1], [1, 2], [2, 3]]}
           {"replica": 2, "key": "t/0", "high_watermark": 2, "values": [[0, 1], [1, 5], [2, 4]]}""",
    ),
    (
        "a replica lacks a value",
        Kind.REPLICAS_DIFFER,
        """{"replica": 1, "key": "t/0", "high_watermark": 2, "values": [[0, 1], [1, 2]]}
           {"replica": 2, "key": "t/0", "high_watermark": 3, "values": [[0, 1]]}""",
    ),
]


def events(text: str) -> list[Event]:
    return list(parse(text.splitlines()))


def test_a_valid_history_has_no_anomaly() -> None:
    assert check(events(GOOD)) == ()


@pytest.mark.parametrize(("kind", "text"), [pytest.param(kind, text, id=name) for name, kind, text in BAD])
def test_an_invalid_history_has_its_anomaly_and_no_other(kind: Kind, text: str) -> None:
    assert {anomaly.kind for anomaly in check(events(text))} - {kind} <= IMPLIED.get(kind, frozenset())
    assert kind in {anomaly.kind for anomaly in check(events(text))}


IMPLIED = {
    # A value at another offset than acknowledged leaves an offset that another value takes.
    Kind.INCONSISTENT_OFFSETS: frozenset({Kind.DUPLICATE}),
    # Somebody between two values of a transaction was overwritten by it and has overwritten it.
    Kind.SEND_SKIP: frozenset({Kind.G0}),
    # What is never read was also passed over by the reader before and after it.
    Kind.LOST_WRITE: frozenset({Kind.POLL_SKIP}),
}


def test_every_kind_of_anomaly_is_shown() -> None:
    assert {kind for _, kind, _ in BAD} == set(Kind)


def test_kafka_may_interleave_transactions_and_nothing_else() -> None:
    for _, kind, text in BAD:
        left = {anomaly.kind for anomaly in forbidden(check(events(text)))}
        assert (kind in left) == (kind not in KAFKA_ALLOWS)


def test_a_value_that_was_sent_twice_is_refused() -> None:
    send = Operation(process=1, outcome=Outcome.OK, ops=(Send(key="k", value=1),))

    with pytest.raises(HistoryError, match="sent twice"):
        check([send, send])


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"process": 1, "outcome": "maybe", "ops": []}',
        '{"process": 1, "outcome": "ok", "ops": [["send", "k"]]}',
        '{"process": 1, "outcome": "ok", "ops": [["poll", {"k": [[1]]}]]}',
    ],
)
def test_a_line_that_is_no_event_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(HistoryError, match="line 2"):
        list(parse(['{"process": 1, "moved": []}', line]))


numbers = st.integers(min_value=0, max_value=1 << 62)
keys = st.sampled_from(["t/0", "t/1"])
pairs = st.lists(st.tuples(numbers, numbers)).map(tuple)
every_event = st.one_of(
    st.builds(
        Operation,
        process=numbers,
        outcome=st.sampled_from(Outcome),
        ops=st.lists(
            st.builds(Send, key=keys, value=numbers, offset=st.none() | numbers)
            | st.builds(Poll, seen=st.dictionaries(keys, pairs))
        ).map(tuple),
    ),
    st.builds(Moved, process=numbers, keys=st.lists(keys).map(tuple)),
    st.builds(CommittedOffset, group=st.text(), key=keys, offset=numbers),
    st.builds(LastStable, key=keys, offset=numbers),
    st.builds(PartitionEnd, key=keys, end=numbers, last_stable=numbers),
    st.builds(Replica, broker=numbers, key=keys, high_watermark=numbers, values=pairs),
)


@given(st.lists(every_event, max_size=5))
def test_events_survive_their_lines(history: list[Event]) -> None:
    assert list(parse([to_line(event) for event in history])) == history


@st.composite
def good_histories(draw: st.DrawFn) -> list[Event]:
    """Transactions one after the other on a perfect log, some aborted, and a reader of all that was committed."""
    history: list[Event] = []
    ends = {"t/0": 0, "t/1": 0}
    committed: dict[str, list[tuple[int, int]]] = {"t/0": [], "t/1": []}
    for value, (outcome, touched) in enumerate(
        draw(st.lists(st.tuples(st.sampled_from(Outcome), st.sets(keys, min_size=1)), max_size=12))
    ):
        sends: list[Send] = []
        lands = outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and draw(st.booleans()))
        for key in sorted(touched):
            is_acknowledged = outcome is Outcome.OK or draw(st.booleans())
            sends.append(Send(key=key, value=value, offset=ends[key] if is_acknowledged else None))
            if lands:
                committed[key].append((ends[key], value))
            ends[key] += 2
        history.append(Operation(process=value % 3, outcome=outcome, ops=tuple(sends)))
    read = Poll(seen={key: tuple(held) for key, held in committed.items()})
    return [*history, Operation(process=99, outcome=Outcome.OK, ops=(read,))]


@given(good_histories())
def test_a_perfect_log_has_no_anomaly(history: list[Event]) -> None:
    assert check(history) == ()


@given(good_histories(), st.data())
def test_a_value_taken_from_a_perfect_log_is_missed(history: list[Event], data: st.DataObject) -> None:
    final = history[-1]
    assert isinstance(final, Operation)
    certain = {
        (send.key, send.value)
        for event in history
        if isinstance(event, Operation) and event.outcome is Outcome.OK
        for send in event.sends()
    }
    if not certain:
        return
    key, value = data.draw(st.sampled_from(sorted(certain)))
    (poll,) = final.ops
    assert isinstance(poll, Poll)
    without = Poll(seen={**poll.seen, key: tuple(pair for pair in poll.seen[key] if pair[1] != value)})

    found = check([*history[:-1], Operation(process=99, outcome=Outcome.OK, ops=(without,))])

    assert {anomaly.kind for anomaly in found} & {Kind.LOST_WRITE, Kind.UNSEEN}


@given(st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 7), max_size=3)))
def test_cycles_are_found_if_there_are_any(graph: dict[int, set[int]]) -> None:
    graph = {node: targets - {node} for node, targets in graph.items()}

    found = list(cycles(graph))

    for circle in found:
        assert all(after in graph[before] for before, after in zip(circle, [*circle[1:], circle[0]], strict=True))
    assert bool(found) == any(node in reach(graph, node) for node in graph)


def reach(graph: dict[int, set[int]], start: int) -> set[int]:
    reached: set[int] = set()
    waiting = [start]
    while waiting:
        for following in graph.get(waiting.pop(), set()) - reached:
            reached.add(following)
            waiting.append(following)
    return reached


def test_a_long_history_does_not_exhaust_the_stack() -> None:
    assert list(cycles({node: {node + 1} for node in range(50_000)})) == []


def run(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.testing.histories", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_the_command_prints_anomalies_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(BAD[0][2], encoding="utf-8")

    done = run(path)

    assert done.returncode == 1
    assert "inconsistent offsets: t/0: offset 0 holds 1, 2" in done.stdout


def test_the_command_accepts_a_valid_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(GOOD, encoding="utf-8")

    done = run(path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "no anomalies in 14 events" in done.stdout


def test_the_command_refuses_a_file_that_is_not_a_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("hello\n", encoding="utf-8")

    done = run(path)

    assert done.returncode == 2
    assert "line 1" in done.stderr
