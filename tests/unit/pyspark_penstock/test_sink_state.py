"""The state of a sink, and which run may change it: every decision is a function of the state."""

import base64
import json
import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.generated_errors import InvalidTransactionTimeout
from pyspark_penstock.batch_identity import BatchOffsets
from pyspark_penstock.link import BrokerLink, LinkSettings
from pyspark_penstock.sink_state import (
    BatchAction,
    Claim,
    Content,
    Decided,
    LedgerMissing,
    OtherBatch,
    Outcome,
    OutcomeUnknown,
    PartlyIn,
    Resolution,
    SinkAhead,
    SinkError,
    SinkNames,
    SinkState,
    Superseded,
    Written,
    claim,
    decide,
    void,
)
from pyspark_penstock.sink_store import (
    MARKS_FROM,
    PIECE_PARTITIONS,
    TASKS_MAX,
    SinkStore,
    TooManyTasks,
    decode_state,
    encode_state,
)
from pyspark_penstock.txn_calls import Producer

WRITTEN = (
    Written(task=0, slot=0, producer_id=10, epoch=3, content=Content(5, 99)),
    Written(task=1, slot=1, producer_id=11, epoch=0, content=Content(7, 98)),
)
BATCH = Decided(batch=4, generation=2, written=WRITTEN, content=Content(12, 197), output="topic t", run="run-a")
DECIDED = SinkState(generation=2, run="run-a", query="q", decided=BATCH)
REPLAY = replace(BATCH, written=(), run="run-b")


def taken_over(
    state: SinkState | None,
    *,
    batch: int,
    begin: bool = False,
    query: str = "q",
    outcome: Outcome | None = None,
    resolution: Resolution | None = None,
) -> SinkState:
    by = Claim(batch=batch, run="run-b", query=query, sink="s", may_begin=begin, resolution=resolution)
    return claim(state, by, outcome or Outcome())


def test_the_first_batch_of_a_sink_begins_its_state() -> None:
    assert taken_over(None, batch=0) == SinkState(generation=1, run="run-b", query="q")


def test_a_later_batch_without_a_state_is_an_error_and_not_a_second_copy() -> None:
    with pytest.raises(LedgerMissing, match="ledgerMissing"):
        taken_over(None, batch=7)
    assert taken_over(None, batch=7, begin=True).generation == 1


def test_every_run_has_a_generation_of_its_own_and_keeps_decided_batches() -> None:
    now = taken_over(DECIDED, batch=5)

    assert (now.generation, now.run) == (3, "run-b")
    assert now.decided == replace(BATCH, is_complete=True)


def test_a_checkpoint_that_is_older_than_the_output_is_refused() -> None:
    with pytest.raises(SinkAhead, match=r"batch 3 .* batch 4 already \(12 rows to topic t\)"):
        taken_over(DECIDED, batch=3)


@pytest.mark.parametrize("state", [DECIDED, replace(DECIDED, lost=(1,))])
def test_a_partly_committed_batch_is_not_skipped(state: SinkState) -> None:
    with pytest.raises(PartlyIn, match="batch 4 is partly committed"):
        taken_over(state, batch=5, outcome=Outcome(lost=(1,)))
    assert taken_over(state, batch=4, outcome=Outcome(lost=(1,))).lost == (1,)


@pytest.mark.parametrize("batch", [4, 5])
def test_a_batch_with_an_unknown_outcome_stops_the_query_until_it_is_resolved(batch: int) -> None:
    unknown = Outcome(unknown=(1,))

    with pytest.raises(OutcomeUnknown, match=r"tasks \[1\].*resolveBatch to 4:skip"):
        taken_over(DECIDED, batch=batch, outcome=unknown)
    with pytest.raises(OutcomeUnknown):
        taken_over(DECIDED, batch=batch, outcome=unknown, resolution=Resolution(batch=3, action=BatchAction.SKIP))
    skipped = taken_over(DECIDED, batch=batch, outcome=unknown, resolution=Resolution(batch=4, action=BatchAction.SKIP))
    assert skipped.decided == replace(BATCH, is_complete=True)


def test_a_user_may_have_a_batch_written_again_once() -> None:
    write = Resolution(batch=4, action=BatchAction.WRITE)

    undone = taken_over(DECIDED, batch=4, resolution=write)
    assert (undone.batch, undone.resolved) == (-1, 4)
    again = decide(undone, undone.generation, replace(BATCH, generation=undone.generation))
    assert taken_over(again, batch=4, resolution=write).batch == 4


def test_two_queries_cannot_share_a_sink() -> None:
    with pytest.raises(SinkAhead, match="belongs to query q"):
        taken_over(DECIDED, batch=0, query="other")
    fresh = taken_over(DECIDED, batch=0, query="other", begin=True)
    assert (fresh.batch, fresh.generation, fresh.decided) == (-1, 3, None)


def test_a_writer_that_does_not_know_its_query_is_not_taken_for_another() -> None:
    assert taken_over(DECIDED, batch=5, query="s").query == "q"
    assert taken_over(replace(DECIDED, query="s"), batch=5).query == "q"


def test_only_the_current_generation_decides() -> None:
    with pytest.raises(Superseded):
        decide(DECIDED, 1, replace(BATCH, batch=5))
    with pytest.raises(Superseded):
        decide(None, 2, replace(BATCH, batch=5))


def test_a_batch_is_decided_once() -> None:
    other = (Written(task=0, slot=5, producer_id=77, epoch=0, content=Content(1, 1)),)

    assert decide(DECIDED, 2, BATCH) == DECIDED
    assert decide(DECIDED, 2, REPLAY).decided == replace(BATCH, run="run-b")
    with pytest.raises(Superseded, match="other transactions"):
        decide(DECIDED, 2, replace(BATCH, written=other))
    later = decide(DECIDED, 2, replace(BATCH, batch=5, written=other))
    assert later.decided == replace(BATCH, batch=5, written=other)


def offsets(start: str, end: str, planned: int = 1) -> BatchOffsets:
    return BatchOffsets(plan=f"{start}{end}{planned}", start=start, end=end, text=end)


@pytest.mark.parametrize(
    ("known", "new", "is_same"),
    [
        # Without offsets on both sides the rows decide.
        ({}, {}, True),
        ({}, {"content": Content(12, 1)}, False),
        ({"offsets": offsets("a", "b")}, {}, True),
        ({"offsets": offsets("a", "b")}, {"content": Content(11, 197)}, False),
        # With offsets the plan decides, not the rows.
        ({"offsets": offsets("a", "b")}, {"offsets": offsets("a", "b"), "content": Content(1, 1)}, True),
        ({"offsets": offsets("a", "b")}, {"offsets": offsets("a", "c")}, False),
        ({"offsets": offsets("a", "b")}, {"offsets": offsets("c", "b")}, False),
        # Planned again: the offsets and the rows.
        ({"offsets": offsets("a", "b")}, {"offsets": offsets("a", "b", 2)}, True),
        ({"offsets": offsets("a", "b")}, {"offsets": offsets("a", "b", 2), "content": Content(12, 1)}, False),
        # One run replays nothing: it has two outputs.
        (
            {"offsets": offsets("a", "b")},
            {"offsets": offsets("a", "b"), "content": Content(1, 1), "run": "run-a"},
            False,
        ),
        ({"offsets": offsets("a", "b")}, {"offsets": offsets("a", "b"), "run": "run-a"}, True),
        ({}, {"output": "topic u"}, False),
        # The first version had only the rows of each task.
        ({"content": None, "output": ""}, {}, True),
        ({"content": None, "output": ""}, {"content": Content(11, 197)}, False),
    ],
)
def test_only_the_same_batch_is_skipped(known: dict[str, object], new: dict[str, object], is_same: bool) -> None:
    state = replace(DECIDED, decided=replace(BATCH, **known))  # type: ignore[arg-type]
    again = replace(REPLAY, **new)  # type: ignore[arg-type]

    if is_same:
        assert decide(state, 2, again) == replace(state, decided=replace(BATCH, **{**known, "run": again.run}))  # type: ignore[arg-type]
    else:
        with pytest.raises(OtherBatch, match="resolveBatch to 4:write"):
            decide(state, 2, again)
        skipped = decide(state, 2, again, Resolution(batch=4, action=BatchAction.SKIP))
        assert skipped.batch == 4


def test_a_batch_begins_where_the_last_one_ended() -> None:
    state = replace(DECIDED, decided=replace(BATCH, offsets=offsets("a", "b")))
    after = replace(BATCH, batch=5, offsets=offsets("b", "c"))

    assert decide(state, 2, after).batch == 5
    with pytest.raises(OtherBatch, match="does not begin where batch 4 in the sink ended"):
        decide(state, 2, replace(after, offsets=offsets("x", "c")))
    # Batches without a task are not written down.
    assert decide(state, 2, replace(after, batch=6, offsets=offsets("x", "c"))).batch == 6


def test_a_second_output_is_refused_in_a_replay_too() -> None:
    state = replace(DECIDED, decided=replace(BATCH, offsets=offsets("a", "b")))
    second = replace(REPLAY, offsets=offsets("a", "b"), content=Content(3, 3))

    replayed = decide(state, 2, replace(REPLAY, offsets=offsets("a", "b")))

    with pytest.raises(OtherBatch, match="two outputs cannot share a sinkId"):
        decide(replayed, 2, second)


def test_a_batch_written_by_resolve_batch_is_not_written_by_its_replay() -> None:
    state = replace(DECIDED, decided=replace(BATCH, offsets=offsets("a", "b")))
    write = Resolution(batch=5, action=BatchAction.WRITE)

    written = decide(state, 2, replace(BATCH, batch=5, offsets=offsets("x", "c")), write)

    assert taken_over(written, batch=5, resolution=write).batch == 5


def test_a_user_may_say_that_a_batch_is_in_of_which_the_sink_has_no_state() -> None:
    skip = Resolution(batch=7, action=BatchAction.SKIP)

    for state, query in ((None, "q"), (DECIDED, "other")):
        with pytest.raises(SinkError):
            taken_over(state, batch=7, query=query, resolution=skip)
        claimed = taken_over(state, batch=7, query=query, begin=True, resolution=skip)
        assert claimed.batch == 7
        skipped = decide(claimed, claimed.generation, replace(REPLAY, batch=7), skip)
        # And without the option from then on.
        assert decide(skipped, claimed.generation, replace(REPLAY, batch=7, run="run-c")).batch == 7
        # Left in a program, it does no harm to a sink that has a state, nor to a new query.
        assert taken_over(state, batch=6, query=query, begin=True, resolution=skip).batch in (-1, 4)
    assert taken_over(DECIDED, batch=7, begin=True, resolution=skip).batch == 4
    for state, query in ((None, "q"), (DECIDED, "other")):
        left = Resolution(batch=0, action=BatchAction.SKIP)
        assert taken_over(state, batch=0, query=query, begin=True, resolution=left).batch == -1


def test_an_action_that_took_effect_is_not_offered_again() -> None:
    state = replace(DECIDED, resolved=4)

    with pytest.raises(OtherBatch, match=r"4:write has taken effect.*another sinkId.*resolveBatch to 4:skip"):
        decide(state, 2, replace(REPLAY, content=Content(1, 1)))


def test_a_decision_that_was_repeated_finds_its_own_transactions() -> None:
    large = (Written(task=0, slot=0, producer_id=10, epoch=3, content=Content(5, 1 << 40)),)
    new = replace(BATCH, written=large, content=Content(5, 1 << 40))
    state = decode_state(encode_state(decide(replace(DECIDED, decided=None), 2, new)))

    assert decide(state, 2, new) == state


def test_a_query_that_takes_over_a_sink_has_its_own_resolutions() -> None:
    taken = taken_over(replace(DECIDED, resolved=4), batch=0, query="other", begin=True)
    write = Resolution(batch=4, action=BatchAction.WRITE)
    decided = decide(taken, taken.generation, replace(BATCH, generation=taken.generation))

    assert taken_over(decided, batch=4, query="other", resolution=write).resolved == 4
    assert taken_over(decided, batch=4, query="other", resolution=write).batch == -1


@pytest.mark.parametrize("outcome", [Outcome(lost=(1,)), Outcome(unknown=(1,))])
def test_an_action_that_would_not_help_is_not_offered(outcome: Outcome) -> None:
    """Spark runs batch 5 and will not produce the rows of batch 4 again."""
    with pytest.raises(SinkError, match="4:skip") as refused:
        taken_over(DECIDED, batch=5, outcome=outcome)

    assert "4:write" not in str(refused.value)


def test_lost_transactions_of_a_decided_batch_are_decided_again() -> None:
    broken = replace(DECIDED, generation=3, run="run-b", lost=(1,))
    again = (Written(task=1, slot=0, producer_id=12, epoch=0, content=Content(7, 98)),)

    whole = decide(broken, 3, replace(REPLAY, written=again))

    assert whole.lost == ()
    assert whole.decided == replace(BATCH, generation=3, written=again, run="run-b")


def test_a_batch_with_lost_transactions_is_whole_only_when_all_of_them_are_written_again() -> None:
    broken = replace(DECIDED, generation=3, run="run-b", lost=(0, 1))

    with pytest.raises(SinkError, match=r"batch 4 is partly committed: the transactions of tasks \[0\]"):
        decide(broken, 3, replace(REPLAY, written=WRITTEN[1:]))


def test_a_void_generation_cannot_decide() -> None:
    dead = void(DECIDED, 5, 2)

    assert dead is not None
    with pytest.raises(Superseded):
        decide(dead, 2, replace(BATCH, batch=5))


def test_a_decided_batch_cannot_be_made_void() -> None:
    assert void(DECIDED, 4, 2) is None


def written_by(tasks: int, chance: random.Random) -> tuple[Written, ...]:
    ids = list(range(1000, 1000 + tasks))
    chance.shuffle(ids)
    return tuple(
        Written(
            task=task,
            slot=0,
            producer_id=ids[task],
            epoch=chance.choice((0, 0, 3)),
            content=Content(chance.randrange(100_000), chance.getrandbits(32)),
        )
        for task in range(tasks)
    )


@given(
    tasks=st.integers(0, 3000),
    batch=st.integers(0, 2**40),
    lost=st.lists(st.integers(0, 5000), max_size=5).map(tuple),
    known=st.booleans(),
)
def test_a_state_is_decoded_from_its_pieces_after_a_larger_state(
    tasks: int, batch: int, lost: tuple[int], known: bool
) -> None:
    decided = replace(
        BATCH, batch=batch, written=written_by(tasks, random.Random(1)), offsets=offsets("a", "b") if known else None
    )
    state = SinkState(generation=9, run="r", query="q", decided=decided, lost=lost, resolved=3)

    pieces = encode_state(state)

    assert all(len(piece) <= 4096 for piece in pieces)
    assert len(pieces) <= MARKS_FROM
    assert decode_state(pieces + ["left over"] * (len(PIECE_PARTITIONS) - len(pieces))) == state


def test_a_state_of_the_first_version_is_read() -> None:
    old = [4, 2, "run-a", "q", 2, [[0, 0, 10, 3, 5, 99], [1, 1, 11, 0, 7, 98]], [1]]
    piece = "1:" + base64.b64encode(zlib.compress(json.dumps(old).encode())).decode()

    state = decode_state([piece])

    assert (state.batch, state.generation, state.run, state.query, state.lost) == (4, 2, "run-a", "q", (1,))
    assert state.decided is not None
    assert state.decided.is_complete is None
    assert [(each.task, each.slot, each.producer_id, each.epoch) for each in state.decided.written] == [
        (0, 0, 10, 3),
        (1, 1, 11, 0),
    ]


def test_a_state_of_a_later_version_is_refused_with_a_reason() -> None:
    piece = "1:" + base64.b64encode(zlib.compress(json.dumps({"version": 3}).encode())).decode()

    with pytest.raises(SinkError, match="version 3"):
        decode_state([piece])


def test_as_many_tasks_as_are_let_through_fit_and_those_of_a_usual_batch_with_their_content() -> None:
    for tasks, has_content in ((30_000, True), (TASKS_MAX, False)):
        decided = replace(BATCH, written=written_by(tasks, random.Random(2)))
        read = decode_state(encode_state(replace(DECIDED, decided=decided)))
        assert read.decided is not None
        assert len(read.decided.written) == tasks
        assert (read.decided.written[0].content is not None) == has_content


def test_a_state_that_grows_while_it_is_read_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state with more pieces than the first request reads needs a second; it may have changed by then."""
    states = [
        replace(DECIDED, decided=replace(BATCH, written=written_by(tasks, random.Random(2))))
        for tasks in (9000, 16_000)
    ]
    responses = [dict(zip(PIECE_PARTITIONS, encode_state(each), strict=False)) for each in states]
    assert MARKS_FROM < len(responses[0]) < len(responses[1])
    store = SinkStore(BrokerLink(LinkSettings(bootstrap="localhost:1")), SinkNames(sink="s"), "ledger")
    requested: list[int] = []

    def changing(partitions: list[int]) -> dict[int, tuple[int, str]]:
        requested.append(len(partitions))
        response = responses[min(len(requested), 2) - 1]
        return {each: (5, response[each]) for each in partitions if each in response}

    monkeypatch.setattr(store, "_offsets", changing)

    assert store.read() == states[1]
    assert len(requested) == 3


def test_brokers_that_allow_only_short_transactions_keep_states_too(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []

    def strict(_: BrokerLink, name: str, timeout_ms: int) -> Producer:
        requested.append(timeout_ms)
        if timeout_ms > 30_000:
            raise InvalidTransactionTimeout("transaction.max.timeout.ms")
        return Producer(transactional_id=name, producer_id=1, epoch=0)

    monkeypatch.setattr("pyspark_penstock.sink_store.init_producer", strict)

    SinkStore(BrokerLink(LinkSettings(bootstrap="localhost:1")), SinkNames(sink="s"), "ledger").touch()

    assert requested == [60_000, 10_000]


def test_more_tasks_than_a_state_can_name_are_refused() -> None:
    with pytest.raises(TooManyTasks, match="coalesce"):
        encode_state(replace(DECIDED, decided=replace(BATCH, written=written_by(400_000, random.Random(3)))))


def test_a_transactional_id_has_its_generation() -> None:
    names = SinkNames(sink="orders-g7")

    assert names.generation_of(names.transactional_id(12, 3, 0)) == 12
    assert names.generation_of(names.ledger) is None
    assert names.generation_of("orders-g7") is None


def test_a_sink_does_not_mistake_another_sinks_transactions_for_its_own() -> None:
    other = SinkNames(sink="orders-g7").transactional_id(1, 0, 0)

    assert SinkNames(sink="orders").generation_of(other) is None
