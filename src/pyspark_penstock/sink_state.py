"""The state of a sink and its transitions: the last decided batch, its transactions, and the run that may decide next.

Functions of the state alone; `sink_store` keeps the state at the brokers, `sink` calls the transitions. A transition
takes the state that was read and returns the state to write, or raises the reason why the query must stop.

    from                 transition            to                   refused
    no state             claim                 claimed              a later batch than the first [1]
    any                  claim                 claimed, in a new    an older batch; another query [1]; a decided batch
                                               generation           with an unknown outcome, or with lost transactions
                                                                    unless this run writes that batch again [2]
    claimed              decide                decided              another generation; a batch that does not continue
                                                                    the last [2]
    decided, complete    decide, same batch    unchanged but for    another batch of the same number [2]; other rows in
                                               the run: a replay    one run
    decided with lost    decide, same batch    decided              other rows; not all lost transactions [2]
    transactions
    decided              note of completion    complete
    claimed              void                  claimed by no run, in a new generation
    decided, complete    void                  unchanged

[1] unless the option ledgerMissing is begin; [2] unless the option resolveBatch decides about the batch. With both, a
batch of which the sink has no state may be claimed as decided and complete.

A claim makes transactions of earlier generations undecidable, so they may be aborted. Between `decide` and `complete`
any run may commit the transactions, any number of times.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark_penstock.batch_identity import BatchOffsets, Sameness
from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.txn_calls import Producer

NO_BATCH = -1
NO_RUN = ""
HASH_END = 1 << 64

_TASK = re.compile(r"(\d+)-\d+-\d+")
"""Generation, task and slot: matched in full, as another sink's name may begin with this one's."""


class SinkError(PenstockRuntimeError):
    """The sink cannot go on exactly once."""


class LedgerMissing(SinkError):
    """The state of a sink that must have written before is missing."""


class SinkAhead(SinkError):
    """The sink has later batches than the one to write."""


class OtherBatch(SinkError):
    """The sink has another batch of the same number."""


class OutcomeUnknown(SinkError):
    """A batch was decided, and the outcome of its transactions can no longer be determined."""


class PartlyIn(SinkError):
    """A decided batch has lost transactions and cannot be completed."""


class Superseded(SinkError):
    """Another run of the same query has taken over."""


class BatchAction(enum.Enum):
    """What to do with a batch whose outcome the sink cannot know, by the option resolveBatch."""

    SKIP = "skip"
    """It is committed: write nothing."""
    WRITE = "write"
    """It is not committed: write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The value of the option resolveBatch: an action for one batch."""

    batch: int
    action: BatchAction

    def says(self, action: BatchAction, batch: int) -> bool:
        return self.action is action and self.batch == batch


@dataclass(frozen=True, slots=True)
class Content:
    """The number of rows and the sum of their hashes, whatever their order and distribution over tasks."""

    rows: int = 0
    hashes: int = 0

    def plus(self, other: Content) -> Content:
        return Content(self.rows + other.rows, (self.hashes + other.hashes) % HASH_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One task's transaction of a batch, and its content."""

    task: int
    slot: int
    """The slot of the task's transactional id."""
    producer_id: int
    epoch: int
    content: Content | None
    """None if the state had no room for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decided batch: its transactions are committed, or must be before anything else is written."""

    batch: int
    generation: int
    """The generation of the transactions in `written`."""
    written: tuple[Written, ...] = ()
    content: Content | None = None
    """The content of the whole batch; None in states of the first version."""
    offsets: BatchOffsets | None = None
    """None if the query's checkpoint could not be read."""
    output: str = ""
    """The output of the batch; empty in states of the first version."""
    run: str = NO_RUN
    """The query's run in which it was decided; empty if it is not known."""
    is_complete: bool | None = False
    """Whether all of its transactions are known to be committed; None in states of the first version."""

    def described(self) -> str:
        return _described(self.content, self.offsets, self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    """The state of a sink."""

    generation: int
    run: str
    """The run that may write in this generation."""
    query: str
    decided: Decided | None = None
    lost: tuple[int, ...] = ()
    """Tasks whose transactions were decided, and then aborted by their coordinator before they could be committed."""
    resolved: int = NO_BATCH
    """The batch that resolveBatch had written; the option does not take effect twice."""

    @property
    def batch(self) -> int:
        """The last decided batch."""
        return NO_BATCH if self.decided is None else self.decided.batch

    @property
    def stamp(self) -> tuple[int, int, tuple[int, ...]]:
        """A value that changes with each claim, decision and void, and not with the completion of a batch."""
        return self.generation, self.batch, self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a decided batch: the tasks whose transactions are aborted, or unknown."""

    lost: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that is about to write a batch."""

    batch: int
    run: str
    query: str
    """The query's id, or the sink's if it is not known."""
    sink: str
    may_begin: bool = False
    resolution: Resolution | None = None

    def is_other(self, query: str) -> bool:
        """Whether a query is known to differ from this run's."""
        return query != self.query and self.sink not in (query, self.query)

    def resolves(self, action: BatchAction, batch: int) -> bool:
        return self.resolution is not None and self.resolution.says(action, batch)


def claim(state: SinkState | None, by: Claim, outcome: Outcome) -> SinkState:
    """Take over from the run before.

    ``outcome`` is the outcome of the decided batch, whose transactions the caller has committed where possible.
    """
    if state is None:
        if by.batch > 0 and not by.may_begin:
            raise LedgerMissing(
                f"batch {by.batch} is to be written, and the sink has no state of the batches before it (has its group"
                " expired, or was the query moved from another sink?): what is in the topics is unknown. To take"
                " everything before this batch as written, set the option ledgerMissing to begin, and if the rows of"
                f" this batch are in the topics too, the option resolveBatch to {by.batch}:skip"
            )
        return _begun(SinkState(generation=1, run=by.run, query=by.query), by)
    query = state.query if by.query == by.sink else by.query
    claimed = replace(state, generation=state.generation + 1, run=by.run, query=query)
    if by.is_other(state.query):
        if not by.may_begin:
            raise SinkAhead(
                f"the sink belongs to query {state.query}, and this is {by.query}: two queries cannot share a sinkId."
                " If the query's checkpoint was deleted, decide what is in the topics: set the option ledgerMissing to"
                " begin to write all that this query reads, or take another sinkId"
            )
        return _begun(replace(claimed, decided=None, lost=(), resolved=NO_BATCH), by)
    decided = state.decided
    if decided is None:
        return claimed
    if decided.batch > by.batch:
        raise SinkAhead(
            f"batch {by.batch} is to be written, and the sink has batch {decided.batch} already"
            f" ({decided.described()}): the query's checkpoint is older than its output. Restore a checkpoint that is"
            " not older, or, to write from here on anyway, take another sinkId with ledgerMissing set to begin"
        )
    if decided.batch == by.batch and by.resolves(BatchAction.WRITE, by.batch) and state.resolved != by.batch:
        return replace(claimed, decided=None, lost=(), resolved=by.batch)
    if by.resolves(BatchAction.SKIP, decided.batch):
        return replace(claimed, decided=replace(decided, is_complete=True), lost=())
    if outcome.unknown:
        raise outcome_unknown(decided, outcome.unknown, is_past=decided.batch < by.batch)
    if outcome.lost and decided.batch < by.batch:
        raise partly_in(decided.batch, outcome.lost, is_past=True)
    if outcome.lost:
        return replace(claimed, lost=tuple(sorted(outcome.lost)))
    return replace(claimed, decided=replace(decided, is_complete=True), lost=())


def _begun(state: SinkState, by: Claim) -> SinkState:
    """The state of a sink that begins with this batch, or after it if resolveBatch skips it.

    The first batch of a query is always written: the option may be left over from an earlier query.
    """
    if by.batch == 0 or not by.resolves(BatchAction.SKIP, by.batch):
        return state
    return replace(state, decided=Decided(batch=by.batch, generation=state.generation, is_complete=True))


def outcome_unknown(decided: Decided, tasks: Iterable[int], *, is_past: bool = False) -> OutcomeUnknown:
    """The error for a batch whose outcome is unknown; ``is_past``: the query does not run it again."""
    write = f" if they are, or to {decided.batch}:write to write the batch again"
    past = " to go on: the query is past this batch and will not write it again"
    return OutcomeUnknown(
        f"batch {decided.batch} ({decided.described()}) was decided, its driver died before it noted that all"
        f" transactions were committed, and the brokers have since forgotten those of tasks {sorted(tasks)}"
        " (transactional.id.expiration.ms): whether their rows are in the topics is unknown. Look, and set the option"
        f" resolveBatch to {decided.batch}:skip{past if is_past else write}"
    )


def partly_in(batch: int, tasks: Iterable[int], *, is_past: bool = False) -> PartlyIn:
    """The error for a batch that can be neither undone nor completed; ``is_past``: the query does not run it."""
    why = "is past it" if is_past else "does not give the same rows for those tasks again"
    write = "" if is_past else f", or to {batch}:write to write the whole batch again"
    return PartlyIn(
        f"batch {batch} is partly committed: the transactions of tasks {sorted(tasks)} were aborted by their timeout"
        f" after the batch was decided, and the query {why}. The batch cannot be completed: set the option resolveBatch"
        f" to {batch}:skip to go on without the missing rows{write}. A longer kafka.transaction.timeout.ms avoids this"
    )


def decide(state: SinkState | None, generation: int, new: Decided, resolution: Resolution | None = None) -> SinkState:
    """Decide a batch: from now on any run may commit these transactions.

    ``new.written`` is empty for a replay, whose tasks found the batch decided and wrote nothing.
    """
    batch = new.batch
    if state is None:
        raise Superseded(f"the state of the sink was deleted while batch {batch} was written")
    if state.generation != generation:
        raise superseded(batch)
    known = state.decided
    if known is None or known.batch < batch:
        _check_continues(known, new, resolution)
        # The option took effect: a replay of the batch is a replay.
        resolves = resolution is not None and resolution.says(BatchAction.WRITE, batch)
        resolved = batch if resolves else state.resolved
        return replace(state, decided=replace(new, generation=generation), lost=(), resolved=resolved)
    if known.batch > batch:
        raise SinkAhead(f"batch {batch} was written, and the sink has batch {known.batch} already")
    if resolution is not None and resolution.says(BatchAction.SKIP, batch):
        # resolveBatch says that it is this batch: the next one continues it, and it may be replayed.
        offsets = new.offsets or known.offsets
        skipped = replace(known, content=new.content, offsets=offsets, output=new.output, run=new.run)
        return replace(state, decided=skipped, lost=())
    _check_same(known, new, is_resolved=state.resolved == batch)
    if not state.lost:
        if new.written and _producers(new) != _producers(known):
            raise Superseded(f"batch {batch} was decided before, by other transactions")
        # Recorded for each run, so that a second output of the replaying run does not count as a replay as well.
        return replace(state, decided=replace(known, run=new.run or known.run))
    missing = set(state.lost) - {each.task for each in new.written}
    if missing:
        raise partly_in(batch, missing)
    again = replace(known, generation=generation, written=new.written, run=new.run or known.run, is_complete=False)
    return replace(state, decided=again, lost=())


def _producers(batch: Decided) -> list[tuple[int, int, int, int]]:
    """The transactions of a batch without their content, which a stored state shortens."""
    return [(each.task, each.slot, each.producer_id, each.epoch) for each in batch.written]


def superseded(batch: int) -> Superseded:
    return Superseded(
        f"another run of the query took over while batch {batch} was written: two drivers run on one checkpoint, or a"
        " task of an earlier run was still alive. Nothing of this batch is committed; stop the other driver, or, if"
        " there is none, start the query again"
    )


def _check_same(known: Decided, new: Decided, *, is_resolved: bool) -> None:
    """Raise unless ``new`` is the decided batch; ``is_resolved``: resolveBatch had a batch of this number written."""
    if known.output and known.output != new.output:
        raise _other_batch(
            known, new, "it was written to another output: two outputs cannot share a sinkId", is_resolved=is_resolved
        )
    if known.offsets is not None and new.offsets is not None:
        match known.offsets.compare(new.offsets):
            case Sameness.OTHER:
                raise _other_batch(
                    known, new, "the query's checkpoint was restored, copied or lost", is_resolved=is_resolved
                )
            case Sameness.SAME_PLAN if known.run != new.run or known.run == NO_RUN:
                # A replay, even if the query produces other rows this time.
                return
            case Sameness.SAME_PLAN:
                why = "one run of a query wrote twice under one number: two outputs cannot share a sinkId"
            case Sameness.SAME_OFFSETS:
                why = "the query's checkpoint was restored or copied, and the rows are not the same"
    else:
        why = (
            "the checkpoint was restored, copied or lost, two outputs share a sinkId, or the query does not give the"
            " same rows again (then set checkpointLocation as an option of the writer, for a replay to be recognized)"
        )
    if known.content is None:
        # The first version had the rows of each task.
        rows = sum(each.content.rows for each in known.written if each.content is not None)
        is_same = new.content is None or rows == new.content.rows
    else:
        is_same = known.content == new.content
    if not is_same:
        raise _other_batch(known, new, why, is_resolved=is_resolved)


def _check_continues(known: Decided | None, new: Decided, resolution: Resolution | None) -> None:
    """Raise unless ``new`` begins where the last batch ended, as far as that is known."""
    if known is None or known.batch != new.batch - 1 or known.offsets is None or new.offsets is None:
        return
    if known.offsets.end == new.offsets.start or (resolution and resolution.says(BatchAction.WRITE, new.batch)):
        return
    raise OtherBatch(
        f"batch {new.batch} ({new.described()}) does not begin where batch {known.batch} in the sink ended"
        f" ({known.described()}): the query's checkpoint was restored or copied, and has gone on without this sink."
        f" Rows between the two are missing or would be duplicated. To write the batch anyway, set the option"
        f" resolveBatch to {new.batch}:write"
    )


def _other_batch(known: Decided, new: Decided, why: str, *, is_resolved: bool) -> OtherBatch:
    write = (
        f"resolveBatch {new.batch}:write has taken effect and does so once: to write this one too, take another sinkId"
        " with ledgerMissing set to begin. Set the option resolveBatch to"
        if is_resolved
        else f"Set the option resolveBatch to {new.batch}:write to write it in addition to what is there, or to"
    )
    return OtherBatch(
        f"the sink has batch {known.batch} already, and it is not the one that is being written: in the sink"
        f" {known.described()}; being written {new.described()}. Most likely {why}. Nothing of this batch was written."
        f" {write} {new.batch}:skip if its rows are in the topics"
    )


def _described(content: Content | None, offsets: BatchOffsets | None, output: str) -> str:
    parts = [] if content is None else [f"{content.rows} rows"]
    parts += [f"to {output}"] if output else []
    parts += [f"up to the offsets {offsets.text}"] if offsets else []
    return " ".join(parts) or "rows unknown"


def void(state: SinkState | None, batch: int, generation: int) -> SinkState | None:
    """End the generation, so that nothing of it can be decided; None if the batch is already decided."""
    if state is None or (state.batch >= batch and not state.lost):
        return None
    if state.generation != generation:
        return state
    return replace(state, generation=generation + 1, run=NO_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNames:
    """The names of a sink at the brokers; all begin with its id."""

    sink: str

    @property
    def group(self) -> str:
        return self.sink

    @property
    def ledger(self) -> str:
        """The transactional id of changes of the state."""
        return f"{self.sink}-ledger"

    def transactional_id(self, generation: int, task: int, slot: int) -> str:
        return f"{self.sink}-g{generation}-{task}-{slot}"

    @property
    def tasks(self) -> str:
        """The prefix of every task's transactional id."""
        return f"{self.sink}-g"

    def generation_of(self, transactional_id: str) -> int | None:
        """The generation of a transactional id; None if it is not one of this sink's tasks."""
        found = _TASK.fullmatch(transactional_id.removeprefix(self.tasks))
        return int(found.group(1)) if found and transactional_id.startswith(self.tasks) else None

    def producer(self, generation: int, written: Written) -> Producer:
        return Producer(
            transactional_id=self.transactional_id(generation, written.task, written.slot),
            producer_id=written.producer_id,
            epoch=written.epoch,
        )
