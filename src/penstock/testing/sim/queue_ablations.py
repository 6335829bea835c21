"""Rules of share groups, each with a way to take it out: a simulation with share groups must notice that it is missing.

The numbers are those of docs/invariants.md.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.model.deferred import Deferred
from penstock.shares import share_partition as rules
from penstock.shares.fetch import ShareFetchJob
from penstock.shares.leader import LedSharePartition
from penstock.shares.persister import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from penstock.shares.share_partition import Limits, Lock, SharePartition
from penstock.shares.state.commands import NO_EPOCH, ReadState, WriteState
from penstock.shares.state.shard import StateShard
from penstock.testing.sim.ablations import Ablation, replaced


def ignored(_: object) -> None:
    """Do nothing with an outcome."""


@contextmanager
def locks_last() -> Generator[None]:
    """Q1: a lock ends as soon as it begins, so that a record has several holders."""
    lock = SharePartition.__dict__["_lock"]

    def brief(share: SharePartition, member: str, now_ms: int, first: int, last: int, held: int) -> Lock:
        made: Lock = lock(share, member, now_ms - share.limits.lock_ms + 1, first, last, held)
        return made

    with replaced(SharePartition, "_lock", brief):
        yield


@contextmanager
def holders() -> Generator[None]:
    """Q2: any member acknowledges what any other holds."""
    check = SharePartition.__dict__["_check_held"]

    def check_state(share: SharePartition, member: str, first: int, last: int) -> None:
        holder = share.holder(max(first, share.start)) if last < share.end else None
        check(share, member if holder is None else holder, first, last)

    with replaced(SharePartition, "_check_held", check_state):
        yield


@contextmanager
def written_first() -> Generator[None]:
    """Q3: an acknowledgement gets its response before it is written."""
    later = LedSharePartition.__dict__["_written_later"]

    def at_once(led: LedSharePartition) -> Deferred[None]:
        later(led).deliver_to(ignored, ignored)
        written: Deferred[None] = Deferred()
        written.resolve(None)
        return written

    with replaced(LedSharePartition, "_written_later", at_once):
        yield


@contextmanager
def final_states() -> Generator[None]:
    """Q4, Q10: a leader that takes over hands out again what was finished behind an unfinished record."""
    load = SharePartition.__dict__["_load"]

    def forget(share: SharePartition, batches: Sequence[StateBatch], now_ms: int) -> None:
        load(share, [each._replace(state=AVAILABLE) for each in batches], now_ms)

    with replaced(SharePartition, "_load", forget):
        yield


@contextmanager
def delivery_limit() -> Generator[None]:
    """Q5: a record is delivered without a limit."""

    def available(share: SharePartition, deliveries: int) -> int:
        return AVAILABLE

    with replaced(SharePartition, "_released_state", available):
        yield


@contextmanager
def start_behind_unfinished() -> Generator[None]:
    """Q6: the start passes what is not finished."""
    anything = re.compile(rb".*", re.DOTALL)
    with replaced(rules, "_FINISHED_WHEN_WRITTEN", anything):  # type: ignore[arg-type]
        yield


@contextmanager
def committed_reads() -> Generator[None]:
    """Q7: a group that reads what is committed is given what is not."""
    read = ShareFetchJob.__dict__["_read"]

    def read_all(job: ShareFetchJob, led: LedSharePartition, *position: Any, **fields: Any) -> Any:
        settings = LedSharePartition.__dict__["settings"]
        with replaced(
            LedSharePartition,
            "settings",
            property(lambda each: settings.fget(each)._replace(read_committed=False)),
        ):
            return read(job, led, *position, **fields)

    with replaced(ShareFetchJob, "_read", read_all):
        yield


@contextmanager
def leader_epochs() -> Generator[None]:
    """Q8: the share coordinator takes the writes of a deposed leader, and does not remember who leads."""
    write, read = StateShard.__dict__["_write"], StateShard.__dict__["_read"]

    def write_any(shard: StateShard, command: WriteState, *rest: Any) -> Any:
        return write(shard, replace(command, leader_epoch=NO_EPOCH), *rest)

    def read_any(shard: StateShard, command: ReadState, *rest: Any) -> Any:
        return read(shard, replace(command, leader_epoch=NO_EPOCH), *rest)

    with replaced(StateShard, "_write", write_any), replaced(StateShard, "_read", read_any):
        yield


@contextmanager
def gaps_are_available() -> Generator[None]:
    """Q9: what lies between written ranges is taken for finished."""
    load = SharePartition.__dict__["_load"]

    def fill(share: SharePartition, batches: Sequence[StateBatch], now_ms: int) -> None:
        filled: list[StateBatch] = []
        position = int(share.start)
        for each in batches:
            if each.first > position:
                filled.append(StateBatch(position, each.first - 1, ACKNOWLEDGED, 1))
            filled.append(each)
            position = each.last + 1
        load(share, filled, now_ms)

    with replaced(SharePartition, "_load", fill):
        yield


@contextmanager
def key_order() -> Generator[None]:
    """QK1: records are handed out in the order of the log, whoever holds others of their keys."""

    def available(
        share: SharePartition, keys: object, member: str, first: int, until: int
    ) -> Sequence[tuple[int, int]]:
        return share.available(first, until)

    with replaced(SharePartition, "_next_of_keys", available):
        yield


@contextmanager
def backoff() -> Generator[None]:
    """QB1: a released record is handed out again at once."""

    def at_once(limits: Limits, deliveries: int) -> int:
        return 0

    with replaced(Limits, "backoff_after", at_once):
        yield


@contextmanager
def letters_first() -> Generator[None]:
    """QD1: what is given up is archived without a copy."""
    with replaced(SharePartition, "_dead_state", property(lambda share: ARCHIVED)):
        yield


LETTER_ABLATIONS: dict[str, Ablation] = {
    "QK1-key-order": key_order,
    "QB1-backoff": backoff,
    "QD1-letters-first": letters_first,
}
"""Noticed with a share group in order of keys, with backoff and dead letters."""

QUEUE_ABLATIONS: dict[str, Ablation] = {
    "Q1-locks-last": locks_last,
    "Q2-holders": holders,
    "Q3-written-first": written_first,
    "Q4-final-states": final_states,
    "Q5-delivery-limit": delivery_limit,
    "Q6-start-behind-unfinished": start_behind_unfinished,
    "Q7-committed-reads": committed_reads,
    "Q8-leader-epochs": leader_epochs,
    "Q9-gaps-are-available": gaps_are_available,
}
