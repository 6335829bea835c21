"""Compaction of topics of schedules: a later leader finds the same state in what is left."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.storage.logs import Settings, log_on, put

from penstock.model.batch import BatchHeader
from penstock.model.ids import Offset
from penstock.schedules.firing import PartitionSchedules
from penstock.schedules.loading import entries_in, load
from penstock.storage import cleaned_fires
from penstock.storage.compaction import plan
from penstock.storage.log import Log
from penstock.storage.trash import Trash
from penstock.storage.txn_index import AbortedTxn
from penstock.testing import MemDisk
from penstock.testing.model.schedules import World
from penstock.wire.record_columns import decode_columns
from penstock.wire.records import ABORT_MARKER, decode_records, parse_marker

SETTINGS = Settings(
    cleanup_policy=frozenset({"compact"}),
    schedule_target="orders",
    segment_bytes_effective=600,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=100,
)
SEEDS = 100
STEPS = (60, 120)
"""After how many steps of the model its log is compacted, and again."""


def facts_of(state: PartitionSchedules) -> dict[str, Any]:
    """What decides what a leader does."""
    pending: list[tuple[int, int]] = []
    while state.index.next_due() is not None:
        entry = state.index.pop()
        if state.is_pending(entry):
            pending.append(tuple(entry[:2]))
    lanes = {
        key: (lane.producer_id, lane.epoch, lane.next_sequence, lane.open_at, lane.open)
        for key, lane in state.lanes.items()
    }
    return {"pending": pending, "lanes": lanes, "schedules": state.index.size}


def fill(log: Log, world: World) -> None:
    for header, data in world.leader.log:
        if header.base_offset < log.log_end:
            continue
        put(log, bytearray(data))
        if header.is_control and header.producer_id >= 0 and parse_marker(decode_records(data)[0])[0] == ABORT_MARKER:
            first = next(each.header.base_offset for each in world.leader.log if is_of(each.header, header.producer_id))
            log.note_aborted(AbortedTxn(header.producer_id, first, header.base_offset, header.base_offset))


def is_of(header: BatchHeader, producer_id: int) -> bool:
    return header.producer_id == producer_id and not header.is_control


def stable_of(world: World) -> int:
    """Below this offset everything is committed and decided."""
    leader = world.leader
    begun = {
        batch.header.producer_id: batch.header.base_offset
        for batch in leader.log
        if batch.header.is_transactional and not batch.header.is_control
    }
    ended = {
        batch.header.producer_id
        for batch in leader.log
        if batch.header.is_control and batch.header.next_offset <= leader.high_watermark
    }
    return min([leader.high_watermark, *(at for producer, at in begun.items() if producer not in ended)])


def compact(log: Log, world: World, now_ms: int) -> int:
    """One pass; returns how many records it dropped."""
    log.roll()
    work = plan(
        log, now_ms, stable=Offset(stable_of(world)), committed=Offset(world.leader.high_watermark), keys_max=100
    )
    if work is None:
        return 0
    work.run(log, Trash(log.directory.disk))
    return work.totals.records_dropped


def history(seed: int) -> tuple[Log, World, int]:
    """A log that was compacted while a leader wrote it: twice, and then until tombstones are gone."""
    world = World(seed)
    log = log_on(MemDisk(), SETTINGS)
    dropped = 0
    for at in range(max(STEPS)):
        # Its leader is not replaced: this log is that of one replica.
        world.change_leader = lambda: None  # type: ignore[method-assign]
        world.step(drain=False)
        if at + 1 in STEPS:
            fill(log, world)
            dropped += compact(log, world, 1_000 * at)
    for now_ms in (10_000_000, 20_000_000):
        log.cleaned_to = Offset(0)
        dropped += compact(log, world, now_ms)
    return log, world, dropped


def problem_of(seed: int) -> str | None:
    log, world, _ = history(seed)
    state = load(log.view())
    whole = log_on(MemDisk(), SETTINGS)
    fill(whole, world)
    for lane in state.lanes.values():
        if lane.open is not None:
            found = set()
            for batch in log.view().walk_from(log.log_start, bodies=True):
                if not batch.header.is_control and batch.header.record_count:
                    found |= set(entries_in(decode_columns(batch.data), [each.offset for each in lane.open.named]))
            if found != {each.offset for each in lane.open.named}:
                return "an open fire misses records"
    before, after = facts_of(load(whole.view())), facts_of(state)
    return next((f"{name}: {before[name]} / {after[name]}" for name in before if before[name] != after[name]), None)


def test_a_leader_finds_the_same_state_in_a_compacted_log() -> None:
    assert {seed: problem for seed in range(SEEDS) if (problem := problem_of(seed)) is not None} == {}
    assert sum(history(seed)[2] for seed in range(10)) > 50


ABLATIONS = {
    "what open fires name is kept": ("_pinned", frozenset()),
    "the last fire of a target is kept": ("_last", {}),
    "a fire is kept while a record that it names is": ("_named", frozenset()),
}


@pytest.mark.parametrize("rule", ABLATIONS)
def test_compaction_without_a_rule_changes_the_state(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, value = ABLATIONS[rule]
    scan = cleaned_fires.CleanedFires._scan

    def ablated(fires: cleaned_fires.CleanedFires, *args: Any) -> None:
        scan(fires, *args)
        setattr(fires, name, value)

    monkeypatch.setattr(cleaned_fires.CleanedFires, "_scan", ablated)
    assert any(problem_of(seed) for seed in range(4 * SEEDS))
