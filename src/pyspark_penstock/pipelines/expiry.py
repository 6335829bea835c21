"""Deletes the files of a table that only versions older than a given age need.

Files being written are in no version yet, and too young to be deleted. The plan of an unfinished replay names its
files: while it needs one of those to delete, nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from penstock.model.clock import Clock, SystemClock
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.lake import Expired, LakeTable
from pyspark_penstock.pipelines.registry import Registry
from pyspark_penstock.pipelines.replay_source import PLAN_FILE
from pyspark_penstock.pipelines.store import Store

HOUR_MS = 3_600_000
EVERY_MS = HOUR_MS
AGE_MS_MIN = HOUR_MS
"""Longer than any batch takes: its files are in no version until its commit."""

NeededBy = Callable[[Collection[str]], Sequence[str]]
"""The names of the replays that have yet to read one of some files."""


def check_age(age_ms: int) -> int:
    """WrongOption for an age that files of running batches could have."""
    if age_ms < AGE_MS_MIN:
        raise WrongOption("old versions are kept for at least 1h, so that the files of a running batch are not deleted")
    return age_ms


def expire(
    table: LakeTable,
    age_ms: int,
    *,
    needed_by: NeededBy | None = None,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Expired:
    """Delete files that only older versions need; with ``dry_run``, or while a replay needs one, only list them."""
    before_ms = (clock or SystemClock()).now_ms() - check_age(age_ms)
    found = table.expire(before_ms, dry_run=True)
    names = tuple(needed_by(found.files)) if needed_by is not None and found.files else ()
    if dry_run or names:
        return replace(found, needed_by=names)
    return table.expire(before_ms, dry_run=False)


@dataclass(slots=True, kw_only=True)
class Expiry:
    """Expires a table at intervals, between the batches of a query that writes to it."""

    table: LakeTable
    age_ms: int
    needed_by: NeededBy | None = None
    clock: Clock = field(default_factory=SystemClock)
    _last_ms: int | None = field(default=None, init=False)

    def __call__(self) -> None:
        """Not with every batch, since it reads the list of all files."""
        now = self.clock.now_ms()
        if self._last_ms is None or now - self._last_ms >= EVERY_MS:
            self._last_ms = now
            expire(self.table, self.age_ms, needed_by=self.needed_by, clock=self.clock)


def replays_of(registry: Registry, table: LakeTable) -> NeededBy:
    """A function that finds the unfinished replays in this machine's registry."""

    def needed_by(files: Collection[str]) -> list[str]:
        names: list[str] = []
        for state in registry.every():
            if state.kind == "replay" and state.status != "finished" and state.checkpoint:
                plan = Store.at(state.checkpoint).read_json(PLAN_FILE)
                planned = set[str]()
                if plan is not None and plan["root"] == table.store.root:
                    planned = {each["path"] for each in plan["files"]}
                if not planned.isdisjoint(files):
                    names.append(state.name)
        return names

    return needed_by
