"""Random walks of a sink: drivers die anywhere, tasks run twice, batches are replayed, transactions time out or are
forgotten, checkpoints are restored and copied. Nothing is lost or duplicated, or the query stops because a user's
action or the expiry of ids made that impossible. Without any one of the rules a walk fails.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_penstock import sink_state
from pyspark_penstock.batch_identity import BatchOffsets
from pyspark_penstock.sink_state import (
    Claim,
    Content,
    Decided,
    LedgerMissing,
    OtherBatch,
    Outcome,
    OutcomeUnknown,
    PartlyIn,
    SinkAhead,
    SinkState,
    Superseded,
    Written,
)

STEPS = 60
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass
class Transaction:
    """What one attempt of a task wrote."""

    generation: int
    task: int
    rows: tuple[int, ...]
    status: str = OPEN
    is_forgotten: bool = False
    is_replaced: bool = False
    """A later batch uses the id: the outcome can no longer be looked up."""


@dataclass(frozen=True)
class Plan:
    """An entry of the checkpoint's offset log."""

    start: int
    end: int
    number: int


@dataclass
class Checkpoint:
    plans: list[Plan] = field(default_factory=list)
    committed: int = 0
    """How many batches the query's own log has as done."""

    def copy(self) -> Checkpoint:
        return Checkpoint(list(self.plans), self.committed)


@dataclass
class Run:
    """One run of the query, and its progress in its batch."""

    name: str
    checkpoint: Checkpoint
    state: SinkState | None = None
    written: list[tuple[int, Content]] = field(default_factory=list)
    """Transactions by their number, with what the tasks reported."""
    content: Content = field(default_factory=Content)
    has_written: bool = False
    decided: bool = False
    pending: list[int] = field(default_factory=list)


class Violation(AssertionError):
    """Rows are lost or duplicated, or a query stopped without a reason."""


class Walk:
    """The brokers, the source, the checkpoint and the runs."""

    def __init__(self, chance: random.Random, knows_offsets: bool) -> None:
        self.chance = chance
        self.knows_offsets = knows_offsets
        self.state: SinkState | None = None
        self.notes: set[tuple[int, int]] = set()
        self.transactions: list[Transaction] = []
        self.checkpoint = Checkpoint()
        self.backups: list[Checkpoint] = []
        self.source_end = 0
        self.planned = 0
        self.runs: list[Run] = []
        self.names = 0
        self.meddled = False
        """A user restored a checkpoint, or brokers aborted or forgot transactions: the query may stop."""
        self.stopped = False

    # What the brokers and the user do

    def time_out(self) -> None:
        """A coordinator aborts a transaction that is open for too long."""
        found = [each for each in self.transactions if each.status == OPEN]
        if found:
            self.chance.choice(found).status = ABORTED
            self.meddled = True

    def forget(self) -> None:
        """Transactional ids expire, all that are not in use; they were last used long ago."""
        if any(each.status == OPEN for each in self.transactions):
            return
        for each in self.transactions:
            each.is_forgotten = True
        self.meddled = True

    def back_up(self) -> None:
        self.backups.append(self.checkpoint.copy())

    def restore(self) -> None:
        if self.backups:
            self.runs.clear()
            self.checkpoint = self.chance.choice(self.backups).copy()
            self.meddled = True

    def more_input(self) -> None:
        self.source_end += self.chance.randint(1, 3)

    # What a run does, a step at a time

    def start(self) -> None:
        self.names += 1
        self.runs.append(Run(f"run-{self.names}", self.checkpoint))
        if len(self.runs) > 2:
            self.runs.pop(0)

    def step(self) -> None:
        if not self.runs:
            self.start()
        run = self.chance.choice(self.runs)
        try:
            self.advance(run)
        except Superseded:
            self.drop(run)
        except (SinkAhead, OtherBatch, OutcomeUnknown, PartlyIn, LedgerMissing) as refusal:
            zombie = run is not self.runs[-1]
            self.drop(run)
            if not zombie:
                if not self.meddled:
                    raise Violation(f"refused without a reason: {refusal}") from refusal
                self.stopped = True

    def drop(self, run: Run) -> None:
        if run in self.runs:
            self.runs.remove(run)

    def die(self) -> None:
        if self.runs:
            self.runs.pop(self.chance.randrange(len(self.runs)))

    def advance(self, run: Run) -> None:
        checkpoint = run.checkpoint
        batch = checkpoint.committed
        if len(checkpoint.plans) == batch:
            start = checkpoint.plans[-1].end if checkpoint.plans else 0
            if start == self.source_end:
                return
            self.planned += 1
            checkpoint.plans.append(Plan(start, self.source_end, self.planned))
            return
        plan = checkpoint.plans[batch]
        if run.state is None or run.state.run != run.name:
            self.claim(run, batch)
        elif not run.has_written:
            self.write(run, batch, plan)
        elif not run.decided:
            self.decide(run, batch, plan)
        elif run.pending:
            number = run.pending.pop()
            if not self.commit(self.transactions[number]):
                raise Superseded("lost")
            if not run.pending:
                assert run.state is not None
                self.notes.add((batch, run.state.generation))
        else:
            checkpoint.committed = max(checkpoint.committed, batch + 1)
            run.has_written = run.decided = False

    def claim(self, run: Run, batch: int) -> None:
        seen = self.seen()
        by = Claim(batch=batch, run=run.name, query="q", sink="s")
        outcome = self.outcome(seen)
        self.state = run.state = sink_state.claim(seen, by, outcome)
        for each in self.transactions:
            if each.status == OPEN and each.generation < run.state.generation:
                each.status = ABORTED

    def seen(self) -> SinkState | None:
        """The state with the note of completion, as a reader finds it."""
        decided = None if self.state is None else self.state.decided
        if self.state is None or decided is None or (decided.batch, decided.generation) not in self.notes:
            return self.state
        return replace(self.state, decided=replace(decided, is_complete=True))

    def outcome(self, state: SinkState | None) -> Outcome:
        if state is None or state.decided is None or state.decided.is_complete:
            return Outcome()
        if state.lost:
            return Outcome(lost=state.lost)
        lost, unknown = [], []
        for each in state.decided.written:
            transaction = self.transactions[each.producer_id]
            if transaction.is_forgotten:
                unknown.append(each.task)
            elif not self.commit(transaction):
                lost.append(each.task)
        return Outcome(lost=tuple(lost), unknown=tuple(unknown))

    def commit(self, transaction: Transaction) -> bool:
        if transaction.is_forgotten or transaction.is_replaced:
            return False
        if transaction.status == OPEN:
            transaction.status = COMMITTED
        return transaction.status == COMMITTED

    def write(self, run: Run, batch: int, plan: Plan) -> None:
        assert run.state is not None
        rows = list(range(plan.start, plan.end))
        # A replay may be cut into other tasks.
        cut = self.chance.randint(0, len(rows))
        tasks = [rows[:cut], rows[cut:]]
        if run.state.lost:
            known = {each.task: each.content for each in (run.state.decided or pytest.fail("nothing")).written}
            if any(known.get(task) != content_of(rows) for task, rows in enumerate(tasks) if task in run.state.lost):
                raise PartlyIn("the query does not give the same rows for those tasks")
        run.content, run.written = content_of(rows), []
        is_in = run.state.batch == batch
        for task, part in enumerate(tasks):
            if part and (not is_in or task in run.state.lost):
                for each in self.transactions:
                    if (each.generation, each.task) == (run.state.generation, task) and each.status != OPEN:
                        each.is_replaced = True
                self.transactions.append(Transaction(run.state.generation, task, tuple(part)))
                run.written.append((len(self.transactions) - 1, content_of(part)))
        run.has_written = True

    def decide(self, run: Run, batch: int, plan: Plan) -> None:
        assert run.state is not None
        if any(self.transactions[number].status != OPEN for number, _ in run.written):
            # Found by the look before the decision.
            self.fail(run, batch)
            return
        offsets = BatchOffsets(plan=f"{plan.number}", start=f"{plan.start}", end=f"{plan.end}", text="")
        new = Decided(
            batch=batch,
            generation=run.state.generation,
            written=tuple(
                Written(task=self.transactions[n].task, slot=0, producer_id=n, epoch=0, content=content)
                for n, content in run.written
            ),
            content=run.content,
            offsets=offsets if self.knows_offsets else None,
            output="topic t",
            run=run.name,
            is_complete=not run.written,
        )
        self.state = run.state = sink_state.decide(self.seen(), run.state.generation, new)
        run.decided, run.pending = True, [number for number, _ in run.written]

    def fail(self, run: Run, batch: int) -> None:
        """The batch fails; Spark asks to abort it."""
        assert run.state is not None
        now = sink_state.void(self.seen(), batch, run.state.generation)
        self.state = now or self.state
        for number, _ in run.written:
            if now is not None and self.transactions[number].status == OPEN:
                self.transactions[number].status = ABORTED
        self.drop(run)

    # What must hold

    def check(self) -> None:
        found = Counter(row for each in self.transactions if each.status == COMMITTED for row in each.rows)
        doubled = [row for row, count in found.items() if count > 1]
        if doubled:
            raise Violation(f"doubled: {doubled}")

    def check_end(self) -> None:
        """Run the query to its end: all rows up to there are committed."""
        for _ in range(400):
            if self.stopped:
                return
            done = self.checkpoint.committed == len(self.checkpoint.plans)
            if done and (self.checkpoint.plans or [Plan(0, 0, 0)])[-1].end == self.source_end:
                break
            if not self.runs or self.runs[-1].checkpoint is not self.checkpoint:
                self.runs.clear()
                self.start()
            self.runs = self.runs[-1:]
            self.step()
            self.check()
        else:
            raise Violation("the query does not get on")
        found = {row for each in self.transactions if each.status == COMMITTED for row in each.rows}
        lost = set(range(self.source_end)) - found
        if lost:
            raise Violation(f"lost: {sorted(lost)}")


def content_of(rows: list[int]) -> Content:
    return Content(len(rows), sum((row + 1) * 2_654_435_761 % 2**32 for row in rows))


def walk(chance: random.Random) -> None:
    made = Walk(chance, knows_offsets=chance.random() < 0.5)
    made.more_input()
    actions: list[tuple[Callable[[], None], float]] = [
        (made.step, 30.0),
        (made.more_input, 2.0),
        (made.die, 1.5),
        (made.start, 1.0),
        (made.time_out, 0.4),
        (made.forget, 0.4),
        (made.back_up, 0.8),
        (made.restore, 0.5),
    ]
    doing, weights = zip(*actions, strict=True)
    for action in chance.choices(doing, weights, k=STEPS):
        if made.stopped:
            return
        action()
        made.check()
    made.check_end()


@settings(max_examples=400)
@given(chance=st.randoms(use_true_random=False))
def test_no_sequence_of_failures_loses_or_duplicates_rows(chance: random.Random) -> None:
    walk(chance)


def without(name: str, patch: pytest.MonkeyPatch) -> None:
    """Disable one rule."""
    claim, decide = sink_state.claim, sink_state.decide

    def losing(state: SinkState | None, by: Claim, outcome: Outcome) -> SinkState:
        return claim(state, by, replace(outcome, lost=()))

    def forgetting(state: SinkState | None, by: Claim, outcome: Outcome) -> SinkState:
        # As it was: what is unknown counts as lost, and is written again.
        return claim(state, by, Outcome(lost=(*outcome.lost, *outcome.unknown)))

    def same_generation(state: SinkState | None, by: Claim, outcome: Outcome) -> SinkState:
        claimed = claim(state, by, outcome)
        return replace(claimed, generation=claimed.generation - (state is not None))

    def any_generation(state: SinkState | None, generation: int, new: Decided) -> SinkState:
        return decide(state, generation if state is None else state.generation, new)

    match name:
        case "only the same batch is passed over":
            patch.setattr(sink_state, "_check_same", lambda *_, **__: None)
        case "lost transactions are written again":
            patch.setattr(sink_state, "claim", losing)
        case "an unknown outcome stops the query":
            patch.setattr(sink_state, "claim", forgetting)
        case "a claim takes a new generation":
            patch.setattr(sink_state, "claim", same_generation)
        case "only the current generation decides":
            patch.setattr(sink_state, "decide", any_generation)
        case "a complete batch is noted":
            patch.setattr(Walk, "seen", lambda self: self.state)


@pytest.mark.parametrize(
    "rule",
    [
        "only the same batch is passed over",
        "lost transactions are written again",
        "an unknown outcome stops the query",
        "only the current generation decides",
        "a claim takes a new generation",
        "a complete batch is noted",
    ],
)
def test_without_any_one_rule_the_walk_fails(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(rule, monkeypatch)

    for seed in range(3000):
        try:
            walk(random.Random(seed))
        except AssertionError:
            return
    pytest.fail(f"3000 walks without the rule that {rule}, and nothing was lost or doubled")
