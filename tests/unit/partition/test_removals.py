"""Compaction across replicas: every order of writes, deletions, passes, fetches, elections and truncations.

Three replicas of a partition with two keys. A replica that holds every committed record must show the values that its
history has, and must never empty itself; a follower's log must have the history of its leader. Each rule is taken out
in turn, and the search must notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from penstock.model.ids import NO_OFFSET, Offset
from penstock.model.removals import NO_COPY, CopyStart, Removals
from penstock.partition.removals import copies_again, mark_within, removals_at
from penstock.storage.epochs import LeaderEpochs

EMPTY = -1
REPLICAS = range(3)
LEADER = 0


class Batch(NamedTuple):
    offset: int
    epoch: int
    key: int
    """`EMPTY` where its records are removed."""
    live: bool
    """Not a tombstone."""


Log = tuple[Batch, ...]


class Copy(NamedTuple):
    """A replica."""

    log: Log = ()
    history: Log = ()
    """Every batch that was ever appended to this log, or to the one that it was copied from."""
    mark: int = NO_OFFSET
    copied: CopyStart = NO_COPY

    @property
    def end(self) -> int:
        return len(self.history)


class State(NamedTuple):
    copies: tuple[Copy, ...] = (Copy(),) * len(REPLICAS)
    """The leader's first."""
    epoch: int = 0
    epoch_start: int = 0
    revision: int = 0
    """Of the leader's removals."""
    committed: int = 0

    def with_copy(self, index: int, copy: Copy) -> State:
        copies = list(self.copies)
        copies[index] = copy
        return self._replace(copies=tuple(copies))

    def canonical(self) -> State:
        """The state, with its followers in order: they are alike."""
        first, *others = self.copies
        return self._replace(copies=(first, *sorted(others)))

    def holds_committed(self, index: int) -> bool:
        history = self.copies[LEADER].history[: self.committed]
        return self.copies[index].history[: self.committed] == history


class Rules(NamedTuple):
    """What the search runs with; a test takes one rule out."""

    copies_again: Callable[..., bool] = copies_again
    inherits: bool = True
    counts_revisions: bool = True
    forgets_copies: bool = True
    """With the leader epoch; without it, a copy is known by the leader's revision alone."""
    keeps_epoch_starts: bool = True


class Size(NamedTuple):
    """The bounds of a search."""

    keys: int
    writes: int
    epochs: int


class Anomaly(AssertionError):
    pass


def values(log: Log) -> dict[int, int]:
    """Key -> offset of its value, for a reader from the log start on."""
    newest = {batch.key: batch for batch in log if batch.key != EMPTY}
    return {key: batch.offset for key, batch in newest.items() if batch.live}


def epochs_of(log: Log) -> LeaderEpochs:
    """The epoch cache, as it is rebuilt from the log."""
    epochs = LeaderEpochs()
    for batch in log:
        epochs.assign(batch.epoch, Offset(batch.offset))
    return epochs


def cleaned(copy: Copy, gone: Callable[[Batch], bool], rules: Rules) -> Log:
    """The log without some records: an empty batch stays where an epoch begins, and at the log end."""
    log: list[Batch] = []
    epoch = -1
    for batch in copy.log:
        begins, epoch = batch.epoch != epoch, batch.epoch
        if not gone(batch):
            log.append(batch)
        elif (begins and rules.keeps_epoch_starts) or batch.offset == copy.end - 1:
            log.append(batch._replace(key=EMPTY, live=True))
    return tuple(log)


def passes(state: State, index: int, rules: Rules) -> Iterator[State]:
    """The passes of one replica: over superseded records, or over one tombstone, whose retention is over."""
    copy = state.copies[index]
    stable = next(
        (at for at in range(state.committed) if copy.history[at : at + 1] != leader_history(state)[at : at + 1]),
        state.committed,
    )
    newest = {batch.key: batch.offset for batch in copy.log if batch.offset < stable}

    def superseded(batch: Batch) -> bool:
        return batch.offset < stable and (batch.key == EMPTY or newest[batch.key] > batch.offset)

    log = cleaned(copy, superseded, rules)
    if log != copy.log:
        yield state.with_copy(index, copy._replace(log=log))
        return
    for batch in log:
        if batch.offset < stable and not batch.live:
            rest = cleaned(copy, lambda each, removed=batch: each is removed, rules)
            after = state.with_copy(index, copy._replace(log=rest, mark=max(copy.mark, batch.offset)))
            yield after._replace(revision=state.revision + (index == LEADER and rules.counts_revisions))


def leader_history(state: State) -> Log:
    return state.copies[LEADER].history


def fetches(state: State, index: int, rules: Rules) -> Iterator[State]:
    """One fetch of a follower: it truncates, empties itself, or appends a batch."""
    follower, leader = state.copies[index], state.copies[LEADER]
    epochs = epochs_of(follower.log)
    if follower.end:
        known = epochs_of(leader.log)
        known.assign(state.epoch, Offset(state.epoch_start))
        epoch, end = known.end_of(epochs.latest, Offset(leader.end))
        if epoch < epochs.latest or end < follower.end:
            _, own_end = epochs.end_of(epoch, Offset(follower.end))
            cut = max(min(end, follower.end if own_end < 0 else own_end), 0)
            yield state.with_copy(
                index,
                follower._replace(
                    log=tuple(batch for batch in follower.log if batch.offset < cut),
                    history=follower.history[:cut],
                    mark=mark_within(follower.mark, Offset(cut)),
                ),
            )
            return
    if follower.history != leader.history[: follower.end]:
        raise Anomaly(f"replica {index} follows with another history")
    removals = removals_at(Removals(Offset(leader.mark), state.revision), Offset(follower.end))
    if rules.copies_again(removals, log_end=follower.end, leader_epoch=state.epoch, copied=follower.copied):
        assert removals is not None
        if follower.end and state.holds_committed(index) and follower.end >= state.committed:
            raise Anomaly(f"replica {index}, which may be in the ISR, empties itself")
        mark = removals.mark if rules.inherits else NO_OFFSET
        yield state.with_copy(index, Copy(mark=mark, copied=CopyStart(state.epoch, removals.revision)))
        return
    for batch in leader.log:
        if batch.offset >= follower.end:
            mark = max(follower.mark, removals.mark) if removals is not None and rules.inherits else follower.mark
            copy = follower._replace(log=(*follower.log, batch), history=leader.history[: batch.offset + 1], mark=mark)
            yield state.with_copy(index, copy)
            return


def elections(state: State, rules: Rules, epochs_max: int) -> Iterator[State]:
    for index, copy in enumerate(state.copies):
        if index != LEADER and state.epoch + 1 < epochs_max and state.holds_committed(index):
            leads = copy._replace(mark=mark_within(Offset(copy.mark), Offset(copy.end)))
            after = state.with_copy(index, state.copies[LEADER]).with_copy(LEADER, leads)
            if rules.forgets_copies:
                # No rule looks at them any more.
                after = after._replace(copies=tuple(each._replace(copied=NO_COPY) for each in after.copies))
            yield after._replace(epoch=state.epoch + 1, epoch_start=copy.end, revision=0)


def successors(state: State, rules: Rules, size: Size) -> Iterator[State]:
    leader = state.copies[LEADER]
    if leader.end < size.writes:
        live = values(leader.history)
        # Keys are alike until they are written.
        puts = [(key, True) for key in range(size.keys) if key == 0 or leader.history]
        for key, is_live in (*puts, *((key, False) for key in live)):
            batch = Batch(leader.end, state.epoch, key, is_live)
            appended = leader._replace(log=(*leader.log, batch), history=(*leader.history, batch))
            yield state.with_copy(LEADER, appended)
    if state.committed < leader.end:
        # By the ISR of this moment, which may be any replicas that hold the log, or the leader alone.
        yield state._replace(committed=leader.end)
    for index in REPLICAS:
        yield from passes(state, index, rules)
        if index != LEADER:
            yield from fetches(state, index, rules)
    yield from elections(state, rules, size.epochs)


def check(state: State, rules: Rules) -> None:
    for index, copy in enumerate(state.copies):
        if copy.end >= state.committed and state.holds_committed(index):
            shown, truth = values(copy.log), values(copy.history)
            if shown != truth:
                raise Anomaly(f"replica {index} shows {shown}, and {truth} was written")
        if rules.keeps_epoch_starts:
            assert epochs_of(copy.log).entries() == epochs_of(copy.history).entries(), f"replica {index}"


def explore(rules: Rules, size: Size) -> int:
    """Search every reachable state; how many there are."""
    first = State()
    seen, queue = {first}, deque([first])
    while queue:
        state = queue.popleft()
        check(state, rules)
        for after in map(State.canonical, successors(state, rules, size)):
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return len(seen)


@pytest.mark.parametrize("size", [Size(2, 3, 2), Size(1, 4, 1)])
def test_no_order_of_events_brings_a_deleted_key_back(size: Size):
    assert explore(Rules(), size) > 1_000


def by_revision_alone(removals: Removals | None, *, log_end: Offset, leader_epoch: int, copied: CopyStart) -> bool:
    return copies_again(removals, log_end=log_end, leader_epoch=copied.leader_epoch, copied=copied)


ABLATIONS = {
    "followers never copy again": (Rules(copies_again=lambda *_, **__: False), Size(1, 2, 1), "shows"),
    "a copy does not inherit the mark": (Rules(inherits=False), Size(1, 2, 2), "shows"),
    "a removal during a copy is not sent": (Rules(counts_revisions=False), Size(1, 4, 1), "shows"),
    "the next leader is taken for the last": (
        Rules(copies_again=by_revision_alone, forgets_copies=False),
        Size(1, 4, 2),
        "shows",
    ),
    "epoch starts are removed": (Rules(keeps_epoch_starts=False), Size(1, 4, 3), "another history"),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_search_notices_a_missing_rule(name: str):
    rules, size, message = ABLATIONS[name]

    with pytest.raises(Anomaly, match=message):
        explore(rules, size)
