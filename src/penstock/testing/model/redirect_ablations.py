"""Rules of draining a partition, each with a way to take it out: the model must find what goes wrong without it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from penstock.model.generated_errors import NotEnoughReplicas
from penstock.model.ids import NO_LEADER_EPOCH
from penstock.partition import redirect
from penstock.partition.producers import NO_SEQUENCE, ProducerTable
from penstock.partition.redirect import Drain, Sources
from penstock.testing.model import redirect as model
from penstock.testing.model.ablations import Ablation, none, nothing, patched
from penstock.testing.model.redirect import Entry, World


@contextmanager
def frozen_table() -> Generator[None]:
    """A drained partition hands over batches that it has itself."""
    hand_over = Drain.hand_over

    def blind(drain: Drain, producers: ProducerTable, *args: Any, **fields: Any) -> Any:
        with patched(ProducerTable, "find_duplicate", staticmethod(nothing)):
            return hand_over(drain, producers, *args, **fields)

    with patched(Drain, "hand_over", blind):
        yield


@contextmanager
def first_sequence() -> Generator[None]:
    """The target does not learn which sequence continues the drained partition's own."""
    check = ProducerTable.check_redirected

    def unknown(producers: ProducerTable, *args: Any, first_sequence: int, **fields: Any) -> Any:
        return check(producers, *args, first_sequence=NO_SEQUENCE, **fields)

    with patched(ProducerTable, "check_redirected", unknown):
        yield


@contextmanager
def greater_sequence() -> Generator[None]:
    """The target goes on from its own last sequence, also where the drained partition accepted more since."""
    check = ProducerTable.check_redirected

    def own(producers: ProducerTable, producer_id: Any, *args: Any, first_sequence: int, **fields: Any) -> Any:
        first = first_sequence if producers.get(producer_id) is None else NO_SEQUENCE
        return check(producers, producer_id, *args, first_sequence=first, **fields)

    with patched(ProducerTable, "check_redirected", own):
        yield


@contextmanager
def committed_table() -> Generator[None]:
    """A drained partition hands batches over before what its table knows is committed."""
    with patched(model, "check_ready", nothing):
        yield


@contextmanager
def barrier() -> Generator[None]:
    """A drained partition needs no record of its leader epoch, only those of earlier ones to be committed."""

    def by_start(at: Any) -> None:
        if at.high_watermark < at.epoch_start:
            raise NotEnoughReplicas

    with patched(model, "check_ready", by_start):
        yield


@contextmanager
def fence() -> Generator[None]:
    """The target accepts what an older leader of the drained partition sends."""

    def any_leader(sources: Sources, *_: Any, ends: bool = False) -> None:
        """Accept everything."""

    with patched(Sources, "check", any_leader):
        yield


@contextmanager
def fence_outlives_leader() -> Generator[None]:
    """Another leader of the target does not know which leaders of the drained partition are too old."""
    check = Sources.check

    def own_memory(sources: Sources, source: Any, *args: Any, ends: bool = False) -> None:
        check(sources, source._replace(known_epoch=NO_LEADER_EPOCH), *args, ends=ends)

    with patched(Sources, "check", own_memory):
        yield


@contextmanager
def adoption() -> Generator[None]:
    """A partition resumes without the batches of its producers that the target has."""
    with patched(redirect, "producers_of", none):
        yield


@contextmanager
def adoption_waits_for_marker() -> Generator[None]:
    """A partition that resumes adopts an epoch while its own transaction of the one before is open."""

    def eager(producers: ProducerTable, known: Any) -> Any:
        entry = producers.get(known.producer_id)
        if not known.batches and (entry is None or entry.epoch < known.epoch):
            return [redirect.AdoptedBatch(known.producer_id, known.epoch, NO_SEQUENCE, 0, -1)]
        return adopt(producers, known)

    adopt = redirect.adoptable
    with patched(redirect, "adoptable", eager):
        yield


@contextmanager
def first_batch_is_remembered() -> Generator[None]:
    """A later batch takes the place of a transaction's first one, which was lost on its way to the target."""
    hand_over = Drain.hand_over

    def forget(drain: Drain, producers: ProducerTable, producer_id: Any, epoch: Any, *args: Any, **fields: Any) -> Any:
        known = drain.is_verified(producers, producer_id, epoch)
        found = hand_over(drain, producers, producer_id, epoch, *args, **fields)
        return found._replace(begins_at=NO_SEQUENCE) if known and isinstance(found, redirect.Handover) else found

    with patched(Drain, "hand_over", forget):
        yield


@contextmanager
def both_markers_committed() -> Generator[None]:
    """The partition's own log gets a marker only where it has the transaction open, and need not be led for another."""
    mark_own = World.mark_own

    def only_open(world: World, at: Any, entry: Entry, done: Any) -> None:
        entry_known = at.producers.get(model.PRODUCER)
        if entry_known is not None and entry_known.txn_first_offset >= 0:
            mark_own(world, at, entry, done)
        else:
            done()

    with patched(World, "mark_own", only_open):
        yield


@contextmanager
def markers_in_both() -> Generator[None]:
    """A marker is written only where the transaction is open in the drained partition itself, or only in the target."""
    mark = World.mark_target

    def own_only(world: World, source: Any, target: Any, entry: Entry, done: Any) -> None:
        if source.producers.get(model.PRODUCER) is not None:
            done()
        else:
            mark(world, source, target, entry, done)

    with patched(World, "mark_target", own_only):
        yield


@contextmanager
def response_of_the_fence() -> Generator[None]:
    """The target says what it knows when the fence is committed, with markers after it that may get lost."""

    def late(world: World, source: Any, target: Any) -> None:
        end = target.append(Entry("fence"))
        target.when_committed(end, lambda: world.adopt(source, redirect.producers_of(target.producers, model.SOURCE)))

    with patched(World, "fence", late):
        yield


@contextmanager
def ghost_end_is_final() -> Generator[None]:
    """The leader of a partition that is about to be a ghost appends markers after it has reported the end."""
    with patched(World, "freeze", nothing):
        yield


@contextmanager
def ghost_waits_for_open_transaction() -> Generator[None]:
    """A partition becomes a ghost while a transaction is open in its own log."""
    with patched(World, "may_end", always):
        yield


def always(*_: object) -> bool:
    return True


ABLATIONS: dict[str, Ablation] = {
    each.__name__: each
    for each in (
        frozen_table,
        first_sequence,
        greater_sequence,
        committed_table,
        barrier,
        fence,
        fence_outlives_leader,
        adoption,
        adoption_waits_for_marker,
        first_batch_is_remembered,
        both_markers_committed,
        markers_in_both,
        response_of_the_fence,
        ghost_end_is_final,
        ghost_waits_for_open_transaction,
    )
}
